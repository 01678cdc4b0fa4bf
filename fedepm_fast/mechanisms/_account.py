"""What a client has spent in all, over all the runs and federations that it took part in."""

from __future__ import annotations

import functools
import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.files import replacing
from .._common.validation import (
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
    check_real,
)
from ._base import MECHANISMS, RELATIONS, Mechanism, at_least
from .gaussian import bisect, gaussian_delta, gaussian_epsilon
from .laplace import NOTHING_TO_SAVE

if TYPE_CHECKING:
    from ..result import Result

LAWS = ("gaussian", "laplace")
METHODS = ("basic", "pld")

#: Of the files; newer ones are refused.
_FORMAT = 1
#: Multipliers beyond it are of budgets of which nothing is left.
_LARGEST = 1e15
#: Share of a multiplier by which a search by privacy loss distributions may end above it.
_PLD_SLACK = 1e-3
#: Above what rounding takes from the sums here.
_UP = 1 + 1e-14


class Spending(NamedTuple):
    """Releases of one kind."""

    law: str
    """Of the noise, ``"laplace"`` or ``"gaussian"``."""
    multiplier: float
    """Scale of the noise over how far a record moves what is released, in L1 for Laplace noise, in
    L2 for Gaussian."""
    uploads: int
    """How many, each of which may depend on those before."""


@dataclass(frozen=True)
class Account:
    """What the releases of one client tell, together, about each record of its own.

    Accounts are values: `add` and ``+`` give new ones, and the order does not matter. What is in
    one, and that it concerns the same records, is the user's word. Nothing is claimed of several
    clients together.

    Parameters
    ----------
    spent : tuple of Spending
        Nothing by default. Those of a kind are added up.

    Raises
    ------
    ValueError, TypeError
        Naming what is wrong.

    Notes
    -----
    A Laplace upload of multiplier z is pure, ``1/z``. A Gaussian one tells two neighbours apart as
    a normal variable tells a shift of ``1/z``. By the method ``"basic"`` the pure ones are added
    up, to L, and the Gaussian ones composed exactly, to a shift of the root of the sum of squares.
    All that is L-private is told by randomised response (Kairouz, Oh and Viswanath 2015, theorem
    3.1), whose composition with the shift has the curve ::

        (d(epsilon - L) + exp(-L) d(epsilon + L)) / (1 + exp(-L)),

    d being that of the shift (`gaussian_delta`), also below 0.

    By ``"pld"`` dp-accounting, an optional dependency, composes how the losses of Laplace uploads
    are distributed: many of them tell less than their sum. The smaller of both is returned.

    All that is returned is rounded up.
    """

    spent: tuple[Spending, ...] = ()

    def __post_init__(self) -> None:
        kinds: Counter[tuple[str, float]] = Counter()
        for law, multiplier, uploads in self.spent:
            z = check_real("multiplier", multiplier, low=1 / _LARGEST)
            kinds[check_choice("law", law, LAWS), z] += check_int("uploads", uploads)
        found = sorted(Spending(*kind, count) for kind, count in kinds.items() if count)
        object.__setattr__(self, "spent", tuple(found))

    # What is added ------------------------------------------------------------------------

    def add(self, law: str, multiplier: float, uploads: int = 1) -> Account:
        """This account and so many uploads more.

        Parameters
        ----------
        law : {"laplace", "gaussian"}
            By the method ``"basic"``, whatever is epsilon-private without a delta counts as a
            Laplace upload of multiplier ``1/epsilon``.
        multiplier : float
            Scale of the noise over the sensitivity, at least 1e-15.
        uploads : int
            At least 0.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        return self + Account((Spending(law, multiplier, uploads),))

    def __add__(self, other: Account) -> Account:
        if not isinstance(other, Account):
            return NotImplemented
        return Account((*self.spent, *other.spent))

    @classmethod
    def of(cls, mechanism: Mechanism, multiplier: float, uploads: int) -> Account:
        """What uploads of a mechanism spend, of which second moments are the first.

        Parameters
        ----------
        mechanism : Mechanism
            Of a built-in law. Its budget does not matter here.
        multiplier : float
            Of each upload, of `Mechanism.noise_multipliers`.
        uploads : int
            0, or a number that ``mechanism.moments`` are counted in.
        """
        if not (first := min(mechanism.moments, uploads)):
            return cls((Spending(mechanism.law.name, multiplier, uploads),))
        # One release of as much is not as many uploads, where losses are composed by their law.
        once = mechanism.one_release(multiplier, first)
        law = mechanism.law.name
        return cls((Spending(law, once, 1), Spending(law, multiplier, uploads - first)))

    @classmethod
    def of_run(cls, result: Result, client: int) -> Account:
        """What a client spent in a private run, its second moments included.

        Parameters
        ----------
        result : Result
            Of a run with a guarantee: the account is good for what that assumes.
        client : int
            From 0.

        Raises
        ------
        ValueError, TypeError
            If it is no such run, or has no such client.
        """
        if result.guarantee.startswith("none"):
            raise ArgumentValueError(
                "result", f"must be a run with a privacy guarantee, this one has {result.guarantee}"
            )
        privacy = result.settings["privacy"]
        if "multipliers" not in privacy:
            raise ArgumentValueError("result", "must be of clients, and of this version")
        i = check_int("client", client, high=len(privacy["multipliers"]) - 1)
        options = dict(result.algorithm["mechanism"])
        mechanism = MECHANISMS[options.pop("name")](**options)
        return cls.of(mechanism, privacy["multipliers"][i], privacy["uploads"][i])

    # What it amounts to -------------------------------------------------------------------

    @property
    def pure(self) -> float:
        """Epsilon of all Laplace uploads together: their sum."""
        return _up(self._total("laplace", 1))

    @property
    def mu(self) -> float:
        """Mu of all uploads together, as of Gaussian differential privacy (Dong, Roth and Su 2022).

        Exact for Gaussian uploads. A Laplace upload counts like all that is as private: epsilon is
        a mu of ``-2 * quantile(1 / (1 + exp(epsilon)))`` of the normal law, at least.
        """
        from scipy.special import ndtri_exp

        square = float(self._total("gaussian", 2))
        for law, z, count in self.spent:
            if law == "laplace":
                quantile = float(ndtri_exp(-np.logaddexp(0.0, 1 / z)))
                square += count * (-2 * quantile + 1e-15) ** 2  # near the median digits are lost
        return math.sqrt(square) * _UP

    @property
    def rho(self) -> float:
        """Rho of all uploads together, as of zero-concentrated privacy (Bun and Steinke 2016):
        ``1 / (2 z^2)`` of each, Gaussian (proposition 1.6) and pure (proposition 1.4) alike."""
        return _up((self._total("gaussian", 2) + self._total("laplace", 2)) / 2)

    def _total(self, law: str, power: int) -> Fraction:
        """The sum of ``uploads / multiplier^power``, without rounding."""
        parts = (Fraction(k) / Fraction(z) ** power for name, z, k in self.spent if name == law)
        return sum(parts, Fraction(0))

    @property
    def _gaussian(self) -> float:
        """The multiplier of one upload that tells as much as all Gaussian ones; infinite if there
        are none. `gaussian_delta` allows for more than what is added here, so that the noise of a
        budget spends no more than it."""
        square = float(self._total("gaussian", 2))
        return (1 + 4e-16) / math.sqrt(square) if square else math.inf

    def epsilon(self, delta: float = 0.0, *, method: str = "basic") -> float:
        """The smallest epsilon for which all uploads together are (epsilon, delta)-private.

        Parameters
        ----------
        delta : float
            In [0, 1). At 0 it is infinite where an upload is Gaussian.
        method : {"basic", "pld"}

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        ImportError
            By ``"pld"`` without dp-accounting.
        """
        delta = check_real("delta", delta, low=0.0, high=1.0, open_high=True)
        pld = self._loss(method)
        found = self._basic_epsilon(delta)
        return min(found, float(pld.get_epsilon_for_delta(delta))) if pld and delta else found

    def _basic_epsilon(self, delta: float) -> float:
        pure, z = self.pure, self._gaussian
        if math.isinf(z):
            # Where randomised response is certain with a probability of delta.
            shared = delta * (1 + math.exp(-pure))
            return max(0.0, pure + math.log1p(-shared) / _UP) if shared < 1 else 0.0
        if delta == 0:
            return math.inf
        high = gaussian_epsilon(z, delta)
        if not pure:
            return high
        if _curve(pure, z, 0.0) <= delta:
            return 0.0
        return bisect(
            lambda e: _curve(pure, z, e) > delta, 0.0, math.nextafter(high + pure, math.inf)
        )

    def delta(self, epsilon: float, *, method: str = "basic") -> float:
        """The smallest delta for which all uploads together are (epsilon, delta)-private.

        Parameters
        ----------
        epsilon : float
            At least 0.
        method : {"basic", "pld"}

        Raises
        ------
        ValueError, TypeError, ImportError
            As `epsilon`.
        """
        epsilon = check_real("epsilon", epsilon, low=0.0)
        pld = self._loss(method)
        found = _curve(self.pure, self._gaussian, epsilon)
        return min(found, float(pld.get_delta_for_epsilon(epsilon))) if pld and found else found

    def curve(self, epsilons: ArrayLike, *, method: str = "basic") -> NDArray[np.float64]:
        """`delta` of each of `epsilons`, shape (k,)."""
        grid = check_array("epsilons", epsilons, ndim=1)
        return np.array([self.delta(float(e), method=method) for e in grid])

    def _loss(self, method: str) -> Any:
        """How the loss is distributed; None where that is not asked for, or saves nothing."""
        if check_choice("method", method, METHODS) == "basic":
            return None
        require("dp_accounting.pld.privacy_loss_distribution", "privacy", 'method "pld"')
        return _loss_of(self)

    # What is left -------------------------------------------------------------------------

    def multiplier(
        self, law: str, uploads: int, total_epsilon: float, delta: float = 0.0, *,
        method: str = "basic",
    ) -> float:  # fmt: skip
        """The smallest noise multiplier for which so many uploads more keep within a total.

        Parameters
        ----------
        law : {"laplace", "gaussian"}
            Of the uploads to come.
        uploads : int
            Their number, at least 1.
        total_epsilon, delta : float
            Of all that is spent then: above 0, and in [0, 1).
        method : {"basic", "pld"}
            By ``"pld"`` to a part in 1,000.

        Returns
        -------
        float
            Infinite if nothing is left.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        ImportError
            By ``"pld"`` without dp-accounting.
        """
        uploads = check_int("uploads", uploads, low=1)
        total = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
        delta = check_real("delta", delta, low=0.0, high=1.0, open_high=True)

        def exceeds(z: float) -> bool:
            return self.add(law, z, uploads).delta(total, method=method) > delta

        # By losses as they are distributed no more noise is needed.
        high = 1.0 if method == "basic" else self.multiplier(law, uploads, total, delta)
        high = min(high, _LARGEST)
        while exceeds(high):
            high *= 2
            if high > _LARGEST:
                return math.inf
        low = high / 2
        while low > 1 / _LARGEST and not exceeds(low):
            low /= 2
        return bisect(exceeds, low, high, _PLD_SLACK if method == "pld" else 0.0)

    def remaining(self, total_epsilon: float, delta: float = 0.0, *, law: str = "") -> float:
        """The total epsilon of a further mechanism with which everything keeps within a total.

        Parameters
        ----------
        total_epsilon, delta : float
            Of everything: above 0, and in [0, 1).
        law : {"laplace", "gaussian"}, optional
            Of the mechanism: Gaussian, with the same delta, or Laplace without one. By default
            Gaussian if there is a delta.

        Returns
        -------
        float
            0 if nothing is left.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        law = law or ("gaussian" if delta else "laplace")
        z = self.multiplier(law, 1, total_epsilon, delta)
        if math.isinf(z):
            return 0.0
        return min(total_epsilon, 1 / z if law == "laplace" else gaussian_epsilon(z, delta))

    # Words and files ----------------------------------------------------------------------

    def __str__(self) -> str:
        if math.isinf(self._gaussian):
            total = f"epsilon {at_least(self.pure)} (pure)"
        else:
            total = " or ".join(f"{at_least(self.epsilon(d))} at {d:g}" for d in (1e-6, 1e-9))
            total = f"epsilon at delta: {total}"
        in_all = f"{total}; mu {at_least(self.mu)}, rho {at_least(self.rho)}"
        return "\n".join(
            [
                *(f"{k} x {law} noise of multiplier {z:.6g}" for law, z, k in self.spent),
                f"in all, {RELATIONS['record']}: {in_all}",
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file of JSON, complete or not at all, in which every float is exact."""
        text = json.dumps({"format": _FORMAT, "spent": [s._asdict() for s in self.spent]}, indent=1)
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Account:
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is something else, is damaged, or was written by a newer version.
        """
        text = Path(path).read_text(encoding="utf-8")
        try:
            found = json.loads(text)
            if found["format"] == _FORMAT:
                return cls(tuple(Spending(**each) for each in found["spent"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise ValueError(
            f"{path} is no complete account, as Account.save of this version writes it"
        )


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
def _loss_of(account: Account) -> Any:
    laplace = [each for each in account.spent if each.law == "laplace"]
    if not laplace or 1 / laplace[0].multiplier > NOTHING_TO_SAVE:
        return None
    # A coarser grid is rounded up further; a finer one would not end where budgets are large.
    grid = 1e-4 * 2.0 ** max(0, math.ceil(math.log2(account._basic_epsilon(1e-6) / 10)))
    parts = [_loss_of_kind(*each, grid) for each in laplace]
    if math.isfinite(z := account._gaussian):
        parts.append(_loss_of_kind("gaussian", z, 1, grid))
    return functools.reduce(lambda a, b: a.compose(b), parts)


@functools.lru_cache(64)
def _loss_of_kind(law: str, multiplier: float, uploads: int, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    made = pld.from_laplace_mechanism if law == "laplace" else pld.from_gaussian_mechanism
    return made(multiplier, value_discretization_interval=grid).self_compose(uploads)


def _up(number: Fraction) -> float:
    """The smallest float that is not below `number`."""
    found = float(number)
    return found if Fraction(found) >= number else math.nextafter(found, math.inf)
