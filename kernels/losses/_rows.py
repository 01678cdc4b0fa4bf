"""Losses and gradients of one chunk of a client's rows, where rows are held one by one.

There are two layouts, dense rows of many coordinates and compressed sparse rows. Both leave
the entries as they are given; `targets` holds the labels, or the signs 1 - 2b.

Rows are read twice, for the margins and for the gradient, the second time from a cache: a few at a
time. Losses are added up by larger groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._jit import device
from .._simd import (
    first_lanes,
    fma,
    horizontal_sum,
    lanes,
    load,
    load_partial,
    prefetch,
    prefetch_second,
    splat,
    store,
    store_partial,
)
from ._loss import Loss
from ._steps import SETTLED, hide, steps_of

#: Rows a chunk; the partial sums of chunks are added in order.
CHUNK = 8192
#: The most rows a group.
GROUP = 64


def dense_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (features, targets, offsets, constants)``, see `DenseRows`.
    """
    return _layout(loss, _dense_group, _dense_margins, _dense_gradient)


def csr_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (data, indices, indptr, targets, offsets, constants)``, see `SparseRows`.
    """
    return _layout(loss, _csr_group, _csr_margins, _csr_gradient)


def _layout(loss: Loss, group_size: Any, margins: Any, add_gradient: Any) -> Any:
    _, settle, count_outputs = steps_of(loss)
    add_losses = losses_of_margins(loss, GROUP)

    @device
    def size(rows, i):
        offsets = rows[-2]
        return offsets[i + 1] - offsets[i]

    @device
    def count(rows, i):
        return (size(rows, i) + (CHUNK - 1)) // CHUNK

    @device
    def chunk(rows, i, c, w, want, gradient, work):
        targets, offsets, constants = rows[-3], rows[-2], rows[-1]
        width, outputs = lanes(work), count_outputs(constants)
        n = w.size // outputs
        first = offsets[i] + c * CHUNK
        stop = min(first + CHUNK, offsets[i + 1])
        zero, parameter = splat(work, 0.0), splat(work, constants[0])
        if want:
            gradient[:] = 0
        total, product, factors = zero, zero, 0
        whole, together = group_size(rows)
        while first < stop:
            end = min(first + whole, stop)
            part = zero
            while first < end:
                some = min(together, end - first)
                for k in range(outputs):
                    margins(rows, first, some, n, w, k * n, work, k * GROUP)
                part, product = add_losses(
                    targets, first, 0, some, outputs, parameter, part, product, work
                )
                factors += (some + (width - 1)) // width
                if want:
                    for k in range(outputs):
                        add_gradient(rows, first, some, n, work, k * GROUP, gradient, k * n)
                first += some
            total += part
            if factors >= SETTLED or first == stop:
                total, product, factors = settle(total, product), zero, 0
        return horizontal_sum(total)

    return size, count, chunk


def losses_of_margins(loss: Loss, apart: int) -> Any:
    """The device function that turns margins of rows in `work` into residuals.

    ``part, product = f(targets, first, at, end, outputs, parameter, part, product, work)``: rows
    `at` to `end` of those from `first` on, the margins of an output `apart` from the one before;
    for `part` and `product` see `_steps.steps_of`.
    """
    step, _, _ = steps_of(loss)
    folds, no_margin, no_target = loss.folds, loss.no_margin, loss.no_target

    @device
    def add_losses(targets, first, at, end, outputs, parameter, part, product, work):
        for r in range(at, end, lanes(work)):
            target = load_partial(targets, first + r, end - r, no_target)
            if folds:
                store(work, r, load(work, r) * target)
            hide(work, r, apart, outputs, first_lanes(work, end - r), no_margin)
            part, product = step(work, r, apart, outputs, target, parameter, part, product)
            if folds:
                store(work, r, load(work, r) * target)
        return part, product

    return add_losses


# Dense rows -----------------------------------------------------------------------------

#: Vectors of rows that are taken at a time, and how many further ones are asked for.
_AT_A_TIME, _SOON = 400, 600


@device
def _dense_group(rows):
    """Rows of a group, a multiple of 8, and how many of them at a time: whole vectors of margins.

    A group takes a small part of a second-level cache or is of 8 rows, those taken at a time are in
    the first-level one or as few as can be.
    """
    features = rows[0]
    n, width = features.shape[1], lanes(features)
    group = min(max(2560 * width // n // 8 * 8, 8), GROUP)
    return group, max(_AT_A_TIME * width // n // width * width, width)


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
def _combine_eight(a, r):
    """The sum of eight rows' vectors, each times its residual."""
    even = fma(a[6], r[6], fma(a[4], r[4], fma(a[2], r[2], a[0] * r[0])))
    odd = fma(a[7], r[7], fma(a[5], r[5], fma(a[3], r[3], a[1] * r[1])))
    return even + odd


@device
def _dense_margins(rows, first, group, n, w, start, work, at):
    # One row after the other: of several streams at a time processors fetch none ahead.
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


@device
def _dense_gradient(rows, first, group, n, work, at, gradient, start):
    features = rows[0]
    width = lanes(gradient)
    whole = n // width * width
    # While these rows come from a cache, half of later ones come from memory; the other half does,
    # unasked, while their margins are computed, one row after the other.
    soon = (first + group) * n + _SOON * width
    r = 0
    while r + 8 <= group:
        residuals = (
            splat(work, work[at + r]),
            splat(work, work[at + r + 1]),
            splat(work, work[at + r + 2]),
            splat(work, work[at + r + 3]),
            splat(work, work[at + r + 4]),
            splat(work, work[at + r + 5]),
            splat(work, work[at + r + 6]),
            splat(work, work[at + r + 7]),
        )
        k = (first + r) * n
        for j in range(0, whole, width):
            for _ in range(4):
                prefetch_second(features, soon)
                soon += width
            part = _combine_eight(_load_eight(features, k + j, n), residuals)
            store(gradient, start + j, load(gradient, start + j) + part)
        if whole < n:
            held = n - whole
            part = _combine_eight(_load_eight_partial(features, k + whole, n, held), residuals)
            part += load_partial(gradient, start + whole, held, 0.0)
            store_partial(gradient, start + whole, part, held)
        r += 8
    while r < group:
        residual = splat(work, work[at + r])
        k = (first + r) * n
        for j in range(0, n, width):
            g = load_partial(gradient, start + j, n - j, 0.0)
            g = fma(load_partial(features, k + j, n - j, 0.0), residual, g)
            store_partial(gradient, start + j, g, n - j)
        r += 1


# Compressed sparse rows -----------------------------------------------------------------
#
# Indices and row pointers are unsigned: Numba then leaves out its test for negative indices.
# The loops over rows are within the functions, because a call counts references.

_ONE, _TWO, _FEW = np.uint64(1), np.uint64(2), np.uint64(8)


@device
def _csr_group(rows):
    return GROUP, GROUP


#: Entries ahead that are asked for.
_AHEAD = 256


@device
def _csr_margins(rows, first, group, n, w, start, work, at):
    w = w[start : start + n]
    data, indices, indptr = rows[0], rows[1], rows[2]
    zero = data.dtype.type(0)
    for r in range(group):
        even = odd = zero
        k, stop = indptr[first + r], indptr[first + r + 1]
        # Among gathers from everywhere no processor asks for entries soon enough by itself.
        later = np.int64(k) + _AHEAD
        prefetch(data, later)
        prefetch(indices, later)
        if stop - k > _FEW:
            prefetch(data, later + 8)
            prefetch(data, later + 16)
            prefetch(data, later + 24)
            prefetch(indices, later + 16)
        while k + _ONE < stop:
            even = fma(data[k], w[indices[k]], even)
            odd = fma(data[k + _ONE], w[indices[k + _ONE]], odd)
            k += _TWO
        if k < stop:
            even = fma(data[k], w[indices[k]], even)
        work[at + r] = even + odd


@device
def _csr_gradient(rows, first, group, n, work, at, gradient, start):
    gradient = gradient[start : start + n]
    data, indices, indptr = rows[0], rows[1], rows[2]
    for r in range(group):
        residual = work[at + r]
        k, stop = indptr[first + r], indptr[first + r + 1]
        while k + _ONE < stop:
            i, j = indices[k], indices[k + _ONE]
            gradient[i] = fma(residual, data[k], gradient[i])
            gradient[j] = fma(residual, data[k + _ONE], gradient[j])
            k += _TWO
        if k < stop:
            j = indices[k]
            gradient[j] = fma(residual, data[k], gradient[j])
