"""FedPD against its equations, its compiled stages, FedDyn, and where it converges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import data_for, small_data
from scipy import sparse

from fedepm_fast import FederatedData, GivenRandomness, make_problem, run
from fedepm_fast.algorithms import ALGORITHMS
from fedepm_fast.objectives import OBJECTIVES, as_objective

FedPD, FedDyn = ALGORITHMS["fedpd"], ALGORITHMS["feddyn"]
ENGINES = ("compiled", "reference")
BOUNDED = [name for name in OBJECTIVES if as_objective(name).curvature]


def close(got, want, bound=1e-12):
    return np.abs(got - want).max() <= bound * max(np.abs(want).max(), 1e-300)


def as_printed(blocks, k0, eta, rates, selected, beta):
    """Algorithm 1 with Oracle I on least squares, a round after another: nothing is shared."""
    m, n = len(blocks), blocks[0][0].shape[1]
    x0, w, lam = np.zeros(n), np.zeros((m, n)), np.zeros((m, n))
    plus, points = np.zeros((m, n)), [np.zeros(n)]
    for S in selected:
        for i in S:
            A, b = blocks[i]
            for _ in range(k0):
                slope = A.T @ (A @ w[i] - b) / len(b) + beta / len(b) * w[i]
                w[i] = w[i] - rates[i] * (slope + lam[i] + (w[i] - x0) / eta)
            lam[i] = lam[i] + (w[i] - x0) / eta
            plus[i] = w[i] + eta * lam[i]
        x0 = plus.sum(axis=0) / m
        points.append(x0)
    return np.array(points), w, lam, plus


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("k0", [1, 4])
def test_rounds_are_those_of_the_paper(engine, layout, k0):
    data = small_data(6, 5, task="regression")
    blocks = [data.client(i) for i in range(6)]
    if layout == "sparse":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    rng = np.random.default_rng(1)
    selected = [np.arange(6), *(rng.choice(6, 3, replace=False) for _ in range(6))]
    tops = [(np.linalg.svd(A)[1][0] ** 2 + 1e-3) / len(b) for A, b in blocks]
    alpha = 2.0 * float(np.mean(tops))
    got = run(
        FedPD(local_steps=k0, prox=alpha), data, objective="least_squares", rounds=7,
        engine=engine, randomness=GivenRandomness([*selected, [0]]),
    )  # fmt: skip
    rates = [1 / (top + alpha) for top in tops]
    x, w, lam, plus = as_printed(blocks, k0, 1 / alpha, rates, selected, 1e-3)
    assert close(got.history["x"], x)
    assert close(got.W, w) and close(got.kept["pi"], lam) and close(got.Z, plus)


@settings(max_examples=20)
@given(
    m=st.integers(1, 6), n=st.integers(1, 6), seed=st.integers(0, 99), k0=st.integers(1, 8),
    scale=st.floats(0.5, 10.0), rho=st.floats(0.1, 1.0), name=st.sampled_from(BOUNDED),
    csr=st.booleans(), noise=st.sampled_from(["none", "laplace"]),
)  # fmt: skip
def test_compiled_stages_are_the_hooks(m, n, seed, k0, scale, rho, name, csr, noise):
    objective = as_objective(name)
    data = data_for(objective, m=m, n=n, seed=seed)
    if len(data.labels) < 3:
        return
    if csr:
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedPD(
        local_steps=k0, prox_scale=scale, participation=rho, noise=noise, epsilon=50.0, mu0=20.0
    )
    got, want = (
        run(algorithm, data, objective=objective, rounds=6, seed=seed, engine=engine)
        for engine in ENGINES
    )
    assert (got.engine, got.rounds) == ("compiled", 6)
    for a, b in (
        (got.x, want.x), (got.W, want.W), (got.Z, want.Z), (got.kept["pi"], want.kept["pi"]),
    ):  # fmt: skip
        size = max(np.abs(want.Z).max(), np.abs(b).max())
        assert np.abs(a - b).max() <= 1e-12 * max(size, 1e-300)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("weight", ["equal", "size"])
def test_the_fixed_point_is_the_optimum(name, weight):
    objective = as_objective(name, beta=0.5)
    data = data_for(objective, m=5, n=4, largest=25)
    algorithm = FedPD(local_steps=5, participation=0.6)
    problem = make_problem(algorithm, data, objective, weight)
    result = run(algorithm, data, objective=objective, rounds=1500, client_weight=weight, seed=1)
    best = problem.optimum().x
    assert np.linalg.norm(result.x - best) <= 1e-8 * max(np.linalg.norm(best), 1.0)
    np.testing.assert_allclose(result.kept["pi"], -problem.gradients(best), rtol=0, atol=1e-7)


def test_with_exact_steps_of_all_it_is_feddyn():
    data = small_data(6, 4, task="regression")
    options = dict(local_steps=3000, participation=1.0)
    pd, dyn = (
        run(cls(**options), data, objective="least_squares", rounds=6).history["x"]
        for cls in (FedPD, FedDyn)
    )
    assert close(pd, dyn, 1e-9) and np.abs(pd[-1]).max() > 0.1


def test_work_and_what_is_refused():
    result = run(FedPD(local_steps=4), small_data(), rounds=5)
    assert result.work["gradients"] == 4 * 3 * 5
    with pytest.raises(ValueError, match="curvature"):
        run(FedPD(), small_data(task="counts"), objective="poisson")
    with pytest.raises(ValueError, match="mechanism must be None for FedPD"):
        FedPD(mechanism=object())
