"""ENS of a Dask array: by coordinates at once, by clients through counts and sums."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from ..kernels import _boundary as boundary
from ..kernels.ens import ens as solve
from ._search import Columns, Moments, moments_of, search

Array = NDArray[Any]


def ens(z: Any, c: float, *, weights: ArrayLike | None = None) -> Any:
    """The elastic-net solver of `kernels.ens.ens`, for a Dask array of any chunking, lazily.

    Where a block holds every client, it is solved where it is. Where clients are in several
    blocks, each block is asked for sums, and then some five to ten times how much weight lies above
    a point of every coordinate, and which numbers are next to it; answers are added in a tree, and
    no process ever holds the numbers of all clients. Blocks that are not in memory are computed, or
    read, each time: `persist` them first if they take longer to make than to read from a worker's
    memory or, where it spills them, its disk.

    Parameters
    ----------
    z : dask.array.Array of shape (m, n)
        One number per client and coordinate, float64 or float32 (integers and booleans become
        float64).
    c : float
        ``lam / eta``, at least 0: 0 gives the mean, a large c a median.
    weights : array_like of shape (m,), optional
        Positive weights of the clients; equal by default. A Dask array is computed at once.

    Returns
    -------
    dask.array.Array of shape (n,)
        Of the dtype of `z`, chunked as its coordinates are: the numbers of `kernels.ens.ens`, to
        rounding, and the same bits for any scheduler and any number of workers.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, at once; when it is computed, if there is a NaN or an infinity in `z`.

    Notes
    -----
    A search needs as many passes over the blocks for any number of clients, at most some two
    hundred for any data, as every third step halves the floats that are left. What it holds is
    nine vectors of a block's coordinates, and a worker three for each block that it answers for.
    Of Dask's own schedulers `threads` and `synchronous` search in this process; those of
    `distributed` where the cluster has room.
    """
    da: Any = require("dask.array", "dask", "fedepm_fast.dask.ens")
    dtype = _check(da, z)
    m, n = z.shape
    c = boundary.real("c", c, low=0.0)
    p = None
    if weights is not None:
        given: Any = weights.compute() if isinstance(weights, da.Array) else weights
        p = boundary.positive_weights(given, m)
    if n == 0:
        return da.empty((0,), dtype=dtype)
    if z.numblocks[0] == 1:
        return z.map_blocks(_solved, c, p, dtype=dtype, drop_axis=0, meta=np.empty(0, dtype))
    widths = z.chunks[1]
    starts = np.cumsum([0, *widths])[:-1].tolist()
    parts = [
        da.from_delayed(_column(z.blocks[:, k], c, p, start), (width,), dtype)
        for k, (start, width) in enumerate(zip(starts, widths, strict=True))
        if width
    ]
    return da.concatenate(parts).rechunk((tuple(w for w in widths if w),))


def _check(da: Any, z: Any) -> Any:
    """The dtype of the result; an error where `z` is no array of Dask that could be solved."""
    if not isinstance(z, da.Array):
        raise TypeError(
            f"z must be a dask.array, got {type(z).__name__}: kernels.ens.ens takes it as it is"
        )
    dtype = boundary.float_dtype("z", z.dtype)
    if z.ndim != 2:
        raise ValueError(f"z must have 2 dimensions, got shape {z.shape}")
    if np.isnan(z.shape).any():
        raise ValueError(
            f"z must have chunks of known sizes, got shape {z.shape}: z.compute_chunk_sizes() "
            "finds them"
        )
    if z.shape[0] == 0:
        raise ValueError(f"z must hold at least one client, got shape {z.shape}")
    return dtype


def _solved(block: Array, c: float, p: Any, block_info: Any = None) -> Array:
    """ENS of a block that has every client."""
    try:
        return solve(block, c, weights=p)
    except ValueError:
        first = block_info[0]["array-location"][1][0] if block_info else 0
        Moments.check_finite(np.asarray(block), 0, first)  # says where in all of z
        raise


def _column(z: Any, c: float, p: Any, start: int) -> Any:
    """ENS of blocks of clients that have the same coordinates, delayed."""
    from dask.delayed import Delayed

    columns = Columns(z, start, p)
    sums, graph = columns.question(moments_of, start, 1.0, rows=True)
    name = f"ens-{uuid.uuid4().hex}"
    graph[name] = (search, sums, columns, c, boundary.float_dtype("z", z.dtype))
    return Delayed(name, graph)
