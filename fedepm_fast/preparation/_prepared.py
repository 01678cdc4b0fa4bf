"""A preparation that was learned: from a table to numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._common.validation import ArgumentTypeError, ArgumentValueError, check_real
from .._common.warned import warn
from ._columns import Numbers
from ._disclosure import Guard, thresholds_of
from ._moments import SecondMoments, aliased
from ._report import report_of
from ._rules import ColumnRule, Feature, units_of
from ._sources import as_table
from ._summary import check_format
from ._table import INTERCEPT, Table
from ._transform import PreparationWarning, codes_of, level_writer, number_writer

_FORMAT = "fedepm_fast preparation"
_VERSION = 1
#: Rows that are prepared at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 12


@dataclass(frozen=True)
class Prepared:
    """Every choice of a preparation, made: the same numbers from a table on every machine.

    Attributes
    ----------
    columns : tuple of ColumnRule
        In the order of the first client's table.
    features : tuple of Feature
        The columns of prepared numbers but for the intercept.
    intercept : bool
        Whether a last column is 1.
    dropped : tuple of (str, str)
        Columns and levels that are left out, and why.
    aliased : tuple of str
        Features that are sums of others, and are left out.
    clients : tuple of str
        Whose summaries it was learned from, in that order.
    rows : int
        Rows of all of them.
    declared : bool
        Whether it was declared, by `Preparation.public`, and learned from no data.
    choices : mapping
        The `Preparation`, as JSON has it.
    """

    columns: tuple[ColumnRule, ...]
    features: tuple[Feature, ...]
    intercept: bool = True
    dropped: tuple[tuple[str, str], ...] = ()
    aliased: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    rows: int = 0
    declared: bool = False
    choices: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*self.feature_names, *(rule.name for rule in self.columns)]
        own = {f.name for f in self.features if f.part == "value"}
        twice = [n for n, times in Counter(names).items() if times > 1 + (n in own)]
        if twice:
            raise ArgumentValueError(
                "columns", f"must not be called as a feature is, got {min(twice)!r}: rename it"
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the prepared columns, shape (p,); the last is the intercept."""
        names = tuple(feature.name for feature in self.features)
        return (*names, INTERCEPT) if self.intercept else names

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        used = {feature.column for feature in self.features}
        return tuple(rule.name for rule in self.columns if rule.name in used)

    @property
    def units(self) -> Numbers:
        """What turns coefficients of prepared columns into those of the table's, shape (p, p).

        With v those of the prepared columns, ``units @ v`` has the same margins on the columns as
        they are in the table: numbers in their own units, 1 where a cell is missing or of a level.
        """
        return units_of(*self._scaling, intercept=self.intercept)

    @property
    def _scaling(self) -> tuple[Numbers, Numbers]:
        """Centers and scales of the features."""
        centers, scales = ([getattr(f, k) for f in self.features] for k in ("center", "scale"))
        return np.array(centers, np.float64), np.array(scales, np.float64)

    def in_units(self, w: Numbers) -> Numbers:
        """`units` times coefficients of prepared columns, without the matrix.

        Parameters
        ----------
        w : ndarray of shape (..., p)

        Returns
        -------
        ndarray of shape (..., p)
        """
        n = len(self.features)
        centers, scales = self._scaling
        found = np.array(w, dtype=np.float64, order="C")  # sums go by the order in memory
        if self.intercept:
            found[..., -1] += found[..., :n] @ (-centers / scales)
        found[..., :n] *= 1.0 / scales
        return found

    def transform(self, table: Any, *, client: str | None = None) -> Numbers:
        """The prepared numbers of a table.

        Parameters
        ----------
        table : Table, data frame, mapping, ndarray or path-like
            As `as_table` takes it. Columns are found by their names, in any order; others than
            `table_columns` are ignored.
        client : str, optional
            Whose table it is, for messages.

        Returns
        -------
        ndarray of shape (d, p)
            float64, the columns `feature_names`.

        Raises
        ------
        ValueError, TypeError
            If a column lacks, or has cells that are not of its kind.

        Warns
        -----
        PreparationWarning
            If a category has a level that was not there in training, which is taken as "(other)" or
            else as the reference; or a cell is missing where none was in training.
        """
        where = "table" if client is None else f"table of client {client!r}"
        held = as_table(table)
        lacking = [name for name in self.table_columns if name not in held]
        if lacking:
            names = ", ".join(map(repr, lacking))
            which = "that are declared (Preparation.public, --public)"
            which = which if self.declared else "of training"
            raise ArgumentValueError(where, f"must have the columns {which}, but lacks {names}")
        found = np.empty((len(held), len(self.feature_names)))
        told: list[str] = []
        writers = [writer for rule in self.columns for writer in self._writers(rule, held, told)]
        for message in told:
            warn(f"{where}: {message}", PreparationWarning)
        for start in range(0, len(held), _BLOCK):
            rows = slice(start, start + _BLOCK)
            for write in writers:
                write(found, rows)
        if self.intercept:
            found[:, -1] = 1.0
        return found

    @cached_property
    def _features_of(self) -> dict[str, list[tuple[int, Feature]]]:
        """The features of a column, and where they stand."""
        found: dict[str, list[tuple[int, Feature]]] = {}
        for j, feature in enumerate(self.features):
            found.setdefault(feature.column, []).append((j, feature))
        return found

    def _writers(
        self, rule: ColumnRule, table: Table, told: list[str]
    ) -> Iterable[Callable[[Numbers, slice], None]]:
        """What writes the features of a column, some rows at a time."""
        features = self._features_of.get(rule.name, [])
        if not features:
            return
        column = table.column(rule.name)
        if rule.kind != "category":
            yield number_writer(rule, column, features, told)
            return
        codes = codes_of(rule, column, features, told)
        for k, (j, feature) in enumerate(features):
            yield level_writer(codes, k, j, feature)

    def second_moments(
        self, table: Any, *, client: str | None = None, guard: bool = False
    ) -> SecondMoments:
        """Sums of products of a client's prepared columns: the second pass of a federation.

        Parameters
        ----------
        table : Table, data frame, mapping, ndarray or path-like
            As `transform` takes it.
        client : str, optional
            Its name.
        guard : bool
            Whether to refuse sums that say too much, as `Preparation.summarize` does.

        Returns
        -------
        SecondMoments

        Raises
        ------
        DisclosureError
            With `guard`, if there are more parameters than the share of its rows allows, or a
            feature of two values has one of them in few rows.
        ValueError, TypeError
            As `transform`.
        """
        rows = self.transform(table, client=client)
        if guard:
            check = Guard(thresholds_of(self.choices.get("thresholds", {})), client)
            check.rows(len(rows))
            check.parameters(rows.shape[1], len(rows))
            for j, feature in enumerate(self.features):
                if feature.part != "value":
                    check.feature(feature.name, rows[:, j])
        return SecondMoments.of(rows, client=client)

    def without_aliased(
        self, moments: SecondMoments | Iterable[SecondMoments], *, tolerance: float = 1e-10
    ) -> Prepared:
        """The preparation without features that are sums of others, as R's ``glm`` leaves them out.

        Parameters
        ----------
        moments : SecondMoments or iterable of them
            Of all clients.
        tolerance : float
            A feature is left out if all but this share of its sum of squares is that of a sum of
            the features before it; the intercept comes first.

        Returns
        -------
        Prepared
        """
        given = [moments] if isinstance(moments, SecondMoments) else list(moments)
        if not given:
            raise ArgumentValueError("moments", "must be those of at least one client, got none")
        total = given[0]
        for other in given[1:]:
            total = total + other
        p = len(self.feature_names)
        if total.matrix.shape != (p, p):
            raise ArgumentValueError(
                "moments", f"must have shape ({p}, {p}), got {total.matrix.shape}"
            )
        order = [p - 1, *range(p - 1)] if self.intercept else list(range(p))
        left_out = aliased(total.matrix, order, check_real("tolerance", tolerance, low=0.0))
        names = tuple(self.feature_names[j] for j in left_out if j < len(self.features))
        kept = tuple(f for f in self.features if f.name not in names)
        return replace(self, features=kept, aliased=(*self.aliased, *names))

    def report(self) -> str:
        """Every choice in plain words, a line for each column."""
        return report_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The preparation as JSON has it; its floats are exact."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["columns"] = [_plain(asdict(rule)) for rule in self.columns]
        found["features"] = [_plain(asdict(feature)) for feature in self.features]
        return {"format": _FORMAT, "version": _VERSION, **_plain(found)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Prepared:
        """A preparation as `to_dict` wrote it.

        Raises
        ------
        ValueError, TypeError
            If it is none, or of another version.
        """
        check_format(given, _FORMAT, _VERSION)
        try:
            rules = []
            for told in given["columns"]:
                rule = dict(told)
                if rule.get("bounds") is not None:
                    low, high = rule["bounds"]
                    rule["bounds"] = (low, high)
                rules.append(ColumnRule(**rule))
            features = [Feature(**told) for told in given["features"]]
            for feature in features:
                check_real("center", feature.center)
                check_real("scale", feature.scale, low=0.0, open_low=True)
            return cls(
                tuple(rules),
                tuple(features),
                bool(given["intercept"]),
                tuple((name, why) for name, why in given["dropped"]),
                tuple(given["aliased"]),
                tuple(given["clients"]),
                int(given["rows"]),
                bool(given["declared"]),
                dict(given["choices"]),
            )
        except (KeyError, TypeError) as error:
            raise ArgumentTypeError(
                "document", f"must be a preparation as to_dict writes it, but: {error}"
            ) from None


def _plain(value: Any) -> Any:
    """Lists for tuples, as JSON reads them again."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (tuple, list)) else value
