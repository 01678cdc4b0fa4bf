"""The store of runs: exact, shared, and whole after whatever happens."""

from __future__ import annotations

import csv
import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import MEASURED, record

from fedepm_fast import Store, StoreError
from fedepm_fast._common.measures import OF_RUN
from fedepm_fast.store import _history


@given(st.lists(st.lists(st.floats(width=64), max_size=30), max_size=4))
def test_histories_keep_every_bit(columns):
    history = {f"c{i}": np.array(values, dtype=float) for i, values in enumerate(columns)}
    history["x"] = np.array([[np.nan, -0.0], [5e-324, -np.inf]])
    found = _history.decode(_history.encode(history))
    assert list(found) == list(history)
    for name, values in history.items():
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


def test_a_record_comes_back_as_it_was(tmp_path):
    want = record(3, seed=2**64 - 1, epsilon=0.1 + 0.2, max_iterations=None)
    with Store(tmp_path / "a.sqlite") as store:
        store.add([want])
        store.add([record(4, seed=2**63)])
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        got = store.get(want.run_id[:64])
        for name in ("run_id", "parameters", "seed", "trial", "error", "measures", "versions",
                     "machine", "packed", "created"):  # fmt: skip
            assert getattr(got, name) == getattr(want, name)
        np.testing.assert_array_equal(got.history["objective"], np.arange(3.0) / 3)
        assert store.table()["seed"] == [2**64 - 1, 2**63]
        assert store.ids({"seed": 2**64 - 1}) == [want.run_id]
        with pytest.raises(StoreError, match="read-only"):
            store.add([want])


def test_numbers_that_are_not_finite_come_back(tmp_path):
    measures = dict(zip(OF_RUN, MEASURED, strict=True)) | {"snr": math.inf, "accuracy": None}
    with Store(":memory:") as store:
        one = record(1)
        object.__setattr__(one, "measures", measures)
        store.add([one])
        assert store.get(one.run_id).measures == measures
        assert store.to_pandas()["snr"].tolist() == [math.inf]


def test_runs_are_held_once_and_success_replaces_failure_only():
    with Store(":memory:") as store:
        store.add([record(1, error="ValueError: no"), record(2)])
        assert store.ids({"failed": True}) == [record(1).run_id]
        assert store.get(record(1).run_id).history == {}
        store.add([record(1), record(2, error="late"), record(2)])
        assert len(store) == 2
        assert store.ids({"failed": True}) == []
        assert store.get(record(1).run_id).measures["rounds"] == 7


def test_a_batch_is_added_whole_or_not_at_all():
    def two():
        yield record(1)
        raise OverflowError

    with Store(":memory:") as store:
        with pytest.raises(OverflowError):
            store.add(two())
        bad = record(2)
        object.__setattr__(bad, "machine", None)  # refused by the table
        with pytest.raises(StoreError, match="NOT NULL"):
            store.add([record(1), bad])
        assert len(store) == 0
        store.add([record(1)])
        assert len(store) == 1


@pytest.mark.parametrize(
    ("where", "trials"),
    [
        (None, range(1, 101)),
        ({}, range(1, 101)),
        ({"local_steps": 4, "trial": range(1, 5)}, [2, 4]),
        (["local_steps = 8", "trial<=5"], [1, 3, 5]),
        (["local_steps>4", "trial >= 97", "trial!=99"], [97]),
        (["local_steps=4,8", "trial=7,8"], [7, 8]),
        (["lam=1e-6", "trial<3"], [1, 2]),
        (["lam==0.000001", "algorithm!=sfedavg", "trial<2"], [1]),
        (["algorithm=sfedavg"], []),
        (["lam=none"], []),
        (["diverged=false", "failed=false", "trial=9"], [9]),
        (["diverged=true"], []),
        (["rounds>7"], []),
        (["machine=here", "trial=9"], [9]),
        (["machine=123"], []),
        ({"clients": np.int64(50), "trial": np.array([3])}, [3]),
        (["clients=none"], []),
        (["max_iterations=5"], []),  # nothing tells of what kind it is
    ],
)
def test_where(path, where, trials):
    with Store(path, readonly=True) as store:
        assert store.table(where)["trial"] == list(trials)
        assert store.ids(where) == [f"{i:064x}" for i in trials]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["local_step=4"], "where must name columns of .*, got 'local_step': .*local_steps"),
        (["local_steps"], "where must be conditions such as local_steps=12"),
        (["local_steps="], "where must be conditions"),
        (["local_steps>4,8"], "where takes several values for = and != only"),
        (["local_steps>four"], "where must compare local_steps, such as 8"),
        (["clients=abc"], "where must compare clients, such as 50, .* got 'abc'"),
        (["clients=50,abc"], "where must compare clients, such as 50, .* got 'abc'"),
        (["trial=1_0"], "where must compare trial, such as 1, with .* got '1_0'"),
        (["clients=5_0.0"], "where must compare clients, such as 50, .* got '5_0.0'"),
        (["clients!=true"], "where must compare clients, such as 50, .* got True"),
        ({"algorithm": 3}, "where must compare algorithm, such as 'fedepm', .* got 3"),
        (["rounds>=abc"], "where must compare rounds, such as 1, .* got 'abc'"),
        (["diverged=maybe"], "where must compare diverged, such as True, .* got 'maybe'"),
        (["failed=2"], "where must compare failed, such as True, .* got 2"),
        ({"machine": 3}, "where must compare machine, such as 'a-name', .* got 3"),
        ({"local_steps": []}, "local_steps must not be an empty list"),
        ("local_steps=4", "where must be a mapping or a list of conditions"),
    ],
)
def test_bad_conditions_are_told(path, where, message):
    with (
        Store(path, readonly=True) as store,
        pytest.raises((ValueError, TypeError), match=message),
    ):
        store.table(where)


@pytest.mark.parametrize("file", [True, False])
def test_threads_share_a_store(tmp_path, file):
    with Store(tmp_path / "a.sqlite" if file else ":memory:") as store:

        def work(k):
            for i in range(100 * k, 100 * k + 30):
                store.add([record(i)])
                store.ids({"trial": i})
                assert store.get(f"{i:064x}").trial == i
                assert store.table(ids=[f"{i:064x}"])["trial"] == [i]
            return store.prune([f"trial>={100 * k + 20}", f"trial<{100 * k + 30}"])

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(work, range(6))) == [10] * 6
        assert sorted(store.table()["trial"]) == [100 * k + i for k in range(6) for i in range(20)]


def test_ids_give_the_order(path):
    ids = [f"{i:064x}" for i in (7, 3, 5)]
    with Store(path, readonly=True) as store:
        assert store.table(ids=ids)["trial"] == [7, 3, 5]
        assert list(store.histories(ids)) == ids
        with pytest.raises(StoreError, match="has no run f, or is damaged"):
            store.histories([*ids, "f"])
        assert store.to_pandas({"trial": [3, 5]}, ids=ids)["trial"].tolist() == [3, 5]


def test_parameters_that_some_runs_have_not_are_missing():
    with Store(":memory:") as store:
        store.add([record(1), record(2, algorithm="sfedavg", learning_rate=2.0)])
        table = store.to_pandas()
    assert table["learning_rate"].isna().tolist() == [True, False]
    assert list(table.columns[:4]) == ["run_id", "algorithm", "local_steps", "lam"]


def test_one_run_by_the_beginning_of_its_id(path):
    with Store(path, readonly=True) as store:
        for prefix, reason in (("f", "no run f"), ("0" * 50, "several runs"), ("%", "no run")):
            with pytest.raises(KeyError, match=reason):
                store.get(prefix)
        assert store.get(f"{100:064x}").trial == 100
        with pytest.raises(KeyError):
            store.history("nothing")


def test_prune_deletes_what_it_is_told_and_gives_the_space_back(path):
    size = path.stat().st_size
    with Store(path) as store:
        assert store.prune() == 0
        assert store.prune(["local_steps=8", "trial>1"]) == 49
        assert store.prune(ids=[f"{1:064x}"]) == 1
        assert len(store) == 50
        assert set(store.table()["local_steps"]) == {4}
        cells = store._connection.execute("SELECT count(*) FROM cells").fetchone()
        assert cells == (1,)
    assert path.stat().st_size < size


@pytest.mark.parametrize(
    ("where", "count", "told"),
    [
        ("algorithm='fedepm'", 4, []),
        ('algorithm = "fedepm" , "x,y"', 5, []),
        ("noise=none", 5, []),
        ("algorithm=FedEPM", 0, ["no run has algorithm = FedEPM; stored: fedepm, x,y"]),
        ("algorithm=1,None", 0, ["no run has algorithm = 1; stored: fedepm, x,y"]),
        ("algorithm!=a,b", 5, ["no run has algorithm = a or b; stored: fedepm, x,y"]),
        ("machine=there", 0, ["no run has machine = there; stored: here"]),
        ("local_steps=99,4", 5, ["no run has local_steps = 99; stored: 4"]),
        ("lam=0.5", 0, ["no run has lam = 0.5; stored: 1e-06"]),
        ("local_steps>99", 0, []),
        ("diverged=true", 0, []),
        ("local_steps='4'", 5, []),
    ],
)
def test_values_that_no_run_has_are_told(where, count, told):
    with Store(":memory:") as store:
        store.add([record(i, noise="none") for i in range(4)])
        store.add([record(5, algorithm="x,y", noise="none")])
        assert len(store.ids([where])) == count
        assert store.absent([where]) == told


def test_exports_are_the_table(path, tmp_path):
    pandas = pytest.importorskip("pandas")
    with Store(path, readonly=True) as store:
        want = store.to_pandas(["trial<=10"])
        store.to_csv(tmp_path / "a.csv", ["trial<=10"])
        store.to_parquet(tmp_path / "a.parquet", ["trial<=10"])
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "a.parquet"), want)
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(want.columns)
    assert [float(row["mean_objective"]) for row in rows] == want["mean_objective"].tolist()
    assert [row["error"] for row in rows] == [""] * 10


def test_the_view_is_for_sql(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute(
            "SELECT local_steps, count(*), sum(rounds) FROM results GROUP BY 1 ORDER BY 1"
        ).fetchall()
    connection.close()
    assert found == [(4, 50, 350), (8, 50, 350)]
