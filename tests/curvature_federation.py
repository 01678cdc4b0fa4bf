"""A server of curvatures and clients that hold their own rows alone, in one process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from problems import small_data

from fedepm_fast import CurvatureFedEPM, FederatedData
from fedepm_fast.algorithms import FedNL
from fedepm_fast.federation.curvature_client import Answer, CurvatureClient
from fedepm_fast.federation.curvature_server import CurvatureServer
from fedepm_fast.objectives import ClientProblem, Objective, Problem, as_objective

M, SEED = 6, 5
DATA = small_data(M, 5)
LOGISTIC = as_objective("logistic", beta=0.01)
ROUND = as_objective("logistic", beta=0.1, regularizer="beta")


class Federation:
    """Clients that hold their own rows alone, and their server."""

    def __init__(
        self, algorithm: CurvatureFedEPM, data: FederatedData = DATA,
        objective: Objective = LOGISTIC, client_weight: str = "size", **options: Any,
    ) -> None:  # fmt: skip
        m = data.n_clients
        self.problem = Problem(data, objective, client_weight)
        self.clients = []
        for i in range(m):
            features, labels = data.client(i)
            weights = data.sample_weight
            own = FederatedData(
                features.copy(), labels.copy(), [len(labels)],
                sample_weight=None if weights is None else weights[data.rows_of(i)].copy(),
            )  # fmt: skip
            problem = ClientProblem(
                own, self.problem.objective, client_weight, clients=m,
                weight_sum=float(data.weight_sums.sum()),
            )  # fmt: skip
            self.clients.append(CurvatureClient(algorithm, problem, index=i, clients=m))
        options = {"seed": SEED, "bounded": self.problem.has_lipschitz, **options}
        self.options = {"classes": self.problem.objective.n_outputs, **options}
        self.algorithm, self.shape = algorithm, (m, self.problem.n_parameters)

    def server(self, path: Any = None) -> CurvatureServer:
        return CurvatureServer(self.algorithm, *self.shape, path=path, **self.options)

    def join(self, server: CurvatureServer, clients: Any = None) -> None:
        for i in range(self.shape[0]) if clients is None else clients:
            assert server.join(server.round_of_x, i, sent(self.clients[i].join(server.x)))

    def round(self, server: CurvatureServer, silent: Any = ()) -> list[int]:
        tau, x, _, due = server.open_round()
        for i in server.awaited.tolist():
            if i not in silent:
                assert server.receive(tau, i, sent(self.clients[i].answer(x, due=i in due)))
        return server.close_round().tolist()

    def converge(self, server: CurvatureServer, rounds: int = 100) -> list[np.ndarray]:
        points = [server.x]
        while not server.converged and server.tau <= rounds:
            self.round(server)
            points.append(server.x)
        return points


def sent(answer: Answer) -> Answer:
    """As it arrives."""
    return Answer.from_dict(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))


#: Algorithms whose federations are runs.
WAYS = {
    "all": CurvatureFedEPM(),
    "half": CurvatureFedEPM(participation=0.5),
    "seldom": CurvatureFedEPM(participation=0.5, renew_every=3),
    "secant": CurvatureFedEPM(participation=0.5, coordinates="secant"),
    "whitened": CurvatureFedEPM(participation=0.5, coordinates="whitened", lam=1e-3),
    "mean": CurvatureFedEPM(coordinates="whitened"),
    "FedNL": FedNL(participation=0.5),
}


def optimum(federation: Federation, clients: Any) -> np.ndarray:
    """Where the sum of these clients' objectives is least, by Newton steps."""
    problem, x = federation.problem, np.zeros(federation.shape[1])
    for _ in range(50):
        gradient = sum(problem.gradient(i, x) for i in clients)
        x = x - np.linalg.solve(sum(problem.hessian(i, x) for i in clients), gradient)
    return x
