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
    maximum,
    minimum,
    piece,
    piece_lanes,
    pieces,
    select,
    splat,
    to_bits,
    with_piece,
)
from ._network import network_ens
from ._passes import count_above, window

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
def solve(buffer, m, weights, weight, smallest, c, mean, deviation, source, ahead):
    """ENS of the buffer's columns.

    Parameters: the buffer's m rows, the clients' weights or None, their total and smallest,
    c = lam/eta, and the columns' mean and deviation. On the way it is asked for what is left
    `ahead` in the array `source`. A lane whose mean is not finite returns that mean.
    """
    width = piece_lanes(buffer)
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
            above_t, ahead = count_above(buffer, m, weights, t, source, ahead)
            f_below = f_above = t - fma(fma(splat(buffer, 2.0), above_t, -total), unit, mean)
            below = above = t
            too_high = f_below > 0.0
        else:
            counts = more
            above_t, below, above, ahead = window(
                buffer, 0, width, m * width, m, weights, t, source, ahead
            )
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
    width, w = piece_lanes(buffer), mean
    stride = m // SAMPLE * width
    for k in range(pieces(mean)):
        center = piece(mean, k)
        part = network_ens(buffer, k * m * width, stride, _SAMPLE_ROWS, c / SAMPLE, center)
        w = with_piece(w, k, part)
    return w


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
