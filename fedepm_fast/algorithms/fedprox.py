"""FedProx: federated averaging with a proximal term in the clients' objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Around, number_or, param, real
from ..objectives import Problem
from ._base import PrivacyPlan
from ._epochs import Constants, Epochs, epoch_stages
from ._rates import LIPSCHITZ, own_bounds
from ._views import Array, AtClients


@dataclass(frozen=True)
class FedProx(Epochs):
    """FedProx (Li et al. 2020, Federated optimization in heterogeneous networks, Algorithm 2).

    ::

        clients:  w_i ~ argmin over w of F_i(w) + mu/2 * |w - x|^2
        server:   x <- sum of n_i * w_i / sum of n_i, over the clients of the round

    Clients solve inexactly: as in the paper's experiments by E epochs of gradient steps from x,
    ``w <- w - eta * (grad F_i(w; b) + mu * (w - x))`` for each batch b, all rows by default. The
    gamma for which that is a gamma-inexact solution is what comes of it; no step is left out.
    F_i and the weights n_i are those of `FedAvg`, which this is with prox = 0. As FedAvg selects,
    clients of a round are drawn uniformly and weigh n_i; the paper draws them by n_i, and lets them
    weigh alike.

    A client keeps nothing between rounds, and sends w_i. A round takes E gradients of its rows.
    Learning rate and mu are numbers, tuned in the paper. With ``"lipschitz"`` mu is the largest
    curvature of an F_i, and the rate that of `FedAvg` with mu added to the curvature.

    Where the F_i are convex, a client's exact solution is within ``|grad F_i(x)| / mu`` of x. With
    mu large enough for how much the clients differ f falls in expectation (Theorem 4), by steps
    that are as much smaller. It rests off the optimum as FedAvg does, nearer to it the larger mu
    is. Choose it where FedAvg's clients drift apart.

    Parameters
    ----------
    prox : float or "lipschitz"
        Weight mu of the proximal term, at least 0, or the largest of the clients' bounds of
        curvature.
    prox_scale : float
        Multiplies it.
    """

    prox: str | float = param(
        "lipschitz", check=number_or("lipschitz", low=0.0), symbol=r"$\mu$", metavar="WEIGHT",
        help="Weight of the proximal term, a number or lipschitz: the largest bound of the "
        "clients' curvature",
    )  # fmt: skip
    prox_scale: float = param(
        1.0, check=real(low=0.0, open_low=True), search=Around(1000.0, 10.0), symbol=r"$\mu$",
        label="multiple of the proximal term", help="Multiplies the proximal term",
    )  # fmt: skip

    name: ClassVar[str] = "fedprox"
    label: ClassVar[str] = "FedProx"
    tells: ClassVar[tuple[str, ...]] = ("weight", "rate", "curvature")
    tuned: ClassVar[tuple[str, ...]] = ("prox_scale", "rate_scale", "local_steps")

    @property
    def share(self) -> float:
        """The weight of the proximal term as a multiple of the curvature that is agreed on."""
        return self.prox_scale * (1.0 if self.prox == LIPSCHITZ else float(self.prox))

    def curvatures(self, problem: Problem) -> Array:
        """What the weight is a multiple of, as each client has it: 1 for numbers; shape (m,)."""
        if self.prox == LIPSCHITZ:
            return own_bounds("prox", problem) / problem.client_weights
        return np.ones(len(problem.data.client_sizes))

    def added_curvature(self, problem: Problem) -> float:
        return self.share * float(self.curvatures(problem).max())

    def told(self, problem: Problem) -> Array:
        return np.vstack([super().told(problem), self.curvatures(problem)])

    def agreed(self, told: Array) -> Array:
        found = super().agreed(told)
        found[2] = told[2].max()
        if self.learning_rate == LIPSCHITZ:
            found[1] = 1.0 / (1.0 / found[1] + self.share * found[2] / self.rate_scale)
        return found

    def numbers_received(self, n: int, taken_part: int) -> int:
        of_prox = taken_part if self.prox == LIPSCHITZ else 0
        return super().numbers_received(n, taken_part) + of_prox

    def pull(self, clients: AtClients, row: int) -> float:
        return self.share * float(clients.told["curvature"][row])

    def stages(self, client: Any) -> tuple[Any, Any]:
        return epoch_stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return super().constants(n, plan)._replace(pull=self.share)
