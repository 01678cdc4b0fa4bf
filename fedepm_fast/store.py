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

from ._extras import require
from ._files import replacing
from ._record import MEASURES, Array, Record, decoded, guarantee_of
from ._store_file import StoreError, explained, open_store, transaction
from ._validation import MAX_SEED, check_int
from ._where import Where, conditions

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Record", "Store", "StoreError"]

_OF_RUN = ("run_id", "seed", "trial", "error", *MEASURES, "machine", "created")

#: What the columns of runs hold that are not of floats.
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "machine", "created", "versions"), (str,)),
    **dict.fromkeys(("cell", "seed", "trial", "failed"), (int,)),
    **dict.fromkeys(("error", "reasons", "guarantee"), (str, type(None))),
    **dict.fromkeys(("rounds", "iterations", "diverged"), (int, type(None))),
    "history": (bytes, type(None)),
}

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
        return int(self._rows("SELECT count(*) FROM runs")[0][0])

    # Writing ----------------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> None:
        """Add runs, all or none of them.

        One that the store has already stays as it is, unless it failed then.
        """
        columns = ("error", *MEASURES, "history", "versions", "machine", "created")
        values = ", ".join("?" for _ in columns)
        statement = (
            f"INSERT INTO runs (run_id, seed, trial, {', '.join(columns)}, cell) "
            f"VALUES (?, ?, ?, {values}, (SELECT cell FROM cells WHERE parameters = ?)) "
            "ON CONFLICT (run_id) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in columns)
            + " WHERE runs.error IS NOT NULL"
        )
        texts: dict[int, str] = {}
        rows = []
        records = list(records)
        for r in records:
            text = texts.get(id(r.parameters))
            if text is None:
                text = texts[id(r.parameters)] = json.dumps(dict(r.parameters), allow_nan=False)
            measures = (r.measures.get(name) for name in MEASURES)
            seed, trial = (
                check_int(name, getattr(r, name), high=MAX_SEED) for name in ("seed", "trial")
            )
            rows.append(
                (r.run_id, _signed(seed), _signed(trial), r.error, *measures, r.packed,
                 json.dumps(dict(r.versions)), r.machine, r.created, text)
            )  # fmt: skip
        with self._used() as connection, transaction(connection):
            connection.executemany(
                "INSERT OR IGNORE INTO cells (parameters) VALUES (?)",
                [(text,) for text in texts.values()],
            )
            connection.executemany(statement, rows)

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
                count = connection.execute(
                    f"DELETE FROM runs WHERE {_AMONG}", _list(self._chosen(where, ids))
                ).rowcount
                connection.execute("DELETE FROM cells WHERE cell NOT IN (SELECT cell FROM runs)")
            if count:
                connection.execute("VACUUM")
        return count

    # Reading ----------------------------------------------------------------------------

    def ids(self, where: Where = None) -> list[str]:
        """Ids of the runs, in the order in which they were added."""
        return self._chosen(where)

    def done(self, ids: Iterable[str]) -> set[str]:
        """Those of the runs with these `ids` that there are, and did not fail."""
        rows = self._rows(f"SELECT run_id FROM runs WHERE {_AMONG} AND error IS NULL", _list(ids))
        return {row[0] for row in rows}

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
        columns = ", ".join(f"runs.{name}" for name in (*_OF_RUN, "versions", "history"))
        rows = self._rows(
            f"SELECT {columns}, parameters FROM runs JOIN cells USING (cell) "
            "WHERE run_id >= ? AND run_id < ? LIMIT 2",
            (run_id, f"{run_id}g"),  # above every hexadecimal digit
        )
        if len(rows) != 1:
            raise KeyError(f"{self.path} has {'no run' if not rows else 'several runs'} {run_id}")
        *values, parameters = rows[0]
        found = {
            name: self._values(name, (value,))[0]
            for name, value in zip((*_OF_RUN, "versions", "history"), values, strict=True)
        }
        return Record(
            run_id=found["run_id"],
            parameters=self._json(parameters),
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
        found = self._columns(("run_id", "history"), ids)
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
        chosen = self._chosen(where, ids) if where else ids
        with self._used() as connection, transaction(connection, "DEFERRED"):
            found = self._columns(("cell", *_OF_RUN), chosen)
            cells = self._cells()
        if ids is not None:
            position = {run_id: i for i, run_id in enumerate(ids)}
            order = sorted(range(len(found["cell"])), key=lambda i: position[found["run_id"][i]])
            found = {name: [column[i] for i in order] for name, column in found.items()}
        of = found.pop("cell")
        used = dict.fromkeys(of)
        if not cells.keys() >= used.keys():
            raise StoreError(f"{self.path} is damaged: the parameters of some runs are missing")
        names = _in_order(cells[cell] for cell in used)
        return {
            "run_id": found.pop("run_id"),
            **{name: [cells[cell].get(name) for cell in of] for name in names},
            **{name: found.pop(name) for name in ("seed", "trial", *MEASURES, "error")},
            **found,
        }

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

    def _rows(self, query: str, arguments: Sequence[Any] = ()) -> list[Any]:
        with self._used() as connection:
            return connection.execute(query, arguments).fetchall()

    def _columns(
        self, names: Sequence[str], ids: Iterable[str] | None = None
    ) -> dict[str, list[Any]]:
        """Columns of runs, of these `ids` or of all, in the order in which they were added."""
        among, arguments = ("1", []) if ids is None else (_AMONG, _list(ids))
        expressions = ("error IS NOT NULL" if name == "failed" else name for name in names)
        query = f"SELECT {', '.join(expressions)} FROM runs WHERE {among} ORDER BY rowid"
        columns = list(zip(*self._rows(query, arguments), strict=True)) or [()] * len(names)
        return {n: self._values(n, column) for n, column in zip(names, columns, strict=True)}

    def _values(self, name: str, column: Sequence[Any]) -> list[Any]:
        """What a column of runs means; SQLite itself holds any kind of value in it."""
        for kind in set(map(type, column)).difference(_KINDS.get(name, (float, type(None)))):
            raise StoreError(f"{self.path} is damaged: {name} is of type {kind.__name__}")
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
            raise StoreError(f"{self.path} is damaged: run {run_id}: {error}") from None

    def _json(self, text: Any) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{self.path} is damaged: {error}") from None
        if not isinstance(found, dict):
            raise StoreError(f"{self.path} is damaged: {text!r} is not a mapping")
        return found

    def _cells(self) -> dict[int, dict[str, Any]]:
        rows = self._rows("SELECT cell, parameters FROM cells")
        return {cell: _plain(self._json(parameters)) for cell, parameters in rows}

    def _chosen(self, where: Where, ids: Iterable[str] | None = None) -> list[str]:
        """Ids of the runs meant, in the order in which they were added.

        Conditions are tested in Python, where integers of any size and floats compare exactly.
        """
        tests = self._tests(where)
        found = self._columns(list(dict.fromkeys(["run_id", *(name for name, _ in tests)])), ids)
        chosen: Iterable[int] = range(len(found["run_id"]))
        for name, holds in tests:
            chosen = [i for i in chosen if holds(found[name][i])]
        return [found["run_id"][i] for i in chosen]

    def _tests(self, where: Where) -> list[tuple[str, Callable[[Any], bool]]]:
        """Columns of runs, and what is asked of their values."""
        asked = conditions(where)
        cells = self._cells() if asked else {}
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
