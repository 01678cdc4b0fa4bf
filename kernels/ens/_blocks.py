"""ENS of uploads that are read block by block, several times, in memory O(n)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _boundary as boundary
from .._jit import kernel, warms
from .._simd import lanes, load, maximum, minimum, piece_lanes, store
from ._limits import LARGEST_C, c_matters, overflow_scale
from ._passes import NOTHING_AHEAD, compensated, window
from ._search import EnsSearch, quiet

Array = NDArray[np.float64]

#: Rows that are read at a time from one large array fill about so many bytes.
BLOCK_BYTES = 1 << 26
#: float32 rows are widened so many numbers at a time.
_WIDEN = 1 << 20
_LEAST = float(np.finfo(np.float64).smallest_subnormal)


@kernel
def _add_sums(z, weights, sums, lost, squares):
    """Add a block's rows to compensated sums and to sums of squares."""
    m, n = z.shape
    width = lanes(z)
    whole = n - n % width
    for i in range(m):
        p = 1.0
        if weights is not None:
            p = weights[i]
        k = i * n
        for j in range(0, whole, width):
            v = load(z, k + j)
            total, rest = compensated(load(sums, j), load(lost, j), v * p)
            store(sums, j, total)
            store(lost, j, rest)
            store(squares, j, load(squares, j) + v * v * p)
        for j in range(whole, n):
            total, rest = compensated(sums[j], lost[j], z[i, j] * p)
            sums[j], lost[j] = total, rest
            squares[j] += z[i, j] * z[i, j] * p


@kernel
def _add_window(z, weights, point, above, below, next_above):
    """Add what a block has above `point`, and its neighbours on either side."""
    m, n = z.shape
    width = lanes(z)
    whole = n - n % width
    for j in range(0, whole, width):
        t = load(point, j)
        count, low, high, _ = window(z, j, n, piece_lanes(z), m, weights, t, z, NOTHING_AHEAD)
        store(above, j, load(above, j) + count)
        store(below, j, maximum(low, load(below, j)))
        store(next_above, j, minimum(high, load(next_above, j)))
    for j in range(whole, n):
        t = point[j]
        for i in range(m):
            v = z[i, j]
            if v > t:
                above[j] += 1.0 if weights is None else weights[i]
                next_above[j] = min(next_above[j], v)
            else:
                below[j] = max(below[j], v)


@quiet
def ens_blocks(
    source: Any,
    c: float,
    *,
    weights: ArrayLike | None = None,
    block_rows: int | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[np.float64]:
    """ENS of uploads that are read block by block, several times, in memory O(n).

    Parameters
    ----------
    source : array-like of shape (m, n), sequence of such, or callable
        One array to be read in blocks of rows: a NumPy array or memory map, an HDF5 or Zarr data
        set, a Dask array (whatever has ``shape`` and gives rows by slicing), or a list of rows.
        Or a list of row blocks (shards). Or a callable that returns a fresh iterator over row
        blocks. Rows are float64 or float32 (integers and booleans become float64).
    c : float
        ``lam / eta``, at least 0.
    weights : array_like of shape (m,), optional
        Positive weights of the clients, in the order of the rows.
    block_rows : int, optional
        Rows to read at a time from one array; by default about 64 MiB.
    out : ndarray of shape (n,), optional
        Where to write, float64.

    Returns
    -------
    ndarray of shape (n,)
        float64, of float32 rows too; exactly the solution of `ens`, on one thread. A source is
        read some five to ten times.

    Raises
    ------
    TypeError, ValueError
        Naming the argument; also if there is a NaN or an infinity among the rows.
    """
    c = boundary.real("c", c, low=0.0)
    read = _reader(source, block_rows)
    p = None if weights is None else boundary.positive_weights(weights)
    sums, squares, m = _moments(read, p)
    if out is not None:
        out = boundary.output("out", out, sums.shape, np.float64)
    unit = 1.0
    if not np.isfinite(sums).all():
        _check_rows(read)
        unit = overflow_scale(m)  # finite numbers whose sums are not
    elif c > LARGEST_C[8] and np.sqrt(squares.max(initial=0.0)) > LARGEST_C[8] * c_matters(m, p):
        unit = overflow_scale(m)
    if unit != 1.0:
        whole = read
        read = lambda: (block * unit for block in whole())  # noqa: E731
        sums, squares, m = _moments(read, p)
    total, smallest = float(m), None
    if p is not None:  # which beside the largest may have become 0
        total, smallest = float(p.sum()), max(float(p.min()), _LEAST)
    search = EnsSearch(sums, total, c * unit, smallest=smallest, squares=squares)
    del sums, squares
    above, below, next_above = np.empty((3, len(search.point)))
    while not search.done:
        above[:], below[:], next_above[:] = 0.0, -np.inf, np.inf
        row = 0
        for block in read():
            _add_window(block, _weights_of(p, row, block), search.point, above, below, next_above)
            row += len(block)
            del block  # or the next one would be read beside it
        if row != m:
            raise boundary.ArgumentValueError(
                "source", f"must give the same rows each time: {m} at first, then {row}"
            )
        try:
            search.update(above, below, next_above)
        except ValueError as error:
            raise boundary.ArgumentValueError(
                "source", f"must give the same rows each time: {error}"
            ) from None
    solution = search.solution
    if unit != 1.0:
        solution /= unit
    if out is None:
        return solution
    out[:] = solution
    return out


def _moments(read: Callable[[], Iterator[Array]], p: Array | None) -> tuple[Array, Array, int]:
    """Sums of all rows and of their squares, and the number of rows."""
    sums = lost = squares = np.empty(0)
    m = 0
    for block in read():
        if m == 0:
            sums, lost, squares = np.zeros((3, block.shape[1]))
        _check_block(block, m, len(sums))
        part = _weights_of(p, m, block)
        _add_sums(block, part, sums, lost, squares)
        m += len(block)
        del block, part
    if m == 0:
        raise boundary.ArgumentValueError("source", "must hold at least one row")
    if p is not None and len(p) != m:
        raise boundary.ArgumentValueError("weights", f"must have shape ({m},), got {p.shape}")
    sums += lost
    return sums, squares, m


def _check_rows(read: Callable[[], Iterator[Array]]) -> None:
    """Raise ValueError naming the first entry of the source that is NaN or infinite."""
    row = 0
    for block in read():
        boundary.check_finite("source", block, first_row=row)
        row += len(block)


def _weights_of(p: Array | None, row: int, block: Array) -> Array | None:
    if p is None:
        return None
    if row + len(block) > len(p):
        raise boundary.ArgumentValueError("weights", f"must cover every row, got {len(p)}")
    return p[row : row + len(block)]


def _check_block(block: Array, row: int, n: int) -> None:
    if block.shape[1] != n:
        raise boundary.ArgumentValueError(
            "source", f"must have rows of one length: {n} at first, {block.shape[1]} at row {row}"
        )


def _reader(source: Any, block_rows: int | None) -> Callable[[], Iterator[Array]]:
    """A function that reads the source's blocks once, as float64."""
    if block_rows is not None:
        block_rows = boundary.integer("block_rows", block_rows, low=1)
    blocks: Callable[[], Iterable[Any]]
    if callable(source):
        blocks = source
    elif hasattr(source, "shape"):
        if len(source.shape) != 2:
            raise boundary.ArgumentValueError(
                "source", f"must have 2 dimensions, got shape {tuple(source.shape)}"
            )
        m, n = source.shape
        size = max(1, int(n)) * np.dtype(source.dtype).itemsize
        rows = block_rows or max(1, BLOCK_BYTES // size)
        blocks = lambda: (source[i : i + rows] for i in range(0, m, rows))  # noqa: E731
    elif isinstance(source, (list, tuple)):
        if source and len(_shape(source[0])) == 1:  # rows, not blocks of them
            source = [boundary.as_floats("source", source, ndim=2)]
        blocks = lambda: source  # noqa: E731
    else:
        raise boundary.ArgumentTypeError(
            "source",
            "must be an array, a list of rows or blocks, or a callable that returns an "
            f"iterator, got {type(source).__name__}",
        )

    def read() -> Iterator[Array]:
        for block in blocks():
            array = boundary.as_floats("source", block, ndim=2)
            del block
            if array.dtype == np.float64:
                yield array
            else:
                step = max(1, _WIDEN // max(1, array.shape[1]))
                for i in range(0, len(array), step):
                    yield array[i : i + step].astype(np.float64)
            del array

    return read


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape if hasattr(value, "shape") else boundary.view("source", value).shape)


@warms
def _warm(dtypes: Any) -> None:
    ens_blocks(np.zeros((4, 9)), 1.0)
    ens_blocks(np.zeros((4, 9)), 1.0, weights=np.arange(1.0, 5.0))
