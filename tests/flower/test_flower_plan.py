"""A planned private run in Flower: second moments, coordinates, and the mean of the last points."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from problems import small_data

from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.federation.private_server import PrivateServer
from fedepm_fast.flower import PrivateStrategy, _private, client_app
from fedepm_fast.mechanisms import packed_size
from fedepm_fast.privacy import plan
from fedepm_fast.privacy._settings import Settings

M, P, SEED = 4, 3, 5
DATA = small_data(M, P, seed=1)
START = ArrayRecord({"a": Array(np.zeros(2)), "b": Array(np.zeros((1, 1)))})
PLAN: Any = plan(5.0, DATA.client_sizes, P, settings=Settings(4, 6, 3, 1.0, 20.0, 20.0, 1.0))


def maker(folder: Path, **options: Any) -> Any:
    def make(context: Context) -> PrivateClient:
        i = int(context.node_config["partition-id"])
        return PrivateClient(
            PLAN.algorithm, *DATA.client(i), objective=PLAN.objective, index=i, clients=M,
            uploads=PLAN.rounds, path=folder / f"ledger-{i}", **options,
        )  # fmt: skip

    return make


def vector(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


class Recording(InProcessGrid):
    """A grid that keeps what clients sent, by their number: moments first, then their rounds."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, M)
        self.sent: dict[int, list[tuple[np.ndarray, float]]] = {i: [] for i in range(M)}

    def send_and_receive(self, messages: Any, **options: Any) -> Any:
        replies = [*super().send_and_receive(messages, **options)]
        for reply in replies:
            if reply.has_content() and "scale" in reply.content["metrics"]:
                metrics, arrays = reply.content["metrics"], reply.content["arrays"]
                self.sent[metrics["client"]].append((vector(arrays), metrics["scale"]))
        return replies


def by_hand(sent: dict[int, list[tuple[np.ndarray, float]]]) -> PrivateServer:
    """The same uploads, carried without Flower."""
    server = PrivateServer(PLAN, seed=SEED)
    for i in range(M):
        server.join(i, np.zeros(P))
        server.receive_moments(i, *sent[i][0])
    server.settle()
    while not server.done:
        tau, _, selected = server.open_round()
        for i in selected.tolist():
            upload, scale = sent[i][1 + tau]
            server.receive(tau, i, upload, scale=scale)
        server.close_round()
    return server


def test_flower_carries_a_plan(tmp_path, caplog):
    grid = Recording(client_app(maker(tmp_path)))
    strategy = PrivateStrategy(PLAN, seed=SEED)
    with caplog.at_level(logging.WARNING, "fedepm_fast"):
        result = strategy.start(grid, START, num_rounds=PLAN.rounds + 2)
    assert not caplog.records
    expected = by_hand(grid.sent)
    np.testing.assert_array_equal(vector(result.arrays), expected.model)
    assert {name: array.shape for name, array in result.arrays.items()} == {"a": (2,), "b": (1, 1)}
    accepted = [record["clients"] for record in result.train_metrics_clientapp.values()]
    assert accepted == [M] * PLAN.rounds + [0, 0]
    for i in range(M):
        spent = maker(tmp_path)(grid.contexts[100 + i]).spent
        assert spent.uploads == spent.planned and len(grid.sent[i]) == 1 + PLAN.rounds
        assert not grid.contexts[100 + i].state


def test_a_server_that_was_killed_goes_on(tmp_path):
    grid = Recording(client_app(maker(tmp_path)))
    for rounds in (0, 1, 3, PLAN.rounds):
        strategy = PrivateStrategy(PLAN, seed=SEED, path=tmp_path / "server")
        done = strategy.restore(START).tau
        assert done == min(rounds, done) and strategy.restore(START).settled == (done > 0)
        result = strategy.start(grid, START, num_rounds=rounds - done)
        strategy.restore(START).close()
    assert all(len(sent) == 1 + PLAN.rounds for sent in grid.sent.values())  # no moments again
    np.testing.assert_array_equal(vector(result.arrays), by_hand(grid.sent).model)


def test_moments_of_some_clients_are_enough_where_it_is_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(_private, "POLL", 0.0)
    grid = Recording(client_app(maker(tmp_path)))
    strategy = PrivateStrategy(PLAN, seed=SEED, min_clients=M - 2)
    carry, asked = grid.send_and_receive, []

    def tampering(messages: Any, **options: Any) -> Any:
        replies = [*carry(messages, **options)]
        for reply in replies:
            if "moments" in (reply.content["arrays"] if reply.has_content() else ()):
                client = reply.content["metrics"]["client"]
                asked.append(client)
                if asked.count(client) < 2 and client != 0:  # the others are asked again
                    wrong = {1: np.full(packed_size(P), np.nan), 2: np.zeros(2)}.get(client)
                    found = ArrayRecord({"moments": Array(wrong)} if client != 3 else {})
                    reply.content["arrays"] = found
        return replies

    monkeypatch.setattr(grid, "send_and_receive", tampering)
    with caplog.at_level(logging.WARNING, "fedepm_fast"):
        strategy.start(grid, START, num_rounds=1)
    assert "client 1 rejected: upload must be finite" in caplog.text
    assert "client 2 rejected: upload must have shape (6,), got (2,)" in caplog.text
    assert "client 3 rejected: 'moments'" in caplog.text
    assert "waiting for second moments: 1 of at least 2" in caplog.text
    assert sorted(asked) == [0, 1, 1, 2, 2, 3, 3]
    assert strategy.restore(START).settled


def test_arrays_are_zeros_of_the_plan_s_size(tmp_path):
    for arrays in (np.ones(P), np.zeros(P + 1)):
        with pytest.raises(ValueError, match="arrays must be 3 zeros"):
            strategy = PrivateStrategy(PLAN, path=tmp_path / "s")
            strategy.restore(ArrayRecord({"w": Array(arrays)}))
    assert not (tmp_path / "s").exists()


def test_a_model_of_float32_comes_back_as_such(tmp_path):
    grid, start = Recording(client_app(maker(tmp_path))), {"w": Array(np.zeros(P, np.float32))}
    for rounds in (2, 4):
        strategy = PrivateStrategy(PLAN, seed=SEED, path=tmp_path / "server")
        strategy.restore(ArrayRecord(start))
        found = strategy.start(grid, ArrayRecord(start), num_rounds=rounds).arrays["w"].numpy()
        strategy.restore(ArrayRecord(start)).close()
    assert found.dtype == np.float32
    uploads = {i: [sent[0]] + [(u.astype(float), s) for u, s in sent[1:]]
               for i, sent in grid.sent.items()}  # fmt: skip
    np.testing.assert_allclose(found, by_hand(uploads).model, rtol=1e-4, atol=1e-5)


def test_what_a_server_names_is_checked_by_the_client(tmp_path):
    grid = Recording(client_app(maker(tmp_path)))
    strategy = PrivateStrategy(PLAN, seed=SEED)
    strategy.start(grid, START, num_rounds=1)
    messages = list(strategy.configure_train(2, START, ConfigRecord(), grid))
    wrong = (np.zeros((P, P)), np.eye(2), np.full((P, P), np.nan))
    for message, matrix in zip(messages[:3], wrong, strict=True):
        message.content["coordinates"] = ArrayRecord({"coordinates": Array(matrix)})
    replies: list[Message] = [*grid.send_and_receive(messages)]
    reasons = {r.metadata.src_node_id: r.error.reason for r in replies if r.has_error()}
    assert reasons == {100 + i: "the client failed; its own log says why" for i in range(3)}
    for i in range(M):
        assert maker(tmp_path)(grid.contexts[100 + i]).spent.uploads == 4 + 1 + (i == 3)
