"""Tunings that go on: storages, kills, and that the outcome is a function of the arguments."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from commands import ROOT
from problems import small_data
from small_tunings import ALGORITHM, SPACE, small_tune, timeless

from fedepm_fast import Logistic
from fedepm_fast.store import StoreError
from fedepm_fast.tuning._search import SAMPLERS
from fedepm_fast.tuning._storage import located


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
from small_tunings import small_tune
def kill(done, total, failed):
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
small_tune(storage="tune.db", trials=6, progress=kill)
"""


def test_a_kill_loses_no_finished_trial(tmp_path):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
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
