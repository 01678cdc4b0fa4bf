"""Arrays whose vectors straddle no two cache lines, and memory of them that is used again."""

from __future__ import annotations

import math
import threading
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._simd._types import VECTOR_BYTES


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An uninitialised array whose data are on a multiple of 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return _within(np.empty(size + VECTOR_BYTES, np.uint8), shape, dtype)


#: Bytes up to which a thread keeps the memory of rows for its next ones, and how many such pieces.
_KEPT_BYTES, _KEPT_PIECES = 1 << 25, 2
_kept = threading.local()


def recycled(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """As `aligned`, in memory of this thread's earlier arrays that nothing refers to any more.

    New memory costs a page fault for every 4 KB of it, together as long as rows take to pack.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize + VECTOR_BYTES
    if size > _KEPT_BYTES:
        return aligned(shape, dtype)
    pieces = _kept.__dict__.setdefault("pieces", [])
    for k in range(len(pieces)):
        # The list has a reference, and the call has: arrays in this memory would have more.
        if getrefcount(pieces[k]) == 2 and size <= pieces[k].size <= 2 * size:
            return _within(pieces[k], shape, dtype)
    pieces.append(np.empty(size + size // 16, np.uint8))  # which sizes a little larger fit in, too
    found = _within(pieces[-1], shape, dtype)
    del pieces[:-_KEPT_PIECES]
    return found


def _within(raw: NDArray[np.uint8], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return np.ndarray(shape, dtype, raw, -raw.__array_interface__["data"][0] % VECTOR_BYTES)
