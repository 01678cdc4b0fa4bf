"""Losses and gradients of one chunk of a client's rows, dense rows of many coordinates.

Rows are left as they are given; `targets` holds the labels, or the signs 1 - 2b. Each is read for
its margin, from memory, and for the gradient, from a cache: of as many rows as a vector has lanes
margins are computed while those before them are added to the gradient, so that memory is read all
the time. Later rows are asked for meanwhile. Columns are taken to and fro by turns: those that came
last are in the first-level cache still.
"""

from __future__ import annotations

from typing import Any

from .._jit import device
from .._simd import (
    fma,
    horizontal_sum,
    lanes,
    load,
    load_partial,
    load_transposed,
    prefetch_second,
    splat,
    store,
    store_partial,
)
from ._blocks import _tree_sum
from ._loss import Loss
from ._rows import CHUNK, chunks_of, losses_of_margins, rows_of
from ._steps import SETTLED, steps_of

#: Room for the margins of one output, of two blocks of rows.
APART = 32
#: Numbers of a square of vectors, at most.
SQUARE = 256
#: How many vectors ahead rows are asked for.
_SOON = 1024


def dense_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (features, targets, offsets, constants)``, see `DenseRows`.
    """
    _, settle, count_outputs = steps_of(loss)
    add_losses = losses_of_margins(loss, APART)

    @device
    def chunk(rows, i, c, w, want, gradient, work):
        features, targets, offsets, constants = rows
        width, outputs = lanes(work), count_outputs(constants)
        n, square = w.size // outputs, outputs * APART
        first = offsets[i] + c * CHUNK
        stop = min(first + CHUNK, offsets[i + 1])
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        if want:
            gradient[:] = 0
        total, part, product, factors = zero, zero, zero, 0
        # Margins of the rows from `first` on stand at `slot`, those of the next block beside them.
        # Before the first block come no rows.
        first, slot, some, add = first - width, width, 0, False
        while True:
            later, other = first + width, width - slot
            for k in range(outputs):
                at, next_at = k * APART + slot, k * APART + other
                if later + width > stop:
                    if add:
                        _add_rows(features, first, some, n, work, at, gradient, k * n)
                    if later < stop:
                        dense_margins(rows, later, stop - later, n, w, k * n, work, next_at)
                elif add:
                    _add_rows_beside(
                        features, first, n, w, k * n, work, at, next_at, square, gradient, other > 0
                    )
                else:
                    _margins(features, later, n, w, k * n, work, next_at, square, other > 0)
            if later >= stop:
                break
            first, slot, some, add = later, other, min(width, stop - later), want
            part, product = add_losses(
                targets, first - slot, slot, slot + some, outputs, parameter, part, product, work
            )
            factors += 1
            if factors >= SETTLED:
                total, part, product, factors = total + settle(part, product), zero, zero, 0
        return horizontal_sum(total + settle(part, product))

    return rows_of, chunks_of, chunk


@device
def dense_margins(rows, first, group, n, w, start, work, at):
    """Dot products of so many rows with the point at `start`, to `work`, one row after the other.

    Of several streams at a time processors fetch none ahead.
    """
    features = rows[0]
    width = lanes(w)
    whole = n // (4 * width) * (4 * width)
    zero = splat(w, 0.0)
    for r in range(group):
        s0, s1, s2, s3 = zero, zero, zero, zero
        k = (first + r) * n
        for j in range(0, whole, 4 * width):
            x = start + j
            s0 = fma(load(features, k + j), load(w, x), s0)
            s1 = fma(load(features, k + j + width), load(w, x + width), s1)
            s2 = fma(load(features, k + j + 2 * width), load(w, x + 2 * width), s2)
            s3 = fma(load(features, k + j + 3 * width), load(w, x + 3 * width), s3)
        for j in range(whole, n, width):
            x = load_partial(w, start + j, n - j, 0.0)
            s0 = fma(load_partial(features, k + j, n - j, 0.0), x, s0)
        work[at + r] = horizontal_sum((s0 + s1) + (s2 + s3))


# Eight rows -----------------------------------------------------------------------------


@device
def _load_eight(features, k, n):
    """Vectors at flat index k and, n apart, in the seven rows that follow."""
    return (
        load(features, k),
        load(features, k + n),
        load(features, k + 2 * n),
        load(features, k + 3 * n),
        load(features, k + 4 * n),
        load(features, k + 5 * n),
        load(features, k + 6 * n),
        load(features, k + 7 * n),
    )


@device
def _load_eight_partial(features, k, n, held):
    return (
        load_partial(features, k, held, 0.0),
        load_partial(features, k + n, held, 0.0),
        load_partial(features, k + 2 * n, held, 0.0),
        load_partial(features, k + 3 * n, held, 0.0),
        load_partial(features, k + 4 * n, held, 0.0),
        load_partial(features, k + 5 * n, held, 0.0),
        load_partial(features, k + 6 * n, held, 0.0),
        load_partial(features, k + 7 * n, held, 0.0),
    )


@device
def _splat_eight(work, at):
    return (
        splat(work, work[at]),
        splat(work, work[at + 1]),
        splat(work, work[at + 2]),
        splat(work, work[at + 3]),
        splat(work, work[at + 4]),
        splat(work, work[at + 5]),
        splat(work, work[at + 6]),
        splat(work, work[at + 7]),
    )


@device
def _add_to_eight(s, a, x):
    """Sums of eight rows, and each row's vector times the same one."""
    return (
        fma(a[0], x, s[0]),
        fma(a[1], x, s[1]),
        fma(a[2], x, s[2]),
        fma(a[3], x, s[3]),
        fma(a[4], x, s[4]),
        fma(a[5], x, s[5]),
        fma(a[6], x, s[6]),
        fma(a[7], x, s[7]),
    )


@device
def _combine_eight(a, r):
    """The sum of eight rows' vectors, each times its residual."""
    even = fma(a[6], r[6], fma(a[4], r[4], fma(a[2], r[2], a[0] * r[0])))
    odd = fma(a[7], r[7], fma(a[5], r[5], fma(a[3], r[3], a[1] * r[1])))
    return even + odd


@device
def _store_eight(work, at, s):
    width = lanes(work)
    store(work, at, s[0])
    store(work, at + width, s[1])
    store(work, at + 2 * width, s[2])
    store(work, at + 3 * width, s[3])
    store(work, at + 4 * width, s[4])
    store(work, at + 5 * width, s[5])
    store(work, at + 6 * width, s[6])
    store(work, at + 7 * width, s[7])


@device
def _zeros(like):
    zero = splat(like, 0.0)
    return zero, zero, zero, zero, zero, zero, zero, zero


@device
def _add_square(work, square, at):
    """The sums over the lanes of a square of vectors, to `work` at `at`."""
    width = lanes(work)
    store(work, at, _tree_sum(load_transposed(work, square, width), width))


@device
def _add_products(s, features, k, n, w, x):
    """Sums of eight rows, plus the vectors at `k` times that of w at `x`."""
    return _add_to_eight(s, _load_eight(features, k, n), load(w, x))


@device
def _add_last_products(s, features, k, n, w, x, held):
    """Those with what is left of the rows, less than a vector."""
    v = load_partial(w, x, held, 0.0)
    return _add_to_eight(s, _load_eight_partial(features, k, n, held), v)


@device
def _add_combined(features, k, n, r, gradient, at):
    """The vectors at `k` times their residuals, to the gradient's at `at`."""
    part = _combine_eight(_load_eight(features, k, n), r)
    store(gradient, at, load(gradient, at) + part)


@device
def _add_last_combined(features, k, n, r, gradient, at, held):
    """What is left of the rows, less than a vector."""
    part = _combine_eight(_load_eight_partial(features, k, n, held), r)
    store_partial(gradient, at, load_partial(gradient, at, held, 0.0) + part, held)


@device
def _ask(features, soon):
    """For eight vectors, into the second-level cache."""
    width = lanes(features)
    for k in range(soon, soon + 8 * width, width):
        prefetch_second(features, k)


# Blocks of rows -------------------------------------------------------------------------


@device
def _margins(features, first, n, w, start, work, at, square, back):
    """Dot products of a block of rows with the point at `start`, to `work` at `at`.

    Columns are taken in order, or the other way.
    """
    width = lanes(w)
    whole = n // width * width
    for eight in range(0, width, 8):
        k, s = (first + eight) * n, _zeros(w)
        soon = k + _SOON * width
        for p in range(0, whole, width):
            j = whole - width - p if back else p
            _ask(features, soon)
            soon += 8 * width
            s = _add_products(s, features, k + j, n, w, start + j)
        if whole < n:
            s = _add_last_products(s, features, k + whole, n, w, start + whole, n - whole)
        _store_eight(work, square + eight * width, s)
    _add_square(work, square, at)


@device
def _add_rows_beside(features, first, n, w, start, work, at, next_at, square, gradient, back):
    """Add a block of rows, times its residuals at `at`; the margins of the next go to `next_at`."""
    width = lanes(w)
    whole = n // width * width
    for eight in range(0, width, 8):
        k, s, r = (first + eight) * n, _zeros(w), _splat_eight(work, at + eight)
        later = k + width * n
        soon = later + _SOON * width
        for p in range(0, whole, width):
            j = whole - width - p if back else p
            _ask(features, soon)
            soon += 8 * width
            s = _add_products(s, features, later + j, n, w, start + j)
            _add_combined(features, k + j, n, r, gradient, start + j)
        if whole < n:
            held, x = n - whole, start + whole
            s = _add_last_products(s, features, later + whole, n, w, x, held)
            _add_last_combined(features, k + whole, n, r, gradient, x, held)
        _store_eight(work, square + eight * width, s)
    _add_square(work, square, next_at)


@device
def _add_rows(features, first, count, n, work, at, gradient, start):
    """Add so many rows, times their residuals at `at`, to the gradient from `start` on."""
    width = lanes(gradient)
    whole, eights = n // width * width, count // 8 * 8
    for eight in range(0, eights, 8):
        k, r = (first + eight) * n, _splat_eight(work, at + eight)
        for j in range(0, whole, width):
            _add_combined(features, k + j, n, r, gradient, start + j)
        if whole < n:
            _add_last_combined(features, k + whole, n, r, gradient, start + whole, n - whole)
    for r in range(eights, count):
        residual = splat(work, work[at + r])
        k = (first + r) * n
        for j in range(0, n, width):
            g = load_partial(gradient, start + j, n - j, 0.0)
            g = fma(load_partial(features, k + j, n - j, 0.0), residual, g)
            store_partial(gradient, start + j, g, n - j)
