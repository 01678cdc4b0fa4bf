"""Runs with a mechanism: what they refuse, what they say, and what they compute."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from problems import small_data
from scipy import sparse

from fedepm_fast import (
    DivergenceWarning,
    FedEPM,
    FederatedData,
    Logistic,
    Multinomial,
    Result,
    SFedAvg,
    datasets,
    make_problem,
    run,
)
from fedepm_fast.participation import select
from fedepm_fast.privacy import MECHANISMS, GaussianMechanism, LaplaceMechanism, Mechanism
from fedepm_fast.randomness import CounterRandomness, GivenRandomness
from fedepm_fast.stopping import NoRule

LAPLACE = LaplaceMechanism(total_epsilon=2.0)
#: Of runs that have a guarantee.
SECRET = 987654321987


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
    result = run(FedEPM(mechanism=mechanism, participation=0.3), data, rounds=5, seed=SECRET)
    privacy = result.settings["privacy"]
    source = CounterRandomness(SECRET)
    counts = np.zeros(8, int)
    for tau in range(5):
        counts[select(source, tau, 8, 3)] += 1
    # Everyone who takes part spends all of it, in one upload or in several.
    np.testing.assert_allclose(privacy["epsilon_clients"], 2.0 * (counts > 0), rtol=1e-9)
    each = result.history["epsilon_clients"]
    assert each.shape == (6, 8) and (each <= 2.0).all() and (np.diff(each, axis=0) >= 0).all()
    np.testing.assert_array_equal(each[-1], privacy["epsilon_clients"])
    assert "epsilon_clients" not in result.to_pandas().columns
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


ENGINES = pytest.mark.parametrize("engine", ["compiled", "reference"])


@ENGINES
def test_a_callback_watches_and_cannot_stop(engine):
    # What it sees is not released. Whether it did stop is no excuse: that depends on the data.
    data, seen = scaled(), []
    arguments = dict(rounds=4, seed=1, engine=engine)

    def callback(info):
        seen.append(info)
        for write in (lambda: info.x.fill(info.objective[-1]), lambda: info.objective.clear()):
            with pytest.raises((ValueError, AttributeError)):
                write()
        return True

    watched = run(FedEPM(mechanism=LAPLACE), data, callback=callback, **arguments)
    plain = run(FedEPM(mechanism=LAPLACE), data, **arguments)
    np.testing.assert_array_equal(watched.Z, plain.Z)
    assert watched.rounds == plain.rounds == 4 and len(seen) == 5
    assert watched.guarantee == plain.guarantee


@ENGINES
def test_no_value_of_the_objective_stops_a_private_run(engine):
    # Noise of a small budget throws x anywhere; f grows beyond what ends other runs.
    algorithm = FedEPM(mechanism=LaplaceMechanism(total_epsilon=0.1), mu0=1e-9)
    result = run(algorithm, scaled(), rounds=4, seed=1, engine=engine)
    assert result.rounds == 4 and result.reasons == ("max_rounds",)
    assert result.history["objective"].max() > 1e8 * result.history["objective"][0]


class Peeking(NoRule):
    def fired(self, n, m, objective, grad_mean_sq):
        return ("gradient_norm",) if objective[-1] < 1 else ()


class Whatever(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize("stopping", [Peeking(), Whatever("released")])
def test_only_fixed_rounds_are_taken_for_such(stopping):
    with pytest.raises(ValueError, match="stopping must be None"):
        run(FedEPM(mechanism=LAPLACE), scaled(), stopping=stopping)
    for name in ("none", NoRule()):
        assert run(FedEPM(mechanism=LAPLACE), scaled(), stopping=name, max_rounds=2).rounds == 2


def test_subclasses_are_not_accounted_for():
    class Own(LaplaceMechanism):
        pass

    class Louder(FedEPM):
        pass

    for mechanism in (Own(total_epsilon=1.0), Mechanism(total_epsilon=1.0)):
        with pytest.raises(TypeError, match="mechanism must be a GaussianMechanism or "):
            FedEPM(mechanism=mechanism)
    with pytest.raises(ValueError, match="FedEPM itself"):
        run(Louder(mechanism=LAPLACE), scaled(), rounds=1)

    class Steep(Logistic):
        def loss(self, t, b):
            return 1000 * super().loss(t, b)

        def derivative(self, t, b):
            return 1000 * super().derivative(t, b)

        def second_derivative(self, t, b):
            return 1000 * super().second_derivative(t, b)

    with pytest.raises(ValueError, match="a loss of your own, Steep"):
        run(FedEPM(mechanism=LAPLACE), scaled(), rounds=1, objective=Steep())
    with pytest.raises(TypeError):
        MECHANISMS["own"] = Own
    with pytest.raises(TypeError, match="randomness must be GivenRandomness"):
        run(FedEPM(mechanism=LAPLACE), scaled(), rounds=1, randomness=CounterRandomness(0))


def test_private_runs_share_no_noise_unless_told_to():
    data = scaled()
    first, second = (run(FedEPM(mechanism=LAPLACE), data, rounds=1) for _ in range(2))
    assert first.seed != second.seed
    again = run(FedEPM(mechanism=LAPLACE), data, rounds=1, seed=first.seed)
    np.testing.assert_array_equal(again.Z, first.Z)
    assert "(simulated: in exact arithmetic, " in first.guarantee
    assert first.guarantee.endswith("for a seed that is secret and of this run only)")
    assert run(FedEPM(), data, rounds=1).seed == 0


@ENGINES
@pytest.mark.parametrize("parameters, start", [
    ({}, 1e18), ({}, 1e300), ({"mu0": 1e12}, 1.0), ({"mu0": 1e300, "c": 1e10}, 1.0),
    ({"mechanism": LaplaceMechanism(total_epsilon=1e-280)}, 0.0),
    ({"mechanism": GaussianMechanism(total_epsilon=1.0, clip=1e-14)}, 100.0),
    ({"mechanism": GaussianMechanism(total_epsilon=1.0, clip=1e280)}, 0.0),
    ({"mu0": 1e-170, "lam": 0.0, "eta": 1e-165}, 0.0),
    # Noise that vanishes, though the points are 0.
    ({"mechanism": LaplaceMechanism(total_epsilon=1.0, clip=1e-24), "eta": 1e300}, 0.0),
    ({"mechanism": LaplaceMechanism(epsilon_per_round=1e200)}, 0.0),
    # Noise that is large enough, but smaller than what points are apart.
    ({"mechanism": LaplaceMechanism(epsilon_per_round=1e14)}, 1.0),
])  # fmt: skip
def test_noise_that_rounding_would_show_through_is_refused(engine, parameters, start):
    algorithm = FedEPM(**{"mechanism": LAPLACE, **parameters})
    with pytest.raises(ValueError, match="well above the rounding of points"):
        run(algorithm, scaled(), rounds=2, start=np.full(5, start), engine=engine)


def test_a_run_ends_before_rounding_would_show_through():
    # The penalty grows a million times a step: in the second round nothing moves any more.
    algorithm = FedEPM(mechanism=LAPLACE, alpha=1e3, local_steps=3)
    ends = []
    for engine in ("compiled", "reference"):
        with pytest.warns(DivergenceWarning, match="too small beside the points"):
            ends.append(run(algorithm, scaled(), rounds=9, seed=SECRET, engine=engine))
    one, other = ends
    assert one.rounds == other.rounds < 9 and one.reasons == other.reasons == ("precision",)
    np.testing.assert_allclose(one.Z, other.Z, rtol=1e-10, atol=1e-12)
    # It is decided by what is released, so what was spent before holds.
    assert one.guarantee.startswith("each client: epsilon <= ")


def test_a_start_and_given_randomness_are_recorded():
    data = scaled(m=2)
    result = run(FedEPM(mechanism=LAPLACE), data, rounds=1, start=np.ones(5))
    assert any("starting point" in item for item in result.settings["privacy"]["public"])
    given = GivenRandomness([[0], [1]], np.zeros((2, 5)), np.zeros((2, 2, 5)))
    result = run(FedEPM(mechanism=LAPLACE), data, rounds=1, randomness=given)
    assert result.guarantee == "none: selections and noise were given from outside"
    assert result.settings["privacy"]["epsilon"] is None
    assert list(result.history["epsilon"]) == [0, np.inf]
    json.dumps(result.to_dict(), allow_nan=False)


def with_constant(a):
    return np.column_stack([a, np.ones(len(a)), np.arange(len(a)) % 2])


@pytest.mark.parametrize("scaling, name", [
    (lambda a: a / np.linalg.norm(a, axis=0), "unit norm"),
    (lambda a: np.float32(a / np.linalg.norm(a, axis=0)), "unit norm"),
    (lambda a: with_constant(a / np.linalg.norm(a, axis=0)), "unit norm"),
    (lambda a: sparse.csr_array(with_constant(a / np.linalg.norm(a, axis=0))), "unit norm"),
    (lambda a: (a - a.mean(axis=0)) / a.std(axis=0), "unit deviation"),
    (lambda a: (a - a.mean(axis=0)) / a.std(axis=0, ddof=1), "unit deviation"),
])  # fmt: skip
def test_scaling_by_the_data_is_noticed_without_its_mark(scaling, name):
    data = small_data()
    features = scaling(np.asarray(data.features))
    again = FederatedData(features, data.labels, data.client_sizes)
    with pytest.raises(ValueError, match=name):
        run(FedEPM(mechanism=LAPLACE), again, rounds=1)


def test_indicators_are_not_scaled_by_the_data():
    # Each column has a single 1, and with it unit norm.
    data = FederatedData(np.eye(6), np.arange(6) % 2, [3, 3])
    assert run(FedEPM(mechanism=LAPLACE), data, rounds=1).rounds == 1


def test_what_the_records_do_to_measures_ends_nothing():
    # Entries at the end of the numbers: f is infinite, and what is released is finite.
    features = np.zeros((8, 3))
    features[:, 0], features[0, 1] = 1, -1e307
    data = FederatedData(features, np.arange(8) % 2, [4, 4])
    mechanism = LaplaceMechanism(total_epsilon=0.01, clip=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DivergenceWarning)  # f is infinite, and said to be
        result = run(FedEPM(mechanism=mechanism), data, rounds=3, seed=5)
    assert np.isfinite(result.Z).all() and result.rounds == 3 and result.diverged
    json.dumps(result.to_dict(), allow_nan=False)
    empty = sparse.csr_array((8, 3))
    data = FederatedData(empty, np.arange(8) % 2, [4, 4])
    assert run(FedEPM(mechanism=mechanism), data, rounds=3).rounds == 3
    np.testing.assert_allclose(make_problem(FedEPM(), data).lipschitz(), 1e-3 / 4)


def test_the_number_of_classes_is_not_read_off_the_labels():
    data = small_data()
    for objective in ("multinomial", Multinomial()):
        with pytest.raises(ValueError, match="classes must be given"):
            run(FedEPM(mechanism=LAPLACE), data, objective=objective, rounds=1)
    result = run(
        FedEPM(mechanism=LAPLACE), data, objective=Multinomial(classes=3), rounds=1,
        engine="reference",
    )  # fmt: skip
    assert len(result.x) == 15


def test_accuracy_of_the_last_round_only():
    every = run(FedEPM(mechanism=LAPLACE), scaled(), rounds=3, seed=1)
    last = run(FedEPM(mechanism=LAPLACE), scaled(), rounds=3, seed=1, every_accuracy=False)
    assert np.isnan(last.history["accuracy"][:-1]).all() and last.accuracy == every.accuracy


def test_epsilon_is_not_rounded_down():
    third = LaplaceMechanism(epsilon_per_round=1 / 3)
    assert "epsilon <= 0.333334 " in run(FedEPM(mechanism=third), scaled(), rounds=1).guarantee
    result = run(FedEPM(mechanism=LaplaceMechanism(total_epsilon=1 / 3)), scaled(), rounds=7)
    assert result.settings["privacy"]["epsilon"] <= 1 / 3


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
    m, n = 100, 40
    data = scaled(m=m, n=n, largest=4)
    gaps = []
    for law in (LaplaceMechanism(total_epsilon=1e4), GaussianMechanism(total_epsilon=1e4)):
        algorithm = FedEPM(mechanism=law, participation=1.0, local_steps=4, start="broadcast")
        result = run(algorithm, data, rounds=1, seed=5)
        problem = make_problem(algorithm, data)
        resolved = algorithm.resolve(problem)
        plan = resolved.plan(problem, np.ones(m, int))
        scale = resolved.noise_scale(problem, np.arange(m), np.zeros((m, n)), None, None, 0, plan)
        unit = (result.Z - result.W) / scale[:, None]
        spread = np.abs(unit).mean(axis=1) if law.order == 1 else unit.std(axis=1)
        np.testing.assert_allclose(spread, 1.0, atol=5 / np.sqrt(n))
        assert spread.mean() == pytest.approx(1.0, rel=0.05)
        gaps.append(scale)
    assert not np.allclose(*gaps)
