"""How well margins agree with labels: the measures of held-out rows, in NumPy.

Margins are those of the loss, ``<a, w>`` with the intercept; labels are coded as losses read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..losses import Objective

Array = NDArray[np.float64]
#: Measures by name; None where one does not exist, the AUC of one class for instance.
Measures = dict[str, float | int | None]

#: Losses that are negative log-likelihoods, up to what does not depend on the margins.
LIKELIHOODS = ("logistic", "multinomial", "least_squares", "poisson")


def measures(
    objective: Objective,
    margins: Array,
    labels: Array,
    null: Array,
    weights: Array | None = None,
) -> Measures:
    """Measures of rows, beside those of a model that knows no columns.

    Parameters
    ----------
    objective : Objective
    margins : ndarray of shape (d,) or (d, K)
    labels : ndarray of shape (d,)
        Coded: 0 and 1, 0 to K - 1, or numbers.
    null : ndarray of shape () or (K,)
        Margins of the model of an intercept alone, as fitted to the rows of the training.
    weights : ndarray of shape (d,), optional
        Of the rows, above 0: every mean and share is weighted by them. All 1 by default.

    Returns
    -------
    dict
        ``rows`` and, for two classes, ``positives`` (share of label 1), ``log_loss``, ``auc``,
        ``brier``, ``accuracy``, ``calibration_slope`` and ``calibration_intercept``; for more
        classes the same without calibration, with the mean of the classes' AUC against the rest;
        for numbers ``mean``, ``rmse``, ``mae``, ``r2`` and calibration; for counts also
        ``deviance``, the mean of the rows'. A name that ends in ``_null`` is of the null model.
    """
    rows: Measures = {"rows": len(labels)}
    constant = np.broadcast_to(null, margins.shape)
    if objective.task == "regression":
        return rows | _of_numbers(objective, margins, labels, constant, weights)
    found = _of_classes(objective, margins, labels, weights)
    plain = _of_classes(objective, constant, labels, weights)
    for name in ("log_loss", "brier", "accuracy"):
        if name in found:
            found[f"{name}_null"] = plain[name]
    return rows | found


def _mean(values: Array, weights: Array | None) -> float:
    return float(np.average(values, weights=weights))


def _of_classes(
    objective: Objective, margins: Array, labels: Array, weights: Array | None
) -> Measures:
    two = margins.ndim == 1
    found: Measures = {"positives": _mean(labels, weights)} if two else {}
    found["accuracy"] = _mean(objective.predict(margins) == labels, weights)
    if two:
        found["auc"] = auc(margins, labels, weights)
    if objective.name not in LIKELIHOODS:  # its margins say nothing of probabilities
        return found
    found["log_loss"] = _mean(objective.loss(margins, labels), weights)
    p = probabilities(margins)
    if two:
        found["brier"] = _mean((p[:, 1] - labels) ** 2, weights)
        slope, intercept = calibration(objective, margins, labels, weights)
        return found | {"calibration_slope": slope, "calibration_intercept": intercept}
    own = np.arange(p.shape[1]) == labels[:, None]
    each = [auc(p[:, k], own[:, k].astype(float), weights) for k in range(p.shape[1])]
    known = [a for a in each if a is not None]
    found["auc"] = float(np.mean(known)) if len(known) == len(each) else None
    found["brier"] = _mean(np.sum((p - own) ** 2, axis=1), weights)
    return found


def _of_numbers(
    objective: Objective, margins: Array, labels: Array, null: Array, weights: Array | None
) -> Measures:
    predicted, plain = objective.predict(margins), objective.predict(null)
    error = predicted - labels
    count = np.ones(len(labels)) if weights is None else weights
    mean = _mean(labels, weights)
    around = float(np.sum(count * (labels - mean) ** 2))
    slope, intercept = calibration(objective, margins, labels, weights)
    found: Measures = {
        "mean": mean,
        "rmse": float(np.sqrt(_mean(error**2, weights))),
        "mae": _mean(np.abs(error), weights),
        "r2": 1 - float(np.sum(count * error**2)) / around if around > 0 else None,
        "calibration_slope": slope,
        "calibration_intercept": intercept,
        "rmse_null": float(np.sqrt(_mean((plain - labels) ** 2, weights))),
        "mae_null": _mean(np.abs(plain - labels), weights),
    }
    if objective.labels == "counts":
        found["deviance"] = _mean(poisson_deviance(margins, labels), weights)
        found["deviance_null"] = _mean(poisson_deviance(null, labels), weights)
    return found


def probabilities(margins: Array) -> Array:
    """Probabilities of the classes, shape (d, K); two for margins of shape (d,)."""
    from scipy.special import expit, softmax

    if margins.ndim == 1:
        return np.column_stack([expit(-margins), expit(margins)])
    return softmax(margins, axis=1)


def auc(score: Array, labels: Array, weights: Array | None = None) -> float | None:
    """Probability that a row of label 1 scores above one of label 0, ties counting half.

    With weights, of rows that are drawn in proportion to them. None where there is one class only.
    """
    positive = labels == 1
    if weights is not None:
        return _weighted_auc(score, positive, weights)
    ones = np.sort(score[positive])
    zeros = np.sort(score[~positive])
    if not len(ones) or not len(zeros):
        return None
    below = np.searchsorted(zeros, ones, "left").sum() + np.searchsorted(zeros, ones, "right").sum()
    return float(below / (2 * len(ones) * len(zeros)))


def _weighted_auc(score: Array, positive: NDArray[np.bool_], weights: Array) -> float | None:
    if positive.all() or not positive.any():
        return None
    order = np.argsort(score[~positive], kind="stable")
    zeros, below = score[~positive][order], np.append(0.0, np.cumsum(weights[~positive][order]))
    ones, own = score[positive], weights[positive]
    under = below[np.searchsorted(zeros, ones, "left")]
    upto = below[np.searchsorted(zeros, ones, "right")]
    return float(own @ (under + upto) / (2 * own.sum() * below[-1]))


def poisson_deviance(margins: Array, labels: Array) -> Array:
    """The deviance of counts from means ``exp(margins)``, row by row."""
    from scipy.special import xlogy

    return 2 * (xlogy(labels, labels) - labels * margins - labels + np.exp(margins))


def calibration(
    objective: Objective, margins: Array, labels: Array, weights: Array | None = None
) -> tuple[float | None, float | None]:
    """The calibration of margins: a slope, and an intercept beside a slope of 1.

    The slope is that of the labels' regression on the margins, 1 for a calibrated model and below
    for one that claims too much; the intercept is that of a regression with the margins as they
    are, 0 where the mean of what is predicted is right. The regression is logistic, Poisson, or
    least squares for any other loss of numbers. Each is None where there is none: with
    one class, margins that are all the same or that separate the classes, or counts that are all
    zero.
    """
    from ..losses.least_squares import LeastSquares

    if objective.name not in LIKELIHOODS:
        objective = LeastSquares()
    slope: float | None = None
    intercept: float | None = None
    if objective.task != "regression":
        low, high = margins[labels == 0], margins[labels == 1]
        if not len(low) or not len(high):
            return None, None
        flat = low.max() <= high.min() or high.max() <= low.min()
    else:
        if objective.labels == "counts" and not labels.any():
            return None, None
        flat = False
    with np.errstate(over="ignore", invalid="ignore"):
        alone = _minimum(objective, np.ones((len(labels), 1)), margins, labels, weights)
        intercept = None if alone is None else float(alone[0])
        center = _mean(margins, weights)
        spread = float(np.sqrt(_mean((margins - center) ** 2, weights)))
        if not flat and spread > 1e-12 * (1 + float(np.abs(margins).max())):
            # In units of the spread about their mean, where the search is well conditioned.
            across = np.column_stack([(margins - center) / spread, np.ones(len(labels))])
            line = _minimum(objective, across, np.zeros(len(labels)), labels, weights)
            slope = None if line is None else float(line[0] / spread)
    return slope, intercept


def _minimum(
    objective: Objective, columns: Array, offset: Array, labels: Array, weights: Array | None
) -> Array | None:
    """The few coefficients beside an offset that minimise a loss, by Newton; None if singular."""
    counts = columns if weights is None else columns * (weights / weights.mean())[:, None]
    found = np.zeros(columns.shape[1])

    def value(at: Array) -> float:
        return _mean(objective.loss(columns @ at + offset, labels), weights)

    now = value(found)
    for _ in range(100):
        t = columns @ found + offset
        gradient = counts.T @ objective.derivative(t, labels)
        hessian = counts.T @ (columns * objective.second_derivative(t, labels)[:, None])
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            return None
        share = 1.0
        while not (ahead := value(found - share * step)) <= now:
            share /= 2
            if share < 1e-6:  # as low as rounding lets it be
                return found
        found, now = found - share * step, ahead
        if np.abs(step).max() <= 1e-10 * (1 + np.abs(found).max()):
            return found
    return None
