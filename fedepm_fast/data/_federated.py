"""Rows of clients, one client after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._common.validation import (
    MAX_SEED,
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
    numbers_of,
    ordered_categories,
)
from ._clients import join, names_of
from ._holding import (
    check_features,
    check_names,
    check_positions,
    check_rows,
    check_sample_weight,
    check_sizes,
    of_clients_with_weight,
    own,
    plain,
    text_columns,
    thawed,
    unshared,
)
from ._labels import TASKS, mapped_labels
from ._rows import Rows
from ._scaling import column_norms, divide_columns
from ._summary import html_of, summary_of
from .partition import Partitioner, as_partitioner, deal

if TYPE_CHECKING:
    from ..kernels.losses import NarrowTable


@dataclass(frozen=True, eq=False)
class FederatedData(Rows):
    """Rows of m clients, one client after the other.

    Parameters
    ----------
    features : array_like or scipy sparse array, shape (d, n)
        float64, or float32 if it is given so; sparse input is held as CSR. Arrays are held
        read-only: one that is read-only already without a copy, any other is copied.
    labels : array_like of shape (d,)
        Held as float64.
    client_sizes : array_like of int, shape (m,)
        Rows of each client, at least 1.
    feature_names : sequence of str, optional
    client_names : sequence of str, optional
    rows : array_like of int, shape (d,), optional
        Where each row stood in the table that was split.
    description : mapping, optional
        How the data came to be, JSON-able; it goes into results.
    sample_weight : array_like of shape (d,), optional
        Weights of the rows in their client's loss, at least 0 and not all 0 at any client; 1 for
        all by default. Whole numbers count a row so often. See `objectives.Problem`.

    Raises
    ------
    ValueError, TypeError
        Naming the argument: NaN or inf, an empty client, sizes that do not add up, a
        description that is not JSON-able.
    """

    features: Any
    labels: NDArray[np.float64]
    client_sizes: NDArray[np.int64]
    feature_names: tuple[str, ...] | None = None
    client_names: tuple[str, ...] | None = None
    rows: NDArray[np.int64] | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    sample_weight: NDArray[np.float64] | None = None

    _arrays: ClassVar[tuple[str, ...]] = ("labels", "client_sizes", "rows", "sample_weight")

    def __post_init__(self) -> None:
        if self.feature_names is None:
            self._set(feature_names=text_columns(self.features))
        features = check_features(self.features, self.feature_names)
        d, n = features.shape
        labels = check_array("labels", numbers_of("labels", self.labels), shape=(d,))
        sizes = check_sizes(self.client_sizes, d)
        # What is held will be frozen, so an array that the caller may write to is copied.
        self._set(
            features=own(features, self.features),
            labels=own(labels, self.labels),
            client_sizes=sizes,
            description=plain(self.description),
        )
        for name, length in (("feature_names", n), ("client_names", len(sizes))):
            self._set(**{name: check_names(name, getattr(self, name), length)})
        if self.rows is not None:
            self._set(rows=own(check_rows(self.rows, d), self.rows))
        if self.sample_weight is not None:
            weights = check_sample_weight(self.sample_weight, sizes)
            self._set(sample_weight=own(weights, self.sample_weight))
        self._freeze()

    @classmethod
    def from_clients(
        cls,
        clients: Iterable[tuple[ArrayLike, ArrayLike]] | Mapping[Any, tuple[ArrayLike, ArrayLike]],
        *,
        task: str | None = None,
        description: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> FederatedData:
        """From one ``(features, labels)`` pair per client.

        Parameters
        ----------
        clients : iterable of pairs of array_like, shapes (d_i, n) and (d_i,)
            Or a mapping of names to such pairs; the clients are in its order.
        task : {"classification", "multiclass", "regression"}, optional
            As in `split`; labels are held as they are unless it is given.
        description : mapping, optional
        **kwargs
            The names, and ``sample_weight`` of all rows, client after client: see the class.
        """
        if isinstance(clients, Mapping):
            kwargs["client_names"] = names_of(clients, **kwargs)
        joined = join(clients, task)
        kwargs.setdefault("feature_names", joined.feature_names)
        note = {**(description or {}), **joined.note}
        return cls(*joined[:3], description=note, **kwargs)

    @classmethod
    def split(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        partition: Partitioner | ArrayLike,
        *,
        task: str = "classification",
        scale: str | None = None,
        seed: int = 0,
        feature_names: Iterable[str] | None = None,
        description: Mapping[str, Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FederatedData:
        """Split a table into clients.

        Parameters
        ----------
        features : array_like or scipy sparse array, shape (d, n)
        labels : array_like of shape (d,)
            For classification any two values, for multiclass any values, strings or whole
            numbers; unless they are 0, 1, ... already, the smallest becomes 0, the next 1, and
            so on, and ``description["label_mapping"]`` says so. Ordered categories of pandas are
            in their order. Real numbers for regression.
        partition : Partitioner or array_like of shape (d,)
            How to split, see `fedepm_fast.data.partition`; or the client of every row, numbers or
            strings.
        task : {"classification", "multiclass", "regression"}
        scale : {"unit-norm"}, optional
            Divide every column by its Euclidean norm over all rows, as the paper does. Columns
            of zeros stay so, and ``description["zero_columns"]`` names them.
        seed : int
            The split is a pure function of the data, the partition and the seed.
        feature_names : sequence of str, optional
            By default the column names of a DataFrame, if all of them are strings.
        description : mapping, optional
            Added to the description of the result.
        sample_weight : array_like of shape (d,), optional
            Weights of the table's rows, see the class.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        check_choice("task", task, TASKS)
        if scale is not None:
            check_choice("scale", scale, ("unit-norm",))
        seed = check_int("seed", seed, high=MAX_SEED)
        partition = as_partitioner(partition)
        names = text_columns(features) if feature_names is None else tuple(map(str, feature_names))
        table = check_features(features, names)
        d = table.shape[0]
        if np.shape(labels) != (d,):
            raise ArgumentValueError("labels", f"must have shape ({d},), got {np.shape(labels)}")
        y, found = mapped_labels(labels, task, ordered_categories(labels))
        note: dict[str, Any] = {"source": "arrays", **(description or {}), **found}
        check_names("feature_names", names, table.shape[1])
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, np.array([d]))
        # Norms are summed in the order of the table, whatever the split.
        norms = None if scale is None else column_norms(table)
        if norms is not None:
            note["scale"] = scale
            if not norms.all():
                note["zero_columns"] = np.flatnonzero(norms == 0).tolist()
        data = cls._of_table(table, y, partition, seed, names, note, weights=sample_weight)
        if norms is not None:
            divide_columns(thawed(data.features), norms)  # gathered, and no one else's yet
            data._freeze()
        elif not sparse.issparse(table) and table.flags.writeable:
            data._gather()  # now: the caller may write to the table later
        return data

    @classmethod
    def _of_table(
        cls,
        table: Any,
        labels: NDArray[np.float64],
        partition: Partitioner,
        seed: int,
        feature_names: tuple[str, ...] | None,
        note: Mapping[str, Any],
        narrow: Callable[[], NarrowTable] | None = None,
        weights: NDArray[np.float64] | None = None,
        ours: bool = False,
    ) -> FederatedData:
        """Split a table that is known to be valid; its rows are gathered on first use.

        So are the labels, if they are `ours` and nobody will write to them.

        `narrow`, a function that can be pickled, gives the same table for the kernels.
        """
        rows, sizes = deal(partition, labels, seed)
        described = {**note, "partition": partition.describe(), "split_seed": seed}
        if not ours:
            described = plain(described)
        return cls._made(
            client_sizes=sizes,
            sample_weight=None if weights is None else check_sample_weight(weights[rows], sizes),
            feature_names=feature_names,
            client_names=partition.client_names(),
            rows=rows,
            description=described,
            _narrow=narrow,
            **({"features": table[rows]} if sparse.issparse(table) else {"_table": table}),
            **({"_table_labels": labels} if ours else {"labels": labels[rows]}),
        )

    def resplit(self, partition: Partitioner, seed: int = 0) -> FederatedData:
        """The same rows, whoever holds them, split into clients anew.

        Parameters
        ----------
        partition : Partitioner
        seed : int
            The split is a pure function of the rows, the partition and the seed.
        """
        seed = check_int("seed", seed, high=MAX_SEED)
        narrow = self._narrow if self._in_order else None
        own = unshared(self.description)
        held = self.features, self.labels, partition, seed, self.feature_names, own
        made = FederatedData._of_table(*held, narrow, self.sample_weight, ours=True)
        if self.sample_weight is None:  # whoever holds them, the labels are the same ones
            made._set(is_binary=self.is_binary, largest_class=self.largest_class)
        return made

    def subset(self, rows: ArrayLike) -> FederatedData:
        """Some of the rows, where they are; clients that are left with none drop out, as do those
        that are left with rows of weight 0 only.

        Parameters
        ----------
        rows : array_like of int, shape (r,)
            Positions among the d rows held here, increasing, at least one.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        chosen = check_positions("rows", rows, self.n_samples)
        weights = self.sample_weight
        if weights is not None:
            chosen = of_clients_with_weight(chosen, weights, self.offsets)
        sizes = np.diff(np.searchsorted(chosen, self.offsets))
        kept = np.flatnonzero(sizes)
        names = self.client_names
        lazy = "_table" in self.__dict__
        held = {"_table": self._table} if lazy else {"features": self.features[chosen]}
        return FederatedData._made(
            labels=self.labels[chosen],
            client_sizes=sizes[kept],
            feature_names=self.feature_names,
            client_names=None if names is None else tuple(names[i] for i in kept),
            rows=None if self.rows is None else self.rows[chosen],
            description=dict(self.description),
            sample_weight=None if weights is None else weights[chosen],
            _narrow=self._narrow,
            **held,
        )

    def summary(self) -> str:
        """One line: source, rows, features, clients, sizes, and what was made of the table.

        For a file that is the columns of labels and clients, how labels were mapped, an index
        that was left out, and whether columns were scaled.
        """
        return summary_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<FederatedData {self.summary()}>"
