"""The store of runs: exact, shared, and whole after whatever happens."""

from __future__ import annotations

import csv
import math
import operator
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import Store, StoreError
from fedepm_fast._common.measures import OF_RUN
from fedepm_fast.store import _history
from fedepm_fast.store._file import APPLICATION, SCHEMA, explained
from fedepm_fast.store._record import Record
from fedepm_fast.store._rows import checksum

CHECKSUM = 180513624

MEASURED = (0.1 + 0.2, 7, 84, 0.012, 1e-3, -0.5, 0.75, 1e-9, False, "objective_variance", "none")


def record(i: int, *, error: str | None = None, seed: int = 0, **parameters) -> Record:
    return Record(
        run_id=f"{i:064x}",
        parameters={"algorithm": "fedepm", "local_steps": 4, "lam": 1e-6, **parameters},
        seed=seed,
        trial=i,
        error=error,
        measures={} if error else dict(zip(OF_RUN, MEASURED, strict=True)),
        versions={"fedepm_fast": "0"},
        machine="here",
        packed=None if error else _history.encode({"objective": np.arange(3.0) / max(i, 1)}),
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.add(
            record(i, local_steps=4 * (1 + i % 2), clients=50, max_iterations=None)
            for i in range(1, 101)
        )
    return path


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


# Integers, of any size --------------------------------------------------------------------

EDGES = [0, 2**53, 2**62, 2**63, 2**64]
WORDS = st.sampled_from(EDGES).flatmap(
    lambda edge: st.integers(max(0, edge - 3), min(2**64 - 1, edge + 3))
)
INTEGERS = st.tuples(st.sampled_from([*EDGES, 10**30, 10**400]), st.integers(-3, 3)).map(sum)
RELATIONS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
             ">": operator.gt, ">=": operator.ge}  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(WORDS, WORDS, st.sampled_from([-1, 1]), WORDS), min_size=1, max_size=6),
    st.one_of(
        INTEGERS, INTEGERS.map(operator.neg), st.sampled_from([0.5, 1e19, 2.0**63, 2.0**64, -0.5])
    ),
)
def test_the_store_compares_as_python_does(rows, asked):
    columns = {
        "seed": [seed for seed, *_ in rows],
        "trial": [trial for _, trial, *_ in rows],
        "weight": [sign * word for _, _, sign, word in rows],
        "mean_objective": [float(sign * word) for _, _, sign, word in rows],
        "rounds": [min(word, 2**63 - 1) for *_, word in rows],
    }
    with Store(":memory:") as store:
        for i, (seed, trial, sign, word) in enumerate(rows):
            one = record(i, seed=seed, weight=sign * word)
            object.__setattr__(one, "trial", trial)
            changed = {"mean_objective": float(sign * word), "rounds": min(word, 2**63 - 1)}
            object.__setattr__(one, "measures", {**one.measures, **changed})
            store.add([one])
        for name, values in columns.items():
            assert store.table()[name] == values
            for sign, holds in RELATIONS.items():
                want = [f"{i:064x}" for i, value in enumerate(values) if holds(value, asked)]
                assert store.ids([f"{name}{sign}{asked!r}"]) == want, (name, sign)
            assert store.ids({name: asked}) == store.ids([f"{name}={asked!r}"])
        impossible = [f"seed>={2**64}"]
        assert store.prune(impossible) == 0 == store.prune([]) == store.prune({})
        assert len(store) == len(rows)


SEEDS = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 10**19, 2**64 - 1]


def test_numpy_integers_are_compared_as_integers():
    with Store(":memory:") as store:
        store.add(record(i, seed=seed) for i, seed in enumerate(SEEDS))
        for i, seed in enumerate(SEEDS):
            assert store.ids({"seed": np.uint64(seed)}) == [f"{i:064x}"]
            assert store.ids({"seed": np.array([seed, 5], np.uint64)}) == [f"{i:064x}"]
        assert store.ids({"seed": np.float64(2**53)}) == []


def test_the_view_sorts_and_compares_every_seed(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        store.add(record(i, seed=seed) for i, seed in enumerate(reversed(SEEDS)))
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    found = connection.execute("SELECT seed FROM results ORDER BY seed").fetchall()
    assert [int(seed) for (seed,) in found] == SEEDS
    for bound in SEEDS:
        text = str(bound) if bound < 2**63 else f"'{bound:020}'"
        (count,) = connection.execute(
            f"SELECT count(*) FROM results WHERE seed < {text}"
        ).fetchone()
        assert count == SEEDS.index(bound)
    connection.close()


def test_exports_keep_every_integer(tmp_path):
    pandas = pytest.importorskip("pandas")
    records = [record(i, seed=seed) for i, seed in enumerate(SEEDS)]
    for i, one in enumerate(records):
        one.parameters.update(
            cap=[None, 2**53 + 1][i % 2],
            top=[None, 2**64 - 1][i % 2],
            mixed=[0.5, 2**53 + 1][i % 2],
            huge=[1, 10**30][i % 2],
        )
    with Store(tmp_path / "a.sqlite") as store:
        store.add(records)
        frame = store.to_pandas()
        store.to_csv(tmp_path / "a.csv")
        store.to_parquet(tmp_path / "a.parquet")
    assert frame["seed"].dtype == np.uint64 and frame["seed"].tolist() == SEEDS
    assert frame.dtypes[["cap", "top", "mixed", "huge"]].astype(str).tolist() == [
        "Int64", "UInt64", "object", "object",
    ]  # fmt: skip
    for name in ("cap", "top", "mixed", "huge"):
        assert frame[name].tolist()[1] == records[1].parameters[name]
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == SEEDS
    assert (rows[1]["cap"], rows[1]["huge"]) == (str(2**53 + 1), str(10**30))
    read = pandas.read_parquet(tmp_path / "a.parquet")
    assert read["seed"].tolist() == SEEDS
    assert (read["cap"][1], read["top"][1], read["mixed"][1], read["huge"][1]) == (
        2**53 + 1, 2**64 - 1, str(2**53 + 1), str(10**30),
    )  # fmt: skip


def test_seeds_beyond_64_bits_are_refused():
    with Store(":memory:") as store:
        for seed in (-1, 2**64, 10**400):
            with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
                store.add([record(1, seed=seed)])
        with pytest.raises(StoreError, match="holds integers from"):
            one = record(1)
            object.__setattr__(one, "measures", {**one.measures, "rounds": 2**63})
            store.add([one])


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


# Files that are no good ---------------------------------------------------------------


BEFORE = """
CREATE TABLE cells (cell INTEGER PRIMARY KEY, parameters TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, cell INTEGER NOT NULL REFERENCES cells (cell),
    seed INTEGER NOT NULL, trial INTEGER NOT NULL, error TEXT,
    mean_objective REAL, rounds INTEGER, iterations INTEGER, total_time REAL, local_time REAL,
    snr REAL, accuracy REAL, grad_mean_sq REAL, diverged INTEGER, reasons TEXT, guarantee TEXT,
    history BLOB, versions TEXT NOT NULL, machine TEXT NOT NULL, created TEXT NOT NULL
);
CREATE INDEX runs_of_cell ON runs (cell, seed, trial);
CREATE VIEW results AS SELECT run_id FROM runs;
PRAGMA user_version = 2;
"""


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_is_read_and_brought_up_to_date(path, version):
    with Store(path) as store:
        store.add([record(101, error="no", seed=2**63), record(102, max_iterations=3)])
        want, histories = store.table(), store.histories(store.ids())
        measured = len(store.table()["guarantee"])
    connection = sqlite3.connect(path.with_name("old.sqlite"))
    connection.executescript(f"ATTACH '{path}' AS new;" + BEFORE)
    names = ", ".join(row[1] for row in connection.execute("PRAGMA main.table_info(runs)"))
    connection.executescript(
        f"INSERT INTO cells SELECT cell, parameters FROM new.cells;"
        f"INSERT INTO runs SELECT {names} FROM new.runs;"
        f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};"
        + "ALTER TABLE runs DROP COLUMN guarantee;"
        * (version == 1)
    )
    connection.close()
    if version == 1:
        want["guarantee"] = [None] * measured
    old = path.with_name("old.sqlite")
    for readonly, has in ((True, version), (False, SCHEMA), (True, SCHEMA)):
        with Store(old, readonly=readonly) as store:
            assert len(store) == 102
            assert store.table() == want
            assert store.get(want["run_id"][7]).trial == want["trial"][7]
            assert store.ids({"seed": 2**63}) == [f"{101:064x}"]
            assert store.done(want["run_id"]) == set(want["run_id"]) - {f"{101:064x}"}
            found = store.histories(store.ids())
            assert {i: h and h["objective"].tolist() for i, h in found.items()} == {
                i: h and h["objective"].tolist() for i, h in histories.items()
            }
        assert int.from_bytes(old.read_bytes()[60:64]) == has
    with Store(old) as store:
        store.add([record(103), record(101)])
        assert store.prune(["trial<=50"]) == 50
        assert len(store) == 53 and store.table()["guarantee"][-1] == "none"
    columns = "run_id, algorithm, seed, trial, mean_objective, guarantee, parameters, created"
    with sqlite3.connect(old) as connection:
        rows = connection.execute(f"SELECT {columns} FROM results").fetchall()
    connection.close()
    assert len(rows) == 53


def test_an_older_view_is_replaced(path):
    connection = sqlite3.connect(path)
    connection.execute("DROP VIEW results")
    connection.execute("CREATE VIEW results AS SELECT run_id, seed FROM runs")
    connection.close()
    with Store(path, readonly=True) as store:
        assert len(store) == 100
    with Store(path) as store:
        store.add([record(101, seed=2**63)])
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT seed, trial FROM results ORDER BY seed DESC").fetchone()
    connection.close()
    assert found == (f"{2**63:020}", 101)


def test_a_newer_version_is_left_alone(path):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    for readonly in (True, False):
        with pytest.raises(StoreError, match=rf"is of version {SCHEMA + 1}, this version of"):
            Store(path, readonly=readonly)


def test_what_is_not_a_store_is_refused_and_left_as_it_is(tmp_path):
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    text = tmp_path / "text.txt"
    text.write_text("local_steps = 4\n" * 100)
    for path in (other, text):
        before = path.read_bytes()
        for readonly in (True, False):
            with pytest.raises(StoreError, match="is not a store of runs"):
                Store(path, readonly=readonly)
        assert path.read_bytes() == before
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(StoreError, match=r"empty\.sqlite is empty, it is not a store of runs"):
        Store(tmp_path / "empty.sqlite", readonly=True)
    assert len(Store(tmp_path / "empty.sqlite")) == 0  # to write to, it becomes one
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(StoreError, match=r"the folder of .* does not exist"):
        Store(tmp_path / "no" / "a.sqlite")
    with pytest.raises(StoreError, match="no store at"):
        Store(tmp_path / "none.sqlite", readonly=True)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_store_is_told(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    for readonly in (True, False):
        with pytest.raises(StoreError, match=r"is damaged|is not a store"):
            Store(path, readonly=readonly)


def test_damage_inside_is_told(path):
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with Store(path, readonly=True) as store:
        for read in (store.ids, store.table, store.to_pandas, lambda: len(store)):
            with pytest.raises(StoreError, match="is damaged"):
                read()
        with pytest.raises(StoreError, match="is damaged"):
            store.get("0")


def test_a_damaged_history_is_told(path):
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET history = x'0001' WHERE trial = 3")
    connection.execute("UPDATE cells SET parameters = '{' WHERE cell = 1")
    connection.commit()
    connection.close()
    with Store(path, readonly=True) as store:
        with pytest.raises(StoreError, match=r"is damaged: run 0+3: the history is damaged"):
            store.histories([f"{3:064x}"])
        with pytest.raises(StoreError, match="is damaged"):
            store.table()


def test_a_locked_store_is_told(path):
    other = sqlite3.connect(path, isolation_level=None)
    with Store(path, timeout=0.05) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"is locked by another program \(waited 0.05 s\)"):
            store.add([record(200)])
        assert len(store) == 100  # reading goes on
        with pytest.raises(StoreError, match="is locked"):
            Store(path, timeout=0.05)
        other.execute("ROLLBACK")
        store.add([record(200)])
        assert len(store) == 101
    other.close()


def test_a_full_disk_is_told_and_nothing_stored_is_lost(path):
    with Store(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        batches = [[record(i) for i in range(k, k + 10)] for k in range(200, 400, 10)]
        added = 0
        with pytest.raises(
            StoreError, match=r"no space .*; what it holds is whole, with runs\.sqlite-wal"
        ):
            for batch in batches:
                store.add(batch)
                added += len(batch)
        assert len(store) == 100 + added
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.add(batches[added // 10])
    with Store(path, readonly=True) as store:
        assert len(store) == 110 + added
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_no_room_for_the_index_of_the_log_is_a_full_disk():
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(StoreError, match="no space left to write store"), explained("store"):
        raise error
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    with (
        pytest.raises(StoreError, match="store cannot be read or written: disk I/O error"),
        explained("store"),
    ):
        raise error


def test_a_store_in_a_folder_that_cannot_be_written_is_read(path, monkeypatch):
    from fedepm_fast.store import _file as _store_file

    opened = _store_file._open

    def like_a_readonly_folder(path, mode, timeout, readonly=False):
        if "immutable" not in mode:
            raise sqlite3.OperationalError("unable to open database file")
        return opened(path, mode, timeout, readonly)

    monkeypatch.setattr(_store_file, "_open", like_a_readonly_folder)
    with Store(path, readonly=True) as store:
        assert len(store) == 100


def test_the_file_is_one_and_marked(path):
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72]) == APPLICATION
    assert int.from_bytes(header[60:64]) == SCHEMA
    with Store(path, readonly=True) as store:
        store.ids()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_transaction_that_was_left_open_is_undone(tmp_path):
    # An interrupt can come between the beginning of a transaction and its first statement.
    from fedepm_fast.store._file import transaction

    connection = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (1)")
    with transaction(connection):
        connection.execute("INSERT INTO t VALUES (2)")
    assert connection.execute("SELECT x FROM t").fetchall() == [(2,)]
    with pytest.raises(KeyboardInterrupt), transaction(connection):
        connection.execute("INSERT INTO t VALUES (3)")
        raise KeyboardInterrupt
    assert connection.execute("SELECT x FROM t").fetchall() == [(2,)]
    assert not connection.in_transaction
    connection.close()


def test_a_copy_without_its_log_is_told_what_it_lacks(tmp_path):
    path, copy = tmp_path / "a.sqlite", tmp_path / "copy.sqlite"
    with Store(path) as store:
        store.add([record(1)])
        # As after a kill, or where the disk is too full to put the log into the file.
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            "a.sqlite", "a.sqlite-shm", "a.sqlite-wal",
        ]  # fmt: skip
        copy.write_bytes(path.read_bytes())
        with pytest.raises(StoreError, match=r"copy\.sqlite-wal beside the original belongs to it"):
            Store(copy, readonly=True)
        for name in ("-wal", "-shm"):
            (tmp_path / f"copy.sqlite{name}").write_bytes(
                (tmp_path / f"a.sqlite{name}").read_bytes()
            )
    assert [p.name for p in tmp_path.glob("a.*")] == ["a.sqlite"]
    with Store(copy, readonly=True) as store:
        assert len(store) == 1
    assert [p.name for p in tmp_path.glob("copy.*")] == ["copy.sqlite"]


# Damage -----------------------------------------------------------------------------------


def test_any_damage_of_a_history_is_told(rng):
    history = {"objective": rng.normal(size=30), "x": rng.normal(size=(30, 2))}
    content = _history.encode(history)
    told = 0
    for k in range(300):
        damaged = bytearray(content)
        if k % 3:
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(content)) :]
        try:
            found = _history.decode(bytes(damaged))  # a bit of the last byte may mean nothing
            assert {n: v.tobytes() for n, v in found.items()} == {
                n: v.tobytes() for n, v in history.items()
            }
        except ValueError as error:
            told += 1
            assert str(error).startswith("the history is damaged: ")
    assert told > 290


def _read(path, readonly=True):
    """All that a store can be asked, in words."""
    with Store(path, readonly=readonly) as store:
        ids = store.ids()
        histories = store.histories(ids)
        return repr((
            ids, len(store), store.table(), store.table(["trial>=2", "local_steps=4,8"]),
            store.table(ids=ids[::-1]), store.get(ids[3]), store.done(ids),
            {i: {n: v.tolist() for n, v in h.items()} for i, h in histories.items()},
        ))  # fmt: skip


@pytest.mark.parametrize("machine", ["here", "a-name" * 300])  # in one page, in several
def test_no_flipped_bit_is_read_as_another_table(tmp_path, rng, machine):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        for i in range(1, 25):
            one = record(i, local_steps=4 * (1 + i % 2), error=None if i % 5 else "ValueError: no")
            object.__setattr__(one, "machine", machine)
            store.add([one])
    content, want = path.read_bytes(), _read(path)
    told = 0
    for k in range(500):
        damaged = bytearray(content)
        if k % 10:
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(content)) :]
        path.write_bytes(damaged)
        try:
            assert _read(path, readonly=bool(k % 5)) == want
        except (StoreError, KeyError) as error:  # of an index that says there is none
            told += 1
            assert str(path) in str(error) and "\n" not in str(error)
        finally:
            for log in path.parent.glob("*-*"):
                log.unlink()
    assert told > 100


def test_what_is_changed_in_a_row_is_told_with_its_run(path):
    values = {
        "mean_objective": "0.8815", "rounds": "rounds + 1", "error": "'no'", "seed": "1",
        "machine": "'there'", "history": "x'00'", "guarantee": "'none '", "cell": "3 - cell",
        "history_checksum": "7", "checksum": "7", "diverged": "NULL",
    }  # fmt: skip
    content = path.read_bytes()
    for name, value in values.items():
        path.write_bytes(content)
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE runs SET {name} = {value} WHERE trial = 7")
        connection.close()
        with Store(path) as store:
            with pytest.raises(StoreError, match=rf"{path} is damaged: run {7:064x}"):
                store.histories([f"{7:064x}"])
            if name != "history":  # which the others do not read
                for read in (store.table, store.ids, lambda s=store: s.done([f"{7:064x}"])):
                    with pytest.raises(StoreError, match=rf"{path} is damaged: run {7:064x}"):
                        read()
            assert store.histories([f"{8:064x}"])
            assert store.prune(ids=[f"{7:064x}"]) == 1  # it can be done again
            assert len(store.histories(store.ids())) == 99
    path.write_bytes(content)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET parameters = replace(parameters, '8', '9')")
    connection.close()
    with (
        Store(path, readonly=True) as store,
        pytest.raises(StoreError, match="the parameters of cell 1 is not what was written"),
    ):
        store.table()


def test_a_run_that_is_lost_is_told(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER run_deleted")
        connection.execute("DELETE FROM runs WHERE trial = 7")
    connection.close()
    with Store(path, readonly=True) as store:
        for read in (store.table, store.ids, lambda: len(store)):
            with pytest.raises(StoreError, match="is damaged: runs are missing, or there twice"):
                read()


def test_a_checksum_is_of_values_and_types():
    # Written in files: these must not change.
    assert checksum(("a", 7, 0.3, None)) == CHECKSUM
    others = [("a", 7.0, 0.3, None), ("a", 7, 0.3, "None"), ("b", 7, 0.3, None), ("a", -7, 0.3, 0)]
    assert CHECKSUM not in map(checksum, others)
    assert checksum(("a", "b")) != checksum(("ab", ""))
    with pytest.raises(OverflowError):
        checksum((2**63,))
    with pytest.raises(ValueError, match="of type bytes"):
        checksum((b"a",))


@pytest.mark.parametrize("value", [-0.0, math.nan, math.inf, 7, np.float64(0.1), True])
def test_what_sqlite_makes_of_a_number_is_what_is_checked(value):
    with Store(":memory:") as store:
        one = record(1)
        object.__setattr__(one, "measures", {**one.measures, "snr": value, "diverged": np.True_})
        store.add([one])
        (found,) = store.table()["snr"]
        assert found == value or (found is None and math.isnan(value))
        assert store.table()["diverged"] == [True]
