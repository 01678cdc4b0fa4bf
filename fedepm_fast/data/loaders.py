"""Tables from files: LIBSVM/SVMlight, CSV, Parquet and NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .._common.validation import ArgumentError, ArgumentValueError, check_choice, prefixed
from . import _svmlight
from ._arrays import read_npy, read_npz, read_parquet
from ._cells import number
from ._columns import Columns, Loaded
from ._compressed import is_compressed
from ._csv import Text
from ._federated import FederatedData
from ._formats import FORMATS, SUFFIXES, beginning, check_is_file, format_of, has_svmlight
from .partition import Partitioner, RandomCuts

__all__ = ["FORMATS", "SUFFIXES", "Loaded", "load", "read_federated"]


def load(
    path: str | os.PathLike[str],
    *,
    label: str | int | None = None,
    client_column: str | int | None = None,
    format: str | None = None,
    n_features: int | None = None,
    header: bool | None = None,
    separator: str | None = None,
    client: str | int | None = None,
) -> Loaded:
    """Read a table from a file.

    Parameters
    ----------
    path : path-like
        The format follows from its suffix (``.svm``, ``.libsvm``, ``.svmlight``, ``.txt``,
        ``.csv``, ``.tsv``, ``.parquet``, ``.pq``, ``.npy``, ``.npz``; text may be compressed,
        ``.gz``, ``.bz2``, ``.xz``), or else from how the file begins, for all but CSV.
    label : str or int, optional
        Name or index of the label's column in a CSV, Parquet or ``.npy`` table; the last
        column by default. An ``.npz`` holds ``X``, ``y`` and, if it likes, ``clients``.
    client_column : str or int, optional
        Name or index of the column that says which client holds a row. In CSV its cells are
        text, as they are written but for blanks around them and quotes: ``0045`` and ``45``
        are two clients, and ``NA`` is one.
    format : {"svmlight", "csv", "parquet", "npy", "npz"}, optional
        Overrides the suffix.
    n_features : int, optional
        Features of an SVMlight file; by default its largest index, up to 100 million.
    header : bool, optional
        Whether the first row of a CSV file names its columns. By default it does if it has
        words where there are numbers below; it does not if it has numbers, or a word that
        stands below too; where both or neither is so, this must be given.
    separator : str, optional
        Of a CSV file's cells; by default comma, semicolon, tab or bar, whichever of them
        splits all rows alike.
    client : str or int, optional
        The former name of `client_column`.

    Returns
    -------
    Loaded

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no regular file, or is empty, truncated or malformed: the path, the place and
        what is expected.

    Notes
    -----
    All rows of a CSV file must have as many cells. Its columns must have different names; only
    the first may have none, as pandas writes an index, and is left out if its cells are whole
    numbers or words that all differ; ``Unnamed: 0`` and the like, as pandas reads it, is none.
    Labels that are several numbers each, as decimal commas or blanks between cells leave them,
    are refused unless `separator` is given.
    Features are numbers, or all of them true or false; empty cells and ``NA`` are NaN.
    """
    client_column = _one_name(client_column, client)
    path = Path(path)
    check_is_file(path)
    told = format is not None
    format = check_choice("format", format, FORMATS) if told else format_of(path)
    if is_compressed(path) and format not in ("svmlight", "csv"):
        raise ValueError(f"{path} must not be compressed, {format} files are so themselves")
    if format in ("svmlight", "npz"):
        for argument, value in (("label", label), ("client_column", client_column)):
            if value is not None:
                raise ArgumentValueError(argument, f"names a column, but {format} files have none")
    if n_features is not None and format != "svmlight":
        raise ArgumentValueError(
            "n_features", f"is for svmlight files, got {n_features!r} for {format}"
        )
    for argument, given in (("header", header), ("separator", separator)):
        if given is not None and format != "csv":
            raise ArgumentValueError(argument, f"is for csv files, got {given!r} for {format}")
    if format == "svmlight":
        try:
            features, labels, lines = _svmlight.read(path, n_features)
        except ValueError as error:
            if told or has_svmlight(beginning(path)):
                raise
            raise ValueError(
                f"{error}; it was read as SVMlight, by its name: a table of another name than .csv "
                'needs format="csv" (--format csv)'
            ) from None
        return Loaded(features, labels, None, None, {"format": format}, lines)
    if format == "npz":
        return read_npz(path)
    if format == "csv":
        known = [name for name in (label, client_column) if isinstance(name, str)]
        text = Text(path, header, None if separator is None else one_character(separator), known)
        table = Columns(path, text.names, text.columns, text)
    elif format == "npy":
        table = read_npy(path)
    else:
        table = read_parquet(path, (label, client_column))
    return table.loaded(format, label, client_column)


def read_federated(
    path: str | os.PathLike[str],
    *,
    clients: int = 100,
    partition: Partitioner | None = None,
    label: str | int | None = None,
    client_column: str | int | None = None,
    format: str | None = None,
    n_features: int | None = None,
    header: bool | None = None,
    separator: str | None = None,
    client: str | int | None = None,
    task: str = "classification",
    scale: str | None = "unit-norm",
    seed: int = 0,
) -> FederatedData:
    """Read a table and split it into clients.

    Parameters
    ----------
    path, label, client_column, format, n_features, header, separator, client
        As in `load`. With `client_column`, or ``clients`` in an ``.npz``, that is the split.
    clients : int
        Number of clients of the paper's random cuts, unless told otherwise.
    partition : Partitioner, optional
        Another way to split; goes before ``clients`` in an ``.npz``, and excludes
        `client_column`.
    task, scale, seed
        As in `FederatedData.split`.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        As `load` and `FederatedData.split`, naming the path.
    """
    client_column = _one_name(client_column, client)
    if client_column is not None and partition is not None:
        raise ValueError("client_column and partition exclude each other: give one of them")
    table = load(
        path,
        label=label,
        client_column=client_column,
        format=format,
        n_features=n_features,
        header=header,
        separator=separator,
    )
    how: Any = partition
    if how is None:
        how = table.clients if table.clients is not None else RandomCuts(clients)
    with errors_of(path, table, task):
        return FederatedData.split(
            table.features,
            table.labels,
            how,
            task=task,
            scale=scale,
            seed=seed,
            feature_names=table.feature_names,
            description={"source": Path(path).name, **table.note},
        )


@contextmanager
def errors_of(path: str | os.PathLike[str], table: Loaded, task: str) -> Iterator[None]:
    """Errors of the data of a file name it, and the line where it has lines."""
    try:
        with prefixed(f"{path}:"):
            yield
    except ArgumentError as error:
        found = None
        if table.lines is not None and error.argument == "features":
            found = _wrong_feature(table)
        elif table.lines is not None and error.argument == "labels":
            found = _wrong_label(table, task)
        if table.lines is None or found is None:
            column = table.note.get("label_column")
            if error.argument != "labels" or column is None:
                raise
            told = f"of column {column!r}, which label= (--label) names, {error.message}"
            raise type(error)(error.argument, told, error.where) from None
        row, message = found
        where = f"{path}, line {table.lines[row]}:"
        raise type(error)(error.argument, message, where) from None


def _wrong_feature(table: Loaded) -> tuple[int, str] | None:
    """The row of the first feature that is not finite, and what it is."""
    held = sparse.coo_array(table.features)
    wrong = np.flatnonzero(~np.isfinite(held.data))
    if not len(wrong):
        return None
    first = wrong[np.lexsort((held.col[wrong], held.row[wrong]))[0]]
    i, j, got = int(held.row[first]), int(held.col[first]), held.data[first]
    where = f"in column {table.feature_names[j]!r}" if table.feature_names else ""
    if table.note["format"] == "svmlight":
        where = f"at index {j + 1}"
    elif not where:  # the features' columns are those that are left
        used = [table.note.get(name) for name in ("label_column", "client_column")]
        where = f"in column {[k for k in range(j + 3) if k not in used][j]}"
    entries = "entry" if len(wrong) == 1 else "entries"
    return i, f"must be finite, got {got} {where} ({len(wrong)} such {entries})"


def _wrong_label(table: Loaded, task: str) -> tuple[int, str] | None:
    """The row of the first label that is no finite number where it must be one."""
    if task != "regression" and table.labels.dtype.kind != "f":
        return None
    for i, label in enumerate(map(str, table.labels)):
        value = number(label)
        if value is None or not np.isfinite(value):
            return i, f"must be finite numbers, got {label!r}"
    return None


def _one_name(client_column: str | int | None, client: str | int | None) -> str | int | None:
    if client_column is not None and client is not None:
        raise ValueError("client is the former name of client_column: give one of them")
    return client if client_column is None else client_column


def one_character(separator: Any) -> str:
    """What separates cells, by a name or itself."""
    known = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if not isinstance(known, str) or len(known) != 1 or known in '"\r\n ':
        raise ArgumentValueError("separator", f"must be one character, or 'tab', got {separator!r}")
    return known
