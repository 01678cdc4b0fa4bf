"""FedProx: federated averaging with a proximal term in the clients' objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._common.parameters import Around, param, real
from ._epochs import Epochs


@dataclass(frozen=True)
class FedProx(Epochs):
    """FedProx (Li et al. 2020, Federated optimization in heterogeneous networks, Algorithm 2).

    ::

        clients:  w_i ~ argmin over w of F_i(w) + prox/2 * |w - x|^2
        server:   x <- sum of n_i * w_i / sum of n_i, over the clients of the round

    Clients solve inexactly: as in the paper's experiments by E epochs of gradient steps from x,
    ``w <- w - eta * (grad F_i(w; b) + prox * (w - x))`` for each batch b, all rows by default. The
    gamma for which that is a gamma-inexact solution is what comes of it; no step is left out.
    F_i and the weights n_i are those of `FedAvg`, which this is with prox = 0. As FedAvg selects,
    clients of a round are drawn uniformly and weigh n_i; the paper draws them by n_i, and lets them
    weigh alike.

    A client keeps nothing between rounds, and sends w_i. A round takes E gradients of its rows.
    The learning rate is a number, tuned in the paper; ``"lipschitz"`` is that of `FedAvg` with
    prox added to the curvature.

    Local solutions stay within |grad F_i(x)| / prox of x: with prox large enough f falls in
    expectation, however much the clients differ (Theorem 4), and steps are as much smaller. It
    rests off the optimum too, nearer to it. Choose it where FedAvg's clients drift apart.

    Parameters
    ----------
    prox : float
        Weight of the proximal term, mu in the paper.
    """

    prox: float = param(
        1e-3, check=real(low=0.0), search=Around(1000.0, 1000.0), symbol=r"$\mu$",
        help="Weight of the proximal term",
    )  # fmt: skip

    name: ClassVar[str] = "fedprox"
    label: ClassVar[str] = "FedProx"
    tuned: ClassVar[tuple[str, ...]] = ("rate_scale", "prox", "local_steps")

    @property
    def pull(self) -> float:
        return self.prox
