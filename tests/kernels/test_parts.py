"""Slices and named tuples of compiled code are those of NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedepm_fast.kernels._jit import JIT_DISABLED, kernel
from fedepm_fast.kernels._parts import as_named, fill, part, room, scratch


class Pair(NamedTuple):
    left: float
    right: float


@kernel
def _part(array, first, last):
    return part(array, first, last)


@kernel
def _filled(first, last):
    array = np.zeros(7)
    fill(part(array, first, last), 2.5)
    return array


@kernel
def _made(like, count):
    array = room(like, count)
    fill(array, 1.5)
    return array


@kernel
def _jotted(numbers):
    """Sums of numbers and of those before them, by room that two calls have each of its own."""
    first, second = scratch(numbers), scratch(numbers)
    for i in range(numbers.size):
        first[i], second[i + 1] = numbers[i], numbers[i]
    for i in range(numbers.size):
        numbers[i] = first[i] + second[i]
    return first[numbers.size :].sum() + second[numbers.size + 1 :].sum()


@kernel
def _named(values):
    pair = as_named(values, Pair)
    return pair.right - pair.left


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 3)])
@pytest.mark.parametrize(("first", "last"), [(0, 7), (2, 5), (3, 3), (7, 7)])
def test_part(shape, first, last):
    array = np.arange(float(np.prod(shape))).reshape(shape)
    found = _part(array, first, last)
    assert_array_equal(found, array[first:last])
    assert found.strides == array.strides and found.flags.c_contiguous
    assert last == first or np.shares_memory(found, array)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
def test_scratch_is_room_of_zeros_for_each_call(dtype):
    for _ in range(2):
        numbers = np.arange(1, 101).astype(dtype)
        assert _jotted(numbers) == 0
        assert_array_equal(numbers, np.arange(1, 101) * 2 - 1)


def test_part_keeps_what_it_is_of():
    found = _part(np.arange(1e5), 10, 20)  # nothing else holds that array
    np.zeros(100_000).fill(-1.0)
    assert_array_equal(found, np.arange(10.0, 20.0))


def test_fill_and_named():
    assert_array_equal(_filled(2, 4), [0, 0, 2.5, 2.5, 0, 0, 0])
    assert _named(np.array([1.0, 3.5])) == 2.5


@pytest.mark.skipif(JIT_DISABLED, reason="NumPy slices anything")
def test_other_arrays_are_refused():
    with pytest.raises(Exception, match=r"part\(\) takes C-contiguous arrays"):
        _part(np.zeros((4, 4)).T, 0, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_room_is_an_array_of_its_own_at_a_cache_line(dtype):
    kept = [_made(np.empty(2, dtype), count) for count in (0, 5, 1000)]
    assert [array.size for array in kept] == [0, 5, 1000]
    for array in kept:
        assert array.dtype == dtype and array[:1].ctypes.data % 64 * array.size == 0
        assert_array_equal(array, np.full(array.size, 1.5, dtype))
