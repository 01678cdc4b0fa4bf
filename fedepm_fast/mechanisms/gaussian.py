"""Gaussian noise, and what it spends exactly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.parameters import param, real
from .._common.validation import check_int, check_real
from ._base import Array, Law, Mechanism, each_pair, in_words


class _Gaussian(Law):
    name = "gaussian"
    symbol = "N(0, s^2)"
    order = 2

    def quantile(self, u: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(ndtri(u))

    def log_density(self, unit: Array) -> Array:
        return -np.asarray((unit**2).sum(axis=-1)) / 2

    def tail(self, t: ArrayLike) -> Any:
        from scipy.special import ndtr

        return ndtr(-np.asarray(t))

    def apart(self, hits: ArrayLike, alarms: ArrayLike) -> Array:
        return self.quantile(np.asarray(hits)) - self.quantile(np.asarray(alarms))

    @property
    def rows(self) -> Any:
        from ..kernels.noise import gaussian_rows

        return gaussian_rows

    def measurement(self, dp: Any, domain: Any, scale: float) -> Any:
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)

    def most(self, multiplier: Fraction) -> Fraction:
        return 1 / (2 * multiplier * multiplier)


@dataclass(frozen=True)
class GaussianMechanism(Mechanism):
    """Gaussian noise on L2 sensitivity, accounted exactly over a client's uploads.

    `total_epsilon` must be given.

    Parameters
    ----------
    delta : float
        In (0, 1); far below one over the number of records.
    """

    delta: float = param(
        1e-6,
        check=real(low=0.0, high=1.0, open_low=True, open_high=True),
        help="private: in (0, 1); laplace without one is pure, gaussian takes 1e-06",
        metavar="D",
    )
    name: ClassVar[str] = "gaussian"
    law: ClassVar[Law] = _Gaussian()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total_epsilon is None:
            raise ValueError("total_epsilon must be given for Gaussian noise")

    def noise_multiplier(self, epsilon: float, uploads: int) -> float:
        return gaussian_noise_multiplier(epsilon, self.delta, uploads)

    def one_release(self, multiplier: float, uploads: int) -> float:
        return math.nextafter(multiplier / math.sqrt(uploads), math.inf)

    def compose(self, apart: float, uploads: int) -> float:
        return gaussian_epsilon(1 / apart, self.delta, uploads)

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        epsilon = each_pair(lambda z, k: gaussian_epsilon(z, self.delta, k), multipliers, uploads)
        total, asked = self.given(uploads), self.noise_multipliers(uploads)
        # The inverse of the curve is found from above: within a plan the budget itself is nearer.
        found = np.where(multipliers >= asked, np.minimum(epsilon, total), epsilon)
        return np.where((multipliers == asked) & (uploads > 0), total, found)

    def guarantee(self, epsilon: float) -> str:
        return in_words(epsilon, self.delta, self.neighbours)


# Its account ----------------------------------------------------------------------------

#: Accounts that are kept: they depend on their arguments only, and clients share theirs.
_CACHED = 1 << 16


def gaussian_delta(noise_multiplier: float, epsilon: float, compositions: int = 1) -> float:
    """Smallest delta for which Gaussian uploads are (epsilon, delta)-private, rounded up.

    A composition of Gaussian mechanisms is one with a smaller multiplier, and that one's privacy
    curve is known in closed form (Balle and Wang 2018, theorem 8).

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over the L2 sensitivity, above 0.
    epsilon : float
        At least 0.
    compositions : int
        Number of uploads, each of which may depend on those before.

    Returns
    -------
    float
    """
    z = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    eps = check_real("epsilon", epsilon, low=0.0)
    count = check_int("compositions", compositions)
    return 0.0 if count == 0 else _gaussian_delta(math.sqrt(count) / z, eps)


def _gaussian_delta(mu: float, eps: float) -> float:
    """The curve of ``N(0, 1)`` against ``N(mu, 1)``, rounded up.

    With ``a = eps/mu - mu/2`` and ``b = a + mu``, delta is
    ``P(N > a) - exp(eps) * P(N > b) = phi(a) * integral of exp(-t^2/2 - a*t) * (1 - exp(-mu*t))``
    over t > 0. The difference cancels where its terms are close, the integrand is positive.
    """
    from scipy.special import erfcx, ndtr

    a, b = eps / mu - mu / 2, eps / mu + mu / 2
    if not math.isfinite(a) or not math.isfinite(b):
        return _SMALLEST if a > 0 else 1.0
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    first = float(ndtr(-a))
    second = density * math.sqrt(math.pi / 2) * float(erfcx(b / math.sqrt(2)))
    delta = first - second
    if second > first / 4:
        # Panels of Gauss and Legendre, in units in which the integrand falls within about 1.
        unit = max(a, 1.0)
        nodes, weights = _LEGENDRE
        t = (2.0 * (np.arange(20)[:, None] + (nodes + 1) / 2) / unit).ravel()
        values = np.exp(-t * t / 2 - a * t) * -np.expm1(-mu * t)
        delta = density * float(np.tile(weights, 20) @ values) / unit
    # a is known to so many roundings of its terms, and delta falls by about a factor |a| of that.
    slack = 1e-11 + 1e-15 * (1 + abs(a)) * (1 + b)
    return min(1.0, delta * (1 + slack)) if delta > 0 else _SMALLEST


_LEGENDRE = np.polynomial.legendre.leggauss(20)

#: What is above zero but cannot be represented is rounded up to this.
_SMALLEST = math.ulp(0.0)


def gaussian_epsilon(noise_multiplier: float, delta: float, compositions: int = 1) -> float:
    """Smallest epsilon for which Gaussian uploads are (epsilon, delta)-private.

    Parameters as for `gaussian_delta`; `delta` in (0, 1).
    """
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    z = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    return _gaussian_epsilon(z, delta, check_int("compositions", compositions))


@functools.lru_cache(_CACHED)
def _gaussian_epsilon(noise_multiplier: float, delta: float, compositions: int) -> float:
    if gaussian_delta(noise_multiplier, 0.0, compositions) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(noise_multiplier, high, compositions) > delta:
        high *= 2
        if high > _LARGEST:
            raise ValueError(
                f"noise_multiplier must leave epsilon below {_LARGEST:g}, "
                f"got {noise_multiplier!r} for {compositions} compositions"
            )
    return bisect(lambda e: gaussian_delta(noise_multiplier, e, compositions) > delta, 0.0, high)


def gaussian_noise_multiplier(epsilon: float, delta: float, compositions: int = 1) -> float:
    """Smallest noise multiplier for which so many uploads are (epsilon, delta)-private."""
    eps = check_real("epsilon", epsilon, low=0.0, high=_LARGEST, open_low=True)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    return math.sqrt(check_int("compositions", compositions, low=1)) * _one_upload(eps, delta)


@functools.lru_cache(_CACHED)
def _one_upload(eps: float, delta: float) -> float:
    """The noise multiplier of a single upload."""
    high = 1.0
    while gaussian_delta(high, eps) > delta:
        high *= 2
    low = high / 2
    while gaussian_delta(low, eps) <= delta:
        low /= 2
    return bisect(lambda z: gaussian_delta(z, eps) > delta, low, high)


#: Budgets beyond this are refused: nothing that large protects anyone.
_LARGEST = 1e15


def bisect(
    too_small: Callable[[float], bool], low: float, high: float, share: float = 0.0
) -> float:
    """The smallest number between that is not too small, from above, to rounding or a `share`."""
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high or high - low <= share * high:
            return high
        if too_small(middle):
            low = middle
        else:
            high = middle
