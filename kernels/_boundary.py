"""The Python boundary of the kernels: coerce once, refuse clearly, allocate by dtype.

What an array may be is decided here, for every function: float64 and float32 stay what they
are, in native byte order and C-contiguous; integers and booleans become float64; anything else
is refused by the argument's name. So are entries that a mask hides, and what is no array, such
as a generator: lists are arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

FLOAT32, FLOAT64 = FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
#: The largest count that kernels, arrays and files hold.
MAX_COUNT = 2**63 - 1
#: The largest seed: one word of a counter-based generator.
MAX_SEED = 2**64 - 1
#: Numbers up to which Python is faster than NumPy, and from which one pass is enough.
_FEW, _SMALL = 64, 1 << 12


class ArgumentError(Exception):
    """An argument that is not as it must be.

    Parameters
    ----------
    argument : str
        Its name.
    message : str
        What is wrong with it, as the rest of a sentence that begins with the name.
    where : str
        Where it is, such as a file, to stand before that.
    """

    def __init__(self, argument: str, message: str, where: str = "") -> None:
        super().__init__(argument, message, where)
        self.argument = argument
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where} {self.argument} {self.message}".lstrip()

    def of(self, argument: str) -> Self:
        """The same error of an argument of another name."""
        return type(self)(argument, self.message, self.where)

    def at(self, where: str) -> Self:
        """The same error, which begins with where the argument is."""
        return type(self)(self.argument, self.message, f"{where} {self.where}".rstrip())


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of the right type with a value that is not allowed."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a type that is not allowed."""


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
        and (ndim is None or value.ndim == ndim)
        and (like is None or value.dtype is like.dtype)
    ):
        return value
    array = view(name, value)
    dtype = float_dtype(name, array.dtype)
    if like is not None and array.dtype.kind in "bui":
        dtype = like.dtype
    array = array.astype(dtype, copy=False)
    if like is not None and array.dtype != like.dtype:
        wanted = f"must be {like.dtype} like the other arrays"
        raise ArgumentTypeError(name, f"{wanted}, got {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise _wrong_ndim(name, array, ndim)
    return np.ascontiguousarray(array) if array.ndim else array


def float_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What numbers of `dtype` become: `FLOAT64` or `FLOAT32`."""
    if dtype is FLOAT64 or dtype is FLOAT32:
        return dtype
    if dtype.kind in "bui":
        return FLOAT64
    if dtype.newbyteorder("=") not in FLOATS:
        raise ArgumentTypeError(
            name,
            f"must be float64 or float32, got dtype {dtype}; "
            "of other dtypes only integers and booleans are converted",
        )
    return FLOAT32 if dtype.itemsize == 4 else FLOAT64


def as_integers(name: str, value: Any, *, ndim: int = 1, dtype: Any = np.int64) -> NDArray[Any]:
    """`value` as a C-contiguous integer array; numbers that `dtype` cannot hold are refused."""
    array = view(name, value)
    if array.dtype.kind not in "ui" and array.size:
        raise ArgumentTypeError(name, f"must be integers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise _wrong_ndim(name, array, ndim)
    if array.size and not np.can_cast(array.dtype, dtype):
        held = np.iinfo(dtype)
        if array.min() < held.min or array.max() > held.max:
            beyond = array.max() if array.max() > held.max else array.min()
            allowed = f"from {held.min} to {held.max}"
            raise ArgumentValueError(name, f"must be {allowed}, got {beyond}")
    return np.ascontiguousarray(array, dtype=dtype)


def view(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of whatever dtype, without a copy where it is one."""
    if type(value) is np.ndarray or type(value) is np.memmap:
        return value
    refuse_masked(name, value)
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    refused = ArgumentTypeError(name, f"must be an array of numbers, got {type(value).__name__}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):  # a ragged list
            told = f"{refused.message} whose rows differ in length"
            raise ArgumentTypeError(name, told) from error
        raise refused from error
    except RuntimeError as error:  # a tensor that tracks gradients, or is in another memory
        raise ArgumentTypeError(name, f"must be an array of numbers: {error}") from error
    if array.dtype == object and array.ndim == 0:  # a generator, a set, None
        raise refused
    return array


def refuse_masked(name: str, value: Any) -> None:
    """Raise ValueError if `value` is, or is a list of, masked arrays with masked entries."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise ArgumentValueError(name, "must not have masked entries: fill or drop them first")


def _wrong_ndim(name: str, array: NDArray[Any], ndim: int) -> ArgumentValueError:
    return ArgumentValueError(name, f"must have {ndim} dimension(s), got shape {array.shape}")


def cast(name: str, array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Finite floats in `dtype`, C-contiguous; what is too large for it is refused."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype)
    if not np.isfinite(converted).all():
        largest = np.finfo(np.dtype(dtype)).max
        raise ArgumentValueError(name, f"must be at most {largest:.3g} in {np.dtype(dtype)}")
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
        found = p.min() if p.size else "none"
        raise ArgumentValueError("weights", f"must be positive, got {found}")
    return np.ldexp(p, -np.frexp(p.max())[1])


def check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `array` has this shape."""
    if array.shape != shape:
        raise ArgumentValueError(name, f"must have shape {shape}, got {array.shape}")


def check_finite(
    name: str,
    array: NDArray[Any],
    columns: Sequence[str] | None = None,
    *,
    first_row: int = 0,
) -> None:
    """Raise ValueError naming the first entry that is NaN or infinite.

    `columns` are the names of the columns of a table; `first_row` is the number of the array's
    first row where it is a part of what was given.
    """
    if array.dtype.kind != "f":
        return
    # A finite sum has finite terms, and needs no temporary; an infinite one may be an overflow.
    if array.size <= _FEW:
        if math.isfinite(sum(array.ravel().tolist())):  # NumPy takes ten times as long
            return
    elif array.size > _SMALL:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(array.sum()):
                return
    finite = np.isfinite(array)
    if finite.all():
        return
    wrong = np.argwhere(~finite)
    first = tuple(int(i) for i in wrong[0])
    where = (first[0] + first_row, *first[1:]) if first else first
    raise_not_finite(name, array[first], where, len(wrong), columns)


def raise_not_finite(
    name: str, entry: Any, where: tuple[int, ...], count: int, columns: Sequence[str] | None
) -> NoReturn:
    """Say that an entry of an array or a table is NaN or infinite."""
    at = f"at index {where}"
    if columns is not None:
        at = f"in row {where[0]} (the first is 0), column {columns[where[1]]!r}"
    entries = "entry" if count == 1 else "entries"
    raise ArgumentValueError(name, f"must be finite, got {entry} {at} ({count} such {entries})")


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
    # One question for all that is right: after a kernel that filled the caches each one is a miss.
    if not (
        type(out) is np.ndarray and out.dtype is dtype and out.shape == shape and out.flags.carray
    ):
        out = _checked_output(name, out, shape, dtype)
    for array in inputs:
        if np.may_share_memory(out, array):
            raise ArgumentValueError(name, "must not overlap the input")
    return out


def _checked_output(name: str, out: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """`output`, but for what it may overlap."""
    if not isinstance(out, np.ndarray) and hasattr(out, "__dlpack__"):
        try:
            out = np.from_dlpack(out)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ArgumentTypeError(name, f"must be an array in this memory: {error}") from error
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        found = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
        raise ArgumentTypeError(name, f"must be an array of dtype {np.dtype(dtype)}, got {found}")
    check_shape(name, out, shape)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ArgumentValueError(name, "must be C-contiguous and writeable")
    return out


def shown(value: Any) -> str:
    """A value for a message: its repr, unless it is an integer of more digits than help."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def real(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """`value` as a finite float in the interval given."""
    if type(value) is float and low < value < high:
        return value
    left = "(" if open_low or low == -math.inf else "["
    right = ")" if open_high or high == math.inf else "]"
    allowed = f"a finite number in {left}{low:g}, {high:g}{right}"
    try:
        # What float() takes too: text, truth values, arrays of one number.
        if isinstance(value, (bool, np.bool_, str, bytes)) or np.ndim(value):
            raise TypeError
        number = float(value)
    except OverflowError:  # of an integer
        number = math.inf
    except (TypeError, ValueError):
        raise _wrong_type(name, allowed, value) from None
    inside = (number > low if open_low else number >= low) and (
        number < high if open_high else number <= high
    )
    if not math.isfinite(number) or not inside:
        raise ArgumentValueError(name, f"must be {allowed}, got {shown(value)}")
    return number


def integer(name: str, value: Any, *, low: int = 0, high: int | None = MAX_COUNT) -> int:
    """`value` as an int in ``[low, high]``; booleans and fractions are refused.

    Without `high` it may be as large as `MAX_COUNT`; None is no bound.
    """
    if type(value) is int and value >= low and (high is None or value <= high):
        return value
    unbounded = high is None or high == MAX_COUNT
    allowed = f"an integer >= {low}" if unbounded else f"an integer from {low} to {high}"
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise _wrong_type(name, allowed, value) from None
    if high is not None and number > high:
        allowed = f"an integer from {low} to {high}"
    elif number >= low:
        return number
    raise ArgumentValueError(name, f"must be {allowed}, got {shown(number)}")


def _wrong_type(name: str, allowed: str, value: Any) -> ArgumentTypeError:
    kind = "" if isinstance(value, (bool, np.bool_)) else f" of type {type(value).__name__}"
    return ArgumentTypeError(name, f"must be {allowed}, got {value!r}{kind}")


def thread_count(threads: Any) -> int:
    """How many threads to use: `threads`, checked, or as many as there can be; 1 for None."""
    count = 1 if threads is None else integer("threads", threads, low=1, high=None)
    if count == 1:
        return 1
    from ._jit import most_threads  # whoever only checks arguments needs no compiler

    return min(count, most_threads())
