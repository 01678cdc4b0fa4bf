"""Runs with a mechanism: what they refuse, what they say, and what they compute."""

from __future__ import annotations

import json

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, FederatedData, Result, SFedAvg, datasets, make_problem, run
from fedepm_fast.participation import select
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.randomness import CounterRandomness

LAPLACE = LaplaceMechanism(total_epsilon=2.0)


def scaled(**kwargs):
    data = small_data(**kwargs)
    features = data.features / 40
    return FederatedData(features, data.labels, data.client_sizes)


@pytest.mark.parametrize("arguments, message", [
    ({}, "rounds must be given"),
    ({"stopping": "released"}, "stopping must be None for a private run"),
    ({"stopping": "text"}, "stopping must be None"),
    ({"rounds": 3, "objective": "least_squares"}, "no bound on a record's gradient"),
])  # fmt: skip
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(FedEPM(mechanism=LAPLACE), scaled(), **arguments)


def test_scaling_by_the_data_is_refused_unless_said_to_be_public():
    data = datasets.adult(clients=5)
    with pytest.raises(ValueError, match=r"depend on the data \(unit-norm\)"):
        run(FedEPM(mechanism=LAPLACE), data, rounds=1)
    public = LaplaceMechanism(total_epsilon=2.0, public_scaling=True)
    result = run(FedEPM(mechanism=public), data, rounds=1)
    text = " ".join(str(result).split())
    assert "scaling taken as public" in text and "epsilon <= 2 (pure)" in text
    assert any("scaling" in item for item in result.settings["privacy"]["public"])


def test_uploads_start_from_what_was_released_and_x_depends_on_uploads_only():
    data = scaled(m=6)
    algorithm = FedEPM(mechanism=LAPLACE, participation=0.5, local_steps=3)
    result = run(algorithm, data, rounds=4, seed=2)
    # Before the first upload nothing is known: all uploads are the public start.
    np.testing.assert_array_equal(result.history["x"][0], 0)
    # A client that was never selected has never uploaded.
    source = CounterRandomness(2)
    taken = np.unique(np.concatenate([select(source, tau, 6, 3) for tau in range(4)]))
    idle = np.setdiff1d(np.arange(6), taken)
    np.testing.assert_array_equal(result.Z[idle], 0)


@pytest.mark.parametrize("mechanism", [LAPLACE, GaussianMechanism(total_epsilon=2.0)])
def test_epsilon_is_that_of_each_clients_own_participations(mechanism):
    data = scaled(m=8)
    result = run(FedEPM(mechanism=mechanism, participation=0.3), data, rounds=5, seed=1)
    privacy = result.settings["privacy"]
    source = CounterRandomness(1)
    counts = np.zeros(8, int)
    for tau in range(5):
        counts[select(source, tau, 8, 3)] += 1
    # Everyone who takes part spends all of it, in one upload or in several.
    np.testing.assert_allclose(privacy["epsilon_clients"], 2.0 * (counts > 0), rtol=1e-9)
    assert result.guarantee.startswith("each client: epsilon <= 2")
    spent = result.history["epsilon"]
    assert spent[0] == 0 and spent[-1] == pytest.approx(2.0) and (np.diff(spent) >= 0).all()
    assert len(spent) == len(result.history["objective"])


def test_measures_are_those_of_the_data_not_of_clipped_rows():
    data = scaled()
    mechanism = LaplaceMechanism(total_epsilon=2.0, clip=1e-3)
    result = run(FedEPM(mechanism=mechanism), data, rounds=2)
    problem = make_problem(FedEPM(), data)
    for tau in range(3):
        x = result.history["x"][tau]
        assert result.history["objective"][tau] == pytest.approx(problem.total_value(x), rel=1e-12)
        assert result.history["accuracy"][tau] == problem.accuracy(x)


def test_a_run_that_is_stopped_by_the_data_has_no_guarantee():
    data = scaled()
    stopped = run(FedEPM(mechanism=LAPLACE), data, rounds=4, callback=lambda info: info.tau == 2)
    assert stopped.guarantee.startswith("none: ")
    watched = run(FedEPM(mechanism=LAPLACE), data, rounds=4, callback=lambda info: None)
    assert watched.guarantee.startswith("each client: epsilon <= 2 (pure)")


def test_everything_is_recorded(tmp_path):
    result = run(FedEPM(mechanism=LAPLACE), scaled(), rounds=2)
    json.dumps(result.to_dict())
    path = tmp_path / "result.npz"
    result.save(path)
    again = Result.load(path)
    assert again.guarantee == result.guarantee
    assert again.algorithm["mechanism"]["name"] == "laplace"
    np.testing.assert_array_equal(again.history["epsilon"], result.history["epsilon"])
    plain = run(FedEPM(), scaled(), rounds=2)
    assert plain.guarantee.startswith("none: ")
    assert run(SFedAvg(), scaled(), rounds=1).summary()["guarantee"].startswith("none: ")


def test_noise_of_an_upload_has_the_scale_that_its_budget_asks_for():
    data = scaled(m=2, n=2000, largest=4)
    gaps = []
    for law in (LaplaceMechanism(total_epsilon=1e4), GaussianMechanism(total_epsilon=1e4)):
        algorithm = FedEPM(mechanism=law, participation=1.0, local_steps=4, start="broadcast")
        result = run(algorithm, data, rounds=1, seed=5)
        problem = make_problem(algorithm, data)
        resolved = algorithm.resolve(problem)
        plan = resolved.plan(problem, np.ones(2, int))
        S = np.arange(2)
        scale = resolved.noise_scale(problem, S, np.zeros((2, 2000)), None, None, 0, plan)
        noise = result.Z - result.W
        spread = np.abs(noise).mean(axis=1) if law.order == 1 else noise.std(axis=1)
        np.testing.assert_allclose(spread, scale, rtol=0.08)
        gaps.append(scale)
    assert not np.allclose(*gaps)
