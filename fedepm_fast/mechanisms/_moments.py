"""Second moments of the clients' rows under noise.

A client sends the mean of ``a a'`` over its rows a, clipped to a radius r. The symmetric matrix is
packed isometrically: p numbers of the diagonal and ``sqrt(2)`` times those above it, so that the
Euclidean norm of the packed numbers is the Frobenius norm of the matrix. The size of a row, in L2
(order 2, Gaussian noise) or L1 (order 1, Laplace), is the root of the norm of its packed ``a a'``::

    order 2:   |a|_2                                      for |aa'|_F = |a|_2^2
    order 1:   sqrt((1 - q) |a|_2^2 + q |a|_1^2)          q = 1/sqrt(2)

for in L1 the diagonal counts ``|a|_2^2`` and the part above it ``sqrt(2) (|a|_1^2 - |a|_2^2) / 2``.
A record that is replaced, a by b, both of a size of at most r, moves the sum over the rows, and a
client that is replaced its mean, by no more than

    order 2:   |aa' - bb'|_F^2 = |a|^4 + |b|^4 - 2 (a'b)^2 <= 2 r^4
    order 1:   |aa'| + |bb'| <= 2 r^2

and both are attained, by rows r along two different axes: means of such ``a a'`` are within r^2 as
well, and their inner products not below 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._common.validation import ArgumentTypeError, check_real
from ..data import FederatedData
from ..objectives._curvature import packed, triangle, unpacked, weighted_products
from ..randomness import MOMENTS, CounterRandomness, uniform
from ._base import Array, Mechanism
from ._sensitivity import FOR_ROUNDING, clip_in, clip_rows, gradient_rounding

#: Part of the L1 norm in the size of a row in L1.
_Q = math.sqrt(0.5)
#: How far a record moves the sum of its client's moments, over the square of the radius.
_MOVES = {1: 2.0, 2: math.sqrt(2.0)}
#: Standard deviation of noise of scale 1, by the order of its norm.
DEVIATION = {1: math.sqrt(2.0), 2: 1.0}
#: Radii between these have squares far from an overflow, and from nothing.
LEAST_RADIUS, LARGEST_RADIUS = 1e-70, 1e70


def pack(matrix: ArrayLike) -> Array:
    """The p*(p+1)/2 numbers of a symmetric matrix (p, p), of the same norm, row by row."""
    matrix = np.asarray(matrix, np.float64)
    return packed(matrix) * _weights(len(matrix))


def unpack(values: ArrayLike, p: int) -> Array:
    """The symmetric matrix (p, p) that `pack` gave."""
    return unpacked(np.asarray(values, np.float64) / _weights(p), p)


def _weights(p: int) -> Array:
    rows, columns = triangle(p)
    return np.where(rows == columns, 1.0, math.sqrt(2.0))


def packed_size(p: int) -> int:
    """How many numbers `pack` gives."""
    return p * (p + 1) // 2


def moments_change(radius: float, sizes: ArrayLike, order: int, p: int) -> Array:
    """How far a record can move its client's `client_moments`, in the norm of that order.

    Parameters
    ----------
    radius : float
        Bound on the size of rows.
    sizes : array_like of shape (m,)
        Rows of each client, or 1 where it may be replaced as a whole: `Mechanism.units`.
    order : {1, 2}
    p : int
        Columns.

    Returns
    -------
    ndarray of shape (m,)
        ``sqrt(2) * radius**2 / d_i`` in L2, ``2 * radius**2 / d_i`` in L1, and a little more for
        the rounding of sums over the rows.
    """
    square, sizes = _check_radius(radius) ** 2, np.asarray(sizes)
    rounding = 2 * gradient_rounding(square, sizes, p)
    return np.asarray(_MOVES[order] * square / sizes * (1 + FOR_ROUNDING) + rounding)


def client_moments(features: Any, radius: float, order: int) -> Array:
    """The packed mean of ``a a'`` over clipped rows a: what a client sends, before noise.

    Parameters
    ----------
    features : array_like or sparse of shape (d, p)
        A client's rows.
    radius : float
        From 1e-70 to 1e70: rows are scaled down to this size.
    order : {1, 2}

    Returns
    -------
    ndarray of shape (p*(p+1)/2,)

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    clipped = _clipped(features, _check_radius(radius), order)
    d = clipped.shape[0]
    (moments,) = weighted_products(clipped, [np.full(d, 1.0 / d)])
    return pack(moments)


def simulate_moments(
    data: FederatedData,
    mechanism: Mechanism,
    radius: float,
    multipliers: ArrayLike,
    randomness: CounterRandomness,
) -> tuple[Array, Array]:
    """What all clients send, in a simulation.

    The noise is a function of the seed and the client, and shares nothing with that of rounds.

    Parameters
    ----------
    data : FederatedData
        m clients, p columns.
    mechanism : Mechanism
        Whose law the noise has.
    radius : float
        As for `client_moments`.
    multipliers : array_like of shape (m,)
        Scale of each client's noise over the sensitivity.
    randomness : CounterRandomness

    Returns
    -------
    values : ndarray of shape (m, p*(p+1)/2)
    scales : ndarray of shape (m,)
        Of the noise, public.
    """
    if not isinstance(randomness, CounterRandomness):
        raise ArgumentTypeError("randomness", f"must be of a seed, got {randomness!r}")
    p, units, order = data.n_features, mechanism.units(data.client_sizes), mechanism.order
    scales = moments_change(radius, units, order, p) * np.asarray(multipliers, np.float64)
    everyone = np.arange(data.n_clients)
    words = randomness.blocks(MOMENTS, 0, everyone, packed_size(p))
    values = mechanism.law.quantile(uniform(words)) * scales[:, None]
    for i in range(len(values)):
        values[i] += client_moments(data.client(i)[0], radius, order)
    return values, scales


def size_of_ones(p: int, order: int) -> float:
    """The size of a row of p ones, which is about that of one of p standardised columns."""
    ones = np.ones(p)
    sums = {1: np.atleast_1d(ones.sum()), 2: np.atleast_1d(ones @ ones)}
    return float(np.sqrt(sums[2])[0] if order == 2 else _size_in_l1(sums.__getitem__)[0])


def _clipped(features: Any, radius: float, order: int) -> Any:
    if order == 2:
        return clip_rows(features, radius, 2)
    return clip_in(features, radius, _size_in_l1)


def _size_in_l1(sums: Callable[[int], Array]) -> Array:
    return np.sqrt((1 - _Q) * sums(2) + _Q * sums(1) ** 2)


def _check_radius(radius: float) -> float:
    return check_real("radius", radius, low=LEAST_RADIUS, high=LARGEST_RADIUS)
