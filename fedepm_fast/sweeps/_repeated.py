"""Runs of one description on any splits, with what they share done once."""

from __future__ import annotations

from ..algorithms import Algorithm
from ..data import FederatedData
from ..engine import Outcome
from ..objectives import Objective, Problem
from ..randomness import CounterRandomness
from ..result import Result
from ..runner import ENGINES, Limits, check_begun, record, simulate
from ..stopping import ROUNDING


class Repeated:
    """`run` with the same arguments but data, seed and trial: what they share is done once.

    Compiled, without a mechanism, and without what only people read of a result: data, advice,
    versions, work; runs that went wrong do not warn.

    Parameters
    ----------
    algorithm : Algorithm
        Resolved; `supports` says whether it is one for this.
    objective : Objective
    limits : Limits
    """

    def __init__(self, algorithm: Algorithm, objective: Objective, limits: Limits) -> None:
        self.algorithm, self.objective, self.limits = algorithm, objective, limits
        self._described = algorithm.describe()

    @staticmethod
    def supports(algorithm: Algorithm, engine: str) -> bool:
        """Whether such runs are as `run` does them."""
        return engine == ENGINES[0] and algorithm.mechanism is None and not algorithm.keeps_models

    def __call__(self, data: FederatedData, seed: int, trial: int) -> Result:
        problem = Problem(data, self.objective)
        outcome = simulate(
            self.algorithm, problem, CounterRandomness(seed, trial), self.limits,
            every_accuracy=False, compiled=True,
        )  # fmt: skip
        check_begun(outcome, self.algorithm, problem, None)
        return self.result(outcome, seed, trial)

    def result(self, outcome: Outcome, seed: int, trial: int) -> Result:
        """What comes of a run."""
        history, _ = record(outcome, self.limits)
        return Result(
            algorithm=self._described, objective={}, data={}, seed=seed, trial=trial,
            engine=ENGINES[0], x=outcome.x, W=outcome.W, Z=outcome.Z,
            rounds=len(history["objective"]) - 1, reasons=outcome.reasons, history=history,
            snr_clients=outcome.snr_clients, total_time=outcome.total_time,
            start_objective=outcome.at_start, slack=ROUNDING * abs(outcome.at_start),
            kept=outcome.kept,
        )  # fmt: skip
