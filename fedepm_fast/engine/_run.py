"""One run: the loop's arguments, its state, what callbacks are told, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..callbacks import RoundInfo
from ..kernels import _engine_state as arrays
from ..kernels import _loop as loop
from ..objectives import Problem
from ..participation import clients_per_round
from ..randomness import CounterRandomness, GivenRandomness, for_stages
from ..stopping import (
    BUILT_IN,
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
from . import _memory as memory
from . import _where as where
from ._stages import Stages

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


def has_diverged(ratio: float, reasons: tuple[str, ...]) -> bool:
    """Whether f, `ratio` times that of the start, is beyond recovery."""
    return ratio > DIVERGENCE_FACTOR or (RISE in reasons and ratio > RISE_IS_DIVERGENCE_FACTOR)


class Run:
    """A run, and any number of others: its arguments as the stages take them, its state, and its
    history so far.

    `start` is the clients' parameters at the start, zero by default; `stepwise` whether someone is
    asked after every round.
    """

    def __init__(
        self,
        stages: Stages,
        algorithm: Algorithm,
        problem: Problem,
        stopping: StoppingRule,
        max_rounds: int,
        max_iterations: int,
        start: Array | None = None,
        *,
        stepwise: bool = False,
    ) -> None:
        self.stages, self.start, self.keeps, self.stepwise = (
            stages, start, algorithm.keeps, stepwise
        )  # fmt: skip
        self.m, self.n = m, n = problem.n_clients, problem.n_parameters
        self.algorithm, self.problem = algorithm, problem
        try:
            self.at_start = stages.value_at_start(start)
        except Exception as error:
            where.note_start(error, self, start)
            raise
        self.settings = _settings(
            algorithm, m, stopping, max_rounds, max_iterations, abs(self.at_start),
            stages.constants,
        )  # fmt: skip
        # A rule of the user's is asked in Python, the loop knows nothing of it.
        conditions = stopping.conditions if type(stopping) in BUILT_IN else ()
        self.order = (*conditions, DIVERGED, MAX_ROUNDS, MAX_ITERATIONS)
        self._piece = max(1, min(_PIECE, max_rounds + 1, _PIECE_NUMBERS // n))
        self.shapes = m, n, len(algorithm.keeps), len(algorithm.shares), self._piece

    def begin(self, randomness: CounterRandomness | GivenRandomness) -> None:
        """Begin a run, whether there was another before it or not."""
        self.randomness = randomness
        self.key, self.given, self.initial = for_stages(randomness)
        stages = self.stages
        self.memory = memory.take(*self.shapes, stages.work_size, stages.workspace)
        self.state = self.memory.state
        self.pieces: list[arrays.History] = []
        self.lists: dict[str, list[Any]] = {
            name: []
            for name in ("objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
        }
        #: Whether the last round could not be completed.
        self.broken = False
        stages.compile(self, stepwise=self.stepwise)  # the times have none of that
        self.began = perf_counter()
        self.begin_again()

    def to_the_end(self) -> tuple[str, ...]:
        """All rounds, without asking anyone: what ended them."""
        tau: int = 0
        names: tuple[str, ...] = ()
        while not names:
            left = self.settings.max_rounds + 1 - tau
            tau, names = self.advance(tau, max(1, min(self._piece, left)))
        return names

    def begin_again(self) -> None:
        """Go back to the start."""
        self.state.W[:] = 0.0 if self.start is None else self.start
        self.stages.begin(self.settings, self.key, self.given, self.initial, self.state)

    def rounds(self, tau: int, last: int) -> tuple[int, int, arrays.History]:
        """Rounds `tau` to ``last - 1``: as of `kernels._loop`, and their history."""
        history = self.memory.history
        if last - tau > len(history.objective):
            history = arrays.new_history(last - tau, self.n)
        history.elapsed[: last - tau] = math.nan  # of rounds that are not done
        try:
            reached, flags = self.stages.rounds(
                self.stages.clients, self.settings, self.key, self.given, self.state, history, tau,
                last,
            )  # fmt: skip
        except Exception as error:
            done = int(np.count_nonzero(~np.isnan(history.elapsed[: last - tau])))
            points = [*(piece.x for piece in self.pieces[-1:] if tau), history.x[:done]]
            before = next((x[-1] for x in points[::-1] if len(x)), None)
            where.note_round(error, self, tau + done, before)
            raise
        return reached, flags, history

    def advance(self, tau: int, room: int) -> tuple[int, tuple[str, ...]]:
        """At most `room` rounds from `tau` on: the round after them, and what ended them."""
        last = tau + room
        if len(self.given.counts):
            selected, noise = len(self.given.counts), len(self.given.noise)
            GivenRandomness.check_round("selected", tau, selected)
            if tau > 0 and self.settings.noise_factor:
                GivenRandomness.check_round("unit_noise", tau - 1, noise)
                selected = min(selected, noise + 1)
            last = min(last, max(selected, tau + 1))
        offset = perf_counter() - self.began
        reached, flags, found = self.rounds(tau, last)
        after = reached + 1 if flags else last
        history = arrays.History(*(array[: after - tau] for array in found))
        if found is self.memory.history:
            history = arrays.History(*(array.copy() for array in history))
        corrected(history, offset, first=tau == 0)
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
            self.begin_again()
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
        first = 0 if every_accuracy else max(len(history["objective"]) - 1, 0)
        accuracy = self.stages.accuracies(history["x"][first:]) if keep_x else None
        reported(history, accuracy)
        if not keep_x:
            del history["x"]
        x, W, Z, kept = state.x, state.W, state.Z, state.kept
        if memory.is_kept(state):
            x, W, Z, kept = x.copy(), W.copy(), Z.copy(), kept.copy()
        found = Outcome(
            x=x,
            W=W,
            Z=Z,
            reasons=reasons,
            history=history,
            snr_clients=log10(state.snr),
            total_time=total,
            at_start=self.at_start,
            kept=dict(zip(self.keeps, kept, strict=True)),
        )
        memory.give_back(self.memory)
        return found


def corrected(history: arrays.History, before: float, *, first: bool) -> None:
    """Make of what the loop recorded of rounds, the first ones or others, what is reported.

    `before` is the time that the run took before the call.
    """
    history.elapsed[:] += before
    history.snr[:] = log10(history.snr)
    if first:
        history.local_time[:1] = 0.0


def reported(history: dict[str, Any], accuracy: Array | None) -> dict[str, Any]:
    """The history of all rounds, with the accuracy of the last ones, if there is any."""
    # How long the clients of a round worked is known a round later.
    worked = history["local_time"]
    worked[:-1] = worked[1:]
    worked[-1:] = 0.0
    if accuracy is not None:
        history["accuracy"] = np.full(len(worked), np.nan)
        history["accuracy"][len(worked) - len(accuracy) :] = accuracy
    return history


def log10(ratio: Array) -> Array:
    """The logarithm; of zero and of NaN without a warning."""
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
