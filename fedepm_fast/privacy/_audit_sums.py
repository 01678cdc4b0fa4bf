"""The attack on secure sums, as seen by a server that all dishonest clients tell all they know."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import client_moments
from ..randomness import CounterRandomness
from ._audit_plan import Plan, Seen
from ._sum_run import moves_of, sums_of_moments, sums_of_moves
from .secure_sum import SecureSum

Array = NDArray[np.float64]


def seen_of_sums(plan: Plan, runs: int, seed: int, clients: int, honest: float) -> Seen:
    """What such a server sees of federations of so many clients, whose first one is attacked.

    That client is honest; of the others' rows it knows all, they are zero here, and of the
    dishonest ones the noise, too: what is left is the sum over the honest ones, in units of the
    attacked client's upload. The server never moves.
    """
    source, mechanism = CounterRandomness(seed), plan.mechanism
    x, units = plan.start, mechanism.units([plan.records])
    of_record, (z,) = plan.plan, mechanism.noise_multipliers(np.array([plan.spends]))
    assert of_record is not None
    options: Any = {"clients": clients, "honest": honest}

    def see(sums: SecureSum, index: int, pair: Array) -> tuple[Array, Array]:
        """Sums of runs with the first and the second record, and the scales of their noise."""
        parts, m = sums.parts, 2 * runs
        values = np.zeros((m, parts, sums.n))
        values[:runs, 0], values[runs:, 0] = pair * units[0]
        whose = np.arange(m * parts).reshape(m, parts)
        seen = dataclasses.replace(sums, clients=parts).simulate(values, source, index, whose)
        return seen / units[0], np.full(m, sums.noise(parts) / units[0])

    n, eta, one = len(x), plan.algorithm.weights[1], np.zeros(1, np.intp)
    sums = sums_of_moves(of_record, units, n, eta, z, **options)
    pair = np.array([moves_of(problem, of_record, eta, one, x)[0] for problem in plan.problems])
    rounds = [see(sums, tau + 1, pair) for tau in range(plan.rounds)]
    uploads = [np.broadcast_to(x, (2 * runs, n)), *(x + moves for moves, _ in rounds)]
    moments = None
    if plan.moments:
        release = mechanism.one_release(z, plan.moments)
        of_moments = sums_of_moments(plan.radius, units, n, release, **options)
        both = plan.pair()
        pair = np.array([client_moments(both.client(k)[0], plan.radius, 2) for k in range(2)])
        moments = see(of_moments, 0, pair)
    points, scales = np.tile(x, (plan.rounds, 1)), np.array([scale for _, scale in rounds])
    return Seen(points, np.array(uploads), scales, moments)
