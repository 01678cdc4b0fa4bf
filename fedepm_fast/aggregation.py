"""ENS of uploads that are not one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .kernels.ens import ens

Array = NDArray[Any]

#: Bytes of uploads that are gathered at a time, and
#: coordinates, whatever the number of uploads: a multiple of the kernels' largest group.
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
    caches, so that memory stays at `BLOCK_BYTES` and the result.

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
    """
    m, n, dtype = len(uploads), len(uploads[0]), uploads[0].dtype
    width = max(LEAST_WIDTH, BLOCK_BYTES // (m * dtype.itemsize * GROUP) * GROUP)
    block, x = np.empty((m, min(width, n)), dtype), np.empty(n, dtype)
    for start in range(0, n, width):
        # The last block overlaps the one before, as the kernels' groups do.
        j = max(0, min(start, n - width))
        for row, upload in zip(block, uploads, strict=True):
            row[:] = upload[j : j + width]
        ens(block, c, weights=weights, out=x[j : j + width], threads=threads)
    return x
