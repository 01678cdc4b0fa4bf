"""Stores of runs: one SQLite file each, which a crash leaves whole."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .._common.extras import require
from .._common.files import replacing, write_csv
from .._common.measures import MEASURES, OF_RUN
from ._file import StoreError, explained, open_store, transaction
from ._reading import AMONG, COLUMNS, Reader, listed
from ._record import Array, Record
from ._rows import INSERT, cell_of, row_of
from ._where import Where, conditions

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Record", "Store", "StoreError"]


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
        with self._reading() as reader:
            return reader.count()

    # Writing ----------------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> None:
        """Add runs, all or none of them.

        One that the store has already stays as it is, unless it failed then.
        """
        records = list(records)
        texts = {id(p): json.dumps(dict(p), allow_nan=False) for p in _distinct(records)}
        with self._used() as connection, transaction(connection):
            cells = {key: cell_of(connection, text) for key, text in texts.items()}
            connection.executemany(INSERT, [row_of(r, cells[id(r.parameters)]) for r in records])

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
                chosen = list(ids or ())
                if conditions(where):
                    chosen = Reader(connection, self.path).chosen(where, ids)
                deleted = connection.execute(f"DELETE FROM runs WHERE {AMONG}", listed(chosen))
                count = deleted.rowcount
                connection.execute("DELETE FROM cells WHERE cell NOT IN (SELECT cell FROM runs)")
            if count:
                connection.execute("VACUUM")
        return count

    # Reading ----------------------------------------------------------------------------

    def ids(self, where: Where = None) -> list[str]:
        """Ids of the runs, in the order in which they were added."""
        with self._reading() as reader:
            return reader.chosen(where)

    def done(self, ids: Iterable[str]) -> set[str]:
        """Those of the runs with these `ids` that there are, and did not fail."""
        with self._reading() as reader:
            found = reader.columns(("run_id", "error"), AMONG, listed(ids))
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
        with self._reading() as reader:
            columns = reader.columns(
                (*COLUMNS, "cell", "versions", "history"),
                "run_id >= ? AND run_id < ?",
                (run_id, f"{run_id}g"),  # above every hexadecimal digit
                limit=2,
            )
            count = len(columns["run_id"])
            if count != 1:
                raise KeyError(f"{self.path} has {'several runs' if count else 'no run'} {run_id}")
            found = {name: values[0] for name, values in columns.items()}
            cell = found.pop("cell")
            measures = {name: found.pop(name) for name in OF_RUN}
            return Record(
                parameters=reader.cells(cell)[cell],
                versions=reader.mapping(found.pop("versions")),
                measures=measures if found["error"] is None else {},
                packed=found.pop("history"),
                **found,
            )

    def history(self, run_id: str) -> dict[str, Array]:
        """Per-round arrays of a run: ``objective``, ``grad_mean_sq``, ``accuracy``,
        ``elapsed``, ``local_time``, ``snr``, and ``x`` if it was kept.

        Raises
        ------
        KeyError
            As `get`.
        """
        record = self.get(run_id)
        with self._reading() as reader:
            return reader.history(record.run_id, record.packed)

    def histories(self, ids: Sequence[str]) -> dict[str, dict[str, Array]]:
        """Per-round arrays of the runs `ids`, by run id.

        Raises
        ------
        StoreError
            Also if there is none of such an id.
        """
        with self._reading() as reader:
            found = reader.columns(("run_id", "history"), AMONG, listed(ids))
            packed = dict(zip(*found.values(), strict=True))
            for run_id in ids:
                if run_id not in packed:
                    raise StoreError(f"{self.path} has no run {run_id}, or is damaged")
            return {run_id: reader.history(run_id, packed[run_id]) for run_id in ids}

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
        with self._reading() as reader:
            found = reader.table(reader.chosen(where, ids) if where else ids)
        if ids is not None:
            position = {run_id: i for i, run_id in enumerate(ids)}
            order = sorted(range(len(found["run_id"])), key=lambda i: position[found["run_id"][i]])
            found = {name: [column[i] for i in order] for name, column in found.items()}
        return found

    def absent(self, where: Where) -> list[str]:
        """Sentences, one for each condition that asks for a name or a number that no run has;
        `where` is as in `to_pandas`."""
        asked = conditions(where)
        columns = self.table() if asked else {}
        absent = (condition.absent(columns.get(condition.name, ())) for condition in asked)
        return [text for text in absent if text is not None]

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
        for name in OF_RUN:
            if MEASURES[name].kind is float:
                table[name] = table[name].astype(float)
        return table

    def to_csv(self, path: str | os.PathLike[str], where: Where = None) -> None:
        """Write runs as CSV, numbers to the last bit."""
        write_csv(path, self.table(where))

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
    def _reading(self) -> Iterator[Reader]:
        """A reader that sees the store as it is at one time."""
        with self._used() as connection, transaction(connection, "DEFERRED"):
            yield Reader(connection, self.path)


def _distinct(records: Iterable[Record]) -> list[Mapping[str, Any]]:
    """The parameters of the records, each object once."""
    return list({id(record.parameters): record.parameters for record in records}.values())


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


def default_store(spec: str | os.PathLike[str]) -> Path:
    """The store beside a specification: ``steps.toml`` has ``steps.sqlite``."""
    return Path(spec).with_suffix(".sqlite")
