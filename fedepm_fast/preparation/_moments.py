"""Sums of products of prepared columns, and which columns are sums of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._common.validation import ArgumentValueError, check_array, check_int
from ._columns import Numbers
from ._summary import check_format

_FORMAT = "fedepm_fast second moments"
_VERSION = 1


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The sum of ``a a'`` over the prepared rows a of one or several clients.

    Attributes
    ----------
    clients : tuple of str or None
    rows : int
    matrix : ndarray of shape (p, p)
    """

    clients: tuple[str | None, ...]
    rows: int
    matrix: Numbers

    @classmethod
    def of(cls, rows: Numbers, *, client: str | None = None) -> SecondMoments:
        """Those of a client's prepared rows, shape (d, p)."""
        return cls((client,), len(rows), rows.T @ rows)

    def __add__(self, other: SecondMoments) -> SecondMoments:
        if not isinstance(other, SecondMoments):
            return NotImplemented
        if other.matrix.shape != self.matrix.shape:
            raise ArgumentValueError(
                "moments",
                f"must have one shape for all clients, got {self.matrix.shape} and "
                f"{other.matrix.shape}",
            )
        return SecondMoments(
            self.clients + other.clients, self.rows + other.rows, self.matrix + other.matrix
        )

    def to_dict(self) -> dict[str, Any]:
        """The moments as JSON has them: what a client sends, p (p + 1) / 2 numbers."""
        lower = self.matrix[np.tril_indices(len(self.matrix))]
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "clients": list(self.clients),
            "rows": self.rows,
            "columns": len(self.matrix),
            "lower": lower.tolist(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> SecondMoments:
        """Moments as `to_dict` wrote them, which are checked.

        Raises
        ------
        ValueError, TypeError
            If they are none, of another version, or not finite.
        """
        check_format(given, _FORMAT, _VERSION)
        p = check_int("columns", given.get("columns"), low=0)
        lower = check_array("lower", given.get("lower"), shape=(p * (p + 1) // 2,))
        matrix = np.zeros((p, p))
        matrix[np.tril_indices(p)] = lower
        matrix.T[np.tril_indices(p)] = lower
        return cls(tuple(given.get("clients", ())), check_int("rows", given.get("rows")), matrix)


def aliased(matrix: Numbers, order: Sequence[int], tolerance: float) -> list[int]:
    """Columns that are sums of those before them in `order`, ascending.

    A Cholesky factorisation in that order, which passes by what has nothing left: what R's
    pivoted QR decomposition does with the columns themselves.
    """
    p = len(matrix)
    rest = matrix[np.ix_(order, order)].copy()
    whole = np.diag(rest).copy()
    found = []
    for k in range(p):
        if rest[k, k] <= tolerance * whole[k]:
            found.append(order[k])
            continue
        row = rest[k, k + 1 :] / rest[k, k]
        rest[k + 1 :, k + 1 :] -= np.outer(row, rest[k, k + 1 :])
    return sorted(found)
