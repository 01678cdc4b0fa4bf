"""What weighs in f how much: rows, clients, and coordinates in the regulariser."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import check_choice
from ..losses import REGULARIZERS, Objective, as_objective

if TYPE_CHECKING:
    from ..data import FederatedData

Array = NDArray[np.float64]

#: How clients weigh in f: all alike, as in the paper, or each by the weights of its rows, which
#: makes f/m the objective of the pooled rows.
CLIENT_WEIGHTS = ("equal", "size")


@dataclass(frozen=True, eq=False)
class Weighed:
    """An objective bound to the rows of clients, and the weights that f has of it."""

    data: FederatedData
    objective: Objective
    client_weight: str = CLIENT_WEIGHTS[0]

    def __post_init__(self) -> None:
        check_choice("client_weight", self.client_weight, CLIENT_WEIGHTS)
        objective = as_objective(self.objective)
        if objective.regularizer is None:
            objective = objective.changed(regularizer=REGULARIZERS[0])
        object.__setattr__(self, "objective", objective.fit_to(self.data))

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return self.data.n_clients

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return self.data.n_samples

    @property
    def n_parameters(self) -> int:
        """Number of coordinates of a point, n: one per feature, or per class and feature."""
        return self.objective.n_outputs * self.data.n_features

    @cached_property
    def client_weights(self) -> Array:
        """Weight of each client in f, c_i, shape (m,); their sum is m."""
        if self.client_weight == "equal":
            return np.ones(self.n_clients)
        m, s = self._whole
        return self.data.weight_sums * m / s

    @property
    def _whole(self) -> tuple[int, float]:
        """m, and s: what weights of clients are relative to."""
        return self.n_clients, self.data.weight_sums.sum()

    @cached_property
    def is_weighted(self) -> bool:
        """Whether rows have weights, or clients other ones than 1."""
        if self.data.sample_weight is not None:
            return True
        return self.client_weight != CLIENT_WEIGHTS[0] and bool((self.client_weights != 1).any())

    def _weighs(self, i: int) -> bool:
        return self.data.sample_weight is not None or bool(self.client_weights[i] != 1)

    @cached_property
    def reg(self) -> Array:
        """Weight of each client's regulariser in f, ``c_i * reg_i``, shape (m,)."""
        sums, beta = self.data.weight_sums, self.objective.beta
        if self.objective.regularizer == "beta":
            return self.client_weights * beta
        if self.client_weight == "equal":
            return beta / sums
        return self.client_weights * (beta / self._whole[1])

    @cached_property
    def row_weights(self) -> Array:
        """Weight of each row's loss in f, ``c_i * v_t / s_i``, shape (d,)."""
        sizes, v = self.data.client_sizes, self.data.sample_weight
        of_client = np.repeat(self.client_weights / self.data.weight_sums, sizes)
        return of_client if v is None else of_client * v

    @cached_property
    def reg_weights(self) -> Array | float:
        """Weights of the coordinates in the regulariser, shape (n,); 1 where all are."""
        if self.objective.weights is None:
            return 1.0
        return np.tile(self.objective.weights, self.objective.n_outputs)

    @property
    def reg_curvature(self) -> Array:
        """Largest second derivative of each client's regulariser, shape (m,)."""
        return self.reg * np.max(self.reg_weights)

    def describe(self) -> dict[str, Any]:
        """The objective as plain values, for records; weights where they are not the paper's."""
        found = self.objective.describe()
        if self.client_weight != CLIENT_WEIGHTS[0]:
            found["client_weight"] = self.client_weight
        if self.data.sample_weight is not None:
            found["sample_weight"] = "given"
        return found
