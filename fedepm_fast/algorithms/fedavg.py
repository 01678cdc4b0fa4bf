"""FedAvg: federated averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ._epochs import Epochs, epoch_stages


@dataclass(frozen=True)
class FedAvg(Epochs):
    """Federated averaging (McMahan et al. 2017, Algorithm 1).

    ::

        clients:  w_i <- x, and E times, for each batch b of a random order of its rows,
                  w_i <- w_i - eta * grad F_i(w_i; b)
        server:   x <- sum of n_i * w_i / sum of n_i, over the clients of the round

    F_i is client i's mean loss with its regulariser, ``f_i / c_i``, and n_i its weight c_i in the
    problem: as published, its number of rows, with ``client_weight="size"``; all alike by default,
    as FedEPM has it. With all rows in a batch an epoch is one gradient step, the paper's
    B = infinity. Batches are drawn anew in each epoch; the paper's are those of a round.

    A client keeps nothing between rounds, and sends w_i. A round takes E gradients of its rows,
    whatever the batches. The learning rate is a number, which was tuned there; ``"lipschitz"`` is
    one over the largest curvature of an F_i and, of batches, over their expected smoothness.

    With E = 1, all rows and all clients in each round it is gradient descent on f, which ends at
    the optimum. With more local steps f falls faster at first, and then rests where the clients'
    drifts cancel, off the optimum by what grows with eta, E and how much the clients differ (Li et
    al. 2020, On the convergence of FedAvg on non-IID data); so it does with batches, and with some
    of the clients in a round. Of batches a client with more rows takes more steps, and counts for
    more in where it rests, however small eta is (Wang et al. 2020, Tackling the objective
    inconsistency problem). Choose it where clients are alike, where a rough answer in few rounds
    will do, and as what others are compared to.
    """

    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"

    def stages(self, client: Any) -> tuple[Any, Any]:
        return epoch_stages(client)
