"""Clients' rows as the kernels of `losses` read them: what `_packed.pack` makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._aligned import aligned
from .._boundary import ArgumentValueError
from . import _blocks as _losses_blocks
from . import _dense as _losses_dense
from . import _jagged as _losses_jagged
from . import _rows as _losses_rows
from ._loss import Loss
from ._narrow import BASE, FLOAT, read_only, whole


@dataclass(frozen=True, eq=False)
class ClientRows:
    """Rows of m clients, arranged for one loss; made by `pack`. Its arrays are read-only."""

    loss: Loss
    client_sizes: NDArray[np.int64]
    """Rows of each client, d_i, shape (m,)."""
    n_features: int
    """Number of columns, n."""
    targets: NDArray[Any]
    """Labels of the rows or, for losses of signed margins, their signs 1 - 2b, shape (d,)."""
    constants: NDArray[Any]
    """The loss's parameter (delta, a slope or the number of classes; 0 if it has none), then the
    weights of the coordinates in the regulariser, shape (1 + n_parameters,)."""

    layout: ClassVar[str]

    @cached_property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return len(self.client_sizes)

    @cached_property
    def n_outputs(self) -> int:
        """Margins of a row: the number of classes for the multinomial loss, else 1."""
        return self.n_parameters // self.n_features

    @cached_property
    def n_parameters(self) -> int:
        """Number of coordinates of a point, ``n_outputs * n_features``."""
        return len(self.constants) - 1

    @cached_property
    def quadratic(self) -> bool:
        """Whether the loss is; see `Loss`."""
        return self.loss.quadratic

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """float64 or float32."""
        return self.targets.dtype

    @cached_property
    def every_client(self) -> NDArray[np.int64]:
        """Their numbers; not to be changed."""
        return np.arange(self.n_clients)

    @cached_property
    def no_weights(self) -> NDArray[Any]:
        """Zeros for the weights of the clients' regularisers; not to be changed."""
        return np.zeros(self.n_clients, self.dtype)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First row of each client, and the number of rows, shape (m + 1,)."""
        return read_only(offsets_of(self.client_sizes))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The argument `arrays` of the compiled kernels."""
        raise NotImplementedError

    @property
    def entries(self) -> NDArray[np.int64]:
        """Stored numbers of each client, the measure of the work, shape (m,)."""
        raise NotImplementedError

    @property
    def chunks(self) -> NDArray[np.int64]:
        """Chunks that each client is computed in, shape (m,)."""
        return -(-self.client_sizes // _losses_rows.CHUNK)

    def spread(self, numbers: NDArray[np.int64], m: int) -> Self:
        """These rows as those of m clients, of whom only these, by their numbers, have any.

        Rows keep their order, so numbers that do not rise, or are not from 0 to m - 1, are a
        ValueError.
        """
        ends = np.concatenate(([-1], numbers, [m]))
        if len(numbers) != self.n_clients or (np.diff(ends) <= 0).any():
            raise ArgumentValueError(
                "numbers", f"must be {self.n_clients} that rise within 0 to {m - 1}, got {numbers}"
            )
        arrays = self._spread(numbers, m)
        changed: dict[str, Any] = {name: read_only(array) for name, array in arrays.items()}
        return replace(self, **changed)

    def _spread(self, numbers: NDArray[np.int64], m: int) -> dict[str, NDArray[np.int64]]:
        return {"client_sizes": _placed(self.client_sizes, numbers, m)}

    @cached_property
    def work_size(self) -> int:
        """Numbers of scratch that the compiled kernels need."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class PackedRows(ClientRows):
    """Dense rows of few coordinates, in blocks.

    A block holds 8 rows (float32: 16) of one client as an array (n, 8), so that a vector of
    the processor holds one coordinate of all of them. Each client is filled up with zero rows
    to whole blocks. For losses of signed margins each row is multiplied by 1 - 2b.
    """

    blocks: NDArray[Any]
    """The blocks, shape (blocks, n, 8 or 16); the data are on a multiple of 64 bytes."""
    starts: NDArray[np.int64]
    """First block of each client, and the number of blocks, shape (m + 1,)."""
    scale: NDArray[Any]
    """What the columns of the blocks are multiplied by, shape (n,)."""

    # `targets` has zeros where rows are, and is empty if labels are folded into the rows.
    layout = "blocks"

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        extent = self.starts, self.client_sizes
        return self.blocks, self.targets, *extent, self.scale, self.constants

    @property
    def entries(self) -> NDArray[np.int64]:
        return np.diff(self.starts) * (self.n_features * self.blocks.shape[2])

    @property
    def chunks(self) -> NDArray[np.int64]:
        return -(-np.diff(self.starts) // _losses_blocks.CHUNK)

    def _spread(self, numbers: NDArray[np.int64], m: int) -> dict[str, NDArray[np.int64]]:
        starts = offsets_of(_placed(np.diff(self.starts), numbers, m))
        return super()._spread(numbers, m) | {"starts": starts}

    @cached_property
    def table(self) -> NDArray[Any]:
        """The rows of the blocks one after the other, padded to whole vectors: (8 * blocks, ...).

        What batches are drawn from: a row of it is in one place, and in a block it is strewn.
        """
        numbers = self._numbers()
        count, n, width = numbers.shape
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32)
        if (single == numbers).all():
            numbers = single
        found = aligned((count * width, whole(n, self.dtype)), numbers.dtype)
        found[:, n:] = 0
        found[:, :n] = numbers.transpose(0, 2, 1).reshape(-1, n)
        return read_only(found)

    def _numbers(self) -> NDArray[Any]:
        """The entries of the blocks, shape (blocks, n, 8 or 16)."""
        return self.blocks

    @cached_property
    def work_size(self) -> int:
        width, spare = self.blocks.shape[2], whole(self.n_parameters, self.dtype)
        sums = self.n_parameters + width
        held = self.n_outputs * _losses_blocks.GROUP + sums
        # The last vector of a point may end beyond it.
        return spare + held * width + spare + width + self._converted_size()

    def _converted_size(self) -> int:
        """Numbers that a group of converted blocks takes."""
        return 0


@dataclass(frozen=True, eq=False)
class NarrowRows(PackedRows):
    """`PackedRows` of float64 in fewer bytes, of a `NarrowTable`.

    Each block is int8 of shape (bytes of a row, 8): where a column is held as float32 numbers
    eight of these, otherwise a byte of each of the eight rows.
    """

    columns: NDArray[np.int64]
    """See `NarrowTable.columns`."""

    layout = "narrow"

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        *others, constants = super().arrays
        return *others, self.columns, constants

    def _numbers(self) -> NDArray[Any]:
        count, width = len(self.blocks), self.blocks.shape[2]
        found = np.empty((count, self.n_features, width), np.float32)
        for j, (at, held) in enumerate(self.columns):
            part = self.blocks[:, at : at + held]
            if held == FLOAT:
                found[:, j] = part.reshape(count, -1).view(np.float32)
            else:
                digits = part.astype(np.float32)
                found[:, j] = digits[:, 0] if held == 1 else digits[:, 0] * BASE + digits[:, 1]
        return found

    def _converted_size(self) -> int:
        return _losses_blocks.GROUP * self.n_features * self.blocks.shape[2]


@dataclass(frozen=True, eq=False)
class DenseRows(ClientRows):
    """Dense rows of many coordinates, as they were given."""

    features: NDArray[Any]
    """The rows, shape (d, n)."""

    layout = "dense"

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.features, self.targets, self.offsets, self.constants

    @property
    def entries(self) -> NDArray[np.int64]:
        return self.client_sizes * self.n_features

    @cached_property
    def work_size(self) -> int:
        margins = self.n_outputs * _losses_dense.APART
        return whole(self.n_parameters, self.dtype) + margins + _losses_dense.SQUARE


@dataclass(frozen=True, eq=False)
class SparseRows(ClientRows):
    """Compressed sparse rows, as they were given, and a copy of their entries in another order.

    What is computed of all rows of a client is read from the copy, and batches of them from what
    was given. `_jagged` says in which order the copy is.
    """

    data: NDArray[Any]
    """The entries, row by row, shape (entries,)."""
    indices: NDArray[np.int32]
    """Their columns."""
    indptr: NDArray[np.int64]
    """First entry of each row, and the number of entries, shape (d + 1,)."""
    values: NDArray[Any]
    """The entries, panel by panel, and two vectors of zeros."""
    columns: NDArray[Any]
    """Their columns, uint16 where there are no more than 65,536, else uint32."""
    order: NDArray[np.uint16]
    """The rows of each panel by their lengths, as numbers within it, filled up to whole vectors."""
    lengths: NDArray[np.uint32]
    """How many entries these rows have."""
    panels: NDArray[np.int64]
    """The first vector of rows and the first entry of each panel, shape (panels + 1, 2)."""
    starts: NDArray[np.int64]
    """The first panel of each client, shape (m,)."""
    heights: NDArray[np.int64]
    """How many rows each client's panels have, shape (m,)."""

    layout = "csr"

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        indices, indptr = self.indices.view(np.uint32), self.indptr.view(np.uint64)
        return (
            self.data, indices, indptr, self.values, self.columns, self.order, self.lengths,
            self.panels, self.starts, self.heights, self.targets, self.offsets, self.constants,
        )  # fmt: skip

    @property
    def entries(self) -> NDArray[np.int64]:
        return np.diff(self.indptr[self.offsets])

    def _spread(self, numbers: NDArray[np.int64], m: int) -> dict[str, NDArray[np.int64]]:
        own = {name: _placed(getattr(self, name), numbers, m) for name in ("starts", "heights")}
        return super()._spread(numbers, m) | own

    @property
    def work_size(self) -> int:
        return whole(self.n_parameters, self.dtype) + self.n_outputs * _losses_jagged.APART


def _placed(values: NDArray[np.int64], numbers: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """One value for each of m clients: these where `numbers` are, else zero."""
    found = np.zeros(m, np.int64)
    found[numbers] = values
    return found


def offsets_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found
