"""ENS of uploads that are not one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..kernels import _boundary as boundary
from ..kernels.ens import ens

Array = NDArray[Any]

#: Bytes of uploads that are gathered at a time, but at least so many coordinates, and a multiple
#: of the kernels' largest group of them.
BLOCK_BYTES, LEAST_WIDTH, GROUP = 1 << 22, 1024, 16


def aggregate(
    uploads: Sequence[ArrayLike],
    c: float,
    *,
    weights: ArrayLike | None = None,
    threads: int | None = None,
) -> Array:
    """ENS of uploads that lie apart: rows of a memory map, buffers of messages.

    They are gathered a block of coordinates at a time, which is aggregated while it is in the
    caches, so that memory stays at `BLOCK_BYTES` for each thread, and the result.

    Parameters
    ----------
    uploads : sequence of m array_like of shape (n,)
        Of one dtype, float64 or float32 (integers and booleans become float64).
    c, weights, threads
        As of `kernels.ens.ens`.

    Returns
    -------
    ndarray of shape (n,)
        Of the dtype of the uploads, and with the bits of ``ens(np.stack(uploads), c)``.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; also if there is a NaN or an infinity in an upload.
    """
    rows, dtype = _rows(uploads)
    m, n = len(rows), len(rows[0])
    width = max(LEAST_WIDTH, BLOCK_BYTES // (m * dtype.itemsize * GROUP) * GROUP)
    x = np.empty(n, dtype)

    def solve(starts: NDArray[np.intp]) -> None:
        block = np.empty((m, min(width, n)), dtype)
        for start in starts:
            # The last block overlaps the one before, as the kernels' groups do.
            j = max(0, min(int(start), n - width))
            for row, upload in zip(block, rows, strict=True):
                row[:] = upload[j : j + width]
            x[j : j + width] = ens(block, c, weights=weights)

    # Without coordinates the other arguments are checked all the same.
    starts = np.arange(0, max(n, 1), width)
    count = min(boundary.thread_count(threads), len(starts))
    try:
        if count == 1:
            solve(starts)
        else:
            # Gathering and solving both release the GIL; each thread has blocks of its own.
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(solve, np.array_split(starts, count)))
    except ValueError:
        for i, row in enumerate(rows):  # a block does not know where it stands
            boundary.check_finite("uploads", row[None], first_row=i)
        raise
    return x


def _rows(uploads: Any) -> tuple[list[Array], Any]:
    """The uploads as vectors of one length, and the one dtype that they become."""
    indexed = hasattr(uploads, "__len__") and hasattr(uploads, "__getitem__")
    if not indexed or isinstance(uploads, (Mapping, str, bytes)):
        raise TypeError(
            f"uploads must be a list of arrays, got {type(uploads).__name__}: "
            "list(uploads) makes one of what can be iterated"
        )
    if isinstance(uploads, np.ndarray):
        uploads = boundary.view("uploads", uploads)
        if uploads.ndim != 2:
            raise ValueError(
                f"uploads must be vectors: an array of shape (m, n), got shape {uploads.shape}"
            )
    rows: list[Array] = []
    dtype = np.dtype(np.float64)
    for i, upload in enumerate(uploads):
        row = boundary.view(f"uploads[{i}]", upload)
        # Converted, if at all, block by block.
        found = boundary.float_dtype(f"uploads[{i}]", row.dtype)
        rows.append(row)
        if i == 0:
            dtype = found
        if row.ndim != 1:
            raise ValueError(f"uploads must be vectors, got shape {row.shape} at index {i}")
        if row.shape != rows[0].shape or found is not dtype:
            raise ValueError(
                f"uploads must be of one length and dtype: {rows[0].size} numbers of {dtype} "
                f"at first, {row.size} of {found} at index {i}"
            )
    if not rows:
        raise ValueError("uploads must hold at least one client's, got none")
    return rows, dtype
