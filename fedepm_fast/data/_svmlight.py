"""LIBSVM/SVMlight text: ``label index:value index:value ...`` per line, indices from 1.

Read with Python's own numbers, line by line: within a factor of two of scikit-learn's reader, whose
errors know no line, in less memory, and without a library beside SciPy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._common.validation import check_int
from ._compressed import DAMAGED, open_file

Array = NDArray[Any]

BLOCK = 1 << 20  # bytes
#: A model has a number for every index up to the largest: 0.8 GB for this one.
LARGEST_INDEX = 10**8
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: A label, then pairs; what is no number among them is told by who reads it.
_ROW = re.compile(rb"\s*[^\s:_]+(?:\s+[0-9]+:[^\s:_]+)*\s*")


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
            blocks.append(parse_lines(block, line))
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


def parse_lines(block: bytes, line: int = 1) -> Lines:
    """The rows of whole lines, the first of which has the number `line`."""
    labels: list[float] = []
    counts: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    lines: list[int] = []
    for number, content in enumerate(block.split(b"\n"), start=line):
        content = content.partition(b"#")[0]
        if not content.strip():
            continue
        words = content.replace(b":", b" ").split()
        try:
            if not _ROW.fullmatch(content):
                raise ValueError
            found = list(map(int, words[1::2]))
            labels.append(float(words[0]))
            values += map(float, words[2::2])
            if found and not (
                found[0] > 0 and found[-1] <= LARGEST_INDEX and all(map(lt, found, found[1:]))
            ):
                raise ValueError
        except ValueError:
            raise ValueError(f"line {number}: {_wrong(content.split())}") from None
        indices += found
        counts.append(len(found))
        lines.append(number)
    return Lines(
        np.array(labels, dtype=np.float64),
        np.array(counts, dtype=np.int64),
        np.array(indices, dtype=np.int32),
        np.array(values, dtype=np.float64),
        np.array(lines, dtype=np.int64),
    )


def _wrong(cells: list[bytes]) -> str:
    """What is wrong with a line, whose cells are not as they must be."""
    if not _is_real(cells[0]):
        return f"{_shown(cells[0])} is not a number"
    before = 0
    for cell in cells[1:]:
        name, colon, value = cell.partition(b":")
        if name == b"qid":
            return "qid is for ranking, which this is not"
        if not colon:
            return f"{_shown(cell)} is not index:value"
        if not name.isdigit():
            return f"index {_shown(name)} is not a whole number"
        index = int(name[:20])
        if index == 0:
            return (
                "index 0 must be at least 1, where indices begin: scikit-learn's "
                "dump_svmlight_file writes them so with zero_based=False"
            )
        if index > LARGEST_INDEX:
            return (
                f"index {index} must be at most {LARGEST_INDEX}: a model has a number for every "
                "index up to the largest"
            )
        if index <= before:
            return f"indices must increase along a line, got {index} after {before}"
        if not _is_real(value):
            return f"{_shown(value)} is not a number"
        before = index
    raise AssertionError(cells)


def _is_real(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return b"_" not in cell  # Python reads 1_000 as a number; data files do not mean that


def _shown(cell: bytes) -> str:
    return repr(cell[:40].decode("utf-8", "replace"))
