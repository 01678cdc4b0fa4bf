"""Tables from files: LIBSVM/SVMlight, CSV, Parquet and NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _svmlight
from ._extras import require
from ._validation import check_choice, check_int
from .data import FederatedData
from .partition import Partitioner, RandomCuts

#: Formats by the suffix of the file, a final ``.gz`` aside.
SUFFIXES = {
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".txt": "svmlight",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
}
FORMATS = ("svmlight", "csv", "parquet", "npy", "npz")


class Loaded(NamedTuple):
    """What a file holds."""

    features: Any
    """Shape (d, n): an array of float64, or of float32 where all of a file's features are; from
    an SVMlight file that is mostly empty a CSR array."""
    labels: NDArray[Any]
    """Shape (d,)."""
    clients: NDArray[Any] | None
    """The client of every row, where a column names it."""
    feature_names: tuple[str, ...] | None


def load(
    path: str | os.PathLike[str],
    *,
    label: str | int | None = None,
    client: str | int | None = None,
    format: str | None = None,
    n_features: int | None = None,
) -> Loaded:
    """Read a table from a file.

    Parameters
    ----------
    path : path-like
        The format follows from its suffix (``.svm``, ``.libsvm``, ``.svmlight``, ``.txt``,
        ``.csv``, ``.parquet``, ``.pq``, ``.npy``, ``.npz``; text may be gzipped, ``.gz``).
    label : str or int, optional
        Name or index of the label's column in a CSV, Parquet or ``.npy`` table; the last
        column by default. An ``.npz`` holds ``X``, ``y`` and, if it likes, ``clients``.
    client : str or int, optional
        Name or index of the column that says which client holds a row.
    format : {"svmlight", "csv", "parquet", "npy", "npz"}, optional
        Overrides the suffix.
    n_features : int, optional
        Features of an SVMlight file; by default its largest index.

    Returns
    -------
    Loaded

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is empty, truncated or malformed: the path, the place and what is expected.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no data file at {path}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    if format is None:
        name = path.name.lower().removesuffix(".gz")
        format = SUFFIXES.get(Path(name).suffix)
        if format is None:
            raise ValueError(
                f"format of {path.name} is not known from its suffix: give one of "
                f"{', '.join(FORMATS)}"
            )
    check_choice("format", format, FORMATS)
    if format in ("svmlight", "npz"):
        for argument, value in (("label", label), ("client", client)):
            if value is not None:
                raise ValueError(f"{argument} names a column, but {format} files have none")
    if n_features is not None and format != "svmlight":
        raise ValueError(f"n_features is for svmlight files, got {n_features!r} for {format}")
    if format == "svmlight":
        return Loaded(*_svmlight.read(path, n_features), None, None)
    if format == "npz":
        return _npz(path)
    if format == "npy":
        table = _numpy(path)
        if not isinstance(table, np.ndarray) or table.ndim != 2 or table.dtype.kind not in "buif":
            raise ValueError(f"{path} must hold a 2-D array of numbers")
        columns: dict[Any, NDArray[Any]] = dict(enumerate(table.T))
        return _from_columns(path, columns, label, client, named=False)
    return _from_columns(path, _tabular(path, format), label, client, named=True)


def read_federated(
    path: str | os.PathLike[str],
    *,
    clients: int = 100,
    partition: Partitioner | None = None,
    label: str | int | None = None,
    client: str | int | None = None,
    format: str | None = None,
    n_features: int | None = None,
    task: str = "classification",
    scale: str | None = "unit-norm",
    seed: int = 0,
) -> FederatedData:
    """Read a table and split it into clients.

    Parameters
    ----------
    path, label, client, format, n_features
        As in `load`. With `client`, or ``clients`` in an ``.npz``, that column is the split.
    clients : int
        Number of clients of the paper's random cuts, unless told otherwise.
    partition : Partitioner, optional
        Another way to split; goes before ``clients`` in an ``.npz``, and excludes `client`.
    task, scale, seed
        As in `FederatedData.split`.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        As `load` and `FederatedData.split`, naming the path.
    """
    if client is not None and partition is not None:
        raise ValueError("client and partition exclude each other: give one of them")
    table = load(path, label=label, client=client, format=format, n_features=n_features)
    how: Any = partition
    if how is None:
        how = table.clients if table.clients is not None else RandomCuts(clients)
    try:
        return FederatedData.split(
            table.features,
            table.labels,
            how,
            task=task,
            scale=scale,
            seed=seed,
            feature_names=table.feature_names,
            description={"source": Path(path).name},
        )
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{path}: {error}") from None


def _from_columns(
    path: Path,
    columns: dict[Any, NDArray[Any]],
    label: str | int | None,
    client: str | int | None,
    *,
    named: bool,
) -> Loaded:
    names = list(columns)

    def find(argument: str, wanted: str | int) -> Any:
        if isinstance(wanted, str) and wanted not in columns and wanted.lstrip("-").isdigit():
            wanted = int(wanted)
        if isinstance(wanted, str):
            if wanted not in columns:
                raise ValueError(
                    f"{argument} must be a column of {path}, got {wanted!r}; "
                    f"it has {', '.join(map(str, names[:20]))}"
                )
            return wanted
        index = check_int(argument, wanted, low=-len(names), high=len(names) - 1)
        return names[index]

    who = None if client is None else find("client", client)
    rest = [name for name in names if name != who]
    if label is None and not rest:
        raise ValueError(f"{path} has no column left for the label")
    target = rest[-1] if label is None else find("label", label)
    if target == who:
        raise ValueError(f"label and client must be different columns, got {target!r} twice")
    feature_names = [name for name in rest if name != target]
    if not feature_names:
        raise ValueError(f"{path} must have at least one feature column beside the label")
    odd = [n for n in feature_names if columns[n].dtype.kind not in "buif"]
    if odd:
        raise ValueError(
            f"{path} must have numbers in its feature columns, but not so: "
            f"{', '.join(map(str, odd[:10]))}"
        )
    single = all(columns[name].dtype == np.float32 for name in feature_names)
    features = np.empty(
        (len(columns[target]), len(feature_names)), dtype=np.float32 if single else np.float64
    )
    for j, name in enumerate(feature_names):
        features[:, j] = columns[name]
    return Loaded(
        features,
        columns[target],
        None if who is None else columns[who],
        tuple(map(str, feature_names)) if named else None,
    )


def _tabular(path: Path, format: str) -> dict[Any, NDArray[Any]]:
    pandas = require("pandas", "tables", f"reading {format} files")
    try:
        if format == "csv":
            table = pandas.read_csv(path)
        else:
            require("pyarrow", "tables", "reading Parquet files")
            table = pandas.read_parquet(path)
    except ImportError:
        raise
    except Exception as error:  # pandas and pyarrow raise a dozen kinds for a damaged file
        raise ValueError(f"{path} is not a readable {format} file: {error}") from None
    if len(table) == 0:
        raise ValueError(f"{path} has no rows")
    if format == "csv" and all(_is_number(name) for name in table.columns):
        raise ValueError(f"{path} must begin with the names of its columns, got numbers")
    names = [str(name) for name in table.columns]
    if len(set(names)) < len(names):
        raise ValueError(f"{path} must have columns of different names, got {', '.join(names)}")
    return {name: table.iloc[:, j].to_numpy() for j, name in enumerate(names)}


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numpy(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                return {name: loaded[name] for name in loaded.files}
            return loaded
    except Exception as error:  # as many kinds, from zip and zlib to Python's own tokenizer
        raise ValueError(f"{path} is not a complete NumPy file: {error}") from None


def _npz(path: Path) -> Loaded:
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
    return Loaded(features, labels, clients, None)
