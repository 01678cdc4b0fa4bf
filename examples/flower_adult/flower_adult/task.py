"""What server and clients must agree on: the parameters, and how Adult is split."""

from __future__ import annotations

import functools

import numpy as np

from fedepm_fast import FedEPM, FederatedData, Problem, datasets, make_problem
from fedepm_fast.data import standardised
from fedepm_fast.privacy import GaussianMechanism, PrivatePlan, plan


@functools.cache
def problem(clients: int) -> Problem:
    """Adult, which the package holds, split over so many clients."""
    return make_problem(FedEPM(), datasets.adult(clients=clients, seed=0))


@functools.cache
def table(clients: int) -> FederatedData:
    """The same for private clients: columns of mean 0 and deviation 1, and an intercept."""
    return standardised(problem(clients).data)


@functools.cache
def private(clients: int, epsilon: float) -> PrivatePlan:
    """What server and clients of a private run do, from public numbers."""
    # Adult is a public table, and so are the means and deviations of its columns.
    budget = GaussianMechanism(total_epsilon=epsilon, delta=1e-6, public_scaling=True)
    data = table(clients)
    return plan(client_sizes=data.client_sizes, n_features=data.n_features, mechanism=budget)


def curvature(p: Problem) -> float:
    """The largest eigenvalue of what bounds the mean objective's second derivatives."""
    bound = np.zeros((p.n_parameters, p.n_parameters))
    for i, d in enumerate(p.data.client_sizes):
        A, _ = p.data.client(i)
        bound += (A.T @ A) / (4 * d) + p.reg[i] * np.eye(p.n_parameters)
    return float(np.linalg.eigvalsh(bound / p.data.n_clients)[-1])


@functools.cache
def algorithm(clients: int) -> FedEPM:
    """FedEPM for few clients, without privacy.

    The paper's parameters are for about 50 clients and more: with 20, whose objectives are
    steeper, they go past the optimum and end above their best round. With eta the curvature, a
    client's parameter is a gradient step from the point, and f falls in every round. No privacy
    is meant by the paper's noise, so there is none.
    """
    L = curvature(problem(clients))
    options = {"step": "1", "mu0": L / 4, "eta": L, "lam": 1e-6 * L, "c": 0.0, "alpha": 1.0}
    return FedEPM(participation=1.0, noise="none", **options)
