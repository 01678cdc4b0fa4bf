"""Columns brought to one scale, and coefficients back to the units of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..preparation._rules import units_of

Array = NDArray[np.float64]
Coefficients = tuple[Array, Array]

#: A deviation below so many units in the last place of the mean is rounding: a constant column.
_ROUNDING = 32


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows ``(a - center) / scale``, with a last column of ones where there is an intercept.

    Sparse rows are not centred. Columns without any spread are zeros then, with the scale 1.
    """

    rows: Any
    center: Array
    """Shape (p,)."""
    scale: Array
    """Shape (p,), above 0."""
    intercept: bool
    mean: Array
    """Of the columns of the table, shape (p,)."""
    constant: NDArray[np.bool_]
    """Columns without any spread, shape (p,); without centring, those that are zero."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the new columns in the regulariser of the old ones, which leaves the intercept
        alone."""
        return (*(self.scale**-2.0).tolist(), *[0.0] * self.intercept)

    @property
    def deviation(self) -> Array:
        """Standard deviations of the columns of the table, shape (p,)."""
        apart = self.mean - self.center
        found = np.sqrt(np.maximum(self.scale**2 - apart**2, 0.0))
        return np.where(self.constant, 0.0, found)

    def units(self, chosen: NDArray[np.bool_]) -> Array:
        """What turns coefficients of chosen new columns, (q,), into those of the table, (q, q)."""
        kept = chosen[: len(self.scale)]
        return units_of(self.center[kept], self.scale[kept], intercept=self.intercept)

    def coefficients(self, v: Array) -> Coefficients:
        """Coefficients (K, p) of the table and intercepts (K,), of those of the rows, v (K, .)."""
        coef = v[:, : len(self.scale)] / self.scale
        if not self.intercept:
            return coef, np.zeros(len(v))
        return coef, v[:, -1] - coef @ self.center

    def parameters(self, coef: Array, intercept: Array) -> Array:
        """The inverse of `coefficients`."""
        v = coef * self.scale
        return np.column_stack([v, intercept + coef @ self.center]) if self.intercept else v


def scaled(X: Any, order: NDArray[np.intp], weights: Array | None, *, intercept: bool) -> Scaled:
    """The rows of X in that order, their columns of mean 0 and deviation 1.

    Without an intercept, and of sparse rows, columns are divided by the root of their mean square.

    Parameters
    ----------
    X : ndarray or CSR array, shape (d, p)
    order : ndarray of int, shape (d,)
    weights : ndarray of shape (d,), optional
        Of the rows of X in means; alike by default.
    intercept : bool

    Raises
    ------
    ValueError
        If squares of entries overflow.
    """
    share = np.full(X.shape[0], 1.0) if weights is None else weights
    share = share / share.sum()
    equal = np.zeros(X.shape[1], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):  # found below
        if sparse.issparse(X):
            mean, center = X.T @ share, np.zeros(X.shape[1])
            squares = X.multiply(X).T @ share
        else:
            mean = share @ X
            center = mean if intercept else np.zeros(X.shape[1])
            squares = np.zeros(X.shape[1])
            for j, column in enumerate(X.T):  # no second table
                squares[j] = share @ (column - center[j]) ** 2
                equal[j] = intercept and (column == column[0]).all()
    if not np.isfinite(squares).all():
        raise ValueError("X must have entries whose squares are finite, scale its columns")
    scale = np.sqrt(squares)
    # The mean of many equal entries may be further off than that.
    constant = equal | (scale <= _ROUNDING * np.finfo(float).eps * np.abs(center))
    scale[constant] = 1.0
    if sparse.issparse(X):
        rows: Any = sparse.csr_array(X[order])
        rows.data = rows.data / scale[rows.indices]
        if intercept:
            ones = sparse.csr_array(np.ones((rows.shape[0], 1)))
            rows = sparse.hstack([rows, ones], format="csr")
        pieces: tuple[Any, ...] = (rows.data, rows.indices, rows.indptr)
    else:
        rows = np.ones((X.shape[0], X.shape[1] + intercept))
        inner = rows[:, : X.shape[1]]
        inner[:] = X[order]
        inner -= center
        inner /= scale
        inner[:, constant] = 0.0
        pieces = (rows,)
    for piece in pieces:
        piece.setflags(write=False)  # so that it is not copied
    return Scaled(rows, center, scale, intercept, mean, constant)
