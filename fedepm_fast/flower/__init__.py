"""FedEPM and its kin in Flower: strategies, a client app, and ENS as an aggregator of others.

::

    server: FedEPMStrategy(FedEPM(), clients=100).start(grid, initial_arrays, num_rounds=20)
    client: app = client_app(lambda context: Client(FedEPM(), gradient, ...))

or `PrivateClient`, whose uploads are private; a whole private plan is a `PrivateStrategy`.

Both are thin: `fedepm_fast.federation.server` and `fedepm_fast.federation.client` do the work.
Needs Flower 1.21 or later (its message-based strategies): ``pip install 'fedepm-fast[flower]'``.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any

from .._common.extras import require
from ..federation.client import Client, PrivateClient, UploadRefused
from ..federation.curvature_client import CurvatureClient

require("flwr.serverapp", "flower", "fedepm_fast.flower")

from flwr.app import (  # noqa: E402
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402

from . import _curvature, _private  # noqa: E402
from ._aggregate import ElasticNetAggregate  # noqa: E402
from ._curvature import CurvatureStrategy  # noqa: E402
from ._messages import at_client, at_first, has_lost, recall, remember  # noqa: E402
from ._private import PrivateStrategy  # noqa: E402
from ._records import ARRAYS, CONFIG, METRICS, Layout  # noqa: E402
from ._strategy import FedEPMStrategy  # noqa: E402

__all__ = [
    "CurvatureStrategy",
    "ElasticNetAggregate",
    "FedEPMStrategy",
    "PrivateStrategy",
    "client_app",
    "join",
    "train",
]

log = logging.getLogger(__name__)

#: Error code of every error in answer, that of any exception in a client app.
REFUSED = 2
#: All that is said of a fault where rows may be private: texts and types of exceptions show rows.
FAILED = "the client failed; its own log says why"

# The client -----------------------------------------------------------------------------

AnyClient = Client | PrivateClient | CurvatureClient
Work = Callable[[Any, Message, Context], Message]


class ParametersDiffer(ValueError):
    """The server's parameters are not the client's; both are public."""


def client_app(make_client: Callable[[Context], AnyClient]) -> ClientApp:
    """A Flower app of the clients of `FedEPMStrategy`, or of `CurvatureStrategy`.

    Parameters
    ----------
    make_client : callable
        Gives the client of a node from its Flower context; called for every message. The
        client's state is kept in ``context.state``, which Flower forgets with the run, and in
        the client's `path` if it has one, by which it survives a new run of the server; that of
        a `PrivateClient` is in its ledger alone; a `CurvatureClient` has none. What a private
        client refuses to upload the strategy logs.

    Notes
    -----
    Whatever goes wrong in `make_client` or in a `PrivateClient` is logged on the client's side in
    full, and answered with one constant sentence, since texts of exceptions show rows. So load
    rows in `make_client`: what the import of a module raises, Flower itself may send. Exceptions
    of other clients are sent as text. A private client's metrics are its number, the round and the
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
    """`work`, of whose exceptions only what is public comes out, where rows may be private."""

    @functools.wraps(work)
    def discreet(client: AnyClient, message: Message, context: Context) -> Message:
        if isinstance(client, (Client, CurvatureClient)):
            return work(client, message, context)
        try:
            return work(client, message, context)
        except (ParametersDiffer, UploadRefused) as refusal:
            return Message(Error(REFUSED, str(refusal)), reply_to=message)
        except BaseException as error:
            return _failed(error, message)

    return discreet


@_discreet
def join(client: AnyClient, message: Message, context: Context) -> Message:
    """A client's answer to a strategy that does not know its node.

    A client that the server has as a member keeps its state; any other begins anew, and so does
    one of an algorithm such as SCAFFOLD that has lost what it kept. Asked for second moments, a
    private client sends these. Its faults are an error in answer, as `client_app` says.
    """
    config = _agree(client, message)
    arrays = message.content[ARRAYS]
    metrics: dict[str, Any] = {"client": client.index}
    anew = isinstance(client, Client) and has_lost(client, context)
    if client.index in config["members"] and not anew:
        return _reply(message, ArrayRecord(), metrics)
    layout = Layout(arrays)
    if isinstance(client, CurvatureClient):
        return _reply(message, *_curvature.first(client, layout.vector(arrays), config))
    if isinstance(client, Client):
        state, upload = client.join(layout.vector(arrays))
        remember(client, context, state)
        metrics |= at_first(client)
    elif _private.RADIUS in config:
        return _reply(message, *_private.moments(client, config))
    else:
        upload, scale = client.join(layout.vector(arrays))
        metrics |= {} if scale is None else {"scale": scale}
    return _reply(message, layout.record(upload), metrics)


@_discreet
def train(client: AnyClient, message: Message, context: Context) -> Message:
    """A client's round: gradient, local steps, noise; its state in ``context.state``, or a ledger.

    Of a `CurvatureClient` its answer.

    What a private client refuses to upload, and its faults, are an error in answer, as
    `client_app` says.
    """
    config, arrays = _agree(client, message), message.content[ARRAYS]
    layout = Layout(arrays)
    tau = config["round"]
    metrics: dict[str, Any] = {"client": client.index, "round": tau}
    if isinstance(client, CurvatureClient):
        return _reply(message, *_curvature.answer(client, layout.vector(arrays), config))
    if isinstance(client, Client):
        known, told = recall(client, context), at_client(client.algorithm, message.content)
        state, upload = client.train(known, layout.vector(arrays), tau, **told)
        remember(client, context, state)
    else:
        told = _private.coordinates(message.content)
        upload, metrics["scale"] = client.train(layout.vector(arrays), tau, **told)
    return _reply(message, layout.record(upload), metrics)


def _agree(client: AnyClient, message: Message) -> ConfigRecord:
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
    mechanism = parameters.get("mechanism")
    if mechanism is None:
        return parameters
    common = {name: mechanism.get(name) for name in ("name", "clip", "neighbours")}
    return {**parameters, "mechanism": common}


def _reply(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
    content = RecordDict({ARRAYS: arrays, METRICS: MetricRecord(metrics)})
    return Message(content, reply_to=message)
