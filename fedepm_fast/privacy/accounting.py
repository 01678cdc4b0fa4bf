"""How much privacy uploads spend, and how much noise a budget asks for."""

from __future__ import annotations

import math

from .._validation import check_int, check_real


def gaussian_delta(noise_multiplier: float, epsilon: float, compositions: int = 1) -> float:
    """Smallest delta for which Gaussian uploads are (epsilon, delta)-private, exactly.

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
    if count == 0:
        return 0.0
    mu = math.sqrt(count) / z
    upper = _log_tail(eps / mu - mu / 2)
    lower = eps + _log_tail(eps / mu + mu / 2)
    return math.exp(upper) * -math.expm1(lower - upper) if lower < upper else 0.0


def _log_tail(x: float) -> float:
    """log P(N > x)."""
    from scipy.special import log_ndtr

    return float(log_ndtr(-x))


def gaussian_epsilon(noise_multiplier: float, delta: float, compositions: int = 1) -> float:
    """Smallest epsilon for which Gaussian uploads are (epsilon, delta)-private.

    Parameters as for `gaussian_delta`; `delta` in (0, 1).
    """
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    if gaussian_delta(noise_multiplier, 0.0, compositions) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(noise_multiplier, high, compositions) > delta:
        high *= 2
    return _bisect(lambda e: gaussian_delta(noise_multiplier, e, compositions) > delta, 0.0, high)


def gaussian_noise_multiplier(epsilon: float, delta: float, compositions: int = 1) -> float:
    """Smallest noise multiplier for which so many uploads are (epsilon, delta)-private."""
    eps = check_real("epsilon", epsilon, low=0.0, open_low=True)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    high = 1.0
    while gaussian_delta(high, eps) > delta:
        high *= 2
    low = high / 2
    while gaussian_delta(low, eps) <= delta:
        low /= 2
    one = _bisect(lambda z: gaussian_delta(z, eps) > delta, low, high)
    return math.sqrt(check_int("compositions", compositions, low=1)) * one


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
    if delta == 0.0 or count == 0:
        return eps * count
    from .._extras import require

    pld = require(
        "dp_accounting.pld.privacy_loss_distribution", "privacy", "a delta of Laplace noise"
    )
    single = pld.from_laplace_mechanism(1.0 / eps, value_discretization_interval=1e-4)
    return float(min(eps * count, single.self_compose(count).get_epsilon_for_delta(delta)))
