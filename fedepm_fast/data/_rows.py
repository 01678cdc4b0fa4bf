"""Rows of clients that are valid: how they are held, what they tell, how kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._holding import Frozen, digest_of, frozen, pieces_of

if TYPE_CHECKING:
    from ..kernels.losses import ClientRows


class Rows(Frozen):
    """A frozen dataclass of rows, one client after the other, all of which is valid.

    Its features and labels may be gathered from the table that was split on first use.
    """

    features: Any
    labels: NDArray[np.float64]
    client_sizes: NDArray[np.int64]
    rows: NDArray[np.int64] | None
    description: Mapping[str, Any]
    sample_weight: NDArray[np.float64] | None
    _narrow: ClassVar[Any] = None
    #: Fields that are arrays or None, beside `features`.
    _arrays: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _made(cls, **values: Any) -> Self:
        """Of values that are known to be valid."""
        made = cls.__new__(cls)
        made.__setstate__(values)
        return made

    def _freeze(self) -> None:
        pieces = pieces_of(self.features) if "features" in self.__dict__ else ()
        # Not a table that rows will be gathered from: that may be the caller's.
        for array in (*pieces, *(self.__dict__.get(name) for name in self._arrays)):
            if array is not None:
                array.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        held: Any = self
        return {f.name: getattr(self, f.name) for f in fields(held)} | {"_narrow": self._narrow}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)
        self._freeze()  # pickle forgets it

    def _gather(self) -> None:
        """Gather `features` from the table."""
        self._set(features=frozen(np.take(self._table, np.asarray(self.rows), axis=0)))
        del self.__dict__["_table"]

    def __getattr__(self, name: str) -> Any:
        # `features` and `labels` of a split are gathered on first use: the compiled kernels pack
        # the rows of the table themselves.
        if name == "features" and "_table" in self.__dict__:
            self._gather()
            return self.features
        if name == "labels" and "_table_labels" in self.__dict__:
            self._set(labels=frozen(self.__dict__["_table_labels"][self.__dict__["rows"]]))
            return self.__dict__["labels"]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # What they tell ---------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """Whether the features are held as CSR."""
        return "_table" not in self.__dict__ and sparse.issparse(self.features)

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return len(self.client_sizes)

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return int(self.__dict__.get("_table", self.__dict__.get("features")).shape[1])  # type: ignore[union-attr]

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return len(self.__dict__["labels" if "labels" in self.__dict__ else "rows"])

    @property
    def label_mapping(self) -> dict[str, int] | None:
        """Which given label became which number; None where none was changed."""
        return self.description.get("label_mapping")

    @cached_property
    def is_binary(self) -> bool:
        """Whether all labels are 0 or 1."""
        b = self.labels
        return bool(((b == 0) | (b == 1)).all())

    @cached_property
    def largest_class(self) -> float:
        """Share of the rows, by their weights, that have the most frequent label."""
        if self.is_binary and self.sample_weight is None:  # without a sort of the labels
            ones = int(np.count_nonzero(self.labels))
            return max(ones, self.n_samples - ones) / self.n_samples
        _, codes = np.unique(self.labels, return_inverse=True)
        return float(np.bincount(codes, self.sample_weight).max() / self.weight_sums.sum())

    def content_hash(self) -> str:
        """SHA-256 of everything that determines a result: rows, labels, clients and weights."""
        weights = () if self.sample_weight is None else (self.sample_weight,)
        return digest_of(self.features, self.labels, self.client_sizes, *weights)

    # Client by client -------------------------------------------------------------------

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First row of every client, and d; shape (m + 1,)."""
        return frozen(np.concatenate([[0], np.cumsum(self.client_sizes)]))

    @cached_property
    def weight_sums(self) -> NDArray[np.float64]:
        """Sum of each client's sample weights, shape (m,): its number of rows without any."""
        if self.sample_weight is None:
            return frozen(self.client_sizes.astype(np.float64))
        return frozen(np.add.reduceat(self.sample_weight, self.offsets[:-1]))

    def client(self, i: int) -> tuple[Any, NDArray[np.float64]]:
        """Features and labels of client i, without a copy of its entries."""
        try:
            rows = self._slices[i]
        except (IndexError, TypeError) as error:
            named = ", as in client_names" if isinstance(i, str) else ""
            raise type(error)(
                f"client must be a number from 0 to {self.n_clients - 1}{named}, got {i!r}"
            ) from None
        features = self._sparse_rows[i] if self.is_sparse else self.features[rows]
        return features, self.labels[rows]

    def rows_of(self, i: int) -> slice:
        """Where the rows of client i are among all."""
        return self._slices[i]

    @cached_property
    def _slices(self) -> list[slice]:
        """Where each client's rows are."""
        return [slice(a, b) for a, b in pairwise(self.offsets.tolist())]

    @cached_property
    def _sparse_rows(self) -> list[Any]:
        """Each client's rows of a CSR array."""
        return [_shared_rows(self.features, rows) for rows in self._slices]

    # Compiled ---------------------------------------------------------------------------

    @cached_property
    def _in_order(self) -> bool:
        """Whether the rows are those of the table that was split, as they stand there."""
        return self.rows is not None and bool((np.diff(self.rows) == 1).all())

    def packed(self, loss: Any, **parameters: Any) -> ClientRows:
        """The rows as the compiled kernels of a loss read them, in float64; packed once.

        `parameters` are those of the loss, and weights, as `kernels.losses.pack` takes them.
        """
        from ..kernels import losses

        packed = self.__dict__.setdefault("_packed", {})
        key = (loss, *sorted(parameters.items()))
        if key not in packed:
            table, rows = self.__dict__.get("_table"), self.rows
            labels = self.__dict__.get("_table_labels")
            if self._narrow is not None:
                table = self._narrow()
            elif table is None:
                table, rows, labels = self.features, None, None
            packed[key] = losses.pack(
                table, self.labels if labels is None else labels, self.client_sizes, loss=loss,
                dtype=np.float64, rows=rows, labels_of_table=labels is not None, checked=True,
                **parameters,
            )  # fmt: skip
        return packed[key]

    def in_place(self, rows: ClientRows, sizes: NDArray[np.int64]) -> Self:
        """Data of packed rows that change where they are, and of no others; so do their `sizes`."""
        (key,) = self.__dict__["_packed"]
        sizes = sizes.view()  # which will be read-only
        return self._made(
            features=np.empty((0, self.n_features)), client_sizes=sizes,
            feature_names=None, client_names=None, rows=np.empty(self.n_samples, np.int64),
            description={}, sample_weight=None, is_binary=self.is_binary, _packed={key: rows},
        )  # fmt: skip


def _shared_rows(table: Any, rows: slice) -> Any:
    """Rows of a CSR array that share its entries, which indexing copies."""
    first, last = table.indptr[rows.start], table.indptr[rows.stop]
    found: Any = sparse.csr_array((rows.stop - rows.start, table.shape[1]), dtype=table.dtype)
    # Given to it at first, small parts of large arrays would be copied, too.
    found.data, found.indices = table.data[first:last], table.indices[first:last]
    found.indptr = table.indptr[rows.start : rows.stop + 1] - first
    return found
