"""Whole runs in one compiled call: selection, gradients, local steps, noise, server, stopping.

`rounds_kernel(client, averaging)` gives the function that advances a run, for a client's
objective as `losses.client_kernel` gives it::

    tau, flags = rounds(rows, problem, settings, key, given, state, history, tau, last)

With ``tau = 0`` it begins a run, otherwise it goes on after round tau - 1; it returns the first
round at which a stopping condition holds, and the conditions as bits, or `last` and 0. All arrays
are given to it. The arguments are the named tuples of `_engine_state`; `history` has room for
the rounds from `tau` to `last`, and `prepare` fills the state of a run that begins.

The server's steps and the local steps are those of `ens` and `local_steps`; random numbers those
of `sampling` and `noise`, under the key (seed, trial) of the run. Results are a pure function
of these arguments, apart from the times.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import losses
from ._clients import _add
from ._clock import now
from ._engine_state import (
    ClientProblem,
    Given,
    History,
    Key,
    Settings,
    State,
    new_history,
    new_state,
)
from ._jit import device, kernel, warms
from ._simd import absolute, fma, horizontal_sum, lanes, load_partial, splat
from .ens import LARGEST_C, ens_serial
from .local_steps import fedepm_local_steps_raw, gradient_steps_kernel
from .noise import gaussian_rows, laplace_rows
from .philox import word, wrapping
from .sampling import select_into

__all__ = [
    "ClientProblem",
    "Given",
    "History",
    "Key",
    "Settings",
    "State",
    "new_history",
    "new_state",
    "prepare",
    "rounds_kernel",
]

#: Conditions that end a run, as bits.
VARIANCE, RISE, GRADIENT, DIVERGED, MAX_ROUNDS, MAX_ITERATIONS = 1, 2, 4, 8, 16, 32
#: The clients' work of the round before was not finite; the state is spoilt.
SPOILT = 64

#: Stopping rules.
NO_RULE, RELEASED_RULE, TEXT_RULE = 0, 1, 2

#: Where FedEPM's local steps of a round start.
OWN, RELEASED, BROADCAST = 0, 1, 2

#: Private mechanisms.
NO_MECHANISM, LAPLACE, GAUSSIAN = 0, 1, 2

_LARGEST_C = LARGEST_C[8]


# Pieces -----------------------------------------------------------------------------------


@device
def _norm_one(row):
    n, width = row.size, lanes(row)
    total = splat(row, 0.0)
    for j in range(0, n, width):
        total = total + absolute(load_partial(row, j, n - j, 0.0))
    return horizontal_sum(total)


@device
def _norm_squared(row):
    n, width = row.size, lanes(row)
    total = splat(row, 0.0)
    for j in range(0, n, width):
        v = load_partial(row, j, n - j, 0.0)
        total = fma(v, v, total)
    return horizontal_sum(total)


@device
def _variance(recent):
    """Of four numbers, with one degree of freedom less."""
    mean = (((recent[0] + recent[1]) + recent[2]) + recent[3]) / 4.0
    total = 0.0
    for k in range(4):
        total += (recent[k] - mean) ** 2
    return total / 3.0


@device
def _stops(settings, m, n, tau, recent):
    """The conditions of the stopping rule that hold after round tau, as bits."""
    flags = 0
    f, err = recent[0, 3], recent[1, 3]
    if settings.rule == RELEASED_RULE:
        bound = settings.tolerance * n
        if tau >= 3:
            if _variance(recent[0]) < bound / (1.0 + f):
                flags |= VARIANCE
            rises = True
            for k in range(3):
                rises &= f > recent[0, k] and err > recent[1, k]
            if rises:
                flags |= RISE
        if err < bound:
            flags |= GRADIENT
    elif settings.rule == TEXT_RULE:
        if m * m * err < settings.tolerance:
            flags |= GRADIENT
        settled = n * settings.variance_tolerance / (1.0 + abs(f))
        if tau >= 3 and _variance(recent[0]) <= settled:
            flags |= VARIANCE
    return flags


@device
def _select(settings, key, given, state, tau):
    if given.counts.size:
        state.n_selected[0] = given.counts[tau]
        for r in range(given.counts[tau]):
            state.selected[r] = given.selected[tau, r]
        return
    state.n_selected[0] = settings.per_round
    select_into(
        key.seed, key.trial, key.select, key.cover, np.uint64(tau), settings.per_round,
        settings.coverage_rounds, state.selected, state.words, state.marks,
    )  # fmt: skip


@device
def _upload(problem, settings, key, given, state, tau):
    """``z_i = w_i + noise_i`` of the selected clients; whether all of it is finite."""
    n = state.x.size
    count = state.n_selected[0]
    scale, block = state.scale, state.noise.shape[0]
    private = settings.mechanism != NO_MECHANISM
    noisy = private or settings.noise_factor > 0.0
    drawn = noisy and given.counts.size == 0
    for r in range(count):
        i = state.selected[r]
        state.clients[r] = np.uint64(i)
        scale[r] = 0.0
        if private:
            scale[r] = state.sensitivity[i] * problem.multiplier[i]
        elif noisy:
            bound = settings.noise_factor * _norm_one(state.G[i])
            scale[r] = bound / (settings.epsilon * state.mu[i])
        state.noise_scale[i] = scale[r]
        if not scale[r] < np.inf:
            return False
    for first in range(0, count, block):
        last = min(first + block, count)
        E = state.noise[: last - first]
        if drawn:
            factors, deviations = scale[first:last], scale[:0]
            if settings.standardize:
                factors, deviations = state.ones[first:last], scale[first:last]
            clients = state.clients[first:last]
            if settings.mechanism == GAUSSIAN:
                gaussian_rows(
                    key.seed, key.trial, key.noise, np.uint64(tau), clients, factors, deviations, E
                )
            else:
                laplace_rows(
                    key.seed, key.trial, key.noise, np.uint64(tau), clients, factors, deviations, E
                )
        for r in range(first, last):
            i = state.selected[r]
            e, w, z = E[r - first], state.W[i], state.Z[i]
            if not drawn:
                for j in range(n):
                    e[j] = scale[r] * given.noise[tau, i, j] if given.counts.size else 0.0
            for j in range(n):
                z[j] = w[j] + e[j]
            noise = math.sqrt(_norm_squared(e))
            state.snr[i] = math.sqrt(_norm_squared(w)) / noise if noise > 0.0 else np.inf
            if not abs(_norm_one(z)) < np.inf:
                return False
    return True


@device
def _smallest_ratio(state):
    """The smallest signal-to-noise ratio of the clients that took part; NaN if none did."""
    smallest = np.nan
    for ratio in state.snr:
        # NaN, which compares as false, stands for a client that did not.
        smallest = smallest if smallest <= ratio or ratio != ratio else ratio
    return smallest


@device
def _weigh(scale, settings, weights):
    """Weights of the uploads, the largest 1: their sum and the smallest."""
    least = np.inf
    for value in scale:
        if value == value:
            least = min(least, value)
    total, smallest = 0.0, np.inf
    for i in range(scale.size):
        weights[i] = 1.0
        if least < np.inf:
            precision = 1.0 if scale[i] == scale[i] else 0.0
            if settings.by_variance:
                precision = (least / scale[i]) ** 2
            weights[i] = precision if precision > settings.no_weight else settings.no_weight
        total += weights[i]
        smallest = min(smallest, weights[i])
    return total, smallest


@device
def _fix_penalties(problem, settings, state, S, first_iteration):
    """Steps with the public factor ``1 + c*|w_i - x|^2`` of the start of the round, and how
    far one record can move each upload: see `privacy.upload_sensitivity`.

    Whether the noise hides rounding too: see `privacy.mechanisms.hides_rounding`."""
    n, safe = state.x.size, True
    for i in S:
        w, gap, far, reach = state.W[i], 0.0, 0.0, 0.0
        for j in range(n):
            apart = w[j] - state.x[j]
            gap += apart**2
            far, reach = max(far, abs(state.x[j])), max(reach, abs(apart))
        state.gamma[i] = problem.step[i] * (1.0 + settings.c * gap)
        s, furthest = 0.0, reach
        gradient = settings.clip + problem.pull[i] * far
        for k in range(settings.local_steps):
            growth = math.pow(settings.alpha, float(first_iteration + k + 1))
            nu = state.gamma[i] * (settings.mu0 * growth)
            s = (nu * s + problem.change[i]) / (settings.eta + nu)
            reach = (nu * reach + gradient) / (settings.eta + nu)
            # Written so that NaN stays.
            furthest = furthest if reach <= furthest else reach
        state.sensitivity[i] = s
        size = far + furthest
        noise = s * problem.multiplier[i]
        safe &= size * (1.0 + settings.clip) < settings.largest and noise < settings.largest
        safe &= min(s, noise) > 1.0 / settings.largest
        safe &= settings.drift * far <= problem.change[i]
        safe &= s >= settings.rounding * size and noise >= settings.noise_share * size
    return safe


@kernel
def prepare(settings, key, given, initial, state):
    """Fill the state of a run whose clients start at `state.W`.

    `initial` is the unit noise of the first uploads, shape (m, n), or empty to draw it.
    """
    m, n = state.W.shape
    state.x[:] = state.W[0]
    state.snr[:] = np.nan
    state.noise_scale[:] = np.nan
    state.recent[:] = 0.0
    state.times[:] = 0.0
    state.n_selected[0] = 0
    factor = 1.0 / settings.mu0
    if settings.noise_factor == 0.0:
        state.Z[:] = state.W
        return
    if initial.size:
        for i in range(m):
            for j in range(n):
                state.Z[i, j] = state.W[i, j] + initial[i, j] * factor
        return
    state.scale[:] = factor
    for i in range(m):
        state.clients[i] = np.uint64(i)
    factors, deviations = state.scale, state.scale[:0]
    if settings.standardize:
        factors, deviations = state.ones, state.scale
    laplace_rows(
        key.seed, key.trial, key.initial, np.uint64(0), state.clients, factors, deviations, state.Z
    )
    for i in range(m):
        _add(state.Z[i], state.W[i])


# Rounds -----------------------------------------------------------------------------------


@functools.cache
def rounds_kernel(client: Any, averaging: bool, weighted: bool = False) -> Any:
    """The compiled rounds of FedEPM, or of the algorithms that average uploads.

    Parameters
    ----------
    client : compiled function
        From `losses.client_kernel`.
    averaging : bool
        SFedAvg and SFedProx; FedEPM otherwise.
    weighted : bool
        Whether ENS weighs uploads, as `Settings.by_variance` says.

    Returns
    -------
    compiled function
        See the module.
    """
    if averaging:
        gradient_steps = gradient_steps_kernel(client)

        @device
        def aggregate(settings, state):
            x, count = state.x, state.n_selected[0]
            x[:] = 0.0
            for r in range(count):
                _add(x, state.Z[state.selected[r]])
            for j in range(x.size):
                x[j] /= count

        @device
        def local_steps(rows, problem, settings, state, tau):
            S, k0 = state.selected[: state.n_selected[0]], settings.local_steps
            for i in S:
                state.gamma[i] = problem.step[i] / math.sqrt(2.0 * k0 + tau)
            return gradient_steps(
                rows, problem.reg, S, state.x, state.G, state.gamma, settings.prox, settings.mu0,
                settings.c, settings.alpha, k0, settings.inner_steps, tau * k0, state.work,
                state.W, state.mu,
            )  # fmt: skip

    else:

        @device
        def aggregate(settings, state):
            Z, c = state.Z, min(settings.lam / settings.eta, _LARGEST_C)
            if weighted:
                p = state.weights
                total, smallest = _weigh(state.noise_scale, settings, p)
                ens_serial(Z, c, p, total, smallest, False, state.x, state.ens_memory)
            else:
                ens_serial(Z, c, None, float(Z.shape[0]), 1.0, False, state.x, state.ens_memory)

        @device
        def local_steps(rows, problem, settings, state, tau):
            S, k0 = state.selected[: state.n_selected[0]], settings.local_steps
            step, c = problem.step, settings.c
            if settings.start != OWN:
                for i in S:
                    state.W[i, :] = state.Z[i] if settings.start == RELEASED else state.x
            if settings.mechanism != NO_MECHANISM:
                if not _fix_penalties(problem, settings, state, S, tau * k0):
                    return False
                step, c = state.gamma, 0.0
            return fedepm_local_steps_raw(
                state.W, state.x, state.G, step, S, settings.lam, settings.eta, settings.mu0, c,
                settings.alpha, k0, tau * k0, state.W, state.mu,
            )  # fmt: skip

    @device
    def evaluate(rows, problem, state):
        """All clients at x, those selected first: the time that these took."""
        state.mean[:] = 0.0
        state.marks[:] = False
        began = now()
        for i in state.selected[: state.n_selected[0]]:
            g = state.G[i]
            state.values[i] = client(rows, i, state.x, problem.reg[i], True, g, state.work)
            _add(state.mean, g)
            state.marks[i] = True
        seconds = now() - began
        # f and the mean gradient are the experimenter's measures, no client's work.
        spare = state.noise[0]
        for i in range(state.marks.size):
            if not state.marks[i]:
                state.values[i] = client(rows, i, state.x, problem.reg[i], True, spare, state.work)
                _add(state.mean, spare)
        return seconds

    @kernel
    def rounds(rows, problem, settings, key, given, state, history, tau, last):
        m, n = state.Z.shape
        began = now()
        for row in range(last - tau):
            if tau > 0:
                before = now()
                finite = local_steps(rows, problem, settings, state, tau - 1)
                finite = finite and _upload(problem, settings, key, given, state, tau - 1)
                if not finite:
                    return tau - 1, SPOILT
                history.local_time[row] = state.times[0] + (now() - before)
            _select(settings, key, given, state, tau)
            state.previous[:] = state.x
            aggregate(settings, state)
            state.times[0] = evaluate(rows, problem, state)
            f, err = 0.0, 0.0
            for i in range(m):
                f += state.values[i]
            for j in range(n):
                err += (state.mean[j] / m) ** 2
            # f depends on the records, and with a mechanism nothing does that ends a run.
            public = settings.mechanism != NO_MECHANISM
            if not (public or (abs(f) < np.inf and err < np.inf)):
                state.x[:] = state.previous
                return tau - 1, DIVERGED
            if tau == 0:
                state.times[1] = abs(f)
            recent = state.recent
            for k in range(3):
                recent[0, k], recent[1, k] = recent[0, k + 1], recent[1, k + 1]
            recent[0, 3], recent[1, 3] = f, err
            history.x[row] = state.x
            history.objective[row] = f
            history.grad_mean_sq[row] = err
            history.snr[row] = _smallest_ratio(state)
            history.elapsed[row] = now() - began
            flags = _stops(settings, m, n, tau, recent)
            unit = settings.unit
            if unit == 0.0:
                unit = state.times[1]
            if unit == 0.0:
                unit = 1.0
            growth = f / unit
            if not public and (
                growth > settings.divergence_factor
                or (flags & RISE and growth > settings.rise_is_divergence_factor)
            ):
                flags = DIVERGED
            if flags == 0 and tau >= settings.max_rounds:
                flags = MAX_ROUNDS
            if flags == 0 and (tau + 1) * settings.local_steps > settings.max_iterations:
                flags = MAX_ITERATIONS
            if flags:
                return tau, flags
            tau += 1
        return tau, 0

    return rounds


@warms
def _warm() -> None:
    rows = losses.pack(np.ones((1, 2)), [0], [1])
    client = losses.client_kernel(rows)
    given = Given(np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0, 0)))
    zero = word("seed", 0)
    key = Key(zero, zero, *(word("purpose", k) for k in range(1, 5)))
    settings = Settings(
        local_steps=1, per_round=1, coverage_rounds=0, mu0=1.0, c=0.0, alpha=1.0, epsilon=1.0,
        noise_factor=1.0, standardize=False, lam=1.0, eta=1.0, start=OWN,
        by_variance=False, no_weight=1.0, mechanism=NO_MECHANISM, clip=0.0, rounding=0.0,
        noise_share=0.0, drift=0.0, largest=0.0, prox=0.0, inner_steps=1,
        rule=NO_RULE, tolerance=0.0, variance_tolerance=0.0, max_rounds=0, max_iterations=1,
        unit=1.0, divergence_factor=1.0, rise_is_divergence_factor=1.0,
    )  # fmt: skip
    problem = ClientProblem(np.zeros(1), *(np.ones(1) for _ in range(4)))
    for averaging in (False, True):
        state = new_state(rows)
        state.W[:] = 0.0
        with wrapping():
            prepare(settings, key, given, np.empty((0, 0)), state)
            rounds_kernel(client, averaging)(
                rows.arrays, problem, settings, key, given, state, new_history(1, 2), 0, 1
            )
