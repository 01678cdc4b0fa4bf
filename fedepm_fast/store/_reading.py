"""Reading a store: rows that are as they were written, and those that conditions choose."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._common.measures import OF_RUN
from ._file import StoreError
from ._record import Array, decoded, guarantee_of
from ._rows import CHECKED, KINDS, checksum, history_checksum
from ._where import Condition, Where, conditions

COLUMNS = ("run_id", "seed", "trial", "error", *OF_RUN, "machine", "created")

#: Runs by their ids, which `listed` makes the argument of it.
AMONG = "run_id IN (SELECT value FROM json_each(?))"

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


def listed(ids: Iterable[str]) -> list[str]:
    """The argument of `AMONG`."""
    return [json.dumps(list(ids))]


class Reader:
    """Reads a store by a connection that is in a transaction, and raises `StoreError` where it is
    damaged."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection, self.path = connection, path
        row = connection.execute("SELECT checksum FROM totals").fetchone()
        #: Whether the store is of a version that has them.
        self.has_checksums = row is None or row[0] is not None

    def count(self) -> int:
        """How many runs there are."""
        row = self.connection.execute("SELECT count(*), sum(checksum) FROM runs").fetchone()
        self._check_totals(row[0], row[1] or 0)
        return int(row[0])

    def columns(
        self,
        names: Sequence[str],
        among: str = "1",
        arguments: Sequence[Any] = (),
        limit: int = -1,
    ) -> dict[str, list[Any]]:
        """Columns of the runs for which the expression `among` holds, in the order in which they
        were added: of rows that are as they were written."""
        history = ["history"] * ("history" in names)
        stored = (*CHECKED, "checksum", *history)
        rows = self.connection.execute(
            f"SELECT {', '.join(stored)} FROM runs WHERE {among} ORDER BY rowid LIMIT {limit}",
            arguments,
        ).fetchall()
        size = len(CHECKED)
        for row in rows if self.has_checksums else ():
            self._check(f"run {row[0]}", checksum, row[:size], row[size])
            if history:
                how = ": the history is damaged"
                self._check(f"run {row[0]}", history_checksum, row[-1], row[size - 1], how)
        if among == "1":
            ids = {row[0] for row in rows}
            self._check_totals(len(ids), sum(row[size] or 0 for row in rows))
        columns: dict[str, Sequence[Any]] = {}
        if rows:
            columns.update(zip(stored, zip(*rows, strict=True), strict=True))
        columns["failed"] = [int(error is not None) for error in columns.get("error", ())]
        return {name: self._values(name, columns.get(name, ())) for name in names}

    def of(self, names: Sequence[str], ids: Iterable[str] | None) -> dict[str, list[Any]]:
        """Columns of the runs `ids`, or of all."""
        if ids is None:
            return self.columns(names)
        ids = set(ids)
        found = self.columns(names, AMONG, listed(ids))
        missing = ids.difference(found["run_id"])
        # There are none of these, unless the index by which they are found is damaged.
        if missing and not missing.isdisjoint(self.columns(("run_id",))["run_id"]):
            raise self.damaged("its index of runs does not find them all")
        return found

    def cells(self, *used: int) -> dict[int, dict[str, Any]]:
        """The parameters of cells, among them of those that are `used`."""
        rows = self.connection.execute("SELECT cell, parameters, checksum FROM cells").fetchall()
        for cell, parameters, kept in rows if self.has_checksums else ():
            self._check(f"the parameters of cell {cell}", checksum, (cell, parameters), kept)
        found = {cell: self.mapping(parameters) for cell, parameters, _ in rows}
        if not found.keys() >= set(used):
            raise self.damaged("the parameters of some runs are missing")
        return found

    def table(self, ids: Sequence[str] | None) -> dict[str, list[Any]]:
        """The runs `ids`, or all, as columns: parameters first."""
        found = self.of(("cell", *COLUMNS), ids)
        cells = {k: _plain(of) for k, of in self.cells(*found["cell"]).items()}
        of = found.pop("cell")
        names = _in_order(cells[cell] for cell in dict.fromkeys(of))
        return {
            "run_id": found.pop("run_id"),
            **{name: [cells[cell].get(name) for cell in of] for name in names},
            **{name: found.pop(name) for name in ("seed", "trial", *OF_RUN, "error")},
            **found,
        }

    def chosen(self, where: Where, ids: Iterable[str] | None = None) -> list[str]:
        """Ids of the runs meant, in the order in which they were added.

        Conditions are tested in Python, where integers of any size and floats compare exactly, on
        rows that are known to be whole: SQLite would pass over one that is damaged.
        """
        asked = conditions(where)
        of_run = {c.name for c in asked}.intersection((*COLUMNS, "failed"))
        found = self.of(["cell", *{"run_id", *of_run}], ids)
        chosen: Iterable[int] = range(len(found["run_id"]))
        for name, holds in self._tests(asked, found["cell"]) if asked else ():
            chosen = [i for i in chosen if holds(found[name][i])]
        return [found["run_id"][i] for i in chosen]

    def history(self, run_id: str, packed: bytes | None) -> dict[str, Array]:
        """The arrays of a history; none of none."""
        try:
            return {} if packed is None else decoded(packed)
        except ValueError as error:
            raise self.damaged(f"run {run_id}: {error}") from None

    def mapping(self, text: Any) -> dict[str, Any]:
        """What JSON holds that is known to be a mapping."""
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.damaged(str(error)) from None
        if not isinstance(found, dict):
            raise self.damaged(f"{text!r} is not a mapping")
        return found

    def damaged(self, how: str) -> StoreError:
        """The error that says that the store is."""
        return StoreError(" ".join(f"{self.path} is damaged: {how}".split()))

    def _check(
        self,
        what: str,
        sum_of: Callable[[Any], int | None],
        values: Any,
        kept: Any,
        how: str = " is not what was written",
    ) -> None:
        try:
            whole = sum_of(values) == kept
        except ValueError as error:
            raise self.damaged(f"{what}: {error}") from None
        if not whole:
            raise self.damaged(what + how)

    def _check_totals(self, count: int, total: Any) -> None:
        if not self.has_checksums:
            return
        if self.connection.execute("SELECT * FROM totals").fetchall() != [(count, total)]:
            raise self.damaged("runs are missing, or there twice")

    def _values(self, name: str, column: Sequence[Any]) -> list[Any]:
        """What a column of runs means; SQLite itself holds any kind of value in it."""
        for kind in set(map(type, column)).difference(KINDS[name]):
            raise self.damaged(f"{name} is of type {kind.__name__}")
        if name in ("seed", "trial"):
            return [value % 2**64 for value in column]
        if name == "guarantee":
            return [guarantee_of(value) for value in column]
        if name in ("diverged", "failed"):
            return [None if value is None else bool(value) for value in column]
        return list(column)

    def _tests(
        self, asked: Sequence[Condition], used: Sequence[int]
    ) -> list[tuple[str, Callable[[Any], bool]]]:
        """Columns of runs, and what is asked of their values."""
        cells = {c: _plain(of) for c, of in self.cells(*used).items()}
        known = {name for parameters in cells.values() for name in parameters}
        tests: list[tuple[str, Callable[[Any], bool]]] = []
        for condition in asked:
            name = condition.name
            if name in (*COLUMNS, "failed"):
                tests.append((name, condition.on([_EXAMPLES.get(name, 1)]).holds))
            elif name in known or not cells:
                of_cell = condition.on(p.get(name) for p in cells.values())
                right = {c for c, p in cells.items() if of_cell.holds(p.get(name))}
                tests.append(("cell", right.__contains__))
            else:
                raise ValueError(
                    f"where must name columns of {self.path}, got {name!r}: "
                    f"{', '.join([*sorted(known), *COLUMNS, 'failed'])}"
                )
        return tests


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
