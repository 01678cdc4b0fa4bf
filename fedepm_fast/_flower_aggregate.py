"""ENS as the aggregator of Flower's own strategies."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ._flower_records import ARRAYS, METRICS, content, matching
from ._validation import check_choice, check_finite, check_int, check_real
from .aggregation import aggregate

log = logging.getLogger("fedepm_fast.flower")


class ElasticNetAggregate(Strategy):
    """Any strategy like FedAvg, with ENS in the place of the average.

    The strategy goes on to sample clients, send messages, aggregate metrics and take server
    steps (FedAdam and its kin take them from the ENS point). Replies that are malformed, or hold
    NaN or inf, are logged with node and fault and left out.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.FedAvg, or like it
        With the attributes ``weighted_by_key`` and ``train_metrics_aggr_fn``.
    c : float
        ``lam / eta``, at least 0: 0 gives the mean, a large c a median, per coordinate.
    weights : {"equal", "examples"}
        Whether clients count equally, or by the metric ``strategy.weighted_by_key``.
    threads : int, optional
        Of the aggregation; the same bits for any number.
    """

    def __init__(
        self, strategy: Any, c: float, *, weights: str = "equal", threads: int | None = None
    ) -> None:
        for name in ("weighted_by_key", "train_metrics_aggr_fn", "aggregate_train"):
            if not hasattr(strategy, name):
                raise TypeError(
                    f"strategy must be like FedAvg, but {type(strategy).__name__} has no {name}"
                )
        self.strategy = strategy
        self.c = check_real("c", c, low=0.0)
        self.weights = check_choice("weights", weights, ("equal", "examples"))
        self.threads = None if threads is None else check_int("threads", threads, low=1)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def summary(self) -> None:
        log.info("ENS with c = %g, %s weights, in:", self.c, self.weights)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self._dtypes = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        key = self.strategy.weighted_by_key
        valid, parts, weights = [], [], []
        # In the order of the nodes, not of arrival: sums then have the same bits.
        for message in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
            try:
                arrays, metrics = content(message)
                found = matching(arrays, self._shapes, self._dtypes)
                for name, part in zip(self._shapes, found, strict=True):
                    check_finite(f"array {name!r}", part)
                weight = check_real(key, metrics.get(key), low=0.0, open_low=True)
            except Exception as error:  # whatever a client may send
                node = message.metadata.src_node_id
                log.warning("round %d: node %d rejected: %s", server_round, node, error)
            else:
                valid.append(message)
                parts.append(found)
                weights.append(weight)
        if not valid:
            return None, None
        shares = weights if self.weights == "examples" else None
        record = ArrayRecord()
        for name, column in zip(self._shapes, zip(*parts, strict=True), strict=True):
            record[name] = Array(self._ens(column, shares))
        # The strategy sees one client that sent the aggregate: its average is exact.
        one = copy.copy(valid[0])
        one.content = RecordDict({ARRAYS: record, METRICS: MetricRecord({key: 1})})
        arrays, _ = self.strategy.aggregate_train(server_round, [one])
        contents = [message.content for message in valid]
        return arrays, self.strategy.train_metrics_aggr_fn(contents, key)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _ens(self, uploads: tuple[NDArray[Any], ...], weights: Any) -> NDArray[Any]:
        """ENS of one array of every client, in its own dtype; counters are rounded."""
        dtype, shape = uploads[0].dtype, uploads[0].shape
        flat = [upload.ravel() for upload in uploads]
        if dtype not in (np.float64, np.float32):
            working = np.float32 if dtype == np.float16 else np.float64
            flat = [upload.astype(working) for upload in flat]
        x = aggregate(flat, self.c, weights=weights, threads=self.threads)
        return (np.rint(x) if dtype.kind in "iu" else x).astype(dtype, copy=False).reshape(shape)
