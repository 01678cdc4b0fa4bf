"""SCAFFOLD against the equations of its paper, its compiled stages, and where it converges."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import fedepm
from problems import small_data
from scipy import sparse

from fedepm_fast import FederatedData, Problem, SFedAvg, make_problem, run
from fedepm_fast.algorithms import Scaffold
from fedepm_fast.participation import clients_per_round, select
from fedepm_fast.randomness import CounterRandomness


def largest_curvature(problem: Problem) -> float:
    """Of a client's Hessian of a logistic loss, whose second derivative is a quarter at most."""
    grams = []
    for i in range(problem.n_clients):
        a, _ = problem.data.client(i)
        grams.append(np.linalg.eigvalsh(a.T @ a / len(a) / 4)[-1] + problem.reg[i])
    return max(grams)


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
            if algorithm.learning_rate == "lipschitz":
                eta = algorithm.rate_scale / largest_curvature(problem)
            else:
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


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_with_one_rate_of_all_clients(engine):
    data = small_data()
    algorithm = Scaffold(
        local_steps=4, learning_rate="lipschitz", rate_scale=0.7, participation=0.6, noise="none"
    )
    want = as_in_the_paper(algorithm, make_problem(algorithm, data), 8, seed=3)
    got = run(algorithm, data, rounds=8, seed=3, engine=engine).history["x"]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_one_local_step_of_all_is_gradient_descent(engine):
    data = small_data()
    algorithm = Scaffold(local_steps=1, learning_rate="lipschitz", participation=1.0, noise="none")
    problem = make_problem(algorithm, data)
    x, eta, points = np.zeros(5), 1 / largest_curvature(problem), []
    for _ in range(9):
        points.append(x)
        x = x - eta * problem.total_gradient(x) / problem.n_clients
    got = run(algorithm, data, rounds=8, engine=engine).history["x"]
    np.testing.assert_allclose(got, points, rtol=1e-12, atol=1e-14)


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
    with pytest.raises(ValueError, match="learning_rate must be a number or 'lipschitz', got 'l'"):
        Scaffold(learning_rate="l")
    with pytest.raises(ValueError, match=r"learning_rate must be a finite number in \(0, inf\)"):
        Scaffold(learning_rate="-1")
    with pytest.raises(ValueError, match="must be a number for the objective 'poisson': nothing"):
        run(Scaffold(learning_rate="lipschitz"), small_data(task="counts"), objective="poisson")
    assert Scaffold(learning_rate="0.5") == Scaffold(learning_rate=0.5)
    with pytest.raises(ValueError, match="mechanism must be None for Scaffold"):
        Scaffold(mechanism=object())
    assert replace(Scaffold(), server_rate=0.5).describe()["server_rate"] == 0.5


def test_rates_on_the_command_line(capsys):
    for rate, stands in (("lipschitz", "lipschitz"), ("0.5", 0.5)):
        given = ("--algorithm", "scaffold", "--learning-rate", rate, "--clients", 20)
        code, out, _ = fedepm(capsys, "run", *given, "--rounds", 1, "--json")
        assert code == 0 and json.loads(out)["parameters"]["learning_rate"] == stands
    code, _, error = fedepm(capsys, "run", "--algorithm", "scaffold", "--learning-rate", "fast")
    assert code == 2 and "--learning-rate must be a number or 'lipschitz', got 'fast'" in error


def test_advice_names_a_scale_that_is_stable():
    algorithm = Scaffold(learning_rate="lipschitz", rate_scale=8.0)
    problem = make_problem(algorithm, small_data())
    assert algorithm.advice(problem).startswith("a rate_scale of 2 or less")
    assert "are stable" in replace(algorithm, rate_scale=1.9).advice(problem)
