"""Loops, items and extremes in compiled code: as in Python, whatever is lowered for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast.kernels._jit import JIT_DISABLED, brief_kernel, kernel

small = st.integers(-9, 9)
items = st.integers(-5, 4)  # of an array of five, from both ends


@kernel
def _up(start, stop, out):
    k = 0
    for i in range(start, stop):
        out[k] = i
        k += 1
    return k


@kernel
def _by_three(start, stop, out):
    k = 0
    for i in range(start, stop, 3):
        out[k] = i
        k += 1
    return k


@brief_kernel
def _by(start, stop, step, out):
    k = 0
    for i in range(start, stop, step):
        if i == 7:
            continue
        if i == 8:
            break
        out[k] = i
        k += 1
    return k


@kernel
def _twice(rows, out):
    """Loops within loops, and a range that has a name."""
    k = 0
    again = range(rows)
    for _ in again:
        for j in range(len(again)):
            for i in range(j):
                out[k] = i
                k += 1
    return k


@kernel
def _exchange(array, i, j):
    array[i], array[j] = array[j], array[i]


@kernel
def _in_table(table, i, j, value):
    table[i, j] += value
    table[0, 0] = table[-1, -1]
    return table[i, j]


@kernel
def _of_no_axis(array, value):
    """The item of an array without axes, which an empty tuple names."""
    before = array[()]
    array[()] = value
    return before


@kernel
def _extremes(a, b):
    return min(a, b), max(a, b)


@given(small, small)
@settings(deadline=None)
def test_ranges_are_those_of_python(start, stop):
    for compiled, step in ((_up, 1), (_by_three, 3)):
        out = np.full(32, -99)
        expected = list(range(start, stop, step))
        assert compiled(start, stop, out) == len(expected)
        assert out.tolist() == expected + [-99] * (32 - len(expected))


@given(small, small, small.filter(bool))
@settings(deadline=None)
def test_steps_that_are_known_at_run_time_alone(start, stop, step):
    out = np.full(32, -99)
    expected = []
    for i in range(start, stop, step):
        if i == 8:
            break
        expected += [i] if i != 7 else []
    assert _by(start, stop, step, out) == len(expected)
    assert out.tolist()[: len(expected)] == expected


def test_loops_begin_anew():
    out = np.zeros(64, np.int64)
    expected = [i for _ in range(4) for j in range(4) for i in range(j)]
    assert _twice(4, out) == len(expected)
    assert out[: len(expected)].tolist() == expected


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
@given(items, items)
@settings(deadline=None, max_examples=20)
def test_items_count_from_both_ends(dtype, i, j):
    array = np.arange(5).astype(dtype)
    expected = array.copy()
    expected[i], expected[j] = array[j], array[i]
    _exchange(array, i, j)
    assert array.tolist() == expected.tolist()


@given(items, st.integers(-3, 2))
@settings(deadline=None, max_examples=20)
def test_items_of_tables(i, j):
    table = np.arange(15.0).reshape(5, 3)
    expected = table.copy()
    expected[i, j] += 0.5
    expected[0, 0] = expected[-1, -1]
    assert _in_table(table, i, j, 0.5) == expected[i, j]
    assert table.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_the_item_of_an_array_without_axes(dtype):
    array = np.array(1, dtype)
    assert _of_no_axis(array, 0.0) == 1
    assert array == 0


def test_unsigned_indices():
    array = np.arange(5.0)
    _exchange(array, np.uint64(0), np.uint64(4))
    assert array.tolist() == [4.0, 1.0, 2.0, 3.0, 0.0]


@pytest.mark.parametrize("a", [0.0, -0.0, 1.5, math.inf, math.nan])
@pytest.mark.parametrize("b", [0.0, -0.0, -2.5, -math.inf, math.nan])
def test_extremes_are_those_of_python_for_what_compares_with_nothing(a, b):
    for found, expected in zip(_extremes(a, b), (min(a, b), max(a, b)), strict=True):
        assert np.array(found).tobytes() == np.array(expected).tobytes()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (3, -4),
        (-4, 3),
        (2, 2.5),
        (np.int32(-7), 7),
        (np.uint64(2**63 + 5), np.uint64(4)),
        (np.float32(0.1), np.float32(0.2)),
    ],
)
def test_extremes_of_numbers(a, b):
    assert _extremes(a, b) == (min(a, b), max(a, b))


@pytest.mark.skipif(JIT_DISABLED, reason="there is nothing compiled")
def test_what_is_compiled_keeps_the_type():
    found = _extremes.overloads
    _extremes(np.float32(1), np.float32(2))
    (of,) = [sig for sig in found if str(sig[0]) == "float32"]
    assert str(found[of].signature.return_type) == "UniTuple(float32 x 2)"
