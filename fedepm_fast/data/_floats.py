"""Text to floats, many at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes of a file that are worth importing Arrow for.
_LARGE = 1 << 24


def use_arrow(size: int) -> None:
    """Import Arrow, if it is installed and a file of so many bytes is to be read."""
    if size >= _LARGE:
        with suppress(ImportError):
            import pyarrow.compute  # noqa: F401


def floats(cells: Sequence[str]) -> NDArray[np.float64]:
    """Numbers as Python reads them, shape (d,).

    Arrow, where it is imported, reads ten times as many a second; both round correctly, so the
    bits are the same. What it refuses, Python decides; nan(1) is a number to Arrow only, so that
    cells must have no bracket, nor any NUL.

    Raises
    ------
    ValueError
        If a cell is no number.
    """
    return floats_of("\0".join(cells)) if cells else np.empty(0)


def floats_of(block: str) -> NDArray[np.float64]:
    """The numbers of cells that are one text, with a NUL between them; see `floats`."""
    compute: Any = sys.modules.get("pyarrow.compute")
    if compute is not None:
        with suppress(sys.modules["pyarrow"].ArrowInvalid):
            return _by_arrow(block, compute)
    return np.array(list(map(float, block.split("\0"))), dtype=np.float64)


def _by_arrow(block: str, compute: Any) -> NDArray[np.float64]:
    """By buffers alone: Arrow imports pandas for lists and arrays, which takes as long as this."""
    arrow: Any = sys.modules["pyarrow"]
    letters = np.frombuffer(block.encode(), dtype=np.uint8)
    between = np.flatnonzero(letters == 0)
    d = len(between) + 1
    ends = np.zeros(d + 1, dtype=np.int32)
    ends[1:-1] = between - np.arange(d - 1)
    ends[-1] = len(letters) - (d - 1)
    buffers = [None, arrow.py_buffer(ends), arrow.py_buffer(letters[letters != 0])]
    text = arrow.Array.from_buffers(arrow.string(), d, buffers)
    found = compute.cast(text, arrow.float64()).buffers()[1]
    return np.frombuffer(found, dtype=np.float64, count=d)
