"""The loop of a run, written once: as it stands for the reference, compiled for the engine.

A run is five *stages* and this loop over rounds. Every stage is a function

    ok = stage(rows, problem, settings, key, given, state, tau)

of the same arguments, the named tuples of `_state`, that changes `state` and returns
whether all went well:

=============  ==============================================================================
`select`       the clients of round tau, ``state.selected[:state.n_selected[0]]``
`aggregate`    the server's point ``state.x``
`evaluate`     gradients of those clients at x in ``state.G``; f(x) and the squared mean gradient
               in ``state.totals[:2]``, the time that those clients took in ``state.seconds[0]``
`local_round`  the selected clients' parameters ``state.W`` after their local steps, and ``mu``
`upload`       their uploads ``state.Z``, with noise
=============  ==============================================================================

Nothing here needs Numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

#: Conditions that end a run, as bits.
VARIANCE, RISE, GRADIENT, DIVERGED, MAX_ROUNDS, MAX_ITERATIONS = 1, 2, 4, 8, 16, 32
#: The clients' work of the round before failed, by what is not finite or by what is public.
SPOILT = 64
#: The objective or the gradient is not finite at the new point, which is no round's.
OVERFLOW = 128
#: The server expects nothing of further rounds.
CONVERGED = 256
#: The objective is low enough.
TARGET = 512

#: Stopping rules.
NO_RULE, RELEASED_RULE, TEXT_RULE, CONVERGED_RULE, TARGET_RULE = 0, 1, 2, 3, 4
FEDADMM_RULE = 5


def make_loop(
    inlined: Callable[..., Any],
    now: Callable[[], float],
    observe: Callable[..., None],
    call: Callable[..., bool],
) -> tuple[Any, Any]:
    """The stopping rules and the loop, with its helpers wrapped by `inlined`.

    Parameters
    ----------
    inlined : callable
        Makes a helper callable from compiled code; the identity for Python.
    now : callable
        A clock, in seconds.
    observe : callable
        ``observe(state, history, row)`` records the point and the signal-to-noise ratio.
    call : callable
        ``call(stage, *arguments)`` is what the stage returns of them.

    Returns
    -------
    stops, rounds : callables
        `rounds` as it is below, for the caller to compile.
    """

    @inlined
    def variance(recent: Any) -> Any:
        """Of four numbers, with one degree of freedom less."""
        mean = (((recent[0] + recent[1]) + recent[2]) + recent[3]) / 4.0
        total = 0.0
        for k in range(4):
            apart = recent[k] - mean
            total += apart * apart
        return total / 3.0

    @inlined
    def stops(
        rule: Any, tolerance: Any, variance_tolerance: Any, m: Any, n: Any, tau: Any, recent: Any,
        first: Any,
    ) -> Any:  # fmt: skip
        """The conditions of a rule that hold after round tau, as bits.

        `recent`, shape (2, 4), is f and the squared mean gradient of the last four rounds, and
        `first`, shape (2,), the size of the one and the other of round 0.
        """
        flags = 0
        f, err = recent[0, 3], recent[1, 3]
        if rule == RELEASED_RULE:
            bound = tolerance * n
            if tau >= 3:
                if variance(recent[0]) < bound / (1.0 + f):
                    flags |= VARIANCE
                rises = True
                for k in range(3):
                    rises &= f > recent[0, k] and err > recent[1, k]
                if rises:
                    flags |= RISE
            if err < bound:
                flags |= GRADIENT
        elif rule == TEXT_RULE:
            if m * m * err < tolerance:
                flags |= GRADIENT
            settled = n * variance_tolerance / (1.0 + abs(f))
            if tau >= 3 and variance(recent[0]) <= settled:
                flags |= VARIANCE
        elif rule == TARGET_RULE and f / m <= tolerance:
            flags |= TARGET
        elif rule == FEDADMM_RULE:
            bound = min(tolerance, variance_tolerance * (first[1] / (m * m)))
            if err / (m * m) < bound or err == 0.0:
                flags |= GRADIENT
        return flags

    def rounds(
        select: Any, aggregate: Any, evaluate: Any, local_round: Any, upload: Any,
        rows: Any, problem: Any, settings: Any, key: Any, given: Any, state: Any,
        history: Any, tau: Any, last: Any,
    ) -> Any:  # fmt: skip
        """Rounds `tau` to ``last - 1``: the first at which a condition holds, and it as bits.

        With ``tau = 0`` a run begins, otherwise it goes on after round ``tau - 1``; `last` and 0
        if nothing ended it. `history` has room for these rounds.
        """
        m, n = state.Z.shape
        began = now()
        for row in range(last - tau):
            if tau > 0:
                before = now()
                ok = call(local_round, rows, problem, settings, key, given, state, tau - 1)
                ok = ok and call(upload, rows, problem, settings, key, given, state, tau - 1)
                if not ok:
                    return tau - 1, SPOILT
                history.local_time[row] = state.seconds[0] + (now() - before)
            state.n_uploaded[0] = state.n_selected[0]
            for r in range(state.n_selected[0]):
                state.uploaded[r] = state.selected[r]
            call(select, rows, problem, settings, key, given, state, tau)
            call(aggregate, rows, problem, settings, key, given, state, tau)
            call(evaluate, rows, problem, settings, key, given, state, tau)
            f, err = state.totals[0], state.totals[1]
            # f depends on the records, and in a private run nothing does that ends it.
            if not (settings.private or (abs(f) < math.inf and err < math.inf)):
                return tau - 1, OVERFLOW
            if tau == 0:
                state.first[0], state.first[1] = abs(f), err
            recent = state.recent
            for k in range(3):
                recent[0, k], recent[1, k] = recent[0, k + 1], recent[1, k + 1]
            recent[0, 3], recent[1, 3] = f, err
            observe(state, history, row)
            history.objective[row] = f
            history.grad_mean_sq[row] = err
            history.elapsed[row] = now() - began
            flags = stops(
                settings.rule, settings.tolerance, settings.variance_tolerance, m, n, tau, recent,
                state.first,
            )  # fmt: skip
            unit = settings.unit
            if unit == 0.0:
                unit = state.first[0]
            if unit == 0.0:
                unit = 1.0
            ratio = f / unit
            if not settings.private and (
                ratio > settings.divergence_factor
                or (flags & RISE and ratio > settings.rise_is_divergence_factor)
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

    return stops, rounds


def _observe(state: Any, history: Any, row: int) -> None:
    if history.x.size:
        history.x[row] = state.x
    ratios = state.snr[~np.isnan(state.snr)]
    history.snr[row] = ratios.min() if len(ratios) else math.nan


def call(stage: Any, *arguments: Any) -> Any:
    return stage(*arguments)


#: For Python: what the reference runs, and what the rules' own methods ask.
stops, rounds = make_loop(lambda function: function, perf_counter, _observe, call)
