"""Every vector operation against NumPy, lane by lane and bit by bit, on several targets."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.registry import cpu_target

from fedepm_fast.kernels import _simd as simd
from fedepm_fast.kernels._jit import JIT_DISABLED, device, kernel, parallel_kernel
from fedepm_fast.kernels.philox import wrapping

FLOATS = [np.float64, np.float32]
INTEGERS = [np.int64, np.int32, np.uint64, np.uint32]


def assert_same(got: np.ndarray, expected: np.ndarray, what: object = "") -> None:
    """Equal dtypes and equal bits, but for the payload and sign of NaN."""
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype, what
    number = got == got
    np.testing.assert_array_equal(number, expected == expected, err_msg=str(what))
    bits = f"u{got.itemsize}"
    np.testing.assert_array_equal(
        got.view(bits)[number], expected.view(bits)[number], err_msg=str(what)
    )


@functools.cache
def special_pairs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of values where floating-point semantics differ, as two long arrays."""
    info = np.finfo(dtype)
    half = 2.0**info.nmant
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.5, np.pi, half - 0.5, half, half * 2, info.max]
    magnitudes += [info.tiny, info.smallest_subnormal, np.nextafter(dtype(0.5), dtype(0)), np.inf]
    values = np.array([s * m for m in magnitudes for s in (1, -1)] + [np.nan] * 4, dtype)
    assert values.size == 32
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


# ---------------------------------------------------------------------------------
# Arithmetic, comparison, selection
# ---------------------------------------------------------------------------------


@kernel
def _float_operations(a: Any, b: Any, out: Any) -> None:
    for i in range(0, a.size, simd.lanes(a)):
        x, y = simd.load(a, i), simd.load(b, i)
        z = x
        z += y
        simd.store(out, i, z)
        simd.store(out, i + a.size, x - y)
        simd.store(out, i + 2 * a.size, x * y)
        simd.store(out, i + 3 * a.size, x / y)
        simd.store(out, i + 4 * a.size, -x)
        simd.store(out, i + 5 * a.size, simd.minimum(x, y))
        simd.store(out, i + 6 * a.size, simd.maximum(x, y))
        simd.store(out, i + 7 * a.size, simd.absolute(x))
        simd.store(out, i + 8 * a.size, simd.sqrt(x))
        simd.store(out, i + 9 * a.size, simd.copysign(x, y))
        simd.store(out, i + 10 * a.size, simd.round_even(x))
        simd.store(out, i + 11 * a.size, simd.select(x < y, x, y))
        simd.store(out, i + 12 * a.size, simd.select(x <= y, x, 0.0))
        simd.store(out, i + 13 * a.size, simd.select(x > y, 7.0, y))
        simd.store(out, i + 14 * a.size, simd.select(x >= y, x, y))
        simd.store(out, i + 15 * a.size, simd.select(x == y, x, 9.0))
        simd.store(out, i + 16 * a.size, simd.select(x != y, x, 9.0))
        simd.store(out, i + 17 * a.size, 0.1 * x + 1)
        simd.store(out, i + 18 * a.size, 1.0 / x - 0.3)
        simd.store(out, i + 19 * a.size, simd.from_bits(simd.to_bits(x) ^ simd.to_bits(y)))
        simd.store(out, i + 20 * a.size, simd.select((x < y) & ~(x < 0) | (y != y), x, y))
        simd.store(out, i + 21 * a.size, simd.select((x < y) ^ (x < 0), x, y))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations(dtype: Any) -> None:
    a, b = special_pairs(dtype)
    out = np.zeros((22, a.size), dtype)
    _float_operations(a, b, out.reshape(-1))
    less, negative = a < b, a < 0
    bits = f"i{a.itemsize}"
    with np.errstate(all="ignore"):
        expected = {
            "+=": a + b,
            "-": a - b,
            "*": a * b,
            "/": a / b,
            "negative": -a,
            "minimum": np.where(less, a, b),
            "maximum": np.where(a > b, a, b),
            "absolute": np.abs(a),
            "sqrt": np.sqrt(a),
            "copysign": np.copysign(a, b),
            "round_even": np.rint(a),
            "<": np.where(less, a, b),
            "<=": np.where(a <= b, a, dtype(0)),
            ">": np.where(a > b, dtype(7), b),
            ">=": np.where(a >= b, a, b),
            "==": np.where(a == b, a, dtype(9)),
            "!=": np.where(a != b, a, dtype(9)),
            "scalars": dtype(0.1) * a + dtype(1),
            "reflected": dtype(1) / a - dtype(0.3),
            "bits": (a.view(bits) ^ b.view(bits)).view(dtype),
            "masks": np.where(less & ~negative | (b != b), a, b),
            "exclusive": np.where(less ^ negative, a, b),
        }
    for row, (name, values) in zip(out, expected.items(), strict=True):
        assert_same(row, values, name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs_of_nan_follow_the_bits(dtype: Any) -> None:
    quiet = np.array([np.nan, -np.nan] * 512, dtype)
    quiet[1::2] = np.copysign(quiet[1::2], dtype(-1))
    out = np.zeros((22, quiet.size), dtype)
    _float_operations(quiet, quiet, out.reshape(-1))
    np.testing.assert_array_equal(np.signbit(out[4]), ~np.signbit(quiet))
    assert not np.signbit(out[7]).any()
    np.testing.assert_array_equal(np.signbit(out[9]), np.signbit(quiet))
    np.testing.assert_array_equal(np.signbit(out[14]), np.signbit(quiet))


@kernel
def _fma(a: Any, b: Any, c: Any, out: Any) -> None:
    for i in range(0, a.size, simd.lanes(a)):
        simd.store(out, i, simd.fma(simd.load(a, i), simd.load(b, i), simd.load(c, i)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_once_or_twice(dtype: Any, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 1024)).astype(dtype)
    c = (-a * b * dtype(1 + 1e-5)).astype(dtype)
    out = np.empty_like(a)
    _fma(a, b, c, out)
    twice = a * b + c
    wide = np.longdouble if dtype is np.float64 else np.float64
    once = (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(dtype)
    tolerance = 1e-9 * np.abs(c) if dtype is np.float64 else np.zeros_like(c)
    assert np.all((out == twice) | (np.abs(out - once) <= tolerance))


@kernel
def _scale(a: Any, n: Any, out: Any) -> None:
    for i in range(0, a.size, simd.lanes(a)):
        simd.store(out, i, simd.scale_by_power(simd.load(a, i), simd.load(n, i)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_scaling_by_powers_rounds_once(dtype: Any, rng: np.random.Generator) -> None:
    most = 2000 if dtype is np.float64 else 250
    n = np.resize(np.arange(-most, most + 1), 2 * most + 16 - (2 * most) % 16)
    for _ in range(5):
        a = (rng.uniform(0.5, 2, n.size) * rng.choice([-1, 1], n.size)).astype(dtype)
        a[:3] = np.nan, 0.5, 2.0
        out = np.empty_like(a)
        _scale(a, n.astype(dtype), out)
        with np.errstate(all="ignore"):
            assert_same(out, np.ldexp(a, n).astype(dtype))


@kernel
def _eighths(n: Any, shift: Any, out: Any) -> None:
    for i in range(0, n.size, simd.lanes(n)):
        simd.store(out, i, simd.exp2_eighths(simd.load(n, i) + shift))


@pytest.mark.parametrize("dtype", FLOATS)
def test_eighths_of_powers_are_rounded(dtype: Any) -> None:
    info = np.finfo(dtype)
    first, last = 8 * int(info.minexp), 8 * int(info.maxexp) - 8
    n = np.arange(first - 8, last, dtype=dtype)  # whole vectors
    out = np.empty_like(n)
    _eighths(n, dtype(1.5 * 2.0**info.nmant), out)
    powers = np.exp2(np.arange(8) / 8).astype(dtype)
    assert_same(out[8:], np.ldexp(powers[np.arange(first, last) % 8], np.arange(first, last) // 8))
    assert out[0] == 0.0 and np.all(np.diff(out[:9]) > 0)


@kernel
def _integer_operations(a: Any, b: Any, out: Any) -> None:
    for i in range(0, a.size, simd.lanes(a)):
        x, y = simd.load(a, i), simd.load(b, i)
        simd.store(out, i, x + y)
        simd.store(out, i + a.size, x - y)
        simd.store(out, i + 2 * a.size, x * y)
        simd.store(out, i + 3 * a.size, x & y)
        simd.store(out, i + 4 * a.size, x | y)
        simd.store(out, i + 5 * a.size, x ^ y)
        simd.store(out, i + 6 * a.size, ~x)
        simd.store(out, i + 7 * a.size, x << 3)
        simd.store(out, i + 8 * a.size, x >> 3)
        simd.store(out, i + 9 * a.size, x >> (y & 15))
        simd.store(out, i + 10 * a.size, simd.minimum(x, y))
        simd.store(out, i + 11 * a.size, simd.maximum(x, y))
        simd.store(out, i + 12 * a.size, simd.select(x <= y, x, 5))
        simd.store(out, i + 13 * a.size, -x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations(dtype: Any, rng: np.random.Generator) -> None:
    ends = np.iinfo(dtype)
    a, b = rng.integers(ends.min, ends.max, (2, 64), dtype, endpoint=True)
    a[:4], b[:4] = [ends.min, ends.max, 0, 1], [ends.max, ends.max, ends.min, 0]
    out = np.zeros((14, 64), dtype)
    _integer_operations(a, b, out.reshape(-1))
    with np.errstate(all="ignore"):
        expected = [a + b, a - b, a * b, a & b, a | b, a ^ b, ~a, a << dtype(3), a >> dtype(3)]
        expected += [a >> (b & dtype(15)), np.minimum(a, b), np.maximum(a, b)]
        expected += [np.where(a <= b, a, dtype(5)), dtype(0) - a]
    for k, (row, values) in enumerate(zip(out, expected, strict=True)):
        assert_same(row, values, k)


@kernel
def _scalars(x: Any, y: Any) -> Any:
    bits = simd.from_bits(simd.to_bits(x))
    chosen = simd.select(simd.any_true(x < y), simd.round_even(x), y)
    extremes = simd.minimum(x, y) + 10.0 * simd.maximum(x, y)
    return simd.fma(x, y, x), simd.sqrt(simd.absolute(x)), bits, chosen, extremes


def test_scalars_are_taken_too() -> None:
    expected = (4.5, np.sqrt(1.5), 1.5, 2.0, 1.5 + 20.0)
    assert _scalars(1.5, 2.0) == pytest.approx(expected, rel=1e-15)
    assert _scalars(np.float32(1.5), np.float32(2.0)) == pytest.approx(expected, rel=1e-6)


@kernel
def _products(a: Any, by: Any, scalar: Any, upper: Any, lower: Any) -> None:
    simd.align_stack()
    for i in range(0, a.size, simd.lanes(a)):
        high, low = simd.multiply_wide(simd.load(a, i), by)
        simd.store(upper, i, high)
        simd.store(lower, i, low)
    high, low = simd.multiply_wide(scalar, simd.hold_scalar(by))
    upper[0] += high
    lower[0] += low


def test_whole_products(rng: np.random.Generator) -> None:
    top = 2**64 - 1
    a = rng.integers(0, top, 1024, np.uint64, endpoint=True)
    a[:6] = 0, 1, top, 2**52 - 1, 2**52, 2**32 - 1
    for by in (1, top, 2**52, 2**52 - 1, 2**63 + 1, 0xD2E7470EE14C6C93):
        halves = [divmod(int(v) * by, 2**64) for v in a]
        upper, lower = np.empty_like(a), np.empty_like(a)
        with wrapping():
            _products(a, np.uint64(by), a[2], upper, lower)
        for got, want in zip((upper, lower), np.array(halves, np.uint64).T, strict=True):
            assert got[0] == want[0] + want[2]
            np.testing.assert_array_equal(got[1:], want[1:])


@kernel
def _exponents(x: Any, out: Any) -> None:
    for i in range(0, x.size, simd.lanes(x)):
        simd.store(out, i, simd.exponent(simd.load(x, i)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponents_of_normal_numbers(dtype: Any, rng: np.random.Generator) -> None:
    limits = np.finfo(dtype)
    powers = np.arange(limits.minexp, limits.maxexp, max(1, limits.maxexp // 128))
    x = np.ldexp(rng.uniform(1.0, 2.0, 256).astype(dtype), np.resize(powers, 256))
    x[:4] = limits.tiny, limits.max, 1.0, np.nextafter(dtype(1), dtype(0))
    out = np.empty_like(x)
    _exponents(x, out)
    np.testing.assert_array_equal(out, np.frexp(x)[1].astype(dtype) - 1)


@kernel
def _conversions(a: Any, signed: Any, floats: Any, whole: Any) -> None:
    for i in range(0, a.size, 8):
        bits = simd.load(a, i)
        numbers = simd.to_float(simd.reinterpret(whole, bits))
        simd.store(floats, 2 * i, numbers * simd.hold(floats, 0.5))
        simd.store(floats, 2 * (a.size + i), simd.to_float(simd.reinterpret(signed, bits)))
        simd.store(whole, 2 * i, simd.reinterpret(whole, simd.reinterpret(0.0, bits)))


def test_halves_of_words_as_numbers(rng: np.random.Generator) -> None:
    words = rng.integers(0, 2**64 - 1, 64, np.uint64, endpoint=True)
    words[0] = 2**64 - 1
    floats, whole = np.empty(256, np.float32), np.empty(128, np.uint32)
    _conversions(words, np.empty(0, np.int32), floats, whole)
    np.testing.assert_array_equal(whole, words.view("<u4"))
    np.testing.assert_array_equal(floats[:128], words.view("<u4").astype(np.float32) * 0.5)
    np.testing.assert_array_equal(floats[128:], words.view("<i4").astype(np.float32))


# ---------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------


@kernel
def _partial(x: Any, index: int, count: int, fill: Any, out: Any, at: int) -> None:
    simd.store_partial(out, at, simd.load_partial(x, index, count, fill), count)


@settings(max_examples=50)
@given(st.sampled_from([*FLOATS, *INTEGERS]), st.integers(0, 20), st.integers(-2, 20))
def test_partial_access_touches_the_first_lanes_alone(dtype: Any, at: int, count: int) -> None:
    width = 64 // np.dtype(dtype).itemsize
    within = min(max(count, 0), width)
    x = np.arange(1, at + within + 1).astype(dtype)  # ends where the access must end
    out = np.zeros(at + width, dtype)
    _partial(x, at, count, 77, out, at)
    expected = np.zeros_like(out)
    expected[at : at + within] = x[at:]
    assert_same(out, expected)


@kernel
def _indexed(x: Any, indices: Any, out: Any) -> None:
    width = simd.lanes(x)
    v = simd.load_at(x, indices, 1)
    simd.store(out, 0, v)
    simd.store_at(out, indices, width + 1, v)
    simd.add_products_at(out, indices, 2 * width + 1, v, simd.load(x, 1))


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_at_indices(dtype: Any, kind: Any, rng: np.random.Generator) -> None:
    """Indices may occur more than once: each product is added to what the one before has left."""
    width = 64 // np.dtype(dtype).itemsize
    x = rng.integers(-9, 9, 70_000).astype(dtype)
    indices = np.zeros(3 * width + 1, kind)
    indices[1 : width + 1] = rng.integers(0, np.iinfo(np.uint16).max, width, endpoint=True)
    indices[width] = 65_535 if kind == np.uint16 else 69_999
    indices[width + 1 : 2 * width + 1] = width + rng.permutation(2 * width)[:width]
    indices[2 * width + 1 :] = width + rng.integers(0, 3, width)
    out = np.full(3 * width, 0.5, dtype)
    _indexed(x, indices, out)
    v = x[indices[1 : width + 1]]
    expected = np.full(3 * width, 0.5, dtype)
    expected[:width] = v
    expected[indices[width + 1 : 2 * width + 1]] = v
    np.add.at(expected, indices[2 * width + 1 :], v * x[1 : width + 1])
    assert_same(out, expected)


@kernel
def _masked(x: Any, out: Any) -> None:
    v = simd.load(x, 0)
    width = simd.lanes(x)
    simd.store(out, 0, simd.load_partial(x, 0, 3, 5.0))
    simd.store(out, width, simd.select(simd.first_lanes(x, 2), v, 0.0))
    simd.store(out, 2 * width, simd.with_lane(simd.iota(v), 1, simd.lane(v, 3)))
    index = simd.to_bits(v) & (width - 1)
    simd.store(out, 3 * width, simd.gather(x, index))
    simd.store(out, 4 * width, simd.splat(v, 3) + simd.splat(x, 0.1))
    simd.store(out, 5 * width, simd.add_where(v > 0.0, simd.absolute(v), 2.0))
    simd.store(out, 6 * width, simd.load(simd.flat_view(x), width))
    simd.prefetch(x, 10_000)
    simd.prefetch_second(x, 10_000)


@pytest.mark.parametrize("dtype", FLOATS)
def test_masks_lanes_and_gather(dtype: Any, rng: np.random.Generator) -> None:
    width = 64 // np.dtype(dtype).itemsize
    x = rng.normal(size=2 * width).astype(dtype)
    out = np.full((7, width), 8.0, dtype)
    _masked(x, out)
    v = x[:width]
    index = v.view(f"i{v.itemsize}") & (width - 1)
    numbered = np.arange(width).astype(dtype)
    numbered[1] = v[3]
    lanes = np.arange(width)
    expected = [
        np.where(lanes < 3, v, dtype(5)),
        np.where(lanes < 2, v, dtype(0)),
        numbered,
        x[index],
        np.full(width, dtype(3) + dtype(0.1)),
        np.where(v > 0, np.abs(v) + dtype(2), np.abs(v)),
        x[width:],
    ]
    for k, (row, values) in enumerate(zip(out, expected, strict=True)):
        assert_same(row, values, k)


@kernel
def _piece_by_piece(x: Any, given: Any, out: Any) -> int:
    """out[0] x + 0.5, and x, piece by piece; a tenth of `given`; how many pieces there were."""
    width, count, half = simd.lanes(out), 0, simd.piece(simd.splat(out, 0.5), 0)
    for k in range(0, width, simd.piece_lanes(out)):
        v = simd.load_as(x, k, half)
        first = simd.piece(simd.load_each(out, 0), 0)
        simd.store(out, width + k, simd.fma(v, first, half))
        simd.store(out, 2 * width + k, v)
        count += 1
    simd.store(out, 3 * width, simd.load(given, 0) * simd.keep(out, 0.1))
    return count


@pytest.mark.parametrize("pair", [(np.float64,) * 2, (np.float32,) * 2, (np.float32, np.float64)])
def test_vectors_are_taken_in_pieces(pair: Any, rng: np.random.Generator) -> None:
    source, dtype = pair
    width = 64 // np.dtype(dtype).itemsize
    x = rng.integers(-9, 9, 16).astype(source)
    out = np.zeros((4, width), dtype)
    out[0, 0] = 0.25
    name, _, features = cpu_target.target_context.codegen().magic_tuple()
    present = (features or "").split(",")
    pieces = 1 if "+avx512f" in present else 2 if "+avx" in present else 4
    if JIT_DISABLED or not name.startswith(("x86_64", "i686", "i386")):
        pieces = 2
    assert _piece_by_piece(x, x.astype(dtype), out) == pieces
    part = x[:width].astype(dtype)
    assert_same(out[1], part * dtype(0.25) + dtype(0.5))
    assert_same(out[2], part)
    assert_same(out[3], part * dtype(0.1))


@kernel
def _in_pieces(x: Any, apart: int, out: Any, memory: Any, count: Any) -> None:
    width, every = simd.lanes(x), simd.pieces(x)
    count[0] = every
    v = simd.load(x, 0)
    w = v
    for k in range(every):
        part = simd.piece(v, k)
        place = k * simd.lanes(part)
        simd.store(out, place, simd.load_as(x, place, part) - 1)
        # Some lanes of a piece, and pieces put in their places one by one.
        simd.store_partial(out, width + place, part, 1)
        w = simd.with_piece(w, k, simd.splat(part, 2.0) * part)
    simd.store(out, 2 * width, w)
    simd.store_pieces(memory, 0, apart, v)
    simd.store(out, 3 * width, simd.load_pieces(memory, 0, apart))
    # What is counted, and NaN for which the other number is taken.
    high = v > 0.5
    n = simd.counts_from(v)
    n = simd.count_where(high, simd.count_where(v > 0.0, n))
    simd.store(out, 4 * width, n - simd.counts_from(x))
    simd.store(out, 5 * width, simd.maximum(simd.nan_where(high, v), simd.splat(v, 0.25)))
    simd.store(out, 6 * width, simd.nan_where(high, v))
    simd.store(out, 7 * width, simd.minimum_where(high, v, simd.splat(v, 0.75)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_pieces_counts_and_nan(dtype: Any, rng: np.random.Generator) -> None:
    width = 64 // np.dtype(dtype).itemsize
    x = rng.uniform(-1, 1, size=width).astype(dtype)
    apart, count = 3 * width, np.zeros(1, np.int64)
    memory = np.zeros(4 * apart + 64, dtype)
    memory = memory[-memory.ctypes.data % 64 // memory.itemsize :]
    out = np.full((8, width), 8.0, dtype)
    _in_pieces(x, apart, out, memory, count)
    every = int(count[0])
    assert every in (1, 2, 4)
    part = width // every
    first = np.arange(width) % part == 0
    expected = [
        x - 1,
        np.where(first, x, dtype(8)),
        2 * x,
        x,
        (x > 0).astype(dtype) + (x > 0.5),
        np.where((x > 0.5) | (x < 0.25), dtype(0.25), x),
        np.where(x > 0.5, dtype(np.nan), x),
        np.where((x > 0.5) & (x < 0.75), x, dtype(0.75)),
    ]
    for k, (row, values) in enumerate(zip(out, expected, strict=True)):
        assert_same(row, values, k)
    for k in range(every):
        piece = x[k * part : (k + 1) * part]
        np.testing.assert_array_equal(memory[k * apart : k * apart + part], piece)


@kernel
def _aligned(x: Any, out: Any, start: int) -> None:
    simd.store_aligned(out, start, simd.load(x, start) + 1)


def test_aligned_access() -> None:
    x, out = np.arange(24.0), np.zeros(32)
    start = -x.ctypes.data % 64 // 8
    out = out[(x.ctypes.data - out.ctypes.data) % 64 // 8 :]
    _aligned(x, out, start)
    np.testing.assert_array_equal(out[start : start + 8], x[start : start + 8] + 1)


@kernel
def _transposes(x: Any, stride: int, out: Any) -> None:
    columns = simd.load_transposed(x, 1, stride)
    for i in range(simd.lanes(x)):
        simd.store_partial(out, i * simd.lanes(x), columns[i], simd.lanes(x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_transposed_blocks(dtype: Any, rng: np.random.Generator) -> None:
    width = 64 // np.dtype(dtype).itemsize
    x = rng.normal(size=(width, width + 3)).astype(dtype)
    out = np.zeros((width, width), dtype)
    _transposes(x, width + 3, out)
    assert_same(out, np.ascontiguousarray(x[:, 1 : width + 1].T))


@kernel
def _of_bytes(held: Any, words: Any, moved: Any, out: Any) -> None:
    width = simd.lanes(out)
    for part in range(0, width, simd.piece_lanes(out)):
        like = simd.piece(simd.splat(out, 0.0), 0)
        simd.store(out, part, simd.load_bytes(held, 3 + part, like))
        simd.store(out, width + part, simd.load_floats(held, 5 + 4 * part, like))
    simd.store(out, 2 * width, simd.load_bytes(held, 3, out))
    v = simd.load(words, 0)
    simd.store(moved, 0, simd.transpose_bytes(v))
    simd.store(moved, width, simd.transpose_floats(v))
    simd.store(moved, 2 * width, simd.subtract_bytes(v, simd.load(words, width)))


def test_numbers_from_bytes(rng: np.random.Generator) -> None:
    held = rng.integers(-128, 128, 64).astype(np.int8)
    floats = rng.normal(size=8).astype(np.float32)
    given = held.copy()
    given[5:37] = floats.view(np.int8)
    words = rng.integers(0, 2**64, 16, np.uint64)
    moved, out = np.empty((3, 8), np.uint64), np.empty((3, 8))
    _of_bytes(given, words, moved, out)
    assert_same(out[1], floats.astype(np.float64))
    for row in (out[0], out[2]):
        assert_same(row, given[3:11].astype(np.float64))
    for row, part in ((moved[0], np.uint8), (moved[1], np.uint32)):
        parts = words[:8].view(part).reshape(8, -1)
        np.testing.assert_array_equal(row.view(part), parts.T.ravel())
    wanted = words[:8].view(np.uint8) - words[8:].view(np.uint8)
    np.testing.assert_array_equal(moved[2].view(np.uint8), wanted)


@kernel
def _widened(x: Any, out: Any) -> None:
    low, high = simd.widen(simd.load(x, 0))
    simd.store(out, 0, simd.narrow(low / 3.0, high / 3.0))


def test_widening_keeps_the_lanes_in_order() -> None:
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    _widened(x, out)
    assert_same(out, (x.astype(np.float64) / 3.0).astype(np.float32))


# ---------------------------------------------------------------------------------
# Across lanes
# ---------------------------------------------------------------------------------


@kernel
def _across(x: Any, out: Any, counts: Any) -> None:
    v = simd.load(x, 0)
    out[0] = simd.horizontal_sum(v)
    mask = v > 0
    counts[0] = simd.count_true(mask)
    counts[1] = simd.any_true(mask)
    counts[2] = simd.all_true(mask)


def _halving_sum(x: np.ndarray) -> Any:
    while x.size > 1:
        x = x[: x.size // 2] + x[x.size // 2 :]
    return x[0]


@settings(max_examples=60)
@given(st.sampled_from([*FLOATS, *INTEGERS]), st.integers(0, 2**32), st.sampled_from([-9, 0, 9]))
def test_reductions_and_counts(dtype: Any, seed: int, shift: int) -> None:
    width = 64 // np.dtype(dtype).itemsize
    x = (np.random.default_rng(seed).normal(size=width) * 3 + shift).astype(np.float64)
    x = x.astype(dtype) if dtype in FLOATS else x.astype(np.int64).astype(dtype)
    out, counts = np.zeros(1, dtype), np.zeros(3, np.int64)
    _across(x, out, counts)
    assert_same(out, np.array([_halving_sum(x)], dtype))
    positive = x > 0
    assert counts.tolist() == [positive.sum(), positive.any(), positive.all()]


# ---------------------------------------------------------------------------------
# In compiled code
# ---------------------------------------------------------------------------------


@device
def _block(x: Any, out: Any, i: int) -> None:
    simd.store(out, i, 0.5 * simd.load(x, i))


@parallel_kernel
def _in_parallel(x: Any, out: Any) -> None:
    for block in numba.prange(x.size // simd.lanes(x)):
        _block(x, out, block * simd.lanes(x))


def test_vectors_work_inside_prange() -> None:
    x = np.arange(160, dtype=np.float32)
    x.flags.writeable = False
    out = np.zeros_like(x)
    _in_parallel(x, out)
    assert_same(out, x / np.float32(2))


@kernel
def _store_one(x: Any, i: int) -> None:
    simd.store(x, i, simd.splat(x, 1.0))


REFUSED = {
    "layout": np.zeros((32, 2))[:, 0],
    "dtype": np.zeros(32, np.complex128),
    "mutability": np.frombuffer(bytes(256)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_arrays_that_vectors_cannot_use_are_refused(why: str) -> None:
    with pytest.raises((numba.TypingError, TypeError, ValueError)):
        _store_one(REFUSED[why], 0)


BEYOND = """
import numpy as np, pytest
from fedepm_fast.kernels import _simd as simd
from fedepm_fast.kernels._jit import kernel

@kernel
def copy(x, i, out):
    simd.store(out, 0, simd.load(x, i))

x, out = np.arange(10.0), np.zeros(8)
copy(x, 2, out)
assert out.tolist() == x[2:].tolist()
for i in (3, -1):
    with pytest.raises(IndexError, match="beyond the array"):
        copy(x, i, out)
"""


@pytest.mark.parametrize("setting", ["NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"])
def test_accesses_are_checked_on_request(setting: str) -> None:
    subprocess.run([sys.executable, "-c", BEYOND], env=os.environ | {setting: "1"}, check=True)


ASSEMBLY = """
import numba
from fedepm_fast.kernels import _simd as simd
from fedepm_fast.kernels import vecmath
from fedepm_fast.kernels._jit import _OPTIONS

@numba.njit(**_OPTIONS)
def work(x, out):
    for i in range(0, x.size, simd.lanes(x)):
        v = simd.load(x, i)
        w = simd.fma(v, v, v) + simd.round_even(v)
        simd.store(out, i, vecmath.vector_log1p(vecmath.vector_exp(w)))

array = numba.types.Array(numba.FLOAT, 1, "C")
work.compile((array, array))
print(work.inspect_asm((array, array)))
"""

AVX2 = "+avx2,+fma,+avx,+sse4.2,+sse4.1,+popcnt"
X86 = {
    "generic": ({"NUMBA_CPU_NAME": "generic"}, "%xmm", ["%ymm", "%zmm", "vfmadd"]),
    "avx2": (
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2},
        "%ymm",
        ["%zmm"],
    ),
    "avx512": (
        {
            "NUMBA_CPU_NAME": "skylake-avx512",
            "NUMBA_CPU_FEATURES": f"{AVX2},+avx512f,+avx512dq,+avx512vl,+avx512bw",
        },
        "%zmm",
        [],
    ),
}


@pytest.mark.skipif(JIT_DISABLED, reason="there is no machine code")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 registers")
@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("target", X86)
def test_machine_code_uses_whole_registers_and_no_library(target: str, kind: str) -> None:
    environment, used, unused = X86[target]
    program = ASSEMBLY.replace("FLOAT", kind)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code = done.stdout.lower()
    assert code.count(used) > 20
    if target != "generic":
        assert "vfmadd" in code
    for name in [*unused, "$fma", "$rint", "$nearbyint", "$exp", "$log", "$ldexp"]:
        assert name not in code, name


#: As plain Python all tests of the kernels run in a job of their own, see ``.ci/run``.
TARGETS = {"generic": {"NUMBA_CPU_NAME": "generic"}}
if platform.machine() in ("x86_64", "AMD64"):
    features = numba.core.codegen.get_host_cpu_features().split(",")
    if set(AVX2.split(",")) <= set(features):
        TARGETS["avx2"] = X86["avx2"][0]


@pytest.mark.skipif(JIT_DISABLED, reason="there is no machine code")
@pytest.mark.parametrize("target", TARGETS)
def test_all_of_this_on_other_targets(target: str) -> None:
    here = os.path.dirname(__file__)
    files = [os.path.join(here, name) for name in ("test_simd.py", "test_vecmath.py")]
    chosen = ["-k", "not targets and not machine_code and not on_request"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *chosen, *files],
        env=os.environ | TARGETS[target],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
