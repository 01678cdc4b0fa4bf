"""The baselines' fused local steps against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import LeastSquares, Logistic, Problem
from fedepm_fast.algorithms import SFedAvg, SFedProx
from fedepm_fast.kernels import losses
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.gradient_steps import gradient_steps_kernel
from fedepm_fast.reference import learning_rate

M = 6
CLIENTS = np.array([4, 0, 3])
ALGORITHMS = [
    SFedAvg(local_steps=1, learning_rate=0.1, c=0.5),
    SFedAvg(local_steps=4, learning_rate=0.1, c=0.5),
    SFedProx(local_steps=1, learning_rate=0.1, prox=0.3, c=0.5),
    SFedProx(local_steps=3, learning_rate=0.1, prox=0.3, c=0.5),
]


def run(problem, algorithm, x, tau, dtype=np.float64, clients=CLIENTS):
    """The kernel's out and mu, rows of other clients filled with -1."""
    data = problem.data
    rows = losses.pack(
        data.features, data.labels, data.client_sizes, loss=problem.objective.name, dtype=dtype
    )
    k0 = algorithm.local_steps
    gamma = [learning_rate(algorithm.learning_rate, d, k0, tau) for d in data.client_sizes]
    G = np.array([problem.gradient(i, x) for i in range(M)])
    reg, x, G, gamma = (np.asarray(a, dtype) for a in (problem.reg, x, G, gamma))
    out, mu = np.full((M, x.size), -1, dtype), np.full(M, -1, dtype)
    finite = gradient_steps_kernel(rows)(
        rows.arrays, reg, clients, x, G, gamma,
        getattr(algorithm, "prox", 0.0), algorithm.mu0, algorithm.c, algorithm.alpha,
        k0, getattr(algorithm, "inner_steps", 1), tau * k0, losses.workspace(rows), out, mu,
    )  # fmt: skip
    return finite, out, mu


def problem_of(name, n):
    task = "classification" if name == "logistic" else "regression"
    objective = Logistic(beta=0.01) if name == "logistic" else LeastSquares(beta=0.01)
    return Problem(small_data(M, n, task=task), objective)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["logistic", "least_squares"])
@pytest.mark.parametrize("n", [3] if JIT_DISABLED else [1, 5, 14, 40])
def test_steps_are_the_reference(rng, n, name, dtype):
    problem = problem_of(name, n)
    x = 0.3 * rng.normal(size=n)
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    for algorithm in ALGORITHMS:
        finite, out, mu = run(problem, algorithm, x, 2, dtype)
        G = np.array([problem.gradient(i, x) for i in CLIENTS])
        W = np.zeros_like(G)
        want, want_mu = algorithm.local_round(problem, CLIENTS, x, W, G, 2)
        assert finite
        np.testing.assert_allclose(out[CLIENTS], want, rtol=0, atol=tolerance * np.abs(want).max())
        np.testing.assert_allclose(mu[CLIENTS], want_mu, rtol=tolerance)
        others = np.setdiff1d(np.arange(M), CLIENTS)
        assert (out[others] == -1).all() and (mu[others] == -1).all()


def test_a_client_does_not_depend_on_the_others(rng):
    problem = problem_of("logistic", 5)
    x = rng.normal(size=5)
    _, together, mu = run(problem, ALGORITHMS[3], x, 0)
    for i in CLIENTS:
        _, alone, own_mu = run(problem, ALGORITHMS[3], x, 0, clients=np.array([i]))
        np.testing.assert_array_equal(alone[i], together[i])
        assert own_mu[i] == mu[i]


def test_divergence_is_reported():
    problem = problem_of("least_squares", 3)
    algorithm = SFedAvg(local_steps=60, learning_rate=1e9)
    finite, _, _ = run(problem, algorithm, np.ones(3), 0)
    assert not finite
