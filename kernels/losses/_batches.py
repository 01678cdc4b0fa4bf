"""Gradients of some of a client's rows: they are brought together, and then computed as any are.

A *buffer* has arrays like those of the rows of one client, for so many rows as a first-level cache
holds, after what is needed to fill them. A batch of more rows is computed piece by piece, and the
sums are added in order.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .._aligned import aligned
from .._jit import device
from .._parts import fill
from .._parts import part as part_of
from .._simd import lanes, load_as, load_transposed, prefetch, store
from ._blocks import GROUP as BLOCKS
from ._blocks import block_layout
from ._client_rows import ClientRows, DenseRows, PackedRows, SparseRows
from ._clients import _add, _finish
from ._dense import dense_layout
from ._loss import Loss
from ._rows import GROUP as ROWS
from ._rows import csr_layout

#: Rows ahead of the present one that are asked for.
_AHEAD = 24
#: Numbers that a buffer of rows that are held one by one has room for, unless one row has more.
_ENTRIES = 3072


def buffer_of(rows: ClientRows) -> tuple[Any, ...]:
    """Arrays like ``rows.arrays``, of one client with as many rows as are taken at a time.

    Before them, for blocks, come the table of the rows and room for a block of them. All are
    scratch, to be used by one thread at a time.
    """
    constants, dtype, ends = rows.constants, rows.dtype, np.zeros(2, np.int64)
    if isinstance(rows, PackedRows):
        width = rows.blocks.shape[2]
        blocks = aligned((BLOCKS, rows.n_features, width), dtype)
        targets = aligned((BLOCKS * width if rows.targets.size else 0,), dtype)
        size, memory = np.zeros(1, np.int64), aligned((width, rows.table.shape[1]), dtype)
        return rows.table, memory, blocks, targets, ends, size, rows.scale, constants
    if isinstance(rows, DenseRows):
        count = min(max(_ENTRIES // rows.n_features // 8 * 8, 8), ROWS)
        return np.empty((count, rows.n_features), dtype), np.empty(count, dtype), ends, constants
    assert isinstance(rows, SparseRows)
    room = max(_ENTRIES, int(np.diff(rows.indptr).max()))
    indptr = np.zeros(ROWS + 1, np.uint64)
    return (
        np.empty(room, dtype), np.empty(room, np.uint32), indptr, np.empty(ROWS, dtype), ends,
        constants,
    )  # fmt: skip


@functools.cache
def batch_objective(layout: str, loss: Loss) -> Any:
    """The device function of the objective of some rows of a client, of a layout and a loss.

    ``value = f(rows, buffer, i, order, first, last, w, reg, gradient, work)``: the mean loss of
    client i's rows ``order[first:last]``, counted from its first one, plus its regulariser, and
    the gradient of that. All else is as of `losses.client_kernel`; `buffer` is of `buffer_of`.
    """
    made, gather, before = _LAYOUTS[layout]
    _, _, chunk = made(loss)
    no_target = loss.no_target

    @device
    def objective(rows, buffer, i, order, first, last, w, reg, gradient, work):
        n = w.size
        padded = (n + lanes(w) - 1) // lanes(w) * lanes(w)
        spare, rest = part_of(work, 0, n), part_of(work, padded, work.size)
        total, begin = w.dtype.type(0), first
        while begin < last:
            end = gather(rows, buffer, i, order, begin, last, no_target)
            part = gradient if begin == first else spare
            total += chunk(buffer[before:], 0, 0, w, True, part, rest)
            if begin > first:
                _add(gradient, part)
            begin = end
        return _finish(total, last - first, w, reg, rows[-1], True, gradient)

    return objective


@device
def _gather_blocks(rows, buffer, i, order, first, last, no_target):
    table, memory, into, labels, ends, size = buffer[:6]
    targets, width, n = rows[1], lanes(memory), into.shape[1]
    count, padded, origin = min(last - first, into.shape[0] * width), table.shape[1], rows[2][i]
    used, origin = (count + width - 1) // width, origin * width
    for b in range(used):
        for r in range(width):
            k = first + b * width + r
            if k < first + count:
                row = origin + order[k]
                prefetch(table, (origin + order[min(k + _AHEAD, last - 1)]) * padded)
                for j in range(0, n, width):
                    store(memory, r * padded + j, load_as(table, row * padded + j, memory))
                if targets.size > 0:
                    labels[b * width + r] = targets[row]
            else:
                fill(memory[r], 0.0)
                if targets.size > 0:
                    labels[b * width + r] = no_target
        for j in range(0, n, width):
            square = load_transposed(memory, j, padded)
            for c in range(len(square)):
                if j + c < n:
                    store(into, (b * n + j + c) * width, square[c])
    ends[1], size[0] = used, count
    return first + count


@device
def _gather_dense(rows, buffer, i, order, first, last, no_target):
    features, targets, offsets, into, labels = rows[0], rows[1], rows[2], buffer[0], buffer[1]
    count = min(last - first, into.shape[0])
    for k in range(count):
        t = offsets[i] + order[first + k]
        for j in range(features.shape[1]):
            into[k, j] = features[t, j]
        labels[k] = targets[t]
    buffer[2][1] = count
    return first + count


@device
def _gather_csr(rows, buffer, i, order, first, last, no_target):
    """As many rows as there is room for, of rows and of entries."""
    data, indices, indptr, targets, offsets = rows[0], rows[1], rows[2], rows[-3], rows[-2]
    entries, columns, ends, labels = buffer[0], buffer[1], buffer[2], buffer[3]
    count, held = 0, np.uint64(0)
    while first + count < last and count < labels.size:
        t = offsets[i] + order[first + count]
        begin, length = indptr[t], indptr[t + 1] - indptr[t]
        if held + length > np.uint64(entries.size):
            break
        for k in range(length):
            entries[held + k] = data[begin + k]
            columns[held + k] = indices[begin + k]
        held += length
        labels[count] = targets[t]
        count += 1
        ends[count] = held
    buffer[4][1] = count
    return first + count


#: What makes the functions of a layout, what fills its buffer, and how much comes before the rows.
_LAYOUTS = {
    "blocks": (block_layout, _gather_blocks, 2),
    "narrow": (block_layout, _gather_blocks, 2),
    "dense": (dense_layout, _gather_dense, 0),
    "csr": (csr_layout, _gather_csr, 0),
}
