"""What servers and clients of algorithms that share, keep or tell send beside a vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from ..algorithms import Algorithm
from ..federation.client import Client, ClientState
from ._records import CONFIG, ndarray

#: The record of what the server shares; numbers of a configuration, and of a first reply.
SHARED, ACKNOWLEDGED, TOLD = "shared", "acknowledged", "told"
#: Where a client's state lies in its context.
STATE = "fedepm"


def shared_record(message: Mapping[str, Any]) -> ArrayRecord:
    """What ``Server.message`` has for all clients of a round alike."""
    return ArrayRecord({name: Array(row) for name, row in message.get(SHARED, {}).items()})


def to_client(
    message: Mapping[str, Any], shared: ArrayRecord, common: Mapping[str, Any]
) -> dict[str, Any]:
    """The records of ``Server.message``, with the configuration that is common to all clients."""
    config, records = dict(common), dict[str, Any]()
    if SHARED in message:
        records[SHARED] = shared
    if ACKNOWLEDGED in message:
        config[ACKNOWLEDGED] = message[ACKNOWLEDGED]
    if TOLD in message:
        config[TOLD] = list(message[TOLD].values())
    return {CONFIG: ConfigRecord(config), **records}


def at_client(algorithm: Algorithm, content: RecordDict) -> dict[str, Any]:
    """What `to_client` made records of; the client checks it."""
    config, found = content[CONFIG], dict[str, Any]()
    if SHARED in content:
        found[SHARED] = {name: ndarray(array) for name, array in content[SHARED].items()}
    if ACKNOWLEDGED in config:
        found[ACKNOWLEDGED] = config[ACKNOWLEDGED]
    if TOLD in config:
        found[TOLD] = _named(algorithm, config[TOLD])
    return found


def at_first(client: Client) -> dict[str, Any]:
    """What a client tells when it joins, as a part of its metrics."""
    return {TOLD: list(client.told.values())} if client.told else {}


def told_at_first(algorithm: Algorithm, metrics: MetricRecord) -> dict[str, float] | None:
    """What `at_first` made of it; the server checks it."""
    return _named(algorithm, metrics[TOLD]) if TOLD in metrics else None


def _named(algorithm: Algorithm, numbers: Any) -> dict[str, float]:
    if not isinstance(numbers, list) or len(numbers) != len(algorithm.tells):
        wanted = ", ".join(algorithm.tells) or "nothing"
        raise ValueError(f"told must be a list of numbers, of {wanted}, got {numbers!r}")
    return dict(zip(algorithm.tells, numbers, strict=True))


def remember(client: Client, context: Context, state: ClientState) -> None:
    """Keep a client's state in its context, and in its file if it has one."""
    arrays = {"w": state.w, "before": state.before}
    if client.algorithm.keeps:
        arrays |= {"kept": state.kept, "kept_before": state.kept_before}
    numbers = {name: int(getattr(state, name)) for name in ("iterations", "acknowledged")}
    context.state[STATE] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    context.state[f"{STATE}.iterations"] = ConfigRecord(dict(numbers))
    client.remember(state)


def has_lost(client: Client, context: Context) -> bool:
    """Whether a client that has been a member has no longer what it kept, and cannot go on."""
    counts = client.algorithm.keeps and client.algorithm.shares
    return bool(counts) and recall(client, context) is None


def recall(client: Client, context: Context) -> ClientState | None:
    """The state that was kept last, if there is one."""
    if STATE not in context.state.array_records:
        return client.recall()
    arrays = context.state.array_records[STATE]
    numbers: Any = context.state.config_records[f"{STATE}.iterations"]
    kept: Any = {name: array.numpy() for name, array in arrays.items()}
    return ClientState(**kept, **numbers)
