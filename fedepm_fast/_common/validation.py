"""Checks of arguments: each error names the argument, what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels._boundary import (
    MAX_COUNT,
    MAX_SEED,
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    check_finite,
    raise_not_finite,
    refuse_masked,
    shown,
    view,
)
from ..kernels._boundary import integer as check_int
from ..kernels._boundary import real as check_real

__all__ = [
    "MAX_COUNT",
    "MAX_SEED",
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "check_array",
    "check_choice",
    "check_finite",
    "check_int",
    "check_number_or",
    "check_parameters",
    "check_real",
    "check_values",
    "column_names",
    "numbers_of",
    "numbers_of_column",
    "ordered_categories",
    "prefixed",
    "raise_not_finite",
    "refuse_masked",
    "shown",
]

#: Bits of the longest integer that is a label or an id: Python writes no more digits than 4300.
_LONGEST = 14_000


@contextmanager
def prefixed(where: str) -> Iterator[None]:
    """Errors of the block begin with where they are; an argument that they name stays known."""
    try:
        yield
    except ArgumentError as error:
        raise error.at(where) from None
    except (ValueError, TypeError, OSError) as error:
        kinds = (FileNotFoundError, OSError, TypeError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{where} {error}") from None


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if isinstance(value, str) and value in choices:
        return value
    allowed = f"must be one of {', '.join(map(repr, choices))}, got {value!r}"
    if not isinstance(value, str):
        raise ArgumentTypeError(name, f"{allowed} of type {type(value).__name__}")
    raise ArgumentValueError(name, allowed)


def check_number_or(name: str, value: Any, words: Iterable[str], **bounds: Any) -> Any:
    """Return `value` if it is one of the `words`, else the number that it is or, as text, says."""
    options = list(words)
    if isinstance(value, str) and value not in options:
        try:
            value = float(value)
        except ValueError:
            allowed = " or ".join(map(repr, options))
            raise ArgumentValueError(
                name, f"must be a number or {allowed}, got {value!r}"
            ) from None
    return value if isinstance(value, str) else check_real(name, value, **bounds)


def check_parameters(of: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if a name that is `given` is not among the `known` parameters."""
    for name in given:
        if name not in known:
            raise ArgumentValueError(
                name, f"is not a parameter of the {of}: {', '.join(known)} are"
            )


def check_array(
    name: str,
    value: Any,
    *,
    ndim: int | None = None,
    shape: tuple[int | None, ...] | None = None,
    dtype: Any = np.float64,
    finite: bool = True,
) -> NDArray[Any]:
    """Return `value` as a C-contiguous array of `dtype`, with the shape asked for.

    ``None`` in `shape` allows any length. With `finite`, NaN and infinities are
    refused and the first offender is named. An integer `dtype` takes whole numbers only.
    """
    array = view(name, value)
    if array.dtype.kind not in "buif":
        raise ArgumentTypeError(name, f"must be an array of real numbers, got dtype {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise ArgumentValueError(
            name, f"must have {ndim} dimension{'s' * (ndim != 1)}, got shape {array.shape}"
        )
    if shape is not None and (
        array.ndim != len(shape)
        or any(
            want is not None and want != got for want, got in zip(shape, array.shape, strict=True)
        )
    ):
        entries = ["any" if s is None else str(s) for s in shape]
        wanted = f"({', '.join(entries)}{',' * (len(shape) == 1)})"
        raise ArgumentValueError(name, f"must have shape {wanted}, got {array.shape}")
    if finite:
        check_finite(name, array)
    if np.dtype(dtype).kind in "ui" and array.dtype.kind == "f":
        broken = np.argwhere(array != np.round(array))
        if len(broken):
            where = tuple(int(i) for i in broken[0])
            raise ArgumentValueError(
                name, f"must hold whole numbers, got {array[where]} at index {where}"
            )
    with np.errstate(over="ignore"):  # to float32: found below
        converted = np.ascontiguousarray(array, dtype=dtype)
    if finite and converted.dtype != array.dtype:
        check_finite(name, converted)
    return converted


def numbers_of(name: str, value: Any) -> Any:
    """`value`, where it is a data frame or holds objects, as an array of floats.

    Frames of any mixture of integers, floats and booleans are, NumPy's, nullable, Arrow's,
    categorical or as objects; missing entries are NaN. Other arrays are returned as they are.

    Raises
    ------
    TypeError, ValueError
        Naming the column and the row of what is not a number.
    """
    names = column_names(value)
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return value  # whoever checks its shape says what is wrong
    kinds = "OT" if names is None else "OTmMc"
    if array.dtype.kind not in kinds or array.ndim not in (1, 2):
        return array
    if array.ndim == 1:
        return numbers_of_column(name, array)
    # Column by column: what an array of the whole frame makes of dates and times is not theirs.
    parts = array.T if names is None else _columns(value)
    columns = [
        numbers_of_column(f"{name}, column {j if names is None else names[j]!r},", c)
        for j, c in enumerate(parts)
    ]
    single = bool(columns) and all(column.dtype == np.float32 for column in columns)
    table = np.empty(array.shape, dtype=np.float32 if single else np.float64)
    for j, column in enumerate(columns):
        table[:, j] = column
    return table


def column_names(value: Any) -> tuple[Any, ...] | None:
    """The names of a data frame's columns."""
    return tuple(value.columns) if hasattr(value, "columns") and hasattr(value, "dtypes") else None


def _columns(frame: Any) -> list[Any]:
    if hasattr(frame, "iloc"):  # names may be there twice
        return [frame.iloc[:, j] for j in range(frame.shape[1])]
    return [frame[name] for name in frame.columns]


def numbers_of_column(name: str, column: Any) -> NDArray[Any]:
    """A column as an array of numbers, NaN where they are missing.

    Raises
    ------
    TypeError, ValueError
        Beginning with `name`, and naming the row.
    """
    array = np.asarray(column)
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind not in "OT":
        raise ArgumentTypeError(name, f"must be numbers, got dtype {array.dtype}")
    numbers = np.empty(len(array))
    for row, entry in enumerate(array.tolist()):
        if _is_missing(entry):
            numbers[row] = np.nan
            continue
        if not isinstance(entry, (Real, Decimal, np.bool_)):
            raise ArgumentTypeError(name, f"must be numbers, got {entry!r} in row {row}")
        try:
            numbers[row] = float(entry)
        except OverflowError:
            raise ArgumentValueError(name, f"must be numbers below 1.8e308, in row {row}") from None
    return numbers


def check_values(name: str, value: Any) -> NDArray[Any]:
    """Return `value`, a vector of labels or ids, as numbers or strings with none missing.

    Object arrays, as pandas gives them, become the plain type of their entries; integers that
    no type of NumPy holds stay Python's, in an object array.
    """
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentValueError(name, "must be a vector, got lists of different lengths") from None
    if array.ndim != 1 or len(array) == 0:
        raise ArgumentValueError(
            name, f"must be a vector, one entry per row, got shape {array.shape}"
        )
    check_finite(name, array)
    if array.dtype.kind in "OT" or isinstance(value, (list, tuple)):
        entries = list(value) if isinstance(value, (list, tuple)) else array.tolist()
        missing = [i for i, entry in enumerate(entries) if _is_missing(entry)]
        if missing:
            raise ArgumentValueError(
                name,
                f"must not be missing, got {entries[missing[0]]!r} at index {missing[0]} "
                f"({len(missing)} such entr{'y' if len(missing) == 1 else 'ies'})",
            )
        whole = _integers(name, entries)
        if whole is not None:
            return whole
        try:
            array = np.array(entries)
        except ValueError:  # lists of different lengths
            array = np.array(entries, dtype=object)
        if array.ndim > 1 or array.dtype.kind not in "buifUS":
            for i, entry in enumerate(entries):
                kind = np.asarray(entry).dtype.kind
                if np.ndim(entry) or not (isinstance(entry, int) or kind in "buifUS"):
                    raise ArgumentTypeError(
                        name,
                        f"must be numbers or strings, got {entry!r} of type "
                        f"{type(entry).__name__} at index {i}",
                    )
            changed = [i for i, e in enumerate(entries) if type(e) is int]
        else:
            # One type for all must not make equal what is not: 1 and "1", 2**53 + 1 and 0.5.
            changed = [i for i, e in enumerate(array.tolist()) if not bool(e == entries[i])]
        if changed:
            i = changed[0]
            raise ArgumentTypeError(
                name,
                f"must be all numbers of one kind or all strings, got "
                f"{shown(entries[i])} among others at index {i}",
            )
    if array.dtype.kind not in "buifUS":
        raise ArgumentTypeError(name, f"must be numbers or strings, got dtype {array.dtype}")
    return array


def _integers(name: str, entries: Sequence[Any]) -> NDArray[Any] | None:
    """Integers, as exact as they are; None where some entry is none."""
    if not all(isinstance(e, (int, np.integer)) and not isinstance(e, bool) for e in entries):
        return None
    values = [int(e) for e in entries]
    low, high = min(values), max(values)
    for i in (values.index(low), values.index(high)):
        if values[i].bit_length() > _LONGEST:
            raise ArgumentValueError(
                name, f"must be at most {_LONGEST} bits long, got {shown(values[i])} at index {i}"
            )
    if low >= -MAX_COUNT - 1 and high <= MAX_COUNT:
        return np.array(values, dtype=np.int64)
    return np.array(values, dtype=np.uint64 if low >= 0 and high <= MAX_SEED else object)


def ordered_categories(values: Any) -> list[Any] | None:
    """The categories of an ordered categorical column, in their order."""
    dtype: Any = getattr(values, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) else None


def _is_missing(entry: Any) -> bool:
    try:
        return entry is None or bool(entry != entry)
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True
