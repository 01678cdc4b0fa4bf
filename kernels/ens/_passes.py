"""Passes over the rows of a group of coordinates: what ENS asks of them, all lanes at once."""

from __future__ import annotations

import numpy as np

from .._jit import large_device as device
from .._simd import (
    add_where,
    fma,
    lanes,
    load,
    load_partial,
    load_transposed,
    maximum,
    minimum,
    prefetch_second,
    select,
    splat,
    sqrt,
    store_aligned,
)
from ._network import UNROLL

#: Rows summed directly; sums of such blocks are added with compensation.
BLOCK = 64


@device
def compensated(total, lost, term):
    """``total + term`` and ``lost`` plus the rounding error of that sum (Knuth)."""
    new = total + term
    back = new - total
    return new, lost + ((total - (new - back)) + (term - back))


@device
def statistics(z, start, stride, m, weights, weight, buffer):
    """Mean and deviation of m rows, row i the vector at flat index ``start + i*stride`` of z.

    The rows are copied to `buffer`, which may be where they are. The order of the sums is the
    same for every caller.
    """
    zero = splat(z, 0.0)
    total = lost = squares = zero
    i = 0
    while i < m:
        stop = min(i + BLOCK, m)
        s0 = s1 = s2 = s3 = zero, zero
        while i + UNROLL <= stop:
            # Loads that wait for no store, whose address may look like theirs.
            v0, v1, v2, v3 = _four(z, start + i * stride, stride)
            s0 = _add_row(s0, v0, weights, i, buffer)
            s1 = _add_row(s1, v1, weights, i + 1, buffer)
            s2 = _add_row(s2, v2, weights, i + 2, buffer)
            s3 = _add_row(s3, v3, weights, i + 3, buffer)
            i += UNROLL
        while i < stop:
            s0 = _add_row(s0, load(z, start + i * stride), weights, i, buffer)
            i += 1
        total, lost = compensated(total, lost, (s0[0] + s1[0]) + (s2[0] + s3[0]))
        squares += (s0[1] + s1[1]) + (s2[1] + s3[1])
    w = splat(total, weight)
    mean = (total + lost) / w
    # Good enough for a first guess, which is all it is for.
    return mean, sqrt(maximum(squares / w - mean * mean, zero))


@device
def _four(z, k, stride):
    return load(z, k), load(z, k + stride), load(z, k + 2 * stride), load(z, k + 3 * stride)


@device
def _add_row(sums, v, weights, i, buffer):
    """A sum and a sum of squares with row i, v, in it."""
    store_aligned(buffer, i * lanes(v), v)
    p = v if weights is None else v * weights[i]
    return sums[0] + p, fma(p, v, sums[1])


@device
def copy_narrow(z, n, m, buffer):
    """Copy m rows of n columns, fewer than the lanes; the other lanes repeat zero."""
    width = lanes(z)
    for i in range(m):
        store_aligned(buffer, i * width, load_partial(z, i * n, n, 0.0))


@device
def copy_transposed(z, j, m, buffer):
    """Fill the buffer from coordinates j, j+1, ... that hold their m numbers side by side."""
    width = lanes(z)
    if m < width:
        for i in range(m):
            for r in range(width):
                buffer[i * width + r] = z[j + r, i]
        return
    i = 0
    while i < m:
        start = min(i, m - width)  # the last square overlaps the one before
        _store_square(buffer, start * width, load_transposed(z, j * m + start, m))
        i += width


@device
def _store_square(buffer, k, columns):
    width = lanes(buffer)
    for r in range(len(columns)):
        store_aligned(buffer, k + r * width, columns[r])


@device
def count_above(buffer, m, weights, t, source, where, step):
    """The weight above t of the buffer's m rows, per lane.

    Unless `step` is 0, each row of a later group, at ``where + i*step`` of the array `source`, is
    asked for meanwhile: memory would be idle here. It goes to the second cache, because the first
    is too small to hold it until it is needed, and rows that lie alike would drive each other out.
    """
    width = lanes(buffer)
    n0 = n1 = n2 = n3 = splat(buffer, 0.0)
    i = 0
    while i + UNROLL <= m:
        v0, v1, v2, v3 = _four(buffer, i * width, width)
        n0 = _add_above(n0, v0 > t, weights, i)
        n1 = _add_above(n1, v1 > t, weights, i + 1)
        n2 = _add_above(n2, v2 > t, weights, i + 2)
        n3 = _add_above(n3, v3 > t, weights, i + 3)
        if step > 0:
            prefetch_second(source, where + i * step)
            prefetch_second(source, where + (i + 1) * step)
            prefetch_second(source, where + (i + 2) * step)
            prefetch_second(source, where + (i + 3) * step)
        i += UNROLL
    while i < m:
        n0 = _add_above(n0, load(buffer, i * width) > t, weights, i)
        i += 1
    return (n0 + n1) + (n2 + n3)


@device
def _add_above(count, higher, weights, i):
    return add_where(higher, count, 1.0 if weights is None else weights[i])


@device
def window(z, start, stride, m, weights, t):
    """The weight above t, the largest number <= t and the smallest > t, per lane.

    Row i of the m rows is the vector at flat index ``start + i*stride``.
    """
    n0 = n1 = n2 = n3 = splat(z, 0.0)
    w0 = w1 = splat(z, -np.inf), splat(z, np.inf)
    i = 0
    while i + UNROLL <= m:
        v0, v1, v2, v3 = _four(z, start + i * stride, stride)
        k0, k1, k2, k3 = v0 > t, v1 > t, v2 > t, v3 > t
        n0, n1 = _add_above(n0, k0, weights, i), _add_above(n1, k1, weights, i + 1)
        # Two of each extremum are enough, and with AVX2 all that there are registers for.
        w0, w1 = _see(w0, v0, k0), _see(w1, v1, k1)
        if weights is None:
            n0, n1 = _add_above(n0, k2, None, 0), _add_above(n1, k3, None, 0)
        else:
            n2, n3 = _add_above(n2, k2, weights, i + 2), _add_above(n3, k3, weights, i + 3)
        w0, w1 = _see(w0, v2, k2), _see(w1, v3, k3)
        i += UNROLL
    while i < m:
        v0 = load(z, start + i * stride)
        k0 = v0 > t
        n0, w0 = _add_above(n0, k0, weights, i), _see(w0, v0, k0)
        i += 1
    return (n0 + n1) + (n2 + n3), maximum(w0[0], w1[0]), minimum(w0[1], w1[1])


@device
def _see(seen, v, higher):
    """Neighbours of t, below and above, with v among what was seen."""
    # In this order the second select needs no register but v's.
    above = minimum(seen[1], select(higher, v, np.inf))
    return maximum(seen[0], select(higher, -np.inf, v)), above
