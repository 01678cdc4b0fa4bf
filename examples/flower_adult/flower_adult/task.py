"""What server and clients must agree on: the parameters, and how Adult is split."""

from __future__ import annotations

import functools

from fedepm_fast import FedEPM, Problem, datasets, make_problem

ALGORITHM = FedEPM(local_steps=12, participation=0.5, epsilon=0.1)


@functools.cache
def problem(clients: int) -> Problem:
    """Adult, which the package holds, split over so many clients."""
    return make_problem(ALGORITHM, datasets.adult(clients=clients, seed=0))
