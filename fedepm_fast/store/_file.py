"""The file of a store: its schema, how it is opened, and what SQLite's errors mean."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..guarantees import SHARED_SEED
from ._rows import CHECKED, checksum, history_checksum

#: Marks the file as one of ours, in SQLite's header: "FEPM".
APPLICATION = 0x4645504D

#: Raised when the tables change; files of older versions are brought up to date on opening.
SCHEMA = 3

_TABLES = """
CREATE TABLE cells (
    cell INTEGER PRIMARY KEY,
    parameters TEXT NOT NULL UNIQUE,    -- JSON, everything but seed and trial
    checksum INTEGER NOT NULL           -- CRC-32 of the row
);
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,            -- SHA-256 of what determines the result
    cell INTEGER NOT NULL REFERENCES cells (cell),
    seed INTEGER NOT NULL,              -- below 2^64, modulo 2^64 to signed; as is trial
    trial INTEGER NOT NULL,
    error TEXT,                         -- why the run failed; NULL for a result
    mean_objective REAL, rounds INTEGER, iterations INTEGER, total_time REAL, local_time REAL,
    snr REAL, accuracy REAL, grad_mean_sq REAL, diverged INTEGER, reasons TEXT,
    guarantee TEXT,                     -- of privacy, in words
    versions TEXT NOT NULL,             -- JSON
    machine TEXT NOT NULL,
    created TEXT NOT NULL,              -- UTC
    history_checksum INTEGER,           -- CRC-32 of the history
    checksum INTEGER NOT NULL,          -- CRC-32 of the row but the history
    history BLOB                        -- last, for it is long: others are read without it
);
CREATE INDEX runs_of_cell ON runs (cell, seed, trial);
"""

# That no row is lost, or there twice, is known from these.
_TOTALS = """
CREATE TABLE totals (runs INTEGER NOT NULL, checksum INTEGER NOT NULL);
INSERT INTO totals SELECT count(*), ifnull(sum(checksum), 0) FROM runs;
CREATE TRIGGER run_added AFTER INSERT ON runs BEGIN
    UPDATE totals SET runs = runs + 1, checksum = checksum + NEW.checksum; END;
CREATE TRIGGER run_deleted AFTER DELETE ON runs BEGIN
    UPDATE totals SET runs = runs - 1, checksum = checksum - OLD.checksum; END;
CREATE TRIGGER run_replaced AFTER UPDATE OF checksum ON runs BEGIN
    UPDATE totals SET checksum = checksum - OLD.checksum + NEW.checksum; END;
"""

# Stores of older versions, which had no checksums, as they are read without being changed.
_OLDER = """
CREATE TEMP VIEW runs AS
    SELECT rowid, *, NULL AS guarantee, NULL AS history_checksum, NULL AS checksum FROM main.runs;
CREATE TEMP VIEW cells AS SELECT *, NULL AS checksum FROM main.cells;
CREATE TEMP VIEW totals AS SELECT NULL AS runs, NULL AS checksum
"""

# SQLite's integers are signed: from 2^63 on, seeds and trials are text of 20 digits here, which
# sorts behind all numbers.
_VIEW = f"""
CREATE VIEW results AS
    SELECT run_id,
           json_extract(parameters, '$.algorithm') AS algorithm,
           json_extract(parameters, '$.local_steps') AS local_steps,
           json_extract(parameters, '$.participation') AS participation,
           json_extract(parameters, '$.epsilon') AS epsilon,
           json_extract(parameters, '$.clients') AS clients,
           json_extract(parameters, '$.data') AS data,
           CASE WHEN seed >= 0 THEN seed ELSE printf('%020u', seed) END AS seed,
           CASE WHEN trial >= 0 THEN trial ELSE printf('%020u', trial) END AS trial,
           error, mean_objective, rounds, iterations, total_time, local_time, snr,
           accuracy, grad_mean_sq, diverged, reasons,
           CASE WHEN guarantee NOT LIKE 'none%' THEN '{SHARED_SEED.replace("'", "''")}'
                ELSE guarantee END AS guarantee,
           parameters, versions, machine, created
    FROM runs JOIN cells USING (cell);
"""


class StoreError(OSError):
    """A store cannot be read or written: one line that names the file and says why.

    Its ``errno`` is that of a disk that is full, or fails, if that is why, and else None.
    """


_OF_DISKS = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}


@contextmanager
def explained(path: str, timeout: float = 0) -> Iterator[None]:
    """SQLite's errors in the block as `StoreError`."""
    try:
        yield
    except OverflowError:
        raise StoreError(f"{path} holds integers from -2^63 to 2^63 - 1") from None
    except UnicodeDecodeError:  # of a name, in an error of SQLite's
        raise StoreError(f"{path} is damaged: text that is not UTF-8") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        why = str(error).split("\n")[0]
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
            code = sqlite3.SQLITE_FULL  # there is no room for the log's index
        if why.startswith("Could not decode"):  # found by Python, which has no code for it
            code, why = sqlite3.SQLITE_CORRUPT, "text that is not UTF-8"
        text = {
            sqlite3.SQLITE_NOTADB: f"{path} is not a store of runs",
            sqlite3.SQLITE_CORRUPT: f"{path} is damaged: {why}",
            sqlite3.SQLITE_FULL: f"no space left to write {path}; what it holds is whole, "
            f"with {Path(path).name}-wal if that is beside it",
            sqlite3.SQLITE_READONLY: f"{path} cannot be written: it is read-only",
            sqlite3.SQLITE_PERM: f"{path} cannot be opened: permission denied",
            sqlite3.SQLITE_CANTOPEN: f"{path} cannot be opened: no permission, or its folder "
            "is read-only",
            sqlite3.SQLITE_BUSY: f"{path} is locked by another program (waited {timeout:g} s)",
            sqlite3.SQLITE_IOERR: f"{path} cannot be read or written: {why}",
        }.get(code, f"{path}: {why}")
        told = StoreError(text)
        told.errno = _OF_DISKS.get(code)
        raise told from None


def open_store(path: str, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """A connection to a store, created if need be, that is known to be one.

    Raises
    ------
    StoreError
        If it is not, is of a newer version, is incomplete, or cannot be opened or written.
    """
    with explained(path, timeout):
        if path != ":memory:":
            _check_path(path, readonly)
        if not readonly:
            return _open(path, "rwc", timeout)
        try:
            # Who may write removes the log's files in the end, even if it only reads.
            return _open(path, "rw" if os.access(path, os.W_OK) else "ro", timeout, readonly)
        except sqlite3.OperationalError:
            # In a folder that cannot be written they cannot even be made.
            return _open(path, "ro&immutable=1", timeout, readonly)


def _check_path(path: str, readonly: bool) -> None:
    file = Path(path)
    if file.is_dir():
        raise StoreError(f"{path} is a folder, a store is a file")
    if readonly and not file.exists():
        raise StoreError(f"no store at {path}")
    if not file.parent.is_dir():
        raise StoreError(f"the folder of {path} does not exist")
    # While a program writes, or after it was killed, pages may be in its log only.
    if file.exists() and not Path(f"{path}-wal").exists():
        _check_size(file)


def _check_size(file: Path) -> None:
    """Raise if the file is shorter than its header says: SQLite itself may not notice."""
    with open(file, "rb") as opened:
        header = opened.read(100)
    if len(header) == 100 and header.startswith(b"SQLite format 3"):
        page = int.from_bytes(header[16:18])
        size = (65536 if page == 1 else page) * int.from_bytes(header[28:32])
        if size > file.stat().st_size:
            raise StoreError(
                f"{file} is damaged: {size - file.stat().st_size} bytes are missing at its end"
                + _without_log(file)
            )


def _without_log(path: str | Path) -> str:
    """What a store may lack that was copied while it was open, or from a disk that was full."""
    return f"; if it is a copy, {Path(path).name}-wal beside the original belongs to it"


def _open(path: str, mode: str, timeout: float, readonly: bool = False) -> sqlite3.Connection:
    file = path != ":memory:"
    connection = sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode={mode}" if file else path,
        uri=file,
        timeout=timeout,
        isolation_level=None,  # transactions are begun where they are meant
        check_same_thread=False,
    )
    try:
        _check(connection, path, readonly)
        if readonly:
            if connection.execute("PRAGMA user_version").fetchone()[0] < SCHEMA:
                connection.executescript(_OLDER)
            connection.execute("PRAGMA query_only = ON")
        else:
            _prepare(connection, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: str, readonly: bool) -> None:
    """Raise unless this is a store, or nothing yet that can become one."""
    with transaction(connection, "DEFERRED"):  # another program may be about to make it one
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION and (tables or application or version):
        raise StoreError(f"{path} is not a store of runs")
    if readonly and not application:
        raise StoreError(f"{path} is empty, it is not a store of runs{_without_log(path)}")
    if version > SCHEMA:
        raise StoreError(
            f"{path} is of version {version}, this version of fedepm_fast reads up to {SCHEMA}"
        )


def _prepare(connection: sqlite3.Connection, timeout: float) -> None:
    """Set the connection up for writing, prove that it can, and make the tables if need be."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # does not wait when two programs do it at once
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")
    with transaction(connection):
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        view = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'results'").fetchone()
        if version == SCHEMA and view is not None and view[0].strip() == _VIEW.strip("\n;"):
            return
        if version == 0:
            _execute(connection, _TABLES)
        if version == 1:  # did not hold guarantees
            connection.execute("ALTER TABLE runs ADD COLUMN guarantee TEXT")
        if version in (1, 2):
            _add_checksums(connection)
        if version < SCHEMA:
            _execute(connection, _TOTALS)
        _execute(connection, "DROP VIEW IF EXISTS results;\n" + _VIEW)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement)


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Give those to the rows of a store of before."""
    connection.create_function("checksum_of_history", 1, history_checksum)
    connection.create_function("checksum_of", -1, lambda *values: checksum(values))
    _execute(
        connection,
        f"""
ALTER TABLE cells ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN history_checksum INTEGER;
ALTER TABLE runs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE cells SET checksum = checksum_of(cell, parameters);
UPDATE runs SET history_checksum = checksum_of_history(history);
UPDATE runs SET checksum = checksum_of({", ".join(CHECKED)})""",
    )


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """A transaction that holds the lock for writing from its start: whole, or not at all.

    Of the kind ``"DEFERRED"``, which only reads, it sees the store as it was at one time.
    """
    if connection.in_transaction:  # left by a Ctrl-C at a bad moment
        connection.execute("ROLLBACK")
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
