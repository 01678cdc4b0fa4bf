"""Exponential and logarithms on vectors, and on arrays.

Numba's own are library calls, one lane at a time. These use nothing but vector
arithmetic: argument reduction after Cody and Waite, then minimax polynomials whose
coefficients ``scripts/minimax.py`` derives. The device functions `vector_exp`,
`vector_log`, `vector_log1p`, `vector_sigmoid`, `vector_softplus` are for kernels;
`exp`, `log`, `log1p`, `sigmoid`, `softplus` map arrays.

Infinities, NaN, zeros, subnormals, overflow and underflow are those of IEEE 754; NaN
gives NaN. A result does not depend on its lane or its neighbours. The errors in the
docstrings are the largest found in tens of millions of points over the whole range,
subnormal results included, rounded up, for float32 and float64, with and without fma.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._boundary import as_floats, output
from ._jit import chosen_device, device, kernel, warms
from ._simd import (
    absolute,
    copysign,
    exp2_eighths,
    fma,
    from_bits,
    keep,
    lanes,
    load,
    load_partial,
    maximum,
    minimum,
    round_even,
    scale_by_power,
    select,
    splat,
    store,
    store_partial,
    to_bits,
)


def _by_lanes(eight: Any, more: Any) -> Any:
    """A function of vectors that is one for eight numbers, of float64, and another for more."""

    def decorate(named: Any) -> Any:
        @functools.wraps(named)
        def function(*vectors):
            return (eight if lanes(vectors[0]) == 8 else more)(*vectors)

        return chosen_device(
            lambda vector, *_: eight if getattr(vector, "lanes", 8) == 8 else more
        )(function)

    return decorate


_LOG2_E = 1.4426950408889634
# log 2 in two parts, the first short enough for its products with exponents to be exact.
_LN2_HIGH, _LN2_LOW = 0.6931471805601177, -1.7239444525614835e-13
_LN2_HIGH_32, _LN2_LOW_32 = 0.693145751953125, 1.428606765330187e-06
# The same of an eighth of it, of which there are eight times as many.
_EIGHTH_HIGH, _EIGHTH_LOW = 0.08664339757001471, -2.1549305657018543e-14
_EIGHTH_HIGH_32, _EIGHTH_LOW_32 = 0.08664703369140625, -3.636121391537017e-06
# The logarithms of 2**-1023 and 2**-127.
_LEAST, _LEAST_32 = -709.0895657128241, -88.02969193111305


# ---------------------------------------------------------------------------------
# exp
# ---------------------------------------------------------------------------------


@device
def _exp64(x):
    # NaN passes both: it is the second operand. Beyond these ends exp is inf or 0.
    x = maximum(splat(x, -746.0), minimum(splat(x, 710.0), x))
    n = round_even(x * _LOG2_E)
    high, low = fma(n, splat(x, -_LN2_HIGH), x), n * _LN2_LOW
    r = high - low
    q = fma(splat(x, 2.4999962345352376e-08), r, splat(x, 2.763037864961645e-07))
    q = fma(q, r, splat(x, 2.755758735136998e-06))
    q = fma(q, r, splat(x, 2.4801492762718987e-05))
    q = fma(q, r, splat(x, 0.00019841269504755537))
    q = fma(q, r, splat(x, 0.0013888888943922705))
    q = fma(q, r, splat(x, 0.008333333333495629))
    q = fma(q, r, splat(x, 0.04166666666652919))
    q = fma(q, r, splat(x, 0.1666666666666641))
    q = fma(q, r, splat(x, 0.5000000000000011))
    return scale_by_power((fma(r * r, q, -low) + high) + 1.0, n)


@device
def _exp_negative64(x):
    # By eighths of log 2, whose powers a table has, so half as many terms are enough.
    x = maximum(keep(x, _LEAST), x)
    shifted = fma(x, keep(x, 8 * _LOG2_E), keep(x, 1.5 * 2.0**52))
    n = shifted - keep(x, 1.5 * 2.0**52)
    r = fma(n, keep(x, -_EIGHTH_LOW), fma(n, keep(x, -_EIGHTH_HIGH), x))
    z = r * r
    q = fma(keep(x, 0.0001984056437757773), r, keep(x, 0.0013889782276268455))
    q = fma(q, z, fma(keep(x, 0.008333333371266934), r, keep(x, 0.041666666569726084)))
    q = fma(q, z, fma(keep(x, 0.16666666666663707), r, keep(x, 0.5000000000000298)))
    power = exp2_eighths(shifted)
    return fma(power, fma(z, q, r), power)


@device
def _exp32(x):
    x = maximum(splat(x, -104.0), minimum(splat(x, 89.0), x))
    n = round_even(x * _LOG2_E)
    high, low = fma(n, splat(x, -_LN2_HIGH_32), x), n * _LN2_LOW_32
    r = high - low
    q = fma(splat(x, 0.0013814467238262296), r, splat(x, 0.008368780836462975))
    q = fma(q, r, splat(x, 0.04166839271783829))
    q = fma(q, r, splat(x, 0.1666651964187622))
    q = fma(q, r, splat(x, 0.4999999403953552))
    return scale_by_power((fma(r * r, q, -low) + high) + 1.0, n)


@device
def _exp_negative32(x):
    x = maximum(keep(x, _LEAST_32), x)
    shifted = fma(x, keep(x, 8 * _LOG2_E), keep(x, 1.5 * 2.0**23))
    n = shifted - keep(x, 1.5 * 2.0**23)
    r = fma(n, keep(x, -_EIGHTH_LOW_32), fma(n, keep(x, -_EIGHTH_HIGH_32), x))
    q = fma(keep(x, 0.04166042059659958), r, keep(x, 0.16668029129505157))
    q = fma(q, r, keep(x, 0.5))
    power = exp2_eighths(shifted)
    return fma(power, fma(r * r, q, r), power)


@_by_lanes(_exp64, _exp32)
def vector_exp(x):
    """e**x of a vector; see `exp`."""


@_by_lanes(_exp_negative64, _exp_negative32)
def vector_exp_negative(x):
    """e**x of a vector of numbers up to 0, or NaN: quicker, to 1.1 units of the last place.

    Without fma to 1.3: just above the least normal result its last product is subnormal.
    Where the result is no normal number, below -708.4 (float32: -87.3), it is something from 0 to
    the least of those instead, 0 from -709.1 (-88.1) on.
    """


# ---------------------------------------------------------------------------------
# log and log1p
# ---------------------------------------------------------------------------------


_LOG_REST = (
    0.14797507797024664, 0.15313903235804777, 0.1818356974033444, 0.22222198475973498,
    0.2857142874326284, 0.3999999999941109, 0.6666666666666735,
)  # fmt: skip


@device
def _log_rest64(z):
    """(log((1 + s) / (1 - s)) - 2 s) / s**3 of z = s * s."""
    q = fma(splat(z, _LOG_REST[0]), z, splat(z, _LOG_REST[1]))
    q = fma(q, z, splat(z, _LOG_REST[2]))
    q = fma(q, z, splat(z, _LOG_REST[3]))
    q = fma(q, z, splat(z, _LOG_REST[4]))
    q = fma(q, z, splat(z, _LOG_REST[5]))
    return fma(q, z, splat(z, _LOG_REST[6]))


@device
def _log_rest32(z):
    q = fma(splat(z, 0.2987307608127594), z, splat(z, 0.399774968624115))
    return fma(q, z, splat(z, 0.6666677594184875))


@device
def _log_parts64(f, k):
    """log(1 + f) + k log 2, small parts first, for 1 + f near 1."""
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    rest = fma(s, fma(z, _log_rest64(z), half), k * _LN2_LOW)
    return k * _LN2_HIGH - ((half - rest) - f)


@device
def _log_parts32(f, k):
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    rest = fma(s, fma(z, _log_rest32(z), half), k * _LN2_LOW_32)
    return k * _LN2_HIGH_32 - ((half - rest) - f)


# Bit patterns: of 1, of the square root of 1/2, of 2**52, and the mask of the fraction.
_ONE, _ROOT = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
_SHIFT, _FRACTION = 0x4330000000000000, 0x000FFFFFFFFFFFFF
_ONE_32, _ROOT_32, _SHIFT_32, _FRACTION_32 = 0x3F800000, 0x3F3504F3, 0x4B000000, 0x007FFFFF


@device
def _split64(x):
    """k and m with x = m * 2**k and sqrt(1/2) <= m < sqrt(2), for positive normal x."""
    biased = to_bits(x) + (_ONE - _ROOT)
    k = from_bits(((biased >> 52) & 0x7FF) | _SHIFT) - (2.0**52 + 1023.0)
    return k, from_bits((biased & _FRACTION) + _ROOT)


@device
def _split32(x):
    biased = to_bits(x) + (_ONE_32 - _ROOT_32)
    k = from_bits(((biased >> 23) & 0x1FF) | _SHIFT_32) - (2.0**23 + 127.0)
    return k, from_bits((biased & _FRACTION_32) + _ROOT_32)


@device
def _log_domain(x, result):
    """`result` with the values of the logarithm at and beyond the ends of its domain."""
    result = select(x < np.inf, result, x)  # inf and NaN
    result = select(x == 0.0, -np.inf, result)
    return select(x < 0.0, np.nan, result)


@device
def _log64(x):
    small = x < 2.0**-1022
    k, m = _split64(select(small, x * 2.0**54, x))
    return _log_domain(x, _log_parts64(m - 1.0, k - select(small, splat(x, 54.0), 0.0)))


@device
def _log32(x):
    small = x < 2.0**-126
    k, m = _split32(select(small, x * 2.0**25, x))
    return _log_domain(x, _log_parts32(m - 1.0, k - select(small, splat(x, 25.0), 0.0)))


@device
def _log_normal64(x):
    k, m = _split64(x)
    return _log_parts64(m - 1.0, k)


@device
def _log_normal32(x):
    k, m = _split32(x)
    return _log_parts32(m - 1.0, k)


@device
def _lost(x, u):
    """What is lost of u = 1 + x to rounding: 1 + x = u + lost, exactly."""
    rounded_x = u - 1.0
    return (1.0 - (u - rounded_x)) + (x - rounded_x)


@device
def _log1p64(x):
    u = x + 1.0
    k, m = _split64(u)
    lost = _lost(x, u) * from_bits(to_bits(m) - to_bits(u) + _ONE)
    result = _log_parts64(m - 1.0 + select(x < 2.0**60, lost, 0.0), k)
    return copysign(_log_domain(u, result), x)  # which also keeps -0


@device
def _log1p32(x):
    u = x + 1.0
    k, m = _split32(u)
    lost = _lost(x, u) * from_bits(to_bits(m) - to_bits(u) + _ONE_32)
    result = _log_parts32(m - 1.0 + select(x < 2.0**30, lost, 0.0), k)
    return copysign(_log_domain(u, result), x)


@_by_lanes(_log64, _log32)
def vector_log(x):
    """Natural logarithm of a vector; see `log`."""


@_by_lanes(_log_normal64, _log_normal32)
def vector_log_normal(x):
    """`vector_log` of numbers that are known to be positive, normal and finite."""


@_by_lanes(_log1p64, _log1p32)
def vector_log1p(x):
    """log(1 + x) of a vector; see `log1p`."""


@_by_lanes(_log_parts64, _log_parts32)
def _log_parts(f, k):
    """log(1 + f) + k log 2, for 1 + f near 1."""


# ---------------------------------------------------------------------------------
# The logistic function and its integral
# ---------------------------------------------------------------------------------


@device
def vector_sigmoid(x):
    """1 / (1 + e**-x) of a vector; see `sigmoid`."""
    e = vector_exp(-absolute(x))
    return select(x < 0.0, e, 1.0) / (e + 1.0)


@device
def vector_log1p_unit(x):
    """log(1 + x) of a vector with 0 <= x <= 1 or NaN: no splitting, nothing lost."""
    large = x > 0.41421356237309503
    f = select(large, 0.5 * (x - 1.0), x)  # 1 + x is 1 + f or 2 (1 + f), exactly
    k = select(large, splat(x, 1.0), 0.0)
    return _log_parts(f, k)


@device
def vector_softplus(x):
    """log(1 + e**x) of a vector; see `softplus`."""
    return maximum(splat(x, 0.0), x) + vector_log1p_unit(vector_exp(-absolute(x)))


# ---------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------


def _elementwise(function: Any) -> Any:
    @kernel
    def mapped(x, out):
        width, whole = lanes(x), x.size - x.size % lanes(x)
        for i in range(0, whole, width):
            store(out, i, function(load(x, i)))
        if whole < x.size:
            count = x.size - whole
            store_partial(out, whole, function(load_partial(x, whole, count, 0.0)), count)

    return mapped


_exp, _log, _log1p = map(_elementwise, (vector_exp, vector_log, vector_log1p))
_sigmoid, _softplus = map(_elementwise, (vector_sigmoid, vector_softplus))


def _map(mapped: Any, x: Any, out: NDArray[Any] | None) -> Any:
    x = as_floats("x", x)
    result = output("out", out, x.shape, x.dtype)
    flat, target = x.reshape(-1), result.reshape(-1)
    if np.may_share_memory(flat, target) and flat.ctypes.data != target.ctypes.data:
        flat = flat.copy()
    mapped(flat, target)
    return result[()] if out is None and x.ndim == 0 else result


def exp(x: Any, out: NDArray[Any] | None = None) -> Any:
    """e**x, element by element.

    Parameters
    ----------
    x : array_like
        float32 or float64 of any shape; integers are taken as float64.
    out : ndarray, optional
        C-contiguous array of the shape and dtype of `x` for the result; may be `x`.

    Returns
    -------
    ndarray or scalar
        Of the shape and dtype of `x`. Error at most 0.95 ulp.

    Raises
    ------
    TypeError
        If `x` is of another dtype, or `out` is no array.
    ValueError
        If `out` does not match `x`, is not C-contiguous or not writable.
    """
    return _map(_exp, x, out)


def log(x: Any, out: NDArray[Any] | None = None) -> Any:
    """Natural logarithm, element by element; NaN below zero.

    Parameters, returns and errors as for `exp`. Error at most 0.9 ulp.
    """
    return _map(_log, x, out)


def log1p(x: Any, out: NDArray[Any] | None = None) -> Any:
    """log(1 + x), element by element, accurate near zero; NaN below -1.

    Parameters, returns and errors as for `exp`. Error at most 1.4 ulp.
    """
    return _map(_log1p, x, out)


def sigmoid(x: Any, out: NDArray[Any] | None = None) -> Any:
    """1 / (1 + e**-x), element by element, accurate for all x.

    Parameters, returns and errors as for `exp`. Error at most 2.5 ulp.
    """
    return _map(_sigmoid, x, out)


def softplus(x: Any, out: NDArray[Any] | None = None) -> Any:
    """log(1 + e**x), element by element, without overflow.

    Parameters, returns and errors as for `exp`. Error at most 1.7 ulp.
    """
    return _map(_softplus, x, out)


@warms
def _warm(dtypes: Any) -> None:
    for dtype in dtypes:
        for function in (exp, log, log1p, sigmoid, softplus):
            function(np.ones(1, dtype))
