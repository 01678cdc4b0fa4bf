"""Rows checked and arranged for the kernels of `losses`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._boundary import (
    FLOATS,
    as_floats,
    as_integers,
    cast,
    check_finite,
    check_shape,
    integer,
    real,
)
from ._client_rows import (
    VECTOR_BYTES,
    ClientRows,
    DenseRows,
    NarrowTable,
    PackedRows,
    SparseRows,
    aligned,
    offsets_of,
    read_only,
    whole,
)
from ._own_loss import OwnLoss
from ._packing import fill_blocks, fill_narrow_blocks
from ._pointwise import POINTWISE, pointwise

#: Coordinates up to which dense rows are packed in blocks.
_BLOCKS_UP_TO = 128
#: Rows that are looked at before a whole table is tried in float32.
_SAMPLE = 64


def narrow_table(features: ArrayLike, scale: ArrayLike | None = None) -> NarrowTable | None:
    """The table with rows ``features * scale``, if `features` are float32 numbers exactly.

    Parameters
    ----------
    features : array_like, shape (d, n)
        Finite.
    scale : array_like of shape (n,), optional
        1 by default.

    Returns
    -------
    NarrowTable or None
        None if some entry is no float32 number.
    """
    table = as_floats("features", features, ndim=2)
    check_finite("features", table)
    d, n = table.shape
    factors = np.ones(n) if scale is None else as_floats("scale", scale, ndim=1)
    check_shape("scale", factors, (n,))
    check_finite("scale", factors)
    few = table[:_SAMPLE]
    with np.errstate(over="ignore"):
        if not (few.astype(np.float32) == few).all():
            return None
        values = np.zeros((d, whole(n, np.dtype(np.float64))), np.float32)
        values[:, :n] = table
    if not (values[:, :n] == table).all():
        return None
    return NarrowTable(read_only(values), read_only(factors.astype(np.float64, copy=False)))


def pack(
    features: Any,
    labels: ArrayLike,
    client_sizes: ArrayLike,
    *,
    loss: str | OwnLoss = "logistic",
    delta: float | None = None,
    classes: int | None = None,
    weights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    rows: ArrayLike | None = None,
    checked: bool = False,
) -> ClientRows:
    """Arrange rows for the kernels of this module, once for any number of evaluations.

    Parameters
    ----------
    features : array_like, CSR matrix or NarrowTable, shape (d, n)
        The rows, client after client. Anything with ``data``, ``indices``, ``indptr`` and
        ``shape`` counts as compressed sparse rows.
    labels : array_like of shape (d,)
        0 or 1 for the logistic loss and the squared hinge, 0 to K - 1 for the multinomial
        loss, any numbers for least squares and the Huber loss; for one of your own what it says.
    client_sizes : array_like of int, shape (m,)
        Rows of each client, at least 1.
    loss : {"logistic", "least_squares", "huber", "squared_hinge", "multinomial"} or OwnLoss
        Of the margin t = <a, w> and the label b: softplus(t) - b*t; (t - b)^2 / 2; r^2 / 2 for
        r = abs(t - b) up to delta, delta * (r - delta/2) beyond; max(0, 1 - (2b - 1)*t)^2; the
        cross entropy of the softmax of K margins, with w the coefficients of class 0, then
        those of class 1, and so on, ``coefficients.ravel()`` of shape (K, n). `scalar_loss`
        makes one of functions of your own.
    delta : float, optional
        For the Huber loss; 1 by default.
    classes : int, optional
        For the multinomial loss, K, at least 2; by default the largest label plus 1.
    weights : array_like of shape (n,), optional
        Weights of the columns in the regulariser, ``reg_i/2 * sum_j weights_j * w_j^2``, at
        least 0; 1 by default. Those of the multinomial loss are the same for every class.
    dtype : dtype, optional
        float32 or float64; by default that of `features`, float64 for integers.
    rows : array_like of int, shape (d,), optional
        Which row of dense `features` each label belongs to, client after client, so that a
        table is split without a copy of it; by default all rows, in order.
    checked : bool
        Whether entries and labels are known to be finite and fit for the loss; they are not
        tested then.

    Returns
    -------
    PackedRows, DenseRows or SparseRows
        Dense rows of up to 128 coordinates are copied into blocks. Others, and sparse entries,
        are used where they are if they have the dtype and are contiguous; do not change them.

    Raises
    ------
    TypeError, ValueError
        Naming the argument: NaN or inf, labels that are not the loss's, a parameter that it
        has not, an empty client, sizes that do not add up to d, indices out of range.
    """
    if not isinstance(loss, OwnLoss) and loss not in POINTWISE:
        raise ValueError(f"loss must be one of {', '.join(map(repr, POINTWISE))}, got {loss!r}")
    if dtype is not None and np.dtype(dtype) not in FLOATS:
        raise TypeError(f"dtype must be float64 or float32, got {np.dtype(dtype)}")
    sparse = all(hasattr(features, name) for name in ("indptr", "indices", "data", "shape"))
    table: Any = features
    kind: np.dtype[Any] = np.dtype(np.float64)
    shape: tuple[int, ...]
    if isinstance(features, NarrowTable):
        shape = features.shape
        if dtype is not None and np.dtype(dtype) != kind:
            raise TypeError(f"dtype must be float64 for a NarrowTable, got {np.dtype(dtype)}")
    elif not sparse:
        table = as_floats("features", features, ndim=2)
        kind = np.dtype(dtype or table.dtype)
        if not checked:
            check_finite("features", table)
        table = cast("features", table, kind)
        shape = table.shape
    else:
        data = as_floats("features", features.data, ndim=1)
        kind = np.dtype(dtype or data.dtype)
        shape = tuple(map(int, features.shape))
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"features must have at least one row and one column, got shape {shape}")
    order = _check_rows(rows, shape[0], sparse)
    d = shape[0] if rows is None else order.size
    sizes = _check_sizes(client_sizes, d)
    b = _check_labels(labels, d, loss, checked)
    parameter = _check_parameter(loss, b, delta=delta, classes=classes)
    of = pointwise(loss)
    outputs = int(parameter) if of.labels == "classes" else 1
    target = cast("labels", 1 - 2 * b if of.folds else b, kind)
    columns = cast("weights", _check_weights(weights, shape[1]), kind)
    constants = np.append(np.array(parameter, kind), np.tile(columns, outputs))
    sizes, target, constants = map(read_only, (sizes, target, constants))
    common = loss, sizes, shape[1], target, constants
    if sparse:
        indices, indptr = _check_structure(features, data.size, shape)
        if not np.isfinite(data).all():
            at = int(np.argmin(np.isfinite(data)))
            where = (int(np.searchsorted(indptr, at, side="right")) - 1, int(indices[at]))
            raise ValueError(f"features must be finite, got {data[at]} at index {where}")
        data = cast("features", data, kind)
        return SparseRows(*common, *map(read_only, (data, indices, indptr)))
    if shape[1] > _BLOCKS_UP_TO:
        if isinstance(table, NarrowTable):
            table = table.values[:, : shape[1]] * table.scale
        if order.size:
            table = table[order]
        return DenseRows(*common, read_only(table))
    if isinstance(table, np.ndarray) and kind == np.float64:
        table = narrow_table(table) or table
    targets, *held = _blocks(table, target, sizes, order, of.folds, of.no_target)
    return PackedRows(*common[:3], targets, constants, *held)


def _blocks(
    table: NDArray[Any] | NarrowTable,
    target: NDArray[Any],
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    folds: bool,
    no_target: float,
) -> list[NDArray[Any]]:
    """Targets, blocks, starts and scale of `PackedRows`."""
    dtype = target.dtype
    width = VECTOR_BYTES // dtype.itemsize
    starts = offsets_of(-(-sizes // width))
    targets = np.full(0 if folds else int(starts[-1]) * width, no_target, dtype)
    if isinstance(table, NarrowTable):
        n, scale, fill, source = len(table.scale), table.scale, fill_narrow_blocks, table.values
    else:
        n, fill, source = table.shape[1], fill_blocks, table
        scale = np.ones(n, dtype)
    blocks = aligned((int(starts[-1]), n, width), source.dtype)
    memory = aligned((width, whole(n, dtype)), dtype)
    views = [read_only(array) for array in (source, rows, target, sizes, starts)]
    fill(*views, folds, blocks, targets, memory)
    return [read_only(array) for array in (targets, blocks, starts, scale)]


def _check_rows(rows: ArrayLike | None, d: int, sparse: bool) -> NDArray[np.int64]:
    """The rows in their order; empty where they are all rows as they stand."""
    if rows is None:
        return np.empty(0, np.int64)
    if sparse:
        raise ValueError("rows must be None for CSR features: index them before")
    order = as_integers("rows", rows)
    if order.size == 0 or order.min() < 0 or order.max() >= d:
        raise ValueError(f"rows must hold numbers of rows in [0, {d})")
    return order


def _check_sizes(client_sizes: ArrayLike, d: int) -> NDArray[np.int64]:
    sizes = as_integers("client_sizes", client_sizes)
    if sizes.size == 0 or sizes.min() < 1:
        raise ValueError("client_sizes must hold at least one client, and every one at least 1 row")
    if sizes.sum() != d:
        raise ValueError(f"client_sizes must add up to the {d} rows of features, got {sizes.sum()}")
    return sizes


def _check_labels(labels: ArrayLike, d: int, loss: Any, checked: bool) -> NDArray[Any]:
    b = as_floats("labels", labels, ndim=1)
    check_shape("labels", b, (d,))
    if not checked:
        check_finite("labels", b)
    kind = pointwise(loss).labels
    if checked or kind == "reals":
        return b
    if kind == "binary":
        wrong, allowed = (b != 0) & (b != 1), "0 or 1"
    else:
        # Up to there float32 holds every whole number.
        wrong, allowed = (b != np.floor(b)) | (b < 0) | (b >= 2**24), "whole numbers from 0"
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"labels must be {allowed} for the {loss} loss, got {b[at]} at index {at}")
    return b


def _check_parameter(loss: Any, labels: NDArray[Any], **given: Any) -> float:
    """The loss's parameter; one that belongs to another loss is refused."""
    own = pointwise(loss).parameter
    for name, value in given.items():
        if value is not None and name != own:
            raise ValueError(f"{name} is not a parameter of the {loss} loss")
    if own == "classes":
        least = int(labels.max()) + 1
        if given[own] is None:
            return max(least, 2)
        classes = integer("classes", given[own], low=2, high=2**24)
        if classes < least:
            raise ValueError(f"labels must be below classes = {classes}, got {least - 1}")
        return classes
    if own is None or given[own] is None:
        return pointwise(loss).default
    return real(own, given[own], low=0.0, open_low=True)


def _check_weights(weights: ArrayLike | None, n: int) -> NDArray[Any]:
    if weights is None:
        return np.ones(n)
    w = as_floats("weights", weights, ndim=1)
    check_shape("weights", w, (n,))
    check_finite("weights", w)
    if (w < 0).any():
        raise ValueError(f"weights must be at least 0, got {w.min()}")
    return w


def _check_structure(
    features: Any, entries: int, shape: tuple[int, ...]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    if getattr(features, "format", "csr") != "csr":
        raise TypeError(f"features must be dense or CSR, got format {features.format!r}")
    if shape[1] > np.iinfo(np.int32).max:
        raise ValueError(f"features must have fewer than 2**31 columns, got {shape[1]}")
    indptr = as_integers("features.indptr", features.indptr)
    check_shape("features.indptr", indptr, (shape[0] + 1,))
    if indptr[0] != 0 or indptr[-1] != entries or (np.diff(indptr) < 0).any():
        raise ValueError(f"features.indptr must rise from 0 to the {entries} entries")
    indices = as_integers("features.indices", features.indices, dtype=np.int32)
    check_shape("features.indices", indices, (entries,))
    if entries and (indices.min() < 0 or indices.max() >= shape[1]):
        raise ValueError(f"features.indices must be in [0, {shape[1]})")
    return indices, indptr
