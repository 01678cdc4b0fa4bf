"""What a client says of its table: counts and sums, never rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._common.validation import ArgumentTypeError, ArgumentValueError, check_int, check_real
from ._columns import KINDS, Column

_FORMAT = "fedepm_fast table summary"
_VERSION = 1


@dataclass(frozen=True)
class ColumnSummary:
    """A column of one or several clients in a few numbers.

    Attributes
    ----------
    kind : {"numeric", "boolean", "category", "missing"}
        "missing" is a column without a single value.
    seen, missing : int
        Rows with a value, and without one.
    mean : float or None
        Of the values; None for a category, and without a value.
    deviation : float or None
        The sum of squared deviations from the mean, in the square of the column's unit.
    levels : mapping of str to int
        How many rows have each level of a category, by name.
    order : tuple of str or None
        The levels of an ordered category, in its order.
    client : str or None
        A client that has the column of that kind.
    """

    kind: str
    seen: int
    missing: int
    mean: float | None = None
    deviation: float | None = None
    levels: Mapping[str, int] | None = None
    order: tuple[str, ...] | None = None
    client: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The column as JSON has it; what it has not is left out."""
        found: dict[str, Any] = {"kind": self.kind, "seen": self.seen, "missing": self.missing}
        if self.mean is not None:
            found.update(mean=self.mean, deviation=self.deviation)
        if self.levels is not None:
            found["levels"] = dict(self.levels)
        if self.order is not None:
            found["order"] = list(self.order)
        if self.client is not None:
            found["client"] = self.client
        return found


@dataclass(frozen=True)
class TableSummary:
    """What the tables of one or several clients are, in sums: never rows.

    Two of them add up: ``a + b`` is the summary of the rows of both. Sums of floats depend on their
    order, so a server adds its clients' in an order that it keeps.

    Attributes
    ----------
    clients : tuple of str or None
        The names of the clients, in the order in which their summaries were added.
    rows : int
    columns : mapping of str to ColumnSummary
        In the order of the first client's table.
    """

    clients: tuple[str | None, ...]
    rows: int
    columns: Mapping[str, ColumnSummary]

    def __add__(self, other: TableSummary) -> TableSummary:
        if not isinstance(other, TableSummary):
            return NotImplemented
        self._check_columns(other)
        other._check_columns(self)
        columns = {
            name: _added(name, mine, other.columns[name]) for name, mine in self.columns.items()
        }
        return TableSummary(self.clients + other.clients, self.rows + other.rows, columns)

    def _check_columns(self, other: TableSummary) -> None:
        """Refuse another summary that lacks one of the columns."""
        lacking = [name for name in self.columns if name not in other.columns]
        if lacking:
            raise ArgumentValueError(
                f"table of {_who(other.clients)}",
                f"must have the columns of {_who(self.clients)}, but lacks "
                f"{', '.join(map(repr, lacking))}: leave out by Preparation(drop=[...]) (--drop) "
                "what not all have",
            )

    def of(self, client: str) -> TableSummary:
        """The same summary, of a client of that name."""
        columns = {n: replace(column, client=client) for n, column in self.columns.items()}
        return TableSummary((client,), self.rows, columns)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON has it: what a client sends."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "clients": list(self.clients),
            "rows": self.rows,
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> TableSummary:
        """A summary as `to_dict` wrote it, which is checked.

        Raises
        ------
        ValueError, TypeError
            If it is none, of another version, or says what no table has.
        """
        check_format(given, _FORMAT, _VERSION)
        rows = check_int("rows", given.get("rows"), low=0)
        clients = given.get("clients")
        columns = given.get("columns")
        if (
            not isinstance(clients, (list, tuple))
            or not clients
            or not all(who is None or isinstance(who, str) for who in clients)
        ):
            raise ArgumentTypeError("clients", f"must be a list of names, got {clients!r}")
        if not isinstance(columns, Mapping):
            raise ArgumentTypeError(
                "columns", f"must be a mapping of names, got {type(columns).__name__}"
            )
        found = {str(name): _checked(str(name), told, rows) for name, told in columns.items()}
        return cls(tuple(clients), rows, found)


def check_format(given: Any, format: str, version: int) -> None:
    """Refuse what is not a document of that format and version."""
    if not isinstance(given, Mapping) or given.get("format") != format:
        raise ArgumentValueError(
            "document",
            f"must be a mapping whose format is {format!r}, got {type(given).__name__}"
            if not isinstance(given, Mapping)
            else f"must have the format {format!r}, got {given.get('format')!r}",
        )
    if given.get("version") != version:
        raise ArgumentValueError(
            "document", f"must have the version {version}, got {given.get('version')!r}"
        )


def summary_of(column: Column, kind: str, client: str | None) -> ColumnSummary:
    """A column, taken as one of `kind`."""
    if kind == "missing":
        return ColumnSummary("missing", 0, len(column), client=client)
    if kind == "category":
        levels = column.levels
        counts = levels.counts()
        seen = sum(counts.values())
        return ColumnSummary(
            "category" if seen else "missing",
            seen,
            len(column) - seen,
            levels=dict(sorted(counts.items())) if seen else None,
            order=levels.names if column.ordered and seen else None,
            client=client,
        )
    values = column.truths() if kind == "boolean" else column.finite()
    lacking = np.isnan(values)
    missing = int(lacking.sum())
    values = values[~lacking] if missing else np.ascontiguousarray(values)
    if not len(values):
        return ColumnSummary("missing", 0, missing, client=client)
    mean, deviation = moments(column.name, values)
    return ColumnSummary(kind, len(values), missing, mean, deviation, client=client)


def moments(name: str, values: np.ndarray) -> tuple[float, float]:
    """The mean and the sum of squared deviations from it.

    In two passes, about a first mean. A constant column has its value and zero, exactly.

    Raises
    ------
    ValueError
        If squares overflow or vanish.
    """
    if (values == values[0]).all():
        return float(values[0]), 0.0
    n = len(values)
    with np.errstate(over="ignore", invalid="ignore"):  # found below
        mean = float(values.sum()) / n
        apart = values - mean
        error = float(apart.sum())
        deviation = float((apart * apart).sum()) - error * error / n
        mean += error / n
    if not (math.isfinite(mean) and math.isfinite(deviation)):
        raise ArgumentValueError(
            f"column {name!r}", "must have numbers whose squares are finite: scale it"
        )
    if not (apart * apart).any():
        raise ArgumentValueError(
            f"column {name!r}", "must have numbers whose squares are not 0: scale it"
        )
    return mean, max(deviation, 0.0)


def _added(name: str, a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    """The summary of a column of both."""
    kind, told = _common_kind(name, a, b)
    seen, missing = a.seen + b.seen, a.missing + b.missing
    mean, deviation = _added_moments(a, b)
    levels: dict[str, int] | None = None
    if kind == "category":
        levels = dict(a.levels or {})
        for level, n in (b.levels or {}).items():
            levels[level] = levels.get(level, 0) + n
        levels = dict(sorted(levels.items()))
    order = a.order if a.order is not None else b.order
    if a.levels and b.levels and a.order != b.order:
        raise ArgumentValueError(
            f"column {name!r}",
            f"must have the same ordered levels for all clients, got {_order(a)} for "
            f"{_who((a.client,))} and {_order(b)} for {_who((b.client,))}: declare them by levels=",
        )
    return ColumnSummary(kind, seen, missing, mean, deviation, levels, order, told.client)


def _order(summary: ColumnSummary) -> str:
    return "none" if summary.order is None else " < ".join(summary.order)


def _added_moments(a: ColumnSummary, b: ColumnSummary) -> tuple[float | None, float | None]:
    """Mean and deviation of the values of both, about their common mean."""
    if a.mean is None or a.deviation is None:
        return b.mean, b.deviation
    if b.mean is None or b.deviation is None:
        return a.mean, a.deviation
    share = b.seen / (a.seen + b.seen)
    apart = b.mean - a.mean
    deviation = a.deviation + b.deviation + apart * apart * a.seen * share
    if not math.isfinite(deviation):
        raise ArgumentValueError("summaries", "must have numbers whose squares are finite")
    return a.mean + apart * share, deviation


def _common_kind(name: str, a: ColumnSummary, b: ColumnSummary) -> tuple[str, ColumnSummary]:
    """The kind of a column of both, and which of the two tells it."""
    kinds = {a.kind, b.kind}
    if "missing" in kinds or len(kinds) == 1:
        told = b if a.kind == "missing" else a
        return told.kind, told
    if kinds == {"numeric", "boolean"}:
        return "numeric", a if a.kind == "numeric" else b
    raise ArgumentValueError(
        f"column {name!r}",
        f"must be of one kind for all clients, got {a.kind} for {_who((a.client,))} and {b.kind} "
        f"for {_who((b.client,))}: say which by Preparation(kinds={{{name!r}: ...}}), "
        "for every client",
    )


def _who(clients: Iterable[str | None]) -> str:
    """Clients in words: the first of them, and how many more."""
    given = list(clients)
    first = "a client without a name" if given[0] is None else f"client {given[0]!r}"
    return first if len(given) == 1 else f"{first} and {len(given) - 1} more"


def _checked(name: str, told: Any, rows: int) -> ColumnSummary:
    """A column as `ColumnSummary.to_dict` wrote it."""
    where = f"column {name!r}"
    if not isinstance(told, Mapping):
        raise ArgumentTypeError(where, f"must be a mapping, got {type(told).__name__}")
    kind = told.get("kind")
    if kind not in (*KINDS, "missing"):
        raise ArgumentValueError(where, f"must have a kind of {', '.join(KINDS)}, got {kind!r}")
    seen = check_int(f"{where}: seen", told.get("seen"), low=0)
    missing = check_int(f"{where}: missing", told.get("missing"), low=0)
    if seen + missing != rows:
        raise ArgumentValueError(
            where, f"must have {rows} rows, seen or missing, got {seen} and {missing}"
        )
    if (kind == "missing") != (seen == 0):
        raise ArgumentValueError(where, f"must have values unless it is missing, got {seen}")
    mean = deviation = levels = order = None
    if kind in ("numeric", "boolean"):
        mean = check_real(f"{where}: mean", told.get("mean"))
        deviation = check_real(f"{where}: deviation", told.get("deviation"), low=0.0)
    elif kind == "category":
        levels, order = _checked_levels(where, told, seen)
    client = told.get("client")
    if client is not None and not isinstance(client, str):
        raise ArgumentTypeError(f"{where}: client", f"must be a name, got {client!r}")
    return ColumnSummary(kind, seen, missing, mean, deviation, levels, order, client)


def _checked_levels(
    where: str, told: Mapping[str, Any], seen: int
) -> tuple[dict[str, int], tuple[str, ...] | None]:
    given = told.get("levels")
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(f"{where}: levels", f"must be a mapping, got {given!r}")
    levels = {
        str(level): check_int(f"{where}, level {level!r}", n, low=1) for level, n in given.items()
    }
    if sum(levels.values()) != seen:
        raise ArgumentValueError(
            f"{where}: levels", f"must have {seen} rows, got {sum(levels.values())}"
        )
    order = told.get("order")
    if order is not None and (
        not isinstance(order, (list, tuple)) or not set(levels) <= set(order)
    ):
        raise ArgumentValueError(f"{where}: order", f"must be a list of all levels, got {order!r}")
    return dict(sorted(levels.items())), None if order is None else tuple(map(str, order))
