"""Columns of a table: cells as numbers, or as levels of a category, whichever someone asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import ArgumentTypeError, ArgumentValueError
from ..data._cells import MISSING, TRUTH, Cells, number
from ._levels import Levels, category_text, if_decimal, in_lower_case, is_missing, level_text, named

#: What cells of a column are. "missing" is a column without a single value.
KINDS = ("numeric", "boolean", "category")

Numbers = NDArray[np.float64]


class Column:
    """A column, whose cells may be missing.

    Parameters
    ----------
    name : str
    lines : ndarray of int, shape (d,), optional
        The line of every cell in its file.
    """

    #: Whether levels have an order of their own, that of `Levels.names`.
    ordered = False

    def __init__(self, name: str, lines: NDArray[np.int64] | None = None) -> None:
        self.name = name
        self.lines = lines

    def __len__(self) -> int:
        raise NotImplementedError

    @cached_property
    def kind(self) -> str:
        """One of `KINDS`, or "missing"."""
        raise NotImplementedError

    @cached_property
    def numbers(self) -> Numbers:
        """The cells as numbers, shape (d,): NaN where missing, 1 and 0 for true and false.

        Raises
        ------
        ValueError, TypeError
            Naming the column, and the row of a cell that is no number.
        """
        raise NotImplementedError

    @cached_property
    def levels(self) -> Levels:
        """The cells as levels."""
        raise NotImplementedError

    def take(self, rows: NDArray[np.intp] | slice) -> Column:
        """The column of some rows."""
        return Taken(self, rows)

    def missing(self) -> NDArray[np.bool_]:
        """Where cells are missing, shape (d,)."""
        if self.kind == "category":
            return self.levels.codes < 0
        return np.isnan(self.numbers)

    def place(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def finite(self) -> Numbers:
        """The numbers, of which none is infinite."""
        held = self.numbers
        wrong = np.isinf(held)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ArgumentValueError(
                f"column {self.name!r}",
                f"must be finite, got {held[row]} in {self.place(row)}",
            )
        return held

    def truths(self) -> Numbers:
        """The numbers, each of which is 0 or 1, or missing."""
        held = self.numbers
        wrong = ~((held == 0) | (held == 1) | np.isnan(held))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ArgumentValueError(
                f"column {self.name!r}",
                f"must be true or false, or 1 or 0, got {held[row]:g} in {self.place(row)}",
            )
        return held


class NumberColumn(Column):
    """An array of numbers or booleans, shape (d,)."""

    def __init__(
        self, name: str, values: NDArray[Any], lines: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(name, lines)
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def kind(self) -> str:
        if self.values.dtype == np.bool_:
            return "boolean" if len(self) else "missing"
        return "missing" if np.isnan(self.numbers).all() else "numeric"

    @cached_property
    def numbers(self) -> Numbers:
        return self.values.astype(np.float64, copy=False)

    @cached_property
    def levels(self) -> Levels:
        seen = ~np.isnan(self.numbers)
        held, codes = np.unique(self.values[seen], return_inverse=True)
        found = np.full(len(self), -1, dtype=np.int32)
        found[seen] = codes
        return named(found, [level_text(value) for value in held.tolist()])


class WordColumn(Column):
    """Cells of any kind, one by one: text, or the objects of a list.

    Parameters
    ----------
    name : str
    cells : Cells or list
        Of a file: `Cells`, which are numbers if all of them read as such. Other cells have a type,
        and text that reads as a number stays text.
    lines : ndarray of int, shape (d,), optional
    na : frozenset of str
        What stands for a missing cell of a file, beside what always does.
    decimal : str
        What stands before the decimals of a file's numbers.
    """

    def __init__(
        self,
        name: str,
        cells: Cells | list[Any],
        lines: NDArray[np.int64] | None = None,
        na: frozenset[str] = frozenset(),
        decimal: str = ".",
    ) -> None:
        super().__init__(name, lines)
        self._of_file = isinstance(cells, Cells)
        self._cells = cells
        self._na = na
        self._decimal = decimal

    def __len__(self) -> int:
        return len(self._cells) if self.lines is None else len(self.lines)

    @cached_property
    def _coded(self) -> tuple[NDArray[np.int32], list[Any]]:
        """Which of the cells that differ a cell is, and those."""
        index: dict[Any, int] = {}
        codes: list[int] = []
        try:
            for cells in self._cells.parts() if isinstance(self._cells, Cells) else [self._cells]:
                for cell in dict.fromkeys(cells):
                    index.setdefault(cell, len(index))
                codes += map(index.__getitem__, cells)
            for cell in index:
                if not isinstance(cell, str):
                    is_missing(cell)  # or neither missing nor a number
        except ArgumentTypeError as error:
            raise error.of(f"column {self.name!r}") from None
        except TypeError:
            odd = next(cell for cell in self._cells if not _is_hashable(cell))
            raise ArgumentTypeError(
                f"column {self.name!r}",
                f"must hold numbers, text or booleans, got a cell of type {type(odd).__name__}",
            ) from None
        return np.array(codes, dtype=np.int32), list(index)

    def _value(self, cell: Any) -> float | None:
        """A cell as a number: NaN where it is missing, None where it is a word."""
        if not isinstance(cell, str):
            try:
                return np.nan if is_missing(cell) else float(cell)
            except OverflowError:
                raise ArgumentValueError(
                    f"column {self.name!r}",
                    "must have numbers below 1.8e308, got an integer beyond it",
                ) from None
        text = cell.strip()
        if not text or (self._of_file and (text in MISSING or text in self._na)):
            return np.nan
        if text.lower() in TRUTH:
            return TRUTH[text.lower()]
        if self._decimal != ".":
            text = text.replace(self._decimal, ".")
        value = number(text)
        return None if value is None or np.isnan(value) else value

    @cached_property
    def _fast(self) -> Numbers | None:
        """The numbers of a file's column that holds nothing else."""
        if not isinstance(self._cells, Cells):
            return None
        if not self._na and self._decimal == ".":
            return self._cells.numbers
        return self._cells.read(self._na, self._decimal)

    @cached_property
    def kind(self) -> str:
        if self._fast is not None:
            if np.isnan(self._fast).all():
                return "missing"
            if isinstance(self._cells, Cells) and self._cells.are_decimals:
                return "numeric"  # without a look at the text
            first = next(cell for cell in self._cells if not self._is_missing(cell))
            return "boolean" if first.lower() in TRUTH else "numeric"
        held = [cell for cell in self._coded[1] if not self._is_missing(cell)]
        if not held:
            return "missing"
        if all(isinstance(cell, (bool, np.bool_)) or _is_truth(cell) for cell in held):
            return "boolean"
        numbers = [
            self._value(cell) is not None and not _is_truth(cell)
            if self._of_file
            else not isinstance(cell, str)
            for cell in held
        ]
        return "numeric" if all(numbers) else "category"

    def _is_missing(self, cell: Any) -> bool:
        value = self._value(cell)
        return value is not None and np.isnan(value)

    @cached_property
    def numbers(self) -> Numbers:
        if self._fast is not None:
            return self._fast
        codes, cells = self._coded
        values = [self._value(cell) for cell in cells]
        if None in values:
            wrong = values.index(None)
            row = int(np.argmax(codes == wrong))
            raise ArgumentValueError(
                f"column {self.name!r}",
                f"must be numbers, or true or false, got {cells[wrong]!r} in {self.place(row)}"
                f"{if_decimal(cells[wrong])}",
            )
        return np.array(values, dtype=np.float64)[codes]

    @cached_property
    def levels(self) -> Levels:
        codes, cells = self._coded
        missing = self._of_file and (MISSING | self._na)
        texts = [level_text(cell) for cell in cells]
        return named(codes, [None if missing and text in missing else text for text in texts])


class CodedColumn(Column):
    """A categorical column of a frame: a code for each cell, and what codes stand for."""

    def __init__(
        self, name: str, codes: NDArray[Any], categories: Sequence[Any], ordered: bool
    ) -> None:
        super().__init__(name)
        texts = [category_text(category) for category in categories]
        self.levels = named(codes.astype(np.int32), texts)
        self.ordered = ordered

    def __len__(self) -> int:
        return len(self.levels.codes)

    @cached_property
    def kind(self) -> str:
        return "category" if (self.levels.codes >= 0).any() else "missing"

    @cached_property
    def numbers(self) -> Numbers:
        words = np.array([*self.levels.names, None], dtype=object)[self.levels.codes]
        return WordColumn(self.name, words.tolist(), self.lines).numbers


class Renamed(CodedColumn):
    """A column whose levels are called otherwise."""

    def __init__(self, column: Column, levels: Levels, ordered: bool) -> None:
        Column.__init__(self, column.name)
        self.place = column.place  # type: ignore[method-assign]
        self.levels = levels
        self.ordered = ordered


def without_case(column: Column) -> Column:
    """A column whose levels that differ in case only are one, in lower case."""
    return Renamed(column, in_lower_case(column.levels), column.ordered)


class RefusedColumn(Column):
    """A column that is neither numbers nor levels: an error where someone asks for it."""

    def __init__(self, name: str, length: int, what: str) -> None:
        super().__init__(name)
        self._length = length
        self._what = what

    def __len__(self) -> int:
        return self._length

    def _refuse(self) -> Any:
        raise ArgumentTypeError(f"column {self.name!r}", self._what)

    kind = property(_refuse)
    numbers = property(_refuse)
    levels = property(_refuse)


class Taken(Column):
    """Some rows of a column: a view of it where they follow one another, else one copy."""

    _parent: Column
    _rows: Any

    def __init__(self, parent: Column, rows: NDArray[np.intp] | slice) -> None:
        super().__init__(parent.name)
        self._rows = following(rows)
        self._length = (
            len(range(*self._rows.indices(len(parent))))
            if isinstance(self._rows, slice)
            else len(self._rows)
        )
        composed = isinstance(parent, Taken) and not isinstance(parent._rows, slice)
        if composed and not isinstance(self._rows, slice):
            assert isinstance(parent, Taken)
            # Rows of rows are rows of the column itself: the others in between are not copied.
            self._rows = parent._rows[self._rows]
            parent = parent._parent
        self._parent = parent
        self.ordered = parent.ordered

    def place(self, row: int) -> str:
        rows = self._rows
        return self._parent.place(rows.start + row if isinstance(rows, slice) else int(rows[row]))

    def __len__(self) -> int:
        return self._length

    @cached_property
    def kind(self) -> str:
        kind = self._parent.kind
        if kind == "category":
            return kind if (self.levels.codes >= 0).any() else "missing"
        return "missing" if np.isnan(self.numbers).all() else kind

    @cached_property
    def numbers(self) -> Numbers:  # type: ignore[override]
        return self._parent.numbers[self._rows]

    @cached_property
    def levels(self) -> Levels:  # type: ignore[override]
        found = self._parent.levels
        return Levels(found.codes[self._rows], found.names)


def following(rows: NDArray[np.intp] | slice) -> Any:
    """Rows that follow one another as a slice, others as they are."""
    if isinstance(rows, slice) or not len(rows) or rows[0] < 0 or (np.diff(rows) != 1).any():
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _is_truth(cell: Any) -> bool:
    return isinstance(cell, str) and cell.strip().lower() in TRUTH


def _is_hashable(cell: Any) -> bool:
    try:
        hash(cell)
    except TypeError:
        return False
    return True
