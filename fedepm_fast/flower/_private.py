"""A planned private run in Flower: its strategy, and what its clients answer beside uploads."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from ..federation.client import PrivateClient
from ..federation.private_server import PrivateServer
from ._records import ARRAYS, CONFIG, content, ndarray
from ._strategy import POLL, FedEPMStrategy

if TYPE_CHECKING:
    from ..privacy.private_plan import PrivatePlan

log = logging.getLogger(__name__)

#: Of a configuration that asks for second moments, and the array that answers it.
RADIUS, MOMENTS = "radius", "moments"
#: The record of what clients multiply their columns by, and its array.
COORDINATES = "coordinates"


class PrivateStrategy(FedEPMStrategy):
    """A `PrivatePlan` as a Flower strategy; its clients are `PrivateClient` of ``plan.algorithm``.

    Nodes that the strategy has not met are asked for their client's number. Before the first round
    the clients send their second moments, once, from which the server settles the coordinates of
    the rounds; these are sent along with every point. The arrays of a round's result are the model
    so far, in the columns: the mean of the last points, and after all rounds of the plan that of
    the plan. Further rounds ask nobody.

    Parameters
    ----------
    plan : PrivatePlan
        With ``trust="clients"``.
    min_clients : int, optional
        How many clients must be connected before a round begins, and must have sent second moments
        before the first; all of the plan by default.
    seed, trial, path, largest, threads
        As of `fedepm_fast.federation.private_server.PrivateServer`. With `path` a restarted server
        goes on where it was: pass ``num_rounds=plan.rounds - strategy.restore(arrays).tau``.
    join_timeout : float
        As of `FedEPMStrategy`, and for second moments.

    Notes
    -----
    The initial arrays are zeros: there all coordinates agree.
    """

    def __init__(
        self,
        plan: PrivatePlan,
        *,
        min_clients: int | None = None,
        seed: int = 0,
        trial: int = 0,
        path: str | os.PathLike[str] | None = None,
        largest: float | None = None,
        threads: int | None = None,
        join_timeout: float = 60.0,
    ) -> None:
        m = len(plan.client_sizes)
        super().__init__(
            plan.algorithm, m, min_clients=m if min_clients is None else min_clients, seed=seed,
            trial=trial, path=path, largest=largest, threads=threads, join_timeout=join_timeout,
        )  # fmt: skip
        self.plan = plan

    def _make_server(self) -> PrivateServer:
        n = self.plan.n_features * self.plan.objective.n_outputs
        if self._layout.size != n or self._layout.vector(self._initial).any():
            raise ValueError(f"arrays must be {n} zeros, the plan's columns and outputs")
        return PrivateServer(self.plan, dtype=self._layout.dtype, **self._options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        server = self.restore(arrays)
        if server.done:
            return []
        if not server.settled:
            self._settle(server, grid)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        server = self._server
        metrics = MetricRecord({"clients": 0})
        if server is None or not server.done:
            _, metrics = super().aggregate_train(server_round, replies)  # type: ignore[assignment]
        return self._layout.record(self._server.model.astype(self._layout.dtype)), metrics

    def _settle(self, server: PrivateServer, grid: Grid) -> None:
        """Ask clients for their second moments, until enough have sent them."""
        heard: set[int] = set()
        while True:
            nodes = self._meet(server, grid)
            node_of = {i: node for node, i in self._client_of.items() if node in nodes}
            asked: dict[str, Any] = {
                RADIUS: self.plan.radius,
                "members": [],
                "algorithm": self._parameters(),
            }
            record = RecordDict({ARRAYS: self._initial, CONFIG: ConfigRecord(asked)})
            messages = [
                Message(record, node_of[i], MessageType.QUERY)
                for i in sorted(node_of.keys() - heard)
            ]
            for reply in grid.send_and_receive(messages, timeout=self.join_timeout):
                node = reply.metadata.src_node_id
                client: Any = self._client_of.get(node, f"of unknown node {node}")
                try:
                    found, metrics = content(reply)
                    values, scale = ndarray(found[MOMENTS]), metrics.get("scale")
                except Exception as error:  # whatever a client may send
                    server.reject(client, str(error))
                else:
                    if server.receive_moments(client, values, scale):
                        heard.add(client)
            if len(heard) >= self.min_clients:
                server.settle()
                return
            log.warning(
                "waiting for second moments: %d of at least %d", len(heard), self.min_clients
            )
            time.sleep(POLL)

    def _told(self, client: int, common: dict[str, Any]) -> dict[str, Any]:
        if self._shared is None:  # once a round, however many clients it goes to
            self._shared = ArrayRecord({COORDINATES: Array(self._server.coordinates)})
        return {CONFIG: ConfigRecord(common), COORDINATES: self._shared}


def moments(client: PrivateClient, config: Any) -> tuple[ArrayRecord, dict[str, Any]]:
    """A client's second moments as arrays and metrics."""
    values, scale = client.moments(config[RADIUS])
    return ArrayRecord({MOMENTS: Array(values)}), {"client": client.index, "scale": scale}


def coordinates(record: RecordDict) -> dict[str, Any]:
    """What a message says of the coordinates, for `PrivateClient.train`; the client checks it."""
    if COORDINATES not in record:
        return {}
    return {"coordinates": np.array(ndarray(record[COORDINATES][COORDINATES]))}
