"""Tables of Parquet and NumPy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from ._columns import Columns, Held, Loaded


def read_parquet(path: Path, wanted: tuple[Any, ...]) -> Columns:
    frame = parquet_frame(path, wanted)
    columns = [Held(frame.iloc[:, j]) for j in range(frame.shape[1])]
    return Columns(path, tuple(map(str, frame.columns)), columns)


def parquet_frame(path: Path, wanted: tuple[Any, ...]) -> Any:
    """A Parquet file as a frame of pandas, with the levels of its index that are wanted."""
    pandas = require("pandas", "tables", "reading parquet files")
    require("pyarrow", "tables", "reading Parquet files")
    try:
        frame = pandas.read_parquet(path)
    except ImportError:
        raise
    except Exception as error:  # pandas and pyarrow raise a dozen kinds for a damaged file
        raise ValueError(f"{path} is not a readable parquet file: {error}") from None
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows")
    # An index is no feature, but it may name the clients.
    levels = [n for n in frame.index.names if n is not None and n in wanted and n not in frame]
    return frame.reset_index(level=levels) if levels else frame


def read_npy(path: Path) -> Columns:
    return Columns(path, None, [Held(column) for column in npy_table(path).T])


def npy_table(path: Path) -> NDArray[Any]:
    """The array of a NumPy file, shape (d, n)."""
    array = _numpy(path)
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(f"{path} must hold a 2-D array of numbers")
    return array


def read_npz(path: Path) -> Loaded:
    arrays = _numpy(path)
    if not isinstance(arrays, dict) or not {"X", "y"} <= arrays.keys():
        found = ", ".join(arrays) if isinstance(arrays, dict) else "one array"
        raise ValueError(f"{path} must hold X and y (and, if wanted, clients), got {found}")
    features, labels, clients = arrays["X"], arrays["y"], arrays.get("clients")
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"{path} must hold X (d, n) and y (d,), got {features.shape} and {labels.shape}"
        )
    if features.dtype.kind not in "buif":
        raise ValueError(f"{path} must hold numbers in X, got dtype {features.dtype}")
    if clients is not None and clients.shape != labels.shape:
        raise ValueError(f"{path} must hold clients {labels.shape}, got {clients.shape}")
    if features.dtype != np.float32:
        features = features.astype(np.float64, copy=False)
    return Loaded(features, labels, clients, None, {"format": "npz"})


def _numpy(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                return {name: loaded[name] for name in loaded.files}
            return loaded
    except Exception as error:  # as many kinds, from zip and zlib to Python's own tokenizer
        raise ValueError(f"{path} is not a complete NumPy file: {error}") from None
