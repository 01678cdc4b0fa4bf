"""ENS by counting: a group of coordinates at a time, in lock-step, in the first-level cache.

In one coordinate let N(t) be the weight of ``{i : z_i > t}`` and u(N) = mean + c*(2N/P - 1),
P the total weight. The solution is the root of F(t) = t - u(N(t)), which increases (with a
jump at every z_i). A *window* at t gives N(t) and t's neighbours, below <= t < above. The
solution is certified there, w = u(N) brought into [below, above], if

    below <= u(N + p)   and   u(N - p) <= above

with p the smallest weight: the next z down is no lower than its own u, and so for the next up.
Otherwise the window has narrowed the bracket [lo, hi] of the solution to data points, and when
lo meets hi the solution is that data point (ties end so). The next t is where the line through
the bracket's ends, with half a rank for the point itself, crosses zero; every few steps it is
the bracket's middle, by value or by bits, which bounds the number of windows for any data.
"""

from __future__ import annotations

import numpy as np

from .._jit import large_device as device
from .._simd import (
    absolute,
    all_true,
    fma,
    from_bits,
    lanes,
    load,
    load_partial,
    load_transposed,
    maximum,
    minimum,
    prefetch,
    select,
    splat,
    sqrt,
    store_aligned,
    to_bits,
)

#: Rows summed directly; sums of such blocks are added with compensation.
BLOCK = 64
#: Rows at a time, each with its own accumulators.
UNROLL = 4
#: Density of a standard normal variable at its mean, of which F's slope is estimated.
DENSITY = 0.4


@device
def compensated(total, lost, term):
    """``total + term`` and ``lost`` plus the rounding error of that sum (Knuth)."""
    new = total + term
    back = new - total
    return new, lost + ((total - (new - back)) + (term - back))


@device
def statistics(z, start, stride, m, weights, weight, buffer):
    """Mean and deviation of m rows, row i the vector at flat index ``start + i*stride`` of z.

    With a `buffer` (else None) the rows are copied there. The order of the sums is the same for
    every caller.
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
    if buffer is not None:
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
def window(z, start, stride, m, weights, t, source, where, step):
    """The weight above t, the largest number <= t and the smallest > t, per lane.

    Row i of the m rows is the vector at flat index ``start + i*stride``. Of every four rows of
    the array `source` (or None) two are prefetched, at ``where + i*step``: memory would be idle
    here.
    """
    w0 = w1 = w2 = w3 = splat(z, 0.0), splat(z, -np.inf), splat(z, np.inf)
    i = 0
    while i + UNROLL <= m:
        v0, v1, v2, v3 = _four(z, start + i * stride, stride)
        w0 = _see_row(w0, v0, t, weights, i)
        w1 = _see_row(w1, v1, t, weights, i + 1)
        w2 = _see_row(w2, v2, t, weights, i + 2)
        w3 = _see_row(w3, v3, t, weights, i + 3)
        if source is not None:
            prefetch(source, where + i * step)
            prefetch(source, where + (i + 1) * step)
        i += UNROLL
    while i < m:
        w0 = _see_row(w0, load(z, start + i * stride), t, weights, i)
        i += 1
    below = maximum(maximum(w0[1], w1[1]), maximum(w2[1], w3[1]))
    above = minimum(minimum(w0[2], w1[2]), minimum(w2[2], w3[2]))
    return (w0[0] + w1[0]) + (w2[0] + w3[0]), below, above


@device
def _see_row(seen, v, t, weights, i):
    """Weight above t and neighbours of t with row i, v, among what was seen."""
    count, below, above = seen
    higher = v > t
    count = select(higher, count + (1.0 if weights is None else weights[i]), count)
    # In this order the second select needs no register but v's.
    above = minimum(above, select(higher, v, np.inf))
    below = maximum(below, select(higher, -np.inf, v))
    return count, below, above


@device
def middle_by_bits(lo, hi):
    """The float halfway from lo to hi in the order of their bits; lo if none is between.

    Zeros of either sign count as one number here, though their bits differ: a middle that is
    not strictly between would come up again and again.
    """
    a, b = _ordered(to_bits(lo)), _ordered(to_bits(hi))
    middle = from_bits(_ordered((a & b) + ((a ^ b) >> 1)))
    return select((middle > lo) & (middle < hi), middle, lo)


@device
def _ordered(bits):
    """Bits of floats as integers in the floats' order; its own inverse."""
    size = 512 // lanes(bits)
    all_but_the_sign = (1 << (size - 1)) - 1
    return bits ^ ((bits >> (size - 1)) & all_but_the_sign)


@device
def solve(buffer, m, weights, weight, smallest, c, mean, deviation, source, where, step):
    """ENS of the buffer's columns.

    Parameters: the buffer's m rows, the clients' weights or None, their total and smallest,
    c = lam/eta, and the columns' mean and deviation. Rows of a later group, at ``where +
    i*step`` of the array `source` (or None), are prefetched on the way. A lane whose mean is not
    finite returns that mean.
    """
    width = lanes(buffer)
    zero, inf = splat(buffer, 0.0), splat(buffer, np.inf)
    p, total = splat(buffer, smallest), splat(buffer, weight)
    unit = splat(buffer, c / weight)
    slope = splat(buffer, 1.0) + splat(buffer, 2.0 * DENSITY * c) / deviation
    bracket, t = _first_bracket(buffer, m, weights, total, unit, mean, slope, source, where, step)

    w = mean
    done = ~(absolute(mean) < inf)
    turn = 0
    while True:
        above_t, below, above = window(buffer, 0, width, m, weights, t, None, 0, 0)
        excess = fma(splat(buffer, 2.0), above_t, -total)
        u = fma(excess, unit, mean)
        # No solution lies outside the data, wherever rounding puts the mean.
        inner_low = select(below > -inf, below, above)
        inner_high = select(above < inf, above, below)
        w = select(done, w, minimum(maximum(u, inner_low), inner_high))
        down, up = fma(excess + 2.0 * p, unit, mean), fma(excess - 2.0 * p, unit, mean)
        done = done | ((below <= down) & (up <= above))
        if all_true(done):
            break
        f_below = below - fma(excess + p, unit, mean)
        f_above = above - fma(excess - p, unit, mean)
        bracket = _cut(bracket, t > u, below, f_below, above, f_above)
        met = (bracket[0] >= bracket[2]) & ~done
        w = select(met, bracket[0], w)
        done = done | met
        if all_true(done):
            break
        turn += 1
        t = _next_point(bracket, t > u, slope, turn, done)
    return w + zero  # of zeros of either sign +0.0, wherever they stand


@device
def _first_bracket(buffer, m, weights, total, unit, mean, slope, source, where, step):
    """The bracket, and a point in it, after counts at the mean and a Newton step from there."""
    low, high = splat(buffer, -np.inf), splat(buffer, np.inf)
    f0 = _f(mean, buffer, m, weights, total, unit, mean, source, where, step)
    t1 = mean - f0 / slope
    f1 = _f(t1, buffer, m, weights, total, unit, mean, source, where + 2 * step, step)
    bracket = _cut((low, low, high, high), f0 > 0.0, mean, f0, mean, f0)
    bracket = _cut(bracket, f1 > 0.0, t1, f1, t1, f1)
    secant = (f1 - f0) / (t1 - mean)
    t = t1 - f1 / select(secant > 0.1 * slope, secant, slope)
    return bracket, select(absolute(t) < high, t, mean)


@device
def _f(t, buffer, m, weights, total, unit, mean, source, where, step):
    """F(t) = t - u(N(t))."""
    above_t = window(buffer, 0, lanes(buffer), m, weights, t, source, where, step)[0]
    return t - fma(fma(splat(buffer, 2.0), above_t, -total), unit, mean)


@device
def _cut(bracket, too_high, below, f_below, above, f_above):
    """The bracket (lo, F(lo), hi, F(hi)), cut off at `below` where t was too high, or `above`."""
    lo, f_lo, hi, f_hi = bracket
    nearer = too_high & (below < hi)
    hi, f_hi = select(nearer, below, hi), select(nearer, f_below, f_hi)
    nearer = ~too_high & (above > lo)
    lo, f_lo = select(nearer, above, lo), select(nearer, f_above, f_lo)
    return lo, f_lo, hi, f_hi


@device
def _next_point(bracket, too_high, slope, turn, done):
    """Where to look next, within the bracket."""
    lo, f_lo, hi, f_hi = bracket
    if turn % 3 == 2:
        return middle_by_bits(lo, hi)
    if turn % 6 == 4:
        t = 0.5 * lo + 0.5 * hi
    else:
        chord = (f_hi - f_lo) / (hi - lo)
        chord = select(chord > 0.0, chord, slope)
        t = select(too_high, hi - f_hi / chord, lo - f_lo / chord)
    inside = (t > lo) & (t < hi)
    if all_true(inside | done):
        return t
    return select(inside, t, middle_by_bits(lo, hi))
