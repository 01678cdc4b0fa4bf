"""What may be shared of private runs, and what they say when it may not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fedepm
from problems import small_data

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Multinomial,
    Result,
    Store,
    Sweep,
    make_problem,
    run,
    sweep,
)
from fedepm_fast.callbacks import RoundInfo
from fedepm_fast.data.partition import EqualParts
from fedepm_fast.guarantees import (
    GUESSED,
    NOT_PRIVATE,
    OF_THE_SPLIT,
    SHARED_SEED,
    SIMULATED,
    as_true,
)
from fedepm_fast.mechanisms.gaussian import _gaussian_epsilon
from fedepm_fast.mechanisms.laplace import LAPLACE_SLACK
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, ReleasedRun
from fedepm_fast.private_runs import fresh_seed, private_problem
from fedepm_fast.randomness import GivenRandomness

LAPLACE = LaplaceMechanism(total_epsilon=2.0)
#: Of runs that have a guarantee.
SECRET = 987654321987


def scaled(**kwargs):
    data = small_data(**kwargs)
    return FederatedData(data.features / 40, data.labels, data.client_sizes)


def test_what_is_released_is_the_points_and_what_is_public(tmp_path):
    data = scaled()
    result = run(FedEPM(mechanism=LAPLACE), data, rounds=3, seed=SECRET)
    released = result.release()
    np.testing.assert_array_equal(released.x, result.history["x"])
    assert released.client_sizes == tuple(data.client_sizes) and released.rounds == 3
    # The conditions go with the guarantee.
    assert released.guarantee == result.guarantee and "in exact arithmetic" in released.guarantee
    assert (
        released.privacy["epsilon"] == pytest.approx(2.0)
        and "the selections" in released.privacy["public"]
    )
    released.save(tmp_path / "released.json")
    held = json.loads((tmp_path / "released.json").read_text())
    assert set(held) == {
        "format", "x", "client_sizes", "parameters", "objective", "guarantee", "privacy",
    }  # fmt: skip
    assert set(held["privacy"]) == {
        "epsilon", "delta", "epsilon_clients", "uploads", "multipliers", "relation", "clip",
        "public",
    }  # fmt: skip
    text = (tmp_path / "released.json").read_text()
    for secret in (str(SECRET), 'seed"', "accuracy", "elapsed", "content", "run_id", "snr"):
        assert secret not in text
    again = ReleasedRun.load(tmp_path / "released.json")
    np.testing.assert_array_equal(again.x, released.x)
    for name in ("client_sizes", "parameters", "objective", "guarantee", "privacy"):
        assert getattr(again, name) == getattr(released, name)
    loaded = tmp_path / "result.npz"
    result.save(loaded)
    np.testing.assert_array_equal(Result.load(loaded).release().x, released.x)


def test_only_runs_with_a_guarantee_are_released():
    given = GivenRandomness([[0], [1]], np.zeros((2, 5)), np.zeros((2, 2, 5)))
    for algorithm, more in (
        (FedEPM(), {}), (FedEPM(mechanism=LAPLACE), {"randomness": given}),
    ):  # fmt: skip
        result = run(algorithm, scaled(m=2), rounds=1, **more)
        with pytest.raises(ValueError, match="must have a privacy guarantee to be released"):
            result.release()


@pytest.mark.parametrize("text", [
    "", "{}", "[]", '{"format": 1}', '{"format": "1"}', "\x00", "[" * 100_000,
    '{"format": 1, "x": [[1]], "client_sizes": [1], "parameters": {}, "objective": {},'
    ' "guarantee": 3, "privacy": {}}',
])  # fmt: skip
def test_other_files_are_no_released_runs(tmp_path, text):
    path = tmp_path / "released.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a complete file of a released run"):
        ReleasedRun.load(path)
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="has format 99"):
        ReleasedRun.load(path)
    with pytest.raises(FileNotFoundError):
        ReleasedRun.load(tmp_path / "none")


@pytest.mark.parametrize("mechanism", [LAPLACE, GaussianMechanism(total_epsilon=2.0)])
def test_runs_that_share_a_seed_state_no_guarantee(tmp_path, mechanism):
    algorithms = [FedEPM(mechanism=mechanism, local_steps=k) for k in (1, 2)]
    runs = Sweep(algorithms, scaled(), rounds=2, seed=3)
    path = str(tmp_path / "runs.db")
    table = sweep(runs, store=path, progress=False).to_pandas()
    assert list(table["guarantee"]) == [SHARED_SEED] * 2 and SHARED_SEED.startswith("none: ")
    with Store(path) as store:
        for run_id in table["run_id"]:
            record = store.get(run_id)
            assert record.measures["guarantee"].startswith("none: ")
            assert list(record.history["epsilon"]) == [0, np.inf, np.inf]
    said = run(algorithms[0], scaled(), rounds=1).settings["privacy"]["not_private"]
    assert "content and run_id" in said and "seed" in said


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("every_accuracy", [True, False])
def test_callbacks_see_the_measures_of_the_history(engine, every_accuracy):
    data, seen = scaled(), []
    mechanism = LaplaceMechanism(total_epsilon=50.0, clip=1e-3)
    result = run(
        FedEPM(mechanism=mechanism), data, rounds=3, seed=1, engine=engine, callback=seen.append,
        every_accuracy=every_accuracy,
    )  # fmt: skip
    problem = make_problem(FedEPM(), data)
    assert len(seen) == 4 and isinstance(seen[0], RoundInfo)
    for tau, info in enumerate(seen):
        assert info.objective == list(result.history["objective"][: tau + 1])
        assert info.grad_mean_sq == list(result.history["grad_mean_sq"][: tau + 1])
        assert info.accuracy[-1] == problem.accuracy(info.x)
        assert info.objective[-1] == pytest.approx(problem.total_value(info.x), rel=1e-12)
    # Which of the two is said.
    assert "of the rows as given, not as clipped" in " ".join(str(result).split())
    clipped = private_problem(mechanism, problem)
    assert abs(clipped.total_value(result.x) / result.history["objective"][-1] - 1) > 1e-6


def test_a_multinomial_record_is_clipped_in_the_norm_of_the_noise():
    rng = np.random.default_rng(0)
    data = FederatedData(10 * rng.standard_normal((30, 4)), np.arange(30) % 3, [10] * 3)
    for mechanism, slope in (
        (LaplaceMechanism(total_epsilon=1.0, clip=1.0), 2.0),
        (GaussianMechanism(total_epsilon=1.0, clip=1.0), np.sqrt(2)),
    ):
        order = mechanism.order
        problem = private_problem(mechanism, make_problem(FedEPM(), data, Multinomial(classes=3)))
        norms = np.linalg.norm(problem.data.features, ord=order, axis=1)
        np.testing.assert_allclose(norms, 1 / slope, rtol=1e-12)
        # No record's gradient exceeds the clip, and there is a point at which one nearly does.
        reached = 0.0
        for row, label in zip(problem.data.features, problem.data.labels, strict=True):
            for wrong in {0, 1, 2} - {int(label)}:
                t = np.zeros((1, 3))
                t[0, wrong] = 40.0
                slopes = problem.objective.derivative(t, np.array([label]))
                reached = max(reached, np.linalg.norm(np.outer(slopes, row).ravel(), ord=order))
        assert 1 - 1e-9 < reached <= 1 + 1e-15


def test_laplace_noise_of_a_delta():
    uploads = np.array([50, 50, 1, 0])
    each = LaplaceMechanism(epsilon_per_round=0.05, delta=1e-5)
    spent = each.spent(each.noise_multipliers(uploads), uploads)
    # 2.5 by addition.
    assert spent == pytest.approx([1.3073, 1.3073, 0.05, 0.0], abs=1e-4)
    total = LaplaceMechanism(total_epsilon=2.5, delta=1e-5)
    multipliers = total.noise_multipliers(uploads)
    assert multipliers[0] < 0.6 * 50 / 2.5 and multipliers[2] == pytest.approx(0.4)
    spent = total.spent(multipliers, uploads)
    assert (spent <= 2.5).all() and (spent[:3] >= 2.5 * (1 - LAPLACE_SLACK)).all()
    assert total.guarantee(spent.max()).startswith("each client: epsilon <= 2.5 at delta 1e-05, ")
    result = run(FedEPM(mechanism=total), scaled(m=4), rounds=3, seed=SECRET)
    assert result.settings["privacy"]["delta"] == 1e-5
    assert result.guarantee.startswith("each client: epsilon <= 2.5 at delta 1e-05, for each")
    with pytest.raises(ValueError, match="delta must be"):
        LaplaceMechanism(total_epsilon=1.0, delta=1.0)


@pytest.mark.parametrize("mechanism, epsilon, words", [
    (LaplaceMechanism(total_epsilon=0.1), 0.1, "epsilon <= 0.1 (pure)"),
    (LaplaceMechanism(total_epsilon=1 / 3), 1 / 3, "epsilon <= 0.333334 (pure)"),
    (GaussianMechanism(total_epsilon=0.1, delta=1e-5), 0.1, "epsilon <= 0.1 at delta 1e-05"),
    (GaussianMechanism(total_epsilon=0.1, delta=1 / 3), 0.1, "epsilon <= 0.1 at delta 0.333334"),
])  # fmt: skip
def test_budgets_print_as_they_were_asked_for(mechanism, epsilon, words):
    assert words in mechanism.guarantee(epsilon)


@pytest.mark.parametrize("law, delta, epsilon", [
    *((LaplaceMechanism, 0.0, e) for e in (0.1, 0.3, 1.0, 2.0, 5.7, 20.0)),
    *((GaussianMechanism, 1e-6, e) for e in (0.1, 0.3, 1.0, 2.0, 5.7, 20.0)),
    (LaplaceMechanism, 1e-5, 0.1), (LaplaceMechanism, 1e-5, 2.0),
])  # fmt: skip
def test_a_budget_that_is_spent_is_the_number_that_was_asked_for(law, delta, epsilon):
    mechanism = law(total_epsilon=epsilon, delta=delta)
    planned = np.array([1, 2, 3, 7, 49])
    multipliers = mechanism.noise_multipliers(planned)
    assert mechanism.spent(multipliers, planned).tolist() == [epsilon] * 5
    part = mechanism.spent(multipliers, planned // 2)
    assert part[0] == 0 and (part < epsilon).all() and (part[1:] > 0).all()
    assert (mechanism.spent(multipliers, planned + 1) > epsilon).all()


@pytest.mark.parametrize("each, count, want", [(0.1, 3, 0.3), (0.57, 3, 1.71), (0.05, 7, 0.35)])
def test_uploads_of_a_decimal_each_spend_a_decimal(each, count, want):
    mechanism = LaplaceMechanism(epsilon_per_round=each)
    uploads = np.array([0, count])
    spent = mechanism.spent(mechanism.noise_multipliers(uploads), uploads)
    assert spent.tolist() == [0.0, want] and f"<= {want} (" in mechanism.guarantee(spent[1])


def test_the_record_of_a_run_has_the_budget():
    for mechanism in (LAPLACE, GaussianMechanism(total_epsilon=2.0)):
        record = run(FedEPM(mechanism=mechanism), scaled(), rounds=7, seed=SECRET).to_dict()
        privacy = json.loads(json.dumps(record))["settings"]["privacy"]
        assert privacy["epsilon"] == 2.0 == max(privacy["epsilon_clients"])


def test_accounts_are_computed_once():
    mechanism = GaussianMechanism(total_epsilon=0.7, delta=1e-7)
    planned = np.repeat([2, 3, 4], 40)
    multipliers = mechanism.noise_multipliers(planned)
    before = _gaussian_epsilon.cache_info().misses
    first = mechanism.spent(multipliers, planned - 1)
    # Of 120 clients three differ; asked again, none is new.
    assert _gaussian_epsilon.cache_info().misses - before <= 3
    before = _gaussian_epsilon.cache_info().misses
    np.testing.assert_array_equal(mechanism.spent(multipliers, planned - 1), first)
    assert _gaussian_epsilon.cache_info().misses == before
    assert first[0] == _gaussian_epsilon.__wrapped__(multipliers[0], 1e-7, 1)


DATA = Path(__file__).parents[1] / "recorded"


@pytest.mark.parametrize("seed, split, why", [
    (0, None, GUESSED), (2**32 - 1, None, GUESSED), (2**32, None, ""), (2**64 - 1, None, ""),
    (SECRET, SECRET, OF_THE_SPLIT), (SECRET + 1, SECRET, ""), (None, None, ""),
])  # fmt: skip
def test_a_seed_that_is_known_gives_no_guarantee(tmp_path, seed, split, why):
    data = scaled()
    if split is not None:
        data = FederatedData.split(data.features, data.labels, EqualParts(5), seed=split)
    result = run(FedEPM(mechanism=LAPLACE), data, rounds=2, seed=seed)
    result.save(tmp_path / "result.npz")
    for found in (result, Result.load(tmp_path / "result.npz")):
        epsilon = found.settings["privacy"]["epsilon"]
        # The account is that of the plan, of which the seed is no part.
        assert found.history["epsilon"][-1] == pytest.approx(2)
        # The line of the seed says itself that it is not to be shown, where that would hurt.
        assert ("to be kept secret" in " ".join(str(found).split())) == (not why)
        if why:
            assert found.guarantee == why and why.startswith("none: ") and epsilon is None
            with pytest.raises(ValueError, match="must have a privacy guarantee to be released"):
                found.release()
        else:
            assert found.guarantee.startswith("each client: epsilon <= 2 (pure)")
            assert found.guarantee.endswith(SIMULATED) and epsilon == pytest.approx(2)
            assert list(found.release().privacy["epsilon_clients"]) == list(
                found.history["epsilon_clients"][-1]
            )
    # Earlier versions saved the same run with a guarantee.
    said = result.settings["privacy"] | {"guarantee": "each client: epsilon <= 2 (pure)"}
    replace(result, settings=result.settings | {"privacy": said}).save(tmp_path / "before.npz")
    again = Result.load(tmp_path / "before.npz")
    assert again.guarantee == (why or "each client: epsilon <= 2 (pure)" + SIMULATED)


@pytest.mark.entropy
def test_seeds_that_runs_draw_cannot_be_guessed():
    drawn = {fresh_seed() for _ in range(1000)}
    assert len(drawn) == 1000 and min(drawn) >= 2**32 and 2**63 < max(drawn) < 2**64
    # The upper bits are drawn too; none of a thousand is below 2**59 once in 6e13 runs.
    assert min(drawn) < 2**59


def test_a_result_of_before_states_todays_conditions(tmp_path):
    before = Result.load(DATA / "private_result_before.npz")
    assert before.guarantee == GUESSED and before.seed < 2**32
    said = before.settings["privacy"] | {"guarantee": "each client: epsilon <= 2 (pure), for each "
                                         "record of a client, replace-one"}  # fmt: skip
    secret = replace(before, seed=SECRET, settings=before.settings | {"privacy": said})
    secret.save(tmp_path / "secret.npz")
    result = Result.load(tmp_path / "secret.npz")
    want = "each client: epsilon <= 2 (pure), for each record of a client, replace-one" + SIMULATED
    assert result.guarantee == want and "in exact arithmetic" in want
    privacy = result.settings["privacy"]
    assert privacy["guarantee"] == want and privacy["not_private"] == NOT_PRIVATE
    assert "in exact arithmetic" in " ".join(str(result).split())
    result.save(tmp_path / "again.npz")
    assert Result.load(tmp_path / "again.npz").guarantee == want
    with pytest.raises(ValueError, match="run it again"):
        result.release()


@pytest.mark.parametrize("said, means", [
    ("each client: epsilon <= 1 (pure)", "each client: epsilon <= 1 (pure)" + SIMULATED),
    ("each client: epsilon <= 1 (pure)" + SIMULATED,
     "each client: epsilon <= 1 (pure)" + SIMULATED),
    ("none: selections and noise were given from outside",
     "none: selections and noise were given from outside"),
])  # fmt: skip
def test_guarantees_of_any_version_are_true_as_read(said, means):
    result = run(FedEPM(mechanism=LAPLACE), scaled(), rounds=1)
    privacy = {"guarantee": said, "not_private": "x"}
    saved = replace(result, settings=result.settings | {"privacy": privacy})
    assert as_true(saved).guarantee == means


def test_a_store_of_before_states_no_guarantee(tmp_path, capsys):
    path = tmp_path / "runs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "private_store_before.sql").read_text())
        (said,) = set(connection.execute("SELECT guarantee FROM results"))
        assert said[0].startswith("each client: epsilon <= 2")
    for readonly in (True, False):  # which changes the view
        with Store(path, readonly=readonly) as store:
            assert store.table()["guarantee"] == [SHARED_SEED] * 2
            assert store.ids(["guarantee!=x"]) == store.ids({"guarantee": SHARED_SEED})
            for run_id in store.ids():
                record = store.get(run_id)
                assert record.measures["guarantee"] == SHARED_SEED
                for history in (record.history, store.history(run_id)):
                    assert list(history["epsilon"]) == [0, np.inf, np.inf]
                assert (
                    fedepm(capsys, "runs", "show", path, run_id, "--json")[1].count("each client")
                    == 0
                )
            store.to_csv(tmp_path / "runs.csv")
        assert "each client" not in (tmp_path / "runs.csv").read_text()
    with closing(sqlite3.connect(path)) as connection:
        assert set(connection.execute("SELECT guarantee FROM results")) == {(SHARED_SEED,)}
