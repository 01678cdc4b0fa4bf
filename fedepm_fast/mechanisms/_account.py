"""What a client has spent in all, over all the runs and federations that it took part in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.validation import check_array, check_choice, check_int, check_real
from ._base import RELATIONS, at_least
from ._composition import (
    basic_delta,
    basic_epsilon,
    gaussian_mu,
    least_multiplier,
    loss_of,
    total,
    up,
)
from ._releases import Releases
from .gaussian import gaussian_epsilon

METHODS = ("basic", "pld")

#: Share of a multiplier by which a search by privacy loss distributions may end above it.
_PLD_SLACK = 1e-3


@dataclass(frozen=True)
class Account(Releases):
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

    # Words --------------------------------------------------------------------------------

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
