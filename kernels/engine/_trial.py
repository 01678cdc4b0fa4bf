"""A whole run in one call: its rows are dealt, clients begin, all rounds, rows on the wrong side.

Python around the parts takes the GIL, for which threads wait for each other, and is slow beside
kernels that drive it from the caches.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .._aligned import aligned
from .._engine_state import ClientProblem, Given, History, Key, Settings, State
from .._jit import brief_kernel, device
from .._loop import OVERFLOW, SPOILT
from .._parts import fill
from .._pointers import address_of, call_at
from .._views import view_of
from ..accuracy import Counted, counting_at
from ..losses._narrow import narrow_table
from ..losses._packed import pack
from ..losses._repacking import Repacking
from . import LOOP, Engine, _initial, _run_loop
from ._clock import now
from ._upload import DRAWN, draw_address


class _Parts(NamedTuple):
    """Addresses of what a trial calls, and what no stage has."""

    deal: int
    dealt: int
    loop: int
    draw: int
    tally: int
    arrays: int
    counted: int
    select: int
    aggregate: int
    evaluate: int
    local_round: int
    upload: int
    clients: NDArray[np.uint64]
    """Of the noise of the first uploads, with their factors and deviations."""
    factors: NDArray[np.float64]
    deviations: NDArray[np.float64]
    seconds: NDArray[np.float64]
    """From the beginning of the run to that of the rounds, and to the end of it, shape (2,)."""


@intrinsic
def _call(typingctx: Any, address: Any, words: Any) -> Any:
    """Call a function of words, which returns nothing."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = cgutils.unpack_tuple(builder, args[1])
        call_at(context, builder, args[0], types.none(*words), given)
        return context.get_dummy_value()

    return types.none(address, words), codegen


@intrinsic
def _draw(
    typingctx: Any, address: Any, key0: Any, key1: Any, purpose: Any, tau: Any, clients: Any,
    factors: Any, deviations: Any, out: Any,
) -> Any:  # fmt: skip
    """Rows of noise of the law at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call_at(context, builder, args[0], DRAWN, args[1:])

    return types.none(address, *DRAWN.args), codegen


@intrinsic
def _rounds(
    typingctx: Any, address: Any, select: Any, aggregate: Any, evaluate: Any, local_round: Any,
    upload: Any, rows: Any, problem: Any, settings: Any, key: Any, given: Any, state: Any,
    history: Any, tau: Any, last: Any,
) -> Any:  # fmt: skip
    """The loop at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call_at(context, builder, args[0], LOOP, args[1:])

    return LOOP.return_type(address, *LOOP.args), codegen


@device
def _begin(parts, settings, key, state):
    """As `Engine.begin`, from zero."""
    fill(state.x, 0.0)
    fill(state.totals, 0.0)
    fill(state.first, 0.0)
    fill(state.snr, np.nan)
    fill(state.noise_scale, np.nan)
    state.seconds[0] = 0.0
    state.n_selected[0] = state.n_uploaded[0] = 0
    for k in range(2):
        fill(state.recent[k], 0.0)
    for k in range(state.shared.shape[0]):
        fill(state.shared[k], 0.0)
    for i in range(state.W.shape[0]):
        fill(state.W[i], 0.0)
        for k in range(state.kept.shape[0]):
            fill(state.kept[k, i], 0.0)
    if settings.noise_factor == 0.0:
        for i in range(state.W.shape[0]):
            fill(state.Z[i], 0.0)
        return
    _draw(
        parts.draw, key.seed, key.trial, key.initial, np.uint64(0), parts.clients, parts.factors,
        parts.deviations, state.Z,
    )  # fmt: skip
    for i in range(state.W.shape[0]):
        for j in range(state.x.size):
            state.Z[i, j] += state.W[i, j]


@brief_kernel
def _trial(parts, rows, problem, settings, key, given, state, history, deal):
    if deal:
        _call(parts.deal, (parts.dealt,))
    began = now()
    _begin(parts, settings, key, state)
    parts.seconds[0] = now() - began
    tau, flags = _rounds(
        parts.loop, parts.select, parts.aggregate, parts.evaluate, parts.local_round, parts.upload,
        rows, problem, settings, key, given, state, history, 0, settings.max_rounds + 1,
    )  # fmt: skip
    parts.seconds[1] = now() - began
    if not flags & (SPOILT | OVERFLOW):
        _call(parts.tally, (parts.arrays, parts.counted))
    return tau, flags


_PARTS = view_of(_Parts._make([*[0] * 12, np.empty(0, np.uint64), *[np.empty(0)] * 3]))


@functools.cache
def _compiled() -> Any:
    arguments = LOOP.args[5:-2]  # without stages and rounds
    return _trial.get_compile_result(
        LOOP.return_type(_PARTS, *arguments, types.boolean)
    ).entry_point


def _loop_address() -> int:
    return address_of(_run_loop.get_compile_result(LOOP))


class Trial:
    """Runs on rows that `dealing` deals, from zero, with the same arguments but the key.

    Parameters
    ----------
    engine : Engine
        Of these rows.
    dealing : Repacking
    problem, settings, given, state
        As of `Engine.rounds`. The clients' numbers in `problem` are those of the next trial.
    key : Key
        Of any run.
    history : History
        With room for all rounds.

    Attributes
    ----------
    wrong : ndarray of int64, shape (1, 2)
        Of the last run's final point, see `accuracy.wrong_and_ties`.
    seconds : ndarray of float64, shape (2,)
        From the beginning of the last run to that of its rounds, and to its end.
    """

    def __init__(
        self, engine: Engine, dealing: Repacking, problem: ClientProblem, settings: Settings,
        key: Key, given: Given, state: State, history: History,
    ) -> None:  # fmt: skip
        rows = dealing.rows
        work = aligned((rows.work_size,), rows.dtype)
        counted = Counted(state.x[None], work, np.empty((1, 2), np.int64))
        self.wrong, self.seconds = counted.out, np.empty(2)
        arguments = counted, problem, settings, key, given, state, history
        words = [view_of(value).packed(value) for value in arguments]
        arrays = view_of(rows.arrays, "rows").packed(rows.arrays)
        noise = _initial(len(problem.reg), 1.0 / settings.mu0, settings.standardize)
        draw = draw_address("laplace") if settings.noise_factor else 0  # else compile none
        parts = _Parts._make((
            dealing.address, dealing.words.ctypes.data, _loop_address(), draw,
            counting_at(rows, counted), arrays.ctypes.data, words[0].ctypes.data,
            *engine.pointers, *noise, self.seconds,
        ))  # fmt: skip
        own = _PARTS.packed(parts)
        of_rows = engine.words_of(settings)
        addresses = own.ctypes.data, of_rows[1], *(each.ctypes.data for each in words[1:])
        self._function = _compiled()
        self._addresses, self._key = addresses, words[3]
        self._held = words, arrays, parts, own, of_rows, arguments, dealing, engine

    def __call__(self, seed: int, trial: int, deal: bool) -> tuple[int, int]:
        """The run with this key, on rows that are dealt before it or are there: as of `_loop`."""
        self._key[0], self._key[1] = seed, trial
        return self._function(*self._addresses, deal)  # type: ignore[no-any-return]


def warm() -> None:
    """Compile what a sweep's runs of codes and counts need, as Adult's columns are."""
    table: Any = narrow_table(np.ones((1, 1)))
    rows: Any = pack(table, [0], [1])
    counting_at(rows, Counted(np.empty((1, 1)), np.empty(1), np.empty((1, 2), np.int64)))
    _ = Repacking(rows, table, np.zeros(1), 0).address
    _compiled()
