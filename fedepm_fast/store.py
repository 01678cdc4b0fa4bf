"""Stores of runs: one SQLite file each, which a crash leaves whole."""

from __future__ import annotations

import csv
import json
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from . import _history
from ._extras import require
from ._files import replacing
from ._record import MEASURES, Array, Record
from ._store_file import StoreError, explained, open_store, transaction
from ._where import Where, conditions

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
    "machine": "a-name",
    "created": "2026-01-31T12:00:00+00:00",
}


class Store:
    """Runs in one SQLite file.

    Several programs may use a store at a time. A run is held once, whoever adds it; what has
    been added survives a crash of the program.

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
        self._connection = open_store(self.path, readonly=readonly, timeout=timeout)
        self._close = weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Close the file."""
        with explained(self.path):
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
            rows.append(
                (r.run_id, _signed(r.seed), _signed(r.trial), r.error, *measures, r.packed,
                 json.dumps(dict(r.versions)), r.machine, r.created, text)
            )  # fmt: skip
        with explained(self.path, self._timeout), transaction(self._connection):
            self._connection.executemany(
                "INSERT OR IGNORE INTO cells (parameters) VALUES (?)",
                [(text,) for text in texts.values()],
            )
            self._connection.executemany(statement, rows)

    def prune(self, where: Where = None, *, ids: Iterable[str] | None = None) -> int:
        """Delete runs, and give their space back.

        Parameters
        ----------
        where : mapping or sequence of str, optional
            As in `to_pandas`; without it and `ids`, nothing is deleted.
        ids : iterable of str, optional

        Returns
        -------
        int
            How many there were.
        """
        if where is None and ids is None:
            return 0
        condition, arguments = self._condition(where, ids)
        with explained(self.path, self._timeout):
            with transaction(self._connection):
                count = self._connection.execute(
                    f"DELETE FROM runs WHERE {condition}", arguments
                ).rowcount
                self._connection.execute(
                    "DELETE FROM cells WHERE cell NOT IN (SELECT cell FROM runs)"
                )
            if count:
                self._connection.execute("VACUUM")
        return count

    # Reading ----------------------------------------------------------------------------

    def ids(self, where: Where = None) -> list[str]:
        """Ids of the runs, in the order in which they were added."""
        condition, arguments = self._condition(where)
        return [
            row[0]
            for row in self._rows(
                f"SELECT run_id FROM runs WHERE {condition} ORDER BY rowid", arguments
            )
        ]

    def done(self, ids: Iterable[str]) -> set[str]:
        """Those of the runs with these `ids` that there are, and did not fail."""
        rows = self._rows(
            "SELECT run_id FROM runs WHERE run_id IN (SELECT value FROM json_each(?)) "
            "AND error IS NULL",
            (json.dumps(list(ids)),),
        )
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
        found = dict(zip((*_OF_RUN, "versions", "history", "parameters"), rows[0], strict=True))
        measures = {name: found[name] for name in MEASURES} if found["error"] is None else {}
        if measures:
            measures["diverged"] = bool(measures["diverged"])
        return Record(
            run_id=found["run_id"],
            parameters=self._json(found["parameters"]),
            seed=found["seed"] % 2**64,
            trial=found["trial"] % 2**64,
            error=found["error"],
            measures=measures,
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
        """Per-round arrays of the runs `ids`, by run id."""
        rows = self._rows(
            "SELECT run_id, history FROM runs WHERE run_id IN (SELECT value FROM json_each(?))",
            [json.dumps(list(ids))],
        )
        packed = dict(rows)
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
        condition, arguments = self._condition(where, ids)
        rows = self._rows(
            f"SELECT cell, {', '.join(_OF_RUN)} FROM runs WHERE {condition} ORDER BY rowid",
            arguments,
        )
        cells = self._cells()
        if ids is not None:
            position = {run_id: i for i, run_id in enumerate(ids)}
            rows.sort(key=lambda row: position[row[1]])
        of, *columns = list(zip(*rows, strict=True)) or [()] * (len(_OF_RUN) + 1)
        found = {name: list(column) for name, column in zip(_OF_RUN, columns, strict=True)}
        for name in ("seed", "trial"):
            found[name] = [value % 2**64 for value in found[name]]
        found["diverged"] = [None if v is None else bool(v) for v in found["diverged"]]
        used = dict.fromkeys(of)
        names = _in_order(cells[cell] for cell in used)
        return {
            "run_id": found.pop("run_id"),
            **{name: [cells[cell].get(name) for cell in of] for name in names},
            **{name: found.pop(name) for name in ("seed", "trial", *MEASURES, "error")},
            **found,
        }

    def to_pandas(self, where: Where = None, *, ids: Sequence[str] | None = None) -> DataFrame:
        """Runs as a tidy table, one row each.

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
        table = pandas.DataFrame(self.table(where, ids=ids))
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
        """Write runs as Parquet."""
        require("pyarrow", "tables", "writing Parquet files")
        table = self.to_pandas(where)
        with replacing(path) as temporary:
            table.to_parquet(temporary, index=False)

    # Inside -----------------------------------------------------------------------------

    def _rows(self, query: str, arguments: Sequence[Any] = ()) -> list[Any]:
        with explained(self.path, self._timeout):
            return self._connection.execute(query, arguments).fetchall()

    def _decoded(self, run_id: str, packed: bytes | None) -> dict[str, Array]:
        try:
            return {} if packed is None else _history.decode(packed)
        except ValueError as error:
            raise StoreError(f"{self.path} is damaged: run {run_id}: {error}") from None

    def _json(self, text: str) -> dict[str, Any]:
        try:
            return json.loads(text)
        except ValueError as error:
            raise StoreError(f"{self.path} is damaged: {error}") from None

    def _cells(self) -> dict[int, dict[str, Any]]:
        rows = self._rows("SELECT cell, parameters FROM cells")
        return {cell: _plain(self._json(parameters)) for cell, parameters in rows}

    def _condition(self, where: Where, ids: Iterable[str] | None = None) -> tuple[str, list[Any]]:
        """SQL that holds for the runs meant.

        Parameters are compared in Python, where a float is what was written, cell by cell.
        """
        parts, arguments = ["1"], []
        if ids is not None:
            parts.append("run_id IN (SELECT value FROM json_each(?))")
            arguments.append(json.dumps(list(ids)))
        cells = self._cells() if where else {}
        known = {name for parameters in cells.values() for name in parameters}
        for condition in conditions(where):
            name = condition.name
            if name == "failed" or name in _OF_RUN:
                condition = condition.on([_EXAMPLES.get(name, 1)])
            if name == "failed":
                sql, values = condition.sql("(error IS NOT NULL)")
            elif name in _OF_RUN:
                if name in ("seed", "trial"):
                    condition = condition._replace(values=[_signed(v) for v in condition.values])
                sql, values = condition.sql(name)
            elif name in known or not cells:
                condition = condition.on(p.get(name) for p in cells.values())
                chosen = [c for c, p in cells.items() if condition.holds(p.get(name))]
                sql, values = "cell IN (SELECT value FROM json_each(?))", [json.dumps(chosen)]
            else:
                raise ValueError(
                    f"where must name columns of {self.path}, got {name!r}: "
                    f"{', '.join([*sorted(known), *_OF_RUN, 'failed'])}"
                )
            parts.append(sql)
            arguments += values
        return " AND ".join(parts), arguments


def _signed(value: Any) -> Any:
    """An integer in [0, 2^64) as SQLite holds it; anything else as it is."""
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


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
