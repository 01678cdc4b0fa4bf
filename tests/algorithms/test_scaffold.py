"""SCAFFOLD against the equations of its paper, its compiled stages, and where it converges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import small_data
from scipy import sparse

from fedepm_fast import FederatedData, Problem, SFedAvg, make_problem, run
from fedepm_fast.algorithms import Scaffold
from fedepm_fast.participation import clients_per_round, select
from fedepm_fast.randomness import CounterRandomness


def as_in_the_paper(algorithm: Scaffold, problem: Problem, rounds: int, seed: int) -> list:
    """Algorithm 1 of Karimireddy et al. with option II: the server's points, without noise."""
    m, n, K = problem.n_clients, problem.n_parameters, algorithm.local_steps
    x, c, c_i = np.zeros(n), np.zeros(n), np.zeros((m, n))
    m0, randomness, points = (
        clients_per_round(algorithm.participation, m),
        CounterRandomness(seed),
        [],
    )
    for tau in range(rounds + 1):
        points.append(x)
        S = select(randomness, tau, m, m0)
        dy, dc = np.zeros(n), np.zeros(n)
        for i in S:
            eta = algorithm.learning_rate * problem.data.client_sizes[i] / np.sqrt(2 * K + tau)
            y = x
            for _ in range(K):
                y = y - eta * (problem.gradient(i, y) - c_i[i] + c)
            new = c_i[i] - c + (x - y) / (K * eta)
            dy, dc, c_i[i] = dy + y - x, dc + new - c_i[i], new
        x = x + algorithm.server_rate / len(S) * dy
        c = c + len(S) / m * (dc / len(S))
    return points


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("server_rate", [1.0, 0.6])
def test_rounds_are_those_of_the_paper(engine, server_rate):
    data = small_data()
    algorithm = Scaffold(
        local_steps=4, learning_rate=0.1, participation=0.6, noise="none", server_rate=server_rate
    )
    want = as_in_the_paper(algorithm, make_problem(algorithm, data), 8, seed=3)
    got = run(algorithm, data, rounds=8, seed=3, engine=engine).history["x"]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("noise", ["standardized", "laplace", "none"])
@pytest.mark.parametrize(
    ("objective", "task"), [("logistic", "classification"), ("huber", "regression")]
)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_compiled_stages_are_the_hooks(local_steps, noise, objective, task, layout):
    data = small_data(7, 5, task=task)
    if layout == "sparse":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = Scaffold(
        local_steps=local_steps, learning_rate=0.05, noise=noise, mu0=20.0, epsilon=5.0,
        participation=0.5, coverage_rounds=3,
    )  # fmt: skip
    got, want = (
        run(algorithm, data, objective=objective, rounds=12, seed=5, engine=engine)
        for engine in ("compiled", "reference")
    )
    assert (got.engine, got.rounds) == ("compiled", 12)
    for field in ("x", "W", "Z"):
        a, b = getattr(got, field), getattr(want, field)
        assert np.abs(a - b).max() <= 1e-12 * np.abs(b).max(), field
    np.testing.assert_allclose(
        got.history["objective"], want.history["objective"], rtol=1e-12, atol=0
    )


def test_clients_that_differ_do_not_keep_it_from_the_optimum():
    rng = np.random.default_rng(0)
    sizes, truth = np.full(8, 30), 3 * rng.normal(size=(8, 4))  # each client has a model of its own
    rows = rng.normal(size=(240, 4)) * np.linspace(0.5, 1.5, 8).repeat(30)[:, None]
    data = FederatedData(rows, (rows * truth.repeat(30, axis=0)).sum(axis=1), sizes)
    options = dict(noise="none", local_steps=10, learning_rate=0.01, participation=1.0)
    problem = make_problem(Scaffold(**options), data, "least_squares")
    best = problem.optimum().x
    far = {
        cls: np.linalg.norm(
            run(cls(**options), data, objective="least_squares", rounds=400).x - best
        )
        for cls in (Scaffold, SFedAvg)
    }
    assert far[Scaffold] < 1e-6 < 1e-2 < far[SFedAvg]


def test_parameters():
    with pytest.raises(ValueError, match="server_rate must be a finite number in"):
        Scaffold(server_rate=0.0)
    with pytest.raises(ValueError, match="mechanism must be None for Scaffold"):
        Scaffold(mechanism=object())
    assert replace(Scaffold(), server_rate=0.5).describe()["server_rate"] == 0.5
