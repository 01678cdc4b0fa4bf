"""Histories of runs as compact bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def encode(history: Mapping[str, Array]) -> bytes:
    """Arrays of float64 as bytes, to the last bit: names and shapes, and the numbers.

    The numbers' bytes are laid out place by place, all first bytes, all second ones and so on:
    neighbouring numbers share their leading bytes, which zlib finds then.
    """
    shapes = _shapes(tuple(history), tuple(values.shape for values in history.values()))
    flat = np.concatenate([np.ravel(values) for values in history.values()] or [np.empty(0)])
    places = flat.astype("<f8", copy=False).view(np.uint8).reshape(-1, 8).T
    return zlib.compress(shapes + places.tobytes(), 1)


@lru_cache
def _shapes(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> bytes:
    return json.dumps(dict(zip(names, shapes, strict=True))).encode() + b"\n"


def decode(blob: bytes) -> dict[str, Array]:
    """The arrays of `encode`.

    Raises
    ------
    ValueError
        If the bytes are damaged.
    """
    try:
        shapes, _, places = zlib.decompress(blob).partition(b"\n")
        bytes_ = np.frombuffer(places, dtype=np.uint8).reshape(8, -1).T
        flat = np.ascontiguousarray(bytes_).view("<f8").ravel().astype(np.float64, copy=False)
        history, start = {}, 0
        for name, shape in json.loads(shapes).items():
            size = int(np.prod(shape, dtype=np.int64))
            history[name] = flat[start : start + size].reshape(shape)
            start += size
    except (zlib.error, ValueError, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(f"the history is damaged: {error}") from None
    return history
