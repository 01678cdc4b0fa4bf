"""The server's ENS of uploads with noise: which c the noise asks for, and how much of it is left.

An upload is the point that all look for, noise of public scale b, and what sets its client apart.
ENS with weights p_i solves ``sum_i p_i*psi(z_i - x) = 0``, ``psi(t) = t + c*sign(t)``, and so is an
M-estimator of location (Huber 1964). Of Laplace noise alone the median, large c, is
the maximum of the likelihood, with half the variance of the mean; where clients lie further apart
than their noise, the mean is better; with Gaussian noise it always is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx

from .._common.validation import ArgumentValueError, check_array
from ..mechanisms import LaplaceMechanism, Mechanism
from ..mechanisms._base import Array
from ..mechanisms._moments import DEVIATION

#: c in scales of Laplace noise, for many clients: whatever their Gaussian spread, its variance is
#: at most 8.2 % above that of the best c, and no c does better at its worst spread.
MINIMAX = 2.5
#: With few clients the variance is larger than that for many, by ``_FEW/sqrt(m)`` of it: so it was
#: simulated, with `noise_l1_for` and noise of one scale within 2 % of the variance for m from 3 on.
_FEW = 1.3


def noise_l1_for(mechanism: Mechanism, weights: ArrayLike) -> float:
    """`FedEPM.noise_l1` for uploads of such noise, from what is public.

    ``2.5 * (1 - 2/m)`` with Laplace noise, m the effective number of clients, ``(sum_i p_i)^2 /
    sum_i p_i^2``: whatever their spread, the variance is within 9 % of the least. 0, the mean, with
    any other noise. That clients may lie is a reason to take more.

    Parameters
    ----------
    mechanism : Mechanism
    weights : array_like of shape (m,)
        Positive weights of the uploads, or any multiple of them: with
        ``aggregation="inverse_deviation"``, of clients that take part equally often, their sizes.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument.
    """
    m = _effective(weights)
    return MINIMAX * max(0.0, 1 - 2 / m) if type(mechanism) is LaplaceMechanism else 0.0


def noise_left(mechanism: Mechanism, weights: ArrayLike, scales: ArrayLike) -> float:
    """Standard deviation of the noise in the point of ENS with `noise_l1_for`, over that in the
    mean: at most 1.

    Parameters
    ----------
    mechanism, weights
        As for `noise_l1_for`.
    scales : array_like of shape (m,)
        Of the noise of the uploads, or any multiple.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument.
    """
    m, p = _effective(weights), np.asarray(weights, np.float64)
    b = check_array("scales", scales, shape=p.shape)
    if not (b > 0).all():
        raise ArgumentValueError("scales", f"must be positive, got {scales!r}")
    if type(mechanism) is not LaplaceMechanism:
        return 1.0
    p, b = p / p.max(), b / b.max()
    c = MINIMAX * (p @ b) / p.sum()
    # As `ens_variance`, of uploads that differ in weight and scale, without a spread.
    found = (p**2 @ (2 * b**2 + 2 * c * b + c**2)) / (p @ (1 + c / b)) ** 2
    mean = p**2 @ (2 * b**2) / p.sum() ** 2
    return math.sqrt(min(1.0, found / mean * (1 + _FEW / math.sqrt(m))))


def _effective(weights: ArrayLike) -> float:
    """Clients of equal weight whose mean is as exact."""
    p = check_array("weights", weights, ndim=1)
    if len(p) == 0 or not (p > 0).all():
        raise ArgumentValueError("weights", f"must be positive, got {weights!r}")
    p = p / p.max()
    return float(p.sum() ** 2 / (p @ p))


def ens_variance(noise_l1: ArrayLike, spread: ArrayLike = 0.0, order: int = 1) -> Array:
    """Variance of ENS of m uploads, times m, for large m and noise of scale 1.

    ``V = (A + 2*c*B + c^2) / (1 + 2*c*f)^2``, the variance ``E psi^2 / (E psi')^2`` of an
    M-estimator (Huber 1964, section 4), where A is the variance, B the mean absolute value and f
    the density at 0 of an upload about the point.

    Parameters
    ----------
    noise_l1 : array_like
        c, at least 0.
    spread : array_like
        Standard deviation of the clients about the point, Gaussian, at least 0.
    order : {1, 2}
        Whether the noise is Laplace or Gaussian.

    Returns
    -------
    ndarray
        Of the shape of both together.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    c, s = np.asarray(noise_l1, np.float64), np.asarray(spread, np.float64)
    for name, value in (("noise_l1", c), ("spread", s)):
        if not (value >= 0).all():
            raise ArgumentValueError(name, f"must be at least 0, got {value}")
    if order not in DEVIATION:
        raise ArgumentValueError("order", f"must be 1 or 2, got {order!r}")
    a = DEVIATION[order] ** 2 + s**2
    if order == 1:
        f = erfcx(s / math.sqrt(2)) / 2
        b = s * math.sqrt(2 / math.pi) + 2 * f
    else:
        f, b = 1 / np.sqrt(2 * math.pi * a), np.sqrt(2 / math.pi * a)
    return np.asarray((a + 2 * c * b + c * c) / (1 + 2 * c * f) ** 2)
