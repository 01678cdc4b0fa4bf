"""Passes over the rows of a group of coordinates: what ENS asks of them, all lanes at once."""

from __future__ import annotations

import numpy as np

from .._jit import large_device as device
from .._simd import (
    add_where,
    count_where,
    counts_from,
    fma,
    lanes,
    load,
    load_as,
    load_partial,
    load_pieces,
    load_transposed,
    maximum,
    minimum,
    minimum_where,
    nan_where,
    piece,
    piece_lanes,
    pieces,
    prefetch_second,
    splat,
    sqrt,
    store_aligned,
    store_pieces,
    with_piece,
)
from ._network import UNROLL

#: Rows summed directly; sums of such blocks are added with compensation.
BLOCK = 64
#: What is left to be asked for ahead: nothing.
NOTHING_AHEAD = (0, 0, 0, 0, 0)
#: Cache lines of a panel at most, of which the second cache holds two and the buffer, and of each
#: of its rows, as a power of two: a page is found once for all of these, and memory is faster.
PANEL_LINES, LOG2_ROW_LINES = 1 << 12, 3
#: Groups that are brought together where rows lie alike, and how many such blocks ahead are
#: asked for.
TOGETHER, BLOCKS_AHEAD = 4, 3


@device
def compensated(total, lost, term):
    """``total + term`` and ``lost`` plus the rounding error of that sum (Knuth)."""
    new = total + term
    back = new - total
    return new, lost + ((total - (new - back)) + (term - back))


@device
def statistics(z, start, stride, apart, m, weights, weight, buffer, source, ahead):
    """Mean and deviation of m rows of a group of coordinates, and what is left `ahead`; see `_ask`.

    Piece k of row i is at flat index ``start + i*stride + k*apart`` of z. The rows are copied to
    `buffer`, a piece of all rows after the other, which may be where they are. The order of the
    sums is the same for every caller.
    """
    zero = splat(z, 0.0)
    total = lost = squares = zero
    i = 0
    while i < m:
        stop = min(i + BLOCK, m)
        s0 = s1 = s2 = s3 = q0 = q1 = zero
        while i + UNROLL <= stop:
            # Loads that wait for no store, whose address may look like theirs.
            k = start + i * stride
            v0, v1 = load_pieces(z, k, apart), load_pieces(z, k + stride, apart)
            k += 2 * stride
            v2, v3 = load_pieces(z, k, apart), load_pieces(z, k + stride, apart)
            s0, q0 = _add_row(s0, q0, v0, weights, i, m, buffer)
            s1, q1 = _add_row(s1, q1, v1, weights, i + 1, m, buffer)
            s2, q0 = _add_row(s2, q0, v2, weights, i + 2, m, buffer)
            s3, q1 = _add_row(s3, q1, v3, weights, i + 3, m, buffer)
            ahead = _ask(source, ahead)
            i += UNROLL
        while i < stop:
            v0 = load_pieces(z, start + i * stride, apart)
            s0, q0 = _add_row(s0, q0, v0, weights, i, m, buffer)
            i += 1
        total, lost = compensated(total, lost, (s0 + s1) + (s2 + s3))
        squares += q0 + q1
    w = splat(total, weight)
    mean = (total + lost) / w
    # Good enough for a first guess, which is all it is for.
    return mean, sqrt(maximum(squares / w - mean * mean, zero)), ahead


@device
def _add_row(total, squares, v, weights, i, m, buffer):
    """A sum and a sum of squares with row i, v, in it."""
    _store_row(buffer, i, m, v)
    p = v if weights is None else v * weights[i]
    return total + p, fma(p, v, squares)


@device
def _store_row(buffer, i, m, v):
    width = piece_lanes(v)
    store_pieces(buffer, i * width, m * width, v)


@device
def place(buffer, i, r, m):
    """Where lane r of row i lies in the buffer, piece by piece."""
    width = piece_lanes(buffer)
    return (r // width * m + i) * width + r % width


@device
def copy_narrow(z, n, m, buffer):
    """Copy m rows of n columns, fewer than the lanes; the other lanes repeat zero."""
    for i in range(m):
        _store_row(buffer, i, m, load_partial(z, i * n, n, 0.0))


@device
def copy_together(z, j, n, m, block):
    """Copy TOGETHER groups of m rows, from coordinate j on, and ask for later ones."""
    width, many = lanes(z), TOGETHER * lanes(z)
    for i in range(m):
        row = i * n + j
        for k in range(0, many, width):
            prefetch_second(z, row + BLOCKS_AHEAD * many + k)
        for k in range(0, many, width):
            store_aligned(block, i * many + k, load(z, row + k))


@device
def copy_transposed(z, j, m, buffer):
    """Fill the buffer from coordinates j, j+1, ... that hold their m numbers side by side."""
    width = lanes(z)
    if m < width:
        for i in range(m):
            for r in range(width):
                buffer[place(buffer, i, r, m)] = z[j + r, i]
        return
    i = 0
    while i < m:
        start = min(i, m - width)  # the last square overlaps the one before
        _store_square(buffer, start, m, load_transposed(z, j * m + start, m))
        i += width


@device
def _store_square(buffer, first, m, columns):
    for r in range(len(columns)):
        _store_row(buffer, first + r, m, columns[r])


@device
def _four(z, k, stride, like):
    """Four rows of a piece, which has as many lanes as `like`."""
    v0, v1 = load_as(z, k, like), load_as(z, k + stride, like)
    return v0, v1, load_as(z, k + 2 * stride, like), load_as(z, k + 3 * stride, like)


@device
def count_above(buffer, m, weights, t, source, ahead):
    """The weight above t of the buffer's m rows, per lane, and what is left `ahead`."""
    above = t
    for k in range(pieces(t)):
        part, ahead = _count_above(buffer, k, m, weights, piece(t, k), source, ahead)
        above = with_piece(above, k, part)
    return above, ahead


@device
def _count_above(buffer, k, m, weights, t, source, ahead):
    """The same of piece `k`, whose sums stay in registers."""
    width = lanes(t)
    n0 = n1 = n2 = n3 = _nothing(t, weights)
    i = 0
    while i + UNROLL <= m:
        v0, v1, v2, v3 = _four(buffer, (k * m + i) * width, width, t)
        n0 = _add_above(n0, v0 > t, weights, i)
        n1 = _add_above(n1, v1 > t, weights, i + 1)
        n2 = _add_above(n2, v2 > t, weights, i + 2)
        n3 = _add_above(n3, v3 > t, weights, i + 3)
        if k == 0:
            ahead = _ask(source, ahead)
        i += UNROLL
    while i < m:
        n0 = _add_above(n0, load_as(buffer, (k * m + i) * width, t) > t, weights, i)
        i += 1
    return _sum(n0, n1, n2, n3, weights), ahead


@device
def window(z, start, stride, apart, m, weights, t, source, ahead):
    """The weight above t, the largest number <= t and the smallest > t, per lane.

    Piece k of row i of the m rows is at flat index ``start + i*stride + k*apart`` of z. Last comes
    what is left `ahead`.
    """
    above = below = next_above = t
    for k in range(pieces(t)):
        first = start + k * apart
        weight, low, high, ahead = _window(
            z, first, k, stride, m, weights, piece(t, k), source, ahead
        )
        above, below = with_piece(above, k, weight), with_piece(below, k, low)
        next_above = with_piece(next_above, k, high)
    return above, below, next_above, ahead


@device
def _window(z, start, k, stride, m, weights, t, source, ahead):
    """The same of piece `k`, whose sums stay in registers."""
    n0 = n1 = n2 = n3 = _nothing(t, weights)
    w0 = w1 = splat(t, -np.inf), splat(t, np.inf)
    i = 0
    while i + UNROLL <= m:
        v0, v1, v2, v3 = _four(z, start + i * stride, stride, t)
        k0, k1, k2, k3 = v0 > t, v1 > t, v2 > t, v3 > t
        n0, n1 = _add_above(n0, k0, weights, i), _add_above(n1, k1, weights, i + 1)
        w0, w1 = _see(w0, v0, k0), _see(w1, v1, k1)
        n2, n3 = _add_above(n2, k2, weights, i + 2), _add_above(n3, k3, weights, i + 3)
        w0, w1 = _see(w0, v2, k2), _see(w1, v3, k3)
        if k == 0:
            ahead = _ask(source, _ask(source, ahead))
        i += UNROLL
    while i < m:
        v0 = load_as(z, start + i * stride, t)
        k0 = v0 > t
        n0, w0 = _add_above(n0, k0, weights, i), _see(w0, v0, k0)
        i += 1
    low, high = maximum(w0[0], w1[0]), minimum(w0[1], w1[1])
    return _sum(n0, n1, n2, n3, weights), low, high, ahead


@device
def log2_panel(m, n, width):
    """How many groups of coordinates make a panel, as a power of two."""
    log2 = LOG2_ROW_LINES
    while log2 > 0 and (m << log2 > PANEL_LINES or width << log2 > n):
        log2 -= 1
    return log2


@device
def lines_ahead(group, m, n, width, log2):
    """What of the next panel is asked for during a group: an equal share, row by row.

    One vector further on, for a vector may reach into a second line.
    """
    groups = 1 << log2
    k = group & (groups - 1)
    column = (group - k + groups + 1) * width
    if column >= n:
        return NOTHING_AHEAD
    return k * m, (k + 1) * m, column, n, log2


@device
def columns_ahead(j, m, width):
    """The same where coordinates j, j+1, ... hold their m numbers side by side."""
    return 0, m, (j + TOGETHER * width) * m, width, 0


@device
def _ask(source, ahead):
    """Ask for the next line of what is `ahead` in the flat array `source`; what is left of it.

    It is (number of the line, number behind the last, where row 0 begins, the distance of rows, and
    the lines of each as a power of two). A pass over rows asks for a fourth of a group's share, a
    window for half, or memory would be idle at times, and passes wait for it at others. Lines go
    to the second cache: the first is too small to hold them until they are needed, and rows that
    lie alike would drive each other out.
    """
    line, end, start, step, log2 = ahead
    if line < end:
        k = line & ((1 << log2) - 1)
        prefetch_second(source, start + (line >> log2) * step + k * lanes(source))
        line += 1
    return line, end, start, step, log2


@device
def _see(seen, v, higher):
    """Neighbours of t, below and above, with v among what was seen."""
    return maximum(nan_where(higher, v), seen[0]), minimum_where(higher, v, seen[1])


@device
def _nothing(t, weights):
    """A weight to begin with; where all weigh the same, they are counted."""
    return counts_from(t) if weights is None else splat(t, 0.0)


@device
def _add_above(weight, higher, weights, i):
    if weights is None:
        return count_where(higher, weight)
    return add_where(higher, weight, weights[i])


@device
def _sum(n0, n1, n2, n3, weights):
    if weights is None:
        start = counts_from(n0)
        n0, n1, n2, n3 = n0 - start, n1 - start, n2 - start, n3 - start
    return (n0 + n1) + (n2 + n3)
