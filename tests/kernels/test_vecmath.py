"""Vector exp, log, log1p, sigmoid and softplus against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedepm_fast.kernels import _simd as simd
from fedepm_fast.kernels import vecmath
from fedepm_fast.kernels._jit import kernel

FLOATS = [np.float64, np.float32]

# The function, mpmath's own of an exact argument, and the error that is promised, in ulp.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "exp": (vecmath.exp, mp.exp, 0.95),
    "log": (vecmath.log, mp.log, 0.9),
    "log1p": (vecmath.log1p, mp.log1p, 1.4),
    "sigmoid": (vecmath.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), 2.5),
    "softplus": (vecmath.softplus, lambda x: mp.log1p(mp.exp(x)), 1.7),
}


def ulps(got: np.ndarray, exact: list[Any]) -> float:
    """The largest error, in units of the last place of the exact value."""
    info = np.finfo(got.dtype)
    worst = mp.mpf(0)
    for value, reference in zip(got.tolist(), exact, strict=True):
        exponent = max(mp.frexp(reference)[1] - 1, int(info.minexp))
        worst = max(worst, abs(mp.mpf(value) - reference) / mp.ldexp(1, exponent - info.nmant))
    return float(worst)


def arguments(name: str, dtype: Any, rng: np.random.Generator) -> np.ndarray:
    """Points over the whole range where the result is finite, dense where it is delicate."""
    info = np.finfo(dtype)
    low, high = (-745.1, 709.7) if dtype is np.float64 else (-103.9, 88.7)
    size = 400
    spread = rng.choice([-1, 1], size) * 2.0 ** rng.uniform(info.minexp, 1, size)
    if name == "log":
        tiny = np.ldexp(rng.uniform(0.5, 1, size), rng.integers(info.minexp - 20, info.minexp))
        wide = 2.0 ** rng.uniform(info.minexp, info.maxexp, size)
        parts = [tiny, wide, rng.uniform(0.5, 2, size), 1 + spread[np.abs(spread) < 0.5]]
    elif name == "log1p":
        wide = 2.0 ** rng.uniform(0, info.maxexp, size)
        near = -1 + 2.0 ** rng.uniform(-info.nmant, 0, size)
        parts = [spread[spread > -1], wide, near, rng.uniform(-0.9, 4, size)]
    else:
        parts = [rng.uniform(low, high, size), rng.normal(size=size) * 4, spread]
    x = np.concatenate(parts).astype(dtype)
    return x[x > (-1 if name == "log1p" else 0)] if name.startswith("log") else x


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_within_the_promise(name: str, dtype: Any, rng: np.random.Generator) -> None:
    function, reference, promised = FUNCTIONS[name]
    x = arguments(name, dtype, rng)
    got = function(x)
    assert got.dtype == dtype
    with mp.workdps(40):
        assert ulps(got, [reference(mp.mpf(v)) for v in x.tolist()]) <= promised


INF, NAN = np.inf, np.nan
# Argument and result; "max", "tiny", "least" stand for the dtype's own.
SPECIAL: dict[str, list[tuple[Any, Any]]] = {
    "exp": [
        (0.0, 1.0),
        (-0.0, 1.0),
        (INF, INF),
        (-INF, 0.0),
        ("max", INF),
        ("-max", 0.0),
        ("least", 1.0),
        ("-least", 1.0),
        (710.0, INF),
        (-746.0, 0.0),
    ],
    "log": [
        (0.0, -INF),
        (-0.0, -INF),
        (1.0, 0.0),
        (INF, INF),
        (-INF, NAN),
        (-1.0, NAN),
        ("-least", NAN),
        ("-max", NAN),
    ],
    "log1p": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INF),
        (-1.5, NAN),
        (INF, INF),
        (-INF, NAN),
        ("least", "least"),
        ("-least", "-least"),
        ("tiny", "tiny"),
        ("-max", NAN),
    ],
    "sigmoid": [
        (0.0, 0.5),
        (-0.0, 0.5),
        (INF, 1.0),
        (-INF, 0.0),
        ("max", 1.0),
        ("-max", 0.0),
        ("least", 0.5),
    ],
    "softplus": [(INF, INF), (-INF, 0.0), ("max", "max"), ("-max", 0.0), (1000.0, 1000.0)],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: Any) -> None:
    info = np.finfo(dtype)
    own = {"max": info.max, "tiny": info.tiny, "least": info.smallest_subnormal}

    def value(what: Any) -> Any:
        if isinstance(what, str):
            return -own[what[1:]] if what.startswith("-") else own[what]
        return dtype(what)

    cases = [*SPECIAL[name], (NAN, NAN)]
    x = np.array([value(a) for a, _ in cases], dtype)
    expected = np.array([value(b) for _, b in cases], dtype)
    got = FUNCTIONS[name][0](x)
    np.testing.assert_array_equal(got, expected)
    number = expected == expected
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=2, max_side=21, min_side=0))
    ),
)
def test_an_element_does_not_depend_on_its_neighbours(name: str, x: np.ndarray) -> None:
    function = FUNCTIONS[name][0]
    whole = function(x)
    assert whole.shape == x.shape and whole.dtype == x.dtype
    alone = np.array([function(v) for v in x.ravel()], x.dtype).reshape(x.shape)
    np.testing.assert_array_equal(whole, alone)
    in_place = x.copy()
    assert function(in_place, out=in_place) is in_place
    np.testing.assert_array_equal(in_place, whole)


@kernel
def _in_kernel(x: Any, out: Any) -> None:
    v, width = simd.load(x, 0), simd.lanes(x)
    simd.store(out, 0, vecmath.vector_log1p_unit(v))
    simd.store(out, width, vecmath.vector_exp_negative(-v))
    simd.store(out, 2 * width, vecmath.vector_log_normal(v + 1.0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_device_functions(dtype: Any, rng: np.random.Generator) -> None:
    width = 64 // np.dtype(dtype).itemsize
    x = rng.uniform(0, 1, width).astype(dtype)
    x[:3] = 0, 1, np.sqrt(2) - 1
    out = np.zeros((3, width), dtype)
    _in_kernel(x, out.reshape(-1))
    with mp.workdps(40):
        assert ulps(out[0], [mp.log1p(v) for v in x.tolist()]) <= 1.4
        assert ulps(out[1], [mp.exp(-v) for v in x.tolist()]) <= 1.1
    np.testing.assert_array_equal(out[2], vecmath.log(x + dtype(1.0)))


@kernel
def _exp_negative(x: Any, out: Any) -> None:
    for i in range(0, x.size, simd.lanes(x)):
        simd.store(out, i, vecmath.vector_exp_negative(simd.load(x, i)))


@kernel
def _fma_of_ones(x: Any, out: Any) -> None:
    """(1 + e)(1 - e) - 1 of e in `x`: -e**2, or 0 if it is rounded twice."""
    v = simd.load(x, 0)
    simd.store(out, 0, simd.fma(1.0 + v, 1.0 - v, simd.splat(x, -1.0)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_of_numbers_down_to_the_least_normal_result(
    dtype: Any, rng: np.random.Generator
) -> None:
    fused = np.zeros(64 // np.dtype(dtype).itemsize, dtype)
    _fma_of_ones(np.full_like(fused, 2 * np.finfo(dtype).eps), fused)
    low, size = float(np.log(np.finfo(dtype).tiny)), 4000
    near = rng.uniform(0.99999 * low, low + 4, size).astype(dtype)
    found = {-707.3154574373766: np.float64, -86.36449432373047: np.float32}  # 1.246 and 1.106
    near[: len(found)] = [x if kind is dtype else low + 1 for x, kind in found.items()]
    out = np.empty_like(near)
    _exp_negative(near, out)
    with mp.workdps(40):
        error = ulps(out, [mp.exp(mp.mpf(v)) for v in near.tolist()])
    assert error <= (1.1 if fused.all() else 1.3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_of_negative_numbers(dtype: Any, rng: np.random.Generator) -> None:
    least, size = np.finfo(dtype).tiny, 800
    low = 0.9999 * float(np.log(least))
    x = np.concatenate([rng.uniform(low, 0, size), -rng.exponential(size=size)]).astype(dtype)
    beyond = np.linspace(low, 1.1 * low, size, dtype=dtype)
    ends = np.array([-np.inf, -np.finfo(dtype).max, 0.0, -0.0, -least, np.nan], dtype)
    whole = np.concatenate([x, beyond, ends, np.zeros(10, dtype)])
    out = np.empty_like(whole)
    _exp_negative(whole, out)
    with mp.workdps(40):
        assert ulps(out[: x.size], [mp.exp(mp.mpf(v)) for v in x.tolist()]) <= 1.1
    below = out[x.size : -16]
    assert np.all(np.diff(below) <= 0) and np.all(below[-size // 2 :] == 0)
    assert np.all(np.abs(below - vecmath.exp(beyond)) < least)
    np.testing.assert_array_equal(out[-16:-10], np.array([0, 0, 1, 1, 1, np.nan], dtype))


def test_inputs_are_coerced_and_shapes_kept() -> None:
    assert vecmath.exp(0) == 1.0 and isinstance(vecmath.exp(0), np.float64)
    assert isinstance(vecmath.exp(np.float32(0)), np.float32)
    np.testing.assert_array_equal(vecmath.log([1, 1]), [0.0, 0.0])
    x = np.arange(1.0, 13.0).reshape(3, 4)
    np.testing.assert_array_equal(vecmath.log(x.T), vecmath.log(x).T)
    np.testing.assert_array_equal(vecmath.log(x[:, ::2]), vecmath.log(x)[:, ::2])
    overlapping = np.arange(1.0, 30.0)
    expected = vecmath.log(overlapping[:-1])
    vecmath.log(overlapping[:-1], out=overlapping[1:])
    np.testing.assert_array_equal(overlapping[1:], expected)


def _read_only(n: int) -> np.ndarray:
    x = np.zeros(n)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("x", "out", "error", "words"),
    [
        (np.zeros(3, complex), None, TypeError, "x must be"),
        (["a"], None, TypeError, "x must be"),
        (np.zeros(3), np.zeros(4), ValueError, "out must have shape"),
        (np.zeros(3), np.zeros(3, np.float32), TypeError, "out must be"),
        (np.zeros(3), [0.0] * 3, TypeError, "out must be"),
        (np.zeros(3), np.zeros(6)[::2], ValueError, "out must be C-contiguous"),
        (np.zeros(3), _read_only(3), ValueError, "out must be C-contiguous and writ"),
    ],
)
def test_bad_arguments_are_named(x: Any, out: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        vecmath.exp(x, out=out)
