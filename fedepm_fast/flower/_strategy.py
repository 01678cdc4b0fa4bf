"""FedEPM, or another algorithm, as a Flower strategy."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from .._common.validation import check_int, check_real
from ..algorithms import Algorithm
from ..federation.server import Server
from ._messages import shared_record, to_client, told_at_first
from ._records import ARRAYS, CONFIG, Layout, content

log = logging.getLogger(__name__)

#: Seconds between two looks for clients that connect.
POLL = 1.0


class FedEPMStrategy(Strategy):
    """FedEPM, or any other algorithm but CurvatureFedEPM and FedNL, as a Flower strategy.

    In every Flower round, nodes that the strategy has not met are asked for their client's
    number and first upload; the server aggregates all members' last uploads and selects;
    the selected clients train; replies that are malformed or missing are logged, with client and
    fault, and left out. The arrays of a round's result are the next round's point.

    Parameters
    ----------
    algorithm : FedEPM, or any other but CurvatureFedEPM and FedNL
        The parameters; clients that have others answer with an error. Of a mechanism, name and
        clip: a private client's budget is its own.
    clients : int
        How many clients there can be, m.
    min_clients : int
        How many must be connected before a round begins.
    seed, trial, path, largest, threads
        As of `fedepm_fast.federation.server.Server`. With `path`, ``num_rounds`` of a restarted
        server counts from where it was: pass ``total - strategy.restore(arrays).tau``. A restarted
        server is a new run to Flower: clients that shall go on as well need a `path`, too.
    join_timeout : float
        Seconds to wait for new clients' first uploads before a round; who is late is asked again
        before the next.

    Notes
    -----
    Nothing is evaluated on the clients; ``start(evaluate_fn=...)`` evaluates on the server.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        clients: int,
        *,
        min_clients: int = 1,
        seed: int = 0,
        trial: int = 0,
        path: str | os.PathLike[str] | None = None,
        largest: float | None = None,
        threads: int | None = None,
        join_timeout: float = 60.0,
    ) -> None:
        self.algorithm: Any = algorithm
        self.clients = check_int("clients", clients, low=1)
        self.min_clients = check_int("min_clients", min_clients, low=1, high=self.clients)
        self.join_timeout = check_real("join_timeout", join_timeout, low=0.0)
        self._options: dict[str, Any] = dict(
            seed=seed, trial=trial, path=path, largest=largest, threads=threads
        )
        self._server: Any = None
        self._layout: Layout
        self._initial: ArrayRecord
        self._client_of: dict[int, int] = {}
        #: What is shared in the round.
        self._shared: ArrayRecord | None = None

    def restore(self, initial_arrays: ArrayRecord) -> Any:
        """The server's state, for arrays like these; made, or read from `path`, once."""
        if self._server is None:
            self._layout, self._initial = Layout(initial_arrays), initial_arrays
            self._server = self._make_server()
        return self._server

    def _make_server(self) -> Any:
        return Server(
            self.algorithm,
            self.clients,
            self._layout.size,
            dtype=self._layout.dtype,
            **self._options,
        )

    def summary(self) -> None:
        log.info("%s of up to %d clients: %s", self.algorithm.label, self.clients, self.algorithm)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        server = self.restore(arrays)
        nodes = self._meet(server, grid)
        opened = server.open_round()
        own = {"round": opened.tau, "server-round": server_round, **self._asked_of(opened)}
        common = {**config, **own, "algorithm": self._parameters()}
        x, self._shared = self._layout.record(opened.x), None
        node_of = {client: node for node, client in self._client_of.items() if node in nodes}
        messages = []
        for client in server.awaited.tolist():  # after a restart, not those that have replied
            if client in node_of:
                record = RecordDict({ARRAYS: x, **self._told(client, common)})
                messages.append(Message(record, node_of[client], MessageType.TRAIN))
            else:
                server.reject(client, "it is not connected")
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        server = self._server
        if server is None:
            raise RuntimeError("aggregate_train comes after configure_train")
        for message in replies:
            node = message.metadata.src_node_id
            client = self._client_of.get(node, f"of unknown node {node}")
            try:
                arrays, metrics = content(message)
                receive = self._received(arrays, metrics)
            except Exception as error:  # whatever a client may send
                server.reject(client, str(error))
                if server.algorithm.keeps:  # it may have lost that: asked who it is, it joins again
                    self._client_of.pop(node, None)
            else:
                receive(metrics.get("round"), client)
        accepted = server.close_round()
        return self._layout.record(server.x), MetricRecord({"clients": len(accepted)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return None

    def _asked_of(self, opened: Any) -> dict[str, Any]:
        """What clients are told of a round beside its number and point."""
        return {}

    def _asked_of_new(self, server: Any) -> dict[str, Any]:
        """What clients are told of that are new."""
        return {}

    def _told(self, client: int, common: dict[str, Any]) -> dict[str, Any]:
        """Records of what a client is told beside the point, with what all are told."""
        message = self._server.message(client)
        if self._shared is None:  # once a round, however many clients it goes to
            self._shared = shared_record(message)
        return to_client(message, self._shared, common)

    def _received(self, arrays: ArrayRecord, metrics: MetricRecord) -> Callable[..., bool]:
        """What hands a reply to the server, given round and client."""
        assert self._server is not None
        upload, scale = self._layout.vector(arrays), metrics.get("scale")
        return functools.partial(self._server.receive, upload=upload, scale=scale)

    def _joined(self, client: int, arrays: ArrayRecord, metrics: MetricRecord) -> bool:
        """Hand a first reply to the server."""
        assert self._server is not None
        scale: Any = metrics.get("scale")
        told = told_at_first(self._server.algorithm, metrics)
        return bool(self._server.join(client, self._layout.vector(arrays), scale=scale, told=told))

    def _parameters(self) -> str:
        assert self._server is not None
        return json.dumps(self._server.algorithm.describe())

    def _meet(self, server: Any, grid: Grid) -> set[int]:
        """Ask nodes that are new who they are, until enough are there; the connected nodes."""
        asked: set[int] = set()
        waiting_with = -1
        while True:
            nodes = set(grid.get_node_ids())
            new = sorted(nodes - self._client_of.keys() - asked)
            asked.update(new)
            if new:
                known = server.members
                arrays = self._layout.record(server.x) if len(known) else self._initial
                own = {"members": known.tolist(), "algorithm": self._parameters()}
                own |= self._asked_of_new(server)
                record = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(own)})
                messages = [Message(record, node, MessageType.QUERY) for node in new]
                for reply in grid.send_and_receive(messages, timeout=self.join_timeout):
                    self._join(server, reply, nodes)
            connected = len(nodes & self._client_of.keys())
            if connected >= self.min_clients:
                return nodes
            if connected != waiting_with:
                log.warning("waiting for clients: %d of at least %d", connected, self.min_clients)
                waiting_with = connected
            time.sleep(POLL)

    def _join(self, server: Any, message: Message, nodes: set[int]) -> None:
        node = message.metadata.src_node_id
        name = f"of node {node}"
        try:
            arrays, metrics = content(message)
            client = check_int("client", metrics.get("client"), high=self.clients - 1)
            name = f"{client} {name}"
            known = [other for other, i in self._client_of.items() if i == client]
            if any(other in nodes for other in known):
                raise ValueError(f"node {known[0]} is connected under this number")
            if client in server.members and arrays:  # it has lost what it kept
                server.leave(client)
            if client not in server.members and not self._joined(client, arrays, metrics):
                return
        except Exception as error:  # whatever a client may send
            server.reject(name, str(error))
            return
        for other in known:
            del self._client_of[other]
        self._client_of[node] = client
