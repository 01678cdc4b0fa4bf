"""Rows of a table to the blocks of `PackedRows`, in any order."""

from __future__ import annotations

from .._jit import device, kernel
from .._parts import fill as fill_with
from .._simd import (
    lanes,
    load_as,
    load_partial,
    load_transposed,
    prefetch,
    prefetch_second,
    store,
    store_as,
)

#: Rows ahead of the present one that are asked for: in random order each is a miss. From far
#: ahead they come no closer than the second cache, which waits for more lines at a time.
_AHEAD, _FAR_AHEAD = 16, 256
#: Blocks ahead, which are read before they are written to.
_BLOCKS_AHEAD = 2


def _fill(load_numbers):
    @kernel
    def fill(
        table, rows, labels, of_table, sizes, starts, folds,
        blocks, targets, memory
    ):  # fmt: skip
        n, width = blocks.shape[1], lanes(memory)
        stride, padded = table.shape[1], memory.shape[1]
        ordered, d = rows.size == 0, labels.size if rows.size == 0 else rows.size
        one = memory.dtype.type(1.0)
        first = 0
        for i in range(sizes.size):
            last = first + sizes[i]
            for b in range(starts[i], starts[i + 1]):
                for k in range(0, n * width, lanes(blocks)):
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
                    for j in range(0, n, lanes(table)):
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
                        v = load_numbers(table, row * stride + j, n - j, memory)
                        store(memory, r * padded + j, v * sign)
                at = b * n * width
                for j in range(0, n, width):
                    square = load_transposed(memory, j, padded)
                    for c in range(len(square)):
                        if j + c < n:
                            store_as(blocks, at + (j + c) * width, square[c])
                first = min(first + width, last)

    return fill


@device
def _some(table, index, count, memory):
    return load_partial(table, index, count, 0.0)


@device
def _converted(table, index, count, memory):
    return load_as(table, index, memory)


#: ``fill(table, rows, labels, of_table, sizes, starts, folds, blocks, targets, memory)`` fills the
#: blocks of all clients. Client after client takes the next ``sizes[i]`` entries of `rows`, which
#: number the rows of `table`; no rows stand for all of them, in order. `labels` are those of the
#: entries or, if `of_table`, of the table's rows. With `folds` rows are multiplied by their signs,
#: one less twice the label, otherwise labels go to `targets`. `memory` holds a row for each lane,
#: of whole vectors.
fill_blocks = _fill(_some)
#: The same from a float32 table whose rows are padded to whole vectors of `memory`.
fill_narrow_blocks = _fill(_converted)
