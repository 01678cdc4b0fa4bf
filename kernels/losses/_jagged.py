"""Losses and gradients of one chunk of a client's sparse rows, from a copy of their entries.

A client's rows are taken in *panels* whose entries a second-level cache holds. Those of a panel are
ordered by how many entries they have, most first, and as many as a vector has lanes, one after the
other, stand side by side: first the first entries of all of them, then the second ones of those
that have two, and so on. So an entry is one lane of a vector, no memory is left empty, rows end
together where processors foresee it, and 16 bits are enough for a column.

The entries of a panel are read twice, for the margins and for the gradient. Meanwhile the next
panel is asked for: the second time nothing else is to be read from memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._aligned import recycled
from .._jit import device, kernel
from .._parts import part as part_of
from .._simd import (
    add_products_at,
    count_true,
    fma,
    horizontal_sum,
    lane,
    lanes,
    load,
    load_at,
    prefetch,
    prefetch_second,
    select,
    splat,
    store_at,
)
from .._simd._types import VECTOR_BYTES
from ._loss import Loss
from ._rows import CHUNK, GROUP, chunks_of, losses_of_margins, rows_of
from ._steps import SETTLED, steps_of

#: The most rows of a panel, and the entries that one has, unless `GROUP` rows have more.
PANEL, _ENTRIES = 1024, 1 << 15
#: What lies between the margins of two outputs: no multiple of the sets of a cache. At `PANEL`
#: those of rows that there are not are written.
APART = PANEL + 16
#: Entries ahead that are asked for when margins are computed.
_AHEAD = 512
#: So many rows of a vector end by themselves, if one of them is longer than the next one by more.
_FEW, _LONGER = 3, 8
#: Columns up to which their numbers have 16 bits.
_SHORT = 1 << 16


def jagged_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (data, indices, indptr, values, columns, order, lengths, panels, starts, heights,
    targets, offsets, constants)``, see `SparseRows`.
    """
    _, settle, count_outputs = steps_of(loss)
    add_losses = losses_of_margins(loss, APART)

    @device
    def chunk(rows, i, c, w, want, gradient, work):
        heights, targets, offsets, constants = rows[9], rows[-3], rows[-2], rows[-1]
        width, outputs = lanes(work), count_outputs(constants)
        n = w.size // outputs
        first = offsets[i] + c * CHUNK
        stop = min(first + CHUNK, offsets[i + 1])
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        if want:
            gradient[:] = 0
        total, product, factors = zero, zero, 0
        while first < stop:
            rows_here = min(heights[i], stop - first)
            for k in range(outputs):
                _margins(rows, i, first, n, w, k * n, work, k * APART)
            for at in range(0, rows_here, GROUP):
                end = min(at + GROUP, rows_here)
                part, product = add_losses(
                    targets, first, at, end, outputs, parameter, zero, product, work
                )
                factors += (end - at + (width - 1)) // width
                total += part
                if factors >= SETTLED or first + end == stop:
                    total, product, factors = settle(total, product), zero, 0
            if want:
                for k in range(outputs):
                    _add_gradient(rows, i, first, n, work, k * APART, gradient, k * n)
            first += rows_here
        return horizontal_sum(total)

    return rows_of, chunks_of, chunk


@device
def _panel(rows, i, first):
    """The number of the panel that begins with a row."""
    starts, heights, before = rows[8], rows[9], first - rows[-2][i]
    if before == 0:
        return starts[i]
    height, chunks = heights[i], before // CHUNK
    panels = (CHUNK + height - 1) // height
    return starts[i] + chunks * panels + (before - chunks * CHUNK) // height


@device
def _extent(lengths, row, width):
    """Entries of the longest row of a vector, of the longest that ends with others, of all."""
    longest, few = np.int64(lengths[row]), np.int64(lengths[row + _FEW])
    shared = few if longest - few > _LONGER else longest
    return longest, shared, np.int64(lengths[row + width - 1])


@device
def _margins(rows, i, first, n, w, start, work, at):
    values, columns, order, lengths, panels = rows[3], rows[4], rows[5], rows[6], rows[7]
    point, margins = part_of(w, start, start + n), part_of(work, at, work.size)
    width, zero, p = lanes(work), splat(work, 0.0), _panel(rows, i, first)
    k = panels[p, 1]
    for row in range(panels[p, 0], panels[p + 1, 0], width):
        longest, shared, whole = _extent(lengths, row, width)
        # Sums of every other entry, the one that the next entry goes to first.
        this, that = zero, zero
        for _ in range(whole):
            prefetch(values, k + _AHEAD)
            prefetch(columns, k + _AHEAD)
            this, that = that, fma(load(values, k), load_at(point, columns, k), this)
            k += width
        some = load(lengths, row)
        for entry in range(whole, shared):
            held = some > entry
            now = select(held, fma(load(values, k), load_at(point, columns, k), this), this)
            this, that = that, now
            k += count_true(held)
        store_at(margins, order, row, this + that)
        if longest > shared:
            for t in range(_FEW):
                rest, even, odd = np.int64(lengths[row + t]) - shared, lane(this, t), lane(that, t)
                for _ in range(rest // 2):
                    even = fma(values[k], point[columns[k]], even)
                    odd = fma(values[k + 1], point[columns[k + 1]], odd)
                    k += 2
                if rest % 2 == 1:
                    even = fma(values[k], point[columns[k]], even)
                    k += 1
                margins[order[row + t]] = even + odd


@device
def _add_gradient(rows, i, first, n, work, at, gradient, start):
    values, columns, order, lengths, panels = rows[3], rows[4], rows[5], rows[6], rows[7]
    slope, residuals = part_of(gradient, start, start + n), part_of(work, at, work.size)
    width, zero, p = lanes(work), splat(work, 0.0), _panel(rows, i, first)
    k = panels[p, 1]
    ahead = panels[p + 1, 1] - k
    for row in range(panels[p, 0], panels[p + 1, 0], width):
        longest, shared, whole = _extent(lengths, row, width)
        r = load_at(residuals, order, row)
        for _ in range(whole):
            prefetch_second(values, k + ahead)
            prefetch_second(columns, k + ahead)
            add_products_at(slope, columns, k, r, load(values, k))
            k += width
        some = load(lengths, row)
        for entry in range(whole, shared):
            held = some > entry
            add_products_at(slope, columns, k, select(held, r, zero), load(values, k))
            k += count_true(held)
        if longest > shared:
            for t in range(_FEW):
                residual = residuals[order[row + t]]
                for _ in range(shared, np.int64(lengths[row + t])):
                    j = columns[k]
                    slope[j] = fma(residual, values[k], slope[j])
                    k += 1


# Packing --------------------------------------------------------------------------------


def jagged(
    data: NDArray[Any],
    indices: NDArray[np.int32],
    indptr: NDArray[np.int64],
    offsets: NDArray[np.int64],
    n: int,
) -> list[NDArray[Any]]:
    """What `SparseRows` holds of compressed sparse rows of n columns, from `values` on."""
    width = VECTOR_BYTES // data.itemsize
    sizes, entries = np.diff(offsets), np.diff(indptr[offsets])
    # Of the client's own rows alone: its sums do not depend on who else there is.
    heights = _ENTRIES * sizes // np.maximum(entries, 1) // GROUP * GROUP
    heights = np.clip(heights, GROUP, PANEL)
    panels = sizes // CHUNK * -(-CHUNK // heights) + -(-(sizes % CHUNK) // heights)
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(panels[:-1], out=starts[1:])
    rows = int((-(-sizes // width)).sum()) * width
    room = data.size + 2 * width  # vectors are read from the last entries on
    values = recycled((room,), data.dtype)
    columns = recycled((room,), np.uint16 if n <= _SHORT else np.uint32)
    values[data.size :], columns[data.size :] = 0, 0
    order, lengths = np.empty(rows, np.uint16), np.empty(rows, f"i{data.itemsize}")
    held = np.empty((int(panels.sum()) + 1, 2), np.int64)
    counts = np.empty(int(np.diff(indptr).max()) + 2, np.int64)
    given = data, indices, indptr, offsets, heights
    _fill(*given, values, columns, order, lengths, held, counts, np.empty(width, np.int64))
    return [values, columns, order, lengths, held, starts, heights]


@kernel
def _fill(
    data, indices, indptr, offsets, heights, values, columns, order, lengths, panels, counts, begin
):
    width = lanes(values)
    p, row, k = 0, 0, 0
    for i in range(heights.size):
        first = offsets[i]
        while first < offsets[i + 1]:
            within = (first - offsets[i]) % CHUNK
            stop = min(first + min(heights[i], CHUNK - within), offsets[i + 1])
            panels[p, 0], panels[p, 1] = row, k
            _sort(indptr, first, stop, row, order, lengths, counts)
            filled = row + stop - first
            while filled % width != 0:
                order[filled], lengths[filled] = PANEL, 0
                filled += 1
            ahead = indptr[stop] - k
            while row < filled:
                for t in range(width):
                    r = first + order[row + t] if lengths[row + t] > 0 else first
                    begin[t] = indptr[r]
                k = _interleave(data, indices, begin, row, lengths, k, ahead, values, columns)
                row += width
            first = stop
            p += 1
    panels[p, 0], panels[p, 1] = row, k


@device
def _sort(indptr, first, stop, row, order, lengths, counts):
    """The rows of a panel from `row` on, the longest first, those of a length as they were."""
    longest = 0
    for t in range(first, stop):
        longest = max(longest, indptr[t + 1] - indptr[t])
    counts[: longest + 2] = 0
    for t in range(first, stop):
        counts[longest - (indptr[t + 1] - indptr[t]) + 1] += 1
    for length in range(longest + 1):
        counts[length + 1] += counts[length]
    for t in range(first, stop):
        length = indptr[t + 1] - indptr[t]
        to = row + counts[longest - length]
        counts[longest - length] += 1
        order[to], lengths[to] = t - first, length


@device
def _interleave(data, indices, begin, row, lengths, k, ahead, values, columns):
    """The entries of a vector's rows, from the k-th place on; the place after them."""
    width = lanes(values)
    _, shared, whole = _extent(lengths, row, width)
    for entry in range(whole):
        prefetch_second(data, k + ahead)
        prefetch_second(indices, k + ahead)
        for t in range(width):
            at = begin[t] + entry
            values[k + t], columns[k + t] = data[at], indices[at]
        k += width
    active = width
    for entry in range(whole, shared):
        while lengths[row + active - 1] <= entry:
            active -= 1
        for t in range(active):
            at = begin[t] + entry
            values[k + t], columns[k + t] = data[at], indices[at]
        k += active
    for t in range(_FEW):
        for at in range(begin[t] + shared, begin[t] + lengths[row + t]):
            values[k], columns[k] = data[at], indices[at]
            k += 1
    return k
