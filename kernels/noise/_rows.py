"""Rows of noise, compiled: by law, for float64 and float32, on one thread or several."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from .._from_words import Law, from_words
from .._jit import device, kernel, large_device, parallel_kernel
from .._simd import (
    fma,
    horizontal_sum,
    lanes,
    load,
    load_partial,
    splat,
    store,
    store_partial,
    widen,
)
from . import _laws as laws

#: Numbers, about, that are drawn, and standardised, at a time.
BLOCK = 16_384


@device
def _pieces(out):
    """Of a row: the numbers of one vector each."""
    return (out.shape[1] + lanes(out) - 1) // lanes(out)


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


def _make(law: Law, standardize: Any) -> Kernels:
    fill = from_words(law)

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
        fill(key0, key1, purpose, tau, clients, scale, first, last, out.shape[1], out)
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
    """Rows that are as they should be."""


# For float64 and for float32. Only Laplace rows are standardised.
LAPLACE = (
    _make(laws.LAPLACE[0], _standardize(_sixteen)),
    _make(laws.LAPLACE[1], _standardize(_sixteen_single)),
)
UNIFORM = _make(laws.UNIFORM[0], _leave), _make(laws.UNIFORM[1], _leave)
GAUSSIAN = _make(laws.GAUSSIAN[0], _leave), _make(laws.GAUSSIAN[1], _leave)
