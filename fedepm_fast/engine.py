"""The compiled engine: runs of `fedepm_fast.kernels.engine` behind the reference's interface."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .algorithms import COMPILED, STARTS, Algorithm, FedEPM, PrivacyPlan, SFedProx
from .callbacks import Callback, RoundInfo
from .kernels import engine as kernel
from .kernels import losses
from .kernels._jit import JIT_DISABLED
from .kernels.philox import wrapping
from .objectives import Problem
from .participation import clients_per_round
from .privacy.mechanisms import LARGEST, NOISE_SHARE, rounding_share
from .randomness import COVER, INITIAL_NOISE, NOISE, SELECT, CounterRandomness, GivenRandomness
from .reference import (
    DIVERGENCE_FACTOR,
    NO_WEIGHT,
    RISE_IS_DIVERGENCE_FACTOR,
    Outcome,
    has_diverged,
    privacy_plan,
)
from .stopping import (
    CALLBACK,
    DIVERGED,
    GRADIENT,
    MAX_ITERATIONS,
    MAX_ROUNDS,
    PRECISION,
    RISE,
    VARIANCE,
    NoRule,
    ReleasedRule,
    StoppingRule,
    TextRule,
)

Array = NDArray[np.float64]

#: Rounds whose history is held in one piece, at most, and numbers of it.
_PIECE, _PIECE_NUMBERS = 512, 1 << 22

_FLAGS = {
    VARIANCE: kernel.VARIANCE,
    RISE: kernel.RISE,
    GRADIENT: kernel.GRADIENT,
    DIVERGED: kernel.DIVERGED,
    MAX_ROUNDS: kernel.MAX_ROUNDS,
    MAX_ITERATIONS: kernel.MAX_ITERATIONS,
}
_NEVER = 2**62


def supports(algorithm: Algorithm, problem: Problem) -> bool:
    """Whether the engine has kernels for this algorithm and objective."""
    return type(algorithm) in COMPILED and problem.has_kernels


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
) -> Outcome:
    """Run an algorithm, compiled; arguments and result are those of `reference.simulate`.

    Without `every_accuracy` the accuracy is that of the last round only, and NaN before.
    """
    # Users' callbacks and stopping rules are asked after every round, in Python.
    own_rule = type(stopping) not in _RULES
    stepwise = callback is not None or own_rule
    never = _NEVER if max_iterations is None else max_iterations
    limits = (_NEVER, _NEVER) if stepwise else (max_rounds, never)
    plan = privacy_plan(algorithm, problem, randomness, max_rounds)
    run = _Run(algorithm, problem, randomness, stopping, *limits, start, plan, stepwise)
    tau = 0
    names: tuple[str, ...] = ()
    while not names:
        room = 1 if stepwise else max(1, min(_PIECE, max_rounds + 1 - tau))
        tau, names = run.advance(tau, room)
        if stepwise and not run.broken:
            found = run.record(stopping if own_rule else None)
            names = names or found
            if callback is not None and callback(run.info()):
                names = (*names, CALLBACK)
            if not names and tau - 1 >= max_rounds:
                names = (MAX_ROUNDS,)
            if not names and tau * algorithm.local_steps > never:
                names = (MAX_ITERATIONS,)
    return run.outcome(names, every_accuracy)


class _Run:
    """One run: its arguments as the kernels take them, its state, and its history so far."""

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        randomness: CounterRandomness | GivenRandomness,
        stopping: StoppingRule,
        max_rounds: int,
        max_iterations: int,
        start: Array | None,
        plan: PrivacyPlan | None,
        stepwise: bool,
    ) -> None:
        self.problem, self.start = problem, start
        rows = problem.rows
        self.at_start = problem.value_at_start(start)
        m, n = problem.n_clients, problem.n_parameters
        drift = 0.0 if plan is None else plan.drift
        self.settings = _settings(
            algorithm, m, n, stopping, max_rounds, max_iterations, abs(self.at_start), drift
        )
        bounds = (np.empty(0),) * 3 if plan is None else plan[:3]
        self.clients = kernel.ClientProblem(problem.reg, algorithm.steps(problem), *bounds)
        self.key, self.given, self.initial = _randomness(randomness)
        # A rule of the user's is asked in Python, the kernel knows nothing of it.
        conditions = stopping.conditions if type(stopping) in _RULES else ()
        self.order = (*conditions, DIVERGED, MAX_ROUNDS, MAX_ITERATIONS)
        averaging = not isinstance(algorithm, FedEPM)
        weighted = isinstance(algorithm, FedEPM) and algorithm.aggregation != "equal"
        self.rounds = kernel.rounds_kernel(losses.client_kernel(rows), averaging, weighted)
        self.arrays = rows.arrays
        self.state = kernel.new_state(rows)
        self.pieces: list[kernel.History] = []
        self.lists: dict[str, list[Any]] = {
            name: []
            for name in ("objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
        }
        #: Whether the last round could not be completed.
        self.broken = False
        self._compile(stepwise)
        self.began = perf_counter()
        self._prepare()

    def _compile(self, stepwise: bool) -> None:
        """Compile what the run calls, or load it from the cache: its times have none of that."""
        if JIT_DISABLED:
            return
        ones = np.ones(1)
        one = self.state._replace(
            W=np.ones((1, 1)), Z=np.ones((1, 1)), clients=np.zeros(1, np.uint64), scale=ones,
            ones=ones,
        )  # fmt: skip
        with wrapping():
            kernel.prepare(self.settings, self.key, self.given, self.initial, one)
        self._rounds(0, 0)
        if stepwise:
            self.problem.accuracies(np.empty((0, len(self.state.x))))

    def _prepare(self) -> None:
        self.state.W[:] = 0.0 if self.start is None else self.start
        with wrapping():
            kernel.prepare(self.settings, self.key, self.given, self.initial, self.state)

    def _rounds(self, tau: int, last: int) -> tuple[int, int, kernel.History]:
        history = kernel.new_history(last - tau, len(self.state.x))
        with wrapping():
            reached, flags = self.rounds(
                self.arrays, self.clients, self.settings, self.key, self.given, self.state,
                history, tau, last,
            )  # fmt: skip
        return reached, flags, history

    def advance(self, tau: int, room: int) -> tuple[int, tuple[str, ...]]:
        """At most `room` rounds from `tau` on: the round after them, and what ended them."""
        last = tau + min(room, max(1, _PIECE_NUMBERS // len(self.state.x)))
        if len(self.given.counts):
            selected, noise = len(self.given.counts), len(self.given.noise)
            GivenRandomness.check_round("selected", tau, selected)
            if tau > 0 and self.settings.noise_factor:
                GivenRandomness.check_round("unit_noise", tau - 1, noise)
                selected = min(selected, noise + 1)
            last = min(last, max(selected, tau + 1))
        offset = perf_counter() - self.began
        reached, flags, history = self._rounds(tau, last)
        after = reached + 1 if flags else last
        history.elapsed[:] += offset
        history.snr[:] = _log10(history.snr)
        if tau == 0:
            history.local_time[:1] = 0.0
        self.pieces.append(kernel.History(*(array[: after - tau] for array in history)))
        if flags & kernel.SPOILT:
            # The state is spoilt: run again to the last round that was completed.
            self._prepare()
            self._rounds(0, after)
            flags = kernel.DIVERGED
            if self.settings.mechanism != kernel.NO_MECHANISM:
                self.broken = True
                return after, (PRECISION,)
        self.broken = after < last and flags == kernel.DIVERGED
        return after, tuple(name for name in self.order if flags & _FLAGS[name])

    # For the user's callbacks and rules ---------------------------------------------------

    def record(self, stopping: StoppingRule | None) -> tuple[str, ...]:
        """Add the last round to the lists, and ask a rule of the user's about it."""
        lists, piece = self.lists, self.pieces[-1]
        for name in ("objective", "grad_mean_sq", "elapsed"):
            lists[name].append(float(getattr(piece, name)[-1]))
        snr = float(piece.snr[-1])
        lists["snr"].append(None if math.isnan(snr) else snr)
        accuracy = self.problem.accuracies(piece.x[-1:])
        lists["accuracy"].append(None if accuracy is None else float(accuracy[0]))
        lists["local_time"][-1:] = [float(piece.local_time[-1])] * bool(lists["local_time"])
        lists["local_time"].append(0.0)
        if stopping is None:
            return ()
        f, n, m = lists["objective"], self.problem.n_parameters, self.problem.n_clients
        names = stopping.ask(n, m, f, lists["grad_mean_sq"])
        diverged = has_diverged(f[-1] / (self.settings.unit or abs(f[0]) or 1.0), names)
        return (DIVERGED,) if diverged else names

    def info(self) -> RoundInfo:
        """What the run looks like after the last round."""
        return RoundInfo.of(self.pieces[-1].x[-1], self.problem.n_clients, self.lists)

    # What comes of it ---------------------------------------------------------------------

    def outcome(self, reasons: tuple[str, ...], every_accuracy: bool) -> Outcome:
        """The result of the run."""
        state, total = self.state, perf_counter() - self.began
        history: dict[str, Any] = {
            name: np.concatenate([getattr(piece, name) for piece in self.pieces])
            for name in kernel.History._fields
        }
        rounds = len(history["objective"])
        # How long the clients of a round worked is known a round later.
        history["local_time"] = np.append(history["local_time"][1:], 0.0)[:rounds]
        first = 0 if every_accuracy else max(rounds - 1, 0)
        accuracy = self.problem.accuracies(history["x"][first:])
        if accuracy is not None:
            history["accuracy"] = np.concatenate([np.full(first, np.nan), accuracy])
        return Outcome(
            x=state.x,
            W=state.W,
            Z=state.Z,
            reasons=reasons,
            history=history,
            snr_clients=_log10(state.snr),
            total_time=total,
            at_start=self.at_start,
        )


def _log10(ratio: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(ratio)


_MECHANISMS = {"laplace": kernel.LAPLACE, "gaussian": kernel.GAUSSIAN}
_RULES = {ReleasedRule: kernel.RELEASED_RULE, TextRule: kernel.TEXT_RULE, NoRule: kernel.NO_RULE}


def _settings(
    algorithm: Algorithm,
    m: int,
    n: int,
    stopping: StoppingRule,
    max_rounds: int,
    max_iterations: int,
    unit: float,
    drift: float,
) -> kernel.Settings:
    noise = algorithm.noise_model
    lam, eta, start, mechanism = 0.0, 1.0, kernel.OWN, kernel.NO_MECHANISM
    by_variance, clip, rounding = False, 0.0, 0.0
    if isinstance(algorithm, FedEPM):
        (lam, eta), start = algorithm.weights, STARTS.index(str(algorithm.start))
        by_variance = algorithm.aggregation == "inverse_variance"
    if algorithm.mechanism is not None:
        mechanism = _MECHANISMS[algorithm.mechanism.name]
        clip = float(algorithm.mechanism.clip or 0.0)
        rounding = rounding_share(algorithm.mechanism.order, algorithm.local_steps, n)
    prox, inner_steps = 0.0, 1
    if isinstance(algorithm, SFedProx):
        prox, inner_steps = algorithm.prox, algorithm.inner_steps
    tolerance = variance_tolerance = 0.0
    if isinstance(stopping, ReleasedRule):
        tolerance = stopping.tolerance
    elif isinstance(stopping, TextRule):
        tolerance, variance_tolerance = stopping.gradient_tolerance, stopping.variance_tolerance
    # Compiled code is typed by the types of these: floats must be floats.
    return kernel.Settings(
        local_steps=algorithm.local_steps,
        per_round=clients_per_round(algorithm.participation, m),
        coverage_rounds=algorithm.coverage_rounds or 0,
        mu0=algorithm.mu0,
        c=algorithm.c,
        alpha=algorithm.alpha,
        epsilon=algorithm.epsilon,
        noise_factor=noise.factor,
        standardize=noise.standardize,
        lam=lam,
        eta=eta,
        start=start,
        by_variance=by_variance,
        no_weight=NO_WEIGHT,
        mechanism=mechanism,
        clip=clip,
        rounding=rounding,
        noise_share=NOISE_SHARE,
        drift=drift,
        largest=LARGEST,
        prox=prox,
        inner_steps=inner_steps,
        rule=_RULES.get(type(stopping), kernel.NO_RULE),
        tolerance=float(tolerance),
        variance_tolerance=float(variance_tolerance),
        max_rounds=max_rounds,
        max_iterations=max_iterations,
        unit=unit,
        divergence_factor=DIVERGENCE_FACTOR,
        rise_is_divergence_factor=RISE_IS_DIVERGENCE_FACTOR,
    )


def _randomness(
    randomness: CounterRandomness | GivenRandomness,
) -> tuple[kernel.Key, kernel.Given, Array]:
    purposes = [np.uint64(p) for p in (SELECT, COVER, INITIAL_NOISE, NOISE)]
    if isinstance(randomness, CounterRandomness):
        key = np.uint64(randomness.seed), np.uint64(randomness.trial)
        return kernel.Key(*key, *purposes), _NOTHING_GIVEN, _NOTHING_GIVEN.noise[:, :, 0]
    counts = np.array([len(chosen) for chosen in randomness.selected], dtype=np.int64)
    selected = np.zeros((len(counts), max(counts, default=0)), dtype=np.int64)
    for row, chosen in zip(selected, randomness.selected, strict=True):
        row[: len(chosen)] = chosen
    given = kernel.Given(counts, selected, randomness.per_round)
    return kernel.Key(*[np.uint64(0)] * 2, *purposes), given, randomness.unit_noise_init


_NOTHING_GIVEN = kernel.Given(
    np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0, 1))
)
