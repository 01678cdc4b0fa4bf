"""ENS of uploads that are not one array."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._validation import check_int
from .kernels.ens import ens

Array = NDArray[Any]

#: Bytes of uploads that are gathered at a time, but at least so many coordinates, and a multiple
#: of the kernels' largest group of them.
BLOCK_BYTES, LEAST_WIDTH, GROUP = 1 << 22, 1024, 16


def aggregate(
    uploads: Sequence[Array],
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
    uploads : sequence of m ndarrays of shape (n,)
        Of one dtype, float64 or float32.
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
    if len(uploads) == 0:
        raise ValueError("uploads must hold at least one client's, got none")
    for i, upload in enumerate(uploads):
        if upload.ndim != 1 or upload.shape != uploads[0].shape or upload.dtype != uploads[0].dtype:
            raise ValueError(
                f"uploads must be vectors of one length and dtype: {uploads[0].dtype}"
                f"{uploads[0].shape} at first, {upload.dtype}{upload.shape} at index {i}"
            )
    m, n, dtype = len(uploads), len(uploads[0]), uploads[0].dtype
    width = max(LEAST_WIDTH, BLOCK_BYTES // (m * dtype.itemsize * GROUP) * GROUP)
    x = np.empty(n, dtype)

    def solve(starts: NDArray[np.intp]) -> None:
        block = np.empty((m, min(width, n)), dtype)
        for start in starts:
            # The last block overlaps the one before, as the kernels' groups do.
            j = max(0, min(int(start), n - width))
            for row, upload in zip(block, uploads, strict=True):
                row[:] = upload[j : j + width]
            x[j : j + width] = ens(block, c, weights=weights)

    count = 1 if threads is None else check_int("threads", threads, low=1)
    starts = np.arange(0, n, width)
    if count == 1 or len(starts) == 1:
        solve(starts)
    else:
        # Gathering and solving both release the GIL; each thread has blocks of its own.
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(solve, np.array_split(starts, count)))
    return x
