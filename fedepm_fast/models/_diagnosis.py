"""Whether a fit has a minimum: rows that columns separate have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._inference import Fitted, _contrasts
from ._sums import PointSums, total

if TYPE_CHECKING:
    from ..objectives import Problem
    from ._solving import Solution

Array = NDArray[np.float64]

#: Losses that fall without end along coefficients that separate rows.
_FALLING = ("logistic", "multinomial", "poisson")
#: How far margins still move in a Newton step where there is no minimum: by about 1 for rows that
#: are separated, and next to nothing at a minimum.
_MOVES = 0.1
#: How far along such a step no row's loss may rise, and by how much it counts as rising.
_FURTHER, _RISE = 5.0, 0.25
#: Share of the largest part of such a step that names a column.
_PART = 0.2
_NAMED = 4


def unbounded(
    fitted: Fitted,
    points: Sequence[PointSums],
    problem: Problem,
) -> list[str]:
    """The columns whose coefficients grow without end; none where there is a minimum.

    At a point with next to no gradient a Newton step is next to nothing, unless the curvature
    vanishes alike, as it does far out along a direction that separates rows; and along that no
    row's loss rises.

    Parameters
    ----------
    fitted : Fitted
    points : sequence of PointSums
        Of every client, at ``fitted.w``.
    problem : Problem
        With the rows of all clients.

    Returns
    -------
    list of str
        A few, those that move most first.
    """
    objective, p = fitted.objective, len(fitted.units)
    features, labels = problem.data.features, problem.data.labels
    if objective.name not in _FALLING or fitted.penalty.any():
        return []
    down, _ = _contrasts(objective.n_outputs, np.eye(p))
    scored = zip(fitted.factors, points, strict=True)
    gradient = total([f * s.score for f, s in scored])
    hessian = total([f * s.hessian for f, s in zip(fitted.factors, points, strict=True)])
    margins = problem.margins(features, fitted.w)
    step = down @ _newton_step(down.T @ hessian @ down, down.T @ gradient)
    parts = step.reshape(-1, p)
    with np.errstate(over="ignore", invalid="ignore"):
        change = -features @ parts.T
        moves = np.abs(change).max()
    if not moves >= _MOVES:
        return []
    further = (change * (_FURTHER / moves)).reshape(margins.shape)
    rise = objective.loss(margins + further, labels) - objective.loss(margins, labels)
    if rise.max() > _RISE:
        return []  # some row is against it: there is a minimum, and this is not it yet
    sizes = np.abs(parts).max(axis=0) * features.std(axis=0)
    order = np.argsort(-sizes, kind="stable")
    names = problem.data.feature_names or ()
    return [names[j] for j in order[:_NAMED] if sizes[j] > _PART * sizes[order[0]]]


def _newton_step(hessian: Array, gradient: Array) -> Array:
    """A Newton step; where the curvature is rounding, 1 along the flattest direction."""
    root = np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(hessian / root[:, None] / root)
    flattest = vectors[:, 0] / root
    if not values[0] > 1e-15 * values[-1]:
        return flattest / np.abs(flattest).max()
    return (vectors @ ((vectors.T @ (gradient / root)) / values)) / root


def notes_of(solution: Solution, blamed: Sequence[str], objective: Any) -> list[str]:
    """What is to be known of a fit, in plain words."""
    found = []
    if blamed:
        told = ", ".join(blamed)
        what = "counts of zero" if objective.name == "poisson" else "the classes"
        found.append(
            f"the rows have no best coefficients: {told} can tell {what} of some rows apart "
            "without error, so that coefficients grow without bound and standard errors mean "
            "nothing; leave such columns out, join rare levels, or give a penalty (beta)"
        )
    elif not solution.converged:
        rounds = f"{solution.rounds} round{'s' * (solution.rounds != 1)}"
        found.append(
            f"the fit did not converge in {rounds}: the gradient's norm is "
            f"{solution.gradient_norm:.2g}, so the coefficients are not those of the optimum; "
            "allow more rounds (max_rounds)"
        )
    return found
