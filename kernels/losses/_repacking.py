"""Rows of one table packed again and again, in the same memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._aligned import aligned
from ._client_rows import NarrowRows, PackedRows
from ._narrow import NarrowTable, read_only
from ._packed import filler


class Repacking:
    """Rows in blocks whose table, loss and number of clients stay.

    Parameters
    ----------
    packed : PackedRows
        Of these clients, however they share the rows; their sizes are those of `rows` until the
        first call.
    table : NarrowTable or ndarray of shape (d, n)
        A narrow one if `packed` are `NarrowRows`.
    labels : ndarray of shape (d,)
        Those of its rows.

    Raises
    ------
    TypeError
        For a narrow table and rows that are not, or the other way round.

    Attributes
    ----------
    rows : PackedRows
        Whose arrays are always the same ones; blocks beyond the last client's are nobody's.
    """

    def __init__(
        self, packed: PackedRows, table: NarrowTable | NDArray[Any], labels: NDArray[Any]
    ) -> None:
        narrow = isinstance(packed, NarrowRows)
        if isinstance(table, NarrowTable) != narrow:  # their blocks differ
            kinds = "a NarrowTable" if narrow else "an array", type(packed).__name__
            raise TypeError(f"table must be {kinds[0]} for {kinds[1]}, got {type(table).__name__}")
        _, held, self._width = packed.blocks.shape
        m, folds = packed.n_clients, packed.loss.folds
        most = len(labels) // self._width + m
        blocks = aligned((most, held, self._width), packed.blocks.dtype)
        targets = np.empty(0 if folds else most * self._width, packed.dtype)
        self._sizes, self._starts = packed.client_sizes.copy(), packed.starts.copy()
        self._no_target = packed.loss.no_target
        self._fill = filler(table, packed.dtype, folds, blocks, targets)
        self._labels, self._targets = read_only(labels), targets
        self.rows = dataclasses.replace(
            packed, client_sizes=read_only(self._sizes), targets=read_only(targets),
            blocks=read_only(blocks), starts=read_only(self._starts),
        )  # fmt: skip
        self._extent = self.rows.client_sizes, self.rows.starts

    def __call__(self, order: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Pack the rows that `order` numbers, client after client, `sizes` of them each."""
        self._sizes[:] = sizes
        np.cumsum((sizes + (self._width - 1)) // self._width, out=self._starts[1:])
        self._targets[:] = self._no_target
        self._fill(read_only(order), self._labels, True, *self._extent)
