"""Clients whose rows live on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from ..data._summary import summary_of
from ..losses import Objective
from . import _worker as worker
from ._problem import RemoteProblem

Array = NDArray[np.float64]

#: How often a task is done again whose worker died.
RETRIES = 3


class Clients:
    """Clients whose rows live on the workers of a Dask cluster, and stay there.

    Parameters
    ----------
    pieces : sequence
        Of futures or delayed values, each a `FederatedData` of one or several clients; or pairs
        ``(features, labels)`` of futures, delayed values or Dask arrays and frames, each pair one
        client. Labels are numbers, as the objective takes them. The clients are numbered in this
        order.
    client : distributed.Client, optional
        By default the one that is connected.

    Attributes
    ----------
    client_sizes : ndarray of shape (m,)
        Rows of each client, which is what this process learns of them, with the labels there are.

    Raises
    ------
    TypeError, ValueError
        Naming the argument: what is no piece, pieces of different columns, rows with weights.

    Notes
    -----
    Delayed values are computed once, here, and held by the workers until this object goes. Those
    of a worker that dies are computed again elsewhere; futures of data that were scattered cannot
    be.
    """

    #: Rows have no weights.
    sample_weight = None
    client_names = None
    label_mapping = None

    def __init__(self, pieces: Iterable[Any], client: Any = None) -> None:
        import dask

        distributed: Any = require("distributed", "dask", "fedepm_fast.dask.run")
        if isinstance(pieces, (str, bytes)) or not isinstance(pieces, Iterable):
            raise TypeError(f"data must be a sequence of pieces, got {type(pieces).__name__}")
        given = list(pieces)
        if not given:
            raise ValueError("data must be of at least one piece, got none")
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError:
                raise ValueError(
                    "client must be a distributed.Client, or one must be connected"
                ) from None
        self.client = client
        one = dask.delayed(worker.piece_of, pure=False)
        parts = [one(*piece) if isinstance(piece, (tuple, list)) else one(piece) for piece in given]
        with told_of_losses():
            held = client.compute(parts, retries=RETRIES)
            self._facts = client.gather(self._submit_each(worker.facts_of, held))
        self._check()
        ends = np.cumsum([0, *(len(facts.sizes) for facts in self._facts)])
        numbers = [np.arange(a, b) for a, b in pairwise(ends.tolist())]
        self.client_sizes = np.concatenate([facts.sizes for facts in self._facts])
        self.offsets = np.concatenate([[0], np.cumsum(self.client_sizes)])
        self.n_clients, self.n_samples = len(self.client_sizes), int(self.client_sizes.sum())
        first = self._facts[0]
        self.n_features, self.is_sparse, self.feature_names = (
            first.features, first.sparse, first.names,
        )  # fmt: skip
        self.largest = max(facts.largest for facts in self._facts)
        #: One for each worker that has some, and the numbers of their clients.
        self.parcels, self.numbers = [], []
        for address, mine in self._by_worker(held).items():
            own = [numbers[k] for k in mine]
            self.parcels.append(
                client.submit(
                    worker.Parcel, [held[k] for k in mine], own, workers=[address],
                    allow_other_workers=True, pure=False, retries=RETRIES,
                )
            )  # fmt: skip
            self.numbers.append(np.concatenate(own))

    def _by_worker(self, held: list[Any]) -> dict[str, list[int]]:
        where = self.client.who_has(held)
        found: dict[str, list[int]] = {}
        for k, future in enumerate(held):
            addresses = sorted(where.get(future.key, ())) or [""]
            found.setdefault(addresses[0], []).append(k)
        return dict(sorted(found.items(), key=lambda item: item[1][0]))

    def _check(self) -> None:
        first = self._facts[0]
        for k, facts in enumerate(self._facts):
            if facts.weighted:
                raise ValueError(f"data must have rows without weights, piece {k} has some")
            if facts.mapping != first.mapping:
                raise ValueError(
                    f"data must have labels that were mapped alike: {first.mapping} in piece 0, "
                    f"{facts.mapping} in piece {k}"
                )
            for name in ("features", "sparse", "names"):
                found, wanted = getattr(facts, name), getattr(first, name)
                if found != wanted:
                    raise ValueError(
                        f"data must have pieces of the same columns: {name} {wanted} in piece 0, "
                        f"{found} in piece {k}"
                    )

    @property
    def labels(self) -> Array:
        """The labels there are, each once; of very many only the smallest and the largest."""
        return np.unique(np.concatenate([facts.labels for facts in self._facts]))

    @property
    def weight_sums(self) -> Array:
        """Rows of each client, shape (m,)."""
        return self.client_sizes.astype(np.float64)

    @property
    def is_binary(self) -> bool:
        """Whether all labels are 0 or 1."""
        return bool(np.isin(self.labels, (0.0, 1.0)).all())

    @property
    def largest_class(self) -> float:
        """Share of the rows that have the most frequent label."""
        counts = np.zeros(len(self.labels))
        for facts in self._facts:
            counts[np.searchsorted(self.labels, facts.labels)] += facts.counts
        return float(counts.max() / self.n_samples)

    @cached_property
    def description(self) -> dict[str, Any]:
        """How the data came to be, for results."""
        return {"source": "dask", "pieces": len(self._facts)}

    def summary(self) -> str:
        """One line: source, rows, features, clients and their sizes."""
        return summary_of(self)

    def __repr__(self) -> str:
        return f"<Clients {self.summary()}>"

    def bind(self, algorithm: Any, objective: Objective, client_weight: str) -> RemoteProblem:
        """The clients' objectives: what `make_problem` asks for."""
        return RemoteProblem.of(self, algorithm, objective, client_weight)

    # Asking -----------------------------------------------------------------------------

    def _submit_each(self, function: Any, futures: Sequence[Any], *arguments: Any) -> list[Any]:
        with warnings.catch_warnings():
            # Messages of any size are arguments: done again, a task has what it needs.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return [
                self.client.submit(
                    function, future, *(a[k] if isinstance(a, _Each) else a for a in arguments),
                    pure=False, retries=RETRIES,
                )
                for k, future in enumerate(futures)
            ]  # fmt: skip

    def ask(self, function: Any, *arguments: Any, of: Sequence[Any] | None = None) -> list[Any]:
        """``function(parcel, *arguments)`` of each parcel, where it is.

        Arguments that are made by `each` differ from parcel to parcel.
        """
        with told_of_losses():
            futures = self._submit_each(function, of or self.parcels, *arguments)
            found: list[Any] = self.client.gather(futures)
            return found

    def in_order(self, parts: Sequence[Any]) -> Any:
        """Arrays of each parcel's clients as one, in the order of all."""
        whole = np.concatenate(parts)
        found = np.empty_like(whole)
        found[np.concatenate(self.numbers)] = whole
        return found


class _Each(list[Any]):
    """An argument for each parcel."""


def each(arguments: Iterable[Any]) -> Any:
    """An argument for each parcel."""
    return _Each(arguments)


@contextlib.contextmanager
def told_of_losses() -> Iterator[None]:
    """RuntimeError that says what to do where rows are lost with their worker."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        yield
    except (CancelledError, KilledWorker) as error:
        raise RuntimeError(
            "clients' rows were lost with their worker, and could not be made again: data of "
            "delayed values can be, scattered data cannot; or every worker that tried has died "
            f"({error})"
        ) from error
