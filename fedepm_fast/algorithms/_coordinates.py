"""Coordinates in which a bound of the mean objective's curvature is the identity.

With M that bound and ``R'R = M`` the coordinates of a point x are R x. M may be a multiple of the
identity, a diagonal, a whole matrix, or its k leading eigenpairs and a number for all others. In
each case ``R = S diag(d)``, with S the identity, a triangle, or ``I + U diag(r - 1) U'``; d brings
columns to one scale first, so that those that differ by a million are no trouble to S.

A problem whose rows have K margins has the same M for the coefficients of every class: K copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_choice, check_int, check_real
from ..objectives import Problem
from ..objectives._curvature import (
    block_diagonal,
    block_operator,
    bound_block,
    largest_eigenvalue,
)

Array = NDArray[np.float64]

KINDS = ("identity", "columns", "dense", "truncated")
#: What is added to the eigenvalues of a matrix of unit diagonal, of the largest one.
FLOOR = 1e-10
#: Eigenpairs of "truncated", unless asked otherwise.
RANK = 20
#: Eigenpairs that are kept are so many times as large as all others together are taken to be.
_STANDS_OUT = 1.1
#: The part that is added to eigenvalues, which are found from below.
_ADDED = 0.01
#: Block Krylov iterations: columns beside those asked for, and how often a block is multiplied.
_MORE, _ASKED = 5, 5


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Products with M, R and their inverses, for vectors (n,) and for rows (s, n).

    Made by `identity`, `columns`, `dense`, `truncated`, or by `coordinates_of` for a problem.

    Attributes
    ----------
    kind : {"identity", "columns", "dense", "truncated"}
    scale : ndarray of shape (p,)
        d, above 0, where ``n = copies * p``.
    factor : ndarray of shape (p, p), optional
        S of "dense", an upper triangle.
    directions : ndarray of shape (p, k), optional
        U of "truncated", orthonormal.
    roots : ndarray of shape (k,), optional
        r of "truncated", at least 1.
    copies : int
    sent : int
        Numbers that each client sends for it.
    """

    kind: str
    scale: Array
    factor: Array | None = None
    directions: Array | None = None
    roots: Array | None = None
    copies: int = 1
    sent: int = 0

    # How they are made --------------------------------------------------------------------

    @classmethod
    def identity(cls, curvature: float, size: int, copies: int = 1) -> Self:
        """M is a multiple of the identity, of `size` columns.

        A curvature of 0 is one of 1: nothing bends, and nothing moves.
        """
        curvature = check_real("curvature", curvature, low=0.0)
        scale = np.full(check_int("size", size, low=1), curvature)
        return cls("identity", np.sqrt(_positive(scale)), copies=copies, sent=1)

    @classmethod
    def columns(cls, diagonal: ArrayLike, copies: int = 1) -> Self:
        """M is a diagonal matrix, of entries of at least 0; 1 for those that are 0."""
        diagonal = _diagonal(diagonal)
        scale = np.sqrt(_positive(diagonal))
        return cls("columns", scale, copies=copies, sent=len(diagonal))

    @classmethod
    def dense(cls, matrix: ArrayLike, copies: int = 1) -> Self:
        """M is a positive semidefinite matrix, a little raised where it is singular.

        With the diagonal brought to 1, a part in 1e10 of the largest eigenvalue is added to all.

        Raises
        ------
        ValueError, TypeError
            Naming `matrix`: not square or finite, or with an eigenvalue below 0.
        """
        from scipy.linalg import LinAlgError, cholesky

        matrix = check_array("matrix", matrix, ndim=2)
        size = len(matrix)
        if matrix.shape != (size, size):
            raise ValueError(f"matrix must be square, got shape {matrix.shape}")
        scale = np.sqrt(_positive(_diagonal(np.diagonal(matrix))))
        even = matrix / scale / scale[:, None]
        even[np.diag_indices(size)] = 1.0
        # The largest eigenvalue is at most the largest sum of a row, and at most `size`.
        even[np.diag_indices(size)] += FLOOR * min(np.abs(even).sum(axis=1).max(), size)
        try:
            factor = cholesky(even, lower=False, check_finite=False)
        except LinAlgError:
            raise ValueError("matrix must be positive semidefinite, got a negative one") from None
        sent = size * (size + 1) // 2
        return cls("dense", scale, factor=factor, copies=copies, sent=sent)

    @classmethod
    def truncated(
        cls,
        product: Callable[[Array], Array],
        diagonal: ArrayLike,
        rank: int = RANK,
        copies: int = 1,
    ) -> Self:
        """M has leading eigenpairs of a positive semidefinite matrix, and one number in all other
        directions, such that it is at least that matrix.

        Eigenpairs are those of the matrix with the diagonal brought to 1, and only such that stand
        out from the rest.

        Parameters
        ----------
        product : callable
            The matrix times the columns of an array (p, b). It is asked a few times.
        diagonal : array_like of shape (p,)
            Of the matrix.
        rank : int
            Eigenpairs at most, at least 1.
        copies : int
        """
        diagonal = _diagonal(diagonal)
        scale, size, sent = np.sqrt(_positive(diagonal)), len(diagonal), len(diagonal)

        def even(v: Array) -> Array:
            nonlocal sent
            sent += v.size
            found = (np.asarray(product((v.T / scale).T), np.float64).T / scale).T
            if not np.isfinite(found).all():
                raise ValueError("product must give finite numbers")
            return found

        values, directions, errors = _leading(even, size, check_int("rank", rank, low=1) + 1)
        kept = int((values[:-1] > _STANDS_OUT * values[-1]).sum())
        rest = max(values[kept] + errors[kept:].max(), FLOOR * values[0])
        values, directions, errors = values[:kept], directions[:, :kept], errors[:kept]
        # With r_j the residual of pair j and t_j added to its value, the blocks beside the diagonal
        # are made up for if the sum of |r_j|^2 / t_j is at most what is added to the rest.
        values = values + kept * errors**2 / (_ADDED * rest or 1.0)
        rest = (1 + _ADDED) * rest or 1.0  # of nothing but zeros
        return cls(
            "truncated",
            scale * np.sqrt(rest),
            directions=np.ascontiguousarray(directions),
            roots=np.sqrt(np.maximum(values / rest, 1.0)),
            copies=copies,
            sent=sent,
        )

    # What they do -------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of coordinates."""
        return self.copies * len(self.scale)

    def to(self, v: ArrayLike) -> Array:
        """R v: the coordinates of points."""
        return self._each(v, lambda rows: self._times(rows * self.scale))

    def back(self, v: ArrayLike) -> Array:
        """R^-1 v: the points at coordinates."""
        return self._each(v, lambda rows: self._solved(rows) / self.scale)

    def pull(self, g: ArrayLike) -> Array:
        """R^-T g: gradients in these coordinates."""
        return self._each(g, lambda rows: self._solved(rows / self.scale, transposed=True))

    def apply(self, v: ArrayLike) -> Array:
        """M v."""

        def product(rows: Array) -> Array:
            return self._times(self._times(rows * self.scale), transposed=True) * self.scale

        return self._each(v, product)

    def solve(self, g: ArrayLike) -> Array:
        """M^-1 g."""

        def solution(rows: Array) -> Array:
            return self._solved(self._solved(rows / self.scale, transposed=True)) / self.scale

        return self._each(g, solution)

    def _each(self, v: ArrayLike, what: Callable[[Array], Array]) -> Array:
        v = np.asarray(v, np.float64)
        if v.ndim not in (1, 2) or v.shape[-1] != self.n:
            raise ValueError(f"v must have shape ({self.n},) or (any, {self.n}), got {v.shape}")
        return what(v.reshape(-1, len(self.scale))).reshape(v.shape)

    def _times(self, rows: Array, transposed: bool = False) -> Array:
        """S, or its transpose, times each of the rows."""
        if self.factor is not None:
            return rows @ (self.factor if transposed else self.factor.T)
        if self.directions is None or self.roots is None:
            return rows
        along = (rows @ self.directions) * (self.roots - 1.0)
        return rows + along @ self.directions.T

    def _solved(self, rows: Array, transposed: bool = False) -> Array:
        """The inverse of S, or of its transpose, times each of the rows."""
        if self.factor is not None:
            from scipy.linalg import solve_triangular

            return np.ascontiguousarray(
                solve_triangular(self.factor, rows.T, trans=int(transposed), check_finite=False).T
            )
        if self.directions is None or self.roots is None:
            return rows
        along = (rows @ self.directions) * (1.0 / self.roots - 1.0)
        return rows + along @ self.directions.T

    # Kept and sent ------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All of it as plain values and arrays, for files and messages."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state` gave."""
        return cls(**state)


def coordinates_of(problem: Problem, kind: str = "dense", *, rank: int = RANK) -> Coordinates:
    """Coordinates in which the bound of the mean objective's Hessian is at most the identity.

    Parameters
    ----------
    problem : Problem
        Of a loss with a bound of its curvature.
    kind : {"identity", "columns", "dense", "truncated"}
        M is the largest eigenvalue of ``problem.bound_hessian() / m``; or its diagonal, times a
        number; or that matrix; or its leading eigenpairs and a number. Only "dense" forms it.
    rank : int
        Eigenpairs of "truncated", at most.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, or the loss that has no such bound.
    """
    check_choice("kind", kind, KINDS)
    m, copies, size = problem.n_clients, problem.objective.n_outputs, problem.data.n_features
    if kind == "identity":
        return Coordinates.identity(problem.mean_curvature(), size, copies)
    if kind == "dense":
        return Coordinates.dense(bound_block(problem) / m, copies)
    operator, diagonal = block_operator(problem), block_diagonal(problem) / m
    if kind == "truncated":
        return Coordinates.truncated(lambda v: operator @ v / m, diagonal, rank, copies)
    scale = np.sqrt(_positive(diagonal))
    sent = 2 * size

    def even(v: Array) -> Array:
        nonlocal sent
        sent += size
        return np.asarray(operator.matvec(v.ravel() / scale)) / (m * scale)

    from scipy.sparse.linalg import LinearOperator

    even_operator = LinearOperator((size, size), matvec=even, dtype=np.float64)
    largest = (1 + _ADDED / 10) * largest_eigenvalue(even_operator, tolerance=_ADDED / 100)
    found = Coordinates.columns(diagonal * (largest or 1.0), copies)
    return replace(found, sent=sent)


def _leading(
    product: Callable[[Array], Array], size: int, count: int
) -> tuple[Array, Array, Array]:
    """The largest eigenvalues of a positive semidefinite matrix, falling; vectors; and residuals.

    By block Krylov iterations, whose blocks find eigenvalues that are there several times and ask
    a federation a few times only. There are `count` of them, or `size` if that is less, with a
    value of 0 then at the end.
    """
    width = count + _MORE
    if width * (_ASKED + 1) >= size:
        values, vectors = np.linalg.eigh(product(np.eye(size)))
        values, vectors = np.append(values[::-1], 0.0), np.pad(vectors[:, ::-1], ((0, 0), (0, 1)))
        values = np.maximum(values[:count], 0.0)
        return values, vectors[:, :count], np.zeros(len(values))
    block = np.linalg.qr(np.random.default_rng(0).standard_normal((size, width)))[0]
    blocks, images = [block], [product(block)]
    for _ in range(_ASKED):
        block = _beyond(images[-1], np.hstack(blocks))
        if block.shape[1] == 0:
            break
        blocks.append(block)
        images.append(product(block))
    basis, image = np.hstack(blocks), np.hstack(images)
    inside = basis.T @ image
    values, turns = np.linalg.eigh((inside + inside.T) / 2)
    values, turns = np.maximum(values[::-1][:count], 0.0), turns[:, ::-1][:, :count]
    vectors = basis @ turns
    return values, vectors, np.linalg.norm(image @ turns - vectors * values, axis=0)


def _beyond(images: Array, basis: Array) -> Array:
    """An orthonormal basis of what columns add to those of `basis`."""
    size = np.linalg.norm(images, axis=0)
    left = images / np.where(size > 0, size, 1.0)
    for _ in range(2):  # rounding leaves a part of them in the first time
        left = left - basis @ (basis.T @ left)
    q, r = np.linalg.qr(left)
    q = q[:, np.abs(np.diagonal(r)) > 1e-10]
    return np.asarray(q - basis @ (basis.T @ q), np.float64)


def _diagonal(given: ArrayLike) -> Array:
    diagonal = check_array("diagonal", given, ndim=1)
    if len(diagonal) == 0 or (diagonal < 0).any():
        raise ValueError(
            f"diagonal must hold numbers of at least 0, got {diagonal.min(initial=np.inf)}"
        )
    return diagonal


def _positive(values: Array) -> Array:
    """`values`, with 1 where a column is nothing but zeros and nothing is penalised."""
    return np.where(values > 0, values, 1.0)
