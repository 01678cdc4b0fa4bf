"""What a mechanism claims of a run, and whether scores refute it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import Mechanism
from ._audit_bounds import Audit, rates, split_bound
from ._audit_moments import per_upload

Array = NDArray[np.float64]

#: Of a record's row, along the coordinate whose sign tells the two rows apart.
TILT = 0.01

_POWER, _DRAWS = 0.9, 500
_LEAST_NOISE = 0.01


class Claim:
    """What a client of so many rounds spends at most, second moments of the mechanism included."""

    def __init__(self, mechanism: Mechanism, rounds: int) -> None:
        self.mechanism, self.rounds, self.law = mechanism, rounds, mechanism.law
        self.moments, self.spends = mechanism.moments, rounds + mechanism.moments
        self._shortfalls: dict[tuple[int, float], float | None] = {}

    def apart(self, low: Array, high: Array) -> Array:
        """How far apart two laws of unit scale are at least, if an observer of one upload is right
        with a rate of `low` or more and alarmed falsely with one of `high` or less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(low > high, self.law.apart(low, high), 0.0)

    def epsilon(self, uploads: float, moments: float) -> float:
        """What a run spends whose laws are so far apart, moments per upload of theirs."""
        order = self.law.order
        total = self.rounds * uploads**order + self.moments * moments**order
        mean = (total / self.spends) ** (1 / order) if self.moments else uploads
        return self.mechanism.compose(mean, self.spends) if mean > 0 else 0.0

    @property
    def stated(self) -> float:
        """The epsilon that the mechanism is given, whatever its noise."""
        return self.mechanism.stated(self.spends)

    def planned(self) -> float:
        """How far apart the laws of an upload are at most, for what is stated."""
        return 1 / self.mechanism.noise_multiplier(self.stated, self.spends)

    def verdict(
        self,
        first: Array,
        second: Array,
        confidence: float,
        moments: tuple[Array, Array] | None = None,
    ) -> Audit:
        """What the scores of clients with the first and with the second record show."""
        each = confidence if moments is None else (1 + confidence) / 2

        def bound(hits: Array, alarms: Array, of: int) -> Array:
            return self.apart(*rates(hits, alarms, of, each))

        found, shares = split_bound(first, second, bound)
        runs, far, seen = len(first) // self.rounds, 0.0, dict[str, float]()
        if moments is not None:
            far = per_upload(self.mechanism, split_bound(*moments, bound)[0])
            seen = {"uploads": found / self.planned(), "moments": far / self.planned()}
        return Audit(
            self.epsilon(found, far), self.stated, getattr(self.mechanism, "delta", 0.0),
            confidence, runs, *shares, self.rounds, self.shortfall(runs, confidence),
            self.moments, seen,
        )  # fmt: skip

    def shortfall(self, runs: int, confidence: float) -> float | None:
        """The smallest lack of noise that so many runs of each dataset show."""
        key = runs, confidence
        if key not in self._shortfalls:
            self._shortfalls[key] = self._smallest(runs, confidence)
        return self._shortfalls[key]

    def _smallest(self, runs: int, confidence: float) -> float | None:
        # Half of the experiments test; a run has one an upload, and two of its moments. The pair
        # of an upload falls short of the largest distance by its tilt.
        planned, law = self.planned(), self.law
        tests = [(self.rounds * runs // 2, (1 - TILT) * planned, planned)]
        if self.moments:
            confidence = (1 + confidence) / 2
            most = planned / per_upload(self.mechanism, 1.0)
            tests.append((2 * runs // 2, most, most))

        def seen(share: float) -> bool:
            rng, noticed = np.random.default_rng(0), np.zeros(_DRAWS, bool)
            for of, far, most in tests:
                alarm = law.tail(far / share / 2)
                hits, alarms = of - rng.binomial(of, alarm, _DRAWS), rng.binomial(of, alarm, _DRAWS)
                noticed |= self.apart(*rates(hits, alarms, of, confidence)) > most
            return bool(noticed.mean() >= _POWER)

        if not seen(_LEAST_NOISE):
            return None
        low, high = _LEAST_NOISE, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if seen(middle) else (low, middle)
        return 1 - low
