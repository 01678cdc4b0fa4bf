"""The attack on uploads under a mechanism."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms import AtClients, FedEPM
from ..callbacks import RoundInfo
from ..data import FederatedData
from ..mechanisms import in_coordinates, simulate_moments, upload_sensitivity
from ..objectives import Logistic, Problem
from ..private_runs import private_problem
from ..randomness import CounterRandomness
from ..stopping import REASONS, NoRule
from . import _audit_moments
from ._audit_claim import TILT, Claim

Array = NDArray[np.float64]

#: How far rows are above the clip.
_ABOVE = 3.0
#: How far the gradients of whole clients are above what moves them as far as the clip.
_BEYOND = 100.0
#: Margins beyond this have a derivative of 0 or 1.
_MARGIN = 40.0


class Seen(NamedTuple):
    """What an observer of clients sees, the first half of which hold the first record."""

    points: Array
    """Of the server, shape (rounds, n)."""
    uploads: Array
    """Shape (rounds + 1, m, n)."""
    scales: Array
    """Of their noise, shape (rounds, m)."""
    moments: tuple[Array, Array] | None
    """Second moments (m, p*(p+1)/2), packed, and the scales of their noise (m,)."""


class Plan(Claim):
    """A mechanism's plan for a client of `records` rows, and the attack on it.

    The two records' rows are ``(1, +-0.01)``, nearly, of three times the largest size, and their
    labels 0 and 1. From a start far along the second coordinate their gradients are ``clip`` and
    ``-clip`` along the first one, nearly, in the mechanism's norm. The other rows are zero.
    Of whole clients all rows are these, so large that the local steps go beyond the clip. Where
    second moments are released, the rows are these in coordinates that the server names, and
    beyond the radius of the moments.
    """

    def __init__(self, algorithm: FedEPM, rounds: int, features: int, records: int) -> None:
        mechanism = algorithm.mechanism
        assert mechanism is not None
        mechanism = dataclasses.replace(mechanism, budgets=None).resolve(records, features)
        assert mechanism.clip is not None
        super().__init__(mechanism, rounds)
        self.clip = mechanism.clip
        self.whole, self.size = mechanism.neighbours == "client", self.clip * _ABOVE
        self.records, self.along = records, 1 - TILT
        if mechanism.order == 2:
            self.along = (1 - TILT**2) ** 0.5
        #: In which the rounds are.
        self.coordinates = (
            _audit_moments.coordinates(features, self.along, TILT) if self.moments else None
        )
        algorithm = dataclasses.replace(algorithm, mechanism=mechanism)
        # Of one client, as the settings of eta depend on how many there are.
        raw = [self._problem(algorithm, self._data([which], features)) for which in range(2)]
        self.algorithm: FedEPM = algorithm.resolve(raw[0])
        if self.whole:
            self.size = _BEYOND * self._gradient_of_a_move(raw[0], features)
            raw = [self._problem(algorithm, self._data([which], features)) for which in range(2)]
        self.radius = self.size / _ABOVE
        self.problems = [private_problem(mechanism, problem) for problem in raw]
        self.plan = self.algorithm.plan(self.problems[0], np.array([self.spends]))
        assert self.plan is not None
        alone = np.zeros(1, np.intp)
        moves = self.algorithm.sensitivity(
            self.problems[0], alone, np.zeros((1, features)), 0, self.plan
        )
        # Uploads may move the point so far, and the derivative stays what it is.
        reach = float(moves[0] * (1 + self.plan.multipliers[0]))
        self.start = np.zeros(features)
        self.start[1] = (_MARGIN * _ABOVE / self.size + 10 * rounds * reach) / TILT

    def _gradient_of_a_move(self, problem: Problem, features: int) -> float:
        """Size of a gradient with which local steps from x end at the clip or beyond."""
        algorithm, one, gap = self.algorithm, np.zeros(1, np.intp), np.zeros((1, features))
        lam, eta = algorithm.weights
        least = min(
            upload_sensitivity(np.ones(1), algorithm.steps_of(problem, one, gap, tau), eta)[0]
            for tau in (0, self.rounds - 1)
        )
        return float(self.clip / least + lam)

    def _rows(self, which: int, features: int) -> tuple[Array, Array]:
        a, b = np.zeros((self.records, features)), np.zeros(self.records)
        near = np.array([[self.along, TILT], [self.along, -TILT]])
        there = slice(None) if self.whole else 0
        a[there, :2] = (np.eye(2) if self.moments else near)[which] * self.size
        b[there] = which
        return a, b

    def _data(self, whose: Sequence[int], features: int) -> FederatedData:
        """A client for each entry of `whose`, which says which of the two records it holds."""
        rows = [self._rows(which, features) for which in range(2)]
        return FederatedData(
            np.concatenate([rows[which][0] for which in whose]),
            np.concatenate([rows[which][1] for which in whose]),
            np.full(len(whose), self.records),
        )

    def _problem(self, algorithm: FedEPM, data: FederatedData) -> Problem:
        """Of the clients' rows in the coordinates of the rounds."""
        if self.coordinates is not None:
            data = in_coordinates(data, self.coordinates)
        # The regulariser is no record's; without it the point stays where it is.
        return Problem(data, algorithm.objective(Logistic(beta=0.0)))

    def simulated(self, runs: int, seed: int) -> Seen:
        """What the observer sees of a run of the compiled engine.

        Each of its clients is an experiment of its own, for their noise is independent, and what
        they share, x, is public.
        """
        from ..engine import simulate

        algorithm, rounds = self.algorithm, self.rounds
        whose = [0] * runs + [1] * runs
        data, m = self._data(whose, len(self.start)), len(whose)
        problem = private_problem(self.mechanism, self._problem(algorithm, data))
        Z = [np.broadcast_to(self.start, (m, len(self.start)))]
        for last in range(1, rounds + 1):
            outcome = simulate(
                algorithm, problem, CounterRandomness(seed), NoRule(), max_rounds=rounds,
                start=self.start, every_accuracy=False,
                callback=partial(_reached, last),
            )  # fmt: skip
            points = points_of(outcome, last, rounds)
            Z.append(outcome.Z)
        x = points[:rounds]
        plan = algorithm.plan(problem, np.full(m, self.spends))
        everyone = np.arange(m)
        scale = [
            algorithm.noise_scale(
                problem, everyone, algorithm.round_start(Z[tau], Z[tau], x[tau]) - x[tau],
                Z[tau], Z[tau], tau, plan,
            )
            for tau in range(rounds)
        ]  # fmt: skip
        moments = None
        if self.moments:
            assert plan is not None
            release = [self.mechanism.one_release(z, self.moments) for z in plan.multipliers]
            moments = simulate_moments(
                data, self.mechanism, self.radius, release, CounterRandomness(seed)
            )
        return Seen(x, np.array(Z), np.array(scale), moments)

    def sent(self, runs: int) -> Seen:
        """The same of `PrivateClient`, whose server never moves."""
        from ..federation.client import PrivateClient

        Z = np.empty((self.rounds + 1, 2 * runs, len(self.start)))
        scale, moments = np.empty((self.rounds, 2 * runs)), []
        with tempfile.TemporaryDirectory() as folder:
            for run in range(2 * runs):
                a, b = self._rows(int(run >= runs), len(self.start))
                client = PrivateClient(
                    self.algorithm, a, b, index=0, clients=1, uploads=self.rounds,
                    path=Path(folder) / str(run), objective=Logistic(beta=0.0),
                )  # fmt: skip
                if self.moments:
                    moments.append(client.moments(self.radius))
                Z[0, run] = client.join(self.start).values
                for tau in range(self.rounds):
                    upload = client.train(self.start, tau, self.coordinates)
                    Z[tau + 1, run], scale[tau, run] = upload.values, upload.scale
        values, of_moments = zip(*moments, strict=True) if moments else ((), ())
        return Seen(
            np.tile(self.start, (self.rounds, 1)), Z, scale,
            (np.array(values), np.array(of_moments)) if moments else None,
        )  # fmt: skip

    def scores(self, seen: Seen) -> tuple[Array, Array]:
        """How much likelier each upload is with the first record, those of clients that hold the
        first and those that hold the second one, each of shape (rounds * runs,)."""
        found, (xs, Z, scale, _) = [], seen
        m = Z.shape[1]
        for tau, x in enumerate(xs):
            begin = self.algorithm.round_start(Z[tau], Z[tau], x)
            units = []
            for problem in self.problems:
                sizes = np.broadcast_to(problem.data.client_sizes, m)
                G = np.broadcast_to(problem.gradient(0, x), begin.shape)
                clients = AtClients(tau, x, begin, G, sizes, problem.gradient)
                W, _ = self.algorithm.local_round(clients)
                units.append((Z[tau + 1] - W) / scale[tau][:, None])
            first, second = (self.law.log_density(unit) for unit in units)
            # Beyond both centres of Laplace noise all are alike, but for rounding.
            found.append(np.round(first - second, 9))
        both = np.array(found)
        return both[:, : m // 2].ravel(), both[:, m // 2 :].ravel()

    def moments_scores(self, seen: Seen) -> tuple[Array, Array] | None:
        """The same of second moments, each of shape (2 * runs,); None without them."""
        if seen.moments is None:
            return None
        return _audit_moments.moments_scores(
            self.mechanism, self.radius, self.pair(), *seen.moments
        )

    def pair(self) -> FederatedData:
        """Two clients, with one of the records each, in columns."""
        return self._data([0, 1], len(self.start))


def _reached(last: int, info: RoundInfo) -> bool:
    return info.tau >= last


def points_of(outcome: Any, last: int, rounds: int) -> Array:
    """The server's points of a run to round `last`.

    Raises
    ------
    ValueError
        If it ended before.
    """
    points = outcome.history["x"]
    if len(points) <= last:
        raise ValueError(
            f"algorithm must make {rounds} uploads, a run ended after {len(points) - 1} "
            f"({'; '.join(REASONS[name] for name in outcome.reasons)})"
        )
    return np.asarray(points)
