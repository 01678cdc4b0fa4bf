"""Rows checked and arranged for the kernels of `losses`."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._aligned import aligned, recycled
from .._boundary import (
    FLOATS,
    ArgumentTypeError,
    ArgumentValueError,
    as_floats,
    as_integers,
    cast,
    check_finite,
    check_shape,
)
from .._jit import most_threads
from .._labels import check_labels
from .._simd._types import VECTOR_BYTES
from ._client_rows import (
    ClientRows,
    DenseRows,
    NarrowRows,
    PackedRows,
    SparseRows,
    offsets_of,
)
from ._jagged import jagged
from ._loss import Loss
from ._narrow import NarrowTable, narrow_table, read_only, whole
from ._packing import fill_blocks, fill_narrow_blocks, in_words
from ._steps import steps_of

#: Where losses have names. It is asked when a loss is given by its name, and not before.
NAMED_IN = "fedepm_fast.losses"
#: Coordinates up to which dense rows are packed in blocks, and up to which narrow ones are.
_BLOCKS_UP_TO, _NARROW_UP_TO = 64, 128
#: Bytes that blocks of float64 may take, of every thread there can be together, where narrow ones
#: would do that have to be looked for: up to there rows are read too fast to be worth it.
_WIDE_UP_TO = 1 << 24


def pack(
    features: Any,
    labels: ArrayLike,
    client_sizes: ArrayLike,
    *,
    loss: str | Loss = "logistic",
    weights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    rows: ArrayLike | None = None,
    labels_of_table: bool = False,
    checked: bool = False,
    **parameters: Any,
) -> ClientRows:
    """Arrange rows for the kernels of this module, once for any number of evaluations.

    Parameters
    ----------
    features : array_like, CSR matrix or NarrowTable, shape (d, n)
        The rows, client after client. Anything with ``data``, ``indices``, ``indptr`` and
        ``shape`` counts as compressed sparse rows.
    labels : array_like of shape (d,)
        Such as the loss takes.
    client_sizes : array_like of int, shape (m,)
        Rows of each client, at least 1.
    loss : str or Loss
        The name of a loss of `fedepm_fast.losses`, which has their formulas; or one of
        `scalar_loss` or `lanes.lane_loss`. The multinomial loss has K margins, and w is the
        coefficients of class 0, then those of class 1, and so on, ``coefficients.ravel()`` of shape
        (K, n).
    weights : array_like of shape (n,), optional
        Weights of the columns in the regulariser, ``reg_i/2 * sum_j weights_j * w_j^2``, at
        least 0; 1 by default. Those of the multinomial loss are the same for every class.
    dtype : dtype, optional
        float32 or float64; by default that of `features`, float64 for integers.
    rows : array_like of int, shape (d,), optional
        Which row of dense `features` each label belongs to, client after client, so that a
        table is split without a copy of it; by default all rows, in order.
    labels_of_table : bool
        Whether `labels` are those of the table's rows, as they stand there, and not of `rows`.
    checked : bool
        Whether entries and labels are known to be finite and fit for the loss, and `rows` to
        number rows; they are not tested then.
    **parameters
        Those of a loss that has a name, such as ``delta`` for Huber or ``classes`` for the
        multinomial one; the `parameter` of a step otherwise, 0 by default, or of
        `scalar_loss` what its gradient is clipped to (NaN to 0), inf by default.

    Returns
    -------
    PackedRows, DenseRows or SparseRows
        Dense rows of up to 64 coordinates are copied into blocks, of up to 128 into narrow ones
        (`NarrowRows`) if they are of a `NarrowTable` or where it pays to look for one. Others are
        used where they are if they have the dtype and are contiguous; do not change them. So are
        sparse entries, of which there is a copy in another order as well, of 10 bytes for 12
        (float32: 6 for 8).

    Raises
    ------
    TypeError, ValueError
        Naming the argument: NaN or inf, labels that are not the loss's, a parameter that it
        has not, an empty client, sizes that do not add up to d, indices out of range.
    """
    if dtype is not None and np.dtype(dtype) not in FLOATS:
        raise ArgumentTypeError("dtype", f"must be float64 or float32, got {np.dtype(dtype)}")
    sparse = all(hasattr(features, name) for name in ("indptr", "indices", "data", "shape"))
    table, kind, shape = _entries(features, dtype, sparse, checked)
    if len(shape) != 2 or min(shape) < 1:
        raise ArgumentValueError(
            "features", f"must have at least one row and one column, got shape {shape}"
        )
    order = _check_rows(rows, shape[0], sparse, checked)
    d = shape[0] if rows is None else order.size
    sizes = _check_sizes(client_sizes, d)
    b = as_floats("labels", labels, ndim=1)
    labels_of_table &= rows is not None
    check_shape("labels", b, (shape[0] if labels_of_table else d,))
    if not checked:
        check_finite("labels", b)
    of, parameter = _loss(loss, b, checked, parameters)
    given_wide = not sparse and isinstance(table, np.ndarray) and kind == np.float64
    if given_wide and in_blocks(shape[1], True) and _is_large(sizes, shape[1]):
        table = narrow_table(table) or table
    narrow = isinstance(table, NarrowTable)
    blocks = not sparse and in_blocks(shape[1], narrow)
    if not blocks:
        b = b[order] if labels_of_table else b
        b = 1 - 2 * b if of.folds else b
    outputs = int(parameter) if of.labels == "classes" else 1
    target = cast("labels", b, kind)
    columns = cast("weights", _check_weights(weights, shape[1]), kind)
    constants = np.empty(1 + outputs * shape[1], kind)
    constants[0], constants[1:].reshape(outputs, -1)[:] = parameter, columns
    sizes, target, constants = map(read_only, (sizes, target, constants))
    common = of, sizes, shape[1], target, constants
    if sparse:
        given = _compressed(features, table, shape, kind, checked)
        copy = jagged(*given, offsets_of(sizes), shape[1])
        return SparseRows(*common, *given, *map(read_only, copy))
    if not blocks:
        if narrow:
            table = table.values[:, : shape[1]] * table.scale
        if order.size:
            table = table[order]
        return DenseRows(*common, read_only(table))
    targets, filled, starts, scale = _blocks(table, target, labels_of_table, sizes, order, of)
    held = *common[:3], targets, constants, filled, starts, scale
    return NarrowRows(*held, table.columns) if isinstance(table, NarrowTable) else PackedRows(*held)


def in_blocks(columns: int, narrow: bool) -> bool:
    """Whether dense rows of so many columns are packed in blocks."""
    return columns <= (_NARROW_UP_TO if narrow else _BLOCKS_UP_TO)


def _entries(
    features: Any, dtype: DTypeLike | None, sparse: bool, checked: bool
) -> tuple[Any, np.dtype[Any], tuple[int, ...]]:
    """The table, or the entries of a sparse one, the dtype of the rows, and the shape."""
    kind: np.dtype[Any] = np.dtype(np.float64)
    if isinstance(features, NarrowTable):
        if dtype is not None and np.dtype(dtype) != kind:
            raise ArgumentTypeError(
                "dtype", f"must be float64 for a NarrowTable, got {np.dtype(dtype)}"
            )
        return features, kind, features.shape
    if sparse:
        data = as_floats("features", features.data, ndim=1)
        return data, np.dtype(dtype or data.dtype), tuple(map(int, features.shape))
    table = as_floats("features", features, ndim=2)
    kind = np.dtype(dtype or table.dtype)
    if not checked:
        check_finite("features", table)
    return cast("features", table, kind), kind, table.shape


def _compressed(
    features: Any, data: NDArray[Any], shape: tuple[int, ...], kind: np.dtype[Any], checked: bool
) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64]]:
    """Entries, indices and row pointers of `SparseRows`."""
    indices, indptr = _check_structure(features, data.size, shape)
    if not checked and not np.isfinite(data).all():
        at = int(np.argmin(np.isfinite(data)))
        where = (int(np.searchsorted(indptr, at, side="right")) - 1, int(indices[at]))
        raise ArgumentValueError("features", f"must be finite, got {data[at]} at index {where}")
    return read_only(cast("features", data, kind)), read_only(indices), read_only(indptr)


def _is_large(sizes: NDArray[np.int64], n: int) -> bool:
    """Whether blocks of float64 would be larger than what is read the fastest."""
    count = int((-(-sizes // (VECTOR_BYTES // 8))).sum())
    return most_threads() * count * n * VECTOR_BYTES > _WIDE_UP_TO


def _blocks(
    table: NDArray[Any] | NarrowTable,
    labels: NDArray[Any],
    labels_of_table: bool,
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    loss: Loss,
) -> list[NDArray[Any]]:
    """Targets, blocks, starts and scale of `PackedRows`."""
    dtype = labels.dtype
    width = VECTOR_BYTES // dtype.itemsize
    starts = offsets_of(-(-sizes // width))
    targets = np.full(0 if loss.folds else int(starts[-1]) * width, loss.no_target, dtype)
    if isinstance(table, NarrowTable):
        shape, held, scale = (8 * table.rows.shape[1], width), np.dtype(np.int8), table.scale
    else:
        shape, held, scale = (table.shape[1], width), dtype, np.ones(table.shape[1], dtype)
    blocks = recycled((int(starts[-1]), *shape), held)
    rows, labels, sizes, starts = map(read_only, (rows, labels, sizes, starts))
    if isinstance(table, NarrowTable):
        labels, *to = in_words(labels, blocks, targets)
        fill_narrow_blocks(
            table.rows, rows, labels, labels_of_table, sizes, starts, loss.folds,
            table.float_words, *to,
        )  # fmt: skip
    else:
        memory = aligned((width, whole(table.shape[1], dtype)), dtype)
        fill_blocks(
            read_only(table), rows, labels, labels_of_table, sizes, starts, loss.folds, blocks,
            targets, memory,
        )  # fmt: skip
    return [read_only(array) for array in (targets, blocks, starts, scale)]


def _check_rows(rows: ArrayLike | None, d: int, sparse: bool, checked: bool) -> NDArray[np.int64]:
    """The rows in their order; empty where they are all rows as they stand."""
    if rows is None:
        return np.empty(0, np.int64)
    if sparse:
        raise ArgumentValueError("rows", "must be None for CSR features: index them before")
    order = as_integers("rows", rows)
    if order.size == 0 or (not checked and (order.min() < 0 or order.max() >= d)):
        raise ArgumentValueError("rows", f"must hold numbers of rows in [0, {d})")
    return order


def _check_sizes(client_sizes: ArrayLike, d: int) -> NDArray[np.int64]:
    sizes = as_integers("client_sizes", client_sizes)
    if sizes.size == 0 or sizes.min() < 1:
        raise ArgumentValueError(
            "client_sizes", "must hold at least one client, and every one at least 1 row"
        )
    if sizes.sum() != d:
        raise ArgumentValueError(
            "client_sizes", f"must add up to the {d} rows of features, got {sizes.sum()}"
        )
    return sizes


def _loss(
    loss: str | Loss, labels: NDArray[Any], checked: bool, parameters: dict[str, Any]
) -> tuple[Loss, float]:
    """A loss for these labels and its parameter."""
    parameters = {name: value for name, value in parameters.items() if value is not None}
    if isinstance(loss, str):
        found = importlib.import_module(NAMED_IN).packing(loss, labels, **parameters)
        return found["loss"], found["parameter"]
    for name in parameters.keys() - {"parameter"}:
        raise ValueError(f"{name} is not a parameter of the {loss} loss")
    if not checked:
        check_labels(loss.labels, labels, f"the {loss} loss")
    steps_of(loss)  # functions whose globals have changed are refused now
    return loss, parameters.get("parameter", np.inf if loss.scalar else 0.0)


def _check_weights(weights: ArrayLike | None, n: int) -> NDArray[Any]:
    if weights is None:
        return np.ones(n)
    w = as_floats("weights", weights, ndim=1)
    check_shape("weights", w, (n,))
    check_finite("weights", w)
    if (w < 0).any():
        raise ArgumentValueError("weights", f"must be at least 0, got {w.min()}")
    return w


def _check_structure(
    features: Any, entries: int, shape: tuple[int, ...]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    if getattr(features, "format", "csr") != "csr":
        raise ArgumentTypeError("features", f"must be dense or CSR, got format {features.format!r}")
    if shape[1] > np.iinfo(np.int32).max:
        raise ArgumentValueError("features", f"must have fewer than 2**31 columns, got {shape[1]}")
    indptr = as_integers("features.indptr", features.indptr)
    check_shape("features.indptr", indptr, (shape[0] + 1,))
    if indptr[0] != 0 or indptr[-1] != entries or (np.diff(indptr) < 0).any():
        raise ArgumentValueError("features.indptr", f"must rise from 0 to the {entries} entries")
    indices = as_integers("features.indices", features.indices, dtype=np.int32)
    check_shape("features.indices", indices, (entries,))
    if entries and indices.view(np.uint32).max() >= shape[1]:  # or negative
        raise ArgumentValueError("features.indices", f"must be in [0, {shape[1]})")
    return indices, indptr
