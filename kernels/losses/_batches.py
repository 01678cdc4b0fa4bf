"""Gradients of some of a client's rows: they are brought together, and then computed as any are.

A *buffer* has arrays like those of the rows of one client, for so many rows as a first-level cache
holds. A batch of more is computed piece by piece, and the sums are added in order.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .._jit import device
from .._parts import part as part_of
from .._simd import lanes
from ._blocks import GROUP as BLOCKS
from ._blocks import block_layout
from ._client_rows import ClientRows, DenseRows, PackedRows, SparseRows, aligned
from ._clients import _add, _finish
from ._loss import Loss
from ._rows import GROUP as ROWS
from ._rows import csr_layout, dense_layout

_ONE = np.uint64(1)
#: Numbers that a buffer of rows that are held one by one has room for, unless one row has more.
_ENTRIES = 3072


def buffer_of(rows: ClientRows) -> tuple[Any, ...]:
    """Arrays like ``rows.arrays``, of one client with as many rows as are taken at a time.

    They are scratch, to be used by one thread at a time.
    """
    constants, dtype, ends = rows.constants, rows.dtype, np.zeros(2, np.int64)
    if isinstance(rows, PackedRows):
        _, n, width = rows.blocks.shape
        blocks = aligned((BLOCKS, n, width), rows.blocks.dtype)
        targets = aligned((BLOCKS * width if rows.targets.size else 0,), dtype)
        return blocks, targets, ends, np.zeros(1, np.int64), rows.scale, constants
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
    made, gather = _LAYOUTS[layout]
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
            total += chunk(buffer, 0, 0, w, True, part, rest)
            if begin > first:
                _add(gradient, part)
            begin = end
        return _finish(total, last - first, w, reg, rows[-1], True, gradient)

    return objective


@device
def _gather_blocks(rows, buffer, i, order, first, last, no_target):
    blocks, targets, starts, into, labels = rows[0], rows[1], rows[2], buffer[0], buffer[1]
    # The width is a constant of the type, and places are unsigned: no division, no test of signs.
    n, width = np.uint64(blocks.shape[1]), np.uint64(lanes(rows[4]))
    count = np.uint64(min(last - first, into.shape[0] * lanes(rows[4])))
    used = (count + width - _ONE) // width
    source, to, block, begin = blocks.reshape(-1), into.reshape(-1), np.uint64(starts[i]), first
    for k in range(count):
        t = np.uint64(order[begin + k])
        at = (block + t // width) * n * width + t % width
        place = k // width * n * width + k % width
        for j in range(n):
            to[place + j * width] = source[at + j * width]
    for k in range(count, used * width):
        for j in range(n):
            to[(k // width * n + j) * width + k % width] = 0.0
    if targets.size > 0:
        for k in range(count):
            labels[k] = targets[block * width + np.uint64(order[begin + k])]
        for k in range(count, used * width):
            labels[k] = no_target
    buffer[2][1], buffer[3][0] = used, count
    return first + np.int64(count)


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
    data, indices, indptr, targets, offsets = rows[0], rows[1], rows[2], rows[3], rows[4]
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


_LAYOUTS = {
    "blocks": (block_layout, _gather_blocks),
    "dense": (dense_layout, _gather_dense),
    "csr": (csr_layout, _gather_csr),
}
