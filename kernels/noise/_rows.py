"""Rows of noise, compiled: by law, for float64 and float32, on one thread or several."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from .._jit import device, kernel, large_device, parallel_kernel
from .._simd import (
    fma,
    gather,
    horizontal_sum,
    interleave,
    iota,
    lanes,
    load,
    load_partial,
    minimum,
    splat,
    store,
    store_partial,
    widen,
)
from ..philox import in_order, philox_pair
from . import _laws as laws

#: Numbers, about, that are drawn, and standardised, at a time.
BLOCK = 16_384

# ---------------------------------------------------------------------------------
# Drawing. A row is made of pieces, the numbers of one vector, the last perhaps in part;
# pieces are counted through all rows. The lanes of `philox_pair` are sixteen blocks of four
# words: eight pieces of float64, or four of float32, from as many rows as it takes.
# ---------------------------------------------------------------------------------


@device
def _pieces(out):
    return (out.shape[1] + lanes(out) - 1) // lanes(out)


@device
def _counters(clients, row, piece, pieces, shift):
    """Block and client of eight lanes, from a piece of a row on, ``1 << shift`` blocks a piece.

    Lanes beyond the last row repeat it.
    """
    lane = iota(clients)
    p = (lane >> np.uint64(shift)) + np.uint64(piece)
    # The quotient p // pieces, exact as long as p * pieces < 2**60.
    down = (p * np.uint64((1 << 60) // pieces + 1)) >> np.uint64(60)
    p = p - down * np.uint64(pieces)
    last = splat(down, np.uint64(clients.size - 1))
    client = gather(clients, minimum(down + np.uint64(row), last))
    return (p << np.uint64(shift)) + (lane & np.uint64((1 << shift) - 1)), client


@device
def _put(out, row, piece, inside, value, scale):
    """Store what a row has of a piece, and nothing if not `inside`; without a branch."""
    n, width = out.shape[1], lanes(out)
    count = min(width, n - piece * width) * inside
    value = value * scale[min(row, scale.size - 1)]
    store_partial(out, min(row * n + piece * width, out.size), value, count)


@device
def _after(row, piece, pieces):
    """The piece that follows, and its row."""
    down = (piece + 1) // pieces
    return row + down, piece + 1 - down * pieces


def _double(law: Any) -> Any:
    """Four words of eight blocks as four vectors of float64, in order."""
    return device(lambda w: in_order(law(w[0]), law(w[1]), law(w[2]), law(w[3])))


def _single(law: Any) -> Any:
    """The same as two vectors of float32."""

    @device
    def numbers(w):
        even, odd = interleave(law(w[0], w[1]), law(w[2], w[3]))
        return interleave(even, odd)

    return numbers


def _fill(numbers: Any) -> Any:
    """The function that draws rows, of `numbers` made of words.

    Arrays are not handed to functions that branch: the compiler would count references to them.
    """

    @large_device
    def fill(key0, key1, purpose, tau, clients, scale, first, last, out):
        n, width, pieces = out.shape[1], lanes(out), _pieces(out)
        tau, purpose = splat(clients, tau), splat(clients, purpose)
        half, shift = 32 // width, width // 8
        for q in range(first, last, 2 * half):
            row, piece = q // pieces, q % pieces
            k = row * n + piece * width
            whole = (piece + 2 * half) * width <= n and q + 2 * half <= last
            if whole:
                a0 = iota(clients) + np.uint64(piece << shift)
                b0 = a0 + np.uint64(8)
                a1 = b1 = splat(clients, clients[row])
            else:
                a0, a1 = _counters(clients, row, piece, pieces, shift)
                b0, b1 = _counters(clients, row, piece + half, pieces, shift)
            w, other = philox_pair(a0, a1, b0, b1, tau, purpose, key0, key1)
            for begin in range(q, q + 2 * half, half):
                values = numbers(w)
                w = other
                if whole:
                    factor = scale[row]
                    for r in range(len(values)):
                        store(out, k + r * width, values[r] * factor)
                    k += 32
                else:
                    for r in range(len(values)):
                        _put(out, row, piece, begin + r < last, values[r], scale)
                        row, piece = _after(row, piece, pieces)

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


def _make(fill: Any, standardize: Any) -> Kernels:
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

    @kernel
    def rows(key0, key1, purpose, tau, clients, scale, deviations, out):
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
    """Only Laplace rows are standardised."""


# For float64 and for float32.
LAPLACE = (
    _make(_fill(_double(laws.laplace)), _standardize(_sixteen)),
    _make(_fill(_single(laws.laplace_single)), _standardize(_sixteen_single)),
)
UNIFORM = (
    _make(_fill(_double(laws.uniform)), _leave),
    _make(_fill(_single(laws.uniform_single)), _leave),
)
GAUSSIAN = (
    _make(_fill(_double(laws.gaussian)), _leave),
    _make(_fill(_single(laws.gaussian_single)), _leave),
)
