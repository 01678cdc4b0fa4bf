"""The clients' local steps, fused: all steps of a round in one call.

With p = w - x, client i takes, for iterations k = first_iteration, first_iteration + 1, ...::

    mu = mu0 * (1 + c*|p|^2) * alpha^(k+1),    nu = step_i * mu,
    p <- soft(nu*p - g_i, lam) / (eta + nu),

so that x is needed at the beginning and at the end only, and ``|p|^2`` of the next step is summed
while p is written. A client's result does not depend on which others take part.

`fedepm_local_steps` is for Python. Inside other compiled code call `fedepm_local_steps_raw`,
which needs no Python::

    fedepm_local_steps_raw(W, x, G, step, rows, lam, eta, mu0, c, alpha, local_steps,
                           first_iteration, out, mu)

updates the clients in `rows`, an array of distinct row numbers, of W, G, out (m, n), step and
mu (m,), C-contiguous of one dtype. `out` may be W. It returns whether every result is finite,
which no NaN or infinity in a row, or in x, escapes.

The baselines' local steps are gradient steps, see `gradient_steps`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._jit import device, kernel, parallel_kernel, warms
from ._jit import threads as thread_count
from ._local_steps_wide import advance, wide
from ._parts import room
from ._simd import (
    absolute,
    all_true,
    first_lanes,
    fma,
    lanes,
    load,
    load_partial,
    load_transposed,
    splat,
    store,
    store_partial,
)
from .gradient_steps import gradient_steps_kernel

__all__ = ["fedepm_local_steps", "fedepm_local_steps_raw", "gradient_steps_kernel"]

#: Up to this many coordinates the lanes of a vector are clients, beyond it coordinates.
NARROW = 32
#: Vectors of clients in lock-step: a step waits for ``|p|^2``, and each hides the others' wait.
TOGETHER = 2
#: Work (coordinates times steps) below which threads cost more than they bring.
PARALLEL_FROM = 3_000_000


@device
def _mu_at_x(mu0, alpha, local_steps, first_iteration, step):
    """``mu0 * alpha^(k+1)`` of each step; a product of alphas would drift over many rounds."""
    values = room(step, local_steps)
    for k in range(local_steps):
        values[k] = mu0 * math.pow(alpha, float(first_iteration + k + 1))
    return values


# Lanes are clients ----------------------------------------------------------------------


@device
def _adjacent(rows, first, width, n):
    """Whether the clients of a vector are neighbours, whose rows can be read as a square."""
    if n < width or first + width > rows.size:
        return False
    result = True
    for r in range(1, width):
        result &= rows[first + r] == rows[first] + r
    return result


@device
def _gather(A, n, at, columns, to):
    """A square of A, neighbouring rows from flat index `at`, coordinate by coordinate.

    The vector of coordinate j goes to flat index ``to + j*TOGETHER*lanes`` of `columns`.
    """
    width = lanes(A)
    for start in range(0, n, width):
        j = max(0, min(start, n - width))  # the last square overlaps the one before
        square = load_transposed(A, at + j, n)
        for r in range(len(square)):
            store(columns, to + (j + r) * TOGETHER * width, square[r])


@device
def _gather_any(A, n, rows, first, columns, to, spare):
    """`_gather` of any clients, by way of the rows of `columns` from flat index `spare`.

    Lanes without a client repeat the last one.
    """
    width = lanes(A)
    padded = (n + width - 1) // width * width
    for r in range(width):
        at = rows[min(first + r, rows.size - 1)] * n
        for j in range(0, n, width):
            store(columns, spare + r * padded + j, load_partial(A, at + j, n - j, 0.0))
    for j in range(0, n, width):
        square = load_transposed(columns, spare + j, padded)
        for r in range(len(square)):
            store(columns, to + (j + r) * TOGETHER * width, square[r])


@device
def _scatter(columns, at, x, rows, first, out):
    """``out[row] = x + p`` of the clients in the lanes."""
    n, width = x.size, lanes(x)
    for start in range(0, n, width):
        j = max(0, min(start, n - width))
        count = min(width, n - j)
        square = load_transposed(columns, at + j * TOGETHER * width, TOGETHER * width)
        origin = load_partial(x, j, count, 0.0)
        for r in range(len(square)):
            if first + r < rows.size:
                store_partial(out, rows[first + r] * n + j, origin + square[r], count)


@device
def _narrow(W, x, G, step, rows, lam, eta, c, mu_at_x, first, last, out, mu):
    """Clients rows[first:last], all of whose coordinates fit the nearest cache."""
    n, width = x.size, lanes(x)
    pair = TOGETHER * width
    padded = (n + width - 1) // width * width
    # One array, for each costs reference counts in every loop: p, g, the steps, and spare rows.
    memory = room(x, (2 * padded + 1) * pair + padded * width)
    g, own = padded * pair, 2 * padded * pair
    spare = own + pair
    for k in range(spare):
        memory[k] = 0.0
    one, lam_v, eta_v, c_v = splat(x, 1.0), splat(x, lam), splat(x, eta), splat(x, c)
    finite = True
    for start in range(first, last, pair):
        count = min(pair, rows.size - start)
        for h in range((count + width - 1) // width):
            i = start + h * width
            if _adjacent(rows, i, width, n):
                _gather(W, n, rows[i] * n, memory, h * width)
                _gather(G, n, rows[i] * n, memory, g + h * width)
            else:
                _gather_any(W, n, rows, i, memory, h * width, spare)
                _gather_any(G, n, rows, i, memory, g + h * width, spare)
        for r in range(count):
            memory[own + r] = step[rows[start + r]]
        s0, s1 = load(memory, own), load(memory, own + width)
        a0 = a1 = splat(x, 0.0)
        for j in range(n):
            i = j * pair
            p0, p1 = load(memory, i) - x[j], load(memory, i + width) - x[j]
            store(memory, i, p0)
            store(memory, i + width, p1)
            a0, a1 = fma(p0, p0, a0), fma(p1, p1, a1)
        mu0 = mu1 = a0
        for k in range(mu_at_x.size):
            mu0, mu1 = mu_at_x[k] * fma(c_v, a0, one), mu_at_x[k] * fma(c_v, a1, one)
            nu0, nu1 = s0 * mu0, s1 * mu1
            r0, r1 = one / (eta_v + nu0), one / (eta_v + nu1)
            a0 = a1 = splat(x, 0.0)
            for j in range(n):
                i = j * pair
                p0 = advance(load(memory, i), load(memory, g + i), nu0, lam_v, r0)
                p1 = advance(load(memory, i + width), load(memory, g + i + width), nu1, lam_v, r1)
                store(memory, i, p0)
                store(memory, i + width, p1)
                a0, a1 = fma(p0, p0, a0), fma(p1, p1, a1)
        # Lanes without a client hold leftovers.
        finite &= all_true((absolute(a0) < np.inf) | ~first_lanes(x, count))
        finite &= all_true((absolute(a1) < np.inf) | ~first_lanes(x, count - width))
        for h in range((count + width - 1) // width):
            _scatter(memory, h * width, x, rows, start + h * width, out)
        store(memory, own, mu0)
        store(memory, own + width, mu1)
        for r in range(count):
            mu[rows[start + r]] = memory[own + r]
    return finite


# All clients ----------------------------------------------------------------------------


@device
def _block_size(x):
    """Clients that one thread takes at a time."""
    return 4 * TOGETHER * lanes(x) if x.size <= NARROW else 1


@device
def _clients(W, x, G, step, rows, lam, eta, c, mu_at_x, first, last, out, mu):
    """The clients rows[first:last]; whether every |p|^2, which no NaN escapes, is finite."""
    if x.size <= NARROW:
        return _narrow(W, x, G, step, rows, lam, eta, c, mu_at_x, first, last, out, mu)
    finite = True
    for i in range(first, last):
        finite &= wide(W, x, G, step[rows[i]], lam, eta, c, mu_at_x, rows[i], out, mu)
    return finite


@kernel
def fedepm_local_steps_raw(
    W, x, G, step, rows, lam, eta, mu0, c, alpha, local_steps, first_iteration, out, mu
):
    """See the module."""
    mu_at_x = _mu_at_x(mu0, alpha, local_steps, first_iteration, step)
    return _clients(W, x, G, step, rows, lam, eta, c, mu_at_x, 0, rows.size, out, mu)


@parallel_kernel
def _parallel(W, x, G, step, rows, lam, eta, mu0, c, alpha, local_steps, first_iteration, out, mu):
    mu_at_x = _mu_at_x(mu0, alpha, local_steps, first_iteration, step)
    size = _block_size(x)
    blocks = (rows.size + size - 1) // size
    finite = np.ones(blocks, np.bool_)
    for b in numba.prange(blocks):
        first, last = b * size, min(rows.size, (b + 1) * size)
        finite[b] = _clients(W, x, G, step, rows, lam, eta, c, mu_at_x, first, last, out, mu)
    return finite.all()


@kernel
def _positive(step):
    """Whether all are positive and finite: two NumPy reductions take as long as the steps."""
    wrong = 0
    for value in step:
        if not 0.0 < value < np.inf:
            wrong += 1
    return wrong == 0


# Python ---------------------------------------------------------------------------------


def fedepm_local_steps(
    W: ArrayLike,
    x: ArrayLike,
    G: ArrayLike,
    step: ArrayLike,
    *,
    lam: float,
    eta: float,
    mu0: float,
    c: float,
    alpha: float,
    local_steps: int,
    first_iteration: int,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """FedEPM's local steps of a round, of every client given.

    Each of `local_steps` times, for iterations k from `first_iteration`, with
    ``mu_i = mu0 * (1 + c*|w_i - x|^2) * alpha^(k+1)`` and ``nu_i = step_i * mu_i``,

    ``w_i <- x + soft(nu_i*(w_i - x) - g_i, lam) / (eta + nu_i)``.

    Parameters
    ----------
    W, G : array_like of shape (s, n)
        Parameters of the clients and their gradients at `x`, float64 or float32 alike
        (integers become float64). Not copied where they are C-contiguous.
    x : array_like of shape (n,)
        The server's point, of the dtype of `W`.
    step : array_like of shape (s,)
        ``step_i``, above 0; converted to the dtype of `W`.
    lam, eta, c : float
        At least 0.
    mu0, alpha : float
        Above 0.
    local_steps : int
        At least 1.
    first_iteration : int
        The number of the first step, from 0 at the beginning of a run.
    out : ndarray of shape (s, n), optional
        Where to write, of the dtype of `W`; may be `W` itself.
    threads : int, optional
        1 by default. The result has the same bits for any number, and a client's result
        does not depend on the other clients.

    Returns
    -------
    W : ndarray of shape (s, n)
        `out`, or a new array.
    mu : ndarray of shape (s,)
        ``mu_i`` of the last step.

    Raises
    ------
    TypeError, ValueError
        Naming the argument; also if a number is NaN or infinite, or some ``|w_i - x|^2``
        overflows. Then the contents of `out` are undefined.
    """
    W = boundary.as_floats("W", W, ndim=2)
    G = boundary.as_floats("G", G, ndim=2, like=W)
    x = boundary.as_floats("x", x, ndim=1, like=W)
    step = boundary.as_floats("step", step, ndim=1)
    boundary.check_shape("G", G, W.shape)
    boundary.check_shape("x", x, W.shape[1:])
    boundary.check_shape("step", step, W.shape[:1])
    if not _positive(step):
        boundary.check_finite("step", step)
        raise boundary.ArgumentValueError("step", f"must be positive, got {step.min()}")
    step = boundary.cast("step", step, W.dtype)
    lam = boundary.real("lam", lam, low=0.0)
    eta = boundary.real("eta", eta, low=0.0)
    mu0 = boundary.real("mu0", mu0, low=0.0, open_low=True)
    c = boundary.real("c", c, low=0.0)
    alpha = boundary.real("alpha", alpha, low=0.0, open_low=True)
    local_steps = boundary.integer("local_steps", local_steps, low=1)
    first_iteration = boundary.integer("first_iteration", first_iteration)
    count = boundary.thread_count(threads)
    target = boundary.output("out", out, W.shape, W.dtype, x, G, step)
    if np.may_share_memory(target, W) and target.ctypes.data != W.ctypes.data:
        raise boundary.ArgumentValueError("out", "must be W or not overlap it")
    mu = np.empty(len(W), W.dtype)
    rows = np.arange(len(W))
    arguments = (W, x, G, step, rows, lam, eta, mu0, c, alpha, local_steps, first_iteration)
    if count > 1 and W.size * local_steps >= PARALLEL_FROM:
        with thread_count(count):
            finite = _parallel(*arguments, target, mu)
    else:
        finite = fedepm_local_steps_raw(*arguments, target, mu)
    if not finite:
        for name, array in (("x", x), ("G", G), ("W", W)):
            if array is not target:
                boundary.check_finite(name, array)
        raise ValueError("W - x is not finite, or so large that |W - x|^2 overflows")
    return target, mu


@warms
def _warm(dtypes: Any) -> None:
    parameters: Any = dict(lam=1.0, eta=1.0, mu0=1.0, c=1.0, alpha=1.0)
    for dtype in dtypes:
        W = np.zeros((1, 1), dtype)
        fedepm_local_steps(W, W[0], W, np.ones(1), **parameters, local_steps=1, first_iteration=0)
