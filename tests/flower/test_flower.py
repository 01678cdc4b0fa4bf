"""The Flower adapter, in one process: a grid that hands messages to client apps directly.

Collected only where Flower is installed, see ``tests/conftest.py``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import flower_grid
import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    RecordDict,
)

from fedepm_fast import FedEPM, datasets, make_problem, run
from fedepm_fast.federation.client import Client, PrivateClient
from fedepm_fast.flower import FedEPMStrategy, _strategy, client_app
from fedepm_fast.kernels.ens import ens
from fedepm_fast.privacy import LaplaceMechanism

M, SEED, ALGORITHM = 10, 4, FedEPM()
DATA = datasets.adult(clients=M, seed=0)
PROBLEM = make_problem(ALGORITHM, DATA)
N = PROBLEM.n_parameters
#: Two arrays, as a model's layers are.
START = ArrayRecord({"a": Array(np.zeros((2, 4))), "b": Array(np.zeros(N - 8))})

Tamper = Callable[[Message], Message | None]


def make_client(context: Context, algorithm: FedEPM = ALGORITHM, **options: Any) -> Client:
    i = int(context.node_config["partition-id"])
    return Client(
        algorithm,
        lambda x: PROBLEM.gradient(i, x),
        index=i,
        clients=M,
        features=N,
        samples=int(DATA.client_sizes[i]),
        seed=SEED,
        **options,
    )


class InProcessGrid(flower_grid.InProcessGrid):
    """Of the clients above, unless others are given."""

    def __init__(self, app: Any = None, config: dict[str, Any] | None = None) -> None:
        super().__init__(app or client_app(make_client), M, config)


class LateGrid(InProcessGrid):
    """One node, and after it was asked ten times which there are two more."""

    looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self.looks += 1
        self.nodes = {100} if self.looks <= 10 else {100, 101, 102}
        return super().get_node_ids()


def vector(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([arrays[name].numpy().ravel() for name in ("a", "b")])


def strategy(**options: Any) -> FedEPMStrategy:
    return FedEPMStrategy(ALGORITHM, M, **{"seed": SEED, "min_clients": M, **options})


def test_flower_follows_a_run():
    points = []
    result = strategy().start(
        InProcessGrid(),
        START,
        num_rounds=8,
        evaluate_fn=lambda _, arrays: points.append(vector(arrays)),
    )
    expected = run(ALGORITHM, DATA, seed=SEED, rounds=8)
    scale = np.abs(expected.history["x"]).max()
    np.testing.assert_allclose(points[1:], expected.history["x"][1:], atol=1e-10 * scale, rtol=0)
    assert {name: array.shape for name, array in result.arrays.items()} == {"a": (2, 4), "b": (6,)}
    assert [record["clients"] for record in result.train_metrics_clientapp.values()] == [5] * 8


def test_a_restarted_server_goes_on(tmp_path):
    grid = InProcessGrid()
    strategy(path=tmp_path).start(grid, START, num_rounds=3)
    # Killed with the clients' work of round 3 done, and its replies lost.
    killed = strategy(path=tmp_path)
    grid.send_and_receive(killed.configure_train(1, START, ConfigRecord(), grid))
    killed.restore(START).close()  # as its end does
    restarted = strategy(path=tmp_path)
    done = restarted.restore(START).tau
    assert done == 3
    result = restarted.start(grid, START, num_rounds=8 - done)
    expected = run(ALGORITHM, DATA, seed=SEED, rounds=8).x
    np.testing.assert_allclose(vector(result.arrays), expected, rtol=1e-10)


def test_clients_do_not_follow_a_server_far_ahead():
    grid, federation = InProcessGrid(), strategy()
    federation.start(grid, START, num_rounds=2)
    states = {node: repr(context.state) for node, context in grid.contexts.items()}
    messages = list(federation.configure_train(3, START, ConfigRecord(), grid))
    for message in messages:
        message.content["config"]["round"] = 2**62
    for reply in grid.send_and_receive(messages):
        assert f"round {2**62} " in reply.error.reason
        assert "is a jump of more than largest_jump = 1000 rounds" in reply.error.reason
    assert states == {node: repr(context.state) for node, context in grid.contexts.items()}


def test_clients_with_a_path_survive_a_new_run_of_the_server(tmp_path):
    def kept(context: Context) -> Client:
        client = make_client(context)
        return make_client(context, path=tmp_path / f"client-{client.index}.npz")

    def new_grid() -> InProcessGrid:  # a run's contexts end with it
        return InProcessGrid(client_app(kept))

    for total in (3, 8):
        federation = strategy(path=tmp_path / "server")
        done = federation.restore(START).tau
        federation.start(new_grid(), START, num_rounds=total - done)
    expected = run(ALGORITHM, DATA, seed=SEED, rounds=8).x
    np.testing.assert_allclose(federation.restore(START).x, expected, rtol=1e-10)
    # A server that begins anew has its clients begin anew.
    federation = strategy()
    federation.start(new_grid(), START, num_rounds=8)
    np.testing.assert_allclose(federation.restore(START).x, expected, rtol=1e-10)


# Private clients ------------------------------------------------------------------------


def test_private_clients_keep_to_their_budgets(tmp_path, caplog):
    mechanism = LaplaceMechanism(total_epsilon=1.0, clip=2.0, public_scaling=True)
    shared = FedEPM(participation=1.0, mechanism=mechanism, aggregation="inverse_variance")

    def private(context: Context) -> PrivateClient:
        i = int(context.node_config["partition-id"])
        budget = LaplaceMechanism(
            total_epsilon=1.0 + i, clip=1.0 if i == 9 else 2.0, public_scaling=True
        )
        own = dataclasses.replace(shared, mechanism=budget)
        uploads = 1 if i == 3 else 2
        return PrivateClient(
            own, *DATA.client(i), index=i, clients=M, uploads=uploads, path=tmp_path / f"{i}"
        )

    federation = FedEPMStrategy(shared, M, seed=SEED, min_clients=M - 1)
    grid = InProcessGrid(client_app(private))
    with caplog.at_level(logging.WARNING, "fedepm_fast"):
        result = federation.start(grid, START, num_rounds=3)
    server = federation.restore(START)
    accepted = [record["clients"] for record in result.train_metrics_clientapp.values()]
    assert accepted == [M - 1, M - 2, 0]
    assert "client of node 109 rejected: it answered with an error: algorithm must be the" in (
        caplog.text
    )
    assert (
        "round 1: client 3 rejected: it answered with an error: client 3 uploads nothing: all 1 "
        "uploads have been made (1 of 1 uploads made)"
    ) in caplog.text
    assert caplog.text.count(" of 2 uploads made)") == M - 2
    for i in range(M - 1):
        client = private(grid.contexts[100 + i])
        assert client.spent.uploads == client.uploads
        np.testing.assert_array_equal(server.Z[i], client.join(np.zeros(N)).values)
        assert server.scales[i] == client.join(np.zeros(N)).scale
        assert not grid.contexts[100 + i].state
    # A server that begins anew is told the last uploads, and gets no more.
    again = FedEPMStrategy(shared, M, seed=SEED, min_clients=M - 1)
    again.start(InProcessGrid(client_app(private)), START, num_rounds=1)
    np.testing.assert_array_equal(again.restore(START).x, server.x)


# Faults ---------------------------------------------------------------------------------


def with_arrays(change: Callable[[ArrayRecord], ArrayRecord]) -> Tamper:
    def tamper(reply: Message) -> Message:
        reply.content["arrays"] = change(reply.content["arrays"])
        return reply

    return tamper


def replaced(name: str, value: Array) -> Tamper:
    return with_arrays(lambda arrays: ArrayRecord({**arrays, name: value}))


def error(reply: Message) -> Message:
    ask = Message(RecordDict(), reply.metadata.src_node_id, "train")
    return Message(Error(0, "out of memory"), reply_to=ask)


def from_node(node: int) -> Tamper:
    def tamper(reply: Message) -> Message:
        return Message(reply.content, reply_to=Message(RecordDict(), node, "train"))

    return tamper


def of_round(tau: Any) -> Tamper:
    def tamper(reply: Message) -> Message:
        reply.content["metrics"]["round"] = tau
        return reply

    return tamper


def without(record: str) -> Tamper:
    def tamper(reply: Message) -> Message:
        del reply.content[record]
        return reply

    return tamper


NAN = np.full(N - 8, np.nan)
FAULTS: dict[str, tuple[Tamper, str]] = {
    "a timeout": (lambda reply: None, "no reply in time"),
    "NaN": (replaced("b", Array(NAN)), "upload must be finite, got nan at index (8,)"),
    "shape": (replaced("a", Array(np.zeros((4, 2)))), "array 'a' must be float64(2, 4), got"),
    "dtype": (replaced("b", Array(np.zeros(6, np.float32))), "array 'b' must be float64(6,), got"),
    "integers": (replaced("b", Array(np.zeros(6, int))), "got int64(6,)"),
    "an array more": (replaced("c", Array(np.zeros(6))), "arrays must be named ['a', 'b'], got"),
    "an array less": (with_arrays(lambda a: ArrayRecord({"a": a["a"]})), "arrays must be named"),
    "no numbers": (replaced("b", Array("float64", (6,), "numpy.ndarray", b"")), "rejected: "),
    "cut off": (
        replaced("b", Array("float64", (6,), "numpy.ndarray", Array(np.zeros(6)).data[:-8])),
        "rejected: ",
    ),
    "another serialisation": (
        replaced("b", Array("float64", (6,), "pickle", b"cos\nsystem\n")),
        "arrays must be serialised by NumPy, got 'pickle'",
    ),
    "an error": (error, "it answered with an error: out of memory"),
    "no arrays": (without("arrays"), "one ArrayRecord and one MetricRecord, got 0 and 1"),
    "no metrics": (without("metrics"), "one ArrayRecord and one MetricRecord, got 1 and 0"),
    "an old round": (of_round(0), "answer must be of round 2, got round 0"),
    "a round that is none": (of_round([1.0]), "answer must be of round 2, got round [1.0]"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_reply_is_rejected_and_named(name, caplog):
    tamper, fault = FAULTS[name]
    grid, federation = InProcessGrid(), strategy()
    federation.start(grid, START, num_rounds=2)
    server = federation.restore(START)
    messages = list(federation.configure_train(3, START, ConfigRecord(), grid))
    bad = messages[1].metadata.dst_node_id - 100
    before = server.Z.copy()
    grid.tampers[100 + bad] = tamper
    with caplog.at_level(logging.WARNING, "fedepm_fast"):
        arrays, metrics = federation.aggregate_train(3, grid.send_and_receive(messages))
    (line,) = (r.getMessage() for r in caplog.records if r.name == "fedepm_fast.federation.server")
    assert line.startswith(f"round 2: client {bad} rejected: ")
    assert fault in line
    assert metrics["clients"] == len(messages) - 1
    changed = np.flatnonzero((before != server.Z).any(axis=1)) + 100
    assert set(changed) == {m.metadata.dst_node_id for m in messages} - {100 + bad}
    np.testing.assert_array_equal(vector(arrays), ens(server.Z, 0.5))


def test_a_reply_from_a_node_that_never_joined_is_rejected(caplog):
    grid, federation = InProcessGrid(), strategy()
    messages = list(federation.configure_train(1, START, ConfigRecord(), grid))
    bad = messages[0].metadata.dst_node_id
    grid.tampers[bad] = from_node(7)
    federation.aggregate_train(1, grid.send_and_receive(messages))
    assert "client of unknown node 7 rejected" in caplog.text
    assert f"client {bad - 100} rejected: no reply in time" in caplog.text


def test_clients_join_late_leave_and_return_under_another_node(caplog, monkeypatch):
    monkeypatch.setattr(_strategy, "POLL", 0.0)
    grid, federation = InProcessGrid(), strategy(min_clients=4)
    grid.nodes = {100, 101, 102, 103}
    federation.start(grid, START, num_rounds=2)
    server = federation.restore(START)
    assert server.members.tolist() == [0, 1, 2, 3]
    grid.nodes = set(grid.contexts) - {100}
    federation.start(grid, START, num_rounds=4)
    assert server.members.tolist() == list(range(M))  # client 0's upload still counts
    assert "client 0 rejected: it is not connected" in caplog.text
    grid.contexts[500] = grid.contexts[100]  # with its state
    grid.nodes.add(500)
    caplog.clear()
    federation.start(grid, START, num_rounds=4)
    assert "rejected" not in caplog.text
    grid.contexts[501] = Context(1, 501, {"partition-id": 3}, RecordDict(), {})
    grid.nodes.add(501)
    federation.start(grid, START, num_rounds=1)
    assert "client 3 of node 501 rejected: node 103 is connected under this number" in caplog.text
    assert "client 3 rejected" not in caplog.text


def test_a_strategy_that_waits_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(_strategy, "POLL", 0.0)
    grid, federation = LateGrid(), strategy(min_clients=3)
    federation.start(grid, START, num_rounds=1)
    assert caplog.text.count("waiting for clients: 1 of at least 3") == 1
    assert federation.restore(START).members.tolist() == [0, 1, 2] and grid.looks == 11


def test_clients_with_other_parameters_are_told(caplog, monkeypatch):
    odd = FedEPM(local_steps=3)

    def some_are_odd(context: Context) -> Client:
        own = odd if context.node_config["partition-id"] == 6 else ALGORITHM
        return make_client(context, own)

    federation = strategy(min_clients=M - 1)
    federation.start(InProcessGrid(client_app(some_are_odd)), START, num_rounds=1)
    assert 6 not in federation.restore(START).members
    assert "client of node 106 rejected: it answered with an error" in caplog.text
    assert "local_steps is 12 there, 3 at client 6" in caplog.text


def test_records_that_are_no_vector_are_refused():
    for arrays, problem in [
        ({"w": np.zeros(3), "steps": np.zeros(1, int)}, "'steps' is int64 beside float64"),
        ({"w": np.zeros(3), "v": np.zeros(1, np.float32)}, "'v' is float32 beside float64"),
    ]:
        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        with pytest.raises(TypeError, match=problem):
            strategy().restore(record)
    with pytest.raises(ValueError, match="must not be empty"):
        strategy().restore(ArrayRecord())


def test_the_example_app_ends_where_a_run_does(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # 300 uploads wait for the disk
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "flower_adult")
    from flower_adult import client_app as clients
    from flower_adult import server_app, task

    config = {"clients": M, "rounds": 3, "seed": 0, "checkpoint": "", "total-epsilon": 0.0}
    server_app.main(InProcessGrid(clients.app, config), Context(1, 0, {}, RecordDict(), config))
    assert "x after 3 rounds, to that of fedepm_fast.run" in capsys.readouterr().out
    config |= {"checkpoint": str(tmp_path), "total-epsilon": 1.0}
    server_app.main(InProcessGrid(clients.app, config), Context(1, 0, {}, RecordDict(), config))
    out = capsys.readouterr().out
    assert "each client: epsilon <= 1 at delta 1e-06, for each record" in out
    assert f"{M} clients, {task.private(M, 1.0).rounds} rounds: f/m 0." in out


def test_the_example_converges_as_its_readme_says(monkeypatch):
    folder = Path(__file__).parents[2] / "examples" / "flower_adult"
    monkeypatch.syspath_prepend(folder)
    from flower_adult import task

    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    p, rounds = task.problem(20), config["rounds"]
    means = run(task.algorithm(20), p.data, seed=0, rounds=rounds).history["objective"] / 20
    assert (config["clients"], rounds) == (20, 40)
    assert (np.diff(means) < 0).all()
    optimum = p.optimum(method="newton").value / 20
    assert f"{means[-1]:.4f} with 20 clients; the optimum is {optimum:.4f}" in (
        (folder / "README.md").read_text()
    )
    # The paper's parameters, for comparison.
    paper = run(FedEPM(), p.data, seed=0, rounds=15).history["objective"] / 20
    assert (round(paper.min(), 3), round(paper[-1], 3)) == (0.516, 0.597)


def test_the_private_example_beats_the_larger_class(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "flower_adult")
    from flower_adult import task

    plan, data = task.private(20, 0.5), task.table(20)
    found = [
        plan.run(data, seed=2**40 + s, public_scaling=True, every_accuracy=False).accuracy
        for s in range(3)
    ]
    assert np.median(found) > 0.81 and min(found) > 0.8  # 0.752 are in the larger class
