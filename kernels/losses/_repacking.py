"""Rows of one table dealt to clients again and again, in the same memory."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from .._aligned import aligned
from .._boundary import ArgumentTypeError
from .._jit import JIT_DISABLED, device, kernel
from .._parts import fill
from .._pointers import address_of
from .._views import View, view_of
from ..philox import wrapping
from ..sampling import order_into
from ._client_rows import NarrowRows, PackedRows
from ._narrow import NarrowTable, read_only, whole
from ._packing import fill_blocks, fill_narrow_blocks, in_words


class _Dealt(NamedTuple):
    """What rows are dealt of, and where they go: as of `fill_blocks`, but in a random order."""

    key: NDArray[np.uint64]
    """Of the order of the rows, and its purpose, shape (3,)."""
    order: NDArray[np.int64]
    words: NDArray[np.uint64]
    table: NDArray[Any]
    labels: NDArray[Any]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[Any]
    targets: NDArray[Any]
    no_target: Any
    folds: bool
    memory: NDArray[Any]
    """Of `fill_blocks`."""
    float_words: int
    """Of a narrow table, whose numbers are all words."""
    width: int
    """Rows of a block."""


@device
def _arrange(dealt):
    """The order of the rows, and where each client's blocks start."""
    zero = np.uint64(0)
    order_into(dealt.key[0], dealt.key[1], dealt.key[2], zero, zero, dealt.order, dealt.words)
    starts, width = dealt.starts, dealt.width
    for i in range(dealt.sizes.size):
        starts[i + 1] = starts[i] + (dealt.sizes[i] + (width - 1)) // width
    fill(dealt.targets, dealt.no_target)


@kernel
def _deal(dealt):
    _arrange(dealt)
    fill_blocks(
        dealt.table, dealt.order, dealt.labels, True, dealt.sizes, dealt.starts, dealt.folds,
        dealt.blocks, dealt.targets, dealt.memory,
    )  # fmt: skip


@kernel
def _deal_narrow(dealt):
    _arrange(dealt)
    fill_narrow_blocks(
        dealt.table, dealt.order, dealt.labels, True, dealt.sizes, dealt.starts, dealt.folds,
        dealt.float_words, dealt.blocks, dealt.targets,
    )  # fmt: skip


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
    purpose : int
        What the order of the rows is drawn for, see `sampling`.

    Raises
    ------
    TypeError
        For a narrow table and rows that are not, or the other way round.

    Attributes
    ----------
    rows : PackedRows
        Whose arrays are always the same ones; blocks beyond the last client's are nobody's.
    sizes : ndarray of int64, shape (m,)
        How many rows each client is dealt, to be written to before.
    """

    def __init__(
        self,
        packed: PackedRows,
        table: NarrowTable | NDArray[Any],
        labels: NDArray[Any],
        purpose: int,
    ) -> None:
        narrow = isinstance(packed, NarrowRows)
        if isinstance(table, NarrowTable) != narrow:  # their blocks differ
            kinds = "a NarrowTable" if narrow else "an array", type(packed).__name__
            raise ArgumentTypeError(
                "table", f"must be {kinds[0]} for {kinds[1]}, got {type(table).__name__}"
            )
        _, held, width = packed.blocks.shape
        d, m, folds = len(labels), packed.n_clients, packed.loss.folds
        blocks = aligned((d // width + m, held, width), packed.blocks.dtype)
        targets = np.empty(0 if folds else len(blocks) * width, packed.dtype)
        self.sizes, starts = packed.client_sizes.copy(), packed.starts.copy()
        self.rows = dataclasses.replace(
            packed, client_sizes=read_only(self.sizes), targets=read_only(targets),
            blocks=read_only(blocks), starts=read_only(starts),
        )  # fmt: skip
        self.key = np.array([0, 0, purpose], np.uint64)
        memory, no_target, float_words = np.empty((0, 0)), packed.loss.no_target, 0
        if isinstance(table, NarrowTable):
            float_words, table = table.float_words, table.rows
            labels, blocks, targets = in_words(labels, blocks, targets)
            no_target = int(np.float64(no_target).view(np.uint64))
        else:
            memory = aligned((width, whole(table.shape[1], packed.dtype)), packed.dtype)
        self._dealt = _Dealt(
            self.key, np.empty(d, np.int64), np.empty(d, np.uint64), read_only(table),
            read_only(labels), self.sizes, starts, blocks, targets, no_target, folds, memory,
            float_words, width,
        )  # fmt: skip
        self._function = _deal_narrow if narrow else _deal

    def __call__(self) -> None:
        """Deal the rows in the order of `key`, as many to each client as `sizes` says."""
        if JIT_DISABLED:
            with wrapping():
                self._function(self._dealt)
        else:
            self._compiled.entry_point(self.words.ctypes.data)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """What the function at `address` is given the address of; it lives as long as this."""
        return self._view.packed(self._dealt)

    @property
    def address(self) -> int:
        """Of the compiled function that a call calls."""
        return address_of(self._compiled)

    @cached_property
    def _view(self) -> View:
        return view_of(self._dealt)

    @cached_property
    def _compiled(self) -> Any:
        return self._function.get_compile_result(types.none(self._view))
