"""The objective of a client that holds its own rows alone, as it stands in a whole federation."""

from __future__ import annotations

from dataclasses import dataclass

from .._common.validation import check_int, check_real
from ._problem import Problem


@dataclass(frozen=True, eq=False)
class ClientProblem(Problem):
    """f_i of one client of a federation, with its weight among all: data of one client.

    The numbers are those that a `Problem` of all clients' data has for it, to the last bit.

    Parameters
    ----------
    data, objective, client_weight
        As of `Problem`; data of one client. An objective whose number of classes depends on the
        data needs it given.
    clients : int
        How many clients there are, m.
    weight_sum : float, optional
        The sum of all clients' rows, or of their weights, s. With ``client_weight="size"`` it is
        needed: ``c_i = s_i * m / s``.
    """

    clients: int = 1
    weight_sum: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data.n_clients != 1:
            raise ValueError(f"data must be of one client, got {self.data.n_clients}")
        check_int("clients", self.clients, low=1)
        if self.weight_sum is not None:
            check_real("weight_sum", self.weight_sum, low=0.0, open_low=True)
        elif self.client_weight == "size":
            raise ValueError("weight_sum must be given with client_weight 'size'")

    @property
    def _whole(self) -> tuple[int, float]:
        return self.clients, self.weight_sum or 0.0
