"""What the values of f over its rounds say of a run: whether it diverged, gave back or swings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import stopping

Array = NDArray[np.float64]


class Judged:
    """A run by its `history` of f, beside f at the start."""

    algorithm: dict[str, Any]
    rounds: int
    reasons: tuple[str, ...]
    history: dict[str, Array]
    start_objective: float
    slack: float

    @property
    def diverged(self) -> bool:
        """Whether the run was stopped because it diverged, or ended above its start by over 1 %.

        A start that was given may be near an optimum, where noise leads away from it: by 5 % of
        f at zero a run may end above such a start (of f there, with `run_callables`). A run of no
        rounds has not diverged.
        """
        if stopping.DIVERGED in self.reasons or stopping.PRECISION in self.reasons:
            return True
        return self._rose(stopping.RISE_OF_DIVERGED * abs(self._start))

    @property
    def ended_above_start(self) -> bool:
        """Whether the run ended above its start, if by less than makes it `diverged`.

        From a start that was given, by more than 5 % of f at zero.
        """
        return self._rose(0.0)

    @property
    def ended_above_best(self) -> bool:
        """Whether the run gave back more than half of what f had fallen from its start.

        What is less than 10 % of f at the start does not count.
        """
        (start, best), end = self.start_and_best, float(self.history["objective"][-1])
        return self.rounds > 0 and not end - best <= self._far(start, best)

    @property
    def swings(self) -> bool:
        """Whether f was so far above its best, up to then, in a fifth of the second half of its
        rounds; of a run without noise, of 20 rounds or more."""
        if self.rounds < 20 or self.algorithm["noise"] != "none":
            return False
        f = self.history["objective"]
        with np.errstate(invalid="ignore"):  # inf - inf, which is not far
            far = f - np.minimum.accumulate(f) > self._far(*self.start_and_best)
        return bool(far[self.rounds // 2 :].mean() >= 0.2)

    def _far(self, start: float, best: float) -> float:
        """How far above its best f is far."""
        return max(stopping.GIVEN_BACK * (start - best), stopping.FAR * abs(start), self.slack)

    @property
    def best_round(self) -> int:
        """The round of the smallest f(x)."""
        f = self.history["objective"]
        least = int(np.argmin(f))  # of NaN, if there is any
        return least if f[least] == f[least] else int(np.argmin(np.nan_to_num(f, nan=np.inf)))

    @property
    def start_and_best(self) -> tuple[float, float]:
        """f at the start, and the smallest f of start and rounds."""
        start = self._start
        return start, min(start, float(self.history["objective"][self.best_round]))

    @property
    def _start(self) -> float:
        start = self.start_objective
        return float(self.history["objective"][0]) if math.isnan(start) else start

    def _rose(self, allowed: float) -> bool:
        """Whether f ended above the start by more than is allowed and than `slack`."""
        excess = float(self.history["objective"][-1]) - self._start
        return self.rounds > 0 and not excess <= max(allowed, self.slack)
