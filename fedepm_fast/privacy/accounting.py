"""How much privacy uploads spend, and how much noise a budget asks for."""

from __future__ import annotations

import functools
import math

import numpy as np

from .._validation import check_int, check_real

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
    return _bisect(lambda e: gaussian_delta(noise_multiplier, e, compositions) > delta, 0.0, high)


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
    return _bisect(lambda z: gaussian_delta(z, eps) > delta, low, high)


#: Budgets beyond this are refused: nothing that large protects anyone.
_LARGEST = 1e15


#: Beyond this per upload the sum is the answer for any delta of interest.
_NOTHING_TO_SAVE = 100.0


def _bisect(too_small, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """The smallest number between that is not too small, to rounding, from above."""
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return high
        if too_small(middle):
            low = middle
        else:
            high = middle


def laplace_epsilon(epsilon_per_upload: float, compositions: int, delta: float = 0.0) -> float:
    """Epsilon of so many Laplace uploads: their sum, or less if `delta` is above 0.

    With a delta the privacy loss distributions are composed by dp-accounting, an optional
    dependency.

    Raises
    ------
    ModuleNotFoundError
        If `delta` is above 0 and dp-accounting is missing.
    """
    eps = check_real("epsilon_per_upload", epsilon_per_upload, low=0.0, open_low=True)
    count = check_int("compositions", compositions)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_high=True)
    if delta == 0.0 or count == 0 or eps > _NOTHING_TO_SAVE:
        return eps * count
    return _laplace_epsilon(eps, count, delta)


@functools.lru_cache(_CACHED)
def _laplace_epsilon(eps: float, count: int, delta: float) -> float:
    from .._extras import require

    pld = require(
        "dp_accounting.pld.privacy_loss_distribution", "privacy", "a delta of Laplace noise"
    )
    # A coarser grid is rounded up further; a finer one would not end where budgets are large.
    interval = max(1e-4, eps * count * 1e-5)
    single = pld.from_laplace_mechanism(1.0 / eps, value_discretization_interval=interval)
    return float(min(eps * count, single.self_compose(count).get_epsilon_for_delta(delta)))


#: Share of a budget that may stay unspent, for the search ends there.
LAPLACE_SLACK = 1e-3
_MOST_SECANTS = 30


@functools.lru_cache(_CACHED)
def laplace_noise_multiplier(total_epsilon: float, compositions: int, delta: float = 0.0) -> float:
    """A noise multiplier for which so many Laplace uploads spend no more than `total_epsilon` at
    `delta`, by `laplace_epsilon`, and no less than that without `LAPLACE_SLACK` of it."""
    total = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
    count = check_int("compositions", compositions, low=1)

    def spends(z: float) -> float:
        return laplace_epsilon(1.0 / z, count, delta)

    # The sum is never below, the last places are for 1 / z. Then secants on logarithms: a
    # composition spends about z to a power between -1 and -2.
    z, power = math.nextafter(count / total, math.inf), 1.5
    while (spent := spends(z)) > total:
        z = math.nextafter(z, math.inf)
    best = z
    for _ in range(_MOST_SECANTS):
        if total * (1 - LAPLACE_SLACK) <= spent <= total:
            break
        trial = z * (spent / (total * (1 - LAPLACE_SLACK / 2))) ** (1 / power)
        found = spends(trial)
        if found != spent:
            power = min(max(math.log(found / spent) / math.log(z / trial), 0.9), 2.2)
        z, spent = trial, found
        best = min(best, z) if spent <= total else best
    return best
