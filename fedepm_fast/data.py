"""Federated data: rows held client by client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ._validation import check_array, check_choice, check_finite, check_int
from .partition import ByColumn, Partitioner

Array = NDArray[Any]

TASKS = ("classification", "regression")


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Rows of m clients, one client after the other.

    Parameters
    ----------
    features : array_like or scipy sparse array, shape (d, n)
        float64, or float32 if it is given so; sparse input is held as CSR.
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
        Naming the argument: NaN or inf, an empty client, sizes that do not add up.
    """

    features: Any
    labels: NDArray[np.float64]
    client_sizes: NDArray[np.int64]
    feature_names: tuple[str, ...] | None = None
    client_names: tuple[str, ...] | None = None
    rows: NDArray[np.int64] | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        features = _check_features(self.features)
        d, n = features.shape
        labels = check_array("labels", self.labels, shape=(d,))
        sizes = _check_sizes(self.client_sizes, d)
        self._set(features=features, labels=labels, client_sizes=sizes)
        self._set(description=dict(self.description))
        for name, length in (("feature_names", n), ("client_names", len(sizes))):
            names = getattr(self, name)
            if names is not None:
                names = tuple(map(str, names))
                if len(names) != length:
                    raise ValueError(f"{name} must have {length} entries, got {len(names)}")
                self._set(**{name: names})
        if self.rows is not None:
            self._set(rows=check_array("rows", self.rows, shape=(d,), dtype=np.int64))
        held = [features.data, features.indices, features.indptr] if self.is_sparse else [features]
        for array in (*held, labels, sizes, self.rows):
            if array is not None:
                array.setflags(write=False)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # Constructors -----------------------------------------------------------------------

    @classmethod
    def from_clients(
        cls, clients: Iterable[tuple[ArrayLike, ArrayLike]], **kwargs: Any
    ) -> FederatedData:
        """From one ``(features, labels)`` pair per client."""
        pairs: list[tuple[Any, Any]] = [
            (f if sparse.issparse(f) else np.asarray(f), np.asarray(b)) for f, b in clients
        ]
        if not pairs:
            raise ValueError("clients must hold at least one (features, labels) pair, got none")
        for i, (f, b) in enumerate(pairs):
            if f.ndim != 2 or b.ndim != 1 or f.shape[0] != len(b):
                raise ValueError(
                    f"clients[{i}] must be features (d_i, n) and labels (d_i,), "
                    f"got shapes {f.shape} and {b.shape}"
                )
            if f.shape[1] != pairs[0][0].shape[1]:
                raise ValueError(
                    f"clients[{i}] must have {pairs[0][0].shape[1]} features like clients[0], "
                    f"got {f.shape[1]}"
                )
        anything_sparse = any(sparse.issparse(f) for f, _ in pairs)
        stack = sparse.vstack if anything_sparse else np.concatenate
        features = stack([f for f, _ in pairs])
        sizes = [len(b) for _, b in pairs]
        return cls(features, np.concatenate([b for _, b in pairs]), np.array(sizes), **kwargs)

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
            For classification any two values; unless they are 0 and 1, the smaller becomes 0,
            the larger 1, and ``description["label_mapping"]`` says so. Real numbers for
            regression.
        partition : Partitioner or array_like of shape (d,)
            How to split, see `fedepm_fast.partition`; or the client of every row.
        task : {"classification", "regression"}
        scale : {"unit-norm"}, optional
            Divide every column by its Euclidean norm over all rows, as the paper does.
        seed : int
            The split is a pure function of the data, the partition and the seed.
        feature_names : sequence of str, optional
        description : mapping, optional
            Added to the description of the result.
        """
        table = _check_features(features)
        check_choice("task", task, TASKS)
        seed = check_int("seed", seed)
        d = table.shape[0]
        values = np.asarray(labels)
        if values.shape != (d,):
            raise ValueError(f"labels must have shape ({d},), got {values.shape}")
        note: dict[str, Any] = {"source": "arrays", **(description or {})}
        if task == "classification":
            y, mapping = binary_labels(values)
            if mapping is not None:
                note["label_mapping"] = mapping
        else:
            y = check_array("labels", values)
        if scale is not None:
            check_choice("scale", scale, ("unit-norm",))
            table, zeros = unit_norm_columns(table)
            note["scale"] = scale
            if zeros:
                note["zero_columns"] = zeros
        if not isinstance(partition, Partitioner):
            partition = ByColumn(partition)
        parts = partition.assign(y, np.random.default_rng(seed))
        rows = np.concatenate(parts).astype(np.int64)
        note |= {"partition": partition.describe(), "split_seed": seed}
        return cls(
            table[rows],
            y[rows],
            np.array([len(part) for part in parts]),
            feature_names=None if feature_names is None else tuple(feature_names),
            client_names=partition.client_names(),
            rows=rows,
            description=note,
        )

    # What it holds ----------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """Whether the features are held as CSR."""
        return sparse.issparse(self.features)

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return len(self.client_sizes)

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return int(self.features.shape[1])

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return len(self.labels)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First row of every client, and d; shape (m + 1,)."""
        return np.concatenate([[0], np.cumsum(self.client_sizes)])

    def client(self, i: int) -> tuple[Any, NDArray[np.float64]]:
        """Features and labels of client i, without a copy where they are dense."""
        rows = self._slices[i]
        return self.features[rows], self.labels[rows]

    @property
    def _slices(self) -> list[slice]:
        slices = self.__dict__.get("_cached_slices")
        if slices is None:
            bounds = self.offsets.tolist()
            slices = [slice(a, b) for a, b in pairwise(bounds)]
            self.__dict__["_cached_slices"] = slices
        return slices

    def summary(self) -> str:
        """One line: source, rows, features, clients, sizes."""
        sizes = self.client_sizes
        text = (
            f"{self.description.get('source', 'arrays')}: {self.n_samples} rows, "
            f"{self.n_features} features, {self.n_clients} clients of {sizes.min()} to "
            f"{sizes.max()} rows"
        )
        mapping = self.description.get("label_mapping")
        if mapping:
            text += "; labels " + ", ".join(f"{old} -> {new}" for old, new in mapping.items())
        return text

    def __repr__(self) -> str:
        return f"<FederatedData {self.summary()}>"

    def content_hash(self) -> str:
        """SHA-256 of everything that determines a result: rows, labels and clients."""
        digest = hashlib.sha256()
        parts = (
            (self.features.data, self.features.indices, self.features.indptr)
            if self.is_sparse
            else (self.features,)
        )
        for array in (*parts, self.labels, self.client_sizes):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def binary_labels(values: NDArray[Any]) -> tuple[NDArray[np.float64], dict[str, int] | None]:
    """Labels as 0.0 and 1.0, and the mapping, or None where they are 0 and 1 already.

    Raises
    ------
    ValueError
        If there are NaN among them, or not exactly two values.
    """
    if values.dtype.kind == "f":
        check_finite("labels", values)
    if values.dtype.kind == "O":
        values = values.astype(str)
    found, codes = np.unique(values, return_inverse=True)
    if len(found) != 2:
        shown = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        raise ValueError(
            f"labels must have exactly two values for classification, got {len(found)}: {shown}"
        )
    y = codes.reshape(-1).astype(np.float64)
    if values.dtype.kind in "buif" and (found == [0, 1]).all():
        return y, None
    return y, {str(found[0]): 0, str(found[1]): 1}


def unit_norm_columns(features: Any) -> tuple[Any, list[int]]:
    """Columns over their Euclidean norms, and the columns that are zero and stay so."""
    if sparse.issparse(features):
        norms = np.sqrt(np.asarray(features.multiply(features).sum(axis=0)).ravel())
    else:
        norms = np.linalg.norm(features, axis=0)
    zeros = np.flatnonzero(norms == 0).tolist()
    divisor = np.where(norms == 0, 1, norms).astype(features.dtype)
    if sparse.issparse(features):
        return sparse.csr_array(features.multiply(1 / divisor)), zeros
    return features / divisor, zeros


def _check_features(features: Any) -> Any:
    if sparse.issparse(features):
        if features.dtype.kind not in "buif":
            raise TypeError(f"features must be real numbers, got dtype {features.dtype}")
        dtype = features.dtype if features.dtype == np.float32 else np.float64
        matrix = sparse.csr_array(features, dtype=dtype)
        if matrix is features:
            matrix = matrix.copy()
        matrix.sum_duplicates()
        check_finite("features", matrix.data)
        held: Any = matrix
    else:
        array = features if np.ma.isMaskedArray(features) else np.asarray(features)
        dtype = array.dtype if array.dtype == np.float32 else np.dtype(np.float64)
        held = check_array("features", array, ndim=2, dtype=dtype)
        if np.shares_memory(held, array) and array.flags.writeable:
            held = held.copy()  # it will be frozen, and the caller's array is the caller's
    if held.shape[0] < 1 or held.shape[1] < 1:
        raise ValueError(f"features must have at least one row and column, got {held.shape}")
    return held


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
