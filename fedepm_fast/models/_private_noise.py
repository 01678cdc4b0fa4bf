"""What noise leaves in a private model, from what is public: its plan, the points of its rounds.

A plan takes the loss as curved as it is for classes of about the same size. Where one is rare it is
much flatter at the points that the rounds come to: they bring noise back more slowly, and the model
nearer to the optimum as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..losses import Objective
from ..privacy._settings import TYPICAL, of_average, pace, way_left
from ..privacy.private_plan import PrivatePlan, curvature_of

Array = NDArray[np.float64]

#: Rows that stand for all there may be, of columns that are independent and normal.
_ROWS = 1000
#: Share of the way, beyond what is planned to be left of it, that is worth a sentence where
#: the first uploads, whose rows are clipped, tell of a class that is rarer than that.
_MUCH, _RARE = 0.05, 0.1


class Left(NamedTuple):
    """What the rounds leave in a model."""

    covariance: Array
    """Of the noise in the coefficients of a column of mean square 1, output by output."""
    way: float
    """Share of the way to the optimum beyond what is planned to be left."""

    @property
    def deviation(self) -> float:
        """That of the noise in a coefficient of such a column, of several outputs as they are told:
        each against the first, in the mean."""
        if len(self.covariance) == 1:
            return float(np.sqrt(self.covariance[0, 0]))
        beside = np.eye(len(self.covariance))[1:] - np.eye(len(self.covariance))[0]
        return float(np.sqrt(np.einsum("ki,ij,kj->k", beside, self.covariance, beside).mean()))

    def note(self, null: Array) -> str:
        """What is to be known of the way, from margins of the shares of the classes."""
        if self.way < _MUCH:
            return ""
        margins = null if null.ndim else np.array([0.0, null])
        if (np.exp(margins) / np.exp(margins).sum()).min() > _RARE:
            return ""
        return (
            "a class is so rare that the loss is flat, and the rounds come less far than planned: "
            "coefficients of columns are nearer to 0 than those of a fit without privacy"
        )


def left_in(planned: PrivatePlan, points: Array, *, intercept: bool) -> Left:
    """What the rounds of a plan leave, if they came by `points`, shape (rounds + 1, K, p)."""
    settings, loss = planned.settings, planned.objective
    outputs = points.shape[1]
    same = np.eye(outputs)
    if planned.mechanism.neighbours == "client" or loss.task == "regression":
        return Left(planned.deviation**2 * same, 0.0)
    once = planned.deviation / of_average(1 - pace(settings), settings.rounds, settings.kept)
    step = pace(settings) / (TYPICAL * curvature_of(loss))
    rows = np.random.default_rng(0).standard_normal((_ROWS, points.shape[2]))
    if intercept:
        rows[:, -1] = 1.0
    # Rounds of some of the clients go as far as fewer ones of all.
    at = np.linspace(0, len(points) - 1, settings.rounds, endpoint=False).astype(int)
    covariance, later = 0.0 * same, 0.0 * same
    for t in range(settings.rounds)[::-1]:
        if t >= settings.rounds - settings.kept:
            later = later + same / settings.kept
        covariance = covariance + once**2 * later @ later.T
        later = later @ (same - step * _curvature(loss, rows @ points[at[t]].T))
    # That the loss is more curved at first moves the intercepts, and not yet the others.
    last = same - step * _curvature(loss, rows @ points[-1].T)
    every = range(settings.rounds - settings.kept + 1, settings.rounds + 1)
    left = np.mean([np.linalg.matrix_power(last, t) for t in every], axis=0)
    beside = same - 1 / outputs if outputs > 1 else same
    way = np.einsum("ki,ij,kj->k", beside, left, beside) / (beside**2).sum(axis=1)
    return Left(covariance, float(way.max()) - way_left(settings))


def _curvature(loss: Objective, margins: Array) -> Array:
    """The mean second derivative in the margins of rows, shape (K, K)."""
    if loss.n_outputs > 1:
        return loss.second_derivative(margins, np.zeros(len(margins))).mean(axis=0)
    t = margins[:, 0]
    both = [loss.second_derivative(t, np.full(len(t), label)).mean() for label in (0.0, 1.0)]
    return np.array([[np.mean(both)]])
