"""Whole runs, compiled: the loop of `kernels._loop`, and the stages that all algorithms share.

Machine code of a stage is made once, whatever it is combined with: the loop calls stages through
pointers, and they a client's objective (`losses._pointed`) and the law of the noise (`_upload`), so
that a further one of these or of algorithms compiles only what is its own. Their arguments are
passed by address (`_views`). An algorithm brings `aggregate` and `local_round`, compiled by
`stage`; the others are `select` and what `evaluate_kernel` and `upload_of` give. `Engine` puts them
together::

    engine = Engine(rows, aggregate, local_round, law="laplace")
    engine.begin(...)
    tau, flags = engine.rounds(problem, settings, key, given, state, history, tau, last)

Random numbers are those of `sampling` and `noise`, under the key (seed, trial) of the run. Results
are a pure function of these arguments, apart from the times.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .. import losses
from .._engine_state import (
    KEPT,
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
from .._jit import JIT_DISABLED, brief_kernel, brief_stage, device, stage, warms
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
    call,
    make_loop,
)
from .._parts import as_named, fill, part
from .._pointers import address_of, call_at
from .._views import view_of
from ..losses._clients import _add
from ..losses._pointed import (
    ROWS,
    Rows,
    batches_of,
    objective,
    objective_of,
    pointed,
)
from ..noise import laplace_rows
from ..philox import wrapping
from ..sampling import select_into
from ._averages import average_selected
from ._clock import now
from ._upload import draw_address, upload_of

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
    "average_selected",
    "batches_of",
    "new_history",
    "new_state",
    "objective_of",
    "reader",
    "stage",
]

# Pieces -----------------------------------------------------------------------------------


@device
def copy_into(out, values):
    """``out[:] = values``, whose check of the shapes takes seconds to compile."""
    for j in range(out.size):
        out[j] = values[j]


def reader(fields: Any) -> Any:
    """Makes of ``settings.constants`` the named tuple of this class, within compiled code."""

    @device
    def read(values):
        return as_named(values, fields)

    return read


@device
def _observe(state, history, row):
    copy_into(history.x[row], state.x)
    smallest = np.nan
    for ratio in state.snr:
        # NaN, which compares as false, stands for a client that did not take part yet.
        smallest = smallest if smallest <= ratio or ratio != ratio else ratio
    history.snr[row] = smallest


#: What stages and loop are compiled for, whatever the loss, the rows and the algorithm.
_VIEWS = tuple(
    view_of(example)
    for example in (
        ClientProblem._make([*[np.empty(0)] * 5, np.empty((0, 0)), np.empty(0, np.int64)]),
        Settings(0, 0, 0, 0.0, 0.0, 0.0, False, False, np.empty(0), 0, 0.0, 0.0, 0, 0, *[0.0] * 3),
        Key(*[np.uint64(0)] * 7),
        Given(np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0, 0))),
        new_state(1, 1),
    )
)
_HISTORY = view_of(new_history(0, 1))
_GIVEN = *_VIEWS, _HISTORY
_STAGE = types.boolean(ROWS, *_VIEWS, types.int64)


@intrinsic
def _call(
    typingctx: Any, stage: Any, rows: Any, problem: Any, settings: Any, key: Any, given: Any,
    state: Any, tau: Any,
) -> Any:  # fmt: skip
    """Whether the stage at an address succeeds."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call_at(context, builder, args[0], _STAGE, args[1:])

    return types.boolean(types.int64, *_STAGE.args), codegen


_run_loop = brief_kernel(make_loop(device, now, _observe, call if JIT_DISABLED else _call)[1])
_STAGES = 5


# Stages that all algorithms share -----------------------------------------------------------


@brief_stage
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
    """The stage that evaluates all clients, given one client's objective, see `objective_of`."""

    @brief_stage
    def evaluate(rows, problem, settings, key, given, state, tau):
        """All clients at x, those selected first, whose time counts as theirs."""
        m, n = state.Z.shape
        fill(state.mean, 0.0)
        fill(state.marks, False)
        count = state.n_selected[0]
        for i in part(state.selected, 0, count):
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
            slope = state.mean[j] / m
            err += slope * slope
        state.totals[0], state.totals[1] = f, err
        return True

    return evaluate


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
    batches : bool
        Whether `local_round` calls what `batches_of` gives.
    weights : ndarray of shape (m,), optional
        The clients' in f, which their `reg` has in it; 1 by default.
    """

    def __init__(
        self,
        rows: losses.ClientRows,
        aggregate: Any,
        local_round: Any,
        law: Any,
        batches: bool = False,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self._rows = rows
        self._pointed = () if JIT_DISABLED else pointed(rows, batches=batches, weights=weights)
        self._words: dict[int, tuple[Any, Any, int]] = {}
        evaluate = evaluate_kernel(objective_of(rows, weights))
        self._law = law
        self.stages = (select, aggregate, evaluate, local_round, upload_of(law))

    @staticmethod
    def begin(settings: Settings, key: Key, given: Given, initial: Any, state: State) -> None:
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
            made = _initial if m <= KEPT else _initial.__wrapped__
            clients, factors, deviations = made(m, factor, settings.standardize)
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
        arguments = problem, settings, key, given, state
        if JIT_DISABLED:
            with wrapping():
                return _run_loop(  # type: ignore[no-any-return]
                    *self.stages, self._rows.arrays, *arguments, history, tau, last
                )
        rows = self.words_of(settings)
        addresses = [
            self._address(k, view, value)
            for k, (view, value) in enumerate(zip(_GIVEN, (*arguments, history), strict=True))
        ]
        return _loop()(*self.pointers, rows[1], *addresses, tau, last)  # type: ignore[no-any-return]

    @functools.cached_property
    def pointers(self) -> tuple[int, ...]:
        """Addresses of the compiled stages."""
        return tuple(map(_pointer, self.stages))

    def words_of(self, settings: Settings) -> tuple[Any, int]:
        """The words of the rows for runs of these settings, and their address."""
        draws = settings.private or settings.noise_factor > 0.0
        return self._drawing if draws else self._plain

    @functools.cached_property
    def _plain(self) -> tuple[Any, int]:
        """Those of runs without noise."""
        return self._pointed[0], self._pointed[0].ctypes.data

    @functools.cached_property
    def _drawing(self) -> tuple[Any, int]:
        """Those of runs that draw noise: others compile no law."""
        rows = Rows(*self._pointed[0].tolist())._replace(draw=draw_address(self._law))
        words = ROWS.packed(rows)
        return words, words.ctypes.data

    def _address(self, k: int, view: Any, value: Any) -> int:
        """Of the words of the k-th argument: those of the call before, if it was the same."""
        known = self._words.get(k)
        if known is None or known[0] is not value:
            known = self._words[k] = _shared(view, value)
        return known[2]


#: What this thread's last run was given, by view, and its words: the next may have it as well.
_last = threading.local()


def _shared(view: Any, value: Any) -> tuple[Any, Any, int]:
    """A value, its words and their address; what small runs have in common is packed once."""
    if not _is_kept(value):
        return _packed(view, value)
    known = _last.__dict__.get(view)
    if known is None or known[0] is not value:
        known = _last.__dict__[view] = _packed(view, value)
    return known  # type: ignore[no-any-return]


def _packed(view: Any, value: Any) -> tuple[Any, Any, int]:
    words = view.packed(value)
    return value, words, words.ctypes.data


def _is_kept(value: Any) -> bool:
    """Whether a thread's next run may be given the same arrays."""
    if isinstance(value, State):
        return value.W.size <= KEPT
    return isinstance(value, Given) or (isinstance(value, History) and value.x.size <= KEPT)


@functools.lru_cache(16)
def _initial(m: int, factor: float, standardize: bool) -> tuple[Any, Any, Any]:
    """The clients, and factors and deviations of the noise of their first uploads."""
    scale, ones = np.full(m, factor), np.ones(m)
    return np.arange(m, dtype=np.uint64), *((ones, scale) if standardize else (scale, scale[:0]))


@functools.cache
def _pointer(stage: Any) -> int:
    """The address of a compiled stage."""
    return address_of(stage.get_compile_result(_STAGE))


#: Of the loop, which takes pointers to stages and addresses of the rest.
LOOP = types.UniTuple(types.int64, 2)(
    *[types.int64] * _STAGES, ROWS, *_VIEWS, _HISTORY, types.int64, types.int64
)


@functools.cache
def _loop() -> Any:
    """The loop, to be called from Python."""
    return _run_loop.get_compile_result(LOOP).entry_point


@warms
def _warm(dtypes: Any) -> None:
    """The loop, the stages that are no algorithm's own, and what the losses' pointers point to."""
    if JIT_DISABLED:
        return
    from . import _trial  # which needs this module

    _loop()
    _trial.warm()
    for compiled in (select, average_selected, evaluate_kernel(objective), upload_of("laplace")):
        _pointer(compiled)
    for rows in losses.examples(np.float64):
        pointed(rows)
