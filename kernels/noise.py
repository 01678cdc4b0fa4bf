"""Noise as a pure function of (seed, trial, purpose, round, client, coordinate).

Coordinate j of a client and round takes word j of the client's Philox stream (`philox`), so
clients and coordinates can be drawn in any order, by any number of threads, or alone, with the
same bits. With U the midpoint of one of 2^52 equal cells of (0, 1), chosen by the word,

    uniform    U
    laplace    the quantile of U, log(2U) or -log(2(1 - U))
    gaussian   the normal quantile of U (Wichura 1988, algorithm AS 241)

Inside other compiled code call ``laplace_row(key0, key1, purpose, tau, client, scale, out)`` or
``uniform_row``, ``gaussian_row`` with the same arguments and ``standardize_row(scale, row)``:
they write one client's float64 row, allocate nothing and need no Python. Integers are uint64.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._jit import device, kernel, parallel_kernel, warms
from ._jit import threads as thread_count
from ._simd import (
    absolute,
    copysign,
    fma,
    from_bits,
    interleave,
    lanes,
    minimum,
    select,
    splat,
    sqrt,
    store,
    store_partial,
)
from .philox import check_key, philox_pair_vectors, philox_vectors
from .vecmath import vector_log_normal

#: Numbers below which threads cost more than they bring.
PARALLEL_FROM = 200_000

_SHIFT = np.uint64(12)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_HALF_CELL = 2.0**-53

# Wichura's rational approximations, constant term last.
_CENTRE_UP = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
    4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
    1.3314166789178437745e2, 3.3871328727963666080e0,
)  # fmt: skip
_CENTRE_DOWN = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
    2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
    4.2313330701600911252e1, 1.0,
)  # fmt: skip
_NEAR_UP = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
    1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
    4.63033784615654529590e0, 1.42343711074968357734e0,
)  # fmt: skip
_NEAR_DOWN = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
    2.05319162663775882187e0, 1.0,
)  # fmt: skip
_FAR_UP = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
    5.46378491116411436990e0, 6.65790464350110377720e0,
)  # fmt: skip
_FAR_DOWN = (
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
    5.99832206555887937690e-1, 1.0,
)  # fmt: skip


@device
def _to_uniform(words):
    """The midpoint of a cell of (0, 1): exact, and never 0 or 1."""
    return (from_bits((words >> _SHIFT) | _ONE_BITS) - 1.0) + _HALF_CELL


@device
def _polynomial(x, c):
    p = fma(splat(x, c[0]), x, splat(x, c[1]))
    for k in range(2, 8):
        p = fma(p, x, splat(x, c[k]))
    return p


@device
def _quantile(p):
    """The standard normal quantile of p in (0, 1)."""
    q = p - 0.5
    r = 0.180625 - q * q
    centre = q * _polynomial(r, _CENTRE_UP) / _polynomial(r, _CENTRE_DOWN)
    tail = sqrt(-vector_log_normal(minimum(p, 1.0 - p)))
    near, far = tail - 1.6, tail - 5.0
    up = select(tail <= 5.0, _polynomial(near, _NEAR_UP), _polynomial(far, _FAR_UP))
    down = select(tail <= 5.0, _polynomial(near, _NEAR_DOWN), _polynomial(far, _FAR_DOWN))
    return select(absolute(q) <= 0.425, centre, copysign(up / down, q))


@device
def _store_some(out, k, value, scale):
    """Store the lanes of a vector that lie within the row."""
    left = out.size - k
    if left >= lanes(out):
        store(out, k, value * scale)
    elif left > 0:
        store_partial(out, k, value * scale, left)


@device
def _laplace_quantile(p):
    """The standard Laplace quantile of p in (0, 1)."""
    return copysign(-vector_log_normal(2.0 * minimum(p, 1.0 - p)), p - 0.5)


@device
def _in_order(v0, v1, v2, v3):
    """What became of words 0, 1, 2, 3 of eight blocks, block by block."""
    even, odd = interleave(v0, v2), interleave(v1, v3)
    low, high = interleave(even[0], odd[0]), interleave(even[1], odd[1])
    return low[0], low[1], high[0], high[1]


def _make_row(law: Any) -> Any:
    """The function that fills a row by a law of the uniform numbers."""

    @device
    def numbers(words):
        return _in_order(
            law(_to_uniform(words[0])), law(_to_uniform(words[1])),
            law(_to_uniform(words[2])), law(_to_uniform(words[3])),
        )  # fmt: skip

    @device
    def fill(key0, key1, purpose, tau, client, scale, out):
        like = np.empty(0, np.uint64)
        width = lanes(out)
        size = 8 * width
        whole = out.size // size * size
        for k in range(0, whole, size):
            a, b = philox_pair_vectors(like, k // 4, client, tau, purpose, key0, key1)
            v = numbers(a)
            store(out, k, v[0] * scale)
            store(out, k + width, v[1] * scale)
            store(out, k + 2 * width, v[2] * scale)
            store(out, k + 3 * width, v[3] * scale)
            v = numbers(b)
            store(out, k + 4 * width, v[0] * scale)
            store(out, k + 5 * width, v[1] * scale)
            store(out, k + 6 * width, v[2] * scale)
            store(out, k + 7 * width, v[3] * scale)
        for k in range(whole, out.size, 4 * width):
            v = numbers(philox_vectors(like, k // 4, client, tau, purpose, key0, key1))
            _store_some(out, k, v[0], scale)
            _store_some(out, k + width, v[1], scale)
            _store_some(out, k + 2 * width, v[2], scale)
            _store_some(out, k + 3 * width, v[3], scale)

    return fill


@device
def _same(p):
    return p


@device
def _standardize_row(scale, row):
    n = row.size
    mean = 0.0
    for j in range(n):
        mean += row[j]
    mean /= n
    rest, squares = 0.0, 0.0
    for j in range(n):
        row[j] -= mean
        rest += row[j]
        squares += row[j] * row[j]
    # The rest is what rounding left of the mean.
    deviation = np.sqrt((squares - rest * rest / n) / (n - 1))
    for j in range(n):
        row[j] = row[j] / deviation * scale


def _make(law: Any) -> tuple[Any, Any, Any]:
    """One row, and serial and parallel kernels of many, by a law of the uniform numbers."""
    fill = _make_row(law)

    @kernel
    def row(key0, key1, purpose, tau, client, scale, out):
        fill(key0, key1, purpose, tau, client, scale, out)

    @device
    def rows(standardize, key0, key1, purpose, tau, clients, scale, first, last, out):
        for i in range(first, last):
            # A standardised row is scaled at the end.
            factor = 1.0 if standardize else scale[i]
            fill(key0, key1, purpose, tau, np.uint64(clients[i]), factor, out[i])
            if standardize:
                _standardize_row(scale[i], out[i])

    @kernel
    def serial(standardize, key0, key1, purpose, tau, clients, scale, out):
        rows(standardize, key0, key1, purpose, tau, clients, scale, 0, out.shape[0], out)

    @parallel_kernel
    def parallel(standardize, key0, key1, purpose, tau, clients, scale, blocks, out):
        m = out.shape[0]
        for b in numba.prange(blocks):
            first, last = b * m // blocks, (b + 1) * m // blocks
            rows(standardize, key0, key1, purpose, tau, clients, scale, first, last, out)

    return row, serial, parallel


uniform_row, *_UNIFORM = _make(_same)
laplace_row, *_LAPLACE = _make(_laplace_quantile)
gaussian_row, *_GAUSSIAN = _make(_quantile)


@kernel
def standardize_row(scale, row):
    """Shift a row to mean 0 and scale it to standard deviation `scale` (ddof 1), in place."""
    _standardize_row(scale, row)


def laplace(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    standardize: bool = False,
    scale: ArrayLike | None = None,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Laplace noise of clients in a round.

    Parameters
    ----------
    seed, trial : int
        The key of the run, each in ``[0, 2**64)``.
    purpose, tau : int
        What the noise is for, and the round.
    clients : array_like of int, shape (s,)
    n : int
        Coordinates.
    standardize : bool
        Shift and scale every row to mean 0 and standard deviation 1 (ddof 1); n must be at
        least 2. Such a row has no density; it is what the authors' program adds.
    scale : array_like, shape () or (s,), optional
        Factor of every row, 1 by default.
    dtype : float64 or float32
        float32 noise is the float64 noise, rounded.
    out : ndarray of shape (s, n), optional
        Where to write.
    threads : int, optional
        1 by default; the same bits for any number.

    Returns
    -------
    ndarray of shape (s, n)

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    if standardize:
        boundary.integer("n", n, low=2)
    return _noise(
        _LAPLACE, seed, trial, purpose, tau, clients, n, standardize, scale, dtype, out, threads
    )


def gaussian(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    scale: ArrayLike | None = None,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Standard normal noise of clients in a round; arguments as for `laplace`."""
    return _noise(
        _GAUSSIAN, seed, trial, purpose, tau, clients, n, False, scale, dtype, out, threads
    )


def uniform(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Uniform numbers in (0, 1) of clients in a round; arguments as for `laplace`.

    In float32 the largest are rounded to 1.
    """
    return _noise(_UNIFORM, seed, trial, purpose, tau, clients, n, False, None, dtype, out, threads)


def _noise(
    kernels: Any, seed: Any, trial: Any, purpose: Any, tau: Any, clients: Any, n: Any,
    standardize: bool, scale: Any, dtype: Any, out: Any, threads: Any,
) -> NDArray[Any]:  # fmt: skip
    key = check_key(seed, trial)
    top = 2**64 - 1
    counter = (
        np.uint64(boundary.integer("purpose", purpose, high=top)),
        np.uint64(boundary.integer("tau", tau, high=top)),
    )
    who = boundary.as_integers("clients", clients)
    if len(who) and who.min() < 0:
        raise ValueError(f"clients must be at least 0, got {who.min()}")
    shape = (len(who), boundary.integer("n", n))
    dtype = np.dtype(dtype)
    if dtype not in boundary.FLOATS:
        raise TypeError(f"dtype must be float64 or float32, got {dtype}")
    factors = np.ones(len(who))
    if scale is not None:
        factors = boundary.as_floats("scale", scale).astype(np.float64)
        if factors.shape not in ((), (len(who),)):
            raise ValueError(f"scale must have shape () or ({len(who)},), got {factors.shape}")
        boundary.check_finite("scale", factors)
        factors = np.ascontiguousarray(np.broadcast_to(factors, len(who)))
    count = 1 if threads is None else boundary.integer("threads", threads, low=1)
    out = boundary.output("out", out, shape, dtype)
    if out.size == 0:
        return out
    serial, parallel = kernels
    # float32 rows are drawn as float64, a few at a time, and rounded.
    step = len(who) if dtype == np.float64 else max(1, (1 << 16) // shape[1])
    with np.errstate(over="ignore"):
        for i in range(0, len(who), step):
            rows = slice(i, i + step)
            part = out[rows] if dtype == np.float64 else np.empty((len(who[rows]), shape[1]))
            if count > 1 and part.size >= PARALLEL_FROM and len(part) > 1:
                with thread_count(count):
                    parallel(standardize, *key, *counter, who[rows], factors[rows],
                             min(len(part), 4 * count), part)  # fmt: skip
            else:
                serial(standardize, *key, *counter, who[rows], factors[rows], part)
            if dtype == np.float32:
                out[rows] = part
    return out


@warms
def _warm() -> None:
    for law in (uniform, laplace, gaussian):
        law(0, 0, 0, 0, [0], 2)
