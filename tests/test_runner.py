"""What run() promises: purity, stopping, divergence, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT
from problems import small_data

from fedepm_fast import (
    DivergenceWarning,
    FedEPM,
    FederatedData,
    GivenRandomness,
    Logistic,
    SFedAvg,
    SFedProx,
    datasets,
    run,
)

ALL = (FedEPM(), SFedAvg(learning_rate=0.05), SFedProx(learning_rate=0.05))


@pytest.mark.parametrize("algorithm", ALL, ids=lambda a: a.name)
def test_is_a_pure_function_of_seed_and_trial(algorithm):
    data = small_data()
    first, again = (run(algorithm, data, seed=3, rounds=4) for _ in range(2))
    np.testing.assert_array_equal(first.Z, again.Z)
    np.testing.assert_array_equal(first.history["x"], again.history["x"])
    for other in (
        run(algorithm, data, seed=4, rounds=4),
        run(algorithm, data, seed=3, trial=1, rounds=4),
    ):
        assert not np.array_equal(first.Z, other.Z)


def test_given_randomness_equals_the_seeded_run():
    from fedepm_fast.participation import select
    from fedepm_fast.randomness import CounterRandomness

    data, source = small_data(), CounterRandomness(8)
    m, n, rounds = data.n_clients, data.n_features, 5
    given = GivenRandomness(
        [select(source, tau, m, 3) for tau in range(rounds + 1)],
        source.unit_noise(-1, np.arange(m), n, standardize=True),
        [source.unit_noise(tau, np.arange(m), n, standardize=True) for tau in range(rounds)],
    )
    want = run(FedEPM(), data, seed=8, rounds=rounds, engine="reference")
    got = run(FedEPM(), data, randomness=given, rounds=rounds, engine="reference")
    np.testing.assert_array_equal(got.Z, want.Z)
    assert got.seed is None and want.seed == 8


def test_unselected_clients_keep_their_state():
    data = small_data(m=12)
    seen = []
    result = run(FedEPM(participation=0.25, noise="none"), data, rounds=1, callback=seen.append)
    moved = np.abs(result.W).sum(axis=1) > 0
    assert moved.sum() <= 3
    np.testing.assert_array_equal(np.isnan(result.snr_clients), ~moved)
    assert (result.snr_clients[moved] == np.inf).all()
    assert [info.tau for info in seen] == [0, 1]


def test_caps_and_callback():
    data = small_data()
    assert run(FedEPM(), data, rounds=0).rounds == 0
    capped = run(FedEPM(local_steps=5), data, stopping="none", max_rounds=3)
    assert (capped.rounds, capped.reasons) == (3, ("max_rounds",))
    iterations = run(FedEPM(local_steps=5), data, stopping="none", max_iterations=24)
    assert (iterations.rounds, iterations.iterations) == (4, 20)
    assert iterations.reasons == ("max_iterations",)
    stopped = run(FedEPM(), data, stopping="none", callback=lambda info: info.tau == 2)
    assert (stopped.rounds, stopped.reasons) == (2, ("callback",))
    np.testing.assert_array_equal(stopped.x, run(FedEPM(), data, rounds=2).x)


def test_start():
    data = small_data()
    W = np.arange(30.0).reshape(6, 5)
    result = run(FedEPM(noise="none"), data, start=W, rounds=0)
    np.testing.assert_array_equal(result.W, W)
    np.testing.assert_array_equal(result.Z, W)
    same = run(FedEPM(noise="none"), data, start=W[0], rounds=0)
    np.testing.assert_array_equal(same.W, np.tile(W[0], (6, 1)))


def test_coverage_rounds_reach_everyone():
    result = run(FedEPM(participation=0.25, coverage_rounds=4), small_data(m=12), rounds=4)
    assert not np.isnan(result.snr_clients).any()


def test_the_adult_optimum_is_reached():
    data = datasets.adult(clients=50, seed=0)
    result = run(FedEPM(), data, seed=0)
    from fedepm_fast import make_problem

    best = make_problem(FedEPM(), data).optimum(method="newton")
    assert 0 <= result.mean_objective / (best.value / 50) - 1 < 0.01
    assert 4 <= result.rounds <= 30
    # The printed scale of the i.i.d. noise swamps eps = 0.1; what is tested is the method.
    text = run(FedEPM(preset="text", noise="standardized"), data, seed=0)
    best = make_problem(FedEPM(preset="text"), data).optimum(method="newton")
    assert 0 <= text.mean_objective / (best.value / 50) - 1 < 0.01


def test_mixed_presets_diverge_with_a_message_and_finite_numbers():
    data = datasets.adult(clients=50, seed=0)
    with pytest.warns(DivergenceWarning, match="the run diverged after round"):
        result = run(FedEPM(), data, objective=Logistic(regularizer="beta"))
    assert result.diverged and result.rounds <= 10
    assert "the parameters do not fit the data or each other; a penalty" in result.message
    for array in (result.x, result.W, result.Z, result.history["objective"]):
        assert np.isfinite(array).all()


@pytest.mark.parametrize(
    ("algorithm", "objective", "start", "blamed"),
    [
        (FedEPM(mu0=1e-300), Logistic(), None, "mu0 must be larger, got 1e-300, which divides"),
        (FedEPM(mu0=5e-324), Logistic(), np.ones(5), "mu0 must be larger, got 4.94066e-324"),
        (SFedAvg(mu0=1e-300), Logistic(), None, "mu0 must be larger"),
        (FedEPM(), Logistic(beta=1e300), None, r"beta must be smaller, got 1e\+300: the obj"),
        (FedEPM(), Logistic(weights=[0, 1, 1e300, 1, 1]), None, "weights must be smaller"),
        (FedEPM(noise="none"), Logistic(), np.full(5, -1e200), r"start must be .* up to 1e\+200"),
        (FedEPM(), "huge", None, r"data must be brought to scale, got numbers up to"),
    ],
)
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_what_overflows_at_once_is_named(algorithm, objective, start, blamed, engine):
    data = small_data()
    if objective == "huge":
        data, objective = FederatedData(data.features * 1e200, data.labels, data.client_sizes), None
    with pytest.raises(ValueError, match=f"{blamed}.* overflows at the first point"):
        run(algorithm, data, objective=objective or "logistic", start=start, engine=engine)


@pytest.mark.parametrize("learning_rate", [1e6, 1e120, 1e300])
def test_overflow_is_divergence(learning_rate):
    data = small_data(task="regression")
    with pytest.warns(DivergenceWarning):
        result = run(SFedAvg(learning_rate=learning_rate), data, objective="least_squares")
    assert result.diverged
    for array in (result.x, result.W, result.Z, result.history["objective"]):
        assert np.isfinite(array).all()


def given(m, selections, rounds):
    return GivenRandomness([[0]] * selections, np.zeros((m, 5)), np.zeros((rounds, m, 5)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be"),
        ({"seed": 1.5}, TypeError, "seed must be"),
        ({"objective": "hinge"}, ValueError, "objective must be one of"),
        ({"stopping": "never"}, ValueError, "stopping must be one of"),
        ({"rounds": -1}, ValueError, "rounds must be"),
        ({"rounds": 3, "stopping": "text"}, ValueError, "rounds and stopping exclude"),
        ({"max_rounds": -1}, ValueError, "max_rounds must be"),
        ({"max_iterations": 2.5}, TypeError, "max_iterations must be"),
        ({"callback": 3}, TypeError, "callback must be callable"),
        ({"start": np.zeros(4)}, ValueError, r"start must have shape \(5,\)"),
        ({"start": np.full(5, np.nan)}, ValueError, "start must be finite"),
        ({"engine": "gpu"}, ValueError, "engine must be one of"),
        ({"randomness": 5}, TypeError, "randomness must be GivenRandomness, or None .*, got 5 of"),
        ({"randomness": np.random.default_rng()}, TypeError, "randomness must be GivenRandomness"),
        ({"randomness": given(5, 2, 2)}, ValueError, r"unit_noise_init must have shape \(6, 5\)"),
        ({"randomness": given(6, 4, 4)}, ValueError, r"selected must cover 5 rounds .*, got 4"),
        ({"randomness": given(6, 5, 3)}, ValueError, "unit_noise must cover 4 rounds .*, got 3"),
        ({"randomness": given(6, 0, 0), "rounds": None}, ValueError, "selected must cover 1 round"),
    ],
)
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_bad_arguments_are_named(arguments, error, message, engine):
    if "randomness" in arguments:
        arguments = {"rounds": 4, **arguments}
    with pytest.raises(error, match=message):
        run(FedEPM(), small_data(), **{"engine": engine, **arguments})


def test_noise_that_is_not_used_need_not_be_given():
    quiet = run(FedEPM(noise="none", mu0=100.0), small_data(), randomness=given(6, 5, 0), rounds=4)
    assert quiet.rounds == 4


#: Machine code does not say that it reads beside an array; the same stages as plain Python do.
PLAIN = """
import sys

sys.path.insert(0, "tests")
import numpy as np
from problems import small_data

from fedepm_fast import FedEPM, GivenRandomness, SFedAvg, SFedProx, run
from fedepm_fast.algorithms import Scaffold

data = small_data()
m, n = data.n_clients, data.n_features
few = np.random.default_rng(0).normal(size=(4, m, n))
for cls in (FedEPM, SFedAvg, SFedProx, Scaffold):
    for noise in ("none", "laplace", "standardized"):
        rounds = 0 if noise == "none" else 4
        given = GivenRandomness([[1, 3]] * 5, np.zeros((m, n)), few[:rounds])
        for options in ({}, {"randomness": given}):
            algorithm = cls(noise=noise, mu0=100.0, epsilon=10.0, local_steps=2)
            result = run(algorithm, data, rounds=4, engine="compiled", **options)
            assert (result.rounds, result.engine) == (4, "compiled"), (cls, noise, options)
print("read what there is")
"""


def test_nothing_is_read_beside_arrays():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    found = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "read what there is\n"), found.stderr


def test_wrong_objects_are_named():
    with pytest.raises(TypeError, match="algorithm must be FedEPM"):
        run("fedepm", small_data())
    with pytest.raises(TypeError, match="data must be FederatedData, got ndarray"):
        run(FedEPM(), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="coverage_rounds must be at least 2"):
        run(FedEPM(coverage_rounds=1), small_data())


def test_a_penalty_that_overflows_is_divergence():
    with pytest.warns(DivergenceWarning):
        result = run(FedEPM(alpha=1e200, local_steps=3), small_data(), rounds=2)
    assert np.isfinite(result.Z).all()


def test_a_run_that_ends_far_above_its_start_has_diverged():
    """Whatever rule ended it, and whatever the noise made of the first point."""
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(200, 3)), np.arange(200) % 5
    for labels in (X.sum(axis=1) > 0, X.sum(axis=1) <= 0):
        data = FederatedData.split(X, labels, ids)
        with pytest.warns(DivergenceWarning, match="mu0 of"):
            assert run(FedEPM(), data).diverged
