"""What server and clients must agree on: the parameters, and how Adult is split."""

from __future__ import annotations

import functools
import math

from flwr.app import UserConfig

from fedepm_fast import FedEPM, Problem, datasets, make_problem
from fedepm_fast.privacy import LaplaceMechanism
from fedepm_fast.privacy.defaults import private_settings

ALGORITHM = FedEPM(local_steps=12, participation=0.5, epsilon=0.1)


@functools.cache
def problem(clients: int) -> Problem:
    """Adult, which the package holds, split over so many clients."""
    return make_problem(ALGORITHM, datasets.adult(clients=clients, seed=0))


def plan(config: UserConfig) -> tuple[FedEPM, int, int]:
    """What a run's configuration asks for: the algorithm, rounds, and how many of them a client
    takes part in at most."""
    epsilon, p = float(config["total-epsilon"]), problem(int(config["clients"]))
    if epsilon == 0:
        return ALGORITHM, int(config["rounds"]), int(config["rounds"])
    settings = private_settings(epsilon)
    rounds, share = settings.pop("rounds"), settings["participation"]
    # Adult is a public table, and so is how its columns were scaled.
    mechanism = LaplaceMechanism(total_epsilon=epsilon, public_scaling=True)
    clipping = mechanism.resolve(p.n_samples, p.n_parameters)
    # In turn: the fewer uploads the budget is for, the less noise each of them has.
    algorithm = FedEPM(mechanism=clipping, coverage_rounds=math.ceil(1 / share), **settings)
    return algorithm, rounds, math.ceil(rounds * share)
