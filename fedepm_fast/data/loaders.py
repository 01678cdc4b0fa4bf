"""Tables from files: LIBSVM/SVMlight, CSV, Parquet and NumPy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._extras import require
from .._validation import check_choice, check_int, numbers_of_column, ordered_categories
from . import FederatedData, _svmlight
from ._compressed import DAMAGED, is_compressed, open_file
from ._csv import Text, is_missing, is_word, number
from .partition import Partitioner, RandomCuts

#: Formats by the suffix of the file, a final ``.gz``, ``.bz2`` or ``.xz`` aside.
SUFFIXES = {
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".txt": "svmlight",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
}
FORMATS = ("svmlight", "csv", "parquet", "npy", "npz")
#: What a file without a suffix that says it begins with: formats of bytes, and LIBSVM's lines.
_BEGINNINGS = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
#: Names that columns without one have, as written and as pandas reads them.
_NAMELESS = re.compile(r"(Unnamed: [0-9]+(\.[0-9]+)?(_level_[0-9]+)?)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_SVMLIGHT_LINE = re.compile(rb"[+-]?[0-9.][0-9.eE+-]*([ \t]+[0-9]+:[^ \t]+)+\s*(#.*)?")


class Loaded(NamedTuple):
    """What a file holds."""

    features: Any
    """Shape (d, n): an array of float64, or of float32 where all of a file's features are; from
    an SVMlight file that is mostly empty a CSR array."""
    labels: NDArray[Any]
    """Shape (d,); ordered categories of a Parquet file as pandas has them."""
    clients: NDArray[Any] | None
    """The client of every row, where a column names it."""
    feature_names: tuple[str, ...] | None
    note: Mapping[str, Any] = {}
    """What was made of the file, for a description: its ``format``, ``label_column``,
    ``client_column``, and ``unnamed_index`` where one was left out."""
    lines: NDArray[np.int64] | None = None
    """The line of every row, shape (d,), in a CSV or SVMlight file."""


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
        If it is empty, truncated or malformed: the path, the place and what is expected.

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
    if not path.is_file():
        raise FileNotFoundError(f"no data file at {path}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    told = format is not None
    format = check_choice("format", format, FORMATS) if told else _format(path)
    if is_compressed(path) and format not in ("svmlight", "csv"):
        raise ValueError(f"{path} must not be compressed, {format} files are so themselves")
    if format in ("svmlight", "npz"):
        for argument, value in (("label", label), ("client_column", client_column)):
            if value is not None:
                raise ValueError(f"{argument} names a column, but {format} files have none")
    if n_features is not None and format != "svmlight":
        raise ValueError(f"n_features is for svmlight files, got {n_features!r} for {format}")
    for argument, given in (("header", header), ("separator", separator)):
        if given is not None and format != "csv":
            raise ValueError(f"{argument} is for csv files, got {given!r} for {format}")
    if format == "svmlight":
        try:
            features, labels, lines = _svmlight.read(path, n_features)
        except ValueError as error:
            if told or _has_svmlight(_beginning(path)):
                raise
            raise ValueError(
                f"{error}; it was read as SVMlight, by its name: a table of another name than .csv "
                'needs format="csv" (--format csv)'
            ) from None
        return Loaded(features, labels, None, None, {"format": format}, lines)
    if format == "npz":
        return _npz(path)
    if format == "csv":
        known = [name for name in (label, client_column) if isinstance(name, str)]
        text = Text(path, header, None if separator is None else _one_character(separator), known)
        table = _Table(path, text.names, text.columns, text)
    elif format == "npy":
        array = _numpy(path)
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "buif":
            raise ValueError(f"{path} must hold a 2-D array of numbers")
        table = _Table(path, None, [_Held(column) for column in array.T])
    else:
        table = _parquet(path, (label, client_column))
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
    with errors_of(path, table):
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
def errors_of(path: str | os.PathLike[str], table: Loaded) -> Iterator[None]:
    """Errors of the data of a file name it, and the line where it has lines."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(_wrong_number(path, table, str(error)) or f"{path}: {error}") from None


def _wrong_number(path: Any, table: Loaded, error: str) -> str | None:
    """What an error says of a feature or a label, with the line where it stands."""
    if table.lines is None:
        return None
    if error.startswith("features must be finite"):
        held = sparse.coo_array(table.features)
        wrong = np.flatnonzero(~np.isfinite(held.data))
        first = wrong[np.lexsort((held.col[wrong], held.row[wrong]))[0]]
        i, j, got = held.row[first], int(held.col[first]), held.data[first]
        where = f"in column {table.feature_names[j]!r}" if table.feature_names else ""
        if table.note["format"] == "svmlight":
            where = f"at index {j + 1}"
        elif not where:  # the features' columns are those that are left
            used = [table.note.get(name) for name in ("label_column", "client_column")]
            where = f"in column {[k for k in range(j + 3) if k not in used][j]}"
        what = f"features must be finite, got {got} {where} ({len(wrong)} such "
        what += "entry)" if len(wrong) == 1 else "entries)"
    elif error.startswith("labels must be"):
        numbers = [number(str(label)) for label in table.labels]
        found = [k for k, value in enumerate(numbers) if value is None or not np.isfinite(value)]
        if not found:
            return None
        i = found[0]
        what = f"labels must be finite numbers, got {str(table.labels[i])!r}"
    else:
        return None
    return f"{path}, line {table.lines[i]}: {what}"


def _one_name(client_column: str | int | None, client: str | int | None) -> str | int | None:
    if client_column is not None and client is not None:
        raise ValueError("client is the former name of client_column: give one of them")
    return client if client_column is None else client_column


def _one_character(separator: Any) -> str:
    known = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if not isinstance(known, str) or len(known) != 1 or known in '"\r\n ':
        raise ValueError(f"separator must be one character, or 'tab', got {separator!r}")
    return known


def _format(path: Path) -> str:
    """The format of a file, from its name or from how it begins."""
    name = Path(path.stem if is_compressed(path) else path.name)
    if name.suffix.lower() in SUFFIXES:
        return SUFFIXES[name.suffix.lower()]
    begin = _beginning(path)
    for start, format in _BEGINNINGS.items():
        if begin.startswith(start):
            return format
    if _has_svmlight(begin):
        return "svmlight"
    raise ValueError(
        f"{path}: format is not known from its name or beginning, give one of {', '.join(FORMATS)}"
    )


def _beginning(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return bytes(file.read(1 << 16))
    except DAMAGED as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _has_svmlight(begin: bytes) -> bool:
    """Whether one of the lines that a file begins with is LIBSVM's."""
    return _SVMLIGHT_LINE.search(begin.removeprefix(_svmlight.BYTE_ORDER_MARK)) is not None


class _Held:
    """A column of an array or a frame; `_csv.Cells` is one of text."""

    def __init__(self, column: Any) -> None:
        self.column = column

    @property
    def numbers(self) -> NDArray[Any] | None:
        try:
            return numbers_of_column("", self.column)
        except (TypeError, ValueError):
            return None

    def values(self) -> Any:
        ordered = ordered_categories(self.column) is not None
        return self.column.array if ordered else self.ids()

    def ids(self) -> NDArray[Any]:
        return np.asarray(self.column)


class _Table(NamedTuple):
    """Columns of a file, and what they are called."""

    path: Path
    names: tuple[str, ...] | None
    columns: list[Any]
    text: Text | None = None

    def called(self, j: int) -> str | int:
        """The name of a column, or its index if there are none."""
        return j if self.names is None else self.names[j]

    def find(self, argument: str, wanted: str | int) -> int:
        """The index of the column that an argument names."""
        names = self.names or ()
        if isinstance(wanted, str):
            if wanted in names:
                return names.index(wanted)
            if not re.fullmatch(r"-?[0-9]{1,18}", wanted):
                has = ", ".join(names[:20]) or f"{len(self.columns)} columns without names"
                raise ValueError(
                    f"{argument} must be a column of {self.path}, got {wanted!r}; it has {has}"
                )
            wanted = int(wanted)
        n = len(self.columns)
        return check_int(argument, wanted, low=-n, high=n - 1) % n

    def check_names(self) -> None:
        """Refuse columns that cannot be told apart."""
        seen: dict[str, int] = {}
        for j, name in enumerate(self.names or ()):
            if _NAMELESS.fullmatch(name) and j > 0:
                raise ValueError(
                    f"{self.path} must have a name for column {j + 1}, got "
                    f"{f'{name!r}, as pandas calls one without' if name else 'none'}"
                )
            if name in seen:
                raise ValueError(
                    f"{self.path} must have columns of different names, got {name!r} for columns "
                    f"{seen[name] + 1} and {j + 1}"
                )
            seen[name] = j

    def is_index(self, j: int) -> bool:
        """Whether a column is an index, as pandas writes it: first, nameless, no cell twice."""
        if self.names is None or j > 0 or not _NAMELESS.fullmatch(self.names[j]):
            return False
        column = self.columns[j]
        cells = column.ids().tolist()
        if column.numbers is not None and not all(map(_WHOLE.fullmatch, map(str, cells))):
            wrong = "cells that are not whole numbers, as those of an index would be"
        elif len(set(cells)) < len(cells):
            wrong = "cells twice"
        else:
            return True
        raise ValueError(
            f"{self.path} must have a name for column 1, got none, and {wrong}: name it if it is a "
            "feature, or leave it out"
        )

    def loaded(
        self, format: str, label: str | int | None, client_column: str | int | None
    ) -> Loaded:
        """Features, labels and clients."""
        path, columns = self.path, self.columns
        self.check_names()
        who = None if client_column is None else self.find("client_column", client_column)
        rest = [j for j in range(len(columns)) if j != who]
        if not rest:
            raise ValueError(f"{path} has no column left for the label")
        target = rest[-1] if label is None else self.find("label", label)
        if target == who:
            raise ValueError(
                f"label and client_column must be different columns, got {self.called(target)!r} "
                "twice"
            )
        note = {"format": format, "label_column": self.called(target)}
        if who is not None:
            note["client_column"] = self.called(who)
        if self.text is not None:
            self.text.refuse_numbers(target, self.called(target))
            if who is not None and self.names is None:
                self.text.refuse_numbers(who, self.called(who))
        rest.remove(target)
        if rest and self.is_index(rest[0]):
            rest, note["unnamed_index"] = rest[1:], True
        if not rest:
            other = ""
            if self.text is not None and _has_svmlight(_beginning(path)):
                other = '; it looks like SVMlight, format="svmlight" (--format svmlight)'
            raise ValueError(
                f"{path} must have at least one feature column beside the label{other}"
            )
        self.refuse("label", target, is_missing)
        if who is not None:
            self.refuse("client_column", who, lambda cell: cell == "")
        odd = [j for j in rest if columns[j].numbers is None]
        if odd:
            where = ""
            if self.text is not None and (found := columns[odd[0]].first(is_word)):
                where = f" ({found[1]!r} in line {self.text.lines[found[0]]})"
            told = ", ".join(str(self.called(j)) for j in odd[:10])
            raise ValueError(
                f"{path} must have numbers in its feature columns, but not so: {told}{where}"
            )
        single = all(columns[j].numbers.dtype == np.float32 for j in rest)
        labels = columns[target].values()
        features = np.empty((len(labels), len(rest)), dtype=np.float32 if single else np.float64)
        for k, j in enumerate(rest):
            features[:, k] = columns[j].numbers
        try:
            clients = None if who is None else columns[who].ids()
        except ValueError as error:
            raise ValueError(f"{path}, column {note['client_column']!r} {error}") from None
        names = None if self.names is None else tuple(self.names[j] for j in rest)
        lines = None if self.text is None else self.text.lines
        return Loaded(features, labels, clients, names, note, lines)

    def refuse(self, argument: str, j: int, wrong: Callable[[str], bool]) -> None:
        """Refuse missing cells of text; those of other tables are found with the rows."""
        if self.text is not None and (found := self.columns[j].first(wrong)):
            raise ValueError(
                f"{self.path}, line {self.text.lines[found[0]]}: {argument} {self.called(j)!r} "
                f"must not be missing, got {found[1]!r}"
            )


def _parquet(path: Path, wanted: tuple[Any, ...]) -> _Table:
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
    frame = frame.reset_index(level=levels) if levels else frame
    columns = [_Held(frame.iloc[:, j]) for j in range(frame.shape[1])]
    return _Table(path, tuple(map(str, frame.columns)), columns)


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
    return Loaded(features, labels, clients, None, {"format": "npz"})
