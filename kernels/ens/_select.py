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

from .._jit import device
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
    width = lanes(z)
    zero = splat(z, 0.0)
    total = lost = squares = zero
    i = 0
    while i < m:
        stop = min(i + BLOCK, m)
        s0 = s1 = s2 = s3 = zero
        q0 = q1 = q2 = q3 = zero
        while i + UNROLL <= stop:
            k = start + i * stride
            v0 = load(z, k)
            v1 = load(z, k + stride)
            v2 = load(z, k + 2 * stride)
            v3 = load(z, k + 3 * stride)
            if buffer is not None:
                b = i * width
                store_aligned(buffer, b, v0)
                store_aligned(buffer, b + width, v1)
                store_aligned(buffer, b + 2 * width, v2)
                store_aligned(buffer, b + 3 * width, v3)
            p0, p1, p2, p3 = v0, v1, v2, v3
            if weights is not None:
                p0, p1 = v0 * weights[i], v1 * weights[i + 1]
                p2, p3 = v2 * weights[i + 2], v3 * weights[i + 3]
            s0 += p0
            s1 += p1
            s2 += p2
            s3 += p3
            q0 = fma(p0, v0, q0)
            q1 = fma(p1, v1, q1)
            q2 = fma(p2, v2, q2)
            q3 = fma(p3, v3, q3)
            i += UNROLL
        while i < stop:
            v0 = load(z, start + i * stride)
            if buffer is not None:
                store_aligned(buffer, i * width, v0)
            p0 = v0
            if weights is not None:
                p0 = v0 * weights[i]
            s0 += p0
            q0 = fma(p0, v0, q0)
            i += 1
        total, lost = compensated(total, lost, (s0 + s1) + (s2 + s3))
        squares += (q0 + q1) + (q2 + q3)
    w = splat(total, weight)
    mean = (total + lost) / w
    # Good enough for a first guess, which is all it is for.
    return mean, sqrt(maximum(squares / w - mean * mean, zero))


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
    i = 0
    while i < m:
        start = min(i, m - width)  # the last square overlaps the one before
        columns = load_transposed(z, j * m + start, m)
        _store_square(buffer, start * width, columns)
        i += width


@device
def _store_square(buffer, k, columns):
    width = lanes(buffer)
    for r in range(len(columns)):
        store_aligned(buffer, k + r * width, columns[r])


@device
def count_above(z, start, stride, m, weights, t, source, where, step):
    """The weight above t, per lane.

    Row i of the m rows is the vector at flat index ``start + i*stride``. Of every four rows of
    the array `source` (or None) the cache lines of two are asked for, at ``where + i*step``:
    memory would be idle here.
    """
    one = splat(z, 1.0)
    n0 = n1 = n2 = n3 = splat(z, 0.0)
    i = 0
    while i + UNROLL <= m:
        k = start + i * stride
        v0 = load(z, k)
        v1 = load(z, k + stride)
        v2 = load(z, k + 2 * stride)
        v3 = load(z, k + 3 * stride)
        above0 = v0 > t
        above1 = v1 > t
        above2 = v2 > t
        above3 = v3 > t
        if weights is None:
            n0 = select(above0, n0 + one, n0)
            n1 = select(above1, n1 + one, n1)
            n2 = select(above2, n2 + one, n2)
            n3 = select(above3, n3 + one, n3)
        else:
            n0 = select(above0, n0 + weights[i], n0)
            n1 = select(above1, n1 + weights[i + 1], n1)
            n2 = select(above2, n2 + weights[i + 2], n2)
            n3 = select(above3, n3 + weights[i + 3], n3)
        if source is not None:
            prefetch(source, where + i * step)
            prefetch(source, where + (i + 1) * step)
        i += UNROLL
    while i < m:
        v0 = load(z, start + i * stride)
        above0 = v0 > t
        if weights is None:
            n0 = select(above0, n0 + one, n0)
        else:
            n0 = select(above0, n0 + weights[i], n0)
        i += 1
    return (n0 + n1) + (n2 + n3)


@device
def window(z, start, stride, m, weights, t):
    """The weight above t, the largest number <= t and the smallest > t, per lane.

    Row i of the m rows is the vector at flat index ``start + i*stride``.
    """
    one = splat(z, 1.0)
    n0 = n1 = n2 = n3 = splat(z, 0.0)
    low = splat(z, -np.inf)
    high = splat(z, np.inf)
    b0 = b1 = b2 = b3 = low
    a0 = a1 = a2 = a3 = high
    i = 0
    while i + UNROLL <= m:
        k = start + i * stride
        v0 = load(z, k)
        v1 = load(z, k + stride)
        v2 = load(z, k + 2 * stride)
        v3 = load(z, k + 3 * stride)
        above0 = v0 > t
        above1 = v1 > t
        above2 = v2 > t
        above3 = v3 > t
        if weights is None:
            n0 = select(above0, n0 + one, n0)
            n1 = select(above1, n1 + one, n1)
            n2 = select(above2, n2 + one, n2)
            n3 = select(above3, n3 + one, n3)
        else:
            n0 = select(above0, n0 + weights[i], n0)
            n1 = select(above1, n1 + weights[i + 1], n1)
            n2 = select(above2, n2 + weights[i + 2], n2)
            n3 = select(above3, n3 + weights[i + 3], n3)
        a0 = minimum(a0, select(above0, v0, high))
        a1 = minimum(a1, select(above1, v1, high))
        a2 = minimum(a2, select(above2, v2, high))
        a3 = minimum(a3, select(above3, v3, high))
        b0 = maximum(b0, select(above0, low, v0))
        b1 = maximum(b1, select(above1, low, v1))
        b2 = maximum(b2, select(above2, low, v2))
        b3 = maximum(b3, select(above3, low, v3))
        i += UNROLL
    while i < m:
        v0 = load(z, start + i * stride)
        above0 = v0 > t
        if weights is None:
            n0 = select(above0, n0 + one, n0)
        else:
            n0 = select(above0, n0 + weights[i], n0)
        a0 = minimum(a0, select(above0, v0, high))
        b0 = maximum(b0, select(above0, low, v0))
        i += 1
    below = maximum(maximum(b0, b1), maximum(b2, b3))
    above = minimum(minimum(a0, a1), minimum(a2, a3))
    return (n0 + n1) + (n2 + n3), below, above


@device
def middle_by_bits(lo, hi):
    """The float halfway from lo to hi in the order of their bits; lo if none is between.

    Zeros of either sign count as one number here, though their bits differ: a middle that is
    not strictly between would be asked for again and again.
    """
    a, b = _ordered(to_bits(lo)), _ordered(to_bits(hi))
    middle = from_bits(_ordered((a & b) + ((a ^ b) >> 1)))
    return select((middle > lo) & (middle < hi), middle, lo)


@device
def _ordered(bits):
    """Bits of floats as integers in the floats' order; its own inverse."""
    sign = bits >> (bits_of(bits) - 1)
    return bits ^ (sign & smallest_mask(bits))


@device
def bits_of(bits):
    return 512 // lanes(bits)


@device
def smallest_mask(bits):
    # All bits but the sign.
    return (1 << (bits_of(bits) - 1)) - 1


@device
def solve(buffer, m, weights, weight, smallest, c, mean, deviation, source, where, step):
    """ENS of the buffer's columns.

    Parameters: the buffer's m rows, the clients' weights or None, their total and smallest,
    c = lam/eta, and the columns' mean and deviation. Rows of a later group, at ``where +
    i*step`` of the array `source` (or None), are asked for on the way. A lane whose mean is not
    finite returns that mean.
    """
    width = lanes(buffer)
    zero = splat(buffer, 0.0)
    low = splat(buffer, -np.inf)
    high = splat(buffer, np.inf)
    p = splat(buffer, smallest)
    cm = splat(buffer, c / weight)
    total = splat(buffer, weight)
    slope = splat(buffer, 1.0) + splat(buffer, 2.0 * DENSITY * c) / deviation

    # Two counts, at the mean and at a Newton step from there.
    t0 = mean
    two = splat(buffer, 2.0)
    above_t = count_above(buffer, 0, width, m, weights, t0, source, where, step)
    excess = fma(two, above_t, -total)
    f0 = t0 - fma(excess, cm, mean)
    t1 = t0 - f0 / slope
    above_t = count_above(buffer, 0, width, m, weights, t1, source, where + 2 * step, step)
    excess = fma(two, above_t, -total)
    f1 = t1 - fma(excess, cm, mean)
    too_high = f0 > zero
    lo, f_lo = select(too_high, low, t0), select(too_high, low, f0)
    hi, f_hi = select(too_high, t0, high), select(too_high, f0, high)
    too_high = f1 > zero
    better = too_high & (t1 < hi)
    hi, f_hi = select(better, t1, hi), select(better, f1, f_hi)
    better = ~too_high & (t1 > lo)
    lo, f_lo = select(better, t1, lo), select(better, f1, f_lo)
    secant = (f1 - f0) / (t1 - t0)
    t = t1 - f1 / select(secant > 0.1 * slope, secant, slope)
    t = select(absolute(t) < high, t, mean)

    w = mean
    done = ~(absolute(mean) < high)
    turn = 0
    while True:
        above_t, below, above = window(buffer, 0, width, m, weights, t)
        excess = fma(two, above_t, -total)
        u = fma(excess, cm, mean)
        # No solution lies outside the data, wherever rounding puts the mean.
        inner_low = select(below > low, below, above)
        inner_high = select(above < high, above, below)
        w = select(done, w, minimum(maximum(u, inner_low), inner_high))
        down, up = fma(excess + 2.0 * p, cm, mean), fma(excess - 2.0 * p, cm, mean)
        done = done | ((below <= down) & (up <= above))
        if all_true(done):
            break
        too_high = t > u
        better = too_high & (below < hi)
        hi = select(better, below, hi)
        f_hi = select(better, below - fma(excess + p, cm, mean), f_hi)
        better = ~too_high & (above > lo)
        lo = select(better, above, lo)
        f_lo = select(better, above - fma(excess - p, cm, mean), f_lo)
        met = (lo >= hi) & ~done
        w = select(met, lo, w)
        done = done | met
        if all_true(done):
            break
        turn += 1
        if turn % 3 == 2:
            t = middle_by_bits(lo, hi)
        elif turn % 6 == 4:
            t = 0.5 * lo + 0.5 * hi
            t = select((t > lo) & (t < hi), t, middle_by_bits(lo, hi))
        else:
            chord = (f_hi - f_lo) / (hi - lo)
            chord = select(chord > zero, chord, slope)
            t = select(too_high, hi - f_hi / chord, lo - f_lo / chord)
            inside = (t > lo) & (t < hi)
            if not all_true(inside | done):
                t = select(inside, t, middle_by_bits(lo, hi))
    return w + zero  # of zeros of either sign +0.0, wherever they stand
