"""Whether a fit has a minimum: rows that columns separate have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._inference import contrasts

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


def unbounded(problem: Problem, w: Array) -> list[str]:
    """The columns whose coefficients grow without end; none where there is a minimum.

    At a point with next to no gradient a Newton step is next to nothing, unless the curvature
    vanishes alike, as it does far out along a direction that separates rows; and along that no
    row's loss rises.

    Parameters
    ----------
    problem : Problem
    w : ndarray of shape (n,)
        Where a search is, or ended.

    Returns
    -------
    list of str
        A few names of columns, those that move most first.
    """
    objective, data = problem.objective, problem.data
    if objective.name not in _FALLING or problem.reg.any():
        return []
    down = contrasts(objective.n_outputs, data.n_features)
    hessian = down.T @ problem.total_hessian(w) @ down
    step = down @ _newton_step(hessian, down.T @ problem.total_gradient(w))
    margins = problem.margins(data.features, w)
    with np.errstate(over="ignore", invalid="ignore"):
        change = -problem.margins(data.features, step)
        moves = np.abs(change).max()
    if not moves >= _MOVES:
        return []
    further = margins + change * (_FURTHER / moves)
    rise = objective.loss(further, data.labels) - objective.loss(margins, data.labels)
    if rise.max() > _RISE:
        return []  # some row is against it: there is a minimum, and this is not it yet
    names = data.feature_names or tuple(map(str, range(data.n_features)))
    sizes = np.abs(step.reshape(-1, data.n_features)).max(axis=0) * data.features.std(axis=0)
    order = np.argsort(-sizes, kind="stable")
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
