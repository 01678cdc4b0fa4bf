"""The operators of the equations, in NumPy: soft-thresholding, the penalty, ENS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_real

if TYPE_CHECKING:
    from .fedepm import FedEPM

Array = NDArray[np.float64]


def soft_threshold(t: ArrayLike, a: ArrayLike) -> Array:
    """soft(t, a), the minimiser of ``(x - t)^2 / 2 + a*|x|``, elementwise."""
    t = np.asarray(t)
    return np.sign(t) * np.maximum(np.abs(t) - a, 0)


def penalty(v: Array, lam: float, eta: float) -> Array:
    """The elastic net ``phi(v) = lam*|v|_1 + eta/2*|v|^2`` along the last axis."""
    return lam * np.abs(v).sum(axis=-1) + eta / 2 * (v * v).sum(axis=-1)


def ens(Z: ArrayLike, c: float, weights: ArrayLike | None = None) -> NDArray[Any]:
    """The elastic-net solver: the minimiser of ``sum_i p_i * phi(z_i - w)``, per coordinate.

    With z(1) >= ... >= z(m) in a coordinate, S_s the weight of the s largest, P = S_m and
    ``u_s = mean + c*(2*S_s/P - 1)``, the solution is ``max(u_s*, z(s*+1))`` where s* is the
    number of s with ``z(s) > u_s`` (and z(m+1) = -inf): the median of the 2m+1 numbers
    z_1..z_m, u_0..u_m (Li and Osher 2009). With equal weights S_s/P = s/m, the quantities of
    the paper's lemma on the elastic-net problem. The predicate holds for a leading run of s
    because z(s) falls and u_s rises.

    Parameters
    ----------
    Z : array_like of shape (m, n), or (m,)
        One row per client, float32 or float64.
    c : float
        ``lam / eta``, at least 0. 0 gives the mean; a large c gives a median.
    weights : array_like of shape (m,), optional
        Positive weights p_i of the clients; equal by default.

    Returns
    -------
    ndarray of shape (n,), or scalar array
        Of the dtype of `Z`.
    """
    Z = np.asarray(Z)
    dtype = Z.dtype if Z.dtype == np.float32 else np.dtype(np.float64)
    Z = check_array("Z", Z, dtype=dtype)
    if Z.ndim == 0 or len(Z) == 0:
        raise ValueError(f"Z must hold at least one client's row, got shape {Z.shape}")
    c = check_real("c", c, low=0.0)
    m = len(Z)
    columns = Z.reshape(m, -1).astype(np.float64)
    if weights is None:
        # The mean in extended precision, and within the data: m equal numbers have that mean.
        mean = columns.mean(axis=0, dtype=np.longdouble).astype(np.float64)
        shares = np.broadcast_to((np.arange(m + 1) / m)[:, None], (m + 1, columns.shape[1]))
    else:
        p = check_array("weights", weights, shape=(m,))
        if not (p > 0).all():
            raise ValueError(f"weights must be positive, got {p.min()}")
        p = np.ldexp(p, -np.frexp(p.max())[1])  # ratios count, and now no sum overflows
        mean = (p[:, None] * columns).sum(axis=0, dtype=np.longdouble) / p.sum(dtype=np.longdouble)
        mean = mean.astype(np.float64)
        order = np.argsort(-columns, axis=0, kind="stable")
        cumulative = np.cumsum(p[order], axis=0)
        shares = np.vstack([np.zeros(columns.shape[1]), cumulative / cumulative[-1]])
    z = -np.sort(-columns, axis=0)
    mean = np.clip(mean, z[-1], z[0])
    u = mean + c * (2 * shares - 1)
    s = (z > u[1:]).sum(axis=0)
    column = np.arange(columns.shape[1])
    below = np.vstack([z, np.full(columns.shape[1], -np.inf)])[s, column]
    w = np.maximum(u[s, column], below) + 0.0  # of zeros of either sign +0.0
    return w.astype(dtype).reshape(Z.shape[1:])


def ens_algorithm1(Z: ArrayLike, lam: float, eta: float) -> Array:
    """The paper's Algorithm 1 to the letter, O(m^2) in the worst case: a cross-check of `ens`."""
    Z = check_array("Z", Z, ndim=2)
    m, n = Z.shape
    w = np.empty(n)
    for j in range(n):
        z = np.sort(Z[:, j])[::-1]
        for s in range(1, m + 1):
            candidate = z.mean() + lam / eta * (2 * s / m - 1)
            if s < m and z[s - 1] > candidate > z[s]:
                w[j] = candidate
                break
        else:
            h = [(lam * np.abs(v - z) + eta / 2 * (v - z) ** 2).sum() for v in z]
            w[j] = z[int(np.argmin(h))]
    return w


def penalty_parameter(gap: Array, iteration: int, mu0: float, c: float, alpha: float) -> Array:
    """``mu = mu0 * (1 + c*|gap|^2) * alpha^(k+1)`` of iteration k, for gaps (..., n)."""
    # A NumPy power overflows to inf, which a run notices; Python's raises.
    power = np.power(alpha, iteration + 1.0)
    return mu0 * (1 + c * (gap * gap).sum(axis=-1)) * power


def fedepm_iterates(
    algorithm: FedEPM, W: Array, x: Array, G: Array, step: Array, tau: int
) -> Iterator[tuple[Array, Array]]:
    """FedEPM's local steps of round `tau`: ``(W, mu)`` after each.

    ``w_i <- x + soft(step_i*mu*(w_i - x) - g_i, lam) / (eta + step_i*mu)``

    Parameters
    ----------
    algorithm : FedEPM
        Resolved parameters.
    W, G : ndarray of shape (s, n)
        Parameters of the selected clients, and their gradients at `x`.
    x : ndarray of shape (n,)
        The server's point.
    step : ndarray of shape (s,)
        ``step_i`` of the selected clients.
    tau : int
        The round.
    """
    k0 = algorithm.local_steps
    lam, eta = algorithm.weights
    start = W - x
    for k in range(tau * k0, (tau + 1) * k0):
        # With a mechanism mu must be public: it keeps to the gap at the start of the round.
        gap = start if algorithm.mechanism is not None else W - x
        mu = penalty_parameter(gap, k, algorithm.mu0, algorithm.c, algorithm.alpha)
        nu = (step * mu)[:, None]
        W = x + soft_threshold(nu * (W - x) - G, lam) / (eta + nu)
        yield W, mu
