"""What a private fit makes of declarations: scales of columns and labels, and the penalty."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.validation import ArgumentTypeError, ArgumentValueError, check_real
from ..losses import Objective
from ..losses.huber import Huber
from ..losses.least_squares import LeastSquares
from ..preparation import INTERCEPT, Prepared

Array = NDArray[np.float64]

#: Share of rows that are taken to be missing in a column that says where they are.
_MISSING = 0.1


class Labels(NamedTuple):
    """Labels as the rounds see them: ``(label - center) / unit``."""

    center: float = 0.0
    unit: float = 1.0
    bounds: tuple[float, float] | None = None

    def scaled(self, labels: Array) -> Array:
        if self.bounds is None:
            return labels
        return (np.clip(labels, *self.bounds) - self.center) / self.unit


def labels_by(objective: Objective, bounds: Any, intercept: bool) -> Labels:
    """How labels are clipped, and brought to one scale, by what is public of them: residuals of
    numbers have a deviation of about 1 then, if that is a quarter of their range."""
    if objective.task != "regression":
        if bounds is not None:
            raise ArgumentValueError("label_bounds", "are for a regression, not for classes")
        return Labels()
    if bounds is None:
        raise ArgumentValueError(
            "label_bounds", "must be given for a private regression: (low, high), known to everyone"
        )
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise ArgumentTypeError("label_bounds", f"must be two numbers, got {bounds!r}") from None
    low = check_real("label_bounds", low)
    high = check_real("label_bounds", high, low=low, open_low=True)
    if not isinstance(objective, (Huber, LeastSquares)):  # of labels in their units only
        return Labels(bounds=(low, high))
    if not intercept:
        return Labels(0.0, max(abs(low), abs(high)) / 2, (low, high))
    return Labels(low + (high - low) / 2, (high - low) / 4, (low, high))


def in_units_of(loss: Objective, unit: float) -> Objective:
    """The loss of labels divided by `unit`."""
    return loss.changed(delta=loss.delta / unit) if isinstance(loss, Huber) else loss


def coordinates(prepared: Prepared) -> Array:
    """What turns prepared columns into ones whose mean is about 0 and mean square about 1, and
    coefficients of these into those of the prepared ones, shape (p, p).

    It knows what was declared and no more: numbers within bounds are taken to have a standard
    deviation of a quarter of their range, and levels to be equally frequent.
    """
    rules = {rule.name: rule for rule in prepared.columns}
    centers, scales = [], []
    for feature in prepared.features:
        rule = rules[feature.column]
        center, scale = 0.0, 0.5 if rule.bounds is not None else 1.0
        if feature.part != "value":
            center = _MISSING if feature.part == "missing" else 1 / len(rule.levels or "01")
            scale = math.sqrt(center * (1 - center))
        centers.append(center)
        scales.append(scale)
    found = np.diag(1 / np.array([*scales, *[1.0] * prepared.intercept]))
    if prepared.intercept:
        found[-1, :-1] = -np.array(centers) / np.array(scales)
    return found


def bounds_of(prepared: Prepared, back: Array) -> Array:
    """Public bounds of columns in the coordinates `back`, as of `plan`: of numbers within bounds,
    of levels and of what is missing; where a mean was declared there are none to learn from."""
    rules = {rule.name: rule for rule in prepared.columns}
    found = []
    for feature in prepared.features:
        rule, low = rules[feature.column], 0.0
        if feature.part == "value":
            within = rule.bounds is not None or rule.kind == "boolean"
            low = -1.0 if within else -math.inf
        found.append((low, 1.0 if low > -math.inf else math.inf))
    low, high = np.array([*found, *[(1.0, 1.0)] * prepared.intercept]).T
    scale, shift = np.diag(back), back[-1] if prepared.intercept else np.zeros(len(back))
    shift = np.where(np.arange(len(back)) < len(prepared.features), shift, 0.0)
    return np.array([low * scale + shift, high * scale + shift])


def penalised(
    objective: Objective,
    prepared: Prepared,
    beta: float,
    classes: tuple[Any, ...] | None,
    units: Array | None,
) -> Objective:
    """The objective of a fit, whose penalty leaves the intercept alone; `units` are those in which
    it sees coefficients."""
    units = np.ones(len(prepared.feature_names)) if units is None else units
    named = zip(prepared.feature_names, units.tolist(), strict=True)
    weights = tuple(0.0 if name == INTERCEPT else unit**2 for name, unit in named)
    found = objective.changed(beta=beta, regularizer="beta", weights=weights)
    if found.task == "multiclass" and classes is not None:
        found = found.changed(classes=len(classes))
    return found
