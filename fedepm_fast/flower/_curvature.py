"""`CurvatureFedEPM` in Flower: its strategy, and what its clients answer."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from ..algorithms import CurvatureFedEPM
from ..federation.curvature_client import CurvatureClient
from ..federation.curvature_server import Answer, CurvatureServer
from ._records import CONFIG, ndarray
from ._strategy import FedEPMStrategy

#: Names in the arrays of a reply.
GRADIENT, CURVATURE = "gradient", "curvature"


class CurvatureStrategy(FedEPMStrategy):
    """`CurvatureFedEPM` as a Flower strategy.

    In every Flower round, nodes that the strategy has not met are asked for their client's number
    and first answer; the server finds the next point and selects; the selected clients answer with
    f_i, its gradient, and their Hessian where it is due. What is malformed or missing is logged,
    with client and fault, and left out. The arrays of a round's result are its point; once the
    server expects nothing of further rounds, these ask nobody.

    Parameters
    ----------
    algorithm : CurvatureFedEPM or FedNL
        The parameters; clients that have others answer with an error.
    clients : int
        How many clients there can be, m.
    min_clients : int
        How many must be connected before a round begins.
    classes, bounded, seed, trial, path
        As of `fedepm_fast.federation.curvature_server.CurvatureServer`; its `start` are the initial
        arrays, of float64. With `path` a restarted server goes on where it was.
    join_timeout : float
        As of `FedEPMStrategy`.
    """

    def __init__(
        self,
        algorithm: CurvatureFedEPM,
        clients: int,
        *,
        min_clients: int = 1,
        classes: int = 1,
        bounded: bool = True,
        seed: int = 0,
        trial: int = 0,
        path: str | os.PathLike[str] | None = None,
        join_timeout: float = 60.0,
    ) -> None:
        super().__init__(
            algorithm,
            clients,
            min_clients=min_clients,
            join_timeout=join_timeout,
        )
        self._options = dict(classes=classes, bounded=bounded, seed=seed, trial=trial, path=path)

    def _make_server(self) -> CurvatureServer:
        if self._layout.dtype != np.float64:
            raise TypeError(f"arrays must be float64, got {self._layout.dtype}")
        start = self._layout.vector(self._initial)
        return CurvatureServer(
            self.algorithm,
            self.clients,
            self._layout.size,
            start=start,
            **self._options,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)
        return [] if self.restore(arrays).converged else messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        if self._server is not None and self._server.converged:
            found: tuple[Any, Any] = self._layout.record(self._server.x), {"clients": 0}
        else:
            found = super().aggregate_train(server_round, replies)
        converged = int(self._server.converged)
        return found[0], MetricRecord({**found[1], "converged": converged})

    def _asked_of(self, opened: Any) -> dict[str, Any]:
        return {"due": opened.due.tolist()}

    def _asked_of_new(self, server: Any) -> dict[str, Any]:
        return {"round": server.round_of_x}

    def _told(self, client: int, common: dict[str, Any]) -> dict[str, Any]:
        return {CONFIG: ConfigRecord(common)}

    def _received(self, arrays: ArrayRecord, metrics: MetricRecord) -> Callable[..., bool]:
        return functools.partial(self._server.receive, answer=_answer_of(arrays, metrics))

    def _joined(self, client: int, arrays: ArrayRecord, metrics: MetricRecord) -> bool:
        tau: Any = metrics.get("round")
        return bool(self._server.join(tau, client, _answer_of(arrays, metrics)))


def first(client: CurvatureClient, x: Any, config: Any) -> tuple[ArrayRecord, dict[str, Any]]:
    """A client's first answer as arrays and metrics."""
    return _reply(client, client.join(x), config)


def answer(client: CurvatureClient, x: Any, config: Any) -> tuple[ArrayRecord, dict[str, Any]]:
    """A client's answer of a round as arrays and metrics."""
    return _reply(client, client.answer(x, due=client.index in config["due"]), config)


def _reply(
    client: CurvatureClient, said: Answer, config: Any
) -> tuple[ArrayRecord, dict[str, Any]]:
    arrays = ArrayRecord({GRADIENT: Array(said.gradient)})
    if said.curvature is not None:
        arrays[CURVATURE] = Array(said.curvature)
    return arrays, {"client": client.index, "round": config["round"], "value": said.value}


def _answer_of(arrays: ArrayRecord, metrics: MetricRecord) -> Answer:
    """What a reply says; the server checks its numbers."""
    names = set(arrays)
    if GRADIENT not in names or not names <= {GRADIENT, CURVATURE}:
        raise ValueError(
            f"arrays must be named '{GRADIENT}' and, if it was asked for, '{CURVATURE}', got "
            f"{sorted(names)}"
        )
    value: Any = metrics.get("value")
    found = {name: ndarray(arrays[name]) for name in names}
    return Answer(value, found[GRADIENT], found.get(CURVATURE))
