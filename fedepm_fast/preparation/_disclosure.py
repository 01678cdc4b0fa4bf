"""What a client's sums may not say: thresholds below which it sends none.

The thresholds and their values are those of DataSHIELD, the federated GLM of epidemiologists, so
that a data custodian finds what is known: ``nfilter.tab``, ``nfilter.subset``, ``nfilter.glm``,
``nfilter.levels.density`` and ``nfilter.levels.max``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from .._common.text import plural
from .._common.validation import check_int, check_real
from ._columns import Column, Numbers
from ._summary import ColumnSummary


@dataclass(frozen=True)
class Thresholds:
    """Below which a client keeps its sums to itself.

    Parameters
    ----------
    smallest_cell : int
        The fewest rows that a level, a value of a column of two values, or the missing cells of a
        column may have, unless there are none (``nfilter.tab``): the sums of one row are that row.
    smallest_table : int
        The fewest rows of a client, and the fewest values of a numeric column
        (``nfilter.subset``).
    parameters_share : float
        The most parameters, as a share of a client's rows (``nfilter.glm``): sums of as many
        columns as rows can be solved for the rows.
    levels_share : float
        The most levels of a category, as a share of a client's rows (``nfilter.levels.density``):
        a column of names or numbers of persons has one for each.
    most_levels : int
        The most levels of a category at a client (``nfilter.levels.max``).
    """

    smallest_cell: int = 3
    smallest_table: int = 3
    parameters_share: float = 0.33
    levels_share: float = 0.33
    most_levels: int = 40

    def __post_init__(self) -> None:
        for name in ("smallest_cell", "smallest_table", "most_levels"):
            check_int(name, getattr(self, name), low=1)
        for name in ("parameters_share", "levels_share"):
            check_real(name, getattr(self, name), low=0.0, open_low=True)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class DisclosureError(ValueError):
    """A client's sums would say too much of single rows, and are not sent.

    Parameters
    ----------
    client : str or None
        Whose they are.
    reason : str
        What they would say.
    threshold : str
        The field of `Thresholds` that they do not meet.
    value : int or float
        Its value.
    """

    def __init__(self, client: str | None, reason: str, threshold: str, value: float) -> None:
        super().__init__(client, reason, threshold, value)
        self.client = client
        self.reason = reason
        self.threshold = threshold
        self.value = value

    def __str__(self) -> str:
        who = "a client without a name" if self.client is None else f"client {self.client!r}"
        return f"{who} sends no sums: {self.reason} ({self.threshold} is {self.value:g})"


class Guard:
    """Refuses the sums of one client that do not meet the thresholds."""

    def __init__(self, thresholds: Thresholds, client: str | None) -> None:
        self._given = thresholds
        self._client = client

    def _refuse(self, reason: str, threshold: str) -> None:
        value = getattr(self._given, threshold)
        raise DisclosureError(self._client, reason, threshold, value)

    def rows(self, rows: int) -> None:
        """Refuse a table of few rows."""
        if rows < self._given.smallest_table:
            self._refuse(f"it has {rows} {plural('row', rows)}", "smallest_table")

    def column(self, column: Column, summary: ColumnSummary, *, indicator: bool) -> None:
        """Refuse a column with few values, small cells, or nearly as many levels as rows."""
        named = f"column {column.name!r}"
        if indicator and 0 < summary.missing < self._given.smallest_cell and summary.seen:
            self._refuse(
                f"{named} is missing in {summary.missing} {plural('row', summary.missing)}, which "
                "its indicator would single out; missing='fill' has no indicator",
                "smallest_cell",
            )
        if summary.kind == "category":
            self._levels(named, summary)
        elif summary.kind in ("numeric", "boolean"):
            if summary.seen < self._given.smallest_table:
                told = f"{named} has {summary.seen} {plural('value', summary.seen)}"
                self._refuse(told, "smallest_table")
            self._two_values(named, column.numbers[~np.isnan(column.numbers)])

    def feature(self, name: str, values: Numbers) -> None:
        """Refuse a prepared column of two values, one of them in few rows."""
        self._two_values(f"feature {name!r}", values)

    def _levels(self, named: str, summary: ColumnSummary) -> None:
        levels = summary.levels or {}
        small = {k: n for k, n in levels.items() if n < self._given.smallest_cell}
        if len(levels) > self._given.most_levels:
            self._refuse(f"{named} has {len(levels)} levels", "most_levels")
        rows = summary.seen + summary.missing
        if len(levels) > 1 and len(levels) > self._given.levels_share * rows:
            self._refuse(f"{named} has {len(levels)} levels in {rows} rows", "levels_share")
        if small:
            level, n = next(iter(small.items()))
            self._refuse(
                f"{named} has {n} {plural('row', n)} of level {level!r}; levels= declares those "
                "that are told apart",
                "smallest_cell",
            )

    def _two_values(self, named: str, values: Numbers) -> None:
        least = values == values.min()
        few = min(int(least.sum()), int((~least).sum()))
        if 0 < few < self._given.smallest_cell and (values[~least] == values.max()).all():
            self._refuse(
                f"{named} has two values, one of them in {few} {plural('row', few)}",
                "smallest_cell",
            )

    def parameters(self, parameters: int, rows: int) -> None:
        """Refuse more parameters than a share of the rows."""
        if parameters > self._given.parameters_share * rows:
            self._refuse(
                f"{parameters} {plural('parameter', parameters)} are more than that share of its "
                f"{rows} rows",
                "parameters_share",
            )


def thresholds_of(given: Any) -> Thresholds:
    """Thresholds as JSON has them."""
    known = {field.name for field in fields(Thresholds)}
    return Thresholds(**{name: value for name, value in dict(given).items() if name in known})
