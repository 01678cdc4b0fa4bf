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
    prefetch_second,
    select,
    splat,
    sqrt,
    store_aligned,
    to_bits,
)
from ._network import UNROLL, network_ens

#: Rows summed directly; sums of such blocks are added with compensation.
BLOCK = 64
#: Density of a standard normal variable at its mean, of which F's slope is estimated.
DENSITY = 0.4
#: A window comes next where it is expected that so few numbers lie between it and the solution,
NEAR = 1.5
#: or else after so many counts, which take a third of its time.
FIRST_COUNTS = 2
#: If this share of the numbers still lies between, there are more counts before every window, and
#: they begin at the solution of a sample of the rows.
FAR, MORE_COUNTS, SAMPLE = 0.25, 3, 16
_SAMPLE_ROWS = (0,) * SAMPLE
#: From this turn on the bracket is halved each time.
MANY_TURNS = 20


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
def _count(buffer, m, weights, t, source, where, step):
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
    return select(higher, count + (1.0 if weights is None else weights[i]), count)


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
    i*step`` of the array `source`, are prefetched on the way. A lane whose mean is not finite
    returns that mean.
    """
    width = lanes(buffer)
    zero, inf = splat(buffer, 0.0), splat(buffer, np.inf)
    p, total = splat(buffer, smallest), splat(buffer, weight)
    unit, rank = splat(buffer, c / weight), splat(buffer, 2.0 * c / m)
    far = splat(buffer, FAR * m)
    slope = splat(buffer, 1.0) + splat(buffer, 2.0 * DENSITY * c) / deviation
    slope = select(slope > 1.0, slope, 1.0)
    bracket = -inf, -inf, inf, inf
    w = t = mean
    done = ~(absolute(mean) < inf)
    turn, counts, more = 0, FIRST_COUNTS, 0
    while True:
        counted = counts > 0
        if counted:
            counts -= 1
            above_t = _count(buffer, m, weights, t, source, where, step)
            step = 0
            f_below = f_above = t - fma(fma(splat(buffer, 2.0), above_t, -total), unit, mean)
            below = above = t
            too_high = f_below > 0.0
        else:
            counts = more
            above_t, below, above = window(buffer, 0, width, m, weights, t)
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
            too_high = t > u
        bracket = _cut(bracket, too_high, below, f_below, above, f_above)
        met = (bracket[0] >= bracket[2]) & ~done
        w = select(met, bracket[0], w)
        done = done | met
        if all_true(done):
            break
        t, way, one = _next_point(bracket, too_high, counted, slope, rank, turn, done)
        turn += 1
        if all_true(~(way > NEAR * one) | done):
            counts = 0
        elif turn == FIRST_COUNTS and not all_true(~(way > far * one) | done):
            counts = more = MORE_COUNTS
            if m >= SAMPLE:
                # For such numbers mean and deviation say little of where most of them are.
                guess = _of_a_sample(buffer, m, c, mean)
                t = select((guess > bracket[0]) & (guess < bracket[2]), guess, t)
    return w + zero  # of zeros of either sign +0.0, wherever they stand


@device
def _of_a_sample(buffer, m, c, mean):
    """The solution of some rows, spread evenly, around the mean of all."""
    stride = m // SAMPLE * lanes(buffer)
    return network_ens(buffer, 0, stride, _SAMPLE_ROWS, c / SAMPLE, mean)


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
def _next_point(bracket, too_high, counted, slope, rank, turn, done):
    """Where to look next: where a line through the bracket's ends crosses zero, or its middle.

    And how many numbers are expected on the way there, as a multiple of the second vector.
    """
    lo, f_lo, hi, f_hi = bracket
    chord = (f_hi - f_lo) / (hi - lo)  # NaN while an end is not known
    chord = select(chord > 0.1 * slope, chord, slope)
    last, f = select(too_high, hi, lo), select(too_high, f_hi, f_lo)
    t = last - f / chord
    inside = (t > lo) & (t < hi)
    many = turn >= MANY_TURNS
    if counted and not many:
        # The window to come may stand where it was counted, or anywhere beyond one known end.
        inside = inside | (f == 0.0) | (lo == -np.inf) | (hi == np.inf)
    halve = many or turn % 5 == 4
    if halve or not all_true(inside | done):
        middle = middle_by_bits(lo, hi)
        if turn % 2 == 1 and not many:
            other = 0.5 * lo + 0.5 * hi
            middle = select((other > lo) & (other < hi), other, middle)
        t = middle if halve else select(inside, t, middle)
    return t, absolute(f) * (chord - 1.0), rank * chord
