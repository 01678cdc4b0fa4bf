"""The stages of a run as the engine calls them, and the compiled ones."""

from __future__ import annotations

from types import FunctionType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..kernels import _engine_state as arrays
from ..mechanisms import PrivacyPlan
from ..objectives import Problem

Array = NDArray[np.float64]


class Stages(Protocol):
    """The stages of a run, compiled or in NumPy."""

    spoils: bool
    """Whether a round that fails leaves the state spoilt."""
    clients: Any
    """A `kernels.engine.ClientProblem`, or None where it is not looked at."""
    constants: Array
    """See `Algorithm.constants`."""
    plan: PrivacyPlan | None
    """Of a private run."""
    work_size: int
    """Numbers in `workspace`."""

    def workspace(self) -> Any:
        """Of the compiled losses, or None."""

    def value_at_start(self, start: Array | None) -> float:
        """f at the mean of the clients' parameters at the start."""

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Compile what a `_run.Run` calls, or load it from the cache."""

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        """Fill the state of a run whose clients start at `state.W`."""

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        """As of `kernels._loop`."""

    def accuracies(self, points: Array) -> Array | None:
        """Accuracy at each of the `points`, shape (t, n); None for regression."""


#: Stages whose machine code this process has had.
_loaded: set[tuple[Any, ...]] = set()


class CompiledStages:
    """Compiled stages, and what of a problem is compiled beside them."""

    spoils = True

    def __init__(self, algorithm: Algorithm, problem: Problem, plan: PrivacyPlan | None) -> None:
        from ..kernels import engine as kernel  # loads Numba
        from ..kernels._jit import JIT_DISABLED

        self.plan, noise = plan, algorithm.noise_model
        weights = problem.client_weights if problem.is_weighted else None
        stages = algorithm.stages(kernel.objective_of(problem.rows, weights))
        for stage in stages:
            if isinstance(stage, FunctionType) and not JIT_DISABLED:
                raise TypeError(
                    f"stages of {type(algorithm).__name__} must be compiled with "
                    f"fedepm_fast.kernels.engine.stage, got the function {stage.__name__}"
                )
        self.engine = kernel.Engine(
            problem.rows, *stages, noise.law.rows, algorithm.draws_batches, weights
        )
        bounds = (np.empty(0),) * 3 if plan is None else plan[:3]
        d, told = problem.data.client_sizes, algorithm.known(problem)
        self.clients = arrays.ClientProblem(problem.reg, algorithm.steps(d), *bounds, told, d)
        self.constants = np.array(algorithm.constants(problem.n_parameters, plan), np.float64)
        self._rows, self.work_size = problem.rows, problem.rows.work_size
        self.begin, self.rounds = self.engine.begin, self.engine.rounds
        self.value_at_start, self.accuracies = problem.value_at_start, problem.accuracies

    def workspace(self) -> Any:
        from ..kernels.losses import workspace

        return workspace(self._rows)

    def compile(self, run: Any, *, stepwise: bool) -> None:
        done = self.engine.stages, run.settings.noise_factor > 0, run.initial.size > 0
        if done in _loaded and not stepwise:
            return
        _loaded.add(done)
        one = run.state._replace(W=np.ones((1, 1)), Z=np.ones((1, 1)))
        self.begin(run.settings, run.key, run.given, run.initial[:1, :1], one)
        run.rounds(0, 0)
        if stepwise:
            self.accuracies(np.empty((0, len(run.state.x))))
