"""Runs of one algorithm on clients whose rows change in place, in the memory of the first one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..algorithms import Algorithm
from ..kernels._engine_state import ClientProblem
from ..objectives import Problem
from ..randomness import CounterRandomness
from ..stopping import StoppingRule
from ._run import NEVER, Outcome, Run
from ._stages import CompiledStages


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
        self._algorithm, self._problem = algorithm, problem
        stages = CompiledStages(algorithm, problem, None)
        # Of their own, to write to.
        copies: list[Any] = [np.array(given) for given in stages.clients]
        stages.clients = ClientProblem(*copies)
        stages.accuracies = self._accuracies  # type: ignore[method-assign]
        self._clients, self._rows_in_all = stages.clients, problem.n_samples
        limits = max_rounds, NEVER if max_iterations is None else max_iterations
        self._run = Run(stages, algorithm, problem, stopping.resolve(problem), *limits)

    def __call__(self, randomness: CounterRandomness) -> Outcome | None:
        """A run; None where it could not be completed, whose history only `run` has."""
        problem, clients, run = self._problem, self._clients, self._run
        sizes = problem.data.client_sizes
        for held in (problem, problem.data):
            for name in ("reg", "weight_sums"):  # which they remember
                held.__dict__.pop(name, None)
        clients.reg[:], clients.step[:] = problem.reg, self._algorithm.steps(sizes)
        clients.sizes[:] = sizes
        run.begin(randomness)
        names = run.to_the_end()
        return None if run.broken else run.outcome(names, False, True)

    def _accuracies(self, points: Any) -> Any:
        count, given, (work, found) = self._counting
        count(given, points, work, found)
        if found[0, 1]:
            raise ValueError("a row is on the border")
        return 1.0 - found[:, 0] / self._rows_in_all

    @cached_property
    def _counting(self) -> Any:
        """What counts rows on the wrong side, its first argument and memory for one point."""
        from ..kernels.accuracy import counting

        return counting(self._problem.rows)
