"""A run from beginning to end: the loop's arguments, what callbacks are told, what comes of it.

The loop itself is that of `fedepm_fast.kernels._loop`, over compiled stages or over those of
`reference`.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from time import perf_counter
from types import FunctionType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .algorithms import Algorithm
from .callbacks import Callback, RoundInfo
from .kernels import _engine_state as arrays
from .kernels import _loop as loop
from .mechanisms import PrivacyPlan
from .objectives import Problem
from .participation import clients_per_round
from .private_runs import plan_of
from .randomness import CounterRandomness, GivenRandomness, for_stages
from .reference import ModelStages, Reference
from .stopping import (
    BUILT_IN,
    CALLBACK,
    DIVERGED,
    FLAGS,
    MAX_ITERATIONS,
    MAX_ROUNDS,
    PRECISION,
    RISE,
    NoRule,
    StoppingRule,
    _BuiltIn,
)

Array = NDArray[np.float64]

#: A run has diverged when f(x) exceeds this multiple of f at the start. Large noise alone can
#: raise f several thousand times before a run recovers, so the second, lower multiple counts only
#: where the stopping rule has ended the run because f and its gradient rise.
DIVERGENCE_FACTOR = 1e8
RISE_IS_DIVERGENCE_FACTOR = 10.0

#: Rounds whose history is held in one piece, at most, and numbers of it.
_PIECE, _PIECE_NUMBERS = 512, 1 << 22

#: More rounds and iterations than there will be.
NEVER = 2**62


@dataclass
class Outcome:
    """The history and the final state of a run.

    Parameters
    ----------
    x, W, Z, reasons, history, snr_clients, total_time, kept
        As of `Result`.
    at_start : float
        f at the start, before any noise.
    """

    x: Array
    W: Array
    Z: Array
    reasons: tuple[str, ...]
    history: dict[str, Any]
    snr_clients: Array
    total_time: float
    at_start: float
    kept: dict[str, Array]


class Stages(Protocol):
    """The stages of a run, compiled or in NumPy."""

    spoils: bool
    """Whether a round that fails leaves the state spoilt."""
    clients: Any
    """A `kernels.engine.ClientProblem`, or None where it is not looked at."""
    constants: Array
    """See `Algorithm.constants`."""
    work_size: int
    """Numbers in `workspace`."""

    def workspace(self) -> Any:
        """Of the compiled losses, or None."""

    def value_at_start(self, start: Array | None) -> float:
        """f at the mean of the clients' parameters at the start."""

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Compile what a `_Run` calls, or load it from the cache."""

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        """Fill the state of a run whose clients start at `state.W`."""

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        """As of `kernels._loop`."""

    def accuracies(self, points: Array) -> Array | None:
        """Accuracy at each of the `points`, shape (t, n); None for regression."""


def supports(algorithm: Algorithm, problem: Problem) -> bool:
    """Whether there are compiled stages for this algorithm and objective."""
    if algorithm.keeps_models:  # which weighs clients itself
        return problem.objective.has_kernels and problem.data.sample_weight is None
    return algorithm.compiled and problem.has_kernels


def simulate(
    algorithm: Algorithm,
    problem: Problem,
    randomness: CounterRandomness | GivenRandomness,
    stopping: StoppingRule,
    *,
    max_rounds: int,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    start: Array | None = None,
    every_accuracy: bool = True,
    keep_x: bool = True,
    compiled: bool = True,
) -> Outcome:
    """Run an algorithm.

    `algorithm` is resolved for the problem (see `Algorithm.resolve`); arguments are checked by
    `fedepm_fast.run`, which is what most callers want. Without `every_accuracy` the accuracy
    is that of the last round only, and NaN before; without `keep_x` the history has no points;
    without `compiled` NumPy does it, equation by equation.
    """
    stopping = stopping.resolve(problem)
    # Users' callbacks and stopping rules are asked after every round, in Python.
    own_rule = type(stopping) not in BUILT_IN
    stepwise = callback is not None or own_rule or not keep_x
    never = NEVER if max_iterations is None else max_iterations
    limits = (NEVER, NEVER) if stepwise else (max_rounds, never)
    algorithm.check_coverage(problem.n_clients)
    plan = plan_of(algorithm, problem, randomness, max_rounds)
    stages: Stages
    if algorithm.keeps_models:
        last = min(max_rounds, never)  # a round is an iteration
        stages = ModelStages(algorithm, problem, randomness, last, compiled=compiled)
    elif compiled:
        stages = (problem.stages or _Compiled)(algorithm, problem, plan)
    else:
        stages = Reference(algorithm, problem, randomness, plan)
    run = _Run(stages, algorithm, problem, randomness, stopping, *limits, start, stepwise=stepwise)
    if not stepwise:
        return run.outcome(run.to_the_end(max_rounds), every_accuracy, keep_x)
    tau = 0
    names: tuple[str, ...] = ()
    while not names:
        tau, names = run.advance(tau, 1)
        if not run.broken:
            found = run.record(stopping if own_rule else None)
            names = names or found
            if callback is not None and callback(run.info()):
                names = (*names, CALLBACK)
            if not names and tau - 1 >= max_rounds:
                names = (MAX_ROUNDS,)
            if not names and tau * algorithm.local_steps > never:
                names = (MAX_ITERATIONS,)
            if not keep_x and not names:
                run.forget_points()
    return run.outcome(names, every_accuracy, keep_x)


def has_diverged(ratio: float, reasons: tuple[str, ...]) -> bool:
    """Whether f, `ratio` times that of the start, is beyond recovery."""
    return ratio > DIVERGENCE_FACTOR or (RISE in reasons and ratio > RISE_IS_DIVERGENCE_FACTOR)


#: Stages whose machine code this process has had.
_loaded: set[tuple[Any, ...]] = set()


class _Compiled:
    """Compiled stages, and what of a problem is compiled beside them."""

    spoils = True

    def __init__(self, algorithm: Algorithm, problem: Problem, plan: PrivacyPlan | None) -> None:
        from .kernels import engine as kernel  # loads Numba
        from .kernels._jit import JIT_DISABLED

        noise = algorithm.noise_model
        weights = problem.client_weights if problem.is_weighted else None
        stages = algorithm.stages(kernel.objective_of(problem.rows, weights))
        for stage in stages:
            if isinstance(stage, FunctionType) and not JIT_DISABLED:
                raise TypeError(
                    f"stages of {type(algorithm).__name__} must be compiled with "
                    f"fedepm_fast.kernels.engine.stage, got the function {stage.__name__}"
                )
        self._engine = kernel.Engine(
            problem.rows, *stages, noise.law.rows, algorithm.draws_batches, weights
        )
        bounds = (np.empty(0),) * 3 if plan is None else plan[:3]
        d, told = problem.data.client_sizes, algorithm.known(problem)
        self.clients = arrays.ClientProblem(problem.reg, algorithm.steps(d), *bounds, told, d)
        self.constants = np.array(algorithm.constants(problem.n_parameters, plan), np.float64)
        self._rows, self.work_size = problem.rows, problem.rows.work_size
        self.begin, self.rounds = self._engine.begin, self._engine.rounds
        self.value_at_start, self.accuracies = problem.value_at_start, problem.accuracies

    def workspace(self) -> Any:
        from .kernels.losses import workspace

        return workspace(self._rows)

    def compile(self, run: _Run, *, stepwise: bool) -> None:
        done = self._engine.stages, run.settings.noise_factor > 0, run.initial.size > 0
        if done in _loaded and not stepwise:
            return
        _loaded.add(done)
        one = run.state._replace(W=np.ones((1, 1)), Z=np.ones((1, 1)))
        self.begin(run.settings, run.key, run.given, run.initial[:1, :1], one)
        run.rounds(0, 0)
        if stepwise:
            self.accuracies(np.empty((0, len(run.state.x))))


class _Run:
    """One run: its arguments as the stages take them, its state, and its history so far."""

    def __init__(
        self,
        stages: Stages,
        algorithm: Algorithm,
        problem: Problem,
        randomness: CounterRandomness | GivenRandomness,
        stopping: StoppingRule,
        max_rounds: int,
        max_iterations: int,
        start: Array | None,
        *,
        stepwise: bool,
        repeats: bool = False,
    ) -> None:
        self.stages, self.start, self.keeps = stages, start, algorithm.keeps
        #: Whether there will be others in this memory.
        self.repeats = repeats
        self.m, self.n = m, n = problem.n_clients, problem.n_parameters
        self.at_start = stages.value_at_start(start)
        self.settings = _settings(
            algorithm, m, stopping, max_rounds, max_iterations, abs(self.at_start),
            stages.constants,
        )  # fmt: skip
        self.key, self.given, self.initial = for_stages(randomness)
        # A rule of the user's is asked in Python, the loop knows nothing of it.
        conditions = stopping.conditions if type(stopping) in BUILT_IN else ()
        self.order = (*conditions, DIVERGED, MAX_ROUNDS, MAX_ITERATIONS)
        self.state = _state(m, n, len(algorithm.keeps), len(algorithm.shares), stages, repeats)
        self.history = _history(min(_PIECE, max_rounds + 1), n) if repeats else None
        self.pieces: list[arrays.History] = []
        self.lists: dict[str, list[Any]] = {
            name: []
            for name in ("objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
        }
        #: Whether the last round could not be completed.
        self.broken = False
        self.stages.compile(self, stepwise=stepwise)  # the times have none of that
        self.began = perf_counter()
        self._begin()

    def again(self, randomness: CounterRandomness) -> None:
        """Another run in this one's memory: x, W, Z and what is kept are the last one's."""
        self.key, self.given, self.initial = for_stages(randomness)
        self.pieces, self.broken = [], False
        self.began = perf_counter()
        self._begin()

    def to_the_end(self, max_rounds: int) -> tuple[str, ...]:
        """All rounds, without asking anyone: what ended them."""
        tau: int = 0
        names: tuple[str, ...] = ()
        while not names:
            tau, names = self.advance(tau, max(1, min(_PIECE, max_rounds + 1 - tau)))
        return names

    def _begin(self) -> None:
        self.state.W[:] = 0.0 if self.start is None else self.start
        self.stages.begin(self.settings, self.key, self.given, self.initial, self.state)

    def rounds(self, tau: int, last: int) -> tuple[int, int, arrays.History]:
        """Rounds `tau` to ``last - 1``: as of `kernels._loop`, and their history."""
        history = self.history or arrays.new_history(last - tau, self.n)
        reached, flags = self.stages.rounds(
            self.stages.clients, self.settings, self.key, self.given, self.state, history, tau, last
        )
        return reached, flags, history

    def advance(self, tau: int, room: int) -> tuple[int, tuple[str, ...]]:
        """At most `room` rounds from `tau` on: the round after them, and what ended them."""
        last = tau + min(room, max(1, _PIECE_NUMBERS // self.n))
        if len(self.given.counts):
            selected, noise = len(self.given.counts), len(self.given.noise)
            GivenRandomness.check_round("selected", tau, selected)
            if tau > 0 and self.settings.noise_factor:
                GivenRandomness.check_round("unit_noise", tau - 1, noise)
                selected = min(selected, noise + 1)
            last = min(last, max(selected, tau + 1))
        offset = perf_counter() - self.began
        reached, flags, history = self.rounds(tau, last)
        after = reached + 1 if flags else last
        history = arrays.History(*(array[: after - tau] for array in history))
        if self.repeats:
            history = arrays.History(*(array.copy() for array in history))
        history.elapsed[:] += offset
        history.snr[:] = _log10(history.snr)
        if tau == 0:
            history.local_time[:1] = 0.0
        self.pieces.append(history)
        self.broken = bool(flags & (loop.SPOILT | loop.OVERFLOW))
        if self.broken:
            self._back(after, spoilt=bool(flags & loop.SPOILT))
            private = self.settings.private and flags & loop.SPOILT
            return after, (PRECISION if private else DIVERGED,)
        return after, tuple(name for name in self.order if flags & FLAGS[name])

    def _back(self, after: int, *, spoilt: bool) -> None:
        """Go back to the state of the last round that was completed."""
        if spoilt and self.stages.spoils:
            self._begin()
            self.rounds(0, after)
        elif not spoilt:
            points = [piece.x for piece in self.pieces if len(piece.x)]
            if points:
                self.state.x[:] = points[-1][-1]

    def forget_points(self) -> None:
        """Keep of all points that of the last round only."""
        self.pieces[:-1] = [piece._replace(x=piece.x[:0]) for piece in self.pieces[:-1]]

    # For the user's callbacks and rules ---------------------------------------------------

    def record(self, stopping: StoppingRule | None) -> tuple[str, ...]:
        """Add the last round to the lists, and ask a rule of the user's about it."""
        lists, piece = self.lists, self.pieces[-1]
        for name in ("objective", "grad_mean_sq", "elapsed"):
            lists[name].append(float(getattr(piece, name)[-1]))
        snr = float(piece.snr[-1])
        lists["snr"].append(None if math.isnan(snr) else snr)
        accuracy = self.stages.accuracies(piece.x[-1:])
        lists["accuracy"].append(None if accuracy is None else float(accuracy[0]))
        lists["local_time"][-1:] = [float(piece.local_time[-1])] * bool(lists["local_time"])
        lists["local_time"].append(0.0)
        if stopping is None:
            return ()
        f = lists["objective"]
        names = stopping.ask(self.n, self.m, f, lists["grad_mean_sq"])
        diverged = has_diverged(f[-1] / (self.settings.unit or abs(f[0]) or 1.0), names)
        return (DIVERGED,) if diverged else names

    def info(self) -> RoundInfo:
        """What the run looks like after the last round."""
        return RoundInfo.of(self.pieces[-1].x[-1], self.m, self.lists)

    # What comes of it ---------------------------------------------------------------------

    def outcome(self, reasons: tuple[str, ...], every_accuracy: bool, keep_x: bool) -> Outcome:
        """The result of the run."""
        state, total = self.state, perf_counter() - self.began
        pieces = zip(*self.pieces, strict=True)
        history: dict[str, Any] = {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts)
            for name, parts in zip(arrays.History._fields, pieces, strict=True)
        }
        rounds = len(history["objective"])
        # How long the clients of a round worked is known a round later.
        history["local_time"] = np.append(history["local_time"][1:], 0.0)[:rounds]
        first = 0 if every_accuracy else max(rounds - 1, 0)
        accuracy = self.stages.accuracies(history["x"][first:]) if keep_x else None
        if accuracy is not None:
            history["accuracy"] = np.concatenate([np.full(first, np.nan), accuracy])
        if not keep_x:
            del history["x"]
        x, W, Z, kept = state.x, state.W, state.Z, state.kept
        if W.size <= arrays.KEPT and not self.repeats:
            x, W, Z, kept = x.copy(), W.copy(), Z.copy(), kept.copy()
            _kept.state = state
        return Outcome(
            x=x,
            W=W,
            Z=Z,
            reasons=reasons,
            history=history,
            snr_clients=_log10(state.snr),
            total_time=total,
            at_start=self.at_start,
            kept=dict(zip(self.keeps, kept, strict=True)),
        )


#: The memory of this thread's last run, if it was a small one that ended, and of those that
#: are repeated here, by its shapes.
_kept = threading.local()


def _state(m: int, n: int, kept: int, shared: int, stages: Stages, repeats: bool) -> arrays.State:
    """Memory for a run, without contents: that of one before, if it is as large."""
    shapes = (kept, m, n), (shared, n), (stages.work_size,)
    repeated = _kept.__dict__.setdefault("states", {})
    found = repeated.get(shapes) if repeats else _kept.__dict__.pop("state", None)
    if found is None or (found.kept.shape, found.shared.shape, found.work.shape) != shapes:
        found = arrays.new_state(m, n, kept=kept, shared=shared, work=stages.workspace())
    if repeats:
        repeated[shapes] = found
    return found  # type: ignore[no-any-return]


def _history(rounds: int, n: int) -> arrays.History:
    """Memory for the rounds of runs that are repeated in this thread."""
    held = _kept.__dict__.setdefault("histories", {})
    if (rounds, n) not in held:
        held[rounds, n] = arrays.new_history(rounds, n)
    return held[rounds, n]  # type: ignore[no-any-return]


def _log10(ratio: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(ratio)


def _settings(
    algorithm: Algorithm,
    m: int,
    stopping: StoppingRule,
    max_rounds: int,
    max_iterations: int,
    unit: float,
    constants: Array,
) -> arrays.Settings:
    noise = algorithm.noise_model
    rule = stopping if isinstance(stopping, _BuiltIn) and type(stopping) in BUILT_IN else NoRule()
    tolerance, variance_tolerance = rule.tolerances
    # Compiled code is typed by the types of these: floats must be floats.
    return arrays.Settings(
        local_steps=algorithm.local_steps,
        per_round=clients_per_round(algorithm.participation, m),
        coverage_rounds=algorithm.coverage_rounds or 0,
        mu0=float(algorithm.mu0),
        epsilon=float(algorithm.epsilon),
        noise_factor=float(noise.factor),
        standardize=noise.standardize,
        private=noise.private,
        constants=constants,
        rule=rule.number,
        tolerance=float(tolerance),
        variance_tolerance=float(variance_tolerance),
        max_rounds=max_rounds,
        max_iterations=max_iterations,
        unit=float(unit),
        divergence_factor=math.inf if algorithm.safeguarded else DIVERGENCE_FACTOR,
        rise_is_divergence_factor=RISE_IS_DIVERGENCE_FACTOR,
    )
