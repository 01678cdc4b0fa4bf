"""NumPy twins of the vector operations, used with ``NUMBA_DISABLE_JIT=1``.

They make kernels run, slowly, as plain Python, for coverage and debugging. Same lanes,
same semantics; `fma` rounds twice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

_BYTES = 64
#: Two pieces a vector, as on most processors.
PIECE_BYTES = 32


class Vector:
    """Lanes in a NumPy array; a mask when the array is boolean."""

    # NumPy scalars must leave mixed operations to this class.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Vector({self.data!r})"

    def __bool__(self) -> bool:
        raise TypeError("a mask has no truth value: use any_true or all_true")

    def _binary(self, op: Callable[..., Any], other: Any, *, swap: bool = False) -> Any:
        if isinstance(other, Vector):
            if other.data.dtype != self.data.dtype or other.data.shape != self.data.shape:
                raise TypeError(f"vectors of {self.data.dtype} and {other.data.dtype} do not mix")
            right = other.data
        else:
            right = self.data.dtype.type(other)
        pair = (right, self.data) if swap else (self.data, right)
        with np.errstate(all="ignore"):
            return Vector(op(*pair))

    def __neg__(self) -> Any:
        return Vector(-self.data)

    def __invert__(self) -> Any:
        return Vector(~self.data)


def _attach(name: str, op: Callable[..., Any], *, reflected: bool = True) -> None:
    setattr(Vector, f"__{name}__", lambda self, other: self._binary(op, other))
    if reflected:
        setattr(Vector, f"__r{name}__", lambda self, other: self._binary(op, other, swap=True))


for _name in ("add", "sub", "mul", "truediv", "and", "or", "xor", "lshift", "rshift"):
    _attach(_name, getattr(operator, f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _attach(_name, getattr(operator, _name), reflected=False)


def _flat(array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise TypeError("vectors are loaded from and stored to C-contiguous arrays")
    return array.reshape(-1)


def _dtype(like):
    return like.data.dtype if isinstance(like, Vector) else np.asarray(like).dtype


def _count(dtype: np.dtype) -> int:
    if dtype.kind not in "fiu" or dtype.itemsize not in (4, 8):
        raise TypeError(f"there are no vectors of {dtype}")
    return _BYTES // dtype.itemsize


def _window(array: np.ndarray, index: int, count: int | None = None) -> np.ndarray:
    flat = _flat(array)
    end = index + (_count(array.dtype) if count is None else count)
    if index < 0 or end > flat.size:
        raise IndexError("vector access beyond the array")
    return flat[index:end]


def _unwrap(value):
    return value.data if isinstance(value, Vector) else value


def _apply(function: Callable[..., Any], *values: Any) -> Any:
    """`function` of the lanes, or of scalars."""
    with np.errstate(all="ignore"):
        result = function(*(_unwrap(value) for value in values))
    return Vector(result) if any(isinstance(value, Vector) for value in values) else result


def load(array: np.ndarray, index: int) -> Vector:
    return Vector(_window(array, index).copy())


def store(array: np.ndarray, index: int, value: Vector) -> None:
    if value.data.dtype != array.dtype:
        raise TypeError(f"a vector of {value.data.dtype} does not fit an array of {array.dtype}")
    _window(array, index, value.data.size)[:] = value.data


store_aligned = store


def load_each(array: np.ndarray, index: int) -> Vector:
    return splat(array, _window(array, index, 1)[0])


def load_as(array: np.ndarray, index: int, like: Any) -> Vector:
    return Vector(_window(array, index, lanes(like)).astype(_dtype(like)))


def load_bytes(array: np.ndarray, index: int, like: Any) -> Vector:
    return Vector(_window(array, index, lanes(like)).astype(np.float64))


def load_floats(array: np.ndarray, index: int, like: Any) -> Vector:
    return Vector(_window(array, index, 4 * lanes(like)).view(np.float32).astype(np.float64))


def transpose_bytes(v: Vector) -> Vector:
    return _transposed(v, np.uint8)


def transpose_floats(v: Vector) -> Vector:
    return _transposed(v, np.uint32)


def _transposed(v: Vector, part: Any) -> Vector:
    parts = v.data.view(part).reshape(v.data.size, -1)
    return Vector(np.ascontiguousarray(parts.T).reshape(-1).view(np.uint64))


def subtract_bytes(a: Vector, b: Vector) -> Vector:
    return Vector((a.data.view(np.uint8) - b.data.view(np.uint8)).view(np.uint64))


def load_partial(array: np.ndarray, index: int, count: int, fill: Any) -> Vector:
    count = min(max(count, 0), _count(array.dtype))
    result = np.full(_count(array.dtype), fill, array.dtype)
    result[:count] = _window(array, index, count)
    return Vector(result)


def store_partial(array: np.ndarray, index: int, value: Vector, count: int) -> None:
    count = min(max(count, 0), value.data.size)
    _window(array, index, count)[:] = value.data[:count]


def gather(array: np.ndarray, index: Vector) -> Vector:
    return Vector(_flat(array)[index.data])


def load_at(array: np.ndarray, indices: np.ndarray, index: int) -> Vector:
    return Vector(_flat(array)[_window(indices, index, _count(array.dtype))])


def store_at(array: np.ndarray, indices: np.ndarray, index: int, value: Vector) -> None:
    for j, number in zip(_window(indices, index, value.data.size), value.data, strict=True):
        _flat(array)[j] = number


def add_products_at(
    array: np.ndarray, indices: np.ndarray, index: int, a: Vector, b: Vector
) -> None:
    for j, x, y in zip(_window(indices, index, a.data.size), a.data, b.data, strict=True):
        _flat(array)[j] = fma(x, y, _flat(array)[j])


def prefetch(array: np.ndarray, index: int) -> None:
    pass


prefetch_second = prefetch
flat_view = _flat


def splat(like, value):
    return Vector(np.full(lanes(like), value, _dtype(like)))


hold = keep = splat


def hold_scalar(value):
    return value


def lanes(like):
    return like.data.size if isinstance(like, Vector) else _count(_dtype(like))


def iota(like):
    dtype = _dtype(like)
    return Vector(np.arange(_count(dtype)).astype(dtype))


def lane(value: Vector, index: int) -> Any:
    return value.data[index]


def with_lane(value: Vector, index: int, scalar: Any) -> Vector:
    result = value.data.copy()
    result[index] = scalar
    return Vector(result)


def first_lanes(like: Any, count: int) -> Vector:
    return Vector(np.arange(lanes(like)) < count)


def fma(a, b, c):
    return _apply(lambda x, y, z: x * y + z, a, b, c)


absolute, sqrt = partial(_apply, np.abs), partial(_apply, np.sqrt)
round_even, copysign = partial(_apply, np.rint), partial(_apply, np.copysign)


def minimum(a, b):
    return select(a < b, a, b)


def maximum(a, b):
    return select(a > b, a, b)


def multiply_wide(a, b):
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    cross = a0 * b1 + ((a0 * b0) >> half)
    return a1 * b1 + (cross >> half) + ((a1 * b0 + (cross & low)) >> half), a * b


def has_limbs():
    return True


def scale_by_power(a, exponent):
    return _apply(lambda x, n: np.ldexp(x, np.nan_to_num(n).astype(np.int32)), a, exponent)


def exponent(a):
    return _apply(lambda x: np.frexp(x)[1].astype(x.dtype) - x.dtype.type(1), a)


def _eighths(fraction):
    """Bits of 2**(k/8) for k = 0, 1, ... 7, less those that k is in a fraction's upper ones."""
    powers = np.array(
        [
            1.0, 1.0905077326652577, 1.189207115002721, 1.2968395546510096, 1.4142135623730951,
            1.5422108254079407, 1.681792830507429, 1.8340080864093424,
        ],
        np.float64 if fraction == 52 else np.float32,
    )  # fmt: skip
    bits = powers.view(np.int64 if fraction == 52 else np.int32)
    return bits - (np.arange(8, dtype=bits.dtype) << (fraction - 3))


#: By the bits of a number.
EIGHTHS = {64: _eighths(52), 32: _eighths(23)}


def exp2_eighths(a):
    def powers(x):
        width, fraction = (64, 52) if x.dtype.itemsize == 8 else (32, 23)
        bits = x.view(EIGHTHS[width].dtype)
        return (EIGHTHS[width][bits & 7] + (bits << (fraction - 3))).view(x.dtype)

    return _apply(powers, a)


def to_bits(a):
    return _apply(lambda x: x.view(np.int64 if x.dtype.itemsize == 8 else np.int32), _scalar(a))


def from_bits(a):
    return _apply(lambda x: x.view(np.float64 if x.dtype.itemsize == 8 else np.float32), _scalar(a))


def _scalar(a):
    return a if isinstance(a, Vector) else np.asarray(a)[()]


def reinterpret(like: Any, a: Vector) -> Vector:
    return Vector(a.data.view(_dtype(like)))


def to_float(a: Vector) -> Vector:
    return Vector(a.data.astype(np.float32))


def widen(a: Vector) -> tuple[Vector, Vector]:
    wide = a.data.astype(np.float64)
    return Vector(wide[:8]), Vector(wide[8:])


def narrow(low: Vector, high: Vector) -> Vector:
    with np.errstate(all="ignore"):
        return Vector(np.concatenate((low.data, high.data)).astype(np.float32))


def add_where(mask, total, value):
    return select(mask, total + value, total)


def count_where(mask, count):
    return select(mask, count + 1.0, count)


def counts_from(like):
    return splat(like, 2.0 ** np.finfo(_dtype(like)).nmant)


def minimum_where(mask, a, b):
    return select(mask, minimum(a, b), b)


def nan_where(mask, a):
    return select(mask, np.nan, a)


def select(mask, a, b):
    if not isinstance(mask, Vector):
        return a if mask else b
    vector = a if isinstance(a, Vector) else b
    kind = vector.data.dtype
    left, right = (np.asarray(_unwrap(value), kind) for value in (a, b))
    return Vector(np.where(mask.data, left, right))


def count_true(mask: Vector) -> int:
    return int(mask.data.sum())


def any_true(mask):
    return bool(np.any(_unwrap(mask)))


def all_true(mask):
    return bool(np.all(_unwrap(mask)))


def _reduce(a: Vector, combine: Callable[..., Any]) -> Any:
    value = a.data
    with np.errstate(all="ignore"):
        while value.size > 1:
            low, high = np.split(value, 2)
            value = combine(low, high)
    return value[0]


def horizontal_sum(a: Vector) -> Any:
    return _reduce(a, operator.add)


def pieces(like):
    return lanes(like) // piece_lanes(like)


def piece_lanes(like):
    return PIECE_BYTES // _dtype(like).itemsize


def piece(value: Vector, index: int) -> Vector:
    count = piece_lanes(value)
    return Vector(value.data[index * count : (index + 1) * count].copy())


def load_pieces(array: np.ndarray, index: int, apart: int) -> Vector:
    count = piece_lanes(array)
    places = range(index, index + pieces(array) * apart, apart)
    return Vector(np.concatenate([_window(array, place, count) for place in places]))


def store_pieces(array: np.ndarray, index: int, apart: int, value: Vector) -> None:
    for k in range(pieces(array)):
        store(array, index + k * apart, piece(value, k))


def with_piece(value: Vector, index: int, part: Vector) -> Vector:
    result, count = value.data.copy(), part.data.size
    result[index * count : (index + 1) * count] = part.data
    return Vector(result)


def interleave(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    low, high = np.split(np.stack([a.data, b.data], axis=1).reshape(-1), 2)
    return Vector(low.copy()), Vector(high.copy())


def load_transposed(array: np.ndarray, index: int, stride: int) -> tuple[Vector, ...]:
    square = np.stack([load(array, index + r * stride).data for r in range(lanes(array))])
    return tuple(Vector(column.copy()) for column in square.T)


def align_stack() -> None:
    """Nothing to do."""
