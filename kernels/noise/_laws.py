"""From random words to uniform, Laplace and normal numbers, on vectors.

A law takes words and gives numbers of mean 0 and scale 1 (the uniform ones: in (0, 1)); its
twin for float32 takes two vectors of eight words and gives one of sixteen numbers. Both start
from U, the midpoint of one of 2^52 equal cells of (0, 1), exactly: U - 1/2 is a float64, and so
are 1 - 2*abs(U - 1/2) and its half, the smaller of U and 1 - U.
"""

from __future__ import annotations

import numpy as np

from .._jit import device
from .._simd import (
    absolute,
    any_true,
    copysign,
    fma,
    from_bits,
    minimum,
    narrow,
    select,
    splat,
    sqrt,
)
from ..vecmath import _log_parts32, _split32, vector_log_normal

_SHIFT = np.uint64(12)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_HALF_CELL = 2.0**-53
_BELOW_ONE = 1.0 - 2.0**-24


@device
def _offset(words):
    """U - 1/2: never 0, never as far as 1/2 from it."""
    return (from_bits((words >> _SHIFT) | _ONE_BITS) - 1.5) + _HALF_CELL


@device
def uniform(words):
    return (from_bits((words >> _SHIFT) | _ONE_BITS) - 1.0) + _HALF_CELL


@device
def uniform_single(low, high):
    """The float64 number rounded, but below 1."""
    u = narrow(uniform(low), uniform(high))
    return minimum(u, splat(u, _BELOW_ONE))


@device
def _log_tail(s):
    """log(1 - 2*abs(s)): the logarithm of the probability of being further out, 0.5 at s = 0."""
    return vector_log_normal(fma(absolute(s), splat(s, -2.0), splat(s, 1.0)))


@device
def _log_tail_single(low, high):
    """The same in float32, and s, from two vectors in float64.

    Both 1 - 2*abs(s) and, where that is near 1, 2*abs(s) are rounded once.
    """
    s = narrow(low, high)
    x = narrow(
        fma(absolute(low), splat(low, -2.0), splat(low, 1.0)),
        fma(absolute(high), splat(high, -2.0), splat(high, 1.0)),
    )
    k, m = _split32(x)
    f = select(k == 0.0, -2.0 * absolute(s), m - 1.0)
    return _log_parts32(f, k), s


@device
def laplace(words):
    """The Laplace quantile of U."""
    s = _offset(words)
    return copysign(_log_tail(s), s)


@device
def laplace_single(low, high):
    log, s = _log_tail_single(_offset(low), _offset(high))
    return copysign(log, s)


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


@device
def _normal(s, log, centre, near, far):
    """The normal quantile of 1/2 + s, from `log` = log(1 - 2*abs(s)).

    One quotient for all three rational functions; the far one is for one lane in 3e10.
    """
    t = sqrt(0.6931471805599453 - log)
    r = 0.180625 - s * s
    inside = absolute(s) <= 0.425
    up, down = _polynomial(t - 1.6, near[0]), _polynomial(t - 1.6, near[1])
    beyond = t > 5.0
    if any_true(beyond):
        up = select(beyond, _polynomial(t - 5.0, far[0]), up)
        down = select(beyond, _polynomial(t - 5.0, far[1]), down)
    up = select(inside, s * _polynomial(r, centre[0]), copysign(up, s))
    down = select(inside, _polynomial(r, centre[1]), down)
    return up / down


@device
def gaussian(words):
    """The normal quantile of U."""
    s = _offset(words)
    return _normal(s, _log_tail(s), _CENTRE, _NEAR, _FAR)


@device
def gaussian_single(low, high):
    log, s = _log_tail_single(_offset(low), _offset(high))
    return _normal(s, log, _CENTRE_SINGLE, _NEAR_SINGLE, _FAR_SINGLE)
