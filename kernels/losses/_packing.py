"""Rows of a table to the blocks of `PackedRows`, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._jit import device, kernel
from .._parts import fill as fill_with
from .._simd import (
    first_lanes,
    lane,
    lanes,
    load_each,
    load_partial,
    load_transposed,
    prefetch,
    prefetch_second,
    select,
    splat,
    store,
    store_partial,
    subtract_bytes,
    transpose_bytes,
    transpose_floats,
    with_lane,
)

#: Rows ahead of the present one that are asked for: in random order each is a miss. From far
#: ahead they come no closer than the second cache, which waits for more lines at a time.
_AHEAD, _FAR_AHEAD = 16, 256
#: The same of narrow rows, of which as many fit in a line or two.
_AHEAD_NARROW = 32
#: Blocks ahead, which are read before they are written to.
_BLOCKS_AHEAD = 2
_SIGNS = np.uint64(0x8000000080000000)


@kernel
def fill_blocks(
    table, rows, labels, of_table, sizes, starts, folds,
    blocks, targets, memory
):  # fmt: skip
    """Fill the blocks of all clients.

    Client after client takes the next ``sizes[i]`` entries of `rows`, which number the rows of
    `table`; no rows stand for all of them, in order. `labels` are those of the entries or, if
    `of_table`, of the table's rows. With `folds` rows are multiplied by their signs, one less
    twice the label, otherwise labels go to `targets`. `memory` holds a row for each lane, of whole
    vectors.
    """
    n, width = blocks.shape[1], lanes(memory)
    stride, padded = table.shape[1], memory.shape[1]
    ordered, d = rows.size == 0, labels.size if rows.size == 0 else rows.size
    one = memory.dtype.type(1.0)
    first = 0
    for i in range(sizes.size):
        last = first + sizes[i]
        for b in range(starts[i], starts[i + 1]):
            for k in range(0, n * width, width):
                prefetch(blocks, (b + _BLOCKS_AHEAD) * n * width + k)
            for r in range(width):
                t = first + r
                if t >= last:
                    fill_with(memory[r], 0.0)
                    continue
                row = t if ordered else rows[t]
                soon, later = min(t + _AHEAD, d - 1), min(t + _FAR_AHEAD, d - 1)
                if not ordered:
                    soon, later = rows[soon], rows[later]
                for j in range(0, n, width):
                    prefetch(table, soon * stride + j)
                    prefetch_second(table, later * stride + j)
                if of_table:
                    prefetch(labels, soon)
                label = labels[row if of_table else t]
                sign = one
                if folds:
                    sign -= label + label
                else:
                    targets[b * width + r] = label
                for j in range(0, n, width):
                    v = load_partial(table, row * stride + j, n - j, 0.0)
                    store(memory, r * padded + j, v * sign)
            at = b * n * width
            for j in range(0, n, width):
                square = load_transposed(memory, j, padded)
                for c in range(len(square)):
                    if j + c < n:
                        store(blocks, at + (j + c) * width, square[c])
            first = min(first + width, last)


@device
def _place(rows, t):
    return t if rows.size == 0 else rows[t]


@device
def _places(rows, first, last):
    """Where the next rows are, the last one again where there are fewer."""
    t1, t2, t3 = min(first + 1, last), min(first + 2, last), min(first + 3, last)
    t4, t5 = min(first + 4, last), min(first + 5, last)
    t6, t7 = min(first + 6, last), min(first + 7, last)
    low = _place(rows, first), _place(rows, t1), _place(rows, t2), _place(rows, t3)
    return low, (_place(rows, t4), _place(rows, t5), _place(rows, t6), _place(rows, t7))


@device
def _collected(table, places, words, k):
    """The k-th words of rows, which `gather` would first have to take out of a vector."""
    low, high = places
    v = load_each(table, low[0] * words + k)
    v = with_lane(v, 1, lane(load_each(table, low[1] * words + k), 0))
    v = with_lane(v, 2, lane(load_each(table, low[2] * words + k), 0))
    v = with_lane(v, 3, lane(load_each(table, low[3] * words + k), 0))
    v = with_lane(v, 4, lane(load_each(table, high[0] * words + k), 0))
    v = with_lane(v, 5, lane(load_each(table, high[1] * words + k), 0))
    v = with_lane(v, 6, lane(load_each(table, high[2] * words + k), 0))
    return with_lane(v, 7, lane(load_each(table, high[3] * words + k), 0))


@kernel
def fill_narrow_blocks(
    table, rows, labels, of_table, sizes, starts, folds, float_words,
    blocks, targets
):  # fmt: skip
    """The same of a `NarrowTable`, whose ``rows`` are `table`; all numbers are words of 8 bytes."""
    words, width = table.shape[1], lanes(table)
    zero = splat(table, 0)
    first = 0
    for i in range(sizes.size):
        last = first + sizes[i]
        for b in range(starts[i], starts[i + 1]):
            count = last - first
            held, at = first_lanes(table, count), _places(rows, first, last - 1)
            for t in range(first + _AHEAD_NARROW, min(first + _AHEAD_NARROW + width, rows.size)):
                prefetch(table, rows[t] * words)  # the processor goes on by itself
                if of_table:
                    prefetch(labels, rows[t])
            label = load_partial(labels, first, 0 if of_table else count, 0)
            if of_table:
                label = _collected(labels, at, 1, 0)
            negative = splat(table, 0)
            if folds:
                negative = select((label << 1 > zero) & held, ~zero, zero)  # zeros have signs
            else:
                store_partial(targets, b * width, label, count)
            for k in range(words):
                v = select(held, _collected(table, at, words, k), zero)
                if k < float_words:
                    v = transpose_floats(v ^ (negative & _SIGNS))
                else:
                    v = transpose_bytes(subtract_bytes(v ^ negative, negative))
                store(blocks, (b * words + k) * width, v)
            first = min(first + width, last)


def in_words(*arrays: NDArray[Any]) -> list[NDArray[np.uint64]]:
    """`labels`, `blocks` and `targets` as `fill_narrow_blocks` takes them."""
    labels, blocks, targets = arrays
    return [a.view(np.uint64) for a in (labels, blocks.reshape(len(blocks), -1), targets)]
