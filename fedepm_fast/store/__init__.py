"""Stores of runs: one SQLite file each, which a crash leaves whole."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .._extras import require
from .._files import replacing
from .._validation import MAX_SEED, check_int
from ._file import StoreError, explained, open_store, transaction
from ._record import MEASURES, Array, Record, decoded, guarantee_of
from ._rows import CHECKED, KINDS, as_stored, checksum, history_checksum
from ._where import Condition, Where, conditions

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Record", "Store", "StoreError"]

_OF_RUN = ("run_id", "seed", "trial", "error", *MEASURES, "machine", "created")

#: What columns of runs hold that are not numbers.
_EXAMPLES: dict[str, Any] = {
    "run_id": "6b86b273ff34",
    "error": "ValueError: ...",
    "diverged": True,
    "failed": True,
    "reasons": "gradient_norm",
    "guarantee": "none: ...",
    "machine": "a-name",
    "created": "2026-01-31T12:00:00+00:00",
}


class Store:
    """Runs in one SQLite file.

    Several programs, and several threads, may use a store at a time. A run is held once, whoever
    adds it; what has been added survives a crash of the program.

    Other programs read the view ``results`` of the file. SQLite's integers end below 2^63, so
    seeds and trials from there on are text of 20 digits in it, which sorts behind the numbers and
    is compared with text: ``seed >= '09223372036854775808'``.

    Parameters
    ----------
    path : path-like
        Created if there is none; ``":memory:"`` is a store without a file.
    readonly : bool
        Only read; the file must exist.
    timeout : float
        Seconds to wait for another program that is writing.

    Raises
    ------
    StoreError
        An OSError, here and in all methods: not a store, of a newer version, damaged, locked,
        read-only, or no space.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool = False, timeout: float = 30.0
    ) -> None:
        self.path = os.fspath(path)
        self.readonly = readonly
        self._timeout = timeout
        self._lock = threading.RLock()
        self._connection = open_store(self.path, readonly=readonly, timeout=timeout)
        self._close = weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Close the file."""
        with self._lock, explained(self.path):
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    def __len__(self) -> int:
        with self._reading() as connection:
            found = connection.execute("SELECT count(*), sum(checksum) FROM runs").fetchone()
            if self._has_checksums(connection):
                self._check_totals(connection, found[0], found[1] or 0)
        return int(found[0])

    # Writing ----------------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> None:
        """Add runs, all or none of them.

        One that the store has already stays as it is, unless it failed then.
        """
        columns = (*CHECKED, "checksum", "history")
        statement = (
            f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
            "ON CONFLICT (run_id) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
            + " WHERE runs.error IS NOT NULL"
        )
        texts: dict[int, str] = {}
        records = list(records)
        for r in records:
            if id(r.parameters) not in texts:
                texts[id(r.parameters)] = json.dumps(dict(r.parameters), allow_nan=False)
        with self._used() as connection, transaction(connection):
            cells = {text: _cell(connection, text) for text in texts.values()}
            connection.executemany(
                statement, [_row(r, cells[texts[id(r.parameters)]]) for r in records]
            )

    def prune(self, where: Where = None, *, ids: Iterable[str] | None = None) -> int:
        """Delete runs, and give their space back.

        Parameters
        ----------
        where : mapping or sequence of str, optional
            As in `to_pandas`; without a condition and `ids`, nothing is deleted.
        ids : iterable of str, optional

        Returns
        -------
        int
            How many there were.
        """
        if ids is None and not conditions(where):
            return 0
        with self._used() as connection:
            with transaction(connection):
                # Without conditions a run that is damaged can be deleted, too.
                chosen = list(ids or ()) if not conditions(where) else self._chosen(where, ids)
                count = connection.execute(
                    f"DELETE FROM runs WHERE {_AMONG}", _list(chosen)
                ).rowcount
                connection.execute("DELETE FROM cells WHERE cell NOT IN (SELECT cell FROM runs)")
            if count:
                connection.execute("VACUUM")
        return count

    # Reading ----------------------------------------------------------------------------

    def ids(self, where: Where = None) -> list[str]:
        """Ids of the runs, in the order in which they were added."""
        with self._reading():
            return self._chosen(where)

    def done(self, ids: Iterable[str]) -> set[str]:
        """Those of the runs with these `ids` that there are, and did not fail."""
        with self._reading():
            found = self._columns(("run_id", "error"), _AMONG, _list(ids))
        return {i for i, error in zip(*found.values(), strict=True) if error is None}

    def get(self, run_id: str) -> Record:
        """One run.

        Parameters
        ----------
        run_id : str
            Or the first characters of one, if no other begins with them.

        Raises
        ------
        KeyError
            If there is none, or more than one.
        """
        with self._reading() as connection:
            columns = self._columns(
                (*_OF_RUN, "cell", "versions", "history"),
                "run_id >= ? AND run_id < ?",
                (run_id, f"{run_id}g"),  # above every hexadecimal digit
                limit=2,
            )
            count = len(columns["run_id"])
            if count != 1:
                raise KeyError(f"{self.path} has {'several runs' if count else 'no run'} {run_id}")
            found = {name: values[0] for name, values in columns.items()}
            parameters = self._cells(connection, found["cell"])[found["cell"]]
        return Record(
            run_id=found["run_id"],
            parameters=parameters,
            seed=found["seed"],
            trial=found["trial"],
            error=found["error"],
            measures={n: found[n] for n in MEASURES} if found["error"] is None else {},
            versions=self._json(found["versions"]),
            machine=found["machine"],
            packed=found["history"],
            created=found["created"],
        )

    def history(self, run_id: str) -> dict[str, Array]:
        """Per-round arrays of a run: ``objective``, ``grad_mean_sq``, ``accuracy``,
        ``elapsed``, ``local_time``, ``snr``, and ``x`` if it was kept.

        Raises
        ------
        KeyError
            As `get`.
        """
        return self._decoded(run_id, self.get(run_id).packed)

    def histories(self, ids: Sequence[str]) -> dict[str, dict[str, Array]]:
        """Per-round arrays of the runs `ids`, by run id.

        Raises
        ------
        StoreError
            Also if there is none of such an id.
        """
        with self._reading():
            found = self._columns(("run_id", "history"), _AMONG, _list(ids))
        packed = dict(zip(*found.values(), strict=True))
        for run_id in ids:
            if run_id not in packed:
                raise StoreError(f"{self.path} has no run {run_id}, or is damaged")
        return {run_id: self._decoded(run_id, packed[run_id]) for run_id in ids}

    def table(self, where: Where = None, *, ids: Sequence[str] | None = None) -> dict[str, list]:
        """Runs as columns: parameters, seed, trial, measures; None where there is no value.

        Parameters
        ----------
        where : mapping or sequence of str, optional
            As in `to_pandas`.
        ids : sequence of str, optional
            The runs, and their order.

        Returns
        -------
        dict of list
        """
        with self._reading() as connection:
            chosen = self._chosen(where, ids) if where else ids
            found = self._of(("cell", *_OF_RUN), chosen)
            cells = {k: _plain(of) for k, of in self._cells(connection, *found["cell"]).items()}
        if ids is not None:
            position = {run_id: i for i, run_id in enumerate(ids)}
            order = sorted(range(len(found["cell"])), key=lambda i: position[found["run_id"][i]])
            found = {name: [column[i] for i in order] for name, column in found.items()}
        of = found.pop("cell")
        used = dict.fromkeys(of)
        names = _in_order(cells[cell] for cell in used)
        return {
            "run_id": found.pop("run_id"),
            **{name: [cells[cell].get(name) for cell in of] for name in names},
            **{name: found.pop(name) for name in ("seed", "trial", *MEASURES, "error")},
            **found,
        }

    def absent(self, where: Where) -> list[str]:
        """Sentences, one for each condition on a column of names that asks for one that no run
        has; `where` is as in `to_pandas`."""
        asked = conditions(where)
        columns = self.table() if asked else {}
        told = (condition.absent(columns.get(condition.name, ())) for condition in asked)
        return [text for text in told if text is not None]

    def to_pandas(self, where: Where = None, *, ids: Sequence[str] | None = None) -> DataFrame:
        """Runs as a tidy table, one row each, in which no integer is rounded.

        A column of integers beyond 2^53 that some runs have not is of pandas' nullable integers;
        one of integers and floats, or of integers beyond 64 bits, of objects.

        Parameters
        ----------
        where : mapping or sequence of str, optional
            ``{"algorithm": "fedepm", "local_steps": [4, 12]}``, or
            ``["algorithm=fedepm", "local_steps=4,12", "epsilon>=0.3"]``.
        ids : sequence of str, optional
            The runs, and their order.

        Raises
        ------
        ValueError
            Naming a column that there is not, or one whose values are of another kind.
        """
        pandas = require("pandas", "tables", "a table of runs")
        columns = self.table(where, ids=ids)
        table = pandas.DataFrame({name: _series(pandas, v) for name, v in columns.items()})
        for name in ("mean_objective", "total_time", "local_time", "snr", "accuracy",
                     "grad_mean_sq"):  # fmt: skip
            table[name] = table[name].astype(float)
        return table

    def to_csv(self, path: str | os.PathLike[str], where: Where = None) -> None:
        """Write runs as CSV, numbers to the last bit."""
        table = self.table(where)
        with (
            replacing(path) as temporary,
            open(temporary, "w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))

    def to_parquet(self, path: str | os.PathLike[str], where: Where = None) -> None:
        """Write runs as Parquet; a column of integers and others, or beyond 64 bits, as text."""
        require("pyarrow", "tables", "writing Parquet files")
        table = self.to_pandas(where)
        for name, column in table.items():
            if column.dtype == object and any(type(value) is int for value in column):
                table[name] = [None if value is None else str(value) for value in column]
        with replacing(path) as temporary:
            table.to_parquet(temporary, index=False)

    # Inside -----------------------------------------------------------------------------

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; SQLite's errors are explained."""
        with self._lock, explained(self.path, self._timeout):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, in a transaction that sees the store as it is at one time."""
        with self._used() as connection, transaction(connection, "DEFERRED"):
            yield connection

    def _columns(
        self,
        names: Sequence[str],
        among: str = "1",
        arguments: Sequence[Any] = (),
        limit: int = -1,
    ) -> dict[str, list[Any]]:
        """Columns of the runs for which the expression `among` holds, in the order in which they
        were added: of rows that are as they were written."""
        connection = self._connection
        history = ["history"] * ("history" in names)
        held = (*CHECKED, "checksum", *history)
        rows = connection.execute(
            f"SELECT {', '.join(held)} FROM runs WHERE {among} ORDER BY rowid LIMIT {limit}",
            arguments,
        ).fetchall()
        if self._has_checksums(connection):
            size = len(CHECKED)
            for row in rows:
                self._check(f"run {row[0]}", row[:size], row[size])
                if history:
                    self._check_history(row[0], row[-1], row[size - 1])
            if among == "1":
                ids = {row[0] for row in rows}
                self._check_totals(connection, len(ids), sum(row[size] for row in rows))
        columns: dict[str, Sequence[Any]] = {}
        if rows:
            columns.update(zip(held, zip(*rows, strict=True), strict=True))
        columns["failed"] = [int(error is not None) for error in columns.get("error", ())]
        return {name: self._values(name, columns.get(name, ())) for name in names}

    def _of(self, names: Sequence[str], ids: Iterable[str] | None) -> dict[str, list[Any]]:
        """Columns of the runs `ids`, or of all."""
        if ids is None:
            return self._columns(names)
        ids = set(ids)
        found = self._columns(names, _AMONG, _list(ids))
        missing = ids.difference(found["run_id"])
        # There are none of these, unless the index by which they are found is damaged.
        if missing and not missing.isdisjoint(self._columns(("run_id",))["run_id"]):
            raise self._damaged("its index of runs does not find them all")
        return found

    def _damaged(self, how: str) -> StoreError:
        return StoreError(" ".join(f"{self.path} is damaged: {how}".split()))

    def _has_checksums(self, connection: sqlite3.Connection) -> bool:
        """Whether the store is of a version that has them."""
        row = connection.execute("SELECT checksum FROM totals").fetchone()
        return row is None or row[0] is not None

    def _check(self, what: str, values: Sequence[Any], want: Any) -> None:
        try:
            whole = checksum(values) == want
        except ValueError as error:
            raise self._damaged(f"{what}: {error}") from None
        if not whole:
            raise self._damaged(f"{what} is not what was written")

    def _check_history(self, run_id: str, history: Any, want: Any) -> None:
        try:
            whole = history_checksum(history) == want
        except ValueError as error:
            raise self._damaged(f"run {run_id}: {error}") from None
        if not whole:
            raise self._damaged(f"run {run_id}: the history is damaged")

    def _check_totals(self, connection: sqlite3.Connection, count: int, total: Any) -> None:
        if connection.execute("SELECT * FROM totals").fetchall() != [(count, total)]:
            raise self._damaged("runs are missing, or there twice")

    def _values(self, name: str, column: Sequence[Any]) -> list[Any]:
        """What a column of runs means; SQLite itself holds any kind of value in it."""
        for kind in set(map(type, column)).difference(KINDS.get(name, (float, type(None)))):
            raise self._damaged(f"{name} is of type {kind.__name__}")
        if name in ("seed", "trial"):
            return [value % 2**64 for value in column]
        if name == "guarantee":
            return [guarantee_of(value) for value in column]
        if name in ("diverged", "failed"):
            return [None if value is None else bool(value) for value in column]
        return list(column)

    def _decoded(self, run_id: str, packed: bytes | None) -> dict[str, Array]:
        try:
            return {} if packed is None else decoded(packed)
        except ValueError as error:
            raise self._damaged(f"run {run_id}: {error}") from None

    def _json(self, text: Any) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(str(error)) from None
        if not isinstance(found, dict):
            raise self._damaged(f"{text!r} is not a mapping")
        return found

    def _cells(self, connection: sqlite3.Connection, *used: int) -> dict[int, dict[str, Any]]:
        """The parameters of cells, among them of those that are `used`."""
        rows = connection.execute("SELECT cell, parameters, checksum FROM cells").fetchall()
        if self._has_checksums(connection):
            for cell, parameters, want in rows:
                self._check(f"the parameters of cell {cell}", (cell, parameters), want)
        found = {cell: self._json(parameters) for cell, parameters, _ in rows}
        if not found.keys() >= set(used):
            raise self._damaged("the parameters of some runs are missing")
        return found

    def _chosen(self, where: Where, ids: Iterable[str] | None = None) -> list[str]:
        """Ids of the runs meant, in the order in which they were added.

        Conditions are tested in Python, where integers of any size and floats compare exactly.
        """
        asked = conditions(where)
        of_run = {c.name for c in asked}.intersection((*_OF_RUN, "failed"))
        found = self._of(["cell", *{"run_id", *of_run}], ids)
        chosen: Iterable[int] = range(len(found["run_id"]))
        for name, holds in self._tests(asked, found["cell"]) if asked else ():
            chosen = [i for i in chosen if holds(found[name][i])]
        return [found["run_id"][i] for i in chosen]

    def _tests(
        self, asked: Sequence[Condition], used: Sequence[int]
    ) -> list[tuple[str, Callable[[Any], bool]]]:
        """Columns of runs, and what is asked of their values."""
        cells = {c: _plain(of) for c, of in self._cells(self._connection, *used).items()}
        known = {name for parameters in cells.values() for name in parameters}
        tests: list[tuple[str, Callable[[Any], bool]]] = []
        for condition in asked:
            name = condition.name
            if name in (*_OF_RUN, "failed"):
                tests.append((name, condition.on([_EXAMPLES.get(name, 1)]).holds))
            elif name in known or not cells:
                of_cell = condition.on(p.get(name) for p in cells.values())
                right = {c for c, p in cells.items() if of_cell.holds(p.get(name))}
                tests.append(("cell", right.__contains__))
            else:
                raise ValueError(
                    f"where must name columns of {self.path}, got {name!r}: "
                    f"{', '.join([*sorted(known), *_OF_RUN, 'failed'])}"
                )
        return tests


_AMONG = "run_id IN (SELECT value FROM json_each(?))"


def _list(ids: Iterable[str]) -> list[str]:
    """The argument of `_AMONG`."""
    return [json.dumps(list(ids))]


def _cell(connection: sqlite3.Connection, text: str) -> int:
    """The number of the cell with these parameters, which is made if need be."""
    row = connection.execute("SELECT cell FROM cells WHERE parameters = ?", [text]).fetchone()
    if row is not None:
        return int(row[0])
    cell = connection.execute("SELECT ifnull(max(cell), 0) + 1 FROM cells").fetchone()[0]
    connection.execute("INSERT INTO cells VALUES (?, ?, ?)", (cell, text, checksum((cell, text))))
    return int(cell)


def _row(record: Record, cell: int) -> tuple[Any, ...]:
    """A run as a row: what its checksum is of, the checksum, the history."""
    seed, trial = (
        _signed(check_int(name, getattr(record, name), high=MAX_SEED)) for name in ("seed", "trial")
    )
    found = {
        **{name: getattr(record, name) for name in ("run_id", "error", "machine", "created")},
        **{name: record.measures.get(name) for name in MEASURES},
        "cell": cell,
        "seed": seed,
        "trial": trial,
        "versions": json.dumps(dict(record.versions)),
        "history_checksum": history_checksum(record.packed),
    }
    values = [as_stored(name, found[name]) for name in CHECKED]
    return (*values, checksum(values), record.packed)


def _signed(value: int) -> int:
    """An integer in [0, 2^64) as SQLite holds it."""
    return value - 2**64 if value >= 2**63 else value


def _series(pandas: Any, values: Sequence[Any]) -> Any:
    """A column as pandas infers it, unless that may round integers."""
    series = pandas.Series(values)
    rounded = any(type(v) is int and abs(v) > 2**53 for v in values)
    if not rounded or series.dtype not in (float, object):
        return series
    if all(v is None or type(v) is int for v in values):
        for dtype in ("Int64", "UInt64"):
            with suppress(OverflowError, TypeError, ValueError):
                return pandas.Series(values, dtype=dtype)
    return pandas.Series(values, dtype=object)


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as columns have them: those that are several numbers as text."""
    several = (list, dict)
    return {k: json.dumps(v) if isinstance(v, several) else v for k, v in parameters.items()}


def _in_order(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """All keys, each behind the one that it follows where it first occurs."""
    names: list[str] = []
    for mapping in mappings:
        at = 0
        for name in mapping:
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    return names


def default_store(spec: str | os.PathLike[str]) -> Path:
    """The store beside a specification: ``steps.toml`` has ``steps.sqlite``."""
    return Path(spec).with_suffix(".sqlite")
