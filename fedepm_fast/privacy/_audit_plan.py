"""The attack on uploads under a mechanism."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import AtClients, FedEPM
from ..callbacks import RoundInfo
from ..data import FederatedData
from ..mechanisms import upload_sensitivity
from ..objectives import Logistic, Problem
from ..private_runs import private_problem
from ..randomness import CounterRandomness
from ..stopping import REASONS, NoRule
from ._audit_bounds import Audit, rates, split_bound

Array = NDArray[np.float64]

#: Of a record's row, along the coordinate whose sign tells the two rows apart.
_TILT = 0.01
#: How far rows are above the clip.
_ABOVE = 3.0
#: How far the gradients of whole clients are above what moves them as far as the clip.
_BEYOND = 100.0
#: Margins beyond this have a derivative of 0 or 1.
_MARGIN = 40.0

_POWER, _DRAWS = 0.9, 500
_LEAST_NOISE = 0.01


class Plan:
    """A mechanism's plan for a client of `records` rows, and the attack on it.

    The two records' rows are ``(1, +-0.01)``, nearly, of three times the largest size, and their
    labels 0 and 1. From a start far along the second coordinate their gradients are ``clip`` and
    ``-clip`` along the first one, nearly, in the mechanism's norm. The other rows are zero.
    Of whole clients all rows are these, so large that the local steps go beyond the clip.
    """

    def __init__(self, algorithm: FedEPM, rounds: int, features: int, records: int) -> None:
        mechanism = algorithm.mechanism
        assert mechanism is not None
        mechanism = mechanism.resolve(records, features)
        assert mechanism.clip is not None
        self.mechanism, self.clip, self.rounds = mechanism, mechanism.clip, rounds
        self.records, self.law = records, mechanism.law
        self.whole, self.size = mechanism.neighbours == "client", self.clip * _ABOVE
        algorithm = dataclasses.replace(algorithm, mechanism=mechanism)
        # Of one client, as the settings of eta depend on how many there are.
        raw = [self._problem(algorithm, [which], features) for which in range(2)]
        self.algorithm: FedEPM = algorithm.resolve(raw[0])
        if self.whole:
            self.size = _BEYOND * self._gradient_of_a_move(raw[0], features)
            raw = [self._problem(algorithm, [which], features) for which in range(2)]
        self.problems = [private_problem(mechanism, problem) for problem in raw]
        self.plan = self.algorithm.plan(self.problems[0], np.array([rounds]))
        assert self.plan is not None
        alone = np.zeros(1, np.intp)
        moves = self.algorithm.sensitivity(
            self.problems[0], alone, np.zeros((1, features)), 0, self.plan
        )
        # Uploads may move the point so far, and the derivative stays what it is.
        reach = float(moves[0] * (1 + self.plan.multipliers[0]))
        self.start = np.zeros(features)
        self._shortfalls: dict[tuple[int, float], float | None] = {}
        self.start[1] = (_MARGIN * _ABOVE / self.size + 10 * rounds * reach) / _TILT

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
        norm2 = self.mechanism.order == 2
        along = (1 - _TILT**2) ** 0.5 if norm2 else 1 - _TILT
        there = slice(None) if self.whole else 0
        a[there, :2] = np.array([along, (-1) ** which * _TILT]) * self.size
        b[there] = which
        return a, b

    def _problem(self, algorithm: FedEPM, whose: Sequence[int], features: int) -> Problem:
        """A client for each entry of `whose`, which says which of the two records it holds."""
        rows = [self._rows(which, features) for which in range(2)]
        data = FederatedData(
            np.concatenate([rows[which][0] for which in whose]),
            np.concatenate([rows[which][1] for which in whose]),
            np.full(len(whose), self.records),
        )
        # The regulariser is no record's; without it the point stays where it is.
        return Problem(data, algorithm.objective(Logistic(beta=0.0)))

    def simulated(self, runs: int, seed: int) -> tuple[Array, Array, Array]:
        """Points x (rounds, n), uploads (rounds + 1, 2 * runs, n) and scales (rounds, 2 * runs).

        They are of one run of the compiled engine, in which the first half of the clients hold
        the first record, the others the second: each is an experiment of its own, for their noise
        is independent, and what they share, x, is public.
        """
        from ..engine import simulate

        algorithm, rounds = self.algorithm, self.rounds
        whose = [0] * runs + [1] * runs
        problem = private_problem(self.mechanism, self._problem(algorithm, whose, len(self.start)))
        m = len(whose)
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
        plan = algorithm.plan(problem, np.full(m, rounds))
        everyone = np.arange(m)
        scale = [
            algorithm.noise_scale(
                problem, everyone, algorithm.round_start(Z[tau], Z[tau], x[tau]) - x[tau],
                Z[tau], Z[tau], tau, plan,
            )
            for tau in range(rounds)
        ]  # fmt: skip
        return x, np.array(Z), np.array(scale)

    def sent(self, runs: int) -> tuple[Array, Array, Array]:
        """The same of `PrivateClient`, whose server never moves."""
        from ..federation.client import PrivateClient

        Z = np.empty((self.rounds + 1, 2 * runs, len(self.start)))
        scale = np.empty((self.rounds, 2 * runs))
        with tempfile.TemporaryDirectory() as folder:
            for run in range(2 * runs):
                a, b = self._rows(int(run >= runs), len(self.start))
                client = PrivateClient(
                    self.algorithm, a, b, index=0, clients=1, uploads=self.rounds,
                    path=Path(folder) / str(run), objective=Logistic(beta=0.0),
                )  # fmt: skip
                Z[0, run] = client.join(self.start).values
                for tau in range(self.rounds):
                    upload = client.train(self.start, tau)
                    Z[tau + 1, run], scale[tau, run] = upload.values, upload.scale
        return np.tile(self.start, (self.rounds, 1)), Z, scale

    def scores(self, xs: Array, Z: Array, scale: Array) -> tuple[Array, Array]:
        """How much likelier each upload is with the first record, those of clients that hold the
        first and those that hold the second one, each of shape (rounds * runs,)."""
        found = []
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

    def apart(self, low: Array, high: Array) -> Array:
        """How far apart two laws of unit scale are at least, if an observer of one upload is right
        with a rate of `low` or more and alarmed falsely with one of `high` or less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(low > high, self.law.apart(low, high), 0.0)

    def epsilon(self, apart: float) -> float:
        """What the uploads of a run spend whose laws are so far apart."""
        return self.mechanism.compose(apart, self.rounds) if apart > 0 else 0.0

    @property
    def stated(self) -> float:
        """The epsilon that the mechanism is given, whatever its noise."""
        return self.mechanism.stated(self.rounds)

    def planned(self) -> float:
        """How far apart the laws of an upload are at most, for what is stated."""
        return 1 / self.mechanism.noise_multiplier(self.stated, self.rounds)

    def verdict(self, first: Array, second: Array, confidence: float) -> Audit:
        """What the scores of clients with the first and with the second record show."""

        def bound(hits: Array, alarms: Array, of: int) -> Array:
            return self.apart(*rates(hits, alarms, of, confidence))

        found, seen = split_bound(first, second, bound)
        runs, shortfall = len(first) // self.rounds, self.shortfall(len(first) // 2, confidence)
        delta = getattr(self.mechanism, "delta", 0.0)
        return Audit(
            self.epsilon(found), self.stated, delta, confidence, runs, *seen, self.rounds, shortfall
        )

    def shortfall(self, of: int, confidence: float) -> float | None:
        """The smallest lack of noise that so many uploads of each dataset show."""
        key = of, confidence
        if key not in self._shortfalls:
            self._shortfalls[key] = self._smallest(of, confidence)
        return self._shortfalls[key]

    def _smallest(self, of: int, confidence: float) -> float | None:
        # The pair falls short of the largest distance by its tilt.
        planned = self.planned()

        def seen(share: float) -> bool:
            far = (1 - _TILT) * planned / share
            alarm = self.law.tail(far / 2)
            rng = np.random.default_rng(0)
            hits, alarms = of - rng.binomial(of, alarm, _DRAWS), rng.binomial(of, alarm, _DRAWS)
            found = self.apart(*rates(hits, alarms, of, confidence))
            return bool((found > planned).mean() >= _POWER)

        if not seen(_LEAST_NOISE):
            return None
        low, high = _LEAST_NOISE, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if seen(middle) else (low, middle)
        return 1 - low


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
