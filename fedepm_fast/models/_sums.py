"""What a client adds to the inference at a point: sums over its rows, and never a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._measures import poisson_deviance

if TYPE_CHECKING:
    from ..losses import Objective

Array = NDArray[np.float64]

#: Parameters up to which there are covariances.
UP_TO = 500
#: Stands for a share of nothing, or a mean count of zero, whose logarithm is no number.
_LEAST = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class LabelSums:
    """Sums of one client's labels, or of several clients': of the model without columns.

    Attributes
    ----------
    rows : int
    weight : float
        Sum of the rows' weights.
    mean, spread : float
        Of the labels, and the weighted sum of squares about it.
    classes : ndarray of shape (K,)
        Sums of weights by class; empty for numbers.
    constant : float
        Of counts b, the weighted sum of ``b*log(b)``.
    factorials : float
        Of counts, the weighted sum of ``log(b!)``.
    """

    rows: int
    weight: float
    mean: float
    spread: float
    classes: Array
    constant: float = 0.0
    factorials: float = 0.0

    @classmethod
    def of(cls, objective: Objective, labels: Array, weights: Array) -> LabelSums:
        """Of one client's rows."""
        weight = float(weights.sum())
        mean = float(weights @ labels) / weight if weight else 0.0
        spread = float(weights @ (labels - mean) ** 2)
        outputs = {"classification": 2, "multiclass": objective.n_outputs}.get(objective.task, 0)
        classes = np.empty(0)
        if outputs:
            classes = np.bincount(labels.astype(int), weights, outputs).astype(np.float64)
        if objective.labels != "counts":
            return cls(len(labels), weight, mean, spread, classes)
        from scipy.special import gammaln, xlogy

        constant, factorials = weights @ xlogy(labels, labels), weights @ gammaln(labels + 1)
        return cls(len(labels), weight, mean, spread, classes, float(constant), float(factorials))

    def __add__(self, other: LabelSums) -> LabelSums:
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        apart = other.mean - self.mean
        return LabelSums(
            self.rows + other.rows,
            weight,
            self.mean + share * apart,
            self.spread + other.spread + self.weight * share * apart**2,
            self.classes + other.classes,
            self.constant + other.constant,
            self.factorials + other.factorials,
        )

    def null(self, objective: Objective) -> Array:
        """Margins of the model of an intercept alone: shape (), or (K,) for several classes.

        For losses that are no likelihood: the larger class, or the mean.
        """
        shares = np.log(np.maximum(self.classes / self.weight, _LEAST))
        if objective.task == "multiclass":
            return shares
        if objective.task == "classification":
            apart = shares[1] - shares[0]
            return np.array(apart if objective.name == "logistic" else np.sign(apart))
        counts = objective.labels == "counts"
        return np.array(np.log(max(self.mean, _LEAST)) if counts else self.mean)

    def null_deviance(self, objective: Objective) -> float:
        """The deviance of that model."""
        from scipy.special import xlogy

        if len(self.classes):
            return float(-2 * xlogy(self.classes, self.classes / self.weight).sum())
        if objective.labels == "counts":
            return 2 * (self.constant - self.weight * float(xlogy(self.mean, self.mean)))
        return self.spread


@dataclass(frozen=True, eq=False)
class PointSums:
    """Sums of one client's rows at a point w of n parameters, each row with its weight.

    Attributes
    ----------
    loss, deviance : float
        Deviance of counts; twice the loss of any other loss.
    score : ndarray of shape (n,)
        Sum of the rows' gradients.
    hessian, outer : ndarray of shape (n, n), or None
        Sum of the rows' Hessians, and of their gradients times themselves with the squares of
        the weights; None beyond `UP_TO` parameters.
    """

    loss: float
    deviance: float
    score: Array
    hessian: Array | None
    outer: Array | None


def point_sums(
    objective: Objective, features: Array, labels: Array, weights: Array, w: Array
) -> PointSums:
    """The sums of one client's rows, features (d_i, p) and w (K * p,)."""
    outputs = objective.n_outputs
    t = features @ (w if outputs == 1 else w.reshape(outputs, -1).T)
    losses = objective.loss(t, labels)
    slopes = objective.derivative(t, labels).reshape(-1, outputs)
    deviance = poisson_deviance(t, labels) if objective.labels == "counts" else 2 * losses
    weighted = slopes * weights[:, None]
    hessian = outer = None
    if len(w) <= UP_TO:
        curvature = objective.second_derivative(t, labels).reshape(-1, outputs, outputs)
        hessian = second_moments(features, curvature * weights[:, None, None])
        outer = second_moments(features, weighted[:, :, None] * weighted[:, None, :])
    return PointSums(
        float(weights @ losses), float(weights @ deviance), (features.T @ weighted).T.ravel(),
        hessian, outer,
    )  # fmt: skip


def second_moments(features: Array, weights: Array) -> Array:
    """Sums of rows times themselves, (K * p, K * p), for symmetric weights of shape (d, K, K)."""
    p, outputs = features.shape[1], weights.shape[1]
    found = np.empty((outputs, p, outputs, p))
    for k in range(outputs):
        for h in range(k + 1):
            block = features.T @ (features * weights[:, k, h, None])
            found[k, :, h] = found[h, :, k] = block
    return found.reshape(outputs * p, outputs * p)


def total(parts: Sequence[Any]) -> Any:
    """The sum of the clients' sums, in their order."""
    return reduce(lambda a, b: a + b, parts)
