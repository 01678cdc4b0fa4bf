"""ENS as the aggregator of Flower's own strategies."""

from __future__ import annotations

import copy
import logging
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from .._common.validation import check_choice, check_finite, check_int, check_real
from ..federation.aggregation import aggregate
from ._records import (
    ARRAYS,
    EXACT,
    METRICS,
    as_dtype,
    check_like,
    content,
    ndarray,
    real_dtype,
    shaped,
)

log = logging.getLogger("fedepm_fast.flower")

#: Strategies that compare clients, or read more of each than its arrays: shown one client that
#: sent the aggregate, they would do nothing, or fail.
BY_CLIENT = ("Bulyan", "FedXgbBagging", "FedXgbCyclic", "Krum", "MultiKrum", "QFedAvg")

NOISE_OF_A_MEAN = (
    "its noise is for the mean of the clients, and one client moves ENS by several times as much: "
    "the epsilon that it states does not hold"
)


class Reply(NamedTuple):
    """What a client sent, each part checked for itself."""

    message: Message
    arrays: dict[str, NDArray[Any]]
    weight: float

    @property
    def metrics(self) -> frozenset[tuple[str, int]]:
        """Names of the metrics, and how long those are that are lists."""
        record = next(iter(self.message.content.metric_records.values()))
        return frozenset(
            (name, len(value) if isinstance(value, list) else -1) for name, value in record.items()
        )


class ElasticNetAggregate(Strategy):
    """Any strategy like FedAvg, with ENS in the place of the average.

    The strategy goes on to sample clients, send messages, aggregate metrics and take server
    steps (FedAdam and its kin take them from the ENS point). Where a strategy has an aggregate of
    its own, as FedMedian has, ENS takes its place as well.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.FedAvg, or like it
        With the attributes ``weighted_by_key`` and ``train_metrics_aggr_fn``. Not one that
        chooses among clients (Krum, Bulyan) or needs each client's loss (QFedAvg).
    c : float
        ``lam / eta``, at least 0: 0 gives the mean, a large c a median, per coordinate.
    weights : {"equal", "examples"}
        Whether clients count equally, or by the metric ``strategy.weighted_by_key``.
    threads : int, optional
        Of the aggregation; the same bits for any number.

    Raises
    ------
    TypeError
        If the strategy is not like FedAvg; in a round, if an array of the model is neither of
        integers nor of floats of up to 64 bits.
    ValueError
        Naming the argument; in a round, if the strategy's result is not finite, or not in the
        model's dtype.
    flwr.serverapp.exception.AggregationError
        In a round, if clients answered and not one reply could be used, or if the strategy makes
        nothing of the ENS point.

    Notes
    -----
    *Flower's central differential privacy does not hold of it.* The wrappers
    ``DifferentialPrivacy...`` add noise for a mean, which one of m clients with a clipped update
    moves by a known amount. It moves ENS by more: with c = 0.5 and 10 clients by up to 2.6 times
    as much for 10 coordinates and 5 times for 1,000, with a large c by up to m / 2 times. A
    wrapper around this class is told so in the log; the epsilon that it states is too small.

    A client may send any real dtype, whatever the model has: in a round, the one of most clients
    counts, of equally many the model's. Replies of another dtype, malformed replies, and such
    that hold NaN, inf, or integers beyond 2**53, are logged with node and fault and left out.
    Integers, such as BatchNorm's counters, are averaged as floats, as FedAvg does, and rounded.
    What the strategy makes of the ENS point is returned as it is, often in wider dtypes than the
    model's; clients are sent the model's, integers rounded to the nearest.
    """

    def __init__(
        self, strategy: Any, c: float, *, weights: str = "equal", threads: int | None = None
    ) -> None:
        kind = type(strategy).__name__
        for name in ("weighted_by_key", "train_metrics_aggr_fn", "aggregate_train"):
            if not hasattr(strategy, name):
                raise TypeError(f"strategy must be like FedAvg, but {kind} has no {name}")
        if not {base.__name__ for base in type(strategy).__mro__}.isdisjoint(BY_CLIENT):
            raise TypeError(
                f"strategy must be like FedAvg, but {kind} needs every client's reply, and ENS "
                "leaves it one: use either alone"
            )
        self.strategy = strategy
        self.c = check_real("c", c, low=0.0)
        self.weights = check_choice("weights", weights, ("equal", "examples"))
        self.threads = None if threads is None else check_int("threads", threads, low=1)
        self._told = False
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        #: The strategy's last, which may have wider dtypes than the model.
        self._result: ArrayRecord | None = None

    def summary(self) -> None:
        log.info("ENS with c = %g, %s weights, in:", self.c, self.weights)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        caller = sys._getframe(1).f_locals.get("self")
        if not self._told and any("DifferentialPrivacy" in c.__name__ for c in type(caller).mro()):
            log.warning("%s: %s", type(caller).__name__, NOISE_OF_A_MEAN)
            self._told = True
        self._shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        if arrays is not self._result:  # a model, and no strategy's result
            self._dtypes = {name: real_dtype(name, array.dtype) for name, array in arrays.items()}
        messages = self.strategy.configure_train(server_round, arrays, config, grid)
        return self._in_own_dtypes(messages, arrays)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        # In the order of the nodes, not of arrival: sums then have the same bits.
        ordered = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
        used = self._usable(server_round, ordered)
        if not used:
            if any(not message.has_error() for message in ordered):
                raise AggregationError(
                    f"round {server_round}: none of {len(ordered)} replies could be used; the log "
                    "says why of each"
                )
            log.error("round %d: no client has trained, the arrays stay as they are", server_round)
            return None, None
        shares = [reply.weight for reply in used] if self.weights == "examples" else None
        record = ArrayRecord()
        for name in self._shapes:
            record[name] = Array(self._ens([reply.arrays[name] for reply in used], shares))
        # The strategy sees one client that sent the aggregate: its average is exact.
        key = self.strategy.weighted_by_key
        one = copy.copy(used[0].message)
        one.content = RecordDict({ARRAYS: record, METRICS: MetricRecord({key: 1})})
        self._result, _ = self.strategy.aggregate_train(server_round, [one])
        if self._result is None:
            kind = type(self.strategy).__name__
            raise AggregationError(f"round {server_round}: {kind} made nothing of the ENS point")
        for name, array in self._result.items():
            check_finite(f"round {server_round}: array {name!r} of the result", ndarray(array))
        metrics = self.strategy.train_metrics_aggr_fn([r.message.content for r in used], key)
        return self._result, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return self._in_own_dtypes(messages, arrays)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _usable(self, server_round: int, messages: list[Message]) -> list[Reply]:
        """The replies that fit the model and each other; the others are logged."""

        def keep(items: list[Any], read: Callable[[Any], Any], at: Callable[[Any], Message]) -> Any:
            kept = []
            for item in items:
                try:
                    kept.append(read(item))
                except Exception as error:  # whatever a client may send
                    node = at(item).metadata.src_node_id
                    log.warning("round %d: node %d rejected: %s", server_round, node, error)
            return kept

        found: list[Reply] = keep(messages, self._read, lambda message: message)
        dtypes = {
            name: _common([reply.arrays[name].dtype for reply in found], own)
            for name, own in self._dtypes.items()
        }
        metrics = _common([reply.metrics for reply in found], None)

        def agree(reply: Reply) -> Reply:
            for name, part in reply.arrays.items():
                check_like(name, part, dtypes[name], part.shape)
            if reply.metrics != metrics:
                wanted, got = (
                    sorted(name for name, _ in names) for names in (metrics, reply.metrics)
                )
                raise ValueError(f"metrics must be those of most clients, {wanted}, got {got}")
            return reply

        return keep(found, agree, lambda reply: reply.message)

    def _read(self, message: Message) -> Reply:
        arrays, metrics = content(message)
        found = shaped(arrays, self._shapes, self._dtypes)
        for name, part in found.items():
            real_dtype(name, part.dtype)
            check_finite(f"array {name!r}", part)
            if part.dtype.kind in "iu" and part.size and max(part.max(), -int(part.min())) > EXACT:
                raise ValueError(
                    f"array {name!r} must hold integers of at most 2**53 in size, got "
                    f"{part.min()} to {part.max()}"
                )
        key = self.strategy.weighted_by_key
        return Reply(message, found, check_real(key, metrics.get(key), low=0.0, open_low=True))

    def _ens(self, uploads: list[NDArray[Any]], weights: Any) -> NDArray[Any]:
        """ENS of one array of every client: floats in their dtype, integers rounded, in float64."""
        dtype, shape = uploads[0].dtype, uploads[0].shape
        own = dtype if dtype.kind == "f" else np.dtype(np.float64)
        working = np.float32 if own == np.float16 else own
        flat = [upload.ravel().astype(working, copy=False) for upload in uploads]
        x = aggregate(flat, self.c, weights=weights, threads=self.threads).reshape(shape)
        return x.astype(own, copy=False) if dtype.kind == "f" else np.asarray(np.rint(x))

    def _in_own_dtypes(self, messages: Iterable[Message], arrays: ArrayRecord) -> list[Message]:
        """The messages, with `arrays` in the model's dtypes."""
        messages = list(messages)
        if arrays is not self._result or not messages:
            return messages
        own = ArrayRecord()
        for name, part in shaped(arrays, self._shapes, self._dtypes).items():
            own[name] = Array(as_dtype(name, part, self._dtypes[name]))
        for message in messages:
            for name, record in message.content.array_records.items():
                if record is arrays:
                    message.content = RecordDict({**message.content, name: own})
        return messages


def _common(values: list[Any], preferred: Hashable) -> Any:
    """The value of most; of equally many the preferred one, or the first."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value == preferred), default=preferred)
