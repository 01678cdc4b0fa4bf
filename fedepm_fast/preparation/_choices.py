"""What a person chooses of a preparation; the rest is learned from sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._common.validation import (
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    check_choice,
    check_int,
)
from ._columns import KINDS, Column, Renamed, without_case
from ._disclosure import Guard, Thresholds, thresholds_of
from ._learn import learn
from ._levels import MISSING_LEVEL, OTHER, Levels, check_count, check_words, raise_all
from ._prepared import Prepared
from ._public import declared
from ._sources import as_table
from ._summary import ColumnSummary, TableSummary, check_format, summary_of
from ._table import Table, clean

SCALINGS = ("standardize", "none")
MISSINGS = ("indicator", "fill", "refuse")
_FORMAT = "fedepm_fast preparation choices"
_VERSION = 1


@dataclass(frozen=True)
class Preparation:
    """How tables become numbers: what is chosen, before anything is learned.

    Parameters
    ----------
    scaling : {"standardize", "none"}
        Whether prepared columns have mean 0 and standard deviation 1 over all clients' rows;
        without an intercept root mean square 1, and no centre.
    intercept : bool
        Whether a column of ones is added, as the last.
    kinds : mapping of str to {"numeric", "boolean", "category"}
        Kinds of columns by name; of others what their cells are.
    levels : mapping of str to sequence of str
        Levels of categories, in their order: the first is the reference, and others are "(other)".
    reference : mapping of str to str
        The level of a category that the others are compared with; by default the first of declared
        or ordered levels, else the most frequent of all clients, the first in the alphabet among
        equals.
    drop : sequence of str
        Columns that are left out.
    missing : {"indicator", "fill", "refuse"}
        Missing numbers become the mean, with a column that says where, and missing levels a level
        of their own, "(missing)"; or the mean and the reference without that; or are refused.
    min_count : int
        Levels of fewer rows, over all clients, are taken together as "(other)".
    max_levels : int
        A category of more levels is refused: it may be free text, a date or a number of persons.
    ignore_case : bool
        Whether levels that differ in upper and lower case only are one, in lower case; `fit` takes
        the labels so as well.
    thresholds : Thresholds
        Below which a client's sums are refused by a guard.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """

    scaling: str = "standardize"
    intercept: bool = True
    kinds: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reference: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    missing: str = "indicator"
    min_count: int = 1
    max_levels: int = 100
    ignore_case: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        check_choice("scaling", self.scaling, SCALINGS)
        check_choice("missing", self.missing, MISSINGS)
        check_int("min_count", self.min_count, low=1)
        check_int("max_levels", self.max_levels, low=2)
        for flag in ("intercept", "ignore_case"):
            if not isinstance(getattr(self, flag), bool):
                raise ArgumentTypeError(flag, f"must be True or False, got {getattr(self, flag)!r}")
        if isinstance(self.drop, str) or not all(isinstance(name, str) for name in self.drop):
            raise ArgumentTypeError("drop", f"must be a sequence of names, got {self.drop!r}")
        if not isinstance(self.thresholds, Thresholds):
            raise ArgumentTypeError("thresholds", f"must be Thresholds, got {self.thresholds!r}")
        object.__setattr__(self, "drop", tuple(map(clean, self.drop)))
        for name in ("kinds", "levels", "reference"):
            object.__setattr__(self, name, _by_name(name, getattr(self, name)))
        for column, kind in self.kinds.items():
            check_choice(f"kinds[{column!r}]", kind, KINDS)
        levels = {name: _levels(name, self._cased(told)) for name, told in self.levels.items()}
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "reference", self._cased(self.reference))
        for column in (*self.levels, *self.reference):
            if self.kinds.get(column, "category") != "category":
                raise ArgumentValueError(
                    f"kinds[{column!r}]",
                    f"must be category, which has levels, got {self.kinds[column]!r}",
                )
            wanted = self.reference.get(column)
            if wanted is not None and wanted not in levels.get(column, [wanted]):
                raise ArgumentValueError(
                    f"reference[{column!r}]",
                    f"must be one of {', '.join(map(repr, levels[column]))}, got {wanted!r}",
                )

    def summarize(
        self, table: Any, *, client: str | None = None, guard: bool = True
    ) -> TableSummary:
        """A client's table in counts and sums.

        Parameters
        ----------
        table : Table, data frame, mapping, ndarray or path-like
            As `as_table` takes it, without its label.
        client : str, optional
            The client's name, for messages.
        guard : bool
            Whether sums that say too much of single rows are refused. On by default, since sums
            leave the client; one machine that holds all tables needs none.

        Returns
        -------
        TableSummary

        Raises
        ------
        DisclosureError
            With `guard`, if a threshold is not met.
        ValueError, TypeError
            Naming the column, and the row of a wrong cell.
        """
        held = as_table(table)
        self._check_names(held)
        check = Guard(self.thresholds, client) if guard else None
        if check is not None:
            check.rows(len(held))
        columns: dict[str, ColumnSummary] = {}
        wrong: list[ArgumentError] = []
        for name in held.names:
            if name in self.drop:
                continue
            try:
                column = self._declared(held.column(name))
                columns[name] = self._summary(column, client)
            except ArgumentError as error:
                wrong.append(error)
                continue
            if check is not None:
                check.column(column, columns[name], indicator=self.missing == "indicator")
        if wrong:
            raise_all(wrong)
        if check is not None:
            check.parameters(self._parameters(columns), len(held))
        return TableSummary((client,), len(held), columns)

    def _summary(self, column: Column, client: str | None) -> ColumnSummary:
        """A column in counts and sums, if it is none that a person must look at."""
        name = column.name
        kind = column.kind if column.kind == "missing" else self.kind_of(column)
        summary = summary_of(column, kind, client)
        if summary.kind == "category":
            if name not in {*self.kinds, *self.levels, *self.reference}:
                check_words(name, summary.levels or {})
            check_count(name, summary.levels or {}, self.max_levels)
        return summary

    def learn(self, summaries: Iterable[TableSummary] | Mapping[str, TableSummary]) -> Prepared:
        """Every choice, made from the clients' summaries.

        Parameters
        ----------
        summaries : iterable of TableSummary, or mapping of str to TableSummary
            In an order that is kept: the same summaries in the same order give the same bits.

        Returns
        -------
        Prepared

        Raises
        ------
        ValueError
            If columns or their kinds differ between clients, naming two; or there are no rows.

        Warns
        -----
        PreparationWarning
            If levels of a column differ in upper and lower case only.
        """
        if isinstance(summaries, Mapping):
            given = [summary.of(str(name)) for name, summary in summaries.items()]
        else:
            given = list(summaries)
        return learn(self, given)

    @staticmethod
    def public(columns: Mapping[str, Any], *, intercept: bool = True) -> Prepared:
        """A preparation of what is known to everyone, which asks no data: for private runs.

        Parameters
        ----------
        columns : mapping of str to mapping
            For each column that is used ``{"bounds": (low, high)}``, to which numbers are clipped,
            so that prepared ones are from -1 to 1; or ``{"mean": ..., "sd": ...}``; or
            ``{"levels": [...]}``, the first of which is the reference, with ``"other": True`` for
            a column of all other levels; or ``{"kind": "boolean"}``. With ``"missing": True``
            there is a column that says where cells are missing.
        intercept : bool
            Whether a column of ones is added, as the last.

        Returns
        -------
        Prepared
            Whose `Prepared.declared` is true.

        Raises
        ------
        ValueError, TypeError
            Naming the column.
        """
        return declared(columns, intercept=intercept)

    def kind_of(self, column: Column) -> str:
        """What a column is taken as: what was declared, else what its cells are."""
        name = column.name
        if name in self.levels or name in self.reference:
            return "category"
        return self.kinds.get(name, column.kind)

    def to_dict(self) -> dict[str, Any]:
        """The choices as JSON has them: what a server tells its clients."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "scaling": self.scaling,
            "intercept": self.intercept,
            "kinds": dict(self.kinds),
            "levels": {name: list(told) for name, told in self.levels.items()},
            "reference": dict(self.reference),
            "drop": list(self.drop),
            "missing": self.missing,
            "min_count": self.min_count,
            "max_levels": self.max_levels,
            "ignore_case": self.ignore_case,
            "thresholds": self.thresholds.to_dict(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Preparation:
        """Choices as `to_dict` wrote them.

        Raises
        ------
        ValueError, TypeError
            If they are none, or not allowed.
        """
        check_format(given, _FORMAT, _VERSION)
        told = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        if "thresholds" in told:
            told["thresholds"] = thresholds_of(told["thresholds"])
        return cls(**told)

    def _cased(self, given: Any) -> Any:
        """Levels as they are compared: a sequence of them, or a mapping to them."""
        if not self.ignore_case:
            return given
        if isinstance(given, Mapping):
            return {k: v.lower() if isinstance(v, str) else v for k, v in given.items()}
        if isinstance(given, str):
            return given
        return [level.lower() if isinstance(level, str) else level for level in given]

    def _check_names(self, table: Table) -> None:
        """Refuse choices for columns that the table has not."""
        for argument in ("kinds", "levels", "reference"):
            for name in getattr(self, argument):
                if name not in self.drop:
                    table.column(name, argument)

    def _declared(self, column: Column) -> Column:
        """A column in the levels that are told apart: undeclared ones are "(other)"."""
        told = self.levels.get(column.name)
        if self.ignore_case and self.kind_of(column) == "category":
            column = without_case(column)
        if told is None:
            return column
        codes, names = column.levels
        rest = len(told)
        places = {name: k for k, name in enumerate(told)}
        lookup = [*(places.get(name, rest) for name in names), -1]
        levels = Levels(np.array(lookup, dtype=np.int32)[codes], (*told, OTHER))
        return Renamed(column, levels, True)

    def _parameters(self, columns: Mapping[str, ColumnSummary]) -> int:
        """Parameters that the columns of one client come to."""
        found = int(self.intercept)
        for summary in columns.values():
            if summary.kind == "category":
                found += len(summary.levels or ()) - 1
            elif summary.kind != "missing":
                found += 1
            found += summary.missing > 0 and self.missing == "indicator" and summary.seen > 0
        return found


def _by_name(argument: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ArgumentTypeError(
            argument, f"must be a mapping of columns' names, got {type(given).__name__}"
        )
    return {clean(name): told for name, told in given.items()}


def _levels(column: str, told: Any) -> tuple[str, ...]:
    argument = f"levels[{column!r}]"
    if isinstance(told, str) or not all(isinstance(level, str) for level in told):
        raise ArgumentTypeError(argument, f"must be a sequence of texts, got {told!r}")
    levels = tuple(map(clean, told))
    if not levels or len(set(levels)) < len(levels):
        raise ArgumentValueError(argument, f"must be different levels, got {list(told)!r}")
    if OTHER in levels or MISSING_LEVEL in levels:
        raise ArgumentValueError(argument, f"must not be {OTHER!r} or {MISSING_LEVEL!r}")
    return levels
