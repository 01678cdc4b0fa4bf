"""ENS, the elastic-net solver: ``argmin_w sum_i p_i * phi(z_i - w)`` per coordinate.

With phi(v) = lam*|v| + eta/2*v^2, c = lam/eta, z(1) >= ... >= z(m), S_s the weight of the s
largest, P = S_m and u_s = mean + c*(2*S_s/P - 1), the solution is the median of the 2m+1
numbers z_1..z_m, u_0..u_m. c = 0 gives the mean, a large c a median, always exact on ties.

`ens` is for Python. Inside other compiled code call `ens_columns`, which writes to arrays it is
given, allocates nothing and needs no Python::

    ens_columns(z, c, weights, total, smallest, first, last, out, buffer)

solves groups first..last-1 of `group_size(z)` coordinates of z (m, n), C-contiguous, with n at
least one group; `weights` is None or an array of z's dtype, `total` and `smallest` are their sum
and minimum (m and 1.0 without), `buffer` comes from `ens_buffer(z, m)`. It returns whether
every mean was finite, which no NaN or infinity in z escapes. ::

    ens_serial(z, c, weights, total, smallest, transposed, out, memory)

solves all n coordinates, however few; `memory` is any array of (m + 1) * group_size(z) numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _boundary as boundary
from .._aligned import aligned
from .._jit import device, kernel, warms
from .._share import shared
from .._simd import (
    absolute,
    align_stack,
    all_true,
    flat_view,
    lanes,
    piece_lanes,
    prefetch,
    splat,
    store,
    store_partial,
)
from ._limits import LARGEST_C, c_matters, overflow_scale
from ._network import LARGEST, network_ens
from ._passes import (
    NOTHING_AHEAD,
    TOGETHER,
    columns_ahead,
    copy_narrow,
    copy_together,
    copy_transposed,
    lines_ahead,
    log2_panel,
    place,
    statistics,
)
from ._select import solve

#: Work (numbers read) below which threads cost more than they bring.
PARALLEL_FROM = 400_000
#: Clients of equal weight that float32 can count.
MOST_SINGLE = 1 << 24
#: Numbers of float32 that are float64 at a time: they fit in caches, and hide a call from Python.
_DOUBLES = 1 << 19
#: Groups ahead of the present one that a network asks for.
AHEAD_NETWORK = 16
#: Of more rows that lie alike the second cache has no room for any ahead.
FEW_ALIKE = 512
#: Rows whose distance is a multiple of a page, or within two lines of one of a way of the second
#: cache, lie alike; the latter is slow from so many on.
_PAGE, _WAY, _NEAR, _MANY_ALIKE = 1 << 12, 1 << 17, 128, 64


@device
def ens_buffer(z, m):
    """Working memory of one thread for m clients, aligned to cache lines."""
    width = lanes(z)
    return _aligned(np.empty((m + 1) * width, z.dtype), m * width)


@device
def _aligned(memory, size):
    """The part of `memory` that begins at a cache line."""
    start = (-memory.ctypes.data % 64) // memory.itemsize
    return memory[start : start + size]


@kernel
def group_size(z):
    """Coordinates that are solved together: 8 in float64, 16 in float32."""
    return lanes(z)


@device
def _groups(z, c, weights, total, smallest, transposed, first, last, out, buffer, block):
    """Solve groups ``first`` to ``last - 1``; whether every mean is finite.

    Where there are fewer coordinates than lanes, the other lanes hold zeros. Unless `block` is
    None or empty, several groups at a time are brought there first.
    """
    n, width = out.size, lanes(z)
    m = z.size // n
    finite, narrow = True, n < width
    # What comes in another order is brought into the buffer, and read there.
    part = piece_lanes(z)
    rows, stride, apart = flat_view(z), n, part
    if narrow or transposed:
        rows, stride, apart = flat_view(buffer), part, m * part
    many = TOGETHER * width
    brought = -many  # the first coordinate in the block
    if block is not None and block.size > 0:
        rows, stride, apart = flat_view(block), many, part
    log2 = log2_panel(m, n, width)
    for group in range(first, last):
        # The last group overlaps the one before, rather than being a case of its own.
        j = min(group * width, n - width)
        start, ahead = j, lines_ahead(group, m, n, width, log2)
        if narrow or transposed:
            start, ahead = 0, columns_ahead(j, m, width)
            if narrow:
                ahead = NOTHING_AHEAD
                _copy_narrow(z, transposed, n, m, buffer)
            else:
                copy_transposed(z, j, m, buffer)
        if block is not None and block.size > 0:
            if j > brought + many - width:
                brought = min(j, n - many)
                copy_together(z, brought, n, m, block)
            start = j - brought
            if m > FEW_ALIKE:
                ahead = NOTHING_AHEAD
        mean, deviation, ahead = statistics(
            rows, start, stride, apart, m, weights, total, buffer, z, ahead
        )
        finite &= all_true(absolute(mean) < splat(mean, np.inf))
        w = solve(buffer, m, weights, total, smallest, c, mean, deviation, z, ahead)
        if narrow:
            store_partial(out, 0, w, n)
        else:
            store(out, j, w)
    return finite


@device
def _copy_narrow(z, transposed, n, m, buffer):
    """Fill the buffer from fewer columns, or with `transposed` rows, than lanes, and zeros."""
    width = lanes(z)
    if transposed:
        for i in range(m):
            for r in range(width):
                buffer[place(buffer, i, r, m)] = z[r, i] if r < n else 0.0
    else:
        copy_narrow(z, n, m, buffer)


@kernel
def ens_columns(z, c, weights, total, smallest, first, last, out, buffer):
    """See the module."""
    align_stack()
    return _groups(z, c, weights, total, smallest, False, first, last, out, buffer, None)


@device
def ens_inlined(z, c, weights, total, smallest, transposed, out, memory):
    """`ens_serial` within the kernel that calls it, for which it is not compiled on its own."""
    width = lanes(z)
    buffer = _aligned(memory, z.size // out.size * width)
    groups = (out.size + width - 1) // width
    return _groups(z, c, weights, total, smallest, transposed, 0, groups, out, buffer, None)


@kernel
def ens_serial(z, c, weights, total, smallest, transposed, out, memory):
    """See the module."""
    align_stack()
    return ens_inlined(z, c, weights, total, smallest, transposed, out, memory)


@kernel
def _some_groups(z, c, weights, total, smallest, transposed, first, last, out, memory):
    align_stack()
    size = z.size // out.size * lanes(z)
    memory = _aligned(memory, memory.size - lanes(z))
    buffer, block = memory[:size], memory[size:]
    return _groups(z, c, weights, total, smallest, transposed, first, last, out, buffer, block)


def _make_network(m: int) -> Any:
    """The kernel for exactly m clients of equal weight, m small."""
    rows = (0,) * m

    @kernel
    def network_groups(z, c, first, last, out, memory):
        align_stack()
        n = out.size
        width = lanes(z)
        finite = True
        for group in range(first, last):
            j = min(group * width, n - width)
            for i in range(m):
                prefetch(z, i * n + j + AHEAD_NETWORK * width)
            w = network_ens(z, j, n, rows, c / m, None)
            finite &= all_true(absolute(w) < splat(w, np.inf))
            store(out, j, w)
        return finite

    return network_groups


_networks: dict[int, Any] = {}


def ens(
    z: ArrayLike,
    c: float,
    *,
    axis: int = 0,
    weights: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """The elastic-net solver: ``argmin_w sum_i p_i * phi(z_i - w)`` per coordinate, exactly.

    Parameters
    ----------
    z : array_like of shape (m, n), or (n, m) with ``axis=1``
        One number per client and coordinate, float64 or float32 (integers and booleans become
        float64). Not copied where it is C-contiguous.
    c : float
        ``lam / eta``, at least 0: 0 gives the mean, a large c a median.
    axis : {0, 1, -1, -2}
        The axis of the clients.
    weights : array_like of shape (m,), optional
        Positive weights of the clients; equal by default.
    out : ndarray of shape (n,), optional
        Where to write, of the dtype of `z`.
    threads : int, optional
        The most to use, 1 by default: never more than Numba has, and one where few
        coordinates, or a fork of a process that used Numba's threads, leave no use for more.
        The result has the same bits for any number.

    Returns
    -------
    ndarray of shape (n,)
        `out`, or a new array of the dtype of `z`. A zero is +0.0.

    Raises
    ------
    TypeError, ValueError
        Naming the argument; also if there is a NaN or an infinity in `z`.
    """
    z = boundary.as_floats("z", z, ndim=2)
    if axis not in (0, 1, -1, -2):
        raise boundary.ArgumentValueError(
            "axis", f"must be 0 or 1, or from the end -1 or -2, got {axis!r}"
        )
    axis %= 2
    m, n = z.shape if axis == 0 else z.shape[::-1]
    if m == 0:
        raise boundary.ArgumentValueError(
            "z", f"must hold at least one client, got shape {z.shape}"
        )
    c = boundary.real("c", c, low=0.0)
    count = 1 if threads is None else boundary.thread_count(threads)
    if weights is not None:
        weights = boundary.positive_weights(weights, m)
        weights /= weights.max()
        weights = None if weights.min() == 1.0 else weights
    out = boundary.output("out", out, (n,), z.dtype, z)
    if n == 0:
        return out
    largest = LARGEST_C[z.itemsize]
    if (weights is not None or m > MOST_SINGLE) and z.dtype == np.float32:
        # Sums of weights must tell neighbouring ranks apart, which float32 cannot.
        _by_doubles(z, c, axis, weights, out, count)
    elif not _run(z, c if c < largest else largest, axis, weights, out, count) or c > largest:
        boundary.check_finite("z", z)
        _rescaled(z, c, axis, weights, out)
    return out


def _run(z: Any, c: float, axis: int, weights: Any, out: Any, count: int) -> bool:
    """Solve every coordinate; False if some mean is not finite."""
    n = out.size
    m, width = z.size // n, 64 // z.itemsize
    groups = (n + width - 1) // width
    given: tuple[Any, ...]
    if m <= LARGEST and axis == 0 and weights is None and n >= width:
        if m not in _networks:
            _networks[m] = _make_network(m)
        solve_groups, given, room = _networks[m], (z, c), 0
    else:
        total, smallest = float(m), 1.0
        if weights is not None:
            total, smallest = float(weights.sum()), float(weights.min())
        solve_groups, given = _some_groups, (z, c, weights, total, smallest, axis == 1)
        room = (m + 1) * width
        if axis == 0 and n >= TOGETHER * width and _lie_alike(z):
            room += m * TOGETHER * width
    if count == 1 or z.size < PARALLEL_FROM or n < 2 * width:
        return bool(solve_groups(*given, 0, groups, out, np.empty(room, z.dtype)))
    return _run_blocks(solve_groups, given, groups, out, room, count)


def _run_blocks(
    solve_groups: Any, given: tuple[Any, ...], groups: int, out: Any, room: int, count: int
) -> bool:
    """The same by so many threads, in a few blocks for each, of at least a group."""
    blocks = min(4 * count, out.size * out.itemsize // 64)

    def block(k: int) -> Any:
        first, last = k * groups // blocks, (k + 1) * groups // blocks
        return solve_groups(*given, first, last, out, np.empty(room, out.dtype))

    return all(shared(block, blocks, count))


def _lie_alike(z: Any) -> bool:
    """Whether rows of z drive each other out of caches, so that a line must be used at once.

    The first cache has room for some lines at each distance from multiples of a page, but for
    twice as many where vectors straddle two of them; the second, and the banks of memory, for
    some near multiples of `_WAY`.
    """
    m, row = len(z), z.strides[0]
    near = (row + _NEAR) % _WAY <= 2 * _NEAR
    return (near and m >= _MANY_ALIKE) or (row % _PAGE == 0 and z.ctypes.data % 64 != 0)


def _by_doubles(z: Any, c: float, axis: int, weights: Any, out: Any, count: int) -> None:
    """Solve float32 in float64, by blocks whose copies take turns in the same memory.

    New memory would cost a page fault for every 4 KB. No sum of float32 overflows in float64.
    """
    m, n, width = z.shape[axis], len(out), 8
    threads = count if z.size >= PARALLEL_FROM else 1
    numbers = _DOUBLES if threads == 1 else min(_DOUBLES, z.size // (4 * threads))
    step = min(n, max(numbers // m // width, 1) * width)
    blocks = -(-n // step)
    memories = [aligned((m * step,), np.float64) for _ in range(min(threads, blocks))]
    c = min(c, LARGEST_C[8])

    def block(k: int) -> bool:
        first, last = k * step, min((k + 1) * step, n)
        part = z[:, first:last] if axis == 0 else z[first:last]
        memory = memories.pop()
        doubles = memory[: part.size].reshape(part.shape)
        np.copyto(doubles, part)
        found = np.empty(last - first)
        finite = _run(doubles, c, axis, weights, found, 1)
        memories.append(memory)
        if finite:
            out[first:last] = found
        return finite

    if not all(shared(block, blocks, threads)):
        boundary.check_finite("z", z)


def _rescaled(z: Any, c: float, axis: int, weights: Any, out: Any) -> None:
    """Coordinates that overflow though their numbers do not: by a power of two less.

    In sums, or since c is larger than the kernels take and their numbers about as large.
    """
    m, largest = z.shape[axis], LARGEST_C[z.itemsize]
    wrong = ~np.isfinite(out)
    if c > largest:
        most = np.maximum(z.max(axis=axis), -z.min(axis=axis))
        wrong |= most > largest * c_matters(m, weights)
    columns = np.flatnonzero(wrong)
    if columns.size == 0:
        return
    part = z[:, columns] if axis == 0 else z[columns]
    scale = z.dtype.type(overflow_scale(m))
    small = np.empty(len(columns), z.dtype)
    c = min(c * float(scale), largest)
    _run(np.ascontiguousarray(part * scale), c, axis, weights, small, 1)
    out[columns] = small / scale


@warms
def _warm(dtypes: Any) -> None:
    for dtype in (np.float64, np.float32):
        z = np.zeros((LARGEST + 1, 16), dtype)
        ens(z, 1.0)
        ens(z, 1.0, axis=1)
    ens(np.zeros((LARGEST + 1, 16)), 1.0, weights=np.arange(1.0, LARGEST + 2))
