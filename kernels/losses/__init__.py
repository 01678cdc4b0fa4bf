"""Clients' objectives and gradients, for linear models.

::

    f_i(w) = (1 / d_i) * sum_t loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2

with the losses of `fedepm_fast.losses` by their names, or others: `scalar_loss` makes them of two
functions of numbers, and `lanes.lane_loss` of a step on vectors.
`pack` arranges the rows of all clients once, for one loss; `values`, `gradients` and
`values_and_gradients` evaluate them, at one point or at a point for each client.
`client_kernel` gives the compiled function of one client for use in compiled code.

Results do not depend on the number of threads or on which clients are asked for together.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._aligned import aligned
from .._boundary import (
    ArgumentTypeError,
    ArgumentValueError,
    as_floats,
    as_integers,
    cast,
    check_finite,
    output,
    thread_count,
)
from .._jit import threads as in_threads
from .._jit import warms
from .._share import shared
from ._client_rows import (
    ClientRows,
    DenseRows,
    NarrowRows,
    PackedRows,
    SparseRows,
)
from ._clients import client_kernels
from ._loss import Loss, scalar_loss
from ._narrow import NarrowTable, narrow_table, read_only
from ._packed import NAMED_IN, pack
from ._pointed import evaluate_clients

__all__ = [
    "ClientRows",
    "DenseRows",
    "Loss",
    "NarrowRows",
    "NarrowTable",
    "PackedRows",
    "SparseRows",
    "client_kernel",
    "gradients",
    "narrow_table",
    "pack",
    "scalar_loss",
    "values",
    "values_and_gradients",
    "workspace",
]

OwnLoss = Loss  # its name before the built-in ones were such, too

#: Stored numbers below which one thread is faster than waking others.
_PARALLEL_FROM = 1 << 21
#: Numbers up to which a workspace is kept for the thread's next call.
_KEPT = 1 << 14
_kept = threading.local()
#: Powers of two, by item size, that quadratic losses are scaled down by where sums overflow, and
#: where products do whose sums do not.
_POWERS = {4: (16, 56), 8: (64, 500)}


def client_kernel(rows: ClientRows) -> Any:
    """The compiled function of one client's objective, for use in compiled code.

    Parameters
    ----------
    rows : ClientRows

    Returns
    -------
    callable
        ``value = f(arrays, i, w, reg, want, gradient, work)``: the objective of client `i` at
        `w`, shape (n,), and, if `want`, its gradient, written to `gradient`, shape (n,), where
        n is ``rows.n_parameters``.
        `arrays` is ``rows.arrays``; `reg` a scalar; `work` is from `workspace`. All
        floating-point arguments have the dtype of `rows`. `gradient` must not overlap `w`.
        Nothing is checked.
    """
    _check_rows(rows)
    return client_kernels(rows.layout, rows.loss).client


def workspace(rows: ClientRows) -> NDArray[Any]:
    """Scratch for `client_kernel`, to be used by one thread at a time."""
    _check_rows(rows)
    return aligned((rows.work_size,), rows.dtype)


def values(
    rows: ClientRows,
    x: ArrayLike,
    *,
    clients: ArrayLike | None = None,
    reg: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """f_i of the clients, shape (len(clients),); see `values_and_gradients`."""
    return _evaluate(rows, x, clients, reg, out, None, threads, want=False)[0]


def gradients(
    rows: ClientRows,
    x: ArrayLike,
    *,
    clients: ArrayLike | None = None,
    reg: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Gradients of the clients' f_i, shape (len(clients), n); see `values_and_gradients`."""
    return _evaluate(rows, x, clients, reg, None, out, threads, want=True)[1]


def values_and_gradients(
    rows: ClientRows,
    x: ArrayLike,
    *,
    clients: ArrayLike | None = None,
    reg: ArrayLike | None = None,
    out: tuple[NDArray[Any] | None, NDArray[Any] | None] | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """f_i and its gradient for the clients, in one pass over their rows.

    Parameters
    ----------
    rows : ClientRows
        From `pack`.
    x : array_like, shape (n,) or (m, n)
        One point for all clients, or a point for each; with `clients`, too, row i is the
        point of client i. Of the dtype of `rows`; n is ``rows.n_parameters``.
    clients : array_like of int, optional
        The clients asked for, in any order; all by default.
    reg : array_like, shape () or (m,), optional
        Weight of the regulariser, or that of each client; 0 by default.
    out : tuple of two ndarrays, optional
        Where to write the results; they must not overlap `x`. Written to even if `x` is refused
        because it is not finite.
    threads : int, optional
        As of `ens.ens`; small problems use one whatever is asked.

    Returns
    -------
    values : ndarray, shape (len(clients),)
        Of the dtype of `rows`.
    gradients : ndarray, shape (len(clients), n)

    Raises
    ------
    TypeError
        If an argument has another dtype.
    ValueError
        If an argument has another shape, is NaN or infinite, or a client is out of range.

    Notes
    -----
    For least squares and the Huber loss nothing overflows before the result itself does. Of the
    other losses the sum over a client's rows must be finite, and with `reg` so must ``|w|^2``; a
    value or a gradient that overflows is inf or NaN. Sums over rows go by blocks, which keeps
    float32 accurate for any number of rows.
    """
    first, second = (None, None) if out is None else out
    return _evaluate(rows, x, clients, reg, first, second, threads, want=True)


class _Asked(NamedTuple):
    """Which clients' objectives are asked for, and where."""

    rows: ClientRows
    clients: NDArray[np.int64]
    points: NDArray[Any]
    reg: NDArray[Any]
    want: bool
    """Whether gradients are, too."""


def _evaluate(
    rows: ClientRows,
    x: ArrayLike,
    clients: ArrayLike | None,
    reg: ArrayLike | None,
    out_values: NDArray[Any] | None,
    out_gradients: NDArray[Any] | None,
    threads: int | None,
    *,
    want: bool,
) -> tuple[NDArray[Any], NDArray[Any]]:
    _check_rows(rows)
    m, n, dtype = rows.n_clients, rows.n_parameters, rows.dtype
    points = _check_points(x, m, n, rows.constants)
    chosen = rows.every_client if clients is None else _check_clients(clients, m)
    weights = rows.no_weights if reg is None else _check_reg(reg, m, dtype)
    count = thread_count(threads)
    f = output("out", out_values, (chosen.size,), dtype, points)
    if want:
        g = output("out", out_gradients, (chosen.size, n), dtype, points)
    else:
        g = np.empty((1, n), dtype)
    try:
        if count == 1 or rows.entries[chosen].sum() < _PARALLEL_FROM:
            # What the kernel finds out is not asked before: with all else in the caches driven out
            # by the last call's rows, a few lines of Python take as long as a thousand rows.
            if not evaluate_clients(rows, chosen, points, weights, want, f, g, _scratch(rows)):
                check_finite("x", points.reshape(np.shape(x)))
        else:
            check_finite("x", points.reshape(np.shape(x)))
            asked = _Asked(rows, chosen, points, weights, want)
            if rows.loss.may_raise:
                _by_clients(asked, f, g, count)
            else:
                with in_threads(count):
                    _parallel(asked, f, g, count)
    except Exception as error:
        if rows.loss.may_raise:
            _note_client(error, _Asked(rows, chosen, points, weights, want))
        raise
    if rows.quadratic and not (np.isfinite(f).all() and np.isfinite(g if want else f).all()):
        _rescaled(_Asked(rows, chosen, points, weights, want), f, g)
    return f, g


def _note_client(error: Exception, asked: _Asked) -> None:
    """Say of what a loss raised whose it was: clients are asked again, one by one."""
    rows, chosen, points, reg, want = asked
    f, g = np.empty(1, rows.dtype), np.empty((1, rows.n_parameters), rows.dtype)
    for k in range(chosen.size):
        try:
            evaluate_clients(rows, chosen[k : k + 1], points, reg, want, f, g, _scratch(rows))
        except Exception as again:
            if type(again) is type(error):
                error.add_note(f"in the loss of client {chosen[k]}")
                return


def _scratch(rows: ClientRows) -> NDArray[Any]:
    """A workspace for this thread, the same at every call, unless it is large."""
    size, dtype = rows.work_size, rows.dtype
    held: NDArray[Any] | None = getattr(_kept, dtype.char, None)
    if held is None or held.size < size:
        held = aligned((size,), dtype)
        if size <= _KEPT:
            setattr(_kept, dtype.char, held)
    return held


def _rescaled(asked: _Asked, f: NDArray[Any], g: NDArray[Any]) -> None:
    """Clients whose sums or products overflow, of a loss that scales: by a power of two less."""
    rows, want = asked.rows, asked.want
    for power in _POWERS[rows.dtype.itemsize]:
        wrong = ~np.isfinite(f)
        if want:
            wrong |= ~np.isfinite(g).all(axis=1)
        if not wrong.any():
            return
        unit = rows.dtype.type(2.0**-power)
        constants = rows.constants.copy()
        constants[0] *= unit
        targets = read_only(rows.targets * unit)
        small = asked._replace(
            rows=replace(rows, targets=targets, constants=read_only(constants)),
            clients=asked.clients[wrong],
            points=asked.points * unit,
        )
        values = np.empty(small.clients.size, rows.dtype)
        slopes = np.empty((values.size if want else 1, rows.n_parameters), rows.dtype)
        evaluate_clients(*small, values, slopes, _scratch(small.rows))
        with np.errstate(over="ignore"):  # of the result itself
            f[wrong] = values / unit / unit
            if want:
                g[wrong] = slopes / unit


def _parallel(asked: _Asked, f: NDArray[Any], g: NDArray[Any], count: int) -> None:
    """Chunks of clients, shared out by their entries."""
    rows, chosen, points, reg, want = asked
    chunks, entries = rows.chunks, rows.entries
    items = np.stack((np.repeat(np.arange(chosen.size), chunks[chosen]),) * 2, axis=1)
    first = np.cumsum(chunks[chosen]) - chunks[chosen]
    items[:, 1] = np.arange(len(items)) - np.repeat(first, chunks[chosen])
    shares = _shares((entries / chunks)[chosen[items[:, 0]]], count)
    sums = np.empty(len(items), rows.dtype)
    parts = np.empty((len(items) if want else 1, rows.n_parameters), rows.dtype)
    work = aligned((count, -(-rows.work_size // 16) * 16), rows.dtype)
    client_kernels(rows.layout, rows.loss).selected_parallel(
        rows.arrays, chosen, points, reg, want, f, g, work, items, shares, sums, parts
    )


def _by_clients(asked: _Asked, f: NDArray[Any], g: NDArray[Any], count: int) -> None:
    """Whole clients, shared out to Python's threads by their entries.

    For a loss that may raise: Numba's own threads lose an exception, or wait for each other then.
    """
    rows, chosen, points, reg, want = asked
    ends = _shares(rows.entries[chosen], count).tolist()

    def some(share: int) -> None:
        first, last = ends[share : share + 2]
        slopes = g[first:last] if want else np.empty_like(g)
        scratch = _scratch(rows)
        evaluate_clients(
            rows, chosen[first:last], points, reg, want, f[first:last], slopes, scratch
        )

    shared(some, count, count)


def _shares(loads: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Where `count` shares of about the same load begin, and the end of the last one."""
    total = np.cumsum(loads)
    found = np.searchsorted(total, np.linspace(0, total[-1], count + 1))
    found[-1] = total.size
    return found


def _check_rows(rows):
    if not isinstance(rows, ClientRows):
        raise ArgumentTypeError("rows", f"must come from pack(), got {type(rows).__name__}")


def _check_points(x: ArrayLike, m: int, n: int, like: NDArray[Any]) -> NDArray[Any]:
    array = as_floats("x", x, like=like)
    if array.shape != (n,) and array.shape != (m, n):
        either = {1: f"({n},)", 2: f"({m}, {n})"}.get(array.ndim, f"({n},) or ({m}, {n})")
        raise ArgumentValueError("x", f"must have shape {either}, got {array.shape}")
    return _writable(array.reshape(-1, n))


def _check_clients(clients: ArrayLike, m: int) -> NDArray[np.int64]:
    chosen = as_integers("clients", clients)
    wrong = (chosen < 0) | (chosen >= m)
    if wrong.any():
        raise ArgumentValueError("clients", f"must be in [0, {m}), got {chosen[wrong][0]}")
    return _writable(chosen)


def _check_reg(reg: ArrayLike, m: int, dtype: Any) -> NDArray[Any]:
    weights = as_floats("reg", reg)
    if weights.shape not in ((), (m,)):
        raise ArgumentValueError(
            "reg", f"must be a number or have shape ({m},), got {weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ArgumentValueError("reg", "must be finite and at least 0")
    return np.full(m, cast("reg", weights, dtype))


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    # Compiled code is typed by it, and one signature is enough.
    return array if array.flags.writeable else array.copy()


def examples(dtype: Any) -> Iterator[ClientRows]:
    """One row, packed for each registered loss; for float64 also a narrow one."""
    table = np.ones((1, 1), dtype)
    for loss in importlib.import_module(NAMED_IN).OBJECTIVES:
        rows = pack(table, [0], [1], loss=loss)
        yield rows
        if isinstance(rows, PackedRows) and rows.dtype == np.float64:
            yield pack(narrow_table(table), [0], [1], loss=loss)


@warms
def _warm(dtypes: Any) -> None:
    for dtype in dtypes:
        for rows in examples(dtype):
            values_and_gradients(rows, np.ones(rows.n_parameters, dtype))
