"""Algorithms whose clients keep something, and whose servers share it, in Flower."""

from __future__ import annotations

from typing import Any

import flower_grid
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message

from fedepm_fast import FederatedData, Scaffold, datasets, make_problem, run
from fedepm_fast._common.parameters import parameters
from fedepm_fast.algorithms import ALGORITHMS, Algorithm
from fedepm_fast.federation.client import Client
from fedepm_fast.flower import FedEPMStrategy, client_app
from fedepm_fast.objectives import ClientProblem

M, SEED = 8, 4
DATA = datasets.adult(clients=M, seed=0)
PROBLEM = make_problem(Scaffold(), DATA)
N = PROBLEM.n_parameters
START = ArrayRecord({"a": Array(np.zeros((2, 4))), "b": Array(np.zeros(N - 8))})
SCAFFOLD = Scaffold(learning_rate=0.05, local_steps=3)
#: All that `Server` and `Client` have.
SERVED = sorted(
    name
    for name, cls in ALGORITHMS.items()
    if cls.__module__.startswith("fedepm_fast.") and not cls.keeps_models
)


def own_problem(i: int) -> ClientProblem:
    """A client's, of its own rows."""
    rows, labels = DATA.client(i)
    own = FederatedData(rows, labels, DATA.client_sizes[i : i + 1])
    return ClientProblem(own, PROBLEM.objective, clients=M)


def app(algorithm: Algorithm, folder: Any = None) -> Any:
    def make_client(context: Context) -> Client:
        i = int(context.node_config["partition-id"])
        return Client(
            algorithm, own_problem(i), index=i, clients=M, features=N,
            samples=int(DATA.client_sizes[i]), seed=SEED,
            path=None if folder is None else folder / f"client-{i}.npz",
        )  # fmt: skip

    return client_app(make_client)


def strategy(algorithm: Algorithm = SCAFFOLD, **options: Any) -> FedEPMStrategy:
    return FedEPMStrategy(algorithm, M, seed=SEED, min_clients=M, **options)


def grid(algorithm: Algorithm = SCAFFOLD, folder: Any = None) -> flower_grid.InProcessGrid:
    return flower_grid.InProcessGrid(app(algorithm, folder), M, None)


def vector(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([arrays[name].numpy().ravel() for name in ("a", "b")])


@pytest.mark.parametrize("name", SERVED)
def test_flower_follows_a_run_of_every_algorithm(name):
    of_all = {"r0": 0.3}  # what depends on the rows of all clients by default
    algorithm = ALGORITHMS[name](
        **{name: of_all[name] for name in parameters(ALGORITHMS[name]).keys() & of_all.keys()}
    )
    points: list[np.ndarray] = []
    strategy(algorithm).start(
        grid(algorithm), START, num_rounds=5,
        evaluate_fn=lambda _, arrays: points.append(vector(arrays)),
    )  # fmt: skip
    expected = run(algorithm, DATA, seed=SEED, rounds=5).history["x"]
    np.testing.assert_allclose(
        points[1:], expected[1:], atol=1e-10 * np.abs(expected).max(), rtol=0
    )


def test_clients_with_a_path_survive_a_new_run_of_the_server(tmp_path):
    for total in (3, 8):
        federation = strategy(path=tmp_path / "server")
        done = federation.restore(START).tau
        # Killed with the clients' work of a round done, and its replies lost.
        nodes = grid(SCAFFOLD, tmp_path)
        nodes.send_and_receive(federation.configure_train(1, START, ConfigRecord(), nodes))
        federation.restore(START).close()
        federation = strategy(path=tmp_path / "server")
        federation.start(grid(SCAFFOLD, tmp_path), START, num_rounds=total - done)
        server = federation.restore(START)
        server.close()
    expected = run(SCAFFOLD, DATA, seed=SEED, rounds=8).x
    np.testing.assert_allclose(server.x, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_clients_that_lost_what_they_kept_join_again(tmp_path, caplog):
    for total in (3, 6):
        federation = strategy(path=tmp_path)
        done = federation.restore(START).tau
        federation.start(grid(), START, num_rounds=total - done)  # whose contexts are new
        assert "rejected" not in caplog.text
        server = federation.restore(START)
        assert (server.tau, len(server.members)) == (total, M)
        server.close()


def test_a_client_that_loses_what_it_kept_meanwhile_joins_again(caplog):
    nodes, federation = grid(), strategy()
    federation.start(nodes, START, num_rounds=6)
    server = federation.restore(START)
    for context in nodes.contexts.values():
        for record in list(context.state):
            del context.state[record]
    federation.start(nodes, START, num_rounds=1)
    assert server.tau == 7
    refused = caplog.text.count("it has lost what it kept after round")
    assert refused > 0
    caplog.clear()
    federation.start(nodes, START, num_rounds=4)
    assert caplog.text.count("it has lost what it kept after round") == 0
    assert len(server.members) == M


def test_a_client_that_tells_nothing_is_rejected(caplog):
    honest = app(SCAFFOLD)

    def tampered(message: Message, context: Context) -> Message:
        reply, i = honest(message, context), context.node_config["partition-id"]
        if i == 0:
            reply.content["metrics"].pop("told", None)
        elif i == 1:
            reply.content["metrics"]["told"] = [1.0, 2.0]
        return reply

    nodes = flower_grid.InProcessGrid(tampered, M, None)
    federation = FedEPMStrategy(SCAFFOLD, M, seed=SEED, min_clients=M - 2)
    federation.start(nodes, START, num_rounds=1)
    assert "client 0 rejected: told must have" in caplog.text
    assert "told must be a list of numbers, of " in caplog.text
    assert federation.restore(START).members.tolist() == list(range(2, M))
