"""The Python boundary of the kernels: coerce once, refuse clearly, allocate by dtype.

What an array may be is decided here, for every function: float64 and float32 stay what they
are, in native byte order and C-contiguous; integers and booleans become float64; anything else
is refused by the argument's name. So are entries that a mask hides, and what is no array, such
as a generator: lists are arrays.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._jit import most_threads

FLOAT32, FLOAT64 = FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def as_floats(name: str, value: Any, *, ndim: int | None = None, like: Any = None) -> NDArray[Any]:
    """`value` as a C-contiguous float32 or float64 array, without a copy where it is one.

    Accepts whatever NumPy can view (DLPack and ``__array__`` included). float32 stays float32,
    integers and booleans become float64; with `like`, an array, its dtype is demanded.

    Raises
    ------
    TypeError
        For anything but real numbers, or a dtype other than that of `like`.
    ValueError
        For the wrong number of dimensions, or masked entries.
    """
    if (
        type(value) is np.ndarray
        and (value.dtype is FLOAT64 or value.dtype is FLOAT32)
        and value.flags.c_contiguous
        and value.ndim == ndim
        and (like is None or value.dtype is like.dtype)
    ):
        return value
    array = view(name, value)
    dtype = float_dtype(name, array.dtype)
    if like is not None and array.dtype.kind in "bui":
        dtype = like.dtype
    array = array.astype(dtype, copy=False)
    if like is not None and array.dtype != like.dtype:
        raise TypeError(f"{name} must be {like.dtype} like the other arrays, got {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return np.ascontiguousarray(array) if array.ndim else array


def float_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What numbers of `dtype` become: `FLOAT64` or `FLOAT32`."""
    if dtype is FLOAT64 or dtype is FLOAT32:
        return dtype
    if dtype.kind in "bui":
        return FLOAT64
    if dtype.newbyteorder("=") not in FLOATS:
        raise TypeError(
            f"{name} must be float64 or float32, got dtype {dtype}; "
            "of other dtypes only integers and booleans are converted"
        )
    return FLOAT32 if dtype.itemsize == 4 else FLOAT64


def as_integers(name: str, value: Any, *, ndim: int = 1, dtype: Any = np.int64) -> NDArray[Any]:
    """`value` as a C-contiguous integer array; numbers that `dtype` cannot hold are refused."""
    array = view(name, value)
    if array.dtype.kind not in "ui" and array.size:
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    if array.size and not np.can_cast(array.dtype, dtype):
        held = np.iinfo(dtype)
        if array.min() < held.min or array.max() > held.max:
            beyond = array.max() if array.max() > held.max else array.min()
            raise ValueError(f"{name} must be from {held.min} to {held.max}, got {beyond}")
    return np.ascontiguousarray(array, dtype=dtype)


def view(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of whatever dtype, without a copy where it is one."""
    if type(value) is np.ndarray or type(value) is np.memmap:
        return value
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if any(np.ma.is_masked(part) for part in parts):
        raise ValueError(f"{name} must not have masked entries: fill or drop them first")
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    refused = TypeError(f"{name} must be an array of numbers, got {type(value).__name__}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise refused from error
    except RuntimeError as error:  # a tensor that tracks gradients, or is in another memory
        raise TypeError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype == object and array.ndim == 0:  # a generator, a set, None
        raise refused
    return array


def cast(name: str, array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Finite floats in `dtype`, C-contiguous; what is too large for it is refused."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype)
    if not np.isfinite(converted).all():
        largest = np.finfo(np.dtype(dtype)).max
        raise ValueError(f"{name} must be at most {largest:.3g} in {np.dtype(dtype)}")
    return converted


def positive_weights(weights: ArrayLike, m: int | None = None) -> NDArray[np.float64]:
    """Finite, positive weights of clients, float64, the largest from 0.5 to 1.

    Results depend on their ratios only, and so none of their sums overflows.
    """
    p = as_floats("weights", weights, ndim=1).astype(np.float64)
    if m is not None:
        check_shape("weights", p, (m,))
    check_finite("weights", p)
    if p.size == 0 or p.min() <= 0:
        raise ValueError(f"weights must be positive, got {p.min() if p.size else 'none'}")
    return np.ldexp(p, -np.frexp(p.max())[1])


def check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `array` has this shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def check_finite(name: str, array: NDArray[Any], *, first_row: int = 0) -> None:
    """Raise ValueError naming the first entry that is NaN or infinite, by its index.

    `first_row` is the number of the array's first row where it is a part of what was given.
    """
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        shown = (where[0] + first_row, *where[1:]) if where else where
        raise ValueError(f"{name} must be finite, got {array[where]} at index {shown}")


def output(
    name: str, out: Any, shape: tuple[int, ...], dtype: Any, *inputs: NDArray[Any]
) -> NDArray[Any]:
    """`out`, checked, or a new array; an array on the memory of what speaks DLPack.

    Raises
    ------
    TypeError
        If `out` is not an array of this dtype.
    ValueError
        If it has another shape, is not C-contiguous or writeable, or overlaps an input.
    """
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) and hasattr(out, "__dlpack__"):
        try:
            out = np.from_dlpack(out)
        except (BufferError, RuntimeError, TypeError) as error:
            raise TypeError(f"{name} must be an array in this memory: {error}") from error
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        found = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
        raise TypeError(f"{name} must be an array of dtype {np.dtype(dtype)}, got {found}")
    check_shape(name, out, shape)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"{name} must be C-contiguous and writeable")
    for array in inputs:
        if np.may_share_memory(out, array):
            raise ValueError(f"{name} must not overlap the input")
    return out


def real(name: str, value: Any, *, low: float = -math.inf, open_low: bool = False) -> float:
    """`value` as a finite float, at least `low` (above it with `open_low`)."""
    if type(value) is float and low < value < math.inf:
        return value
    allowed = "a finite number"
    if low != -math.inf:
        allowed += f" {'>' if open_low else '>='} {low:g}"
    try:
        # What float() takes too: text, truth values, arrays of one number.
        if isinstance(value, (bool, np.bool_, str, bytes)) or np.ndim(value):
            raise TypeError
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be {allowed}, got an integer beyond them") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {allowed}, got {value!r}") from None
    if not math.isfinite(number) or number < low or (open_low and number == low):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number


def integer(name: str, value: Any, *, low: int = 0, high: int | None = None) -> int:
    """`value` as an int in ``[low, high]``."""
    if type(value) is int and value >= low and (high is None or value <= high):
        return value
    allowed = f"an integer >= {low}" + ("" if high is None else f" and <= {high}")
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {allowed}, got {value!r}") from None
    if number < low or (high is not None and number > high):
        shown = number if number.bit_length() < 200 else f"one of {number.bit_length()} bits"
        raise ValueError(f"{name} must be {allowed}, got {shown}")
    return number


def thread_count(threads: Any) -> int:
    """How many threads to use: `threads`, checked, or as many as there can be; 1 for None."""
    count = 1 if threads is None else integer("threads", threads, low=1)
    return 1 if count == 1 else min(count, most_threads())
