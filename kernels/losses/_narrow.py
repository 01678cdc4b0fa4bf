"""Tables of float64 rows in fewer bytes: codes, counts and float32 numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._boundary import as_floats, check_finite, check_shape
from .._simd._types import VECTOR_BYTES

#: Integers are held as digits from -127 to 127 in this base, the first one of the highest place:
#: so the digits of the negative number are the negative digits.
BASE = 255
_DIGIT = 127
#: Largest absolute value of one digit and of two.
_LIMITS = _DIGIT, _DIGIT * BASE + _DIGIT
#: Bytes of a float32 number.
FLOAT = 4
#: Rows that are looked at before a whole table is tried, and that are converted at a time.
_SAMPLE, _PIECE = 64, 4096


@dataclass(frozen=True, eq=False)
class NarrowTable:
    """Rows in float64 whose entries are float32 numbers, times a factor for each column.

    So are counts, codes and indicators, scaled or not; `narrow_table` makes one. Kernels read
    half as much or less, and compute in float64 all the same.
    """

    values: NDArray[np.float32]
    """The float32 numbers, shape (d, n rounded up to an even number), zeros beyond n."""
    scale: NDArray[np.float64]
    """The factors, shape (n,)."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(d, n)``."""
        return len(self.values), len(self.scale)

    @property
    def rows(self) -> NDArray[np.uint64]:
        """The rows as they are held, in words of 8 bytes: float32 numbers, then digits."""
        return self._held[0]

    @property
    def columns(self) -> NDArray[np.int64]:
        """Each column's first byte within a row, and bytes: 4 of float32, or digits; (n, 2)."""
        return self._held[1]

    @property
    def float_words(self) -> int:
        """Words of a row that hold float32 numbers."""
        return self._held[2]

    @cached_property
    def _held(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
        n = len(self.scale)
        digits = _digits(self.values[:, :n])
        columns = np.empty((n, 2), np.int64)
        columns[:, 1] = np.where(digits == 0, FLOAT, digits)
        at = 0
        for held in (FLOAT, 2, 1):
            for j in np.flatnonzero(columns[:, 1] == held).tolist():
                columns[j, 0], at = at, at + held
            at += -at % 8 if held == FLOAT else 0
        float_words = -(-int((digits == 0).sum()) // 2)
        if not digits.any():  # the values as they are
            return read_only(self.values.view(np.uint64)), read_only(columns), float_words
        rows = np.zeros((len(self.values), -(-at // 8)), np.uint64)
        for first in range(0, len(rows), _PIECE):
            values = self.values[first : first + _PIECE]
            floats = rows[first : first + _PIECE].view(np.float32)
            signed = floats.view(np.int8)
            for j, (place, held) in enumerate(columns.tolist()):
                column = values[:, j]
                if held == FLOAT:
                    floats[:, place // FLOAT] = column
                elif held == 1:
                    signed[:, place] = column
                else:
                    high = np.rint(column / np.float32(BASE))
                    signed[:, place], signed[:, place + 1] = high, column - BASE * high
        return read_only(rows), read_only(columns), float_words


def _digits(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many digits hold each column, 0 where none do."""
    for first in (0, *range(_SAMPLE, len(values), _PIECE)):
        piece = values[first : first + (_PIECE if first else _SAMPLE)]
        largest = np.abs(piece).max(axis=0)
        whole_numbers = (np.rint(piece) == piece).all(axis=0)
        fits = np.where(largest <= _LIMITS[0], 1, np.where(largest <= _LIMITS[1], 2, 0))
        found = np.where(whole_numbers, fits, 0)
        if first == 0:
            digits = found
        digits = np.where((digits == 0) | (found == 0), 0, np.maximum(digits, found))
        if not digits.any():
            break
    return digits


def narrow_table(features: ArrayLike, scale: ArrayLike | None = None) -> NarrowTable | None:
    """The table with rows ``features * scale``, if `features` are float32 numbers exactly.

    Parameters
    ----------
    features : array_like, shape (d, n)
        Finite.
    scale : array_like of shape (n,), optional
        1 by default.

    Returns
    -------
    NarrowTable or None
        None if some entry is no float32 number.
    """
    table = as_floats("features", features, ndim=2)
    check_finite("features", table)
    d, n = table.shape
    factors = np.ones(n) if scale is None else as_floats("scale", scale, ndim=1)
    check_shape("scale", factors, (n,))
    check_finite("scale", factors)
    few = table[:_SAMPLE]
    with np.errstate(over="ignore"):
        if not (few.astype(np.float32) == few).all():
            return None
        values = np.empty((d, n + n % 2), np.float32)
        values[:, :n], values[:, n:] = table, 0
    if not (values[:, :n] == table).all():
        return None
    return NarrowTable(read_only(values), read_only(factors.astype(np.float64, copy=False)))


def whole(n: int, dtype: np.dtype[Any]) -> int:
    """n, rounded up to whole vectors."""
    width = VECTOR_BYTES // dtype.itemsize
    return -(-n // width) * width


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    # Compiled code is typed by it: one signature, whether the user's array is writable or not.
    array = array.view()
    array.flags.writeable = False
    return array
