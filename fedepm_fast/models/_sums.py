"""What a client adds to the inference at a point: sums over its rows, and never a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import check_array, check_int, check_real, prefixed
from ..objectives._curvature import packed, second_moments, unpacked
from ..preparation._summary import check_format
from ._measures import poisson_deviance

if TYPE_CHECKING:
    from ..losses import Objective

Array = NDArray[np.float64]

#: Parameters up to which there are covariances.
UP_TO = 500
_FORMAT = "fedepm_fast sums of a client"
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


@dataclass(frozen=True, eq=False)
class ClientSums:
    """What one client adds to a model: its `PointSums`, its `LabelSums`, and a weight.

    Attributes
    ----------
    points : PointSums
    labels : LabelSums
    weight : float
        Sum of the weights of its rows in f.
    """

    points: PointSums
    labels: LabelSums
    weight: float

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON has them; symmetric matrices by their upper triangles."""
        matrices = {"hessian": self.points.hessian, "outer": self.points.outer}
        points = vars(self.points) | {"score": self.points.score.tolist()}
        points |= {k: None if a is None else packed(a).tolist() for k, a in matrices.items()}
        labels = vars(self.labels) | {"classes": self.labels.classes.tolist()}
        return {"format": _FORMAT, "version": 1, "points": points, "labels": labels,
                "weight": self.weight}  # fmt: skip

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], n: int) -> ClientSums:
        """Sums of a model of n parameters as `to_dict` wrote them, which are checked.

        Raises
        ------
        ValueError, TypeError
            If they are none, of another version, or not finite.
        """
        check_format(given, _FORMAT, 1)
        with prefixed("sums"):
            points, labels = dict(given["points"]), dict(given["labels"])
            matrices: dict[str, Any] = dict.fromkeys(("hessian", "outer"))
            for name in matrices if n <= UP_TO else ():
                upper = check_array(name, points[name], shape=(n * (n + 1) // 2,))
                matrices[name] = unpacked(upper, n)
            score = check_array("score", points["score"], shape=(n,))
            loss, deviance = (check_real(name, points[name]) for name in ("loss", "deviance"))
            rows = check_int("rows", labels.pop("rows"), low=1)
            classes = check_array("classes", labels.pop("classes"), ndim=1)
            numbers = {name: check_real(name, value) for name, value in labels.items()}
            return cls(
                PointSums(loss, deviance, score, **matrices),
                LabelSums(rows=rows, classes=classes, **numbers),
                check_real("weight", given["weight"], low=0.0),
            )


def point_sums(
    objective: Objective, features: Any, labels: Array, weights: Array, w: Array
) -> PointSums:
    """The sums of one client's rows, features (d_i, p), an array or of CSR, and w (K * p,)."""
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


def total(parts: Sequence[Any]) -> Any:
    """The sum of the clients' sums, in their order."""
    return reduce(lambda a, b: a + b, parts)
