"""A server that may be killed, and clients of algorithms that keep, share and tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from problems import small_data

from fedepm_fast import FedDyn, FederatedData, Scaffold, make_problem
from fedepm_fast.federation.client import Client, ClientState
from fedepm_fast.federation.server import Server
from fedepm_fast.objectives import ClientProblem

M, N, SEED = 6, 5, 3
ALGORITHM = Scaffold(participation=0.5, local_steps=3, learning_rate=0.05, noise="none")
#: Its server keeps the mean to itself.
FEDDYN = FedDyn(participation=0.5, local_steps=3, learning_rate=0.05, prox=2.0)
DATA = small_data()
PROBLEM = make_problem(ALGORITHM, DATA)
START = np.zeros(N)


def make_client(i: int, algorithm: Any = ALGORITHM, **options: Any) -> Client:
    given = dict(index=i, clients=M, features=N, samples=int(DATA.client_sizes[i]), seed=SEED)
    gradient = options.pop("gradient", lambda w: PROBLEM.gradient(i, w))
    return Client(algorithm, gradient, **{**given, **options})


def own_problem(i: int) -> ClientProblem:
    rows, labels = DATA.client(i)
    own = FederatedData(rows, labels, DATA.client_sizes[i : i + 1])
    return ClientProblem(own, PROBLEM.objective, clients=M)


class Federation:
    """A server that may be killed, and the states of its clients."""

    def __init__(self, path: Any = None, algorithm: Any = ALGORITHM) -> None:
        self.path, self.algorithm = path, algorithm
        self.clients = [make_client(i, algorithm, gradient=own_problem(i)) for i in range(M)]
        self.states: dict[int, ClientState] = {}
        self.server = self.new_server()

    def new_server(self) -> Server:
        return Server(self.algorithm, M, N, seed=SEED, path=self.path)

    def restart(self) -> None:
        self.server.close()
        self.server = self.new_server()

    def join(self, i: int) -> None:
        state, upload = self.clients[i].join(START)
        if self.server.join(i, upload, told=self.clients[i].told):
            self.states[i] = state

    def answer(self, i: int) -> np.ndarray:
        tau, x, _ = self.server.open_round()
        message = self.server.message(i)
        self.states[i], upload = self.clients[i].train(self.states[i], x, tau, **message)
        return upload

    def kept(self, i: int) -> np.ndarray:
        """What counts of what a client keeps, by what the server acknowledges."""
        round_ = int(self.server._memory.acknowledged[i])
        state = self.states[i]
        if round_ == -1:
            return np.zeros((1, N))
        arrived = state.round(self.algorithm.local_steps) == round_
        return state.kept if arrived else state.kept_before


#: What a client tells when it joins.
TOLD = make_client(0).told
