"""Laplace noise, and what it spends: a sum, or less at a delta."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.parameters import param, real
from .._common.validation import check_int, check_real
from ..randomness import laplace_quantile
from ._base import Array, Law, Mechanism, each_pair, in_words


class _Laplace(Law):
    name = "laplace"
    symbol = "Lap(s)"
    order = 1

    def quantile(self, u: Array) -> Array:
        return laplace_quantile(u)

    def log_density(self, unit: Array) -> Array:
        return -np.asarray(np.abs(unit).sum(axis=-1))

    def tail(self, t: ArrayLike) -> Any:
        return np.exp(-np.asarray(t)) / 2

    def apart(self, hits: ArrayLike, alarms: ArrayLike) -> Array:
        low, high = np.asarray(hits), np.asarray(alarms)
        return np.where(
            low <= 0.5,
            np.log(low / high),
            np.where(high < 0.5, -np.log(4 * high * (1 - low)), np.log((1 - high) / (1 - low))),
        )

    @property
    def rows(self) -> Any:
        from ..kernels.noise import laplace_rows

        return laplace_rows

    def measurement(self, dp: Any, domain: Any, scale: float) -> Any:
        return dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)

    def most(self, multiplier: Fraction) -> Fraction:
        return 1 / multiplier


@dataclass(frozen=True)
class LaplaceMechanism(Mechanism):
    """Laplace noise on L1 sensitivity: pure epsilon, added up over a client's uploads.

    Parameters
    ----------
    epsilon_per_round : float, optional
        Instead of `total_epsilon`: what each upload spends.
    delta : float
        In [0, 1). Above 0 the uploads of a client are composed at this delta, by dp-accounting,
        an optional dependency: many of them spend less than their sum.
    """

    epsilon_per_round: float | None = param(
        None,
        check=real(low=0.0, open_low=True),
        help="what each upload spends, instead of a total",
        metavar="E",
    )
    delta: float = param(
        0.0,
        check=real(low=0.0, high=1.0, open_high=True),
        help="private: in (0, 1); laplace without one is pure, gaussian takes 1e-06",
        metavar="D",
    )
    name: ClassVar[str] = "laplace"
    law: ClassVar[Law] = _Laplace()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.total_epsilon is None) == (self.epsilon_per_round is None):
            raise ValueError("exactly one of total_epsilon and epsilon_per_round must be given")
        if self.moments and self.delta:
            raise ValueError(
                "moments must be 0 with a delta of Laplace noise, got "
                f"{self.moments}: one release of so much is not accounted for as several uploads"
            )

    def describe(self) -> dict[str, Any]:
        found = super().describe()
        return found if self.delta else {k: v for k, v in found.items() if k != "delta"}

    def noise_multiplier(self, epsilon: float, uploads: int) -> float:
        return laplace_noise_multiplier(epsilon, uploads, self.delta)

    def one_release(self, multiplier: float, uploads: int) -> float:
        return math.nextafter(multiplier / uploads, math.inf)

    def compose(self, apart: float, uploads: int) -> float:
        return laplace_epsilon(apart, uploads, self.delta)

    def stated(self, uploads: int) -> float:
        if self.epsilon_per_round is None:
            return super().stated(uploads)
        return self.compose(self.epsilon_per_round, uploads)

    def noise_multipliers(self, participations: NDArray[np.int64]) -> Array:
        if self.epsilon_per_round is not None:
            exact = np.full(len(participations), 1.0 / self.epsilon_per_round)
        elif self.delta:
            return super().noise_multipliers(participations)
        else:
            exact = np.maximum(participations, 1) / self.given(participations)
        # Rounded up: a client spends no more than its budget.
        return np.nextafter(exact, np.inf)

    def spent(self, multipliers: Array, uploads: NDArray[np.int64]) -> Array:
        each = self.epsilon_per_round
        if self.delta:
            found, slack = super().spent(multipliers, uploads), LAPLACE_SLACK
        elif each is not None:
            return each_pair(lambda _, k: _times(k, each), multipliers, uploads)
        else:
            found, slack = uploads / multipliers, 1e-15
        if each is not None:
            return found
        total = self.given(uploads)
        # The noise, found by a search or rounded up, leaves so little of the budget.
        return np.where((total * (1 - slack) <= found) & (found <= total), total, found)

    def guarantee(self, epsilon: float) -> str:
        return in_words(epsilon, self.delta, self.neighbours)


def _times(count: int, number: float) -> float:
    """As decimals are multiplied: 3 times 0.1 is 0.3."""
    return float(Decimal(repr(number)) * count)


# Its account ----------------------------------------------------------------------------

#: Accounts that are kept: they depend on their arguments only, and clients share theirs.
_CACHED = 1 << 16

#: Beyond this per upload the sum is the answer for any delta of interest.
NOTHING_TO_SAVE = 100.0


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
    if delta == 0.0 or count == 0 or eps > NOTHING_TO_SAVE:
        return eps * count
    return _laplace_epsilon(eps, count, delta)


@functools.lru_cache(_CACHED)
def _laplace_epsilon(eps: float, count: int, delta: float) -> float:
    from .._common.extras import require

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
