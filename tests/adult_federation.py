"""A server and all clients of Adult, in one process."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedepm_fast import FedEPM, datasets, make_problem
from fedepm_fast.federation.client import Client, ClientState
from fedepm_fast.federation.server import Server
from fedepm_fast.privacy import LaplaceMechanism

M, N, SEED = 8, 5, 11
ALGORITHM = FedEPM(participation=0.5, lam=1e-3, eta=2e-3)


class Federation:
    """All clients of Adult in one process, with their states."""

    def __init__(self, algorithm: FedEPM = ALGORITHM, clients: int = M, seed: int = SEED) -> None:
        self.data = datasets.adult(clients=clients, seed=3)
        problem = make_problem(algorithm, self.data)
        self.algorithm, self.seed, self.n = algorithm, seed, problem.n_parameters
        self.clients = [
            Client(
                algorithm,
                lambda x, i=i: problem.gradient(i, x),
                index=i,
                clients=clients,
                features=self.n,
                samples=int(size),
                seed=seed,
            )
            for i, size in enumerate(self.data.client_sizes)
        ]
        self.states: dict[int, ClientState] = {}

    def server(self, **options: Any) -> Server:
        options = {"seed": self.seed, **options}
        return Server(self.algorithm, len(self.clients), self.n, **options)

    def join(self, server: Server, who: Any = None, x: Any = None) -> None:
        for i in range(len(self.clients)) if who is None else who:
            self.states[i], upload = self.clients[i].join(np.zeros(self.n) if x is None else x)
            assert server.join(i, upload)

    def replies(self, server: Server) -> list[tuple[int, int, Any]]:
        tau, x, chosen = server.open_round()
        found = []
        assert set(server.awaited) <= set(chosen)
        for i in server.awaited:
            self.states[i], upload = self.clients[i].train(self.states.get(i), x, tau)
            found.append((tau, int(i), upload))
        return found

    def rounds(self, server: Server, count: int) -> None:
        for _ in range(count):
            for reply in self.replies(server):
                assert server.receive(*reply)
            server.close_round()


def with_entry(value: float, at: int = 3) -> np.ndarray:
    """Zeros but for one."""
    upload = np.zeros(N)
    upload[at] = value
    return upload


#: An upload that is taken.
GOOD = np.linspace(-1.0, 1.0, N)


#: One whose noise has a public scale.
PRIVATE = FedEPM(
    participation=0.5, lam=1e-3, eta=2e-3, mechanism=LaplaceMechanism(total_epsilon=1.0, clip=1.0)
)
