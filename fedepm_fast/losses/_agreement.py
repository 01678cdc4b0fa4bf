"""Whether a loss's step on vectors is its NumPy functions: asked of a user's own losses."""

from __future__ import annotations

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

_agreed: set[tuple[type, str]] = set()


def check_step(objective: Objective, loss: Loss) -> None:
    """Compare the compiled `loss` with the NumPy one on a few rows; once for its parameters.

    Raises
    ------
    ValueError
        If they are not the same, or if the step adds something where there is no row.
    """
    kind = type(objective)
    key = kind, repr(objective.parameters)
    if key in _agreed:
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
