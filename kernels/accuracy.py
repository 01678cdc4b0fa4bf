"""Rows on the wrong side: the accuracy of linear classifiers on packed rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._boundary import as_floats, check_finite, check_shape
from ._jit import device, kernel, warms
from ._losses_blocks import GROUP as BLOCKS
from ._losses_blocks import _margins as block_margins
from ._losses_rows import GROUP, _csr_margins, _dense_margins
from ._packed import ClientRows, aligned, pack
from ._pointwise import POINTWISE
from ._simd import any_true, count_true, first_lanes, lanes, load

_ROW_MARGINS = {"dense": _dense_margins, "csr": _csr_margins}


def wrong_and_ties(rows: ClientRows, points: ArrayLike) -> NDArray[np.int64]:
    """Rows that a point classifies wrongly, and rows on its border.

    Parameters
    ----------
    rows : ClientRows
        From `losses.pack`, for a loss whose labels are folded into the rows, as the logistic
        one's are.
    points : array_like of shape (t, n)
        Of the dtype of `rows`.

    Returns
    -------
    ndarray of int64, shape (t, 2)
        How many rows a have ``<a, x>`` above 0 with label 0 or below 0 with label 1, and how
        many have ``<a, x> = 0``.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    if not isinstance(rows, ClientRows):
        raise TypeError(f"rows must come from pack(), got {type(rows).__name__}")
    if not POINTWISE[rows.loss].folds:
        raise ValueError(f"rows must hold two classes, they are packed for {rows.loss!r}")
    points = as_floats("points", points, ndim=2, like=np.empty(0, rows.dtype))
    check_shape("points", points, (len(points), rows.n_features))
    check_finite("points", points)
    if not points.flags.writeable:
        points = points.copy()
    out = np.empty((len(points), 2), np.int64)
    work = aligned((rows.work_size,), rows.dtype)
    _counting(rows.layout)(rows.arrays, points, work, out)
    return out


@device
def _tally(margins, size, out):
    """Count the margins above, and at, zero."""
    for r in range(0, size, lanes(margins)):
        s = load(margins, r)
        inside = first_lanes(margins, size - r)
        out[0] += count_true((s > 0.0) & inside)
        ties = (s == 0.0) & inside
        if any_true(ties):
            out[1] += count_true(ties)


@functools.cache
def _counting(layout: str) -> Any:
    if layout == "blocks":

        @kernel
        def count_blocks(rows, points, work, out):
            blocks, _, starts, sizes, scale = rows
            width = lanes(work)
            out[:] = 0
            for t in range(points.shape[0]):
                for i in range(sizes.size):
                    first, left = starts[i], sizes[i]
                    while left > 0:
                        group = min(BLOCKS, starts[i + 1] - first)
                        block_margins(blocks, first, group, points[t], scale, work)
                        _tally(work, min(left, group * width), out[t])
                        left -= group * width
                        first += group

        return count_blocks

    margins = _ROW_MARGINS[layout]

    @kernel
    def count_rows(rows, points, work, out):
        targets, offsets = rows[-2], rows[-1]
        out[:] = 0
        d = offsets[offsets.size - 1]
        for t in range(points.shape[0]):
            for first in range(0, d, GROUP):
                group = min(GROUP, d - first)
                margins(rows, first, group, points[t], work)
                for r in range(group):
                    work[r] *= targets[first + r]
                _tally(work, group, out[t])

    return count_rows


@warms
def _warm() -> None:
    for dtype in (np.float64, np.float32):
        rows = pack(np.ones((1, 1), dtype), [0], [1])
        wrong_and_ties(rows, np.ones((1, 1), dtype))
