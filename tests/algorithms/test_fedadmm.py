"""FedADMM against its authors' recorded runs, against its equations, and where it converges."""

from __future__ import annotations

import dataclasses
import math
import re

import golden
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Told, data_for, small_data
from scipy import sparse

from fedepm_fast import (
    DivergenceWarning,
    FederatedData,
    GivenRandomness,
    LeastSquares,
    Logistic,
    Result,
    datasets,
    make_problem,
    run,
    run_callables,
)
from fedepm_fast.algorithms import FedADMM
from fedepm_fast.objectives import OBJECTIVES, as_objective
from fedepm_fast.stopping import GRADIENT, FedADMMRule

BOUND = 1e-12
ENGINES = ("reference", "compiled")


# Recorded runs of the authors' program -----------------------------------------------------


def recorded(path):
    """Algorithm, data and loss of a recorded run, and what there was drawn."""
    want = golden.load(path)
    if want["objective_name"] == "LogReg":
        features, labels = (array[want["rows"]] for array in datasets.load_adult()[:2])
        objective = Logistic(beta=1e-3)
    else:
        features, labels, objective = want["A"], want["b"], LeastSquares(beta=0.0)
    algorithm = FedADMM(
        local_steps=int(want["k0"]),
        participation=float(want["rho"]),
        r0=float(want["r0"]) if want["r0"] > 0 else None,
    )
    data = FederatedData(features, labels, want["client_sizes"])
    return algorithm, data, objective, GivenRandomness(want["selected"]), want


@pytest.mark.parametrize("path", golden.admm_files(), ids=lambda path: path.stem)
@pytest.mark.parametrize("engine", ENGINES)
def test_replay(path, engine):
    algorithm, data, objective, randomness, want = recorded(path)
    m, n = want["W"].shape
    result = run(
        algorithm, data, objective=objective, randomness=randomness, engine=engine,
        max_iterations=int(want["max_iterations"]),
    )  # fmt: skip
    assert (result.rounds, result.reasons) == (want["rounds"], (GRADIENT,))
    assert result.iterations + 1 == want["iterations"]
    assert not result.history["x"][0].any() and not want["x"][0].any()
    for got, x in zip(result.history["x"][1:], want["x"][1:], strict=True):
        assert golden.relative(got, x) <= BOUND
    np.testing.assert_allclose(result.history["objective"] / m, want["objective"], rtol=BOUND)
    np.testing.assert_allclose(result.history["grad_mean_sq"] / m**2, want["err"], rtol=BOUND)
    for got, name in (
        (result.x, "solution"), (result.W, "W"), (result.Z, "Z"), (result.kept["pi"], "Pi"),
    ):  # fmt: skip
        assert golden.relative(got, want[name]) <= BOUND, name
    eps = algorithm.local_steps**2 * 0.95 ** result.kept["iterations"][:, 0]
    np.testing.assert_allclose(eps, want["eps"], rtol=BOUND)
    told = algorithm.told(make_problem(algorithm, data, objective))
    np.testing.assert_allclose(told, [want["sigma"], want["r"]], rtol=BOUND)
    assert result.kept["pi"].shape == (m, n)


# The equations, line by line ---------------------------------------------------------------


def as_printed(blocks, loss, k0, r0, selected, beta):
    """x of every round, W, Pi and Z: nothing here is the package's."""
    m, n = len(blocks), blocks[0][0].shape[1]

    def gradient(i, w):
        A, b = blocks[i]
        t = A @ w
        if loss == "logistic":
            return (A.T @ (1 / (1 + np.exp(-t)) - b) / len(b) + beta / len(b) * w) / m
        return (A.T @ (t - b) / len(b) + beta / len(b) * w) / m

    share = 1 / 5 if loss == "logistic" else 1.0
    h = [
        (share * np.linalg.svd(A, compute_uv=False)[0] ** 2 + beta) / len(b) / m for A, b in blocks
    ]
    sigma = [r0 * h_i for h_i in h]
    W, Pi, Z, eps = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n)), [k0**2] * m
    points = []
    for S in selected:
        x = Z.sum(axis=0) / sum(sigma)
        points.append(x)
        for i in S:
            for _ in range(k0):
                eps[i] *= 0.95
                v, p, g = x, sigma[i] * x - Pi[i], gradient(i, x)
                for _ in range(3):
                    v = (h[i] * v + p - g) / (h[i] + sigma[i])
                    if ((p - sigma[i] * v - g) ** 2).sum() < eps[i] * n:
                        break
                    g = gradient(i, v)
                W[i] = v
                Pi[i] = sigma[i] * v - p
                Z[i] = sigma[i] * v + Pi[i]
    return [*points, Z.sum(axis=0) / sum(sigma)], W, Pi, Z


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(("k0", "r0", "size"), [(4, 0.7, 1), (1, 2.0, 1), (3, 0.5, 1e4)])
def test_rounds_are_the_equations(engine, loss, layout, k0, r0, size):
    task = "classification" if loss == "logistic" else "regression"
    data = small_data(6, 5, task=task)
    if loss == "least_squares":
        data = FederatedData(data.features, data.labels * size, data.client_sizes)
    blocks = [data.client(i) for i in range(6)]
    if layout == "sparse":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    rng = np.random.default_rng(1)
    selected = [rng.choice(6, 3, replace=False) for _ in range(8)]
    got = run(
        FedADMM(local_steps=k0, r0=r0), data, objective=loss, rounds=8, engine=engine,
        randomness=GivenRandomness([*selected, [0]]),
    )  # fmt: skip
    x, W, Pi, Z = as_printed(blocks, loss, k0, r0, selected, 1e-3)
    for found, want in (
        (got.history["x"], np.array(x)), (got.W, W), (got.kept["pi"], Pi), (got.Z, Z),
    ):  # fmt: skip
        assert golden.relative(found, want) <= BOUND
    if size > 1 and loss == "least_squares":  # beside which the tolerance is small
        taken, iterations = got.kept["gradients"][:, 0], got.kept["iterations"][:, 0]
        assert (taken > iterations).any() and (taken <= iterations / k0 + 2 * iterations).all()


@settings(max_examples=25)
@given(
    m=st.integers(1, 6), n=st.integers(1, 6), seed=st.integers(0, 99), k0=st.integers(1, 30),
    r0=st.floats(0.3, 3.0), rho=st.floats(0.1, 1.0), inner=st.integers(1, 4),
    name=st.sampled_from([name for name in OBJECTIVES if as_objective(name).curvature]),
    csr=st.booleans(), largest=st.integers(1, 20),
)  # fmt: skip
def test_compiled_stages_are_the_hooks(m, n, seed, k0, r0, rho, inner, name, csr, largest):
    objective = as_objective(name)
    data = data_for(objective, m=m, n=n, seed=seed, largest=largest)
    if (name == "multinomial" and len(np.unique(data.labels)) < 3) or len(data.labels) < 3:
        return
    if csr:
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedADMM(local_steps=k0, r0=r0, participation=rho, inner_steps=inner)
    got, want = (
        run(algorithm, data, objective=objective, rounds=6, seed=seed, engine=engine)
        for engine in reversed(ENGINES)
    )
    assert (got.engine, got.rounds) == ("compiled", 6)
    sigma = algorithm.told(make_problem(algorithm, data, objective))[0]
    pi = want.kept["pi"]
    # z_i is what may be left of a sum of larger numbers, and x is that of all z_i.
    size = max(np.abs(want.W).max(), np.abs(pi / sigma[:, None]).max(), 1e-300)
    for a, b in ((got.x, want.x), (got.W, want.W)):
        assert np.abs(a - b).max() <= BOUND * size
    for a, b in ((got.Z, want.Z), (got.kept["pi"], pi)):
        assert np.abs((a - b) / sigma[:, None]).max() <= BOUND * size
    np.testing.assert_allclose(got.history["objective"], want.history["objective"], rtol=BOUND)
    for name in ("iterations", "gradients"):
        np.testing.assert_array_equal(got.kept[name], want.kept[name])


# Where it converges ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if as_objective(n).curvature])
@pytest.mark.parametrize("weight", ["equal", "size"])
def test_the_fixed_point_is_the_optimum(name, weight):
    objective = as_objective(name, beta=0.5)
    data = data_for(objective, m=5, n=4, largest=25)
    algorithm = FedADMM(local_steps=5, r0=0.8, participation=0.6)
    problem = make_problem(algorithm, data, objective, weight)
    result = run(algorithm, data, objective=objective, rounds=600, client_weight=weight, seed=1)
    best = problem.optimum().x
    assert np.linalg.norm(result.x - best) <= 1e-8 * max(np.linalg.norm(best), 1.0)
    np.testing.assert_allclose(result.kept["pi"], -problem.gradients(best) / 5, rtol=0, atol=1e-7)


def test_one_client_a_client_of_one_row_and_one_of_zeros():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 3))
    rows[5:7] = 0.0
    data = FederatedData(rows, rows @ [1.0, -2.0, 0.5] + 0.1, [5, 2, 1])
    options = dict(objective=LeastSquares(beta=0.0), rounds=2000)
    both = [
        run(FedADMM(r0=0.9, local_steps=3), data, engine=engine, **options) for engine in ENGINES
    ]
    want = make_problem(FedADMM(), data, LeastSquares(beta=0.0)).optimum().x
    for result in both:
        np.testing.assert_allclose(result.x, want, rtol=0, atol=1e-8)
    alone = run(FedADMM(r0=0.9), small_data(1, 3), rounds=300)
    best = make_problem(FedADMM(), small_data(1, 3)).optimum()
    assert alone.history["objective"][-1] <= best.value * (1 + 1e-9)


# A default that oscillates, and what it says -------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_default_that_oscillates_names_an_r0_that_does_not(seed):
    data = datasets.adult(clients=50, seed=seed)
    options = dict(seed=seed, every_accuracy=False)
    with pytest.warns(DivergenceWarning, match=r"r0=[\d.]+ makes the server's step stable"):
        result = run(FedADMM(local_steps=10), data, max_rounds=60, **options)
    r0 = float(re.search(r"r0=([\d.]+) ", result.message)[1])
    calm = run(FedADMM(local_steps=10, r0=r0), data, max_rounds=60, **options)
    assert calm.reasons == (GRADIENT,) and not calm.warning
    assert calm.mean_objective < 0.56


def test_a_run_that_swings_says_so_wherever_it_ends():
    data = datasets.adult(clients=50, seed=2)
    with pytest.warns(DivergenceWarning):
        full = run(FedADMM(local_steps=10), data, rounds=60, seed=2)
    low = int(np.argmin(full.history["objective"][30:])) + 30
    with pytest.warns(DivergenceWarning, match="the run swings, up to f"):
        result = run(FedADMM(local_steps=10), data, rounds=low, seed=2)
    assert result.swings and not (result.ended_above_start or result.ended_above_best)
    # One that ends at last where its gradient happens to be small says so too.
    data = datasets.adult(clients=50, seed=0)
    with pytest.warns(DivergenceWarning, match=r"the run swings, .*; r0=0.92 makes"):
        result = run(FedADMM(local_steps=10), data, every_accuracy=False)
    assert result.reasons == (GRADIENT,) and result.rounds > 200


# The stopping rule -------------------------------------------------------------------------


def test_stopping_rule():
    rule = FedADMMRule(tolerance=1e-6)
    assert rule.fired(14, 10, [1.0], [1.0]) == ()
    assert rule.fired(14, 10, [1.0] * 2, [1.0, 0.99e-4]) == (GRADIENT,)
    assert rule.fired(14, 10, [1.0] * 2, [1.0, 1.01e-4]) == ()
    # The first gradient is small: a fifth of it counts.
    assert rule.fired(14, 10, [1.0] * 2, [1e-4, 0.21e-4]) == ()
    assert rule.fired(14, 10, [1.0] * 2, [1e-4, 0.19e-4]) == (GRADIENT,)
    assert rule.fired(14, 10, [1.0], [0.0]) == (GRADIENT,)
    with pytest.raises(ValueError, match="tolerance depends on the data"):
        FedADMMRule().fired(14, 10, [1.0], [1.0])
    with pytest.raises(ValueError, match="gradient_share must be"):
        FedADMMRule(gradient_share=-1)
    problem = make_problem(FedADMM(), small_data(6, 5))
    got = FedADMMRule().resolve(problem).tolerance
    assert got == pytest.approx(5e-7 * 5 / (6 * problem.n_samples))
    problem = make_problem(FedADMM(), small_data(6, 5, task="regression"), "least_squares")
    got = FedADMMRule().resolve(problem).tolerance
    assert got == pytest.approx(2e-3 * 5 / (6 * problem.n_samples))


def test_defaults_are_those_of_the_program():
    small = make_problem(FedADMM(), small_data(6, 5))
    assert FedADMM().resolve(small).r0 == 0.05
    assert FedADMM().resolve(make_problem(FedADMM(), datasets.adult(clients=5))).r0 == 0.06
    squares = make_problem(FedADMM(), small_data(6, 5, task="regression"), "least_squares")
    found = FedADMM(local_steps=8).resolve(squares)
    assert (found.r0, found.curvature_share) == (0.5 / math.log10(17), 1.0)
    assert (found.divisor, found.noise) == (6, "none")
    assert FedADMM(r0=0.3).resolve(small).describe()["r0"] == 0.3


# Noise, what is refused, and what is kept ----------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_is_on_the_upload_in_units_of_the_penalty(engine):
    data, rng = small_data(4, 5), np.random.default_rng(3)
    u0, u = rng.normal(size=(4, 5)), rng.normal(size=(3, 4, 5))
    algorithm = FedADMM(r0=0.8, local_steps=3, noise="standardized", epsilon=50.0, mu0=10.0)
    problem = make_problem(algorithm, data)
    sigma = algorithm.told(problem)[0]
    result = run(
        algorithm, data, rounds=1, engine=engine, randomness=GivenRandomness([[0, 2], [1]], u0, u)
    )
    x0 = (sigma[:, None] * u0 / 10.0).sum(axis=0) / sigma.sum()
    np.testing.assert_allclose(result.history["x"][0], x0, rtol=1e-12)
    for i in (0, 2):
        g = problem.gradient(i, x0)
        e = (result.Z[i] - result.kept["pi"][i]) / sigma[i] - result.W[i]
        mu = 2 * np.abs(g).sum() / 50.0 * u[0, i] / e
        assert np.ptp(mu) < 1e-9 * mu[0] and 10.0 * 1.001**3 <= mu[0] < 10.04 * 1.001**3
    assert "none" in result.guarantee


def test_what_it_cannot_do_is_said_before_any_work():
    with pytest.raises(ValueError, match="objective must have a bound of its curvature"):
        run(FedADMM(), small_data(task="counts"), objective="poisson")
    with pytest.raises(ValueError, match=r"objective must have a bound .* attribute lipschitz"):
        run_callables(FedADMM(), [lambda x: (x @ x, 2 * x)], np.zeros(2))
    with pytest.raises(ValueError, match="r0 must be given for FedADMM where the loss and the"):
        run_callables(FedADMM(), told_losses(small_data())[0], np.zeros(5))
    with pytest.raises(ValueError, match="features must be brought to scale"):
        data = small_data()
        run(FedADMM(), FederatedData(data.features * 1e170, data.labels, data.client_sizes))
    with pytest.raises(ValueError, match="mechanism must be None for FedADMM"):
        FedADMM(mechanism=object())
    for name in ("r0", "curvature_share", "divisor"):
        with pytest.raises(ValueError, match=f"{name} must be a finite number in"):
            FedADMM(**{name: 0.0})
    with pytest.raises(ValueError, match="unit_noise_init and unit_noise must be given"):
        run(FedADMM(noise="laplace"), small_data(), randomness=GivenRandomness([[0]]))
    with pytest.raises(ValueError, match=r"selected\[0\] must hold clients from 0 to 5"):
        run(FedADMM(), small_data(), randomness=GivenRandomness([[6]]), rounds=0)


def told_losses(data, objective="logistic"):
    problem = make_problem(FedADMM(), data, objective)
    return [Told(problem, i, L) for i, L in enumerate(problem.lipschitz())], problem


def test_callables_tell_their_curvature():
    data = small_data(task="regression")
    losses, _ = told_losses(data, "least_squares")
    algorithm = FedADMM(r0=0.6, local_steps=4)
    got = run_callables(algorithm, losses, np.zeros(5), samples=data.client_sizes, rounds=5)
    want = run(algorithm, data, objective="least_squares", rounds=5)
    assert golden.relative(got.x, want.x) <= BOUND


def test_what_clients_keep_is_saved(tmp_path):
    result = run(FedADMM(r0=0.8), small_data(), rounds=3)
    result.save(tmp_path / "a.npz")
    again = Result.load(tmp_path / "a.npz")
    assert list(again.kept) == ["pi", "iterations", "gradients"]
    np.testing.assert_array_equal(again.kept["pi"], result.kept["pi"])


def test_a_start_is_every_clients():
    data = small_data(task="regression")
    start = np.arange(5.0)
    for engine in ENGINES:
        found = run(
            FedADMM(r0=0.8), data, objective="least_squares", rounds=0, start=start, engine=engine
        )
        np.testing.assert_allclose(found.x, start, rtol=1e-12)
    assert dataclasses.replace(FedADMM(), r0=1.0).name == "fedadmm"
