"""FedEPM in Flower: a strategy, a client app, and ENS as the aggregator of other strategies.

::

    server: FedEPMStrategy(FedEPM(), clients=100).start(grid, initial_arrays, num_rounds=20)
    client: app = client_app(lambda context: Client(FedEPM(), gradient, ...))

or `PrivateClient`, whose uploads are private.

Both are thin: `fedepm_fast.federation.server` and `fedepm_fast.federation.client` do the work.
Needs Flower 1.21 or later (its message-based strategies): ``pip install 'fedepm-fast[flower]'``.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from .._common.extras import require
from .._common.validation import check_int, check_real
from ..algorithms import FedEPM
from ..federation.client import Client, ClientState, PrivateClient, UploadRefused
from ..federation.server import Server

require("flwr.serverapp", "flower", "fedepm_fast.flower")

from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import Strategy  # noqa: E402

from ._aggregate import ElasticNetAggregate  # noqa: E402
from ._records import ARRAYS, CONFIG, METRICS, Layout, content  # noqa: E402

__all__ = ["ElasticNetAggregate", "FedEPMStrategy", "client_app", "join", "train"]

log = logging.getLogger(__name__)

#: Where a client's state lies in its context.
STATE = "fedepm"
#: Error code of every error in answer, that of any exception in a client app.
REFUSED = 2
#: All that is said of a fault where rows may be private: texts and types of exceptions show rows.
FAILED = "the client failed; its own log says why"
#: Seconds between two looks for clients that connect.
POLL = 1.0


# The server -----------------------------------------------------------------------------


class FedEPMStrategy(Strategy):
    """FedEPM as a Flower strategy.

    In every Flower round, nodes that the strategy has not met are asked for their client's
    number and first upload; the server aggregates all members' last uploads and selects;
    the selected clients train; replies that are malformed or missing are logged, with client and
    fault, and left out. The arrays of a round's result are the next round's point.

    Parameters
    ----------
    algorithm : FedEPM
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
        algorithm: FedEPM,
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
        self.algorithm, self.clients = algorithm, check_int("clients", clients, low=1)
        self.min_clients = check_int("min_clients", min_clients, low=1, high=self.clients)
        self.join_timeout = check_real("join_timeout", join_timeout, low=0.0)
        self._options: dict[str, Any] = dict(
            seed=seed, trial=trial, path=path, largest=largest, threads=threads
        )
        self._server: Server | None = None
        self._layout: Layout
        self._initial: ArrayRecord
        self._client_of: dict[int, int] = {}

    def restore(self, initial_arrays: ArrayRecord) -> Server:
        """The server's state, for arrays like these; made, or read from `path`, once."""
        if self._server is None:
            self._layout, self._initial = Layout(initial_arrays), initial_arrays
            self._server = Server(
                self.algorithm,
                self.clients,
                self._layout.size,
                dtype=self._layout.dtype,
                **self._options,
            )
        return self._server

    def summary(self) -> None:
        log.info("FedEPM of up to %d clients: %s", self.clients, self.algorithm)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        server = self.restore(arrays)
        nodes = self._meet(server, grid)
        tau, x, _ = server.open_round()
        record = RecordDict(
            {ARRAYS: self._layout.record(x), CONFIG: self._config(config, tau, server_round)}
        )
        node_of = {client: node for node, client in self._client_of.items() if node in nodes}
        messages = []
        for client in server.awaited.tolist():  # after a restart, not those that have replied
            if client in node_of:
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
                upload = self._layout.vector(arrays)
            except Exception as error:  # whatever a client may send
                server.reject(client, str(error))
            else:
                tau, scale = metrics.get("round"), metrics.get("scale")
                server.receive(tau, client, upload, scale=scale)  # type: ignore[arg-type]
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

    def _config(self, config: ConfigRecord, tau: int, server_round: int) -> ConfigRecord:
        own = {"round": tau, "server-round": server_round, "algorithm": self._parameters()}
        return ConfigRecord({**config, **own})

    def _parameters(self) -> str:
        assert self._server is not None
        return json.dumps(self._server.algorithm.describe())

    def _meet(self, server: Server, grid: Grid) -> set[int]:
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

    def _join(self, server: Server, message: Message, nodes: set[int]) -> None:
        node = message.metadata.src_node_id
        name = f"of node {node}"
        try:
            arrays, metrics = content(message)
            client = check_int("client", metrics.get("client"), high=self.clients - 1)
            name = f"{client} {name}"
            known = [other for other, i in self._client_of.items() if i == client]
            if any(other in nodes for other in known):
                raise ValueError(f"node {known[0]} is connected under this number")
            scale: Any = metrics.get("scale")
            if client not in server.members and not server.join(
                client, self._layout.vector(arrays), scale=scale
            ):
                return
        except Exception as error:  # whatever a client may send
            server.reject(name, str(error))
            return
        for other in known:
            del self._client_of[other]
        self._client_of[node] = client


# The client -----------------------------------------------------------------------------

Work = Callable[[Client | PrivateClient, Message, Context], Message]


class ParametersDiffer(ValueError):
    """The server's parameters are not the client's; both are public."""


def client_app(make_client: Callable[[Context], Client | PrivateClient]) -> ClientApp:
    """A Flower app of `FedEPMStrategy`'s clients.

    Parameters
    ----------
    make_client : callable
        Gives the client of a node from its Flower context; called for every message. The
        client's state is kept in ``context.state``, which Flower forgets with the run, and in
        the client's `path` if it has one, by which it survives a new run of the server; that of
        a `PrivateClient` is in its ledger alone. What that refuses to upload the strategy logs.

    Notes
    -----
    Whatever goes wrong in `make_client` or in a `PrivateClient` is logged on the client's side in
    full, and answered with one constant sentence, since texts of exceptions show rows. So load
    rows in `make_client`: what the import of a module raises, Flower itself may send. Exceptions
    of a `Client` are sent as text. A private client's metrics are its number, the round and the
    scale of its noise, all public; Flower's ``num-examples`` is not among them. Nothing is
    evaluated: an ``evaluate`` function that you add sends what it computes, without noise.
    """
    app = ClientApp()

    def answer(work: Work, message: Message, context: Context) -> Message:
        try:
            client = make_client(context)
        except BaseException as error:
            return _failed(error, message)
        return work(client, message, context)

    @app.query()
    def _(message: Message, context: Context) -> Message:
        return answer(join, message, context)

    @app.train()
    def _(message: Message, context: Context) -> Message:
        return answer(train, message, context)

    return app


def _failed(error: BaseException, message: Message) -> Message:
    """The answer to a message at which rows that may be private raised an exception."""
    if isinstance(error, KeyboardInterrupt):  # of who runs the client
        raise error
    log.error("a message of the server could not be answered", exc_info=error)
    return Message(Error(REFUSED, FAILED), reply_to=message)


def _discreet(work: Work) -> Work:
    """`work`, from which only a `Client`'s exceptions, and what is public, come out."""

    @functools.wraps(work)
    def discreet(client: Client | PrivateClient, message: Message, context: Context) -> Message:
        if isinstance(client, Client):
            return work(client, message, context)
        try:
            return work(client, message, context)
        except (ParametersDiffer, UploadRefused) as refusal:
            return Message(Error(REFUSED, str(refusal)), reply_to=message)
        except BaseException as error:
            return _failed(error, message)

    return discreet


@_discreet
def join(client: Client | PrivateClient, message: Message, context: Context) -> Message:
    """A client's answer to a strategy that does not know its node.

    A client that the server has as a member keeps its state; any other begins anew. A private
    client's faults are an error in answer, as `client_app` says.
    """
    config = _agree(client, message)
    arrays = message.content[ARRAYS]
    metrics: dict[str, Any] = {"client": client.index}
    if client.index in config["members"]:
        return _reply(message, ArrayRecord(), metrics)
    layout = Layout(arrays)
    if isinstance(client, Client):
        state, upload = client.join(layout.vector(arrays))
        _remember(client, context, state)
    else:
        upload, scale = client.join(layout.vector(arrays))
        metrics |= {} if scale is None else {"scale": scale}
    return _reply(message, layout.record(upload), metrics)


@_discreet
def train(client: Client | PrivateClient, message: Message, context: Context) -> Message:
    """A client's round: gradient, local steps, noise; its state in ``context.state``, or a ledger.

    What a private client refuses to upload, and its faults, are an error in answer, as
    `client_app` says.
    """
    config, arrays = _agree(client, message), message.content[ARRAYS]
    layout = Layout(arrays)
    tau = config["round"]
    metrics: dict[str, Any] = {"client": client.index, "round": tau}
    if isinstance(client, Client):
        state, upload = client.train(_recall(client, context), layout.vector(arrays), tau)
        _remember(client, context, state)
    else:
        upload, metrics["scale"] = client.train(layout.vector(arrays), tau)
    return _reply(message, layout.record(upload), metrics)


def _agree(client: Client | PrivateClient, message: Message) -> ConfigRecord:
    """The message's configuration, if the server's parameters are the client's."""
    config = message.content[CONFIG]
    theirs = _shared(json.loads(config["algorithm"]))
    for name, value in _shared(client.algorithm.describe()).items():
        if theirs.get(name) != value:
            raise ParametersDiffer(
                f"algorithm must be the server's: {name} is {theirs.get(name)!r} there, "
                f"{value!r} at client {client.index}"
            )
    return config


def _shared(parameters: dict[str, Any]) -> dict[str, Any]:
    """What server and clients must agree on: a private client's budget is its own."""
    mechanism = parameters["mechanism"]
    if mechanism is None:
        return parameters
    return {**parameters, "mechanism": {name: mechanism[name] for name in ("name", "clip")}}


def _recall(client: Client, context: Context) -> ClientState | None:
    if STATE not in context.state.array_records:
        return client.recall()
    arrays = context.state[STATE]
    iterations = context.state[f"{STATE}.iterations"]["iterations"]
    return ClientState(arrays["w"].numpy(), arrays["before"].numpy(), iterations)


def _remember(client: Client, context: Context, state: ClientState) -> None:
    context.state[STATE] = ArrayRecord({"w": Array(state.w), "before": Array(state.before)})
    context.state[f"{STATE}.iterations"] = ConfigRecord({"iterations": state.iterations})
    client.remember(state)


def _reply(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
    content = RecordDict({ARRAYS: arrays, METRICS: MetricRecord(metrics)})
    return Message(content, reply_to=message)
