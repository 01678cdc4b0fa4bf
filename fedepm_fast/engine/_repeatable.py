"""Runs of one algorithm on rows that are dealt anew for each, in the same memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..kernels import _engine_state as arrays
from ..kernels import _loop as loop
from ..objectives import Problem
from ..randomness import CounterRandomness, for_stages
from ..stopping import FLAGS, StoppingRule
from ._run import NEVER, Outcome, Run, corrected, log10, reported
from ._stages import CompiledStages

Array = NDArray[np.float64]


class Ended(NamedTuple):
    """A run that has ended, as the compiled code left it."""

    x: Array
    """The points of its rounds."""
    measures: Array
    """The rest of its history, a row for each."""
    snr: Array
    flags: int
    wrong: int
    """Rows on the wrong side of the last point."""
    before: float
    """Seconds before the first round."""
    total: float


class Repeatable:
    """As `engine.simulate`, compiled, from zero and without a mechanism.

    Of a problem the algorithm's steps and the regulariser may depend on the clients' sizes, and
    nothing else may. The labels are of two classes.

    Parameters
    ----------
    algorithm : Algorithm
        Resolved.
    problem : Problem
        On rows of `dealing`, and sizes that are written to.
    sizes : ndarray of int64, shape (m,)
        These sizes.
    dealing : kernels.losses._repacking.Repacking
    stopping : StoppingRule
        A built-in one.
    max_rounds, max_iterations : int
    memory : dict
        Of the thread's runs of other algorithms, too.
    """

    def __init__(
        self, algorithm: Algorithm, problem: Problem, sizes: NDArray[np.int64], dealing: Any,
        stopping: StoppingRule, max_rounds: int, max_iterations: int | None, memory: dict[Any, Any],
    ) -> None:  # fmt: skip
        from ..kernels.engine._trial import Trial

        self._algorithm, self._problem, self._sizes = algorithm, problem, sizes
        stages = CompiledStages(algorithm, problem, None)
        copies: list[Any] = [np.array(given) for given in stages.clients]  # to write to
        self._clients = arrays.ClientProblem(*copies)._replace(sizes=dealing.sizes)
        limits = max_rounds, NEVER if max_iterations is None else max_iterations
        self._run = run = Run(stages, algorithm, problem, stopping.resolve(problem), *limits)
        key, given, _ = for_stages(CounterRandomness())
        shapes = (*run.shapes[:-1], max_rounds + 1, stages.work_size)
        if shapes not in memory:
            memory[shapes] = _memory(*shapes[:-1], stages.workspace())
        state, self._points, self._measures = memory[shapes]
        history = arrays.History(self._points, *self._measures)
        self._snr, self._unknown = state.snr, np.broadcast_to(np.nan, (run.m, run.n))
        self._trial = Trial(
            stages.engine, dealing, self._clients, run.settings, key, given, state, history
        )

    def given(self, sizes: NDArray[np.int64]) -> tuple[Array, Array]:
        """What clients of these sizes are given: weights of the regulariser, and steps."""
        self._sizes[:] = sizes
        problem = self._problem
        for held in (problem, problem.data):
            for name in ("reg", "weight_sums"):  # which they remember
                held.__dict__.pop(name, None)
        return problem.reg, self._algorithm.steps(self._sizes)

    def __call__(self, seed: int, trial: int, given: tuple[Array, Array], deal: bool) -> Any:
        """A run on rows that are dealt before it, or are there: `Ended`.

        None where `run` must do it: if it could not be completed, whose history only `run` has, or
        if a row is on the border between the classes, for it takes the rows as they were given to
        say what it counts as.
        """
        self._clients.reg[:], self._clients.step[:] = given
        tau, flags = self._trial(seed, trial, deal)
        wrong, ties = self._trial.wrong[0].tolist()
        if flags & (loop.SPOILT | loop.OVERFLOW) or ties:
            return None
        return Ended(
            self._points[: tau + 1].copy(), self._measures[:, : tau + 1].copy(), self._snr.copy(),
            flags, wrong, *self._trial.seconds.tolist(),
        )  # fmt: skip

    def outcome(self, ended: Ended) -> Outcome:
        """The outcome of a run: of the clients' parameters only the shape."""
        run, points = self._run, ended.x
        history = arrays.History(points, *ended.measures)
        corrected(history, ended.before, first=True)
        accuracy = np.array([1.0 - ended.wrong / self._problem.n_samples])
        return Outcome(
            x=points[-1], W=self._unknown, Z=self._unknown,
            reasons=tuple(name for name in run.order if ended.flags & FLAGS[name]),
            history=reported(history._asdict(), accuracy), snr_clients=log10(ended.snr),
            total_time=ended.total, at_start=run.at_start, kept={},
        )  # fmt: skip


def _memory(
    m: int, n: int, kept: int, shared: int, rounds: int, work: Any
) -> tuple[arrays.State, Array, Array]:
    """A state, and points and measures of a history."""
    state = arrays.new_state(m, n, kept=kept, shared=shared, work=work)
    measures = len(arrays.History._fields) - 1
    return state, np.empty((rounds, n)), np.empty((measures, rounds))
