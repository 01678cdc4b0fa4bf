"""The clients' objectives where their rows are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array
from ..losses.scalar import ScalarLoss
from ..objectives import Problem
from . import _worker as worker

if TYPE_CHECKING:
    from ._clients import Clients

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RemoteProblem(Problem):
    """The objectives of clients on workers, which answer what depends on rows.

    Client by client the numbers are those of a `Problem` of all rows, to the last bit.
    """

    @classmethod
    def of(cls, clients: Any, algorithm: Any, objective: Any, client_weight: str) -> RemoteProblem:
        """The problem of an algorithm; ValueError where workers could not do its clients' part."""
        found = cls(clients, objective, client_weight)
        name = type(algorithm).__name__
        if algorithm.mechanism is not None:
            raise ValueError(
                "mechanism must be None for clients on Dask workers: a private run looks at all "
                "rows in one process"
            )
        if not algorithm.compiled or not found.has_kernels:
            raise ValueError(
                f"algorithm and objective must have kernels for clients on Dask workers, got "
                f"{name} with {found.objective.name!r}"
            )
        coordinates = getattr(algorithm, "coordinates", "auto")
        if coordinates not in ("auto", "renewed", "secant"):
            raise ValueError(
                "coordinates must be 'auto', 'renewed' or 'secant' for clients on Dask workers, "
                f"got {coordinates!r}: others are made of all rows"
            )
        return found

    @property
    def clients(self) -> Clients:
        """Whose rows they are."""
        return self.data  # type: ignore[return-value]

    @property
    def described(self) -> tuple[Any, ...]:
        """What workers need to know to make theirs of it."""
        return (self.objective, self.client_weight, *self._whole)

    def _of_each(self, asked: str, *arguments: Any) -> Any:
        """What a method gives for each client, in order."""
        found = self.clients.ask(worker.ask, asked, self.described, *arguments)
        return self.clients.in_order([np.concatenate(parts) for parts in found])

    def values(self, x: ArrayLike) -> Array:
        return np.asarray(self._of_each("values", check_array("x", x, ndim=1)))

    def _of_some(
        self, asked: str, clients: NDArray[np.intp], x: Array, *arguments: Any
    ) -> list[tuple[NDArray[np.intp], Any]]:
        """What a method gives for some clients, by where they stand among those."""
        order = np.argsort(clients)
        sent = self.clients.ask(worker.ask_some, asked, self.described, clients, x, *arguments)
        return [
            (order[np.searchsorted(clients, numbers, sorter=order)], found)
            for parts in sent
            for numbers, found in parts
        ]

    def client_gradients(
        self, clients: ArrayLike, x: Array, *, compiled: bool = True
    ) -> tuple[Array, Array]:
        chosen = check_array("clients", clients, ndim=1, dtype=np.intp)
        values, gradients = np.empty(len(chosen)), np.empty((len(chosen), len(x)))
        for at, (f, g) in self._of_some("client_gradients", chosen, x):
            values[at], gradients[at] = f, g
        return values, gradients

    def packed_hessians(self, clients: ArrayLike, w: Array) -> Array:
        chosen, n = np.asarray(clients, np.intp), self.n_parameters
        hessians = np.empty((len(chosen), n * (n + 1) // 2))
        for at, found in self._of_some("packed_hessians", chosen, w):
            hessians[at] = found
        return hessians

    def gradient(self, i: int, w: ArrayLike) -> Array:
        raise ValueError("engine must be 'compiled' for clients on Dask workers")

    def packed_bounds(self) -> Array:
        return np.asarray(self._of_each("packed_bounds"))

    def column_bounds(self, start: Array | None = None) -> Array:
        return np.asarray(self._of_each("column_bounds", start))

    def row_bounds(self) -> Array:
        return np.asarray(self._of_each("row_bounds"))

    def lipschitz(self) -> Array:
        return np.asarray(self._of_each("lipschitz"))

    def mean_curvature(self) -> float:
        """A bound of the largest eigenvalue of ``bound_hessian() / m``."""
        return float(self.lipschitz().mean())

    def value_at_start(self, start: Array | None) -> float:
        if start is None and self.objective.at_zero is not None:
            return self.n_clients * self.objective.at_zero
        n = self.n_parameters
        x = np.zeros(n) if start is None else start.reshape(-1, n).mean(axis=0)
        if self.is_weighted or isinstance(self.objective, ScalarLoss):
            return self.total_value(x)
        return float(np.asarray(self._of_each("kernel_values", x)).sum())

    def accuracies(self, points: Array) -> Array | None:
        if self.objective.task == "regression":
            return None
        if len(points) == 0:
            return np.empty(0)
        wrong = sum(self.clients.ask(worker.wrong_of, self.described, points))
        return np.asarray(1.0 - wrong / self.n_samples)

    def accuracy(self, x: ArrayLike) -> float | None:
        found = self.accuracies(self._at(x)[None])
        return None if found is None else float(found[0])
