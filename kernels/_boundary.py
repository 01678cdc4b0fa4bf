"""The Python boundary of the kernels: coerce once, refuse clearly, allocate by dtype."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        For the wrong number of dimensions.
    """
    if (
        type(value) is np.ndarray
        and (value.dtype is FLOAT64 or value.dtype is FLOAT32)
        and value.flags.c_contiguous
        and value.ndim == ndim
        and (like is None or value.dtype is like.dtype)
    ):
        return value
    array = _view(name, value)
    if array.dtype.kind in "bui":
        array = array.astype(np.float64 if like is None else like.dtype)
    if array.dtype not in FLOATS:
        raise TypeError(f"{name} must be float64 or float32, got dtype {array.dtype}")
    if like is not None and array.dtype != like.dtype:
        raise TypeError(f"{name} must be {like.dtype} like the other arrays, got {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return np.ascontiguousarray(array) if array.ndim else array


def as_integers(name: str, value: Any, *, ndim: int = 1, dtype: Any = np.int64) -> NDArray[Any]:
    """`value` as a C-contiguous integer array."""
    array = _view(name, value)
    if array.dtype.kind not in "ui" and array.size:
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return np.ascontiguousarray(array, dtype=dtype)


def _view(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of numbers, got {type(value).__name__}"
        ) from error
    except RuntimeError as error:  # a tensor that tracks gradients, or is in another memory
        raise TypeError(f"{name} must be an array of numbers: {error}") from error


def check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `array` has this shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raise ValueError naming the first entry that is NaN or infinite."""
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")


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
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number
