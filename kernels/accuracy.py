"""Rows on the wrong side: the accuracy of linear classifiers on packed rows."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import ArrayLike, NDArray

from ._boundary import ArgumentTypeError, ArgumentValueError, as_floats, check_finite, check_shape
from ._jit import device, kernel, stage, warms
from ._pointers import address_of
from ._simd import (
    any_true,
    count_true,
    first_lanes,
    lanes,
    load,
    load_partial,
    maximum,
    select,
    splat,
)
from ._views import view_of, whole
from .losses._blocks import GROUP as BLOCKS
from .losses._blocks import group_margins, scale_point
from .losses._client_rows import ClientRows, aligned
from .losses._dense import dense_margins
from .losses._narrow import narrow_table
from .losses._packed import pack
from .losses._rows import GROUP, csr_margins


def wrong_and_ties(rows: ClientRows, points: ArrayLike) -> NDArray[np.int64]:
    """Rows that a point classifies wrongly, and rows on its border.

    Parameters
    ----------
    rows : ClientRows
        From `losses.pack`, for a loss whose labels are classes.
    points : array_like of shape (t, n)
        Of the dtype of `rows`; n is ``rows.n_parameters``.

    Returns
    -------
    ndarray of int64, shape (t, 2)
        How many rows a have ``<a, x>`` above 0 with label 0 or below 0 with label 1, and how
        many have ``<a, x> = 0``. For the multinomial loss, how many rows have the largest
        margin, or the first of equal ones, in another class than theirs, and 0.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    if not isinstance(rows, ClientRows):
        raise ArgumentTypeError("rows", f"must come from pack(), got {type(rows).__name__}")
    loss = rows.loss
    if loss.labels not in ("binary", "classes"):
        raise ArgumentValueError("rows", f"must hold classes, they are packed for {loss.name!r}")
    points = as_floats("points", points, ndim=2, like=np.empty(0, rows.dtype))
    check_shape("points", points, (len(points), rows.n_parameters))
    check_finite("points", points)
    if not points.flags.writeable:
        points = points.copy()
    count, arrays, (work, out) = counting(rows, len(points))
    count(arrays, points, work, out)
    return out


def counting(rows: ClientRows, points: int = 1) -> tuple[Any, Any, tuple[Any, NDArray[np.int64]]]:
    """What `wrong_and_ties` calls, checking nothing: ``f(arrays, points, work, out)``.

    Returns
    -------
    f, arrays : compiled function, tuple
    work, out : ndarray
        Memory, and where the counts of so many `points` go.
    """
    work, out = aligned((rows.work_size,), rows.dtype), np.empty((points, 2), np.int64)
    return _function(rows), rows.arrays, (work, out)


def _function(rows: ClientRows) -> Any:
    return _counting(rows.layout, rows.n_outputs > 1, rows.loss.folds)


class Counted(NamedTuple):
    """What rows are counted of, and memory: as of `counting`."""

    points: NDArray[Any]
    work: NDArray[Any]
    out: NDArray[np.int64]


def counting_at(rows: ClientRows, counted: Counted) -> int:
    """The address of ``f(arrays, counted)``, of addresses of the words of both."""
    kinds = view_of(rows.arrays, "rows"), view_of(counted)
    return address_of(_by_address(_function(rows)).get_compile_result(types.none(*kinds)))


@functools.cache
def _by_address(count: Any) -> Any:
    @stage
    def count_at(rows, counted):
        count(whole(rows), counted.points, counted.work, counted.out)

    return count_at


@device
def _sign(margins, targets, first, size):
    """Margins times 1 - 2b, for labels b that are not folded into the rows."""
    for r in range(size):
        margins[r] *= 1 - 2 * targets[first + r]


@device
def _clear(out):
    for t in range(out.shape[0]):
        out[t, 0] = out[t, 1] = 0


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


@device
def _tally_classes(margins, stride, outputs, targets, first, size, out):
    """Count the rows whose largest margin, or the first of equal ones, is not their class's."""
    for r in range(0, size, lanes(margins)):
        inside = first_lanes(margins, size - r)
        target = load_partial(targets, first + r, size - r, 0.0)
        largest = load(margins, r)
        best = splat(margins, 0.0)
        for k in range(1, outputs):
            margin = load(margins, k * stride + r)
            best = select(margin > largest, float(k), best)
            largest = maximum(largest, margin)
        out[0] += count_true((best != target) & inside)


@functools.cache
def _counting(layout: str, classes: bool, folds: bool) -> Any:
    if layout in ("blocks", "narrow"):
        return _in_blocks(classes, folds, layout == "narrow")
    return _in_rows(dense_margins if layout == "dense" else csr_margins, classes, folds)


def _in_blocks(classes, folds, narrow):
    margins_of = group_margins(classes, narrow)

    @kernel
    def count_blocks(rows, points, work, out):
        blocks, targets, starts, sizes, scale = rows[:5]
        columns, constants = rows[-2], rows[-1]
        width, n = lanes(work), scale.size
        outputs = int(constants[0]) if classes else 1
        _clear(out)
        point = outputs * BLOCKS * width
        room = point + (outputs * n + (width - 1)) // width * width
        for t in range(points.shape[0]):
            scale_point(points[t], scale, outputs, work, point)
            for i in range(sizes.size):
                first, left = starts[i], sizes[i]
                while left > 0:
                    group = min(BLOCKS, starts[i + 1] - first)
                    size = min(left, group * width)
                    margins_of(blocks, first, group, columns, n, work, point, outputs, room)
                    if classes:
                        at = first * width
                        _tally_classes(work, BLOCKS * width, outputs, targets, at, size, out[t])
                    else:
                        if not folds:
                            _sign(work, targets, first * width, size)
                        _tally(work, size, out[t])
                    left -= group * width
                    first += group

    return count_blocks


def _in_rows(margins, classes, folds):
    @kernel
    def count_rows(rows, points, work, out):
        targets, offsets, constants = rows[-3], rows[-2], rows[-1]
        outputs = int(constants[0]) if classes else 1
        n = points.shape[1] // outputs
        _clear(out)
        d = offsets[offsets.size - 1]
        for t in range(points.shape[0]):
            for first in range(0, d, GROUP):
                group = min(GROUP, d - first)
                for k in range(outputs):
                    margins(rows, first, group, n, points[t], k * n, work, k * GROUP)
                if classes:
                    _tally_classes(work, GROUP, outputs, targets, first, group, out[t])
                else:
                    if folds:
                        for r in range(group):
                            work[r] *= targets[first + r]
                    else:
                        _sign(work, targets, first, group)
                    _tally(work, group, out[t])

    return count_rows


@warms
def _warm(dtypes: Any) -> None:
    for dtype in dtypes:
        table = np.ones((1, 1), dtype)
        narrow = [narrow_table(table)] if table.dtype == np.float64 else []
        for features in (table, *narrow):
            wrong_and_ties(pack(features, [0], [1]), table)
