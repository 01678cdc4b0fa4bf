"""Rows of noise, compiled: by law, for float64 and float32, on one thread or several."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from .._jit import device, large_device, parallel_kernel, pointed_kernel
from .._simd import (
    align_stack,
    fma,
    gather,
    horizontal_sum,
    iota,
    lanes,
    load,
    load_partial,
    minimum,
    reinterpret,
    splat,
    store,
    store_partial,
    widen,
)
from ..philox import in_order, philox_pair, philox_pair_quick
from . import _laws as laws

#: Numbers, about, that are drawn, and standardised, at a time.
BLOCK = 16_384

# ---------------------------------------------------------------------------------
# Drawing. A row is made of pieces, the numbers of one vector, the last perhaps in part;
# pieces are counted through all rows. A piece takes eight words, two blocks, and the lanes of
# `philox_pair` are eight pieces, from as many rows as it takes. Words are written where the
# numbers will be, some thousands at a time, which stay in the first-level cache.
# ---------------------------------------------------------------------------------

#: Pieces whose words are written before they become numbers.
_CHUNK = 384
_ONE, _EIGHT, _SIXTEEN = np.uint64(1), np.uint64(8), np.uint64(16)


@device
def _pieces(out):
    return (out.shape[1] + lanes(out) - 1) // lanes(out)


@device
def _counters(clients, row, piece, pieces):
    """Block and client of eight lanes, from a piece of a row on.

    Lanes beyond the last row repeat it.
    """
    lane = iota(clients)
    p = (lane >> _ONE) + np.uint64(piece)
    # The quotient p // pieces, exact as long as p * pieces < 2**60.
    down = (p * np.uint64((1 << 60) // pieces + 1)) >> np.uint64(60)
    p = p - down * np.uint64(pieces)
    last = splat(down, np.uint64(clients.size - 1))
    client = gather(clients, minimum(down + np.uint64(row), last))
    return (p << _ONE) + (lane & _ONE), client


@device
def _put(out, row, piece, inside, words):
    """Store what a row has of a piece, and nothing if not `inside`; without a branch."""
    n, width = out.shape[1], lanes(out)
    count = min(width, n - piece * width) * inside
    store_partial(out, min(row * n + piece * width, out.size), reinterpret(out, words), count)


@device
def _after(row, piece, pieces):
    """The piece that follows, and its row."""
    last = piece + 1 == pieces
    return row + last, (piece + 1) * (not last)


# Arrays are not handed to functions that branch: the compiler would count references to them.


@large_device
def _draw(key0, key1, purpose, tau, clients, first, last, out):
    """Words of pieces, where their numbers will be."""
    n, width, pieces = out.shape[1], lanes(out), _pieces(out)
    tau, purpose = splat(clients, tau), splat(clients, purpose)
    while first < last:
        row, piece = first // pieces, first % pieces
        groups = min(n // width - piece, last - first) // 8
        if groups > 0:
            k, client = row * n + piece * width, splat(clients, clients[row])
            a0 = iota(clients) + np.uint64(piece << 1)
            for _ in range(groups):
                a, b = philox_pair_quick(a0, client, a0 + _EIGHT, client, tau, purpose, key0, key1)
                a, b = in_order(a[0], a[1], a[2], a[3]), in_order(b[0], b[1], b[2], b[3])
                for r in range(4):
                    store(out, k + r * width, reinterpret(out, a[r]))
                    store(out, k + (r + 4) * width, reinterpret(out, b[r]))
                a0, k = a0 + _SIXTEEN, k + 8 * width
            first += 8 * groups
        else:
            a0, a1 = _counters(clients, row, piece, pieces)
            b0, b1 = _counters(clients, row, piece + 4, pieces)
            a, b = philox_pair(a0, a1, b0, b1, tau, purpose, key0, key1)
            a, b = in_order(a[0], a[1], a[2], a[3]), in_order(b[0], b[1], b[2], b[3])
            for _ in range(2):
                for r in range(4):
                    _put(out, row, piece, first < last, a[r])
                    row, piece = _after(row, piece, pieces)
                    first += 1
                a = b


def _fill(law: laws.Law) -> Any:
    """The function that draws rows: words, then numbers of them."""
    begin, complete, hold = law

    @large_device
    def quantiles(scale, first, last, out):
        n, width, pieces = out.shape[1], lanes(out), _pieces(out)
        held = hold()
        row, piece = first // pieces, first % pieces
        while first < last:
            some = min(pieces - piece, last - first)
            factor = scale[row]
            k, end = row * n + piece * width, row * n + min((piece + some) * width, n)
            whole = end - (end - k) % width
            if k + width < whole:
                x, y = begin(load(out, k), held), begin(load(out, k + width), held)
                k += 2 * width
                while k + width < whole:
                    u, v = begin(load(out, k), held), begin(load(out, k + width), held)
                    store(out, k - 2 * width, complete(x, held) * factor)
                    store(out, k - width, complete(y, held) * factor)
                    x, y = u, v
                    k += 2 * width
                store(out, k - 2 * width, complete(x, held) * factor)
                store(out, k - width, complete(y, held) * factor)
            if k < whole:
                store(out, k, complete(begin(load(out, k), held), held) * factor)
            if whole < end:
                begun = begin(load_partial(out, whole, end - whole, 0.0), held)
                value = complete(begun, held) * factor
                store_partial(out, whole, value, end - whole)
            first += some
            row, piece = row + 1, 0

    @device
    def fill(key0, key1, purpose, tau, clients, scale, first, last, out):
        for start in range(first, last, _CHUNK):
            end = min(start + _CHUNK, last)
            _draw(key0, key1, purpose, tau, clients, start, end, out)
            quantiles(scale, start, end, out)

    return fill


# ---------------------------------------------------------------------------------
# Standardised rows
# ---------------------------------------------------------------------------------


@device
def _sixteen(row, j, fill):
    """Sixteen numbers of a row as two vectors of float64, `fill` beyond its end."""
    if j + 16 <= row.size:
        return load(row, j), load(row, j + 8)
    high = min(j + 8, row.size)
    return (
        load_partial(row, j, row.size - j, fill),
        load_partial(row, high, row.size - high, fill),
    )


@device
def _sixteen_single(row, j, fill):
    if j + 16 <= row.size:
        return widen(load(row, j))
    return widen(load_partial(row, j, row.size - j, fill))


def _standardize(sixteen: Any) -> Any:
    """The function that gives a row mean 0 and a standard deviation (ddof 1)."""

    @device
    def moments(row, centre):
        """Sum and sum of squares about a centre, in float64."""
        shift = splat(0.0, centre)
        sum0 = sum1 = squares0 = squares1 = splat(0.0, 0.0)
        for j in range(0, row.size, 16):
            a, b = sixteen(row, j, centre)
            a, b = a - shift, b - shift
            sum0, sum1 = sum0 + a, sum1 + b
            squares0, squares1 = fma(a, a, squares0), fma(b, b, squares1)
        return horizontal_sum(sum0 + sum1), horizontal_sum(squares0 + squares1)

    @large_device
    def standardize(row, deviation):
        n, width = row.size, lanes(row)
        centre = row.dtype.type(moments(row, row.dtype.type(0.0))[0] / n)
        # The rest is what rounding left of the mean.
        rest, squares = moments(row, centre)
        mean = splat(row, centre + rest / n)
        factor = splat(row, deviation / np.sqrt((squares - rest * rest / n) / (n - 1)))
        whole = n - n % width
        for j in range(0, whole, width):
            store(row, j, (load(row, j) - mean) * factor)
        if whole < n:
            v = load_partial(row, whole, n - whole, centre)
            store_partial(row, whole, (v - mean) * factor, n - whole)

    return standardize


# ---------------------------------------------------------------------------------
# Kernels
# ---------------------------------------------------------------------------------


class Kernels(NamedTuple):
    rows: Any
    parallel: Any


def _make(law: laws.Law, standardize: Any) -> Kernels:
    fill = _fill(law)

    @device
    def step(deviations, out):
        """Pieces in a block: if rows are standardised, of whole rows."""
        pieces = _pieces(out)
        some = BLOCK // lanes(out)
        return max(1, some // pieces) * pieces if deviations.size else some

    @device
    def block(key0, key1, purpose, tau, clients, scale, deviations, first, out):
        pieces = _pieces(out)
        last = min(first + step(deviations, out), out.shape[0] * pieces)
        fill(key0, key1, purpose, tau, clients, scale, first, last, out)
        if deviations.size:
            for i in range(first // pieces, last // pieces):
                standardize(out[i], deviations[i])

    @pointed_kernel
    def rows(key0, key1, purpose, tau, clients, scale, deviations, out):
        align_stack()
        if out.size:
            for first in range(0, out.shape[0] * _pieces(out), step(deviations, out)):
                block(key0, key1, purpose, tau, clients, scale, deviations, first, out)

    @parallel_kernel
    def parallel(key0, key1, purpose, tau, clients, scale, deviations, out):
        each = step(deviations, out)
        for b in numba.prange((out.shape[0] * _pieces(out) + each - 1) // each):
            block(key0, key1, purpose, tau, clients, scale, deviations, b * each, out)

    return Kernels(rows, parallel)


@device
def _leave(row, deviation):
    """Rows that are as they should be."""


# For float64 and for float32. Only Laplace rows are standardised.
LAPLACE = (
    _make(laws.LAPLACE[0], _standardize(_sixteen)),
    _make(laws.LAPLACE[1], _standardize(_sixteen_single)),
)
UNIFORM = _make(laws.UNIFORM[0], _leave), _make(laws.UNIFORM[1], _leave)
GAUSSIAN = _make(laws.GAUSSIAN[0], _leave), _make(laws.GAUSSIAN[1], _leave)
