"""Flower's records as arrays, checked."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from .._common.validation import check_finite

#: Names of the records of a message.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"


#: Integers are averaged in float64, which holds those of at most this size.
EXACT = 2**53


def real_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """The dtype, in native byte order, of an array that can be averaged.

    Raises
    ------
    TypeError
        Naming the array, if it holds anything but floats of up to 64 bits or integers.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:  # bfloat16 and the like, which NumPy does not know
        found = np.dtype(object)
    if found.kind not in "iuf" or found.itemsize > 8:
        raise TypeError(
            f"array {name!r} must be of integers, or floats of up to 64 bits, got {dtype}: send "
            "masks as integers of 0 and 1, complex numbers as two arrays, or leave it out"
        )
    return found.newbyteorder("=")


def as_dtype(name: str, array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array in another real dtype: integers are rounded, and stay within what they hold.

    Raises
    ------
    ValueError
        Naming the array, if an entry is not finite, or too large for `dtype`.
    """
    if array.dtype != dtype:
        if dtype.kind in "iu":
            check_finite(f"array {name!r}", array)
            limits = np.iinfo(dtype)
            array = np.clip(np.rint(array), max(limits.min, -EXACT), min(limits.max, EXACT))
        with np.errstate(over="ignore"):  # found below
            array = np.asarray(array, dtype)
    check_finite(f"array {name!r}, as {dtype},", array)
    return array


def ndarray(array: Array) -> NDArray[Any]:
    """The numbers of a Flower array, read-only and without a copy where they allow it."""
    if array.stype != "numpy.ndarray":
        raise ValueError(f"arrays must be serialised by NumPy, got {array.stype!r}")
    file = io.BytesIO(array.data)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if not fortran and not dtype.hasobject and dtype.isnative:
            flat = np.frombuffer(array.data, dtype, offset=file.tell())
            return flat.reshape(shape)
    numbers = array.numpy()
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


class Layout:
    """How a record's arrays lie in one vector.

    Parameters
    ----------
    record : ArrayRecord
        Arrays of one dtype, float64 or float32.

    Raises
    ------
    TypeError, ValueError
        Naming the array that is none, or of another dtype.
    """

    def __init__(self, record: ArrayRecord) -> None:
        if not record:
            raise ValueError("arrays must not be empty")
        dtypes = {name: real_dtype(name, array.dtype) for name, array in record.items()}
        self.dtype = next(iter(dtypes.values()))
        for name, dtype in dtypes.items():
            if dtype not in (np.float64, np.float32) or dtype != self.dtype:
                raise TypeError(
                    f"arrays must all be float64, or all float32; {name!r} is {dtype} "
                    f"beside {self.dtype}: leave counters and the like out of the record"
                )
        self.shapes = {name: tuple(array.shape) for name, array in record.items()}
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())

    def vector(self, record: ArrayRecord) -> NDArray[Any]:
        """The record as one vector; ValueError in words if it is not laid out so."""
        dtypes = dict.fromkeys(self.shapes, self.dtype)
        parts = list(shaped(record, self.shapes, dtypes, any_dtype=False).values())
        return parts[0].ravel() if len(parts) == 1 else np.concatenate(parts, axis=None)

    def record(self, x: NDArray[Any]) -> ArrayRecord:
        """The vector as a record."""
        record, start = ArrayRecord(), 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            record[name] = Array(np.asarray(x[start:stop].reshape(shape)))
            start = stop
        return record


def shaped(
    record: ArrayRecord,
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, np.dtype[Any]],
    *,
    any_dtype: bool = True,
) -> dict[str, NDArray[Any]]:
    """The record's arrays in the order of `shapes`; ValueError in words for others than these, of
    these dtypes unless they may be any."""
    if set(record) != set(shapes):
        raise ValueError(f"arrays must be named {sorted(shapes)}, got {sorted(record)}")
    parts = {name: ndarray(record[name]) for name in shapes}
    for name, part in parts.items():
        check_like(name, part, dtypes[name], shapes[name], any_dtype=any_dtype)
    return parts


def check_like(
    name: str,
    part: NDArray[Any],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    any_dtype: bool = False,
) -> None:
    """Raise ValueError if an array is not of that dtype, unless that may be any, and shape."""
    if part.shape != shape or not (any_dtype or part.dtype == dtype):
        raise ValueError(f"array {name!r} must be {dtype}{shape}, got {part.dtype}{part.shape}")


def content(message: Message) -> tuple[ArrayRecord, MetricRecord]:
    """The records of a reply; ValueError in words if it has none, or an error."""
    if message.has_error():
        raise ValueError(f"it answered with an error: {message.error.reason}")
    arrays, metrics = message.content.array_records, message.content.metric_records
    if len(arrays) != 1 or len(metrics) != 1:
        raise ValueError(
            "a reply must have one ArrayRecord and one MetricRecord, "
            f"got {len(arrays)} and {len(metrics)}"
        )
    return next(iter(arrays.values())), next(iter(metrics.values()))
