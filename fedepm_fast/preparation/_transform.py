"""Writing the prepared columns of a table, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ._columns import Column, Numbers
from ._levels import MISSING_LEVEL, OTHER, in_lower_case
from ._rules import ColumnRule, Feature

#: Levels that a warning names.
_NAMED = 5


class PreparationWarning(UserWarning):
    """Cells of a table that are not as those that a preparation was learned from."""


def number_writer(
    rule: ColumnRule, column: Column, features: list[tuple[int, Feature]], told: list[str]
) -> Callable[[Numbers, slice], None]:
    """What writes a column of numbers; what is to be told of its cells is added to `told`."""
    values = column.truths() if rule.kind == "boolean" else column.finite()
    missing = int(np.isnan(values).sum())
    fill = 0.0 if rule.fill is None else rule.fill
    if missing and rule.missing == 0:
        told.append(
            f"column {rule.name!r} was never missing in training, but is in {missing} "
            f"{'row' if missing == 1 else 'rows'}: the mean {fill:.6g} stands for it",
        )

    def write(found: Numbers, rows: slice) -> None:
        held = values[rows]
        lacking = np.isnan(held) if missing else False
        if missing:
            held = np.where(lacking, fill, held)
        if rule.bounds is not None:
            held = np.clip(held, *rule.bounds)
        for j, feature in features:
            part = held if feature.part == "value" else np.asarray(lacking, dtype=np.float64)
            found[rows, j] = (part - feature.center) / feature.scale

    return write


def codes_of(
    rule: ColumnRule, column: Column, features: list[tuple[int, Feature]], told: list[str]
) -> NDArray[np.int32]:
    """Which of a column's features a cell has, shape (d,); -1 for none, that of the reference."""
    held = in_lower_case(column.levels) if rule.ignore_case else column.levels
    own = {feature.level: k for k, (_, feature) in enumerate(features)}
    levels = rule.levels or {}
    unseen = {name for name in held.names if name not in levels and name not in rule.merged}
    rest = OTHER if OTHER in levels else rule.reference
    lookup = [own.get(rest if name not in levels else name, -1) for name in held.names]
    has_level = MISSING_LEVEL in levels
    lookup.append(own.get(MISSING_LEVEL, -1) if has_level else -1)
    if unseen:
        counts = {name: n for name, n in held.counts().items() if name in unseen}
        if counts and not (rule.declared and rest == OTHER):  # which is what that is for
            told.append(_unseen(rule, counts, rest))
    missing = int((held.codes < 0).sum())
    if missing and not has_level and rule.missing == 0:
        told.append(
            f"column {rule.name!r} was never missing in training, but is in {missing} "
            f"{'row' if missing == 1 else 'rows'}: the level {rule.reference!r} stands for it",
        )
    return np.array(lookup, dtype=np.int32)[held.codes]


def _unseen(rule: ColumnRule, counts: Mapping[str, int], rest: str | None) -> str:
    """What is said of levels that were not there in training."""
    cells = sum(counts.values())
    where = "declared" if rule.declared else "there in training"
    named = ", ".join(map(repr, sorted(counts)[:_NAMED])) + ", ..." * (len(counts) > _NAMED)
    return (
        f"column {rule.name!r} has {cells} {'cell' if cells == 1 else 'cells'} of levels that were "
        f"not {where}, {named}: {rest!r} stands for them"
    )


def level_writer(
    codes: NDArray[np.int32], k: int, j: int, feature: Feature
) -> Callable[[Numbers, slice], None]:
    """What writes the feature j of a level, which cells of the code k have."""
    without, with_it = ((part - feature.center) / feature.scale for part in (0.0, 1.0))

    def write(found: Numbers, rows: slice) -> None:
        found[rows, j] = np.where(codes[rows] == k, with_it, without)

    return write
