"""From the clients' summaries to every choice of a preparation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._common.text import counted
from .._common.validation import ArgumentError, ArgumentTypeError, ArgumentValueError
from .._common.warned import warn
from ._levels import MISSING_LEVEL, OTHER, check_count, raise_all, same_but_for_case
from ._prepared import Prepared
from ._rules import ColumnRule, Feature
from ._summary import ColumnSummary, TableSummary
from ._transform import PreparationWarning

if TYPE_CHECKING:
    from ._choices import Preparation

#: A spread that is this share of the mean is rounding.
_ROUNDING = 4 * 2.0**-52


def learn(choices: Preparation, summaries: Sequence[TableSummary]) -> Prepared:
    """`Preparation.learn`, of a sequence of summaries."""
    for summary in summaries:
        if not isinstance(summary, TableSummary):
            raise ArgumentTypeError(
                "summaries", f"must be those of clients, got {type(summary).__name__}"
            )
    if not summaries:
        raise ArgumentValueError("summaries", "must be those of at least one client, got none")
    given = [
        summary if summary.clients != (None,) else summary.of(f"client {i + 1}")
        for i, summary in enumerate(summaries)
    ]
    total = given[0]
    for summary in given[1:]:
        total = total + summary
    if total.rows == 0:
        raise ArgumentValueError("summaries", "must have at least one row, got none")
    learner = _Learner(choices, total)
    wrong: list[ArgumentError] = []
    for name, column in total.columns.items():
        try:
            learner.add(name, column)
        except ArgumentError as error:
            wrong.append(error)
    if wrong:
        raise_all(wrong)
    if not learner.features and not choices.intercept:
        raise ArgumentValueError("summaries", "must have a column that is not constant, got none")
    for name, levels in learner.alike:
        told = ", ".join(" and ".join(map(repr, alike)) for alike in levels)
        message = (
            f"column {name!r} has levels that differ in case only, and are told apart: {told}; "
            "Preparation(ignore_case=True) (--ignore-case) makes them one"
        )
        warn(message, PreparationWarning)
    clients = tuple(f"client {i + 1}" if c is None else c for i, c in enumerate(total.clients))
    return Prepared(
        tuple(learner.rules),
        tuple(learner.features),
        choices.intercept,
        tuple(learner.dropped),
        (),
        clients,
        total.rows,
        False,
        choices.to_dict(),
    )


class _Learner:
    """The rules and features of columns, one after the other."""

    def __init__(self, choices: Preparation, total: TableSummary) -> None:
        self.choices = choices
        self.rows = total.rows
        self.rules: list[ColumnRule] = []
        self.features: list[Feature] = []
        self.alike: list[tuple[str, list[list[str]]]] = []
        self.dropped: list[tuple[str, str]] = [
            (name, "left out, as was chosen") for name in choices.drop
        ]

    def add(self, name: str, column: ColumnSummary) -> None:
        if column.missing and self.choices.missing == "refuse":
            raise ArgumentValueError(
                f"column {name!r}",
                f"must not be missing where missing is 'refuse', but is in "
                f"{counted(column.missing, 'row')}",
            )
        if column.kind == "missing":
            self.dropped.append((name, "no client has a value of it"))
        elif column.kind == "category":
            self._category(name, column)
        else:
            self._number(name, column)

    def _number(self, name: str, column: ColumnSummary) -> None:
        mean, deviation = column.mean or 0.0, column.deviation or 0.0
        spread = math.sqrt(deviation / column.seen)
        is_constant = spread <= _ROUNDING * abs(mean)
        self.rules.append(
            ColumnRule(name, column.kind, column.missing, fill=mean, deviation=spread)
        )
        if is_constant and (self.choices.intercept or mean == 0):
            self.dropped.append((name, f"constant, {mean:.6g} in every row that has a value"))
        else:
            # Of the column as it is used, where the mean stands for missing cells.
            self._feature(Feature(name, name, "value"), mean, deviation / self.rows)
        if column.missing and self.choices.missing == "indicator":
            self._share(Feature(f"{name} (missing)", name, "missing"), column.missing)

    def _category(self, name: str, column: ColumnSummary) -> None:
        found = dict(column.levels or {})
        declared = self.choices.levels.get(name)
        check_count(name, found, self.choices.max_levels)
        if declared is None and (alike := same_but_for_case(found)):
            self.alike.append((name, alike))
        order = [level for level in declared or column.order or sorted(found) if level in found]
        order = [level for level in order if level not in (OTHER, MISSING_LEVEL)]
        merged = {k: found[k] for k in order if found[k] < self.choices.min_count}
        levels: dict[str, int | None] = {k: found[k] for k in order if k not in merged}
        others = found.get(OTHER, 0) + sum(merged.values())
        missing = column.missing if self.choices.missing == "indicator" else 0
        missing += found.get(MISSING_LEVEL, 0)
        levels |= {k: n for k, n in ((OTHER, others), (MISSING_LEVEL, missing)) if n}
        is_ordered = declared is not None or column.order is not None
        reference = self._reference(name, found, levels, is_ordered)
        self.rules.append(
            ColumnRule(
                name,
                "category",
                column.missing,
                levels=levels,
                merged=merged,
                reference=reference,
                declared=declared is not None,
                ignore_case=self.choices.ignore_case,
            )
        )
        if len(levels) == 1:
            self.dropped.append((name, f"constant, {reference!r} in every row"))
            return
        for level in declared or ():
            if level not in found:
                self.dropped.append((f"{name}={level}", "no client has a row of that level"))
        for level, n in levels.items():
            if level != reference:
                self._share(Feature(f"{name}={level}", name, "level", level), n or 0)

    def _reference(
        self, name: str, found: dict[str, int], levels: dict[str, int | None], is_ordered: bool
    ) -> str:
        wanted = self.choices.reference.get(name)
        if wanted is not None:
            if wanted not in levels:
                why = "too few rows" if wanted in found else "no rows"
                raise ArgumentValueError(
                    f"reference[{name!r}]",
                    f"must be a level of the column, {', '.join(map(repr, levels))}, got "
                    f"{wanted!r}, which has {why}",
                )
            return wanted
        own = [level for level in levels if level not in (OTHER, MISSING_LEVEL)] or list(levels)
        return own[0] if is_ordered else min(own, key=lambda level: (-(levels[level] or 0), level))

    def _share(self, feature: Feature, n: int) -> None:
        """A feature that is 1 in n rows, and else 0."""
        share = n / self.rows
        self._feature(feature, share, share * (1 - share))

    def _feature(self, feature: Feature, mean: float, variance: float) -> None:
        center, scale = 0.0, 1.0
        if self.choices.scaling == "standardize":
            spread = math.sqrt(variance)
            center = mean if self.choices.intercept else 0.0
            scale = spread if self.choices.intercept else math.hypot(spread, mean)
        self.features.append(replace(feature, center=center, scale=scale))
