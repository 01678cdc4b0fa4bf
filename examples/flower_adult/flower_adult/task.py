"""What server and clients must agree on: the parameters, and how Adult is split."""

from __future__ import annotations

import functools

import numpy as np
from flwr.app import UserConfig

from fedepm_fast import FedEPM, Problem, datasets, make_problem
from fedepm_fast.privacy import LaplaceMechanism

#: An upload has its share of the budget: with more of them, all are noisier, and runs end worse.
PRIVATE_ROUNDS = 10


@functools.cache
def problem(clients: int) -> Problem:
    """Adult, which the package holds, split over so many clients."""
    return make_problem(FedEPM(), datasets.adult(clients=clients, seed=0))


def curvature(p: Problem) -> float:
    """The largest eigenvalue of what bounds the mean objective's second derivatives."""
    bound = np.zeros((p.n_parameters, p.n_parameters))
    for i, d in enumerate(p.data.client_sizes):
        A, _ = p.data.client(i)
        bound += (A.T @ A) / (4 * d) + p.reg[i] * np.eye(p.n_parameters)
    return float(np.linalg.eigvalsh(bound / p.data.n_clients)[-1])


@functools.cache
def algorithm(clients: int, epsilon: float) -> FedEPM:
    """FedEPM for few clients, private if epsilon is above 0.

    The paper's parameters are for about 50 clients and more: with 20, whose objectives are
    steeper, they go past the optimum and end above their best round. With eta the curvature, a
    client's parameter is a gradient step from the point, and f falls in every round. No privacy
    is meant by the paper's noise, so there is none.
    """
    p = problem(clients)
    L = curvature(p)
    options = {"step": "1", "mu0": L / 4, "eta": L, "lam": 1e-6 * L, "c": 0.0, "alpha": 1.0}
    if epsilon == 0:
        return FedEPM(participation=1.0, noise="none", **options)
    # Adult is a public table, and so are how its columns were scaled, and its curvature.
    mechanism = LaplaceMechanism(total_epsilon=epsilon, public_scaling=True)
    clipping = mechanism.resolve(p.n_samples, p.n_parameters)
    return FedEPM(participation=1.0, mechanism=clipping, **options)


def plan(config: UserConfig) -> tuple[FedEPM, int]:
    """What a run's configuration asks for: the algorithm, and rounds."""
    epsilon, rounds = float(config["total-epsilon"]), int(config["rounds"])
    if epsilon:
        rounds = min(rounds, PRIVATE_ROUNDS)
    return algorithm(int(config["clients"]), epsilon), rounds
