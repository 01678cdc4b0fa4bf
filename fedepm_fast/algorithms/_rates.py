"""One learning rate for all clients: a number, or what a bound of their curvature allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Around, number_or, param, real
from .._common.rounding import at_most
from ..objectives import Problem
from ._averaging import LocalSteps
from ._views import Array, AtClients

#: The learning rate that is one over a bound of the curvature.
LIPSCHITZ = "lipschitz"


@dataclass(frozen=True)
class CommonRate(LocalSteps, abstract=True):
    """Local steps of one length for all clients.

    Each client tells the rate that it could have. The server says the smallest to all.

    Parameters
    ----------
    learning_rate : float or "lipschitz"
        The step of the local iterations. ``"lipschitz"`` is one over the largest of the
        clients' bounds of curvature, and needs a loss that has one.
    rate_scale : float
        Multiplies the learning rate.
    """

    learning_rate: str | float = param(
        "lipschitz", check=number_or("lipschitz", low=0.0, open_low=True), symbol=r"$\eta$",
        metavar="RATE", help="Step of the local iterations, a number or lipschitz: one over the "
        "largest bound of the clients' curvature",
    )  # fmt: skip
    rate_scale: float = param(
        1.0, check=real(low=0.0, open_low=True), search=Around(30.0, 30.0), symbol=r"$\eta$",
        label="multiple of the learning rate", help="Multiplies the learning rate",
    )  # fmt: skip

    tells: ClassVar[tuple[str, ...]] = ("rate",)
    tuned: ClassVar[tuple[str, ...]] = ("rate_scale", "local_steps")

    def bounds(self, problem: Problem) -> Array:
        """Bounds of the clients' curvature, shape (m,), that ``"lipschitz"`` keeps to."""
        return problem.lipschitz()

    def added_curvature(self, problem: Problem) -> float:
        """What a proximal term adds to the curvature that every client's steps are taken on."""
        return 0.0

    def told(self, problem: Problem) -> Array:
        return self.rate_scale * own_rates(self.learning_rate, problem, self.bounds)[None]

    def agreed(self, told: Array) -> Array:
        found = told.copy()
        found[self.tells.index("rate")] = told[self.tells.index("rate")].min()
        return found

    def numbers_received(self, n: int, taken_part: int) -> int:
        rates = taken_part if self.learning_rate == LIPSCHITZ else 0
        return super().numbers_received(n, taken_part) + rates

    def divisor(self, tau: int) -> float:
        """What the rate is divided by in round `tau`."""
        return 1.0

    def rate(self, clients: AtClients, row: int) -> float:
        """The step of the client in a row."""
        return float(clients.told["rate"][row]) / self.divisor(clients.tau)

    def advice(self, problem: Problem) -> str:
        if not problem.has_lipschitz:
            return "a smaller rate_scale makes the local steps stable"
        # A gradient step is stable up to twice the inverse of the curvature.
        steps = self.known(problem)[self.tells.index("rate")] / self.divisor(0)
        bounds = self.bounds(problem) + self.added_curvature(problem)
        share = float((steps * bounds).max()) / 2.0
        if share <= 1.0:
            return "the local steps are stable with this learning_rate"
        most = self.rate_scale / share
        return f"a rate_scale of {at_most(most)} or less makes the local steps stable"


def own_rates(learning_rate: float | str, problem: Problem, bounds: Any = None) -> Array:
    """Each client's learning rate, shape (m,): the number, or one over its bound of curvature.

    Parameters
    ----------
    learning_rate : float or "lipschitz"
    problem : Problem
    bounds : callable, optional
        ``bounds(problem)``, shape (m,); by default those of the f_i, `Problem.lipschitz`.

    Raises
    ------
    ValueError
        As `own_bounds`.
    """
    if learning_rate != LIPSCHITZ:
        return np.full(len(problem.data.client_sizes), float(learning_rate))
    return 1.0 / own_bounds("learning_rate", problem, bounds)


def own_bounds(name: str, problem: Problem, bounds: Any = None) -> Array:
    """Each client's bound of curvature, shape (m,), above 0, for the parameter of that name.

    Raises
    ------
    ValueError
        If nothing bounds the second derivative of the loss, or sums of squares overflow.
    """
    if not problem.has_lipschitz:
        objective = getattr(problem, "objective", None)
        whose = "callables without an attribute lipschitz"
        if objective is not None:
            whose = f"the objective {objective.name!r}"
        raise ValueError(
            f"{name} must be a number for {whose}: nothing bounds the curvature, which "
            f"{LIPSCHITZ!r} needs"
        )
    found = problem.lipschitz() if bounds is None else bounds(problem)
    if not np.isfinite(found).all():
        raise ValueError(
            "features must be brought to scale: sums of their squares overflow, so nothing bounds "
            f"the curvature, which {name} {LIPSCHITZ!r} needs"
        )
    # Where there is no curvature at all the gradient is 0, and its step any number.
    return np.maximum(found, np.finfo(np.float64).tiny)
