"""What becomes of the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ._columns import Numbers


@dataclass(frozen=True)
class Feature:
    """A column of prepared numbers, ``(part - center) / scale``.

    Attributes
    ----------
    name : str
    column : str
        The column of the table that it comes from.
    part : {"value", "missing", "level"}
        The number itself, or 1 where the cell is missing, or is of a level, and else 0.
    level : str or None
    center, scale : float
        In the column's unit.
    """

    name: str
    column: str
    part: str
    level: str | None = None
    center: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class ColumnRule:
    """What becomes of a column of a table.

    Attributes
    ----------
    name, kind : str
    missing : int
        Rows without a value in training; None where that was declared, not counted.
    fill : float or None
        What stands for a missing number.
    bounds : tuple of float or None
        What numbers are clipped to.
    levels : mapping of str to int, or None
        The levels that are told apart, and their rows in training (None where declared).
    merged : mapping of str to int
        Levels that are taken as "(other)".
    reference : str or None
        The level without a feature.
    deviation : float or None
        The standard deviation of the values, in the column's unit.
    declared : bool
        Whether its levels were declared, so that all others are "(other)".
    ignore_case : bool
        Whether levels are compared in lower case.
    """

    name: str
    kind: str
    missing: int | None = 0
    fill: float | None = None
    deviation: float | None = None
    bounds: tuple[float, float] | None = None
    levels: Mapping[str, int | None] | None = None
    merged: Mapping[str, int] = field(default_factory=dict)
    reference: str | None = None
    declared: bool = False
    ignore_case: bool = False


def units_of(centers: Numbers, scales: Numbers, *, intercept: bool) -> Numbers:
    """What turns coefficients of columns ``(a - center) / scale`` into those of the columns a.

    A last column of ones, if there is an intercept, takes up the centers.
    """
    found = np.diag(1.0 / np.append(scales, np.ones(int(intercept))))
    if intercept:
        found[-1, :-1] = -centers / scales
    return found
