"""Cells of text: what they hold as numbers, and a column of them in little memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._decimals import Decimals, decimals
from ._floats import floats, floats_of, use_arrow

#: How a missing number or label is written, beside what Python reads as NaN.
MISSING = frozenset(
    ("", "#N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
)
TRUTH = {"true": 1.0, "false": 0.0}
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
#: What one cell that should have been several looks like, or a decimal comma.
_NUMBERS = re.compile(rf"{NUMBER}(?:(?:\s*[,;|]\s*|\s+){NUMBER})+")
#: The letters of numbers, and what stands between cells: 16, so that two are one byte.
_LETTERS = b"0123456789.-+e \0"
_CODES = bytes(_LETTERS.find(letter) & 0xFF for letter in range(256))  # 255 for all others
_PAIRS = np.array(
    [[_LETTERS[code >> 4], _LETTERS[code & 15]] for code in range(256)], dtype=np.uint8
).view(np.uint16)[:, 0]


def number(cell: str) -> float | None:
    """What a cell holds as a number: NaN where it is missing, None where it is a word."""
    if cell in MISSING:
        return np.nan
    try:  # Python reads 1_000 and other scripts' digits, which data files do not mean
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None


def is_word(cell: str) -> bool:
    """Whether a cell is neither a number nor missing."""
    return number(cell) is None


def is_missing(cell: str) -> bool:
    """Whether a cell holds neither a number nor a word."""
    value = number(cell)
    return value is not None and np.isnan(value)


class _Packed(NamedTuple):
    """Cells that are one text, two letters a byte."""

    codes: NDArray[np.uint8]
    length: int

    def text(self) -> str:
        return _PAIRS[self.codes].tobytes()[: self.length].decode("ascii")


def _packed(block: str) -> _Packed | str:
    """A text in half the memory, if it has the letters of numbers only."""
    if not block.isascii():
        return block
    codes = np.frombuffer(block.encode("ascii").translate(_CODES), dtype=np.uint8)
    if codes.max(initial=0) >= len(_LETTERS):
        return block
    pairs = np.zeros((len(codes) + 1) // 2, dtype=np.uint8)
    np.left_shift(codes[::2], 4, out=pairs)
    pairs[: len(codes) // 2] |= codes[1::2]
    return _Packed(pairs, len(codes))


class Cells:
    """The cells of a column, block by block as one text each, and as numbers while all are some.

    Blanks around a cell are not part of it.

    Parameters
    ----------
    size : int
        Bytes of the file.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        #: Of decimals the text follows from the numbers.
        self._blocks: list[Decimals | _Packed | str] = []
        self._lengths: list[int] = []
        self._length = 0
        #: The first `_length` are the cells, as long as none needs a closer look.
        self._floats: NDArray[np.float64] | None = np.empty(0)
        self._may_be_decimals = True

    def append(self, block: str, expected: int = 0) -> None:
        """Add cells, with a NUL between them, to a column that will have about so many."""
        values, held = self._read(block)
        length = self._length + block.count("\0") + 1
        if values is None:
            self._forget_numbers()
        elif self._floats is not None:
            if length > len(self._floats):  # what is not written yet takes no memory
                longer = np.empty(max(length, expected, 2 * len(self._floats)))
                longer[: self._length] = self._floats[: self._length]
                self._floats = longer
            self._floats[self._length : length] = values
        self._blocks.append(held)
        self._lengths.append(length - self._length)
        self._length = length

    def _read(self, block: str) -> tuple[NDArray[np.float64] | None, Decimals | _Packed | str]:
        """The numbers of a block, while those of the column are wanted, and what is kept of it."""
        if self._floats is None:
            return None, _packed(block)
        if self._may_be_decimals and (read := decimals(block)) is not None:
            values, how = read
            if _add(values, how.odd):
                return read
            return None, _packed(block)
        self._may_be_decimals = False
        if not is_word(block.partition("\0")[0].strip()):
            use_arrow(self._size)
        return _plain_numbers(block), _packed(block)

    def _forget_numbers(self) -> None:
        """Keep the text of every block, as there is a cell that may be no number."""
        if self._floats is not None:
            self._blocks = [
                _packed(text) if isinstance(block, Decimals) else block
                for block, text in zip(self._blocks, self._texts(), strict=True)
            ]
            self._floats = None

    def prepend(self, cell: str) -> None:
        """Add a cell before the others."""
        first = None if self._floats is None else _plain_numbers(cell)
        if first is None:
            self._forget_numbers()
        else:
            self._floats = np.concatenate([first, self._held()])
        self._blocks.insert(0, cell)
        self._lengths.insert(0, 1)
        self._length += 1
        self.__dict__.pop("numbers", None)

    @property
    def are_decimals(self) -> bool:
        """Whether all cells are numbers or missing, and most of them decimals: none is a word."""
        return self._floats is not None and self._may_be_decimals and self._length > 0

    def _held(self) -> Any:
        return None if self._floats is None else self._floats[: self._length]

    def _parts(self) -> Iterator[tuple[Decimals | _Packed | str, Any]]:
        """The blocks, and their numbers while all are some."""
        end, numbers = 0, self._floats
        for block, length in zip(self._blocks, self._lengths, strict=True):
            end += length
            yield block, None if numbers is None else numbers[end - length : end]

    def _texts(self) -> Iterator[str]:
        for block, values in self._parts():
            if isinstance(block, Decimals):
                yield block.text(values)
            else:
                yield block if isinstance(block, str) else block.text()

    def _written(self) -> Iterator[str]:
        for text in self._texts():
            yield from text.split("\0")

    def __iter__(self) -> Iterator[str]:
        return map(str.strip, self._written())

    def parts(self) -> Iterator[list[str]]:
        """The cells block by block."""
        for text in self._texts():
            yield list(map(str.strip, text.split("\0")))

    def __len__(self) -> int:
        return self._length

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """The cells as numbers, NaN for missing ones; or as 1 and 0, if all are true or false."""
        return self.read()

    def read(
        self, na: frozenset[str] = frozenset(), decimal: str = "."
    ) -> NDArray[np.float64] | None:
        """The cells as `numbers` has them.

        Parameters
        ----------
        na : frozenset of str
            What stands for a missing cell, beside `MISSING`.
        decimal : str
            What stands before the decimals.

        Returns
        -------
        ndarray of shape (d,), or None
            None if some cell is a word.
        """
        if not na and decimal == "." and self._floats is not None and self._length:
            found = self._floats[: self._length]
            found.setflags(write=False)  # text follows from it
            return found
        plain = list(self._plain(na, decimal))
        parts = [part for part in plain if part is not None]
        if len(parts) == len(plain):
            return np.concatenate(parts)
        missing = MISSING | na

        def word(cell: str) -> float | None:
            return np.nan if cell in missing else number(cell.replace(decimal, "."))

        def truth(cell: str) -> float | None:
            return np.nan if cell in missing else TRUTH.get(cell.lower())

        numbers = self._as(word)
        return self._as(truth) if numbers is None else numbers

    def _plain(self, na: frozenset[str], decimal: str) -> Iterator[NDArray[np.float64] | None]:
        """The numbers of the blocks, as `_plain_numbers` has them."""
        for block, values in self._parts():
            if not isinstance(block, Decimals):
                text = block if isinstance(block, str) else block.text()
                yield _plain_numbers(text, na, decimal)
            else:
                lacking = [block.written(values, marker) for marker in na]
                yield np.where(np.any(lacking, axis=0), np.nan, values) if lacking else values

    def _as(self, read: Callable[[str], float | None]) -> NDArray[np.float64] | None:
        """What `read` makes of the cells; None where it makes that of one."""
        values = list(takewhile(lambda value: value is not None, map(read, self)))
        return np.array(values, dtype=np.float64) if len(values) == len(self) else None

    def values(self) -> NDArray[Any]:
        """The cells as integers, numbers, booleans or text, whichever all of them are."""
        numbers, words = self.numbers, list(self)
        if numbers is None:
            return np.array(words)
        if words[0].lower() in TRUTH:
            return numbers.astype(bool)
        try:
            return np.array([int(word) for word in words], dtype=np.int64)
        except ValueError:
            return numbers
        except OverflowError:  # as floats, different ones would be equal
            return np.array([int(word) for word in words], dtype=object)

    def ids(self) -> NDArray[Any]:
        """The cells as they are written; as integers if that is the same.

        Raises
        ------
        ValueError
            If blanks around them are all that tells two apart.
        """
        words = list(self)
        if len(set(self._written())) > len(set(words)):
            raise ValueError("has names that differ in the blanks around them only")
        whole = all(map(INTEGER.fullmatch, words))
        return np.array(words, dtype=np.int64 if whole else np.str_)

    def all_numbers(self) -> bool:
        """Whether every cell that is not missing holds several numbers."""
        held = (cell for cell in self if cell not in MISSING)
        first = next(held, "")
        return all(map(_NUMBERS.fullmatch, chain([first], held)))

    def first(self, wanted: Callable[[str], bool]) -> tuple[int, str] | None:
        """The first cell of which `wanted` is true, and its row."""
        cells = set(filter(wanted, set(self)))
        return next(((i, c) for i, c in enumerate(self) if c in cells), None) if cells else None


def _add(values: NDArray[np.float64], cells: Mapping[int, str]) -> bool:
    """Write the numbers of some cells, if all of them are."""
    for i, cell in cells.items():
        if (value := number(cell.strip())) is None:
            return False
        values[i] = value
    return True


def _plain_numbers(
    block: str, na: frozenset[str] = frozenset(), decimal: str = "."
) -> NDArray[np.float64] | None:
    """The numbers of a block, NaN for missing ones; None where `number` must look at them."""
    if "_" in block or "(" in block or not block.isascii():
        return None
    if na or decimal != ".":
        cells = block.split("\0")
        block = "\0".join("nan" if cell in na else cell.replace(decimal, ".") for cell in cells)
    with suppress(ValueError):
        return floats_of(block)
    with suppress(ValueError):
        return floats(["nan" if cell in MISSING else cell for cell in block.split("\0")])
    return None
