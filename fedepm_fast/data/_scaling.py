"""Columns of unit norm, as the paper has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._common.validation import check_finite

_BLOCK = 1 << 16  # rows at a time, so that no temporary is as large as the table


def column_norms(features: Any) -> NDArray[np.float64]:
    """Euclidean norm of every column of a float array or CSR array, shape (n,)."""
    squares = _column_squares(features)
    norms = np.sqrt(squares)
    # Where squares overflow, or vanish with digits lost, the largest entry is the unit.
    unsure = ~((squares > 1e-280) & np.isfinite(squares))
    if unsure.any():
        if sparse.issparse(features):
            largest = np.zeros(features.shape[1])
            np.maximum.at(largest, features.indices, np.abs(features.data))
        else:
            largest = np.maximum(features.max(axis=0), -features.min(axis=0)).astype(np.float64)
        unit = np.where(unsure & (largest > 0), largest, 1.0)
        norms[unsure] = (unit * np.sqrt(_column_squares(features, unit)))[unsure]
    return norms


def _column_squares(features: Any, unit: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(features):
            values = features.data.astype(np.float64, copy=False)
            if unit is not None:
                values = values / unit[features.indices]
            n = features.shape[1]
            return np.bincount(features.indices, values * values, n).astype(np.float64, copy=False)
        squares = np.zeros(features.shape[1])
        for start in range(0, len(features), _BLOCK):
            block = features[start : start + _BLOCK]
            if unit is not None:
                block = block / unit
            squares += np.square(block, dtype=np.float64).sum(axis=0)
        return squares


def divide_columns(features: Any, norms: NDArray[np.float64]) -> None:
    """Divide columns by their norms, in place; columns of norm zero stay."""
    divisor = np.where(norms == 0, 1, norms)
    with np.errstate(over="ignore"):
        divisor = divisor.astype(features.dtype)
    check_finite("norms of the features' columns", divisor)
    if sparse.issparse(features):
        features.data /= divisor[features.indices]
    else:
        features /= divisor
