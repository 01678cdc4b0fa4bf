"""Files of stores: earlier and later versions, what is none, locks and full disks."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest
from records import record

from fedepm_fast import Store, StoreError
from fedepm_fast.store._file import APPLICATION, SCHEMA, explained

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


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("before", ["user_version", "sqlite_schema", "COMMIT"])
def test_a_store_that_another_program_makes_meanwhile_is_one(
    tmp_path, monkeypatch, before, readonly
):
    """Whatever it was when it was first looked at."""

    class Overtaken(sqlite3.Connection):
        def execute(self, sql, *arguments):
            if before in sql:
                monkeypatch.undo()
                with suppress(StoreError):  # which waits for nobody here
                    Store(path, timeout=0).close()
            return super().execute(sql, *arguments)

    path = tmp_path / "new.sqlite"
    path.touch()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Overtaken, **k))
    if readonly:
        with pytest.raises(StoreError, match="is empty, it is not a store of runs"):
            Store(path, readonly=True)
    else:
        Store(path, timeout=0.1).close()
    with Store(path) as store:
        assert store.ids() == []
