"""How Laplace and Gaussian uploads compose: in closed form, or as their losses are distributed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .gaussian import bisect, gaussian_delta, gaussian_epsilon
from .laplace import NOTHING_TO_SAVE

#: Above what rounding takes from the sums here.
_UP = 1 + 1e-14
#: Multipliers beyond it are of budgets of which nothing is left.
LARGEST = 1e15


class Spending(NamedTuple):
    """Releases of one kind."""

    law: str
    """Of the noise, ``"laplace"`` or ``"gaussian"``."""
    multiplier: float
    """Scale of the noise over how far a record moves what is released, in L1 for Laplace noise, in
    L2 for Gaussian."""
    uploads: int
    """How many, each of which may depend on those before."""


Spent = tuple[Spending, ...]


def total(spent: Spent, law: str, power: int) -> Fraction:
    """The sum of ``uploads / multiplier^power``, without rounding."""
    parts = (Fraction(k) / Fraction(z) ** power for name, z, k in spent if name == law)
    return sum(parts, Fraction(0))


def up(number: Fraction) -> float:
    """The smallest float that is not below `number`."""
    found = float(number)
    return found if Fraction(found) >= number else math.nextafter(found, math.inf)


def pure_and_gaussian(spent: Spent) -> tuple[float, float]:
    """Epsilon of all Laplace uploads, their sum; and the multiplier of one upload that tells as
    much as all Gaussian ones, infinite if there are none.

    `gaussian_delta` allows for more than what is added to the latter, so that the noise of a budget
    spends no more than it.
    """
    square = float(total(spent, "gaussian", 2))
    return up(total(spent, "laplace", 1)), ((1 + 4e-16) / math.sqrt(square) if square else math.inf)


def gaussian_mu(spent: Spent) -> float:
    """The shift between two normal variables that are as hard to tell apart, or harder."""
    from scipy.special import ndtri_exp

    square = float(total(spent, "gaussian", 2))
    for law, z, count in spent:
        if law == "laplace":
            quantile = float(ndtri_exp(-np.logaddexp(0.0, 1 / z)))
            square += count * (-2 * quantile + 1e-15) ** 2  # near the median digits are lost
    return math.sqrt(square) * _UP


def basic_epsilon(spent: Spent, delta: float) -> float:
    """The smallest epsilon at which `basic_delta` is no more than `delta`."""
    pure, z = pure_and_gaussian(spent)
    if math.isinf(z):
        # Randomised response is certain with a probability of delta.
        shared = delta * (1 + math.exp(-pure))
        return max(0.0, pure + math.log1p(-shared) / _UP) if shared < 1 else 0.0
    if delta == 0:
        return math.inf
    high = gaussian_epsilon(z, delta)
    if not pure:
        return high
    if _curve(pure, z, 0.0) <= delta:
        return 0.0
    high = math.nextafter(high + pure, math.inf)
    return bisect(lambda e: _curve(pure, z, e) > delta, 0.0, high)


def basic_delta(spent: Spent, epsilon: float) -> float:
    """Delta of randomised response of the pure uploads' sum and of all Gaussian uploads."""
    return _curve(*pure_and_gaussian(spent), epsilon)


def least_multiplier(exceeds: Callable[[float], bool], start: float, share: float) -> float:
    """The smallest noise multiplier that does not exceed a budget, to a `share` of it; infinite if
    there is none. The search begins at `start`."""
    high = min(start, LARGEST)
    while exceeds(high):
        high *= 2
        if high > LARGEST:
            return math.inf
    low = high / 2
    while low > 1 / LARGEST and not exceeds(low):
        low /= 2
    return bisect(exceeds, low, high, share)


def _curve(pure: float, multiplier: float, epsilon: float) -> float:
    """Delta of randomised response of `pure` and one Gaussian upload, rounded up."""
    if math.isinf(multiplier):
        if epsilon >= pure:
            return 0.0
        return min(1.0, -math.expm1(epsilon - pure) / (1 + math.exp(-pure)) * _UP)
    if pure == 0:
        return gaussian_delta(multiplier, epsilon)
    below, above = (math.nextafter(epsilon + sign * pure, -math.inf) for sign in (-1, 1))
    share = math.exp(-pure)
    both = _two_sided(multiplier, below) + share * _two_sided(multiplier, above)
    return min(1.0, both / (1 + share) * _UP)


def _two_sided(multiplier: float, epsilon: float) -> float:
    """The curve of a Gaussian upload, continued below 0."""
    if epsilon >= 0:
        return gaussian_delta(multiplier, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(multiplier, -epsilon)


@functools.lru_cache(64)
def loss_of(spent: Spent) -> Any:
    """How the privacy loss is distributed, by dp-accounting; None where that saves nothing."""
    laplace = [each for each in spent if each.law == "laplace"]
    if not laplace or any(1 / each.multiplier > NOTHING_TO_SAVE for each in laplace):
        return None
    # A coarser grid is rounded up further; a finer one would not end where budgets are large.
    grid = 1e-4 * 2.0 ** max(0, math.ceil(math.log2(basic_epsilon(spent, 1e-6) / 10)))
    parts = [_loss_of_kind(*each, grid) for each in laplace]
    _, z = pure_and_gaussian(spent)
    if math.isfinite(z):
        parts.append(_loss_of_kind("gaussian", z, 1, grid))
    return functools.reduce(lambda a, b: a.compose(b), parts)


@functools.lru_cache(64)
def _loss_of_kind(law: str, multiplier: float, uploads: int, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    made = pld.from_laplace_mechanism if law == "laplace" else pld.from_gaussian_mechanism
    return made(multiplier, value_discretization_interval=grid).self_compose(uploads)
