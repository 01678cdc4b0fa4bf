"""Losses and gradients of one chunk of a client's rows, dense rows of few coordinates.

Rows are held in blocks of as many rows as a vector has lanes, each block an array (n, lanes)
of its own, so that a vector holds one coordinate of several rows and dot products need no
sums across lanes. Three phases over a group of blocks, each small enough for the registers:
margins, pointwise loss, and the sum of rows times residuals, which is held lane by lane until
the chunk ends. Of the next group one half is asked for in the second phase, the other in the
third: all in one would take more loads, or more lines at a time, than a processor has. Blocks
that no cache holds are asked for earlier, too, into the second-level one. Blocks of bytes are
converted first, a group at a time, once for both phases; of the next group all are asked for in
the second phase.
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
    load_bytes,
    load_each,
    load_floats,
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
from ._narrow import BASE, FLOAT
from ._steps import SETTLED, hide, steps_of

#: Blocks a chunk; the partial sums of chunks are added in order.
CHUNK = 1024
#: Blocks a group.
GROUP = 16
#: Bytes of a cache line.
_LINE = 64
#: Bytes of all blocks beyond which they come from memory.
_CACHED = 1 << 24


def block_layout(loss: Loss, narrow: bool = False) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (blocks, targets, starts, sizes, scale, constants)``, see `PackedRows`; or with
    `columns` before the last, see `NarrowRows`.
    """
    margins_of = group_margins(loss.labels == "classes", narrow)
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
        blocks, targets, starts, sizes, scale = rows[:5]
        columns, constants = rows[-2], rows[-1]
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
        room = point + (w.size + (width - 1)) // width * width  # for a group of numbers
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        if want:
            for j in range(w.size):
                store(work, sums + j * width, zero)
        line = _LINE if narrow else width  # numbers of a cache line
        each = blocks.shape[1] * blocks.shape[2]
        early = each if narrow else each // 2
        near = (early + (line - 1)) // line
        far = (each + (line - 1)) // line if blocks.size // line * _LINE > _CACHED else 0
        total, product, factors = zero, zero, 0
        while block < stop:
            group = min(GROUP, stop - block)
            numbers, origin = margins_of(
                blocks, block, group, columns, n, work, point, outputs, room
            )
            if block + group == end:
                hide(work, (group - 1) * width, stride, outputs, first_lanes(work, held), no_margin)
            part, target = zero, splat(work, no_target)
            for k in range(0, group * width, width):
                _ask_early(blocks, (block + 3 * GROUP) * each + k // width * each, far, line)
                if not folds:
                    target = load(targets, block * width + k)
                part, product = step(work, k, stride, outputs, target, parameter, part, product)
                _ask(blocks, (block + GROUP) * each + k // width * early, near, line)
            total += part
            factors += group
            if factors >= SETTLED or block + group == stop:
                total, product, factors = settle(total, product), zero, 0
            if want:
                soon = -1 if narrow else origin + GROUP * each + group * early
                for k in range(outputs):
                    at = k * stride, sums + k * n * width
                    _accumulate(numbers, origin, group, n, work, *at, soon)
            block += group
        if want:
            for k in range(outputs):
                _add_lanes(work, sums + k * n * width, scale, gradient, k * n)
        return horizontal_sum(total)

    return size, count, chunk


def group_margins(several: bool, narrow: bool) -> Any:
    """``numbers, origin = f(blocks, block, group, columns, n, work, point, outputs, room)``.

    Dot products, as of `margins`, of the rows of `group` blocks with the points from `point` on,
    the k-th ones to `work` from ``k * GROUP`` vectors on, if there are `several` outputs; and where
    the numbers of these blocks are: `narrow` ones are converted to `work` at `room`.
    """
    first = _converted_margins if narrow else _plain_margins
    if not several:
        return first

    @device
    def every(blocks, block, group, columns, n, work, point, outputs, room):
        numbers, origin = first(blocks, block, group, columns, n, work, point, outputs, room)
        for k in range(1, outputs):
            margins(numbers, origin, group, n, work, point + k * n, k * GROUP * lanes(work))
        return numbers, origin

    return every


@device
def _ask(blocks, at, count, line):
    """Have so many lines brought, and up to three more.

    Few of them take no loop: a processor that looks ahead over some hundred instructions is to find
    the losses of the next blocks among them.
    """
    if count > 0:
        prefetch(blocks, at)
        prefetch(blocks, at + line)
        prefetch(blocks, at + 2 * line)
    if count > 3:
        prefetch(blocks, at + 3 * line)
        prefetch(blocks, at + 4 * line)
        prefetch(blocks, at + 5 * line)
        prefetch(blocks, at + 6 * line)
    for j in range(7, count):
        prefetch(blocks, at + j * line)


@device
def _ask_early(blocks, at, count, line):
    """The same into the second-level cache."""
    for _ in range(count):
        prefetch_second(blocks, at)
        at += line


@device
def _plain_margins(blocks, block, group, columns, n, work, point, outputs, room):
    origin = block * (n * lanes(work))
    margins(blocks, origin, group, n, work, point, 0)
    return blocks, origin


@device
def _converted_margins(blocks, block, group, columns, n, work, point, outputs, room):
    for part in range(0, lanes(work), piece_lanes(work)):
        _convert(blocks, block, group, columns, work, point, part, room + part)
    return work, room


@device
def _convert(blocks, block, group, columns, work, point, part, room):
    """Margins and numbers of the rows of a piece, from lane `part` on."""
    width, n = lanes(work), columns.shape[0]
    each, size = blocks.shape[1] * width, n * width
    zero, base = piece(splat(work, 0.0), 0), piece(splat(work, float(BASE)), 0)
    b = 0
    while b < group:
        # Four at a time: the last block stands in, and there is room.
        s0, s1, s2, s3 = zero, zero, zero, zero
        k, last = (block + b) * each, (block + group - 1) * each
        k1, k2, k3 = min(k + each, last), min(k + 2 * each, last), min(k + 3 * each, last)
        to = room + b * size
        for j in range(n):
            p, held = columns[j, 0] * width, columns[j, 1]
            if held == FLOAT:
                p += FLOAT * part
                v0, v1 = load_floats(blocks, k + p, zero), load_floats(blocks, k1 + p, zero)
                v2, v3 = load_floats(blocks, k2 + p, zero), load_floats(blocks, k3 + p, zero)
            else:
                p += part
                v0, v1 = load_bytes(blocks, k + p, zero), load_bytes(blocks, k1 + p, zero)
                v2, v3 = load_bytes(blocks, k2 + p, zero), load_bytes(blocks, k3 + p, zero)
                if held == 2:
                    p += width
                    v0 = fma(v0, base, load_bytes(blocks, k + p, zero))
                    v1 = fma(v1, base, load_bytes(blocks, k1 + p, zero))
                    v2 = fma(v2, base, load_bytes(blocks, k2 + p, zero))
                    v3 = fma(v3, base, load_bytes(blocks, k3 + p, zero))
            x = piece(load_each(work, point + j), 0)
            store(work, to, v0)
            store(work, to + size, v1)
            store(work, to + 2 * size, v2)
            store(work, to + 3 * size, v3)
            s0, s1, s2, s3 = fma(v0, x, s0), fma(v1, x, s1), fma(v2, x, s2), fma(v3, x, s3)
            to += width
        k = part + b * width
        store(work, k, s0)
        store(work, k + width, s1)
        store(work, k + 2 * width, s2)
        store(work, k + 3 * width, s3)
        b += 4


@device
def scale_point(w, scale, outputs, work, at):
    """The point w times the scale, to `work` at `at`."""
    n, width = scale.size, lanes(work)
    for k in range(0, outputs * n, n):
        for j in range(0, n, width):
            v = load_partial(w, k + j, n - j, 0.0) * load_partial(scale, j, n - j, 0.0)
            store(work, at + k + j, v)


@device
def margins(blocks, origin, group, n, work, point, at):
    """Dot products of the rows of `group` blocks with the point at `point`, to `work` at `at`.

    `blocks` holds their numbers from `origin` on.
    """
    width = lanes(work)
    for part in range(0, width, piece_lanes(work)):
        _margins(blocks, origin + part, group, n, work, point, at + part)


@device
def _margins(blocks, origin, group, n, work, point, at):
    """Those of the rows of a piece, from lane `part` on."""
    width = lanes(work)
    size = n * width
    zero = piece(splat(work, 0.0), 0)
    b = 0
    while b + 8 <= group:
        s0, s1, s2, s3, s4, s5, s6, s7 = zero, zero, zero, zero, zero, zero, zero, zero
        k = origin + b * size
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
        k, last = origin + b * size, origin + (group - 1) * size
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
def _accumulate(blocks, origin, group, n, work, at, sums, soon):
    """Add the rows of `group` blocks, times the residuals in `work` at `at`, to those at `sums`.

    Meanwhile what is in `blocks` from `soon` on is asked for, half as much as is read, unless it
    is negative.
    """
    for part in range(0, lanes(work), piece_lanes(work)):
        _accumulate_part(blocks, origin + part, group, n, work, at + part, sums + part, soon)
        soon += group * n * piece_lanes(work) // 2


@device
def _accumulate_part(blocks, origin, group, n, work, at, sums, soon):
    """That of the rows of a piece."""
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
        k = origin + b * size
        for j in range(sums, sums + size, width):
            if soon >= 0:
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
        k, last = origin + b * size, origin + (group - 1) * size
        k1, k2, k3 = min(k + size, last), min(k + 2 * size, last), min(k + 3 * size, last)
        for j in range(0, size, width):
            if soon >= 0:
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
