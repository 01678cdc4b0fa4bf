"""Federated data: rows held client by client."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._validation import (
    MAX_SEED,
    check_array,
    check_choice,
    check_finite,
    check_int,
    check_values,
    column_names,
    numbers_of,
    ordered_categories,
    raise_not_finite,
    refuse_masked,
)
from .partition import ByColumn, Partitioner

if TYPE_CHECKING:
    from ..kernels.losses import ClientRows, NarrowTable

Array = NDArray[Any]

TASKS = ("classification", "multiclass", "regression")


@dataclass(frozen=True, eq=False)
class FederatedData:
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

    _narrow: ClassVar[Any] = None

    def __post_init__(self) -> None:
        if self.feature_names is None:
            self._set(feature_names=_column_names(self.features))
        features = _check_features(self.features, self.feature_names)
        d, n = features.shape
        labels = check_array("labels", numbers_of("labels", self.labels), shape=(d,))
        sizes = _check_sizes(self.client_sizes, d)
        # What is held will be frozen, so an array that the caller may write to is copied.
        self._set(
            features=_own(features, self.features),
            labels=_own(labels, self.labels),
            client_sizes=sizes,
            description=_plain(self.description),
        )
        for name, length in (("feature_names", n), ("client_names", len(sizes))):
            names = getattr(self, name)
            if names is not None:
                names = tuple(map(str, names))
                if len(names) != length:
                    raise ValueError(f"{name} must have {length} entries, got {len(names)}")
                self._set(**{name: names})
        if self.rows is not None:
            rows = check_array("rows", self.rows, shape=(d,), dtype=np.int64)
            if rows.min() < 0:
                raise ValueError(f"rows must be at least 0, got {rows.min()}")
            self._set(rows=_own(rows, self.rows))
        self._freeze()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _freeze(self) -> None:
        pieces = _pieces(self.features) if "features" in self.__dict__ else ()
        for array in (*pieces, self.labels, self.client_sizes, self.rows):
            if array is not None:
                array.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"_narrow": self._narrow}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)
        self._freeze()  # pickle forgets it

    # Constructors -----------------------------------------------------------------------

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
            The names, see the class.
        """
        if isinstance(clients, Mapping):
            if "client_names" in kwargs:
                raise ValueError("client_names must not be given where clients is a mapping")
            kwargs["client_names"] = tuple(map(str, clients))
            if len(set(kwargs["client_names"])) < len(clients):
                raise ValueError("clients must have names that differ as text")
        given = _pairs(clients)
        if not given:
            raise ValueError("clients must hold at least one (features, labels) pair, got none")
        first, *_ = given
        names = [_column_names(f) for f, _ in given.values()]
        for who, found in zip(given, names, strict=True):
            if found is not None and names[0] is not None and found != names[0]:
                raise ValueError(
                    f"{who} must have the columns of {first}, in their order, "
                    f"got {', '.join(found)} instead of {', '.join(names[0])}"
                )
        pairs: list[tuple[Any, Any]] = []
        for (who, (features, labels)), found in zip(given.items(), names, strict=True):
            f: Any = features
            if not sparse.issparse(features):
                f = numbers_of(f"features of {who}", features)
            refuse_masked(f"labels of {who}", labels)
            b = np.asarray(labels)
            if np.ndim(f) != 2 or b.ndim != 1 or f.shape[0] != len(b):
                raise ValueError(
                    f"{who} must be features (d_i, n) and labels (d_i,), "
                    f"got shapes {np.shape(f)} and {b.shape}"
                )
            if pairs and f.shape[1] != pairs[0][0].shape[1]:
                raise ValueError(
                    f"{who} must have {pairs[0][0].shape[1]} features like {first}, "
                    f"got {f.shape[1]}"
                )
            if not sparse.issparse(f):
                check_finite(f"features of {who}", f, found)
            pairs.append((f, b))
        anything_sparse = any(sparse.issparse(f) for f, _ in pairs)
        stack = sparse.vstack if anything_sparse else np.concatenate
        features = stack([f for f, _ in pairs])
        if not anything_sparse:
            features = _frozen(features)
        sizes = np.array([len(b) for _, b in pairs])
        note = dict(description or {})
        joined: Any = [b for _, b in pairs]
        if task is None or len({b.dtype.kind for b in joined}) == 1:
            joined = np.concatenate(joined)
        else:  # as one array, different kinds would be text or floats
            joined = [entry for b in joined for entry in b.tolist()]
        if task is not None:
            joined, mapped = _labels(joined, task, _common_order(given))
            note |= mapped
        if None not in names:
            kwargs.setdefault("feature_names", names[0])
        return cls(features, joined, sizes, description=note, **kwargs)

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

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        check_choice("task", task, TASKS)
        if scale is not None:
            check_choice("scale", scale, ("unit-norm",))
        seed = check_int("seed", seed, high=MAX_SEED)
        if not isinstance(partition, Partitioner):
            if isinstance(partition, (type, str)) or np.ndim(partition) == 0:
                raise TypeError(
                    "partition must be a partitioner, such as RandomCuts(10), or the client of "
                    f"every row, got {partition!r}"
                )
            partition = ByColumn(partition)
        names = _column_names(features) if feature_names is None else tuple(map(str, feature_names))
        table = _check_features(features, names)
        d = table.shape[0]
        if np.shape(labels) != (d,):
            raise ValueError(f"labels must have shape ({d},), got {np.shape(labels)}")
        y, found = _labels(labels, task, ordered_categories(labels))
        note: dict[str, Any] = {"source": "arrays", **(description or {}), **found}
        if names is not None and len(names) != table.shape[1]:
            raise ValueError(f"feature_names must have {table.shape[1]} entries, got {len(names)}")
        if scale is not None:
            # Norms are summed in the order of the table, whatever the split.
            norms = column_norms(table)
            note["scale"] = scale
            if not norms.all():
                note["zero_columns"] = np.flatnonzero(norms == 0).tolist()
        data = cls._of_table(table, y, partition, seed, names, note)
        if scale is not None:
            held = data.features  # gathered, and no one else's yet
            for piece in _pieces(held):
                piece.setflags(write=True)
            divide_columns(held, norms)
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
    ) -> FederatedData:
        """Split a table that is known to be valid; its rows are gathered on first use.

        `narrow`, a function that can be pickled, gives the same table for the kernels.
        """
        d = table.shape[0]
        parts = partition.assign(labels, np.random.default_rng(seed))
        rows = np.concatenate(parts).astype(np.int64, copy=False)
        seen = np.zeros(d, bool)
        if len(rows) == d and rows.min() >= 0 and rows.max() < d:
            seen[rows] = True
        if not seen.all():
            raise ValueError(f"partition must give each of the {d} rows to exactly one client")
        data = cls.__new__(cls)
        data._set(
            labels=labels[rows],
            client_sizes=_check_sizes([len(part) for part in parts], d),
            feature_names=feature_names,
            client_names=partition.client_names(),
            rows=rows,
            description=_plain({**note, "partition": partition.describe(), "split_seed": seed}),
            _narrow=narrow,
            **({"features": table[rows]} if sparse.issparse(table) else {"_table": table}),
        )
        data._freeze()
        return data

    def resplit(self, partition: Partitioner, seed: int = 0) -> FederatedData:
        """The same rows, whoever holds them, split into clients anew.

        Parameters
        ----------
        partition : Partitioner
        seed : int
            The split is a pure function of the rows, the partition and the seed.
        """
        return FederatedData._of_table(
            self.features,
            self.labels,
            partition,
            check_int("seed", seed, high=MAX_SEED),
            self.feature_names,
            self.description,
            self._narrow if self._in_order else None,
        )

    def subset(self, rows: ArrayLike) -> FederatedData:
        """Some of the rows, where they are; clients that are left with none drop out.

        Parameters
        ----------
        rows : array_like of int, shape (r,)
            Positions among the d rows held here, increasing, at least one.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        chosen = check_array("rows", rows, ndim=1, dtype=np.int64)
        inside = len(chosen) and chosen[0] >= 0 and chosen[-1] < self.n_samples
        if not inside or (np.diff(chosen) <= 0).any():
            raise ValueError(
                f"rows must be increasing positions from 0 to {self.n_samples - 1}, at least one"
            )
        sizes = np.diff(np.searchsorted(chosen, self.offsets))
        kept = np.flatnonzero(sizes)
        names = self.client_names
        made = FederatedData.__new__(FederatedData)
        made._set(
            labels=self.labels[chosen],
            client_sizes=sizes[kept],
            feature_names=self.feature_names,
            client_names=None if names is None else tuple(names[i] for i in kept),
            rows=None if self.rows is None else self.rows[chosen],
            description=dict(self.description),
            _narrow=self._narrow,
            **(
                {"_table": self._table}
                if "_table" in self.__dict__
                else {"features": self.features[chosen]}
            ),
        )
        made._freeze()
        return made

    @cached_property
    def _in_order(self) -> bool:
        """Whether the rows are those of the table that was split, as they stand there."""
        return self.rows is not None and bool((np.diff(self.rows) == 1).all())

    def _gather(self) -> None:
        """Gather `features` from the table."""
        self._set(features=_frozen(np.take(self._table, np.asarray(self.rows), axis=0)))
        del self.__dict__["_table"]

    def __getattr__(self, name: str) -> Any:
        # `features` of a split is gathered on first use: the compiled kernels pack the rows of
        # the table themselves.
        if name == "features" and "_table" in self.__dict__:
            self._gather()
            return self.features
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def is_binary(self) -> bool:
        """Whether all labels are 0 or 1."""
        b = self.labels
        return bool(((b == 0) | (b == 1)).all())

    def packed(self, loss: Any, **parameters: Any) -> ClientRows:
        """The rows as the compiled kernels of a loss read them, in float64; packed once.

        `parameters` are those of the loss, and weights, as `kernels.losses.pack` takes them.
        """
        from ..kernels import losses

        packed = self.__dict__.setdefault("_packed", {})
        key = (loss, *sorted(parameters.items()))
        if key not in packed:
            rows = None
            if self._narrow is not None:
                table, rows = self._narrow(), self.rows
            elif "features" in self.__dict__:
                table = self.features
            else:
                table, rows = self._table, self.rows
            packed[key] = losses.pack(
                table, self.labels, self.client_sizes, loss=loss, dtype=np.float64, rows=rows,
                checked=True, **parameters,
            )  # fmt: skip
        return packed[key]

    # What it holds ----------------------------------------------------------------------

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
        table = self.__dict__.get("_table")
        return int((self.features if table is None else table).shape[1])

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return len(self.labels)

    @property
    def label_mapping(self) -> dict[str, int] | None:
        """Which given label became which number; None where none was changed."""
        return self.description.get("label_mapping")

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First row of every client, and d; shape (m + 1,)."""
        return _frozen(np.concatenate([[0], np.cumsum(self.client_sizes)]))

    def client(self, i: int) -> tuple[Any, NDArray[np.float64]]:
        """Features and labels of client i, without a copy where they are dense."""
        try:
            rows = self._slices[i]
        except IndexError:
            raise IndexError(f"client must be from 0 to {self.n_clients - 1}, got {i}") from None
        return self.features[rows], self.labels[rows]

    @cached_property
    def _slices(self) -> list[slice]:
        return [slice(a, b) for a, b in pairwise(self.offsets.tolist())]

    @cached_property
    def largest_class(self) -> float:
        """Share of the rows that have the most frequent label."""
        return float(np.unique(self.labels, return_counts=True)[1].max() / self.n_samples)

    def summary(self) -> str:
        """One line: source, rows, features, clients, sizes, and what was made of the table.

        For a file that is the columns of labels and clients, how labels were mapped, an index
        that was left out, and whether columns were scaled.
        """
        sizes = self.client_sizes
        text = (
            f"{self.description.get('source', 'arrays')}: {self.n_samples} rows, "
            f"{self.n_features} features, {self.n_clients} clients of {sizes.min()} to "
            f"{sizes.max()} rows"
        )
        mapped, note = "", self.description
        if self.label_mapping:
            pairs = [f"{a} -> {b}" for a, b in self.label_mapping.items()]
            mapped = ", ".join([*pairs[:5], *["..."] * (len(pairs) > 5)])
        if "label_column" in note:
            text += f"; label column {note['label_column']}" + f" ({mapped})" * bool(mapped)
        elif mapped:
            text += f"; labels {mapped}"
        if "format" in note:  # a file
            if "client_column" in note:
                text += f"; client column {note['client_column']}"
            if note.get("unnamed_index"):
                text += "; first column, without a name, left out as an index"
            text += f"; columns {'scaled to unit norm' if note.get('scale') else 'not scaled'}"
        if zeros := self.description.get("zero_columns"):
            names = [self.feature_names[j] if self.feature_names else str(j) for j in zeros[:5]]
            text += f"; only zeros in column{'s' if len(zeros) > 1 else ''} {', '.join(names)}"
            text += ", ..." if len(zeros) > 5 else ""
        return text

    def __repr__(self) -> str:
        return f"<FederatedData {self.summary()}>"

    def content_hash(self) -> str:
        """SHA-256 of everything that determines a result: rows, labels and clients."""
        digest = hashlib.sha256(f"{self.features.shape}".encode())
        for array in (*_pieces(self.features), self.labels, self.client_sizes):
            if array.dtype.kind == "i":
                array = array.astype(np.int64, copy=False)  # SciPy picks the width of indices
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()


def _pairs(clients: Any) -> dict[str, tuple[Any, Any]]:
    """What `from_clients` is given: the pairs by what messages call them."""
    try:
        given = dict(clients) if isinstance(clients, Mapping) else dict(enumerate(clients))
    except TypeError:
        raise TypeError(
            f"clients must be (features, labels) pairs, got {type(clients).__name__}"
        ) from None
    for key, pair in given.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            many = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
            raise TypeError(
                f"clients[{key!r}] must be a pair (features, labels), got "
                f"{type(pair).__name__}{many}"
            )
    return {f"clients[{key!r}]": (pair[0], pair[1]) for key, pair in given.items()}


def _common_order(given: dict[str, tuple[Any, Any]]) -> list[Any] | None:
    """The ordered categories that labels of all clients have."""
    first, *_ = given
    common = ordered_categories(given[first][1])
    for who, (_, labels) in given.items():
        if (order := ordered_categories(labels)) != common:
            raise ValueError(
                f"labels of {who} must have the ordered categories of {first}, {common}, "
                f"got {order}"
            )
    return common


def _labels(
    values: ArrayLike, task: str, order: list[Any] | None
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Labels as float64, and what the description says of them; `order` as `class_labels`."""
    check_choice("task", task, TASKS)
    if task == "regression":
        return check_array("labels", numbers_of("labels", values)), {"task": task}
    y, mapping = class_labels(values, two=task == "classification", order=order)
    return y, {"task": task} | ({} if mapping is None else {"label_mapping": mapping})


def class_labels(
    values: ArrayLike, *, two: bool, order: list[Any] | None = None
) -> tuple[NDArray[np.float64], dict[str, int] | None]:
    """Labels as 0.0, 1.0, ..., and the mapping, or None where they are such already.

    They are in increasing order, or in that of `order`.

    Raises
    ------
    ValueError
        If some are missing, there are not exactly two values, or (with `two` False) only one,
        or more than two that are fractions.
    """
    labels = check_values("labels", values)
    found, codes = np.unique(labels, return_inverse=True)
    if order is not None:
        places = {category: k for k, category in enumerate(order)}
        by_place = np.argsort([places[value] for value in found.tolist()])
        found, codes = found[by_place], np.argsort(by_place)[codes]
    if len(found) != 2 and (two or len(found) < 2):
        shown = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        wanted, task = ("exactly", "classification") if two else ("at least", "multiclass")
        raise ValueError(
            f"labels must have {wanted} two values for {task}, got {len(found)}: {shown}"
        )
    if labels.dtype.kind == "f" and len(found) > 2 and (found != np.round(found)).any():
        first = labels[labels != np.round(labels)][0]
        raise ValueError(f"labels must be strings or whole numbers for multiclass, got {first}")
    y = codes.astype(np.float64)
    if labels.dtype.kind in "buif" and (found == np.arange(len(found))).all():
        return y, None
    return y, {str(name): k for k, name in enumerate(found)}


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


# Holding arrays -------------------------------------------------------------------------


def _column_names(features: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns, if all of them are strings."""
    names = column_names(features)
    return names if names and all(isinstance(name, str) for name in names) else None


def _check_features(features: Any, names: tuple[str, ...] | None) -> Any:
    """Features as finite C-contiguous or CSR floats; may share the memory of what is given."""
    if sparse.issparse(features):
        if features.dtype.kind not in "buif":
            raise TypeError(f"features must be real numbers, got dtype {features.dtype}")
        dtype = features.dtype if features.dtype == np.float32 else np.float64
        held: Any = sparse.csr_array(features, dtype=dtype)
        try:
            held.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"features must be a valid CSR array: {error}") from None
        if not held.has_canonical_format:
            held = held.copy()
            held.sum_duplicates()
    else:
        array = numbers_of("features", features)
        dtype = np.float32 if getattr(array, "dtype", None) == np.float32 else np.float64
        held = check_array("features", array, ndim=2, dtype=dtype, finite=False)
    if held.shape[0] < 1 or held.shape[1] < 1:
        raise ValueError(f"features must have at least one row and column, got {held.shape}")
    names = names if names is not None and len(names) == held.shape[1] else None
    if not sparse.issparse(held):
        check_finite("features", held, names)
    elif len(wrong := np.flatnonzero(~np.isfinite(held.data))):
        row = int(np.searchsorted(held.indptr, wrong[0], side="right")) - 1
        where = row, int(held.indices[wrong[0]])
        raise_not_finite("features", held.data[wrong[0]], where, len(wrong), names)
    return held


def _pieces(features: Any) -> tuple[Array, ...]:
    """The arrays that hold the features."""
    if sparse.issparse(features):
        return features.data, features.indices, features.indptr
    return (features,)


def _frozen(array: Any) -> Any:
    """`array`, read-only: one of our own, to be held without a copy."""
    for piece in _pieces(array):
        piece.setflags(write=False)
    return array


def _own(held: Any, given: Any) -> Any:
    """`held`, copied if it is memory that the caller may write to."""
    if isinstance(given, (list, tuple)):
        return held
    if sparse.issparse(given):
        # Other formats are converted, but parts of theirs may be shared all the same.
        theirs = [part for part in vars(given).values() if isinstance(part, np.ndarray)]
    elif isinstance(given, np.ndarray):
        theirs = [given]
    else:
        return held.copy()  # a data frame, say, that gives out read-only views of its memory
    shared = any(
        part.flags.writeable and np.may_share_memory(piece, part)
        for piece in _pieces(held)
        for part in theirs
    )
    return held.copy() if shared else held


def _plain(description: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a description, JSON-able."""
    try:
        return json.loads(json.dumps(dict(description), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"description must be a mapping that JSON can hold: {error}") from None


def _check_sizes(sizes: Any, d: int) -> NDArray[np.int64]:
    array = np.asarray(sizes)
    if array.ndim != 1 or array.dtype.kind not in "ui" or len(array) == 0:
        raise ValueError(
            "client_sizes must be a vector of integers, one per client, "
            f"got dtype {array.dtype} and shape {array.shape}"
        )
    if len(array) > d:
        raise ValueError(f"client_sizes must not name more clients than rows: {len(array)} > {d}")
    if (array < 1).any():
        i = int(np.flatnonzero(array < 1)[0])
        raise ValueError(f"client_sizes must be at least 1: client {i} is empty (size {array[i]})")
    if array.sum() != d:
        raise ValueError(f"client_sizes must add up to the {d} rows, got {array.sum()}")
    return np.array(array, dtype=np.int64)
