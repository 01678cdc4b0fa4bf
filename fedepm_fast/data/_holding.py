"""Arrays as federated data hold them: checked, read-only, and no one else's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_finite,
    column_names,
    numbers_of,
    raise_not_finite,
)

Array = NDArray[Any]


class Frozen:
    """A frozen dataclass that keeps its fields in a form of its own."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def text_columns(features: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns, if all of them are strings."""
    names = column_names(features)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_features(features: Any, names: tuple[str, ...] | None) -> Any:
    """Features as finite C-contiguous or CSR floats; may share the memory of what is given."""
    if sparse.issparse(features):
        if features.dtype.kind not in "buif":
            raise ArgumentTypeError("features", f"must be real numbers, got dtype {features.dtype}")
        dtype = features.dtype if features.dtype == np.float32 else np.float64
        held: Any = sparse.csr_array(features, dtype=dtype)
        try:
            held.check_format(full_check=True)
        except ValueError as error:
            raise ArgumentValueError("features", f"must be a valid CSR array: {error}") from None
        if not held.has_canonical_format:
            held = held.copy()
            held.sum_duplicates()
    else:
        array = numbers_of("features", features)
        dtype = np.float32 if getattr(array, "dtype", None) == np.float32 else np.float64
        held = check_array("features", array, ndim=2, dtype=dtype, finite=False)
    if held.shape[0] < 1 or held.shape[1] < 1:
        raise ArgumentValueError(
            "features", f"must have at least one row and column, got {held.shape}"
        )
    names = names if names is not None and len(names) == held.shape[1] else None
    if not sparse.issparse(held):
        check_finite("features", held, names)
    elif len(wrong := np.flatnonzero(~np.isfinite(held.data))):
        row = int(np.searchsorted(held.indptr, wrong[0], side="right")) - 1
        where = row, int(held.indices[wrong[0]])
        raise_not_finite("features", held.data[wrong[0]], where, len(wrong), names)
    return held


def pieces_of(features: Any) -> tuple[Array, ...]:
    """The arrays that hold the features."""
    if sparse.issparse(features):
        return features.data, features.indices, features.indptr
    return (features,)


def frozen(array: Any) -> Any:
    """`array`, read-only: one of our own, to be held without a copy."""
    for piece in pieces_of(array):
        piece.setflags(write=False)
    return array


def thawed(array: Any) -> Any:
    """`array`, writeable."""
    for piece in pieces_of(array):
        piece.setflags(write=True)
    return array


def own(held: Any, given: Any) -> Any:
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
        for piece in pieces_of(held)
        for part in theirs
    )
    return held.copy() if shared else held


def plain(description: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a description, JSON-able."""
    try:
        return json.loads(json.dumps(dict(description), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "description", f"must be a mapping that JSON can hold: {error}"
        ) from None


def unshared(value: Any) -> Any:
    """What JSON can hold, no part of it shared."""
    if isinstance(value, dict):
        return {name: unshared(part) for name, part in value.items()}
    return [unshared(part) for part in value] if isinstance(value, list) else value


def check_names(name: str, names: Any, length: int) -> tuple[str, ...] | None:
    """Names as text, as many as there are columns or clients."""
    if names is None:
        return None
    names = tuple(map(str, names))
    if len(names) != length:
        raise ArgumentValueError(name, f"must have {length} entries, got {len(names)}")
    return names


def check_rows(rows: Any, d: int) -> NDArray[np.int64]:
    """Where each of d rows stood in the table that was split."""
    found = check_array("rows", rows, shape=(d,), dtype=np.int64)
    if found.min() < 0:
        raise ArgumentValueError("rows", f"must be at least 0, got {found.min()}")
    return found


def check_positions(name: str, positions: Any, d: int) -> NDArray[np.int64]:
    """Increasing positions among d rows, at least one."""
    chosen = check_array(name, positions, ndim=1, dtype=np.int64)
    inside = len(chosen) and chosen[0] >= 0 and chosen[-1] < d
    if not inside or (np.diff(chosen) <= 0).any():
        raise ArgumentValueError(
            name, f"must be increasing positions from 0 to {d - 1}, at least one"
        )
    return chosen


def check_sample_weight(weights: Any, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of rows, such that every client has some."""
    found = check_array(
        "sample_weight", numbers_of("sample_weight", weights), shape=(int(sizes.sum()),)
    )
    if (found < 0).any():
        k = int(np.flatnonzero(found < 0)[0])
        raise ArgumentValueError(
            "sample_weight", f"must be at least 0, got {found[k]:g} in row {k}"
        )
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(found, np.cumsum(sizes) - sizes)
        total = sums.sum()
    if not (sums > 0).all() or not np.isfinite(total):
        wrong = np.flatnonzero(~((sums > 0) & np.isfinite(sums)))
        who = f"{sums[wrong[0]]:g} for client {wrong[0]}" if len(wrong) else f"{total:g} in all"
        raise ArgumentValueError(
            "sample_weight", f"must have a positive, finite sum for every client, got {who}"
        )
    return found


def of_clients_with_weight(
    rows: NDArray[np.int64], weights: NDArray[np.float64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those of the increasing `rows` whose clients have one of positive weight among them."""
    of = np.searchsorted(offsets, rows, side="right")
    counted = of[weights[rows] > 0]
    if len(counted) == 0:
        raise ArgumentValueError("rows", "must not all have a sample_weight of 0")
    return rows[np.isin(of, counted)]


def check_sizes(sizes: Any, d: int) -> NDArray[np.int64]:
    array = np.asarray(sizes)
    if array.ndim != 1 or array.dtype.kind not in "ui" or len(array) == 0:
        raise ArgumentValueError(
            "client_sizes",
            "must be a vector of integers, one per client, "
            f"got dtype {array.dtype} and shape {array.shape}",
        )
    if len(array) > d:
        raise ArgumentValueError(
            "client_sizes", f"must not name more clients than rows: {len(array)} > {d}"
        )
    if (array < 1).any():
        i = int(np.flatnonzero(array < 1)[0])
        raise ArgumentValueError(
            "client_sizes", f"must be at least 1: client {i} is empty (size {array[i]})"
        )
    if array.sum() != d:
        raise ArgumentValueError("client_sizes", f"must add up to the {d} rows, got {array.sum()}")
    return np.array(array, dtype=np.int64)


def digest_of(features: Any, *others: Array) -> str:
    """SHA-256 of a table and of arrays beside it."""
    digest = hashlib.sha256(f"{features.shape}".encode())
    for array in (*pieces_of(features), *others):
        if array.dtype.kind == "i":
            array = array.astype(np.int64, copy=False)  # SciPy picks the width of indices
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
