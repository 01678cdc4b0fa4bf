"""Flower's records as arrays, checked."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

#: Names of the records of a message.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"


def ndarray(array: Array) -> NDArray[Any]:
    """The numbers of a Flower array, read-only and without a copy where they allow it."""
    if array.stype != "numpy.ndarray":
        raise ValueError(f"arrays must be serialised by NumPy, got {array.stype!r}")
    file = io.BytesIO(array.data)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if not fortran and not dtype.hasobject:
            flat = np.frombuffer(array.data, dtype, offset=file.tell())
            return flat.reshape(shape)
    return array.numpy()


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
        self.dtype = np.dtype(next(iter(record.values())).dtype)
        for name, array in record.items():
            if array.dtype not in ("float64", "float32") or array.dtype != self.dtype:
                raise TypeError(
                    f"arrays must all be float64, or all float32; {name!r} is {array.dtype} "
                    f"beside {self.dtype}: leave counters and the like out of the record"
                )
        self.shapes = {name: tuple(array.shape) for name, array in record.items()}
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())

    def vector(self, record: ArrayRecord) -> NDArray[Any]:
        """The record as one vector; ValueError in words if it is not laid out so."""
        parts = matching(record, self.shapes, dict.fromkeys(self.shapes, self.dtype))
        return parts[0].ravel() if len(parts) == 1 else np.concatenate(parts, axis=None)

    def record(self, x: NDArray[Any]) -> ArrayRecord:
        """The vector as a record."""
        record, start = ArrayRecord(), 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            record[name] = Array(np.asarray(x[start:stop].reshape(shape)))
            start = stop
        return record


def matching(
    record: ArrayRecord, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, np.dtype[Any]]
) -> list[NDArray[Any]]:
    """The record's arrays in the order of `shapes`; ValueError in words if they do not match."""
    if set(record) != set(shapes):
        raise ValueError(f"arrays must be named {sorted(shapes)}, got {sorted(record)}")
    parts = []
    for name, shape in shapes.items():
        part = ndarray(record[name])
        if part.dtype != dtypes[name] or part.shape != shape:
            raise ValueError(
                f"array {name!r} must be {dtypes[name]}{shape}, got {part.dtype}{part.shape}"
            )
        parts.append(part)
    return parts


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
