"""From random words to uniform, Laplace and normal numbers, on vectors.

A law gives numbers of mean 0 and scale 1 (the uniform ones: in (0, 1)) of a vector that holds the
bits of random words. Those in float64 take a word each and start from U, the midpoint of one of
2^52 equal cells of (0, 1), exactly: U - 1/2 is a float64, and so are 1 - 2*abs(U - 1/2) and its
half, the smaller of U and 1 - U. Those in float32 take half a word, the lower one first, and U is
the midpoint of one of 2^32 cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._from_words import Law, nothing, unchanged
from .._jit import device
from .._simd import (
    absolute,
    any_true,
    copysign,
    exponent,
    fma,
    from_bits,
    hold,
    minimum,
    reinterpret,
    select,
    splat,
    sqrt,
    to_bits,
    to_float,
)
from ..vecmath import (
    _FRACTION,
    _LN2_HIGH,
    _LN2_LOW,
    _LOG_REST,
    _ONE,
    _ROOT,
    _log_parts32,
    _split32,
    vector_log_normal,
)

_DROPPED = np.uint64(12)
_ODD_FROM = np.uint64(11)
_SIGN_BIT = -(2**63)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_HALF_CELL = 2.0**-53
_CELL_32, _HALF_CELL_32 = 2.0**-32, 2.0**-33
_BELOW_ONE = 1.0 - 2.0**-24
_SIGN, _TOP, _MOST = np.int32(31), np.int32(-(2**31)), np.int32(2**31 - 1)


@device
def _words(bits):
    return reinterpret(_ONE_BITS, bits)


@device
def _halves(bits):
    return reinterpret(_TOP, bits)


@device
def _offset(bits):
    """U - 1/2: never 0, never as far as 1/2 from it."""
    return (from_bits((_words(bits) >> _DROPPED) | _ONE_BITS) - 1.5) + _HALF_CELL


@device
def _uniform(bits, held, factor):
    u = (from_bits((_words(bits) >> _DROPPED) | _ONE_BITS) - 1.0) + _HALF_CELL
    return u * factor


@device
def _uniform_single(bits, held, factor):
    """U rounded, but below 1."""
    v = to_float(reinterpret(np.uint32(0), bits))
    u = minimum(fma(v, splat(v, _CELL_32), splat(v, _HALF_CELL_32)), splat(v, _BELOW_ONE))
    return u * factor


@device
def _log_tail(s):
    """log(1 - 2*abs(s)): the logarithm of the probability of being further out, 0.5 at s = 0."""
    return vector_log_normal(fma(absolute(s), splat(s, -2.0), splat(s, 1.0)))


@device
def _tail_parts_single(v):
    """The same in float32, of the words' halves as signed integers: f and k of (1 + f) * 2**k.

    Both 1 - 2*abs(s) and, where that is near 1, 2*abs(s) are rounded once.
    """
    outside = v ^ (v >> _SIGN)  # of the smaller of U and 1 - U, in cells
    inside = to_float(outside ^ _MOST)
    x = to_float(outside)
    x = fma(x, splat(x, 2 * _CELL_32), splat(x, _CELL_32))
    k, m = _split32(x)
    f = select(k == 0.0, fma(inside, splat(x, -2 * _CELL_32), splat(x, -_CELL_32)), m - 1.0)
    return f, k


@device
def _laplace_begin(bits, held):
    """Of the Laplace quantile of U, with the bits of ``copysign(_log_tail(s), s)``, but sooner.

    The smaller of 2U and 2(1 - U) is an odd number over 2^52, the fraction of a number from 1 on.
    """
    (unit_bits, to_root, fraction, root, _), (one, _, _, _, _, _, _, _, _, _, _) = held
    words = reinterpret(np.int64(0), bits)
    outer = reinterpret(words, _words(words ^ (words >> 63)) >> _ODD_FROM)
    tail = from_bits(outer | unit_bits) - one
    biased = to_bits(tail) + to_root
    k = exponent(from_bits(biased))
    m = from_bits((biased & fraction) + root)
    f = m - one
    return words, k, f, f / (m + one)


@device
def _laplace_complete(begun, held, factor):
    """The polynomial, as `vecmath` has it for the logarithm of m * 2**k; it is below 0."""
    words, k, f, s = begun
    (_, _, _, _, sign), (_, half, low, high, c0, c1, c2, c3, c4, c5, c6) = held
    z = s * s
    square = half * f * f
    q = fma(fma(fma(fma(fma(fma(c0, z, c1), z, c2), z, c3), z, c4), z, c5), z, c6)
    rest = fma(s, fma(z, q, square), k * low)
    log = fma(k, high, f - (square - rest))  # k * high is exact
    return from_bits(to_bits(log) ^ (words & sign)) * factor


@device
def _laplace_hold():
    return (
        (
            hold(_ONE, _ONE | 1), hold(_ONE, _ONE - _ROOT), hold(_ONE, _FRACTION),
            hold(_ONE, _ROOT), hold(_ONE, _SIGN_BIT),
        ),
        (
            hold(1.0, 1.0), hold(1.0, 0.5), hold(1.0, _LN2_LOW), hold(1.0, _LN2_HIGH),
            hold(1.0, _LOG_REST[0]),
            hold(1.0, _LOG_REST[1]), hold(1.0, _LOG_REST[2]), hold(1.0, _LOG_REST[3]),
            hold(1.0, _LOG_REST[4]), hold(1.0, _LOG_REST[5]), hold(1.0, _LOG_REST[6]),
        ),
    )  # fmt: skip


@device
def _laplace_begin_single(bits, held):
    v = _halves(bits)
    f, k = _tail_parts_single(v)
    return v, f, k


@device
def _laplace_complete_single(begun, held, factor):
    v, f, k = begun
    return from_bits(to_bits(_log_parts32(f, k)) ^ (v & _TOP)) * factor


# ---------------------------------------------------------------------------------
# The normal quantile: Wichura (1988), algorithm AS 241, PPND16 and, for float32, PPND7
# ---------------------------------------------------------------------------------

# Rational functions, constant terms last: up over down.
_CENTRE = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
    4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
    1.3314166789178437745e2, 3.3871328727963666080e0,
), (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
    2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
    4.2313330701600911252e1, 1.0,
)  # fmt: skip
_NEAR = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
    1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
    4.63033784615654529590e0, 1.42343711074968357734e0,
), (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
    2.05319162663775882187e0, 1.0,
)  # fmt: skip
_FAR = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
    5.46378491116411436990e0, 6.65790464350110377720e0,
), (
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
    5.99832206555887937690e-1, 1.0,
)  # fmt: skip
_CENTRE_SINGLE = (
    (5.9109374720e1, 1.5929113202e2, 5.0434271938e1, 3.3871327179e0),
    (6.7187563600e1, 7.8757757664e1, 1.7895169469e1, 1.0),
)
_NEAR_SINGLE = (
    (1.7023821103e-1, 1.3067284816e0, 2.7568153900e0, 1.4234372777e0),
    (1.2021132975e-1, 7.3700164250e-1, 1.0),
)
_FAR_SINGLE = (
    (1.7337203997e-2, 4.2868294337e-1, 3.0812263860e0, 6.6579051150e0),
    (1.2258202635e-2, 2.4197894225e-1, 1.0),
)


@device
def _polynomial(x, c):
    p = fma(splat(x, c[0]), x, splat(x, c[1]))
    for k in range(2, len(c)):
        p = fma(p, x, splat(x, c[k]))
    return p


def _normal(tail: Any, centre: Any, near: Any, far: Any) -> Law:
    """The normal quantile of U; of ``tail(bits)`` are U - 1/2 and the logarithm.

    One quotient for all three rational functions; the far one is for one lane in 3e10.
    """

    @device
    def begin(bits, held):
        return tail(bits)

    @device
    def middle(begun, held):
        """The functions for the tails, in t."""
        s, log = begun
        t = sqrt(0.6931471805599453 - log)
        up, down = _polynomial(t - 1.6, near[0]), _polynomial(t - 1.6, near[1])
        beyond = t > 5.0
        if any_true(beyond):
            up = select(beyond, _polynomial(t - 5.0, far[0]), up)
            down = select(beyond, _polynomial(t - 5.0, far[1]), down)
        return s, up, down

    @device
    def complete(continued, held, factor):
        s, up, down = continued
        r = 0.180625 - s * s
        inside = absolute(s) <= 0.425
        up = select(inside, s * _polynomial(r, centre[0]), copysign(up, s))
        down = select(inside, _polynomial(r, centre[1]), down)
        return up / down * factor

    return Law(begin, middle, complete, nothing)


@device
def _tail(bits):
    s = _offset(bits)
    return s, _log_tail(s)


@device
def _tail_single(bits):
    v = _halves(bits)
    s = to_float(v ^ _TOP)
    f, k = _tail_parts_single(v)
    return fma(s, splat(s, _CELL_32), splat(s, _HALF_CELL_32)), _log_parts32(f, k)


# For float64 and for float32.
UNIFORM = (
    Law(unchanged, None, _uniform, nothing),
    Law(unchanged, None, _uniform_single, nothing),
)
LAPLACE = (
    Law(_laplace_begin, None, _laplace_complete, _laplace_hold),
    Law(_laplace_begin_single, None, _laplace_complete_single, nothing),
)
GAUSSIAN = (
    _normal(_tail, _CENTRE, _NEAR, _FAR),
    _normal(_tail_single, _CENTRE_SINGLE, _NEAR_SINGLE, _FAR_SINGLE),
)
