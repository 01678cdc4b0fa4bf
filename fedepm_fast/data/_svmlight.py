"""LIBSVM/SVMlight text: ``label index:value index:value ...`` per line, indices from 1.

Blocks of whole lines are parsed as arrays. A block that is not plainly well-formed goes to the
parser that reads line by line, which alone decides what is allowed and what an error says.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._validation import check_int
from ._compressed import DAMAGED, open_file

Array = NDArray[Any]

BLOCK = 1 << 22  # bytes
#: A model has a number for every index up to the largest: 0.8 GB for this one.
LARGEST_INDEX = 10**8
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_COMMENT = re.compile(rb"#[^\n]*")
# Classes of bytes; whatever else occurs is for the parser of lines.
_OTHER, _DIGIT, _SIGN, _BLANK, _NEWLINE, _COLON = range(6)
_CLASSES = bytes(
    _DIGIT if c in b"0123456789"
    else _SIGN if c in b"+-.eE"
    else _BLANK if c in b" \t\r"
    else _NEWLINE if c in b"\n"
    else _COLON if c in b":"
    else _OTHER
    for c in range(256)
)  # fmt: skip
_COLON_TO_SPACE = bytes.maketrans(b":", b" ")


class Lines(NamedTuple):
    """Rows of a block: labels, entries of each row, then all indices (from 1) and values."""

    labels: Array
    counts: Array
    indices: Array
    values: Array
    lines: Array


def read(path: Path, n_features: int | None) -> tuple[Any, Array, Array]:
    """Features, an array or CSR, labels, and the line of every row of a file.

    Raises
    ------
    ValueError
        Naming the path and the line.
    """
    if n_features is not None:
        n_features = check_int("n_features", n_features, low=1, high=LARGEST_INDEX)
    blocks = []
    line = 1
    try:
        for block in _blocks(path):
            parsed = parse_block(block, line)
            blocks.append(parse_lines(block, line) if parsed is None else parsed)
            line += block.count(b"\n")
    except DAMAGED as error:
        raise ValueError(f"{path} cannot be read beyond line {line}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from None
    if not any(len(rows.labels) for rows in blocks):
        raise ValueError(f"{path} has no rows")
    labels, counts, indices, values, lines = (
        np.concatenate(part) for part in zip(*blocks, strict=True)
    )
    largest = max(int(indices.max(initial=0)), 1)
    n = largest if n_features is None else n_features
    if n < largest:
        raise ValueError(f"n_features must be at least {largest} for {path}, got {n}")
    starts = np.concatenate([[0], np.cumsum(counts)])
    matrix = sparse.csr_array((values, indices - 1, starts), shape=(len(labels), n))
    # A table that is half full is smaller, and faster, as an array.
    return (matrix.toarray() if 2 * matrix.nnz >= len(labels) * n else matrix), labels, lines


def _blocks(path: Path) -> Iterator[bytes]:
    """The file in pieces that end where a line ends."""
    with open_file(path) as file:
        mark = file.read(len(BYTE_ORDER_MARK))
        before = b"" if mark == BYTE_ORDER_MARK else mark
        while block := before + file.read(BLOCK):
            yield block if block.endswith(b"\n") else block + file.readline()
            before = b""


def parse_block(block: bytes, line: int = 1) -> Lines | None:
    """The rows of whole lines, the first of which has the number `line`.

    None where anything is out of the ordinary.
    """
    text = b"\n" + (_COMMENT.sub(b"", block) if b"#" in block else block) + b"\n"
    kind = np.frombuffer(text.translate(_CLASSES), dtype=np.uint8)
    if not kind.all():
        return None
    inside = kind <= _SIGN
    starts = np.flatnonzero(inside[1:] & ~inside[:-1]) + 1
    ends = np.searchsorted(starts, np.flatnonzero(kind == _NEWLINE))
    words = np.diff(ends)
    lines = np.flatnonzero(words) + line
    first, words = ends[:-1][words > 0], words[words > 0]
    position = np.arange(len(starts)) - np.repeat(first, words)
    is_index = position % 2 == 1
    is_value = ~is_index & (position > 0)
    colons = starts[is_value] - 1
    if not (
        (words % 2 == 1).all()
        and (kind[starts[is_index] - 1] == _BLANK).all()
        and (kind[colons] == _COLON).all()
        and inside[colons - 1].all()
        and len(colons) == np.count_nonzero(kind == _COLON)
    ):
        return None
    signs = np.cumsum(kind == _SIGN, dtype=np.int32)
    if (signs[colons] != signs[starts[is_index] - 1]).any():
        return None  # an index is digits only
    numbers = numbers_in(text.translate(_COLON_TO_SPACE))
    if numbers is None or len(numbers) != len(starts):
        return None
    counts = words // 2
    indices = numbers[is_index]
    if len(indices):
        previous = np.concatenate([[0], indices[:-1]])
        rows = np.concatenate([[0], np.cumsum(counts)[:-1]])
        previous[rows[counts > 0]] = 0
        if (indices <= previous).any() or indices.max() > LARGEST_INDEX:
            return None
    return Lines(numbers[first], counts, indices.astype(np.int32), numbers[is_value], lines)


def numbers_in(text: bytes) -> Array | None:
    """The numbers that blanks separate; None where anything else is there."""
    with warnings.catch_warnings():
        # What is not a number ends the text: a warning in some versions, an error in others.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def parse_lines(block: bytes, line: int) -> Lines:
    """The rows of whole lines, the first of which has the number `line`."""
    labels: list[float] = []
    counts: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    lines: list[int] = []
    for number, content in enumerate(block.split(b"\n"), start=line):
        cells = content.partition(b"#")[0].split()
        if not cells:
            continue
        try:
            labels.append(_real(cells[0]))
            before = 0
            for cell in cells[1:]:
                before = _entry(cell, before, indices, values)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        counts.append(len(cells) - 1)
        lines.append(number)
    return Lines(
        np.array(labels, dtype=np.float64),
        np.array(counts, dtype=np.int64),
        np.array(indices, dtype=np.int32),
        np.array(values, dtype=np.float64),
        np.array(lines, dtype=np.int64),
    )


def _entry(cell: bytes, before: int, indices: list[int], values: list[float]) -> int:
    name, colon, value = cell.partition(b":")
    if name == b"qid":
        raise ValueError("qid is for ranking, which this is not")
    if not colon:
        raise ValueError(f"{_shown(cell)} is not index:value")
    if not name.isdigit():
        raise ValueError(f"index {_shown(name)} is not a whole number")
    index = int(name[:20])
    if not 1 <= index <= LARGEST_INDEX:
        raise ValueError(
            f"index {index} must be at least 1 and at most {LARGEST_INDEX}: a model has a number "
            "for every index up to the largest"
        )
    if index <= before:
        raise ValueError(f"indices must increase along a line, got {index} after {before}")
    indices.append(index)
    values.append(_real(value))
    return index


def _real(cell: bytes) -> float:
    # Python reads 1_000 as a number; data files do not mean that.
    try:
        if b"_" in cell:
            raise ValueError
        return float(cell)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number") from None


def _shown(cell: bytes) -> str:
    return repr(cell[:40].decode("utf-8", "replace"))
