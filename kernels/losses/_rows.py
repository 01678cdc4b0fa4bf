"""Losses and gradients of one chunk of a client's rows, compressed sparse rows as they are given.

`targets` holds the labels, or the signs 1 - 2b. Rows are read twice, for the margins and for the
gradient, the second time from a cache: a group at a time.
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
    splat,
    store,
)
from ._loss import Loss
from ._steps import SETTLED, hide, steps_of

#: Rows a chunk; the partial sums of chunks are added in order.
CHUNK = 8192
#: Rows a group.
GROUP = 64


@device
def rows_of(rows, i):
    """How many rows client i has, in layouts whose last arrays are the offsets and constants."""
    offsets = rows[-2]
    return offsets[i + 1] - offsets[i]


@device
def chunks_of(rows, i):
    """How many chunks those are."""
    return (rows_of(rows, i) + (CHUNK - 1)) // CHUNK


def csr_layout(loss: Loss) -> tuple[Any, Any, Any]:
    """The device functions `size`, `count` and `chunk` of a loss; see `_clients`.

    ``rows = (data, indices, indptr, targets, offsets, constants)``, see `SparseRows`.
    """
    _, settle, count_outputs = steps_of(loss)
    add_losses = losses_of_margins(loss, GROUP)

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
        while first < stop:
            some = min(GROUP, stop - first)
            for k in range(outputs):
                csr_margins(rows, first, some, n, w, k * n, work, k * GROUP)
            part, product = add_losses(
                targets, first, 0, some, outputs, parameter, zero, product, work
            )
            factors += (some + (width - 1)) // width
            if want:
                for k in range(outputs):
                    _csr_gradient(rows, first, some, n, work, k * GROUP, gradient, k * n)
            first += some
            total += part
            if factors >= SETTLED or first == stop:
                total, product, factors = settle(total, product), zero, 0
        return horizontal_sum(total)

    return rows_of, chunks_of, chunk


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


# Indices and row pointers are unsigned: Numba then leaves out its test for negative indices.
# The loops over rows are within the functions, because a call counts references.

_ONE, _TWO, _FEW = np.uint64(1), np.uint64(2), np.uint64(8)


#: Entries ahead that are asked for.
_AHEAD = 256


@device
def csr_margins(rows, first, group, n, w, start, work, at):
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
