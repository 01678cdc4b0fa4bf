"""Coordinates in which second moments are about the identity, as a server makes them of what
clients sent: all of it is post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._common.validation import ArgumentValueError, check_array, check_real
from ..data import FederatedData
from ._base import Array
from ._moments import DEVIATION, packed_size, unpack
from ._sensitivity import clip_rows

#: Entries of coordinates and of rows that these are applied to: their products are finite.
_FAR = 1e100
#: How small a singular value of coordinates may be beside the largest.
_LEAST_SHARE = 1e-12


def mean_moments(
    values: ArrayLike, scales: ArrayLike, weights: ArrayLike, order: int
) -> tuple[Array, float]:
    """The weighted mean of what clients sent, and how large its noise is.

    Parameters
    ----------
    values : array_like of shape (m, p*(p+1)/2)
    scales : array_like of shape (m,)
        Of the noise.
    weights : array_like of shape (m,)
        Above 0; only their proportions count.
    order : {1, 2}
        Of the noise's norm.

    Returns
    -------
    moments : ndarray of shape (p, p)
        Symmetric; with noise it may have eigenvalues below 0.
    edge : float
        About the spectral norm of the noise. Its entries have a standard deviation of ``s`` on the
        diagonal and ``s / sqrt(2)`` beside it, s that of the packed mean, and eigenvalues by the
        semicircle law from ``-s * sqrt(2 p)`` to ``s * sqrt(2 p)`` (Wigner 1958).

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    values = check_array("values", values, ndim=2)
    m, q = values.shape
    p = (math.isqrt(8 * q + 1) - 1) // 2
    if m == 0 or packed_size(p) != q:
        raise ValueError(f"values must be packed symmetric matrices, got shape {values.shape}")
    scales = check_array("scales", scales, shape=(m,))
    weights = check_array("weights", weights, shape=(m,))
    if not (weights > 0).all() or not (scales >= 0).all():
        raise ArgumentValueError("weights", "must be above 0, and scales at least 0")
    weights = weights / weights.sum()
    deviation = DEVIATION[order] * float(np.linalg.norm(weights * scales))
    return unpack(weights @ values, p), deviation * math.sqrt(2 * p)


def coordinates(
    values: ArrayLike, scales: ArrayLike, weights: ArrayLike, order: int, floor: float = 1.0
) -> Array:
    """The matrix B with which the rows of ``A @ B`` have second moments of about the identity.

    It is the inverse of the symmetric root of the mean moments, whose eigenvalues are raised to
    the floor first: below it there is nothing but noise.

    Parameters
    ----------
    values, scales, weights, order
        As for `mean_moments`.
    floor : float
        In units of the noise's edge, above 0.

    Returns
    -------
    ndarray of shape (p, p)
        Symmetric. A point v in these coordinates is ``B @ v`` in those of the columns.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    floor = check_real("floor", floor, low=0.0, open_low=True)
    moments, edge = mean_moments(values, scales, weights, order)
    eigenvalues, vectors = np.linalg.eigh(moments)
    # Without noise rounding is what is left.
    least = max(floor * edge, eigenvalues[-1] * len(moments) * np.finfo(np.float64).eps)
    if least <= 0:
        raise ValueError("values must hold something else than zeros")
    half = vectors * np.maximum(eigenvalues, least) ** -0.25
    return np.asarray(half @ half.T)


def in_coordinates(data: FederatedData, matrix: ArrayLike) -> FederatedData:
    """The rows a of all clients as ``a @ matrix``, as a server names it: public, and any.

    Every row is moved by itself, before it is clipped. That it can be must not depend on rows, so
    that those beyond 1e100 are scaled down to it at first.

    Parameters
    ----------
    data : FederatedData
        Of p columns.
    matrix : array_like of shape (p, p)
        As of `coordinates`.

    Raises
    ------
    ValueError, TypeError
        If the matrix is not finite, of another shape, or has entries beyond 1e100 in absolute
        value, or nearly no inverse.
    """
    matrix = check_coordinates(matrix, data.n_features)
    return FederatedData(
        np.asarray(clip_rows(data.features, _FAR, 2) @ matrix),
        data.labels,
        data.client_sizes,
        client_names=data.client_names,
        rows=data.rows,
        description=data.description,
    )


def check_coordinates(matrix: ArrayLike, p: int) -> Array:
    """The matrix as an array, or what `in_coordinates` raises."""
    matrix = check_array("coordinates", matrix, shape=(p, p))
    if (size := np.abs(matrix).max()) > _FAR:
        raise ArgumentValueError("coordinates", f"must be at most {_FAR:g}, got {size:.3g}")
    sizes = np.linalg.svd(matrix, compute_uv=False)
    if not sizes[-1] > _LEAST_SHARE * sizes[0]:
        raise ArgumentValueError("coordinates", "must have an inverse, got a singular matrix")
    return matrix
