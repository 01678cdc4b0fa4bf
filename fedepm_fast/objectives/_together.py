"""Objectives and gradients of several clients at one point, and of some of a client's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ._problem import Problem

Array = NDArray[np.float64]


def by_kernels(problem: Problem, clients: NDArray[np.intp], x: Array) -> tuple[Array, Array]:
    """Compiled; rows must have no weights."""
    from ..kernels import losses

    c = problem.client_weights
    values, gradients = losses.values_and_gradients(
        problem.rows, x, clients=clients, reg=problem.reg / c, threads=1
    )
    return values * c[clients], gradients * c[clients, None]


def by_numpy(problem: Problem, clients: NDArray[np.intp], x: Array) -> tuple[Array, Array]:
    """The loss and its derivative of all rows at once; sums client by client, as one alone."""
    values, gradients = np.empty(len(clients)), np.empty((len(clients), len(x)))
    if len(clients) == 0:
        return values, gradients
    chosen = clients.tolist()
    features, labels = zip(*map(problem.data.client, chosen), strict=True)
    margins = np.concatenate([problem.margins(a, x) for a in features])
    b = np.concatenate(labels)
    losses, slopes = problem.objective.loss(margins, b), problem.objective.derivative(margins, b)
    ends = np.cumsum([len(own) for own in labels]).tolist()
    for k, (i, first, last) in enumerate(zip(chosen, [0, *ends], ends, strict=False)):
        values[k] = problem.value_of(i, losses[first:last], x)
        gradients[k] = problem.gradient_of(i, features[k], slopes[first:last], x)
    return values, gradients


def of_batch(problem: Problem, i: int, w: Array, rows: NDArray[np.intp]) -> Array:
    """As `Problem.batch_gradient` says. Over equal batches of all rows its mean is that of f_i."""
    a, b = problem.data.client(i)
    a = a[rows]
    slopes = problem.objective.derivative(problem.margins(a, w), b[rows])
    share = problem.row_weights[problem.data.rows_of(i)][rows] * (len(b) / len(rows))
    pulled = problem.pull_back(a, (slopes.T * share).T)
    return pulled + problem.reg[i] * (problem.reg_weights * w)


def accuracies(problem: Problem, points: Array) -> Array:
    """As `Problem.accuracies` says, of classes."""
    if problem.data.sample_weight is not None:
        return np.array([problem.accuracy(x) for x in points], np.float64)
    from ..kernels import accuracy

    counts = accuracy.wrong_and_ties(problem.rows, points)
    # A row on the border counts as label 0.
    if np.count_nonzero(counts[:, 1]):
        for t in np.flatnonzero(counts[:, 1]):
            counts[t, 0] = np.sum((problem.data.features @ points[t] > 0) != problem.data.labels)
    return 1.0 - counts[:, 0] / problem.data.n_samples
