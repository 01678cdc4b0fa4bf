"""Whether a loss's functions agree with each other: asked of a user's own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..kernels.losses import Loss
    from ._base import Array, Objective

#: Labels that losses are tried with, where they take them; those of classes are all there are.
_LABELS = {"reals": (-1.3, 0.0, 0.37, 2.0), "counts": (0.0, 1.0, 3.0), "binary": (0.0, 1.0)}
#: Margins: off round numbers, where losses have their kinks.
_MARGINS = (-3.1379, -0.4217, 0.1783, 0.9533, 2.9471)
#: Largest relative differences, the second where there is no row.
_ROUNDING, _NOTHING = 1e-8, 1e-12
#: Of central differences: a part in 1e10 in truncation and in rounding.
_STEP = 1e-5

_agreed: set[tuple[type, str]] = set()
_derived: set[tuple[type, str]] = set()


def slope_of(
    function: Callable[[Array, Array], Any], t: Array, b: Array, column: int | None = None
) -> Any:
    """Central differences of ``function(t, b)`` in t, or in one column of t."""
    moved = ... if column is None else (..., column)
    h = np.zeros_like(t)
    h[moved] = _STEP * np.maximum(1.0, np.abs(t[moved]))
    above, below = t + h, t - h
    rise = np.asarray(function(above, b)) - np.asarray(function(below, b))
    width = (above - below)[moved]
    return rise / width.reshape(width.shape + (1,) * (rise.ndim - width.ndim))


def is_slope(numeric: Any, value: Any, slope: Any) -> Any:
    """Where `slope` is such a difference of `value` to rounding, or nothing can be told."""
    size = 1 + np.abs(value) + np.abs(numeric)
    return (np.abs(numeric - slope) <= 1e-6 * size) | ~np.isfinite(size)


def check_derivatives(objective: Objective) -> None:
    """Compare a user's NumPy functions with differences, once for the loss's parameters.

    Raises
    ------
    ValueError
        If `derivative` is not the derivative of `loss`, or `second_derivative` not that of
        `derivative`, where there is one.
    """
    kind = type(objective)
    if _is_built_in(kind) or (key := (kind, repr(objective.parameters))) in _derived:
        return
    t, b = _rows(objective)
    if t.shape[1] == 1:
        t = t[:, 0]
    for name, slope in (("loss", "derivative"), ("derivative", "second_derivative")):
        with np.errstate(all="ignore"):
            try:
                value, given = (np.asarray(getattr(objective, f)(t, b)) for f in (name, slope))
            except NotImplementedError:  # which Newton's steps alone need
                break
            _check_slope(objective, name, slope, t, b, value, given)
    _derived.add(key)


def _check_slope(
    objective: Objective, name: str, slope: str, t: Array, b: Array, value: Any, given: Any
) -> None:
    kind = type(objective).__name__
    for column in [None] if t.ndim == 1 else range(t.shape[1]):
        numeric = slope_of(getattr(objective, name), t, b, column)
        part = given if t.ndim == 1 else given[..., column]
        if part.shape != numeric.shape:
            wanted = (*numeric.shape, *t.shape[1:])
            raise ValueError(
                f"{kind}.{slope} must give an array of shape {wanted} for margins of shape "
                f"{t.shape}, got {given.shape}"
            )
        wrong = ~is_slope(numeric, value, part)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            i = at[0]
            where = ", ".join(f"{margin:g}" for margin in np.atleast_1d(t[i]))
            raise ValueError(
                f"{kind}.{slope} must be the derivative of {kind}.{name} in t: at t = {where}, "
                f"b = {b[i]:g} it is {part[at]:.6g}, the central difference {numeric[at]:.6g}"
            )


def _is_built_in(kind: type) -> bool:
    return kind.__module__.startswith(f"{__package__}.")


def check_step(objective: Objective, loss: Loss) -> None:
    """Compare the compiled `loss` with the NumPy one on a few rows; once for its parameters.

    Raises
    ------
    ValueError
        If they are not the same, or if the step adds something where there is no row.
    """
    kind = type(objective)
    if _is_built_in(kind) or (key := (kind, repr(objective.parameters))) in _agreed:
        return
    from ..kernels.losses._trial import try_step

    t, b = _rows(objective)
    values, slopes = try_step(loss, t, b, objective.parameter)
    step = f"the step of {kind.__name__}.lanes()"
    nothing = np.append(slopes[-1], values[-1])
    if not (np.abs(nothing) <= _NOTHING).all():
        raise ValueError(
            f"{step} must add nothing where there is no row, at (no_margin, no_target) = "
            f"({loss.no_margin:g}, {loss.no_target:g}), but adds a loss of {values[-1]:.6g}, with "
            f"a derivative of {slopes[-1, 0]:.6g}"
        )
    shape = t.shape if t.shape[1] > 1 else b.shape
    with np.errstate(all="ignore"):
        want = objective.loss(t.reshape(shape), b), objective.derivative(t.reshape(shape), b)
    for name, got, numpy in zip(("loss", "derivative"), (values, slopes), want, strict=True):
        _compare(f"{step} must give the {name} that {kind.__name__}.{name} gives", t, b, got, numpy)
    _agreed.add(key)


def _rows(objective: Objective) -> tuple[Array, Array]:
    """Margins, shape (d, K), and labels."""
    outputs = objective.n_outputs
    labels = np.arange(outputs) if objective.labels == "classes" else _LABELS[objective.labels]
    taken = [b for b in labels if outputs > 1 or _takes(objective, float(b))]
    b = np.repeat(np.array(taken, np.float64), len(_MARGINS))
    t = np.resize(_MARGINS, (len(b), outputs))
    return t, b


def _takes(objective: Objective, label: float) -> bool:
    try:
        objective.fit_to_labels(np.array([label]))
    except ValueError:
        return False
    return True


def _compare(rule: str, t: Array, b: Array, got: Array, want: Any) -> None:
    got = got[:-1].reshape(len(b), -1)
    want = np.asarray(want, np.float64).reshape(got.shape)
    far = ~(np.abs(got - want) <= _ROUNDING * (1 + np.abs(want))) & np.isfinite(want)
    if far.any():
        i, k = np.argwhere(far)[0]
        at = ", ".join(f"{margin:g}" for margin in t[i])
        raise ValueError(
            f"{rule}: at t = {at}, b = {b[i]:g} it gives {got[i, k]:.6g}, NumPy {want[i, k]:.6g}"
        )
