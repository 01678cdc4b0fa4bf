"""Coordinates in which a linear model's objective is well conditioned.

FedEPM with every client in every round, no noise and a small lam moves x by a gradient step of
the mean objective, so how many rounds it needs is a matter of the coordinates. With C the second
moments of the rows about their mean, each row weighing as much as the Hessian gives it at most,
the Hessian is at most ``C + beta``. Along the eigenvectors of C, divided by the roots of that
bound, it is at most the identity, and the regulariser is still a weighted sum of squares: the
problem is the same, nothing is approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

Array = NDArray[np.float64]

#: Columns up to which all eigenvectors are found.
DIRECTIONS_UP_TO = 1000
#: Scales of columns that differ by more leave small directions inaccurate.
_LARGEST_RATIO = 1e6


@dataclass(frozen=True, eq=False)
class Design:
    """An affine change of coordinates of rows, ``(a - center) @ directions / scale``.

    A last column, `constant`, stands for the intercept unless it is 0.
    """

    center: Array
    """Shape (n,)."""
    directions: Array | None
    """Orthonormal, shape (n, n); None for the columns themselves."""
    scale: Array
    """Shape (n,)."""
    constant: float

    @property
    def weights(self) -> Array:
        """Weights of the new coordinates in the regulariser of the old ones."""
        weights = self.scale**-2.0
        return np.append(weights, 0.0) if self.constant else weights

    def rows(self, X: Any) -> Any:
        """Rows in the new coordinates."""
        if sparse.issparse(X):
            found: Any = sparse.csr_array(X, copy=True)
            found.data /= self.scale[found.indices]
        else:
            found = X - self.center
            found = (
                found / self.scale
                if self.directions is None
                else (found @ (self.directions / self.scale))
            )
        if not self.constant:
            return found
        column = np.full((X.shape[0], 1), self.constant)
        if sparse.issparse(X):
            return sparse.hstack([found, sparse.csr_array(column)], format="csr")
        return np.hstack([found, column])

    def coefficients(self, v: Array) -> tuple[Array, Array]:
        """Coefficients (K, n) of the old coordinates and intercepts (K,), from v (K, n')."""
        n = len(self.scale)
        coef = v[:, :n] / self.scale
        if self.directions is not None:
            coef = coef @ self.directions.T
        if not self.constant:
            return coef, np.zeros(len(v))
        return coef, v[:, n] * self.constant - coef @ self.center

    def parameters(self, coef: Array, intercept: Array) -> Array:
        """The inverse of `coefficients`."""
        turned = coef if self.directions is None else coef @ self.directions
        v = turned * self.scale
        if not self.constant:
            return v
        own = (intercept + coef @ self.center) / self.constant
        return np.column_stack([v, own])


def design(X: Any, curvature: Array, *, beta: float, intercept: bool, kind: str) -> Design:
    """Coordinates in which the Hessian of the mean objective is at most the identity.

    Parameters
    ----------
    X : ndarray or CSR array, shape (d, n)
        Sparse rows are not centred.
    curvature : ndarray of shape (d,)
        Bounds of the second derivative of the mean objective in the rows' margins.
    beta : float
        The weight of the regulariser.
    intercept : bool
        Whether there is one, which the regulariser leaves alone.
    kind : {"auto", "directions", "columns", "none"}
        Eigenvectors of the second moments; or the columns, each divided by its own scale, and
        all by a common one; or that only. "auto" takes the first for dense rows of up to 1000
        columns whose scales are within a factor of a million.

    Raises
    ------
    ValueError
        If sparse rows are to be turned to eigenvectors, or squares of entries overflow.
    """
    n, total = X.shape[1], curvature.sum()
    is_sparse = sparse.issparse(X)
    if is_sparse and kind == "directions":
        raise ValueError("preconditioner must be 'auto', 'columns' or 'none' for sparse X")
    with np.errstate(over="ignore", invalid="ignore"):  # found below
        center = np.zeros(n) if is_sparse or not intercept else (curvature / total) @ X
        moments = curvature @ (X.multiply(X) if is_sparse else (X - center) ** 2)
    if not np.isfinite(moments).all():
        raise ValueError("X must have entries whose squares are finite, scale its columns")
    if kind == "auto":
        spread = moments[moments > 0]
        even = spread.size == 0 or spread.max() <= _LARGEST_RATIO**2 * spread.min()
        kind = "directions" if not is_sparse and n <= DIRECTIONS_UP_TO and even else "columns"
    constant = total**-0.5 if intercept else 0.0
    if kind == "directions":
        rows = np.sqrt(curvature)[:, None] * (X - center)
        moments, directions = np.linalg.eigh(rows.T @ rows)
        # What is below that is rounding.
        least = n * np.finfo(float).eps * moments[-1]
        scale = _positive(np.sqrt(np.maximum(moments, least) + beta))
        return Design(center, directions, scale, constant)
    scale = np.ones(n) if kind == "none" else _positive(np.sqrt(moments + beta))
    found = Design(center, None, scale, constant)
    root = np.sqrt(_largest_eigenvalue(found, X, curvature, beta)) or 1.0
    return Design(center, None, scale * root, constant / root)


def _positive(scale: Array) -> Array:
    """`scale`, with 1 where a column is constant and nothing is penalised."""
    return np.where(scale > 0, scale, 1.0)


def _largest_eigenvalue(found: Design, X: Any, curvature: Array, beta: float) -> float:
    """That of the bound of the Hessian in the coordinates `found`."""
    rows, penalty = found.rows(X), beta * found.weights
    n = rows.shape[1]
    if n <= DIRECTIONS_UP_TO:
        weighted = (
            rows.multiply(curvature[:, None])
            if sparse.issparse(rows)
            else (rows * curvature[:, None])
        )
        moments = rows.T @ weighted
        moments = moments.toarray() if sparse.issparse(moments) else moments
        return float(np.linalg.eigvalsh(moments + np.diag(penalty))[-1])
    bound = LinearOperator(
        (n, n),
        matvec=lambda v: rows.T @ (curvature * (rows @ v.ravel())) + penalty * v.ravel(),
        dtype=np.float64,
    )
    # From below, within its tolerance.
    return 1.01 * float(eigsh(bound, k=1, v0=np.ones(n), tol=1e-3, return_eigenvectors=False)[0])
