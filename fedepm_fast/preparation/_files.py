"""Tables of files: CSV with any separator, Parquet, NumPy."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._common.validation import ArgumentTypeError, ArgumentValueError, check_choice, prefixed
from ..data._arrays import npy_table, parquet_frame
from ..data._columns import Columns
from ..data._compressed import is_compressed
from ..data._csv import Text
from ..data._formats import check_is_file, format_of
from ..data.loaders import one_character
from ._columns import WordColumn
from ._frames import columns_of_frame
from ._table import Table, columns_of_array, unique

#: Formats that hold a table of columns.
FORMATS = ("csv", "parquet", "npy")


def read_table(
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    header: bool | None = None,
    na: Sequence[str] = (),
    encoding: str | None = None,
    decimal: str = ".",
    format: str | None = None,
    known: Sequence[str] = (),
) -> Table:
    """Read a table from a file.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` (which may be compressed, ``.gz``, ``.bz2``, ``.xz``), ``.parquet``,
        ``.pq`` or ``.npy``.
    separator : str, optional
        Of a CSV file's cells; by default comma, semicolon, tab or bar, whichever of them splits
        all rows alike.
    header : bool, optional
        Whether the first row of a CSV file names its columns; by default what the cells say, as
        in `fedepm_fast.data.loaders.load`. Columns without names are ``x1``, ``x2``, ...
    na : sequence of str
        What stands for a missing cell of a CSV file, such as ``"-99"``, beside an empty cell,
        ``NA`` and the like.
    encoding : str, optional
        Of a CSV file; UTF-8 by default.
    decimal : {".", ","}
        What stands before the decimals in a CSV file.
    format : {"csv", "parquet", "npy"}, optional
        By default what the name says, or how the file begins.
    known : sequence of str
        Columns that the file has, if it has a header.

    Returns
    -------
    Table

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no regular file, or is empty, damaged or malformed: the path, the line and what
        is expected.
    """
    path = Path(path)
    check_is_file(path)
    found = format_of(path) if format is None else check_choice("format", format, FORMATS)
    if found not in FORMATS:
        raise ValueError(
            f"{path} must be a table with columns ({', '.join(FORMATS)}), got {found}: give its "
            "format= (--format) if it is one"
        )
    if is_compressed(path) and found != "csv":
        raise ValueError(f"{path} must not be compressed, {found} files are so themselves")
    of_csv = {"separator": separator, "header": header, "na": na or None, "encoding": encoding}
    for argument, value in of_csv.items():
        if value is not None and found != "csv":
            raise ArgumentValueError(argument, f"is for csv files, got {value!r} for {found}")
    if found == "csv":
        return _csv(path, separator, header, na, encoding, decimal, known)
    with prefixed(f"{path}:"):
        if found == "npy":
            return Table(columns_of_array(npy_table(path)), {"format": found})
        return Table(columns_of_frame(parquet_frame(path, tuple(known))), {"format": found})


def read_as(
    path: str | os.PathLike[str],
    note: Mapping[str, Any],
    known: Sequence[str] = (),
    **options: Any,
) -> Table:
    """`read_table`, where a CSV file is read as one before was, but for the options that are given.

    Parameters
    ----------
    path : path-like
    note : mapping
        The options of that one: ``note["read"]`` of its table.
    known : sequence of str
    **options
        Of `read_table`.
    """
    path = Path(path)
    there = path.is_file() and path.stat().st_size > 0
    found = options.get("format") or (format_of(path) if there else None)
    before = dict(note) if found == "csv" else {}
    return read_table(path, known=known, **(before | options))


def _csv(
    path: Path,
    separator: str | None,
    header: bool | None,
    na: Sequence[str],
    encoding: str | None,
    decimal: str,
    known: Sequence[str],
) -> Table:
    markers = _markers(na)
    check_choice("decimal", decimal, (".", ","))
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ArgumentValueError(
                "encoding", f"must be one that Python knows, such as 'latin-1', got {encoding!r}"
            ) from None
    character = None if separator is None else one_character(separator)
    try:
        text = Text(path, header, character, known, encoding)
    except ValueError as error:
        if isinstance(error.__context__, UnicodeDecodeError):
            # What the file begins with, or where a later part of it does not decode.
            marked = error.__context__.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            such = "utf-16" if encoding is None and marked else "such as latin-1 or cp1252"
            raise ValueError(f"{error}; give its encoding= (--encoding), {such}") from None
        raise
    table = Columns(path, text.names, text.columns, text)
    table.check_names()
    first = 1 if table.is_index(0) else 0
    names = text.names or [f"x{j + 1}" for j in range(len(text.columns))]
    with prefixed(f"{path}:"):
        told = unique(names[first:])
    columns = {
        name: WordColumn(name, cells, text.lines, markers, decimal)
        for name, cells in zip(told, text.columns[first:], strict=True)
    }
    asked = {
        "separator": separator, "header": header, "na": list(na) or None, "encoding": encoding,
        "decimal": None if decimal == "." else decimal,
    }  # fmt: skip
    note = {
        "format": "csv", "separator": text.separator, "header": text.names is not None,
        "read": {name: value for name, value in asked.items() if value is not None},
    }  # fmt: skip
    return Table(columns, note)


def _markers(na: Sequence[str]) -> frozenset[str]:
    if isinstance(na, str) or not all(isinstance(marker, str) for marker in na):
        raise ArgumentTypeError("na", f"must be a sequence of texts, got {na!r}")
    return frozenset(marker.strip() for marker in na)
