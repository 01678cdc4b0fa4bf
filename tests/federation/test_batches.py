"""Clients of algorithms whose steps take some of the client's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import Told, small_data

from fedepm_fast import FedAvg, FederatedData, FedProx, make_problem, run
from fedepm_fast.federation.client import Client
from fedepm_fast.federation.server import Server
from fedepm_fast.objectives import ClientProblem

M, N, SEED = 6, 5, 3
DATA = small_data()
ALGORITHMS = [
    FedAvg(local_steps=3, batch_size=4, learning_rate=0.1, participation=0.5),
    FedProx(local_steps=2, batch_size=1, learning_rate=0.1, prox=0.5, noise="laplace"),
]


class Gradient(Told):
    def __call__(self, w: Any) -> Any:
        return self.problem.gradient(self.i, w)


def of_rows(problem: Any, i: int) -> ClientProblem:
    rows, labels = DATA.client(i)
    own = FederatedData(rows, labels, DATA.client_sizes[i : i + 1])
    return ClientProblem(own, problem.objective, clients=M)


def make_client(algorithm: Any, gradient: Any, i: int) -> Client:
    size = int(DATA.client_sizes[i])
    return Client(algorithm, gradient, index=i, clients=M, features=N, samples=size, seed=SEED)


@pytest.mark.parametrize("kind", [FedAvg, FedProx])
def test_of_what_clients_tell_alone_becomes_what_a_run_knows(kind):
    algorithm = kind(batch_size=2, rate_scale=0.5)
    problem = make_problem(algorithm, DATA)
    told = [list(make_client(algorithm, of_rows(problem, i), i).told.values()) for i in range(M)]
    np.testing.assert_array_equal(algorithm.agreed(np.transpose(told)), algorithm.known(problem))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["fedavg", "fedprox"])
@pytest.mark.parametrize("kind", [Gradient, of_rows], ids=["callable", "rows"])
def test_batches_are_those_of_a_run(algorithm, kind):
    problem = make_problem(algorithm, DATA)
    given = [(problem, i, 1.0) if kind is Gradient else (problem, i) for i in range(M)]
    clients = [make_client(algorithm, kind(*each), i) for i, each in enumerate(given)]
    server, states = Server(algorithm, M, N, seed=SEED), {}
    for i, client in enumerate(clients):
        states[i], upload = client.join(np.zeros(N))
        assert server.join(i, upload, told=client.told)
    for _ in range(5):
        tau, x, chosen = server.open_round()
        for i in chosen.tolist():
            message, before = server.message(i), states[i]
            states[i], upload = clients[i].train(before, x, tau, **message)
            again = clients[i].train(states[i], x, tau, **message)[1]
            np.testing.assert_array_equal(again, upload)
            assert server.receive(tau, i, upload)
        server.close_round()
    want = run(algorithm, DATA, seed=SEED, rounds=5, engine="reference").x
    np.testing.assert_array_equal(server.x, want)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_clients_that_weigh_by_size_say_so(batch_size):
    algorithm = FedAvg(local_steps=2, batch_size=batch_size, participation=0.5)
    problem = make_problem(algorithm, DATA, client_weight="size")
    server, clients, states = Server(algorithm, M, N, seed=SEED), [], {}
    for i in range(M):
        rows, labels = DATA.client(i)
        own = ClientProblem(
            FederatedData(rows, labels, DATA.client_sizes[i : i + 1]), problem.objective,
            client_weight="size", clients=M, weight_sum=float(DATA.n_samples),
        )  # fmt: skip
        clients.append(make_client(algorithm, own, i))
        assert clients[i].told["weight"] == problem.client_weights[i]
        states[i], upload = clients[i].join(np.zeros(N))
        assert server.join(i, upload, told=clients[i].told)
    for _ in range(4):
        tau, x, chosen = server.open_round()
        for i in chosen.tolist():
            states[i], upload = clients[i].train(states[i], x, tau, **server.message(i))
            assert server.receive(tau, i, upload)
        server.close_round()
    options = dict(client_weight="size", seed=SEED, rounds=4, engine="reference")
    np.testing.assert_allclose(server.x, run(algorithm, DATA, **options).x, rtol=1e-12)


def test_a_gradient_without_batches_is_named():
    algorithm, problem = ALGORITHMS[0], make_problem(ALGORITHMS[0], DATA)
    with pytest.raises(ValueError, match=r"gradient must have a method batch_gradient\(w, rows\)"):
        make_client(algorithm, lambda w: w, 0)
    with pytest.raises(ValueError, match="learning_rate must be a number for batches of callables"):
        make_client(FedAvg(batch_size=2), Gradient(problem, 0, 1.0), 0)
    odd = Gradient(problem, 0, 1.0)
    odd.batch_gradient = lambda w, rows: w[:2]
    client = make_client(algorithm, odd, 0)
    with pytest.raises(ValueError, match=r"batch_gradient must have shape \(5,\), got \(2,\)"):
        client.train(None, np.zeros(N), 0, told={"weight": 1.0, "rate": 0.1})
