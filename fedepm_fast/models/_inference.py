"""Standard errors and the measures of a fit, from what the clients add up.

With A the Hessian of what is minimised, of all rows together, the covariance of its minimiser is
``A^-1 B A^-1``, and the kinds differ in B:

``wald``
    the likelihood's own: the sum of the clients' Hessians times the dispersion, so that without a
    penalty and with every row weighing alike the covariance is the inverse of the Hessian times
    the dispersion;
``robust``
    the sum over rows of gradients times themselves, times ``d / (d - k)`` (HC1);
``clustered``
    the sum over clients of the sums of their rows' gradients times themselves, times
    ``m / (m - 1) * (d - 1) / (d - k)``.

d are the rows, m the clients and k the parameters. Weights of rows count for the likelihood as
numbers of equal rows, and for the other two kinds as weights of a sample, as in surveys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ._measures import LIKELIHOODS
from ._sums import UP_TO, LabelSums, PointSums

if TYPE_CHECKING:
    from ..losses import Objective

Array = NDArray[np.float64]

KINDS = ("wald", "robust", "clustered")
#: Smallest eigenvalue of a Hessian, scaled to a diagonal of ones, that is not rounding.
_SINGULAR = 1e-13


@dataclass(frozen=True, eq=False)
class Inference:
    """What the sums of the clients say of a fit.

    Attributes
    ----------
    covariances : dict of ndarray
        By kind: shape (k, k), in the units of the table; of several classes each against the
        first.
    missing : dict of str
        Why there is none, for the kinds that there is none of.
    dispersion : float or None
        Of least squares the residual variance; None for other losses, where it is 1.
    df_residual : float
        Rows minus parameters.
    clusters : int
        Clients.
    deviance, null_deviance, log_likelihood, aic : float or None
        None where the loss is no likelihood, or rows weigh by their class; the last also where
        the likelihood is not what is maximised, with a penalty or clients that weigh alike.
    likelihood : bool
        Whether the loss is one.
    """

    covariances: dict[str, Array]
    missing: dict[str, str]
    dispersion: float | None
    df_residual: float
    clusters: int
    deviance: float | None
    null_deviance: float | None
    log_likelihood: float | None
    aic: float | None
    likelihood: bool

    @property
    def default(self) -> str | None:
        """The first kind that there is; None if the loss is no likelihood."""
        return next(iter(self.covariances), None) if self.likelihood else None

    def df(self, kind: str) -> float:
        """Degrees of freedom of Student's distribution, which a kind's intervals follow.

        Clients minus 1 for clustered ones, rows minus parameters for least squares, and infinite,
        which is the normal distribution, for other losses.
        """
        if kind == "clustered":
            return self.clusters - 1
        return self.df_residual if self.dispersion is not None else math.inf


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was minimised, and where its minimum is.

    Attributes
    ----------
    objective : Objective
    w : ndarray of shape (K * p,)
    factors : ndarray of shape (m,)
        What a client's rows count, 1 each where rows count alike.
    penalty : ndarray of shape (K * p,)
        Weights of the squares in the penalty, beside the sum over rows.
    units : ndarray of shape (p, p)
        From coefficients of w to those of the table; not used beyond `UP_TO` parameters.
    class_weighted : bool
        Whether rows weigh by their class.
    """

    objective: Objective
    w: Array
    factors: Array
    penalty: Array
    units: Array
    class_weighted: bool

    @property
    def maximises_likelihood(self) -> bool:
        """Whether w is the maximum of the pooled rows' likelihood."""
        alike = bool(np.allclose(self.factors, 1.0, rtol=1e-12, atol=0))
        likelihood = self.objective.name in LIKELIHOODS
        return likelihood and alike and not self.penalty.any() and not self.class_weighted


def infer(fitted: Fitted, points: Iterable[PointSums], labels: LabelSums) -> Inference:
    """The inference of a fit.

    Parameters
    ----------
    fitted : Fitted
    points : iterable of PointSums
        Of every client, at ``fitted.w``; one at a time is held.
    labels : LabelSums
        Of all clients.
    """
    objective = fitted.objective
    likelihood = objective.name in LIKELIHOODS
    outputs = max(objective.n_outputs - 1, 1)
    k = outputs * (len(fitted.w) // objective.n_outputs)
    left = labels.weight - k
    told = _added(fitted, points)
    deviance = sum(told.deviances)
    dispersion: float | None = None
    missing: dict[str, str] = {}
    if not likelihood:
        missing["wald"] = f"the loss {objective.name} is no likelihood"
    elif fitted.class_weighted:
        missing["wald"] = "with class_weight it is no likelihood that is maximised"
    if objective.name == "least_squares":
        if left > 0:
            dispersion = deviance / left
        else:
            missing["wald"] = f"{labels.weight:g} rows leave nothing to judge {k} parameters by"
    if len(told.deviances) < 2:
        missing["clustered"] = "there is one client only"
    if labels.rows <= k:
        for kind in ("robust", "clustered"):
            missing.setdefault(kind, f"{labels.rows} rows are too few for {k} parameters")
    covariances = _covariances(fitted, told, dispersion, labels.rows, missing)
    found: dict[str, float | None] = dict.fromkeys(
        ("deviance", "null_deviance", "log_likelihood", "aic")
    )
    if likelihood and not fitted.class_weighted:
        found["deviance"] = deviance
        found["null_deviance"] = labels.null_deviance(objective)
        found["log_likelihood"] = top = _log_likelihood(objective, sum(told.losses), labels)
        if top is not None and fitted.maximises_likelihood:
            found["aic"] = 2 * k - 2 * top
    return Inference(
        covariances, missing, dispersion, left, len(told.losses), likelihood=likelihood, **found
    )


@dataclass(frozen=True, eq=False)
class _Added:
    """What clients' sums add up to; of matrices, "bread" and the meat of each kind."""

    losses: list[float]
    deviances: list[float]
    matrices: dict[str, Array]


def _added(fitted: Fitted, points: Iterable[PointSums]) -> _Added:
    found = _Added([], [], {})
    squares = fitted.factors**2
    for f, square, point in zip(fitted.factors, squares, points, strict=True):
        found.losses.append(point.loss)
        found.deviances.append(point.deviance)
        if point.hessian is None:
            continue
        parts = {
            "bread": f * point.hessian,
            "wald": square * point.hessian,
            "robust": square * point.outer,
            "clustered": square * np.outer(point.score, point.score),
        }
        for name, part in parts.items():
            if name in found.matrices:
                found.matrices[name] += part
            else:
                found.matrices[name] = part
    return found


def _covariances(
    fitted: Fitted,
    told: _Added,
    dispersion: float | None,
    d: int,
    missing: dict[str, str],
) -> dict[str, Array]:
    """The covariances of those kinds that are not `missing`; it is told of what cannot be had."""
    n, m = len(fitted.w), len(told.losses)
    if n > UP_TO:
        missing.update(dict.fromkeys(KINDS, f"it is for up to {UP_TO} parameters, these are {n}"))
        return {}
    outputs = fitted.objective.n_outputs
    down = contrasts(outputs, len(fitted.units))
    against = np.eye(1) if outputs == 1 else np.eye(outputs)[1:] - np.eye(outputs)[0]
    back = np.kron(against, fitted.units) @ down  # to the table's, against the first class
    inverse = _inverse(down.T @ (told.matrices["bread"] + np.diag(fitted.penalty)) @ down)
    if inverse is None:
        missing.update(dict.fromkeys(KINDS, "the Hessian is singular there"))
        return {}
    left = d - down.shape[1]
    found: dict[str, Array] = {}
    for kind in KINDS:
        if kind in missing:
            continue
        if kind == "wald":
            scale = 1.0 if dispersion is None else dispersion
        elif kind == "robust":
            scale = d / left
        else:
            scale = m / (m - 1) * (d - 1) / left
        meat = scale * told.matrices[kind]
        covariance = back @ inverse @ (down.T @ meat @ down) @ inverse @ back.T
        found[kind] = (covariance + covariance.T) / 2
    return found


def contrasts(outputs: int, p: int) -> Array:
    """Orthonormal directions in which the loss of several classes changes: shape (n, k).

    A shift of all classes' coefficients changes no probability: the Hessian is singular along it.
    """
    if outputs == 1:
        return np.eye(p)
    return np.kron(np.linalg.qr(np.eye(outputs)[:, 1:] - 1 / outputs)[0], np.eye(p))


def _inverse(matrix: Array) -> Array | None:
    """The inverse of a positive definite matrix; None if it is none to rounding."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return None
    root = 1 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(matrix * root[:, None] * root)
    if not values[0] > _SINGULAR * values[-1]:
        return None
    turned = root[:, None] * vectors
    return (turned / values) @ turned.T


def _log_likelihood(objective: Objective, loss: float, labels: LabelSums) -> float | None:
    if objective.name == "least_squares":  # with the variance that maximises it
        if loss <= 0:  # which is 0
            return None
        return -labels.weight / 2 * (math.log(4 * math.pi * loss / labels.weight) + 1)
    return -loss - labels.factorials
