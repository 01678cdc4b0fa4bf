"""Parameter objects, and one round of each algorithm against its equations."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, Logistic, Problem, SFedAvg, SFedProx, make_problem, run
from fedepm_fast.privacy import LaplaceMechanism
from fedepm_fast.randomness import CounterRandomness
from fedepm_fast.reference import ens, soft_threshold


def test_defaults_are_the_paper_s(problem):
    a = FedEPM().resolve(problem)
    assert (a.local_steps, a.participation, a.epsilon) == (12, 0.5, 0.1)
    assert (a.mu0, a.c, a.alpha) == (0.05, 1e-8, 1.001)
    assert a.eta == (0.02 * 6 + 1) * 0.6 * 1e-5
    assert a.lam == a.eta / 2
    assert (a.noise, a.step) == ("standardized", "1/d")
    text = FedEPM(preset="text").resolve(problem)
    assert (text.noise, text.step) == ("laplace", "1")
    np.testing.assert_array_equal(a.steps(problem.data.client_sizes), 1 / problem.data.client_sizes)
    np.testing.assert_array_equal(text.steps(problem.data.client_sizes), np.ones(6))
    assert FedEPM(eta=0.5).resolve(problem).lam == 0.25


def test_preset_decides_the_regulariser_unless_told():
    data = small_data()
    assert make_problem(FedEPM(), data).objective.regularizer == "beta/d"
    assert make_problem(SFedAvg(preset="text"), data).objective.regularizer == "beta"
    told = make_problem(FedEPM(), data, Logistic(regularizer="beta"))
    assert told.objective.regularizer == "beta"


def test_are_frozen_values():
    assert FedEPM(epsilon=0.3) == FedEPM(epsilon=0.3) != FedEPM()
    assert hash(SFedProx()) == hash(SFedProx())
    with pytest.raises(dataclasses.FrozenInstanceError):
        FedEPM().epsilon = 2.0


@pytest.mark.parametrize("cls", [FedEPM, SFedAvg, SFedProx])
@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("local_steps", 0, ValueError),
        ("local_steps", 2.5, TypeError),
        ("local_steps", True, TypeError),
        ("participation", 0.0, ValueError),
        ("participation", 1.1, ValueError),
        ("participation", float("nan"), ValueError),
        ("participation", "half", TypeError),
        ("epsilon", -0.1, ValueError),
        ("epsilon", 0.0, ValueError),
        ("epsilon", float("inf"), ValueError),
        ("preset", "paper", ValueError),
        ("noise", "gauss", ValueError),
        ("mu0", 0.0, ValueError),
        ("c", -1.0, ValueError),
        ("alpha", 0.9, ValueError),
        ("coverage_rounds", 0, ValueError),
    ],
)
def test_bad_parameters_are_named(cls, field, value, error):
    with pytest.raises(error, match=f"^{field} must be"):
        cls(**{field: value})


@pytest.mark.parametrize(
    ("cls", "field", "value"),
    [
        (FedEPM, "lam", -1.0),
        (FedEPM, "eta", 0.0),
        (FedEPM, "eta", -1e-6),
        (FedEPM, "step", "d"),
        (SFedAvg, "learning_rate", 0.0),
        (SFedProx, "prox", -1.0),
        (SFedProx, "inner_steps", 0),
    ],
)
def test_bad_parameters_of_one_algorithm(cls, field, value):
    with pytest.raises(ValueError, match=f"^{field} must be"):
        cls(**{field: value})


def unit_noise(seed, tau, m, n):
    return CounterRandomness(seed).unit_noise(tau, np.arange(m), n, standardize=True)


def test_two_rounds_of_fedepm_by_hand(problem):
    """The equations once more, with scalars and loops."""
    k0, m, n = 3, problem.n_clients, problem.n_parameters
    eta, lam, seed = 0.02, 0.013, 5
    algorithm = FedEPM(local_steps=k0, participation=1.0, epsilon=0.7, lam=lam, eta=eta, mu0=5.0)
    result = run(algorithm, problem.data, objective=problem.objective, seed=seed, rounds=2)
    W = np.zeros((m, n))
    Z = W + unit_noise(seed, -1, m, n) / 5.0
    for tau in range(2):
        x = ens(Z, lam / eta)
        for i in range(m):
            g = problem.gradient(i, x)
            for q in range(k0):
                gap = W[i] - x
                mu = 5.0 * (1 + 1e-8 * gap @ gap) * 1.001 ** (tau * k0 + q + 1)
                nu = mu / problem.data.client_sizes[i]
                W[i] = x + soft_threshold(nu * gap - g, lam) / (eta + nu)
            Z[i] = W[i] + 2 * np.abs(g).sum() / (0.7 * mu) * unit_noise(seed, tau, m, n)[i]
    np.testing.assert_allclose(result.W, W, rtol=1e-12)
    np.testing.assert_allclose(result.Z, Z, rtol=1e-12)
    np.testing.assert_allclose(result.x, ens(Z, lam / eta), rtol=1e-12)


@pytest.mark.parametrize("algorithm", [
    SFedAvg(local_steps=3, epsilon=0.7, learning_rate=0.02, mu0=5.0),
    SFedAvg(local_steps=1, epsilon=0.7, learning_rate=0.02, mu0=5.0),
    SFedProx(local_steps=2, epsilon=0.7, learning_rate=0.02, mu0=5.0, prox=0.3),
])  # fmt: skip
def test_two_rounds_of_the_baselines_by_hand(problem, algorithm):
    k0, m, n, seed = algorithm.local_steps, problem.n_clients, problem.n_parameters, 5
    result = run(algorithm, problem.data, objective=problem.objective, seed=seed, rounds=2)
    W = np.zeros((m, n))
    Z = unit_noise(seed, -1, m, n) / 5.0
    from fedepm_fast.participation import select

    for tau in range(2):
        S = select(CounterRandomness(seed), tau, m, 3)
        x = Z[S].mean(axis=0)
        np.testing.assert_allclose(result.history["x"][tau], x, rtol=1e-12)
        for i in S:
            gamma = 0.02 * problem.data.client_sizes[i] / math.sqrt(2 * k0 + tau)
            w = x.copy()
            for _ in range(k0):
                before = w.copy()
                if algorithm.name == "sfedavg":
                    w = w - gamma * problem.gradient(i, w)
                else:
                    for _ in range(3):
                        w = w - gamma * (problem.gradient(i, w) + 0.3 * (w - x))
            gap = before - x
            mu = 5.0 * (1 + 1e-8 * gap @ gap) * 1.001 ** ((tau + 1) * k0)
            W[i] = w
            scale = 2 * np.abs(problem.gradient(i, x)).sum() / (0.7 * mu)
            Z[i] = w + scale * unit_noise(seed, tau, m, n)[i]
    np.testing.assert_allclose(result.W, W, rtol=1e-11)
    np.testing.assert_allclose(result.Z, Z, rtol=1e-11)


def test_one_feature_needs_another_noise():
    data = small_data(n=1)
    with pytest.raises(ValueError, match="noise 'standardized' needs at least 2 parameters"):
        run(FedEPM(), data)
    assert run(FedEPM(noise="laplace"), data, rounds=2).rounds == 2


def test_describe_is_plain():
    problem = Problem(small_data(), Logistic())
    described = FedEPM().resolve(problem).describe()
    assert described["name"] == "fedepm"
    assert described["lam"] == described["eta"] / 2


def test_records_of_private_runs_have_no_epsilon_of_the_paper_s():
    assert FedEPM().describe()["epsilon"] == 0.1
    private = FedEPM(mechanism=LaplaceMechanism(total_epsilon=0.5, clip=1.0))
    record = run(private, small_data(), rounds=1).to_dict()
    assert "epsilon" not in record["parameters"]
    assert record["parameters"]["mechanism"]["total_epsilon"] == 0.5
