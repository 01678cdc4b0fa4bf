"""Whole runs, compiled: the loop of `kernels._loop`, and the stages that all algorithms share.

Machine code of a stage is made once, whatever it is combined with: the loop calls stages through
pointers, so that a further loss or algorithm compiles only what is its own. An algorithm brings
`aggregate` and `local_round`, compiled by `stage`; the others are `select` and one each of
`evaluate_kernel`'s and `upload_kernel`'s. `Engine` puts them together::

    engine = Engine(rows, aggregate, local_round, law="laplace", private=False)
    engine.begin(...)
    tau, flags = engine.rounds(problem, settings, key, given, state, history, tau, last)

Random numbers are those of `sampling` and `noise`, under the key (seed, trial) of the run. Results
are a pure function of these arguments, apart from the times.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import typeof
from numba.core import types
from numba.np.unsafe.ndarray import to_fixed_tuple

from .. import losses
from .._engine_state import (
    ClientProblem,
    Given,
    History,
    Key,
    Settings,
    State,
    clear,
    new_history,
    new_state,
)
from .._jit import JIT_DISABLED, device, kernel, stage
from .._loop import (
    DIVERGED,
    GRADIENT,
    MAX_ITERATIONS,
    MAX_ROUNDS,
    NO_RULE,
    OVERFLOW,
    RELEASED_RULE,
    RISE,
    SPOILT,
    TEXT_RULE,
    VARIANCE,
    make_loop,
)
from .._simd import absolute, fma, horizontal_sum, lanes, load_partial, splat
from ..losses._clients import _add
from ..noise import gaussian_rows, laplace_rows
from ..philox import wrapping
from ..sampling import select_into
from ._clock import now

__all__ = [
    "DIVERGED",
    "GRADIENT",
    "MAX_ITERATIONS",
    "MAX_ROUNDS",
    "NO_RULE",
    "OVERFLOW",
    "RELEASED_RULE",
    "RISE",
    "SPOILT",
    "TEXT_RULE",
    "VARIANCE",
    "ClientProblem",
    "Engine",
    "Given",
    "History",
    "Key",
    "Settings",
    "State",
    "new_history",
    "new_state",
    "reader",
    "stage",
]

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
def copy_into(out, values):
    """``out[:] = values``, whose check of the shapes takes seconds to compile."""
    for j in range(out.size):
        out[j] = values[j]


def reader(fields: Any) -> Any:
    """Makes of ``settings.constants`` the named tuple of this class, within compiled code."""
    if JIT_DISABLED:
        return lambda values: fields(*values)
    size = len(fields._fields)

    @device
    def read(values):
        return fields(*to_fixed_tuple(values, size))

    return read


@device
def _observe(state, history, row):
    copy_into(history.x[row], state.x)
    smallest = np.nan
    for ratio in state.snr:
        # NaN, which compares as false, stands for a client that did not take part yet.
        smallest = smallest if smallest <= ratio or ratio != ratio else ratio
    history.snr[row] = smallest


_run_loop = kernel(make_loop(device, now, _observe)[1])
_STAGES = 5


# Stages that all algorithms share -----------------------------------------------------------


@stage
def select(rows, problem, settings, key, given, state, tau):
    if given.counts.size:
        state.n_selected[0] = given.counts[tau]
        for r in range(given.counts[tau]):
            state.selected[r] = given.selected[tau, r]
        return True
    state.n_selected[0] = settings.per_round
    select_into(
        key.seed, key.trial, key.select, key.cover, np.uint64(tau), settings.per_round,
        settings.coverage_rounds, state.selected, state.words, state.marks,
    )  # fmt: skip
    return True


@functools.cache
def evaluate_kernel(client: Any) -> Any:
    """The stage that evaluates all clients, given one client's objective to compile into it."""

    @stage
    def evaluate(rows, problem, settings, key, given, state, tau):
        """All clients at x, those selected first, whose time counts as theirs."""
        m, n = state.Z.shape
        state.mean[:] = 0.0
        state.marks[:] = False
        count = state.n_selected[0]
        for i in state.selected[:count]:
            state.marks[i] = True
        last = count
        for i in range(m):
            if not state.marks[i]:
                state.selected[last] = i
                last += 1
        began = now()
        for k in range(m):
            if k == count:
                # f and the mean gradient are the experimenter's measures, no client's work.
                state.seconds[0] = now() - began
            i = state.selected[k]
            g = state.G[i]
            state.values[i] = client(rows, i, state.x, problem.reg[i], True, g, state.work)
            _add(state.mean, g)
        if count == m:
            state.seconds[0] = now() - began
        f, err = 0.0, 0.0
        for i in range(m):
            f += state.values[i]
        for j in range(n):
            err += (state.mean[j] / m) ** 2
        state.totals[0], state.totals[1] = f, err
        return True

    return evaluate


_ROWS = {"laplace": laplace_rows, "gaussian": gaussian_rows}


@functools.cache
def upload_kernel(fill: Any, private: bool) -> Any:
    """The stage ``z_i = w_i + noise_i``, with noise that `fill` draws, as of `noise`."""

    @stage
    def upload(rows, problem, settings, key, given, state, tau):
        n = state.x.size
        count = state.n_selected[0]
        scale, block = state.scale, state.noise.shape[0]
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
                fill(
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

    return upload


# Averaging, the other servers' --------------------------------------------------------------


@stage
def average_selected(rows, problem, settings, key, given, state, tau):
    """The mean of the newly selected clients' last uploads."""
    x, count = state.x, state.n_selected[0]
    x[:] = 0.0
    for r in range(count):
        _add(x, state.Z[state.selected[r]])
    for j in range(x.size):
        x[j] /= count
    return True


# Put together -------------------------------------------------------------------------------


class Engine:
    """The stages of a run on some rows, put together.

    Parameters
    ----------
    rows : losses.ClientRows
        Of float64.
    aggregate, local_round : compiled functions
        The algorithm's, see `stage` and `_loop`.
    law : {"laplace", "gaussian"} or compiled function
        Of the noise: its rows, as of `noise.laplace_rows`.
    private : bool
        Whether its scale is that of a mechanism.
    """

    def __init__(
        self, rows: losses.ClientRows, aggregate: Any, local_round: Any, law: Any, private: bool
    ) -> None:
        self._rows = rows.arrays
        evaluate, upload = (
            evaluate_kernel(losses.objective_device(rows)),
            upload_kernel(_ROWS.get(law, law), private),
        )
        self._stages = (select, aggregate, evaluate, local_round, upload)

    def begin(self, settings: Settings, key: Key, given: Given, initial: Any, state: State) -> None:
        """Fill the state of a run whose clients start at `state.W`.

        `initial` is the unit noise of the first uploads, shape (m, n), or empty to draw it.
        """
        m = len(state.W)
        clear(state)
        factor = 1.0 / settings.mu0
        if settings.noise_factor == 0.0:
            state.Z[:] = state.W
        elif initial.size:
            state.Z[:] = state.W + initial * factor
        else:
            scale, ones = np.full(m, factor), np.ones(m)
            factors, deviations = (ones, scale) if settings.standardize else (scale, scale[:0])
            clients = np.arange(m, dtype=np.uint64)
            with wrapping():
                laplace_rows(
                    key.seed, key.trial, key.initial, np.uint64(0), clients, factors, deviations,
                    state.Z,
                )  # fmt: skip
            np.add(state.Z, state.W, out=state.Z)

    def rounds(
        self, problem: ClientProblem, settings: Settings, key: Key, given: Given, state: State,
        history: History, tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        """As of `_loop.make_loop`."""
        arguments = problem, settings, key, given, state, history
        loop: Any = _run_loop
        stages: tuple[Any, ...] = self._stages
        if not JIT_DISABLED:
            kinds = tuple(_kind(value) for group in (self._rows, *arguments) for value in group)
            loop, signature = _loop_for(kinds, self._rows, arguments)
            stages = tuple(_pointer(stage, kinds, signature) for stage in stages)
        with wrapping():
            return loop(*stages, self._rows, *arguments, tau, last)  # type: ignore[no-any-return]


class _Pointer(types.WrapperAddressProtocol):
    """A compiled stage as the loop takes it: Numba would look for it at every call."""

    def __init__(self, address: int, signature: Any) -> None:
        self._address, self._signature = address, signature

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        return self._signature


_loops: dict[Any, tuple[Any, Any]] = {}
_pointers: dict[Any, _Pointer] = {}


def _kind(value: Any) -> Any:
    """What the type of compiled code depends on, found faster than by Numba."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, value.flags.writeable
    return type(value)


def _loop_for(kinds: Any, rows: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """The loop compiled for arguments of these kinds, and the signature of its stages."""
    if kinds not in _loops:
        *before, history = map(typeof, arguments)
        one = types.boolean(typeof(rows), *before, types.int64)
        signature = types.UniTuple(types.int64, 2)(
            *[types.FunctionType(one)] * _STAGES, typeof(rows), *before, history, types.int64,
            types.int64,
        )  # fmt: skip
        _loops[kinds] = _run_loop.get_compile_result(signature).entry_point, one
    return _loops[kinds]


def _pointer(stage: Any, kinds: Any, signature: Any) -> _Pointer:
    if (stage, kinds) not in _pointers:
        compiled = stage.get_compile_result(signature)
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)
        _pointers[stage, kinds] = _Pointer(address, signature)
    return _pointers[stage, kinds]
