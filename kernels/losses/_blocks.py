"""Losses and gradients of one chunk of a client's rows, dense rows of few coordinates.

Rows are held in blocks of as many rows as a vector has lanes, each block an array (n, lanes)
of its own, so that a vector holds one coordinate of several rows and dot products need no
sums across lanes. Three phases over a group of blocks, each small enough for the registers:
margins, pointwise loss, and the sum of rows times residuals, which is held lane by lane until
the chunk ends. Of the next group one half is asked for in the second phase, the other in the
third: all in one would take more loads, or more lines at a time, than a processor has. Blocks
that no cache holds are asked for earlier, too, into the second-level one.
"""

from __future__ import annotations

from typing import Any

from .._jit import device
from .._simd import (
    first_lanes,
    fma,
    horizontal_sum,
    lanes,
    load,
    load_as,
    load_each,
    load_partial,
    load_transposed,
    piece,
    piece_lanes,
    prefetch,
    prefetch_second,
    select,
    splat,
    store,
    store_partial,
)
from ._loss import Loss
from ._steps import hide, steps_of

#: Blocks a chunk; the partial sums of chunks are added in order.
CHUNK = 1024
#: Blocks a group.
GROUP = 16
#: Cache lines of all blocks, 16 MiB of them, beyond which they come from memory.
_CACHED = 1 << 18
#: Factors, each at most 2, that a running product takes before its logarithm.
_SETTLED = 64


def block_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (blocks, targets, starts, sizes, scale, constants)``, see `PackedRows`.
    """
    step, settle, count_outputs = steps_of(loss)
    folds, no_margin, no_target = loss.folds, loss.no_margin, loss.no_target

    @device
    def size(rows, i):
        return rows[3][i]

    @device
    def count(rows, i):
        starts = rows[2]
        return (starts[i + 1] - starts[i] + (CHUNK - 1)) // CHUNK

    @device
    def chunk(rows, i, c, w, want, gradient, work):
        blocks, targets, starts, sizes, scale, constants = rows
        width, n, outputs = lanes(work), scale.size, count_outputs(constants)
        end = starts[i + 1]
        block = starts[i] + c * CHUNK
        stop = min(block + CHUNK, end)
        # Rows beyond the client's last are zero; their margins are set to what adds nothing.
        held = sizes[i] - (end - starts[i] - 1) * width
        stride = GROUP * width  # of the margins of one class, and then its residuals
        sums = outputs * stride  # they come first in `work`, then a vector of sums for each of w,
        point = sums + (w.size + width) * width  # and the point for the blocks as they are held
        scale_point(w, scale, outputs, work, point)
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        if want:
            for j in range(w.size):
                store(work, sums + j * width, zero)
        far = n * width if blocks.size // lanes(blocks) > _CACHED else 0
        total, product, factors = zero, zero, 0
        while block < stop:
            group = min(GROUP, stop - block)
            for k in range(outputs):
                margins(blocks, block, group, n, work, point + k * n, k * stride)
            if block + group == end:
                hide(work, (group - 1) * width, stride, outputs, first_lanes(work, held), no_margin)
            part, target = zero, splat(work, no_target)
            for k in range(0, group * width, width):
                if not folds:
                    target = load(targets, block * width + k)
                part, product = step(work, k, stride, outputs, target, parameter, part, product)
                soon = (block + GROUP) * n * width + k * n // 2
                for j in range(soon, soon + n * width // 2, lanes(blocks)):
                    prefetch(blocks, j)
                later = (block + 2 * GROUP) * n * width + k * n
                for j in range(later, later + far, lanes(blocks)):
                    prefetch_second(blocks, j)
            total += part
            factors += group
            if factors >= _SETTLED or block + group == stop:
                total, product, factors = settle(total, product), zero, 0
            if want:
                for k in range(outputs):
                    _accumulate(blocks, block, group, n, work, k * stride, sums + k * n * width)
            block += group
        if want:
            for k in range(outputs):
                _add_lanes(work, sums + k * n * width, scale, gradient, k * n)
        return horizontal_sum(total)

    return size, count, chunk


@device
def scale_point(w, scale, outputs, work, at):
    """The point w times the scale, to `work` at `at`."""
    n = scale.size
    for k in range(0, outputs * n, n):
        for j in range(n):
            work[at + k + j] = w[k + j] * scale[j]


@device
def margins(blocks, block, group, n, work, point, at):
    """Dot products of the rows of `group` blocks with the point at `point`, to `work` at `at`."""
    width = lanes(work)
    for part in range(0, width, piece_lanes(work)):
        _margins(blocks, block, group, n, work, point, at + part, part)


@device
def _margins(blocks, block, group, n, work, point, at, part):
    """Those of the rows of a piece, from lane `part` on."""
    width = lanes(work)
    size = n * width
    zero = piece(splat(work, 0.0), 0)
    b = 0
    while b + 8 <= group:
        s0, s1, s2, s3, s4, s5, s6, s7 = zero, zero, zero, zero, zero, zero, zero, zero
        k = (block + b) * size + part
        for j in range(point, point + n):
            x = piece(load_each(work, j), 0)
            s0 = fma(load_as(blocks, k, zero), x, s0)
            s1 = fma(load_as(blocks, k + size, zero), x, s1)
            s2 = fma(load_as(blocks, k + 2 * size, zero), x, s2)
            s3 = fma(load_as(blocks, k + 3 * size, zero), x, s3)
            s4 = fma(load_as(blocks, k + 4 * size, zero), x, s4)
            s5 = fma(load_as(blocks, k + 5 * size, zero), x, s5)
            s6 = fma(load_as(blocks, k + 6 * size, zero), x, s6)
            s7 = fma(load_as(blocks, k + 7 * size, zero), x, s7)
            k += width
        k = at + b * width
        store(work, k, s0)
        store(work, k + width, s1)
        store(work, k + 2 * width, s2)
        store(work, k + 3 * width, s3)
        store(work, k + 4 * width, s4)
        store(work, k + 5 * width, s5)
        store(work, k + 6 * width, s6)
        store(work, k + 7 * width, s7)
        b += 8
    while b < group:
        # Four at a time here, too, as many as hide the latency: the last block stands in.
        s0, s1, s2, s3 = zero, zero, zero, zero
        k, last = (block + b) * size + part, (block + group - 1) * size + part
        k1, k2, k3 = min(k + size, last), min(k + 2 * size, last), min(k + 3 * size, last)
        for j in range(n):
            x = piece(load_each(work, point + j), 0)
            s0 = fma(load_as(blocks, k + j * width, zero), x, s0)
            s1 = fma(load_as(blocks, k1 + j * width, zero), x, s1)
            s2 = fma(load_as(blocks, k2 + j * width, zero), x, s2)
            s3 = fma(load_as(blocks, k3 + j * width, zero), x, s3)
        k = at + b * width
        store(work, k, s0)
        store(work, k + width, s1)
        store(work, k + 2 * width, s2)
        store(work, k + 3 * width, s3)
        b += 4


@device
def _accumulate(blocks, block, group, n, work, at, sums):
    """Add the rows of `group` blocks, times the residuals in `work` at `at`, to those at `sums`.

    Meanwhile the second half of the next group is asked for, of the next client too.
    """
    size = n * lanes(work)
    soon = (block + GROUP) * size + group * size // 2
    for part in range(0, lanes(work), piece_lanes(work)):
        _accumulate_part(blocks, block, group, n, work, at + part, sums + part, part, soon)
        soon += group * n * piece_lanes(work) // 2


@device
def _accumulate_part(blocks, block, group, n, work, at, sums, part, soon):
    """That of the rows of a piece, from lane `part` on."""
    width, line, zero = lanes(work), lanes(blocks), piece(splat(work, 0.0), 0)
    size = n * width
    ahead = 4 * piece_lanes(work) // line
    b = 0
    while b + 8 <= group:
        k = at + b * width
        r0, r1 = load_as(work, k, zero), load_as(work, k + width, zero)
        k += 2 * width
        r2, r3 = load_as(work, k, zero), load_as(work, k + width, zero)
        k += 2 * width
        r4, r5 = load_as(work, k, zero), load_as(work, k + width, zero)
        k += 2 * width
        r6, r7 = load_as(work, k, zero), load_as(work, k + width, zero)
        k = (block + b) * size + part
        for j in range(sums, sums + size, width):
            for _ in range(ahead):
                prefetch(blocks, soon)
                soon += line
            even = load_as(blocks, k, zero) * r0
            odd = load_as(blocks, k + size, zero) * r1
            even = fma(load_as(blocks, k + 2 * size, zero), r2, even)
            odd = fma(load_as(blocks, k + 3 * size, zero), r3, odd)
            even = fma(load_as(blocks, k + 4 * size, zero), r4, even)
            odd = fma(load_as(blocks, k + 5 * size, zero), r5, odd)
            even = fma(load_as(blocks, k + 6 * size, zero), r6, even)
            odd = fma(load_as(blocks, k + 7 * size, zero), r7, odd)
            store(work, j, load_as(work, j, zero) + (even + odd))
            k += width
        b += 8
    while b < group:
        # Residuals of blocks that are not there are zero.
        k = at + b * width
        r0 = load_as(work, k, zero)
        r1 = select(b + 1 < group, load_as(work, k + width, zero), zero)
        r2 = select(b + 2 < group, load_as(work, k + 2 * width, zero), zero)
        r3 = select(b + 3 < group, load_as(work, k + 3 * width, zero), zero)
        k, last = (block + b) * size + part, (block + group - 1) * size + part
        k1, k2, k3 = min(k + size, last), min(k + 2 * size, last), min(k + 3 * size, last)
        for j in range(0, size, width):
            for _ in range(ahead):
                prefetch(blocks, soon)
                soon += line
            even = load_as(blocks, k + j, zero) * r0
            odd = load_as(blocks, k1 + j, zero) * r1
            even = fma(load_as(blocks, k2 + j, zero), r2, even)
            odd = fma(load_as(blocks, k3 + j, zero), r3, odd)
            total = load_as(work, sums + j, zero) + (even + odd)
            store(work, sums + j, total)
        b += 4


@device
def _add_lanes(work, sums, scale, gradient, start):
    """The sums at `sums` over their lanes, times the scale, to the gradient from `start` on."""
    n, width = scale.size, lanes(work)
    for j in range(0, n, width):
        columns = load_transposed(work, sums + j * width, width)
        total = load_partial(scale, j, n - j, 0.0) * _tree_sum(columns, width)
        store_partial(gradient, start + j, total, n - j)


@device
def _tree_sum(v, width):
    """The sum of a tuple of 8 or 16 vectors."""
    low = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
    if width == 8:
        return low
    return low + (((v[-8] + v[-7]) + (v[-6] + v[-5])) + ((v[-4] + v[-3]) + (v[-2] + v[-1])))
