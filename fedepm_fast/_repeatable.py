"""Runs of one algorithm on clients whose rows change in place, in the memory of the first one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from .algorithms import Algorithm
from .engine import NEVER, Outcome, _Compiled, _Run
from .kernels._engine_state import ClientProblem
from .objectives import Problem
from .randomness import CounterRandomness
from .stopping import StoppingRule


class Repeatable:
    """As `engine.simulate`, compiled, from zero and without a mechanism.

    Of a problem the algorithm's steps and the regulariser may depend on the clients' sizes, and
    nothing else may. The labels are of two classes. A row on the border between them raises
    ValueError, for it takes the rows as they were given to say what it counts as.

    Parameters
    ----------
    algorithm : Algorithm
        Resolved.
    problem : Problem
        Whose data change in place.
    stopping : StoppingRule
        A built-in one.
    max_rounds, max_iterations : int
    """

    def __init__(
        self, algorithm: Algorithm, problem: Problem, stopping: StoppingRule,
        max_rounds: int, max_iterations: int | None,
    ) -> None:  # fmt: skip
        self._algorithm, self._problem, self._max_rounds = algorithm, problem, max_rounds
        stages = _Compiled(algorithm, problem, None)
        # Of their own, to write to.
        copies: list[Any] = [np.array(given) for given in stages.clients]
        stages.clients = ClientProblem(*copies)
        stages.accuracies = self._accuracies  # type: ignore[method-assign]
        self._stages, self._stopping = stages, stopping.resolve(problem)
        self._limits = max_rounds, NEVER if max_iterations is None else max_iterations
        self._run: Any = None
        self._rows_in_all = problem.n_samples

    def __call__(self, randomness: CounterRandomness) -> Outcome | None:
        """A run; None where it could not be completed, whose history only `run` has."""
        problem, clients = self._problem, self._stages.clients
        sizes = problem.data.client_sizes
        for held in (problem, problem.data):
            for name in ("reg", "weight_sums"):  # which they remember
                held.__dict__.pop(name, None)
        clients.reg[:], clients.step[:] = problem.reg, self._algorithm.steps(sizes)
        clients.sizes[:] = sizes
        if self._run is None:
            self._run = _Run(
                self._stages, self._algorithm, problem, randomness, self._stopping,
                *self._limits, None, stepwise=False, repeats=True,
            )  # fmt: skip
        else:
            self._run.again(randomness)
        names = self._run.to_the_end(self._max_rounds)
        return None if self._run.broken else self._run.outcome(names, False, True)

    def _accuracies(self, points: Any) -> Any:
        count, given, (work, found) = self._counting
        count(given, points, work, found)
        if found[0, 1]:
            raise ValueError("a row is on the border")
        return 1.0 - found[:, 0] / self._rows_in_all

    @cached_property
    def _counting(self) -> Any:
        """What counts rows on the wrong side, its first argument and memory for one point."""
        from .kernels.accuracy import counting

        return counting(self._problem.rows)
