"""From chunks of rows to clients: the same kernels for every loss and layout.

A layout gives three device functions of its tuple of arrays `rows`: ``size(rows, i)``, the
number of client i's rows; ``count(rows, i)``, that of its chunks; and ``chunk(rows, i, c, w,
want, gradient, work)``, which returns the sum of the losses over chunk c and, if `want`,
writes the sum of their gradients. Chunks have a fixed size, and their sums are added in their
order, whoever computes them.

The layouts are imported here, not handed in, because a kernel's cached machine code answers
for the modules that its own module imports.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import prange

from .._jit import device, kernel, parallel_kernel
from .._parts import part as part_of
from .._simd import fma, horizontal_sum, lanes, load, load_partial, splat, store, store_partial
from ._blocks import block_layout
from ._dense import dense_layout
from ._jagged import jagged_layout
from ._loss import Loss


class ClientKernels(NamedTuple):
    """Kernels of one loss and layout."""

    objective: Any
    client: Any
    selected_parallel: Any


_LAYOUTS: dict[str, Callable[[Loss], tuple[Any, Any, Any]]] = {
    "blocks": block_layout,
    "narrow": functools.partial(block_layout, narrow=True),
    "dense": dense_layout,
    "csr": jagged_layout,
}


@functools.cache
def client_kernels(layout: str, loss: Loss) -> ClientKernels:
    """The kernels of a layout, as of `ClientRows.layout`, and a loss."""
    size, count, chunk = _LAYOUTS[layout](loss)

    @device
    def objective(rows, i, w, reg, want, gradient, work):
        n = w.size
        padded = (n + lanes(w) - 1) // lanes(w) * lanes(w)
        spare, rest = part_of(work, 0, n), part_of(work, padded, work.size)
        total = w.dtype.type(0)
        for c in range(count(rows, i)):
            part = gradient if c == 0 else spare
            total += chunk(rows, i, c, w, want, part, rest)
            if want and c > 0:
                _add(gradient, part)
        return _finish(total, size(rows, i), w, reg, rows[-1], want, gradient)

    @kernel
    def client(rows, i, w, reg, want, gradient, work):
        return objective(rows, i, w, reg, want, gradient, work)

    return ClientKernels(objective, client, _in_parallel(size, count, chunk))


def _in_parallel(size, count, chunk):
    """Clients by several threads, in two steps: chunks of clients, and their sums in order."""

    @kernel
    def share(rows, clients, points, want, work, items, first, last, sums, parts):
        for item in range(first, last):
            i = clients[items[item, 0]]
            w = points[i if points.shape[0] > 1 else 0]
            part = parts[item if want else 0]
            sums[item] = chunk(rows, i, items[item, 1], w, want, part, work)

    @parallel_kernel
    def selected_parallel(
        rows, clients, points, reg, want, values, gradients, work, items, shares, sums, parts
    ):
        for t in prange(shares.size - 1):
            first, last = shares[t], shares[t + 1]
            share(rows, clients, points, want, work[t], items, first, last, sums, parts)
        item = 0
        for k in range(clients.size):
            i = clients[k]
            w = points[i if points.shape[0] > 1 else 0]
            gradient = gradients[k if want else 0]
            total = sums[item]
            if want:
                gradient[:] = parts[item]
            for c in range(1, count(rows, i)):
                total += sums[item + c]
                if want:
                    _add(gradient, parts[item + c])
            item += count(rows, i)
            values[k] = _finish(total, size(rows, i), w, reg[i], rows[-1], want, gradient)

    return selected_parallel


@device
def _add(gradient, part):
    for j in range(gradient.size):
        gradient[j] += part[j]


@device
def _finish(total, size, w, reg, constants, want, gradient):
    """From sums over the rows to the objective and, in place, its gradient."""
    n, width = w.size, lanes(w)
    scale = w.dtype.type(1) / w.dtype.type(size)
    squares = splat(w, 0.0)
    whole = n - n % width
    for j in range(0, whole, width):
        v = load(w, j)
        weighted = load(constants, 1 + j) * v
        squares = fma(weighted, v, squares)
        if want:
            store(gradient, j, fma(splat(w, reg), weighted, scale * load(gradient, j)))
    if whole < n:
        rest = n - whole
        v = load_partial(w, whole, rest, 0.0)
        weighted = load_partial(constants, 1 + whole, rest, 0.0) * v
        squares = fma(weighted, v, squares)
        if want:
            g = scale * load_partial(gradient, whole, rest, 0.0)
            store_partial(gradient, whole, fma(splat(w, reg), weighted, g), rest)
    value = scale * total
    if reg != 0:  # else the squares may overflow
        value += w.dtype.type(0.5) * reg * horizontal_sum(squares)
    return value
