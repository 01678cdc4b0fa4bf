"""The paper's theorems on real numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, SFedAvg, datasets, make_problem, run, theory
from fedepm_fast.reference import ens


@pytest.fixture(scope="module")
def adult():
    return make_problem(FedEPM(), datasets.adult(clients=50, seed=0))


def test_exact_penalty_holds_exactly_from_lam_star_on(problem):
    x = problem.optimum().x
    threshold = theory.lam_star(problem, x)
    assert theory.consensus_residual(problem, x) < 1e-10
    for factor in (1.0, 1.5, 100.0):
        assert theory.penalty_residual(problem, x, lam=factor * threshold, eta=0.3) < 1e-10
        assert theory.exact_penalty(problem, x, factor * threshold).covered
    for factor in (0.0, 0.5, 0.999):
        residual = theory.penalty_residual(problem, x, lam=factor * threshold, eta=0.3)
        assert residual == pytest.approx((1 - factor) * threshold, rel=1e-6)
        assert not theory.exact_penalty(problem, x, factor * threshold).covered


def test_exact_penalty_on_adult(adult):
    x = adult.optimum(method="newton").x
    coverage = theory.exact_penalty(adult, x, FedEPM().resolve(adult).lam)
    assert not coverage.covered
    assert 100 * coverage.lam < coverage.lam_star < 0.01
    assert coverage.residual < 1e-9
    assert theory.penalty_residual(adult, x, lam=coverage.lam_star, eta=1e-5) < 1e-9


def test_penalty_residual_off_consensus(problem, rng):
    """At (x, W) where W minimises F(x, .), only the sum over the clients is left."""
    lam, eta = 0.05, 0.4
    x = rng.normal(size=problem.n_parameters)
    W = np.tile(x, (problem.n_clients, 1))
    r = problem.lipschitz()[:, None]
    for _ in range(20000):  # proximal gradient steps on each client's part
        before, v = W, W - x - problem.gradients(W) / r
        W = x + np.sign(v) * np.maximum(np.abs(v) - lam / r, 0) / (1 + eta / r)
        if np.array_equal(W, before):
            break
    total = np.abs(problem.gradients(W).sum(axis=0)).max()
    assert theory.penalty_residual(problem, x, W, lam=lam, eta=eta) == pytest.approx(
        total, rel=1e-9
    )
    assert total > 1e-3


def test_penalty_objective_by_hand(problem, rng):
    x = rng.normal(size=problem.n_parameters)
    W = rng.normal(size=(problem.n_clients, problem.n_parameters))
    want = sum(
        problem.value(i, W[i]) + 0.3 * np.abs(W[i] - x).sum() + 0.35 * ((W[i] - x) ** 2).sum()
        for i in range(problem.n_clients)
    )
    assert theory.penalty_objective(problem, x, W, 0.3, 0.7) == pytest.approx(want, rel=1e-13)


def test_ens_minimises_the_penalty_model_in_x(problem, rng):
    W = rng.normal(size=(problem.n_clients, problem.n_parameters))
    x = ens(W, 0.3 / 0.7)
    best = theory.penalty_objective(problem, x, W, 0.3, 0.7)
    for _ in range(50):
        other = x + rng.normal(scale=rng.choice([1e-3, 0.1, 1]), size=len(x))
        assert theory.penalty_objective(problem, other, W, 0.3, 0.7) >= best


@pytest.mark.parametrize("preset", ["released", "text"])
@pytest.mark.parametrize("participation", [0.3, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_descent_lemma_on_random_clients(preset, participation, seed):
    check_descent(
        theory.descent_lemma(
            FedEPM(preset=preset, participation=participation), small_data(seed=seed), seed=seed
        )
    )


@pytest.mark.parametrize("preset", ["released", "text"])
def test_descent_lemma_on_adult(preset, adult):
    trace = theory.descent_lemma(FedEPM(preset=preset), adult.data, rounds=15)
    check_descent(trace)
    assert trace.objective[-1] < trace.objective[0]


def test_descent_lemma_for_least_squares():
    data = small_data(task="regression")
    check_descent(
        theory.descent_lemma(FedEPM(preset="text"), data, objective="least_squares", rounds=10)
    )


def check_descent(trace):
    rounding = 1e-13 * np.maximum(np.abs(trace.objective[1:]), np.abs(trace.objective[:-1]))
    assert (trace.left <= trace.right_sharp + rounding).all()
    assert (trace.right_sharp <= trace.right).all()
    np.testing.assert_array_equal(trace.left, np.diff(trace.objective))


def test_the_sharp_bound_of_the_first_step_is_the_lemmas():
    """Where every w_i is x, nothing but the step itself bounds the change, and it says descent."""
    data = small_data()
    algorithm = FedEPM(local_steps=1, noise="none", preset="text")
    problem = make_problem(algorithm, data)
    algorithm = dataclasses.replace(algorithm, mu0=2 * problem.lipschitz().max())
    trace = theory.descent_lemma(algorithm, data, rounds=1, seed=9)
    W = run(algorithm, data, rounds=1, seed=9).W
    moved = np.flatnonzero(np.abs(W).max(axis=1))
    lam, eta = algorithm.resolve(problem).weights
    shrunk = np.abs(problem.gradients(np.zeros(W.shape[1]))[moved]) - lam
    # w = soft(-g, lam) / (eta + nu) from x = 0.
    nu = shrunk.max(axis=1) / np.abs(W[moved]).max(axis=1) - eta
    lengths = (W[moved] ** 2).sum(axis=1)
    bound = -((nu + eta - problem.lipschitz()[moved]) / 2 * lengths).sum()
    assert trace.right_sharp == pytest.approx([bound], rel=1e-12)
    assert trace.left[0] <= bound < 0


def test_the_trace_is_the_run_itself():
    data = small_data()
    algorithm = FedEPM(local_steps=4, noise="none")
    trace = theory.descent_lemma(algorithm, data, rounds=5, seed=9)
    result = run(algorithm, data, rounds=5, seed=9)
    problem = make_problem(algorithm, data)
    resolved = algorithm.resolve(problem)
    # The last iterate of the trace is W of the run, with x of the round before.
    before = result.history["x"][-2]
    want = theory.penalty_objective(problem, before, result.W, resolved.lam, resolved.eta)
    assert len(trace.left) == 20
    assert trace.objective[-1] == pytest.approx(want, rel=1e-13)


def test_bad_input(problem):
    x = np.zeros(problem.n_parameters)
    with pytest.raises(ValueError, match=r"x must have shape"):
        theory.lam_star(problem, np.zeros(3))
    with pytest.raises(ValueError, match="W must have shape"):
        theory.consensus_residual(problem, x, np.zeros((2, 5)))
    with pytest.raises(ValueError, match="lam must be"):
        theory.penalty_residual(problem, x, lam=-1, eta=1)
    with pytest.raises(ValueError, match="eta must be"):
        theory.penalty_residual(problem, x, lam=1, eta=0)
    with pytest.raises(TypeError, match=r"algorithm must be FedEPM\(...\), got SFedAvg"):
        theory.descent_lemma(SFedAvg(), small_data())
