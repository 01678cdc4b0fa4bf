"""What a client has spent in all, over all the runs and federations that it took part in."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.json_files import read_json, write_json
from .._common.validation import (
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
    check_real,
)
from ._base import MECHANISMS, RELATIONS, Mechanism, at_least
from ._composition import (
    LARGEST,
    Spending,
    basic_delta,
    basic_epsilon,
    gaussian_mu,
    least_multiplier,
    loss_of,
    total,
    up,
)
from .gaussian import gaussian_epsilon

if TYPE_CHECKING:
    from ..result import Result

LAWS = ("gaussian", "laplace")
METHODS = ("basic", "pld")

#: Of the files; newer ones are refused.
_FORMAT = 1
#: Share of a multiplier by which a search by privacy loss distributions may end above it.
_PLD_SLACK = 1e-3


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
    neighbours : {"record", "client"}
        What is compared, see `Mechanism`: with anything that hides records only, it is records.

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
    are distributed, rounded up to a grid: many of them tell less than their sum. The smaller of
    both is returned.
    """

    spent: tuple[Spending, ...] = ()
    neighbours: str = "record"

    def __post_init__(self) -> None:
        check_choice("neighbours", self.neighbours, RELATIONS)
        kinds: Counter[tuple[str, float]] = Counter()
        for law, multiplier, uploads in self.spent:
            z = check_real("multiplier", multiplier, low=1 / LARGEST)
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
        return self + Account((Spending(law, multiplier, uploads),), self.neighbours)

    def __add__(self, other: Account) -> Account:
        if not isinstance(other, Account):
            return NotImplemented
        kinds = {each.neighbours for each in (self, other) if each.spent}
        return Account((*self.spent, *other.spent), "client" if kinds == {"client"} else "record")

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
        law, first = mechanism.law.name, min(mechanism.moments, uploads)
        spent = [Spending(law, multiplier, uploads - first)]
        if first:  # by their law, one release of as much spends more than as many uploads
            spent.append(Spending(law, mechanism.one_release(multiplier, first), 1))
        return cls(tuple(spent), mechanism.neighbours)

    @classmethod
    def of_run(cls, result: Result, client: int) -> Account:
        """What a client spent in a private run, its second moments included.

        Parameters
        ----------
        result : Result
            Of a run with a guarantee: the account holds against whom it does, if what it assumes
            is so.
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
        mechanism = recorded(result.algorithm["mechanism"])
        return cls.of(mechanism, privacy["multipliers"][i], privacy["uploads"][i])

    # What it amounts to -------------------------------------------------------------------

    @property
    def pure(self) -> float:
        """Epsilon of all Laplace uploads together: their sum."""
        return up(total(self.spent, "laplace", 1))

    @property
    def mu(self) -> float:
        """Mu of all uploads together, as of Gaussian differential privacy (Dong, Roth and Su 2022).

        Exact for Gaussian uploads. A Laplace upload counts like all that is as private: epsilon is
        a mu of ``-2 * quantile(1 / (1 + exp(epsilon)))`` of the normal law, at least.
        """
        return gaussian_mu(self.spent)

    @property
    def rho(self) -> float:
        """Rho of all uploads together, as of zero-concentrated privacy (Bun and Steinke 2016):
        ``1 / (2 z^2)`` of each, Gaussian (proposition 1.6) and pure (proposition 1.4) alike."""
        return up((total(self.spent, "gaussian", 2) + total(self.spent, "laplace", 2)) / 2)

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
        found = basic_epsilon(self.spent, delta)
        return min(found, float(pld.get_epsilon_for_delta(delta))) if pld and delta else found

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
        found = basic_delta(self.spent, epsilon)
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
        return loss_of(self.spent)

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
        most = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
        delta = check_real("delta", delta, low=0.0, high=1.0, open_high=True)

        def exceeds(z: float) -> bool:
            return self.add(law, z, uploads).delta(most, method=method) > delta

        # By losses as they are distributed no more noise is needed.
        start = 1.0 if method == "basic" else self.multiplier(law, uploads, most, delta)
        return least_multiplier(exceeds, start, _PLD_SLACK if method == "pld" else 0.0)

    def remaining(
        self, total_epsilon: float, delta: float = 0.0, *, law: str | None = None
    ) -> float:
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
        law = ("gaussian" if delta else "laplace") if law is None else law
        z = self.multiplier(law, 1, total_epsilon, delta)
        if math.isinf(z):
            return 0.0
        return min(total_epsilon, 1 / z if law == "laplace" else gaussian_epsilon(z, delta))

    # Words and files ----------------------------------------------------------------------

    def __str__(self) -> str:
        if math.isfinite(self.epsilon()):
            found = f"epsilon {at_least(self.pure)} (pure)"
        else:
            found = " or ".join(f"{at_least(self.epsilon(d))} at {d:g}" for d in (1e-6, 1e-9))
            found = f"epsilon at delta: {found}"
        return "\n".join(
            [
                *(f"{k} x {law} noise of multiplier {z:.6g}" for law, z, k in self.spent),
                f"in all, {RELATIONS[self.neighbours]}: {found}; "
                f"mu {at_least(self.mu)}, rho {at_least(self.rho)}",
            ]
        )

    def describe(self) -> dict[str, Any]:
        """It as plain values, of which `from_record` makes it again."""
        return {"neighbours": self.neighbours, "spent": [list(each) for each in self.spent]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Account:
        """What `describe` told of."""
        return cls(tuple(Spending(*each) for each in record["spent"]), record["neighbours"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file of JSON, complete or not at all, in which every float is exact."""
        write_json(path, _FORMAT, self.describe())

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
        return read_json(path, _FORMAT, cls.from_record, "an account")


def recorded(described: Mapping[str, Any]) -> Mechanism:
    """The mechanism that `Mechanism.describe` told of."""
    options = dict(described)
    return MECHANISMS[options.pop("name")](**options)
