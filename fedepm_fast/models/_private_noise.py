"""What noise leaves in a private model, from what is public: its plan, the points of its rounds.

A plan takes the loss as curved as it is for classes of about the same size. Where one is rare it is
much flatter at the points that the rounds come to: they bring noise back more slowly, and the model
nearer to the optimum as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..losses import Objective
from ..privacy._settings import TYPICAL, of_average, pace, way_left
from ..privacy.private_plan import PrivatePlan, curvature_of

Array = NDArray[np.float64]

#: Rows that stand for all there may be, of columns that are independent and normal.
_ROWS = 1000
#: Coefficients up to which curvature is followed from one to another.
_MOST = 200
#: Share of the way, beyond what is planned to be left of it, that is worth a sentence where
#: the first uploads, whose rows are clipped, tell of a class that is rarer than that.
_MUCH, _RARE = 0.05, 0.1


class Left(NamedTuple):
    """What the rounds leave in a model."""

    covariance: Array
    """Of the noise in the coefficients of columns of mean square 1, shape (K, p, K, p); or
    (K, 1, K, 1), the same in every column, which know nothing of each other."""
    way: float
    """Share of the way to the optimum beyond what is planned to be left."""

    def deviations(self, back: Array) -> Array:
        """Of the noise in coefficients that `back` (p, p) makes of these, shape (p,); of several
        outputs as they are told: each against the first, in the mean."""
        outputs = len(self.covariance)
        beside = np.eye(1)
        if outputs > 1:
            beside = np.eye(outputs)[1:] - np.eye(outputs)[0]
        told = np.einsum("ki,iajb,kj->ab", beside, self.covariance, beside) / len(beside)
        if told.size == 1:
            return np.asarray(math.sqrt(told[0, 0]) * np.linalg.norm(back, axis=1))
        return np.sqrt(np.einsum("ij,ij->i", back @ told, back))

    def variance(self, columns: int) -> float:
        """Of the noise in all outputs' coefficients of one of the first columns, in the mean."""
        of_each = np.einsum("kaka->a", self.covariance)
        return float(of_each[: columns or None].mean())

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
    same, p = np.eye(outputs), points.shape[2]
    if planned.mechanism.neighbours == "client" or loss.task == "regression":
        return Left(planned.deviation**2 * same[:, None, :, None], 0.0)
    once = planned.deviation / of_average(1 - pace(settings), settings.rounds, settings.kept)
    step = pace(settings) / (TYPICAL * curvature_of(loss))
    rows = np.random.default_rng(0).standard_normal((_ROWS, p))
    if intercept:
        rows[:, -1] = 1.0
    # Rounds of some of the clients go as far as fewer ones of all.
    at = np.linspace(0, len(points) - 1, settings.rounds, endpoint=False).astype(int)
    # Where a class is rare its rows are far out along the coefficients, so that these and the
    # intercept share what curvature there is; of many columns that is not followed.
    together = outputs * p <= _MOST
    every = np.eye(outputs * p if together else outputs)
    covariance, later = 0.0 * every, 0.0 * every
    for t in range(settings.rounds)[::-1]:
        if t >= settings.rounds - settings.kept:
            later = later + every / settings.kept
        covariance = covariance + once**2 * later @ later.T
        later = later @ (every - step * _hessian(loss, rows, points[at[t]], together))
    # That the loss is more curved at first moves the intercepts, and not yet the others.
    last = same - step * _curvature(loss, rows @ points[-1].T)
    averaged = range(settings.rounds - settings.kept + 1, settings.rounds + 1)
    left = np.mean([np.linalg.matrix_power(last, t) for t in averaged], axis=0)
    beside = same - 1 / outputs if outputs > 1 else same
    way = np.einsum("ki,ij,kj->k", beside, left, beside) / (beside**2).sum(axis=1)
    of_each = covariance.reshape(outputs, -1, outputs, len(every) // outputs)
    return Left(of_each, float(way.max()) - way_left(settings))


def _hessian(loss: Objective, rows: Array, w: Array, together: bool) -> Array:
    """The mean Hessian at w (K, p) of rows (d, p), of all coefficients `together` or of those of
    one column."""
    outputs, p = w.shape
    bend = _second_derivatives(loss, rows @ w.T)
    if not together:
        return np.einsum("tkh,t->kh", bend, (rows**2).mean(axis=1)) / len(rows)
    blocks = np.einsum("tkh,ta->kaht", bend, rows).reshape(outputs * p, outputs, -1) @ rows
    return blocks.reshape(outputs * p, outputs * p) / len(rows)


def _curvature(loss: Objective, margins: Array) -> Array:
    """The mean second derivative in the margins of rows, shape (K, K)."""
    return _second_derivatives(loss, margins).mean(axis=0)


def _second_derivatives(loss: Objective, margins: Array) -> Array:
    """Those of the rows, shape (d, K, K), of two classes in the mean over both."""
    if loss.n_outputs > 1:
        return loss.second_derivative(margins, np.zeros(len(margins)))
    t = margins[:, 0]
    both = [loss.second_derivative(t, np.full(len(t), label)) for label in (0.0, 1.0)]
    return np.mean(both, axis=0)[:, None, None]
