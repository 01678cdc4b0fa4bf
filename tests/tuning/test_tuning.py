"""Tuning: folds, scores, and that nothing but the arguments decides what comes out."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import optuna
import pytest
from commands import ROOT, fedepm
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import data_for, own_logistic, small_data

from fedepm_fast import (
    DivergenceWarning,
    FedEPM,
    FederatedData,
    Huber,
    LeastSquares,
    Logistic,
    Multinomial,
    SFedAvg,
    SFedProx,
    Sweep,
    datasets,
    make_problem,
    run,
    tune,
)
from fedepm_fast.privacy import LaplaceMechanism
from fedepm_fast.store import StoreError
from fedepm_fast.tuning._folds import NEVER, OVER, assign_folds, make_folds
from fedepm_fast.tuning._scores import mean_and_error
from fedepm_fast.tuning._search import SAMPLERS
from fedepm_fast.tuning._space import Choices, Range, as_space, parse_space
from fedepm_fast.tuning._storage import located

SPACE = {"lam": (1e-6, 1e-2, "log"), "local_steps": [1, 2], "alpha": (1.0, 1.1)}
#: FedEPM that works on `small_data`, and does so without kernels.
ALGORITHM = FedEPM(mu0=20.0, lam=1e-3, eta=1e-2, noise="none", local_steps=2)


def small_tune(algorithm=ALGORITHM, data=None, **changed):
    given = {"space": SPACE, "folds": 3, "trials": 5, "rounds": 3, "engine": "reference"}
    return tune(algorithm, data or small_data(), **{**given, "progress": False, **changed})


def timeless(result) -> list:
    return [dataclasses.replace(trial, seconds=0.0) for trial in result.trials]


# Folds --------------------------------------------------------------------------------


@st.composite
def clients_labels(draw):
    sizes = draw(st.lists(st.integers(1, 12), min_size=2, max_size=8))
    labels = draw(st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes)))
    features = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    return FederatedData(features, np.array(labels, float), np.array(sizes))


@settings(max_examples=60)
@given(clients_labels(), st.integers(2, 5), st.integers(0, 2**64 - 1))
def test_folds_hold_every_client_or_record_out_once(data, folds, seed):
    if folds <= data.n_clients:
        of_row = assign_folds(data, "clients", folds, seed)
        of_client = [set(part) for part in np.split(of_row, data.offsets[1:-1])]
        assert all(len(one) == 1 for one in of_client)
        counts = np.bincount([one.pop() for one in of_client], minlength=folds)
        assert counts.sum() == data.n_clients
        assert counts.max() - counts.min() <= 1
    try:
        of_row = assign_folds(data, "records", folds, seed)
    except ValueError as error:
        assert str(error).startswith("folds must be such that each holds records out")
        assert data.client_sizes.max() < folds
        return
    for part, labels in zip(
        np.split(of_row, data.offsets[1:-1]), np.split(data.labels, data.offsets[1:-1]), strict=True
    ):
        if len(part) == 1:
            assert part == [NEVER]
            continue
        counts = np.bincount(part, minlength=folds)
        assert counts.max() - counts.min() <= 1
        # Stratified: a class has as many records in each fold, up to two.
        for label in (0, 1):
            of_class = np.bincount(part[labels == label], minlength=folds)
            assert of_class.max() - of_class.min() <= 2
    np.testing.assert_array_equal(of_row, assign_folds(data, "records", folds, seed))


@pytest.mark.parametrize("over", OVER)
def test_folds_have_the_rows_they_should(over):
    data = small_data(m=5, largest=6, seed=3)
    of_row = assign_folds(data, over, 3, 7)
    client = np.repeat(np.arange(5), data.client_sizes)
    for k, fold in enumerate(make_folds(data, Logistic(), over, 3, 7)):
        for part, rows in ((fold.train, of_row != k), (fold.held_out.data, of_row == k)):
            np.testing.assert_array_equal(part.features, data.features[rows])
            np.testing.assert_array_equal(part.labels, data.labels[rows])
            kept, sizes = np.unique(client[rows], return_counts=True)
            np.testing.assert_array_equal(part.client_sizes, sizes)
        np.testing.assert_array_equal(fold.weights, sizes / data.client_sizes[kept])


def test_clients_are_stratified_by_their_labels():
    # Ten clients with the label 0 only, ten with 1 only: two of each in each of five folds.
    labels = np.repeat([0.0, 1.0], 30)
    data = FederatedData(np.ones((60, 1)), labels, np.full(20, 3))
    of_client = assign_folds(data, "clients", 5, 1)[::3]
    for half in (of_client[:10], of_client[10:]):
        np.testing.assert_array_equal(np.bincount(half), 2 * np.ones(5))


def test_a_subset_keeps_names_and_places():
    data = FederatedData(
        np.arange(12.0).reshape(6, 2), np.arange(6.0), [2, 1, 3], client_names=["a", "b", "c"],
        rows=[9, 8, 7, 6, 5, 4],
    )  # fmt: skip
    part = data.subset([0, 3, 5])
    assert part.client_names == ("a", "c")
    np.testing.assert_array_equal(part.client_sizes, [1, 2])
    np.testing.assert_array_equal(part.rows, [9, 6, 4])
    np.testing.assert_array_equal(part.features, data.features[[0, 3, 5]])
    for rows in ([], [1, 1], [2, 1], [6], [-1]):
        with pytest.raises(ValueError, match="rows must be increasing positions from 0 to 5"):
            data.subset(rows)


# Scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("over", OVER)
def test_scores_are_those_of_runs_on_the_held_out_rows(over):
    """By hand: every record of a client counts 1/d_i, every client alike."""
    data = small_data(m=7, largest=9, seed=1)
    result = small_tune(data=data, over=over, trials=2, seed=4, space={"beta": (1e-3, 1.0, "log")})
    accuracy = small_tune(
        data=data, over=over, trials=1, seed=4, score="accuracy", space={"beta": [1e-3]}
    )
    of_row = assign_folds(data, over, 3, 4)
    client = np.repeat(np.arange(7), data.client_sizes)
    for trial in result.trials:
        total = weights = right = 0.0
        for k, fold in enumerate(make_folds(data, Logistic(), over, 3, 4)):
            beta = trial.parameters["beta"]
            x = run(ALGORITHM, fold.train, objective=Logistic(beta=beta), seed=4, trial=k,
                    rounds=3, engine="reference").x  # fmt: skip
            rows = of_row == k
            margins = data.features[rows] @ x
            losses = np.logaddexp(0, margins) - data.labels[rows] * margins
            shares = 1 / data.client_sizes[client[rows]]
            mine = (shares * losses).sum() / shares.sum()
            assert trial.fold_scores[k] == pytest.approx(mine, rel=1e-13)
            total += (shares * losses).sum()
            right += (shares * ((margins > 0) == data.labels[rows])).sum()
            weights += shares.sum()
        assert trial.score == pytest.approx(total / weights, rel=1e-13)
        if trial.number == 0:
            assert accuracy.score == pytest.approx(right / weights, rel=1e-13)
    scored = data.n_clients if over == "clients" else (data.client_sizes > 1).sum()
    assert result.fold_weights.sum() == pytest.approx(scored)


def test_the_standard_error_of_equal_folds_is_the_usual_one():
    scores = np.array([1.0, 4.0, 2.0, 8.0])
    mean, error = mean_and_error(scores, np.full(4, 3.0))
    assert mean == scores.mean()
    assert error == pytest.approx(scores.std(ddof=1) / 2)
    mean, _ = mean_and_error(scores, [1, 0, 0, 3])
    assert mean == 6.25


def test_what_follows_from_the_data_follows_from_all_of_them():
    data = small_data(m=9)
    algorithm = FedEPM(mu0=20.0, noise="none")
    eta = algorithm.resolve(make_problem(algorithm, data)).eta
    given = {"space": {"participation": [0.5, 1.0]}, "trials": 1}
    left_open = small_tune(algorithm, data, **given)
    assert left_open.algorithm == algorithm
    told = small_tune(dataclasses.replace(algorithm, eta=eta, lam=eta / 2), data, **given)
    assert left_open.trials[0].fold_scores == told.trials[0].fold_scores


def test_the_compiled_engine_gives_the_scores_of_the_reference():
    reference, compiled = (small_tune(engine=e, trials=3) for e in ("reference", "compiled"))
    for a, b in zip(reference.trials, compiled.trials, strict=True):
        np.testing.assert_allclose(a.fold_scores, b.fold_scores, rtol=1e-9)


@pytest.mark.parametrize(
    ("objective", "algorithm"),
    [
        (Multinomial(), SFedProx(learning_rate=0.02, noise="none")),
        (Huber(), SFedAvg(learning_rate=0.02, noise="none")),
    ],
)
def test_other_algorithms_and_objectives(objective, algorithm):
    data = data_for(objective)
    result = small_tune(algorithm, data, objective=objective, space=None, over="records", trials=3)
    assert result.score <= result.default.score
    expected = {"learning_rate", "local_steps", "beta"} | (
        {"prox"} if isinstance(algorithm, SFedProx) else set()
    )
    assert set(result.parameters) == expected


# A pure function ----------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [*SAMPLERS, "own", "unseeded"])
def test_a_resumed_tuning_is_one_that_was_not_interrupted(sampler):
    def made():
        if sampler == "own":
            return optuna.samplers.RandomSampler(seed=5)
        return optuna.samplers.RandomSampler() if sampler == "unseeded" else sampler

    space = {**SPACE, "lam": (1e-6, 1e-2, "log")}
    whole = None if sampler == "unseeded" else small_tune(sampler=made(), trials=13, space=space)
    storage = optuna.storages.InMemoryStorage()
    seen = []
    for trials in (1, 6, 6, 13):
        result = small_tune(
            sampler=made(), trials=trials, storage=storage, space=space,
            progress=lambda done, total, failed: seen.append((done, total)),
        )  # fmt: skip
    assert seen == [(1, 1), *((k, 6) for k in range(2, 7)), *((k, 13) for k in range(7, 14))]
    assert len(result.trials) == 13
    if whole is not None:
        assert timeless(result) == timeless(whole)
    # Stored trials are returned without being made again, and fewer are those that were first.
    again = small_tune(sampler=made(), trials=6, storage=storage, space=space)
    assert again.trials == result.trials[:6]


def test_jobs_and_pruning_change_nothing_that_they_should_not():
    data = small_data(m=8, seed=2)
    alone = small_tune(data=data, jobs=1, trials=8)
    assert timeless(small_tune(data=data, jobs=3, trials=8)) == timeless(alone)
    storage = optuna.storages.InMemoryStorage()
    pruned = [
        small_tune(data=data, jobs=jobs, trials=trials, pruner=optuna.pruners.MedianPruner(1),
                   sampler="random", storage=kept)
        for jobs, trials, kept in ((1, 8, None), (3, 8, None), (2, 4, storage), (2, 8, storage))
    ]  # fmt: skip
    assert timeless(pruned[0]) == timeless(pruned[1]) == timeless(pruned[3])
    given_up = [t for t in pruned[0].trials if t.state == "pruned"]
    assert given_up
    assert all(t.score is None and 1 <= len(t.fold_scores) < 3 for t in given_up)
    assert given_up[0].error == f"given up after fold {len(given_up[0].fold_scores) - 1}"


def test_a_grid_ends_when_it_is_exhausted():
    space = {"local_steps": [1, 2], "mu0": (10.0, 40.0, "log")}
    result = small_tune(sampler="grid", space=space, trials=50)
    pairs = [(t.parameters["local_steps"], t.parameters["mu0"]) for t in result.trials[1:]]
    wanted = {(k, float(v)) for k in (1, 2) for v in np.geomspace(10, 40, 5)}
    assert len(pairs) == 10
    np.testing.assert_allclose(sorted(pairs), sorted(wanted))


KILLED = """
import os, signal
from test_tuning import small_tune
def kill(done, total, failed):
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
small_tune(storage="tune.db", trials=6, progress=kill)
"""


def test_a_kill_loses_no_finished_trial(tmp_path):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == -signal.SIGKILL
    path = tmp_path / "tune.db"
    counts = []
    result = small_tune(storage=path, trials=6, progress=lambda done, *_: counts.append(done))
    assert counts == [5, 6]
    assert timeless(result) == timeless(small_tune(trials=6))
    # Other settings are other studies, by another name in the same file.
    with pytest.raises(ValueError, match=r"was made with folds = 3, this is 2: give another name"):
        small_tune(storage=f"sqlite:///{path}", folds=2)
    small_tune(storage=f"sqlite:///{path}", folds=2, study="other", trials=1)


@pytest.mark.parametrize(
    "name",
    ["a?b.db", "a%20b.db", "a#b.db", "a b.db", "é.db", "{x}.db", "a+b&c=d.db", "a:b@c.db"],
)
def test_the_storage_is_the_file_that_was_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    url, where = located(name)
    assert where == name
    storage = optuna.storages.RDBStorage(url)
    optuna.create_study(storage=storage, study_name="s")
    storage.remove_session()
    storage.engine.dispose()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert located(tmp_path / name)[0] == url


def test_urls_of_storages_stay_what_they_are():
    for url, where in (
        ("sqlite:///a.db", "a.db"),
        ("sqlite:////tmp/a.db", "/tmp/a.db"),
        ("postgresql+psycopg2://me:secret@host/db", "postgresql+psycopg2://me:***@host/db"),
        ("sqlite://", "sqlite://"),
    ):
        assert located(url) == (url, where)
    assert located(Path("sqlite:///a.db"))[0].endswith("/sqlite%3A/a.db")
    with pytest.raises(ValueError, match="storage must be a path or a URL"):
        located("sqlite://a:b/c.db")


def test_a_storage_in_memory_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_tune(storage=":memory:", trials=1)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_differ_are_named():
    storage = optuna.storages.InMemoryStorage()
    with pytest.raises(ValueError, match="rounds and stopping exclude each other"):
        small_tune(storage=storage, stopping="text")  # leaves nothing that the next one minds
    small_tune(storage=storage, trials=1)
    for changed, name in (
        ({"seed": 1}, "seed"),
        ({"data": small_data(seed=1)}, "data"),
        ({"score": "accuracy"}, "score"),
        ({"sampler": "random"}, "sampler"),
        ({"rounds": 4}, "rounds"),
        ({"space": {"lam": (1e-6, 1e-2)}}, "space"),
        ({"algorithm": dataclasses.replace(ALGORITHM, c=0.0)}, "algorithm"),
        ({"objective": Logistic(beta=0.1)}, "objective"),
    ):
        with pytest.raises(ValueError, match=f"'tune' in .* was made with {name} = "):
            small_tune(storage=storage, trials=1, **changed)
    optuna.create_study(storage=storage, study_name="foreign").add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    with pytest.raises(ValueError, match="study must be one of fedepm_fast, 'foreign'"):
        small_tune(storage=storage, study="foreign")


def test_storages_that_do_not_work_are_told(tmp_path):
    (tmp_path / "text.db").write_text("no database at all, whatever its name says\n" * 40)
    for path, why in (("text.db", "not a database"), ("no/folder.db", "unable to open")):
        with pytest.raises(StoreError, match=why):
            small_tune(storage=tmp_path / path)
    storage = optuna.storages.InMemoryStorage()

    def interfere(done, total, failed):
        optuna.load_study(study_name="tune", storage=storage).add_trial(
            optuna.trial.create_trial(value=0.0)
        )

    with pytest.raises(StoreError, match="another program added meanwhile"):
        small_tune(storage=storage, progress=interfere)


# What goes wrong ----------------------------------------------------------------------


def test_runs_that_diverge_are_never_the_best():
    result = small_tune(
        SFedAvg(learning_rate=0.02, noise="none"), space={"learning_rate": [0.02, 1e3]},
        trials=6, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
    )  # fmt: skip
    lost = [t for t in result.trials if t.parameters["learning_rate"] == 1e3]
    assert lost
    for trial in lost:
        assert (trial.state, trial.score, trial.fold_scores) == ("diverged", None, ())
        assert trial.error.startswith("fold 0: the run diverged after round")
    assert result.algorithm.learning_rate == 0.02
    assert f"{len(lost)} diverged" in str(result)
    # The default may be the one that diverges.
    result = small_tune(
        SFedAvg(learning_rate=1e3, noise="none"), space={"learning_rate": (0.01, 0.02)},
        trials=2, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
    )  # fmt: skip
    assert result.best.number == 1
    assert result.improvement is None
    assert "diverged: fold 0" in str(result)
    with pytest.raises(RuntimeError, match="none of 1 trials has a score; the first: fold 0: the"):
        small_tune(
            SFedAvg(learning_rate=1e3, noise="none"), space={"learning_rate": (0.01, 0.02)},
            trials=1, rounds=30, objective=LeastSquares(), data=small_data(task="regression"),
        )  # fmt: skip


def test_parameters_that_do_not_fit_the_data_fail_with_their_reason():
    space = {"coverage_rounds": [None, 1]}
    storage = optuna.storages.InMemoryStorage()
    for trials in (3, 6):
        result = small_tune(space=space, trials=trials, sampler="random", storage=storage)
    states = {t.parameters["coverage_rounds"]: t.state for t in result.trials}
    assert states == {None: "complete", 1: "failed"}
    (error,) = {t.error for t in result.trials if t.state == "failed"}
    assert error.startswith("ValueError: coverage_rounds")
    assert timeless(result) == timeless(small_tune(space=space, trials=6, sampler="random"))
    # In the algorithm as it is given, it is a mistake of the caller's.
    with pytest.raises(ValueError, match="coverage_rounds"):
        small_tune(dataclasses.replace(ALGORITHM, coverage_rounds=1))


def test_the_default_counts_even_outside_the_space():
    result = small_tune(space={"mu0": (1e3, 1e4, "log"), "local_steps": [1]}, trials=3)
    assert result.default.parameters == {"mu0": 20.0, "local_steps": 2}
    assert result.best is result.default
    assert result.algorithm is ALGORITHM
    assert "no trial is better than the algorithm as it was given" in str(result)
    assert "  objective             logistic, no intercept added, beta 0.001\n" in str(result)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"space": {}}, "space must be a mapping"),
        ({"space": {"gamma": [1]}}, "space must name parameters of fedepm or beta, got 'gamma'"),
        ({"space": {"mechanism": [None]}}, "space must name parameters of fedepm"),
        ({"space": {"lam": (1.0, 0.1)}}, "space of lam must have low < high"),
        ({"space": {"lam": (0.0, 0.1, "log")}}, "space of lam must have low > 0"),
        ({"space": {"lam": (1e-3, 0.1, "cubic")}}, "space of lam: the scale must be one of"),
        ({"space": {"lam": (0.1,)}}, "space of lam must be .low, high."),
        ({"space": {"lam": 0.1}}, "space of lam must be a range"),
        ({"space": {"lam": (-1.0, 0.1)}}, "space of lam: lam must be a finite number"),
        ({"space": {"lam": [float("nan")]}}, "space of lam: lam must be a finite number"),
        ({"space": {"participation": (0.0, 1.0)}}, "space of participation: participation must"),
        ({"space": {"local_steps": (1.5, 4)}}, "space of local_steps: local_steps must be an int"),
        ({"space": {"local_steps": []}}, "space of local_steps must be a list of different"),
        ({"space": {"local_steps": [4, 4]}}, "space of local_steps must be a list of different"),
        ({"space": {"noise": ["gamma"]}}, "space of noise: noise must be one of"),
        ({"space": {"noise": "none"}}, "space of noise must be a list of values"),
        ({"folds": 1}, "folds must be an integer >= 2"),
        ({"folds": 7}, "7 > 6; folds=6 holds each out alone, over='records' holds out a part"),
        ({"folds": 99, "over": "records"}, "folds must be such that each holds records out"),
        ({"over": "rows"}, "over must be one of"),
        ({"score": "f1"}, "score must be one of"),
        ({"trials": 0}, "trials must be an integer >= 1"),
        ({"sampler": "magic"}, "sampler must be one of"),
        ({"sampler": 3}, "sampler must be one of"),
        ({"pruner": "magic"}, "pruner must be one of"),
        ({"study": ""}, "study must be a name"),
        ({"storage": 3}, "storage must be a URL, a path or a storage of Optuna"),
        ({"jobs": 0}, "jobs must be an integer >= 1"),
        ({"rounds": 3, "stopping": "text"}, "rounds and stopping exclude each other"),
        ({"algorithm": "fedepm"}, "algorithm must be FedEPM"),
        ({"algorithm": FedEPM(mechanism=LaplaceMechanism(total_epsilon=1.0))},
         "spends budget.*fedepm_fast.privacy.plan"),
        ({"algorithm": FedEPM(lam=0.0), "space": None}, "space must be given where lam is 0"),
    ],
)  # fmt: skip
def test_bad_input_is_told(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small_tune(**changed)


def test_what_would_change_the_score_is_not_tuned():
    data = small_data(task="regression")
    with pytest.raises(ValueError, match="'delta', which changes what is minimised"):
        small_tune(data=data, objective=Huber(), space={"delta": (0.1, 1.0)})
    with pytest.raises(ValueError, match="score must be 'loss' for the huber objective"):
        small_tune(data=data, objective=Huber(), score="accuracy")


# Results ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    return small_tune(
        dataclasses.replace(ALGORITHM, mu0=500.0), trials=12, rounds=None, max_rounds=4,
        space={"mu0": (5.0, 1e3, "log"), "beta": (1e-4, 1.0, "log"), "local_steps": [2, 4]},
    )  # fmt: skip


def test_a_result_is_ready_to_be_used(result):
    best = min(result.trials, key=lambda t: t.score)
    assert result.best is best
    assert best.number > 0
    assert result.parameters == best.parameters
    values = dict(best.parameters)
    assert result.objective == Logistic(beta=values.pop("beta"))
    assert result.algorithm == dataclasses.replace(ALGORITHM, **values)
    gain = result.improvement
    assert gain.mean == pytest.approx(result.default.score - result.score)
    assert gain.mean > 0
    assert f"better by             {gain.mean:.6f} +- " in str(result)
    assert "logistic, no intercept added" in str(result)
    table = result.to_pandas()
    assert table["score"].tolist() == [t.score for t in result.trials]
    assert table["fold_2"].tolist() == [t.fold_scores[2] for t in result.trials]
    assert table["mu0"][0] == 500.0
    assert (table["rounds"] <= 4).all()
    shares = result.importance()
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"mu0", "beta", "local_steps"}
    for name, (low, high) in (("mu0", (5.0, 1e3)), ("beta", (1e-4, 1.0))):
        at = np.log(best.parameters[name] / low) / np.log(high / low)
        assert (name in result.at_the_end) == (not 0.05 < at < 0.95)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["score"] == result.score


def test_code_and_specification_are_the_tuned_algorithm(result):
    made = {"data": small_data()}
    exec(result.code(), made)
    assert made["algorithm"] == result.algorithm
    np.testing.assert_array_equal(
        made["result"].x,
        run(result.algorithm, small_data(), objective=result.objective, max_rounds=4).x,
    )
    text = result.toml({"source": "synthetic", "clients": 4, "partition": None})
    (cell,) = Sweep.from_dict(tomllib.loads(text)).cells
    for name in ("mu0", "lam", "eta", "noise", "local_steps"):
        assert getattr(cell.algorithm, name) == getattr(result.algorithm, name)
    assert (cell.objective.beta, cell.max_rounds) == (result.objective.beta, 4)
    assert cell.source.n_clients == 4
    assert tomllib.loads(result.toml())["data"] == {}


def test_the_plot_shows_every_trial(result, tmp_path):
    figure = result.plot(tmp_path / "scores.png", ["mu0", "beta"])
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    ax = figure.axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    places = np.array([[t.parameters["mu0"], t.parameters["beta"]] for t in result.trials])
    drawn = [c.get_offsets() for c in ax.collections if len(c.get_offsets()) == len(places)]
    np.testing.assert_allclose(drawn[0], places)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == [
        f"{name}: {t.score:.4f} ± {t.standard_error:.4f}"
        for name, t in (("as given", result.default), ("best", result.best))
    ]
    np.testing.assert_allclose(ax.collections[-1].get_offsets()[0], places[result.best.number])
    line = result.plot(parameters=["local_steps"]).axes[0]
    assert [t.get_text() for t in line.get_xticklabels()] == ["2", "4"]
    for wrong in (["mu0", "mu0"], ["lam"], []):
        with pytest.raises(ValueError, match="parameters must be one or two of mu0, beta"):
            result.plot(parameters=wrong)


# The command line ---------------------------------------------------------------------


def test_spaces_are_read_from_a_command_line():
    texts = [
        "lam=1e-6:1:log",
        "local-steps=4,8",
        "noise=none,laplace",
        "alpha=1:1.01",
        "step=1,1/d",
    ]
    space = as_space(parse_space(texts, FedEPM(), Logistic()), FedEPM(), Logistic())
    assert space == {
        "lam": Range(1e-6, 1.0, log=True),
        "local_steps": Choices((4, 8)),
        "noise": Choices(("none", "laplace")),
        "alpha": Range(1.0, 1.01),
        "step": Choices(("1", "1/d")),
    }
    for text in ("lam", "lam=", "=1"):
        with pytest.raises(ValueError, match="space must be NAME=LOW:HIGH"):
            parse_space([text], FedEPM(), Logistic())
    with pytest.raises(ValueError, match="space must name a parameter once, got lam twice"):
        parse_space(["lam=1:2", "lam=3:4"], FedEPM(), Logistic())


DATA = ("--data", "synthetic", "--clients", 6)


def test_the_command_tunes_and_prints_what_to_go_on_with(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "tune", *DATA, "--trials", 4, "--folds", 3, "--rounds", 3, "--out", tmp_path,
        "--space", "mu0=0.5:50:log", "--space", "beta=1e-4,1e-2", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert len(found["trials"]) == 4
    assert found["score"] == min(t["score"] for t in found["trials"] if t["score"] is not None)
    names = ["scores.png", "scores.svg", "summary.json", "trials.csv", "tuned.toml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert json.loads((tmp_path / "summary.json").read_text()) == found
    (cell,) = Sweep.from_toml(tmp_path / "tuned.toml").cells
    assert cell.algorithm.mu0 == found["parameters"].get("mu0")
    # The command that it prints is a run with these parameters.
    words = shlex.split(found["command"])
    assert words[:2] == ["fedepm", "run"]
    code, out, _ = fedepm(capsys, *words[1:], "--json")
    ran = json.loads(out)
    assert (code, ran["rounds"]) == (0, 3)
    assert ran["parameters"]["mu0"] == found["parameters"]["mu0"]
    assert ran["objective"]["beta"] == found["parameters"]["beta"]


def test_the_command_tells_what_is_wrong_in_a_line(capsys, tmp_path):
    for arguments, message in (
        (("--space", "lam=1:0.1"), "error: --space of lam must have low < high"),
        (
            ("--folds", 7),
            "error: --folds must not exceed the clients that they hold out: 7 > 6; --folds 6 holds "
            "each out alone, --over records holds out a part of each one's\n",
        ),
        (("--prox", 1), "error: --prox is not a parameter of fedepm"),
        (("--plot", tmp_path / "a.gif"), "error: --plot's suffix must be"),
        (("--storage", tmp_path / "no" / "a.db"), "error: --storage"),
    ):
        code, out, err = fedepm(capsys, "tune", *DATA, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(message)
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("clients", "over", "folds"),
    [(2, "clients", 2), (3, "clients", 3), (6, "clients", 5), (3, "records", 5)],
)
def test_by_default_no_more_folds_than_clients(clients, over, folds):
    data = small_data(clients)
    found = small_tune(data=data, over=over, folds=None, trials=1)
    same = small_tune(data=data, over=over, folds=folds, trials=1)
    assert found.settings["folds"] == folds == len(found.default.fold_scores)
    assert found.default.fold_scores == same.default.fold_scores


def test_one_client_is_not_held_out():
    with pytest.raises(ValueError, match=r"2 > 1; over='records' holds out"):
        small_tune(data=small_data(1), folds=None)


def test_why_the_algorithm_as_given_has_no_score_is_told_as_others_are(capsys):
    asked = ("--data", "synthetic", "--clients", 3, "--samples", 60, "--features", 3)
    asked += ("--noise", "none", "--max-rounds", 60, "--trials", 3, "--sampler", "grid")
    code, out, _ = fedepm(capsys, "tune", *asked, "--mu0", 1e-9, "--space", "mu0=5,1e-9")
    assert code == 0 and max(map(len, out.splitlines()[:8])) <= 80
    told = " ".join(out.split())
    assert "as given diverged: fold 0: the run " in told and "--mu0 of" in told
    assert "CurvatureFedEPM" not in told.partition("fedepm run")[0]


def test_code_names_an_own_loss(result):
    own = own_logistic(beta=0.25)
    changed = dataclasses.replace(result, objective=own)
    assert "objective=own_logistic.changed(beta=0.25)" in changed.code()
    assert "ScalarLoss" not in changed.code()
    with pytest.raises(ValueError, match="a loss of your own has no place in a specification"):
        changed.toml()


def test_runs_that_diverge_behind_a_trial_are_silent(recwarn):
    for _ in range(3):
        with pytest.raises(RuntimeError, match="none of 2 trials has a score"):
            tune(
                FedEPM(alpha=1e300), datasets.adult(clients=10, seed=0), trials=2, folds=2,
                max_rounds=30, progress=False,
            )  # fmt: skip
    assert not [w for w in recwarn if issubclass(w.category, DivergenceWarning)]
