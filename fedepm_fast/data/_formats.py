"""The format of a file, from its name or from how it begins."""

from __future__ import annotations

import re
from pathlib import Path

from . import _svmlight
from ._compressed import DAMAGED, is_compressed, open_file

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
#: Suffixes of what people keep tables in, and this package does not read.
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")
FORMATS = ("svmlight", "csv", "parquet", "npy", "npz")
#: What a file without a suffix that says it begins with: formats of bytes, and LIBSVM's lines.
_BEGINNINGS = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
_SVMLIGHT_LINE = re.compile(rb"[+-]?[0-9.][0-9.eE+-]*([ \t]+[0-9]+:[^ \t]+)+\s*(#.*)?")


def check_is_file(path: Path) -> None:
    """FileNotFoundError, or ValueError for what is there and no file, or an empty one."""
    if path.is_dir():
        raise ValueError(f"{path} must be the file of a table, but it is a folder")
    if not path.exists():
        raise FileNotFoundError(f"no data file at {path}")
    if not path.is_file():
        raise ValueError(
            f"{path} must be a regular file, but it is a pipe or a device, and tables are read "
            "more than once: write it to a file first"
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")


def format_of(path: Path) -> str:
    """The format of a file, from its name or from how it begins."""
    name = Path(path.stem if is_compressed(path) else path.name)
    if name.suffix.lower() in SUFFIXES:
        return SUFFIXES[name.suffix.lower()]
    if name.suffix.lower() in WORKBOOKS:
        raise ValueError(
            f"{path} must not be a workbook: save its sheet as CSV, or give what pandas.read_excel "
            "makes of it"
        )
    begin = beginning(path)
    for start, format in _BEGINNINGS.items():
        if begin.startswith(start):
            return format
    if has_svmlight(begin):
        return "svmlight"
    raise ValueError(
        f"{path}: format is not known from its name or beginning, give one of {', '.join(FORMATS)}"
    )


def beginning(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return bytes(file.read(1 << 16))
    except DAMAGED as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def has_svmlight(begin: bytes) -> bool:
    """Whether one of the lines that a file begins with is LIBSVM's."""
    return _SVMLIGHT_LINE.search(begin.removeprefix(_svmlight.BYTE_ORDER_MARK)) is not None
