"""Rows of one table packed again and again, in the same memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._aligned import aligned
from ._client_rows import NarrowTable, PackedRows, read_only, whole
from ._packing import fill_blocks, fill_narrow_blocks


class Repacking:
    """Rows in blocks whose table, loss and number of clients stay.

    Parameters
    ----------
    packed : PackedRows
        Of these clients, however they share the rows; their sizes are those of `rows` until the
        first call.
    table : NarrowTable or ndarray of shape (d, n)
        Of the dtype of ``packed.blocks``.
    labels : ndarray of shape (d,)
        Those of its rows.

    Attributes
    ----------
    rows : PackedRows
        Whose arrays are always the same ones; blocks beyond the last client's are nobody's.
    """

    def __init__(
        self, packed: PackedRows, table: NarrowTable | NDArray[Any], labels: NDArray[Any]
    ) -> None:
        _, n, self._width = packed.blocks.shape
        m, folds = packed.n_clients, packed.loss.folds
        most = len(labels) // self._width + m
        blocks = aligned((most, n, self._width), packed.blocks.dtype)
        targets = np.empty(0 if folds else most * self._width, packed.dtype)
        self._sizes, self._starts = packed.client_sizes.copy(), packed.starts.copy()
        self._no_target = packed.loss.no_target
        narrow = isinstance(table, NarrowTable)
        self._fill = fill_narrow_blocks if narrow else fill_blocks
        source = table.values if isinstance(table, NarrowTable) else table
        memory = aligned((self._width, whole(n, packed.dtype)), packed.dtype)
        self._source = read_only(source), read_only(labels)
        self._into = folds, blocks, targets, memory
        self.rows = dataclasses.replace(
            packed, client_sizes=read_only(self._sizes), targets=read_only(targets),
            blocks=read_only(blocks), starts=read_only(self._starts),
        )  # fmt: skip
        self._extent = self.rows.client_sizes, self.rows.starts

    def __call__(self, order: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Pack the rows that `order` numbers, client after client, `sizes` of them each."""
        self._sizes[:] = sizes
        np.cumsum((sizes + (self._width - 1)) // self._width, out=self._starts[1:])
        self._into[2][:] = self._no_target
        table, labels = self._source
        self._fill(table, read_only(order), labels, True, *self._extent, *self._into)
