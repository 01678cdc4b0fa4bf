"""CSV text: rows of one length, whose cells stay as they are written until someone asks.

`csv` of the standard library splits the lines. Ids must stay text, and a row that is longer or
shorter than the others is a mistake, which readers made for convenience repair in silence.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ._cells import MISSING, NUMBER, Cells, is_word
from ._compressed import DAMAGED, open_file

SEPARATORS = (",", ";", "\t", "|")
_BLOCK = 1 << 11  # rows
_LOOKED_AT = 200  # rows that decide what separates

Row = list[str]


class Text:
    """A CSV file, compressed or not.

    Parameters
    ----------
    path : Path
    header : bool, optional
        Whether the first row names the columns; by default what the cells say.
    separator : str, optional
        By default the one of `SEPARATORS` that splits all rows alike.
    known : sequence of str
        Names of columns that someone asks for.
    encoding : str, optional
        By default UTF-8, with a byte order mark or without.

    Attributes
    ----------
    columns : list of Cells
    names : tuple of str or None

    Raises
    ------
    ValueError
        Naming the path and the line.
    """

    def __init__(
        self,
        path: Path,
        header: bool | None,
        separator: str | None,
        known: Sequence[str],
        encoding: str | None = None,
    ) -> None:
        self.path = path
        self._encoding = encoding or "utf-8-sig"
        self._told = separator is not None
        self.separator = self._find_separator() if separator is None else separator
        rows = self._rows()
        first, line = next(rows, ([], 0))
        size = path.stat().st_size
        if not first:
            raise ValueError(f"{path} has no rows")
        self.columns = [Cells(size) for _ in first]
        lines: list[int] = []
        expected = 0
        while block := list(islice(rows, _BLOCK)):
            lines += [at for _, at in block]
            texts = list(map("\0".join, zip(*(row for row, _ in block), strict=True)))
            if not expected:  # and a few more, as copies cost more than what is never written
                expected = int(1.05 * len(block) * size / (1 + sum(map(len, texts))))
            length = len(block)
            block.clear()  # before the next one is read
            for column, text in zip(self.columns, texts, strict=True):
                if text.count("\0") >= length:
                    raise ValueError(f"{path} holds a NUL byte before line {lines[-1]}")
                column.append(text, expected)
        names = tuple(map(str.strip, first))
        self.names = names if self._is_header(names, line, header, known) else None
        if self.names is None:
            lines.insert(0, line)
            for column, cell in zip(self.columns, first, strict=True):
                column.prepend(cell)
        if not lines:
            raise ValueError(f"{path} has no rows below the names of its columns")
        self.lines = np.array(lines)

    def _records(self, separator: str, *, padded: bool) -> Iterator[tuple[Row, int]]:
        """Rows as the file has them, blank lines aside, and the lines where they end."""
        end = before = 0  # of the last row, and of the last that needed no reader
        reader: Any = None
        try:
            with open_file(self.path, "rt", encoding=self._encoding, newline="") as file:
                for line in file:
                    if padded or '"' in line:
                        break
                    end += 1
                    row = line.rstrip("\r\n").split(separator)
                    if len(row) > 1 or row[0].strip():
                        yield row, end
                else:
                    return
                before = end
                reader = csv.reader(
                    chain([line], file), delimiter=separator, strict=True, skipinitialspace=padded
                )
                for row in reader:
                    end = before + reader.line_num
                    if len(row) > 1 or (row and row[0].strip()):
                        yield row, end
        except csv.Error as error:
            lines = range(end + 1, before + reader.line_num + 1)
            raise csv.Error(f"{error}, {self._place(separator, lines)}") from None
        except UnicodeDecodeError as error:
            named = "UTF-8" if self._encoding == "utf-8-sig" else self._encoding
            raise ValueError(f"{self.path} is not text in {named}: {error}") from None
        except DAMAGED as error:
            raise ValueError(f"{self.path} is not a readable csv file: {error}") from None

    def _place(self, separator: str, lines: range) -> str:
        """Where a row that cannot be read went wrong: in which quotes, if in any."""
        with open_file(self.path, "rt", encoding=self._encoding, newline="") as file:
            text = "".join(islice(file, lines[0] - 1, lines[-1]))
        quoted = rf'(?:^|[\r\n{re.escape(separator)}])[ ]*(")(?:[^"]|"")*"?'
        begins = [match.start(1) for match in re.finditer(quoted, text)]
        if not begins:
            return f"in line {lines[-1]}"
        before = re.findall(r"\r\n?|\n", text[: begins[-1]])
        return f"in line {lines[-1]}, of the quotes that open in line {lines[0] + len(before)}"

    def _rows(self) -> Iterator[tuple[Row, int]]:
        first: tuple[int, int] | None = None
        empty: list[tuple[Row, int]] = []  # at the end of a file they are no rows
        try:
            for row, line in self._records(self.separator, padded=self._quotes_after_blanks()):
                first = first or (len(row), line)
                if len(row) != first[0]:
                    raise ValueError(
                        f"{self.path}, line {line} has {len(row)} fields where line {first[1]} has "
                        f"{first[0]}: {self._why(row)}"
                    )
                if not row[0].strip() and not any(map(str.strip, row)):
                    empty.append((row, line))
                    continue
                yield from empty
                empty.clear()
                yield row, line
        except csv.Error as error:
            raise ValueError(f"{self.path} is not a readable csv file: {error}") from None

    def _why(self, row: Row) -> str:
        if not row[-1].strip():
            return "the line ends with a separator"
        return (
            f"{self.separator!r} separates fields, text that has it must stand in quotes, and "
            "decimal commas are not read"
        )

    def _quotes_after_blanks(self) -> bool:
        """Whether some quoted cell begins with blanks, which would make its quotes text."""
        plain = (row for row, _ in self._records(self.separator, padded=False))
        return any(
            cell.lstrip(" ").startswith('"') for row in islice(plain, _LOOKED_AT) for cell in row
        )

    def _find_separator(self) -> str:
        fits: dict[str, int] = {}
        counts = []
        for separator in SEPARATORS:
            lengths: list[int] = []
            with suppress(csv.Error):
                rows = islice(self._records(separator, padded=True), _LOOKED_AT)
                lengths.extend(len(row) for row, _ in rows)
            counts.append(lengths[0] if lengths else 0)
            if counts[-1] > 1 and len(set(lengths)) == 1:
                fits[separator] = counts[-1]
        if len(fits) > 1:
            told = " or ".join(f"{separator!r} ({n} fields)" for separator, n in fits.items())
            raise ValueError(
                f"{self.path} may be separated by {told}: say which by separator= (--separator)"
            )
        found = next(iter(fits), SEPARATORS[int(np.argmax(counts))])
        self._refuse_blanks(found)
        return found

    def _refuse_blanks(self, separator: str) -> None:
        """Refuse rows that blanks split all alike, so that the separator is within numbers."""
        with open_file(self.path, "rt", encoding=self._encoding) as file:
            lines = list(islice(filter(None, map(str.split, file)), _LOOKED_AT))
        if len({len(cells) for cells in lines}) != 1 or len(lines[0]) < 2:
            return
        within = re.compile(rf"{NUMBER}{re.escape(separator)}{NUMBER}")
        if all(any(map(within.fullmatch, cells)) for cells in lines):
            raise ValueError(
                f"{self.path} may be separated by {separator!r} or by blanks ({len(lines[0])} "
                "fields): blanks and decimal commas are not read; if the former is meant, say so "
                "by separator= (--separator)"
            )

    def refuse_numbers(self, j: int, named: str | int) -> None:
        """Refuse a column whose cells are several numbers, unless the separator was told."""
        if self._told or not self.columns[j].all_numbers():
            return
        i, cell = next((i, c) for i, c in enumerate(self.columns[j]) if c not in MISSING)
        raise ValueError(
            f"{self.path}, line {self.lines[i]} has several numbers in one cell, {cell!r}, as all "
            f"rows have in column {named!r}: {self.separator!r} separates fields, and blanks and "
            "decimal commas are not read; if the cells are meant so, say by separator= "
            "(--separator) what separates them"
        )

    def _is_header(
        self, first: Sequence[str], line: int, header: bool | None, known: Sequence[str]
    ) -> bool:
        """Whether the first row is the names of the columns."""
        if header is not None:
            return header
        numbers = [j for j, cell in enumerate(first) if not is_word(cell) and cell not in MISSING]
        words = [j for j, cell in enumerate(first) if is_word(cell)]
        over = [j for j in words if self._has_numbers(j)]
        # Names are not values as well, nor empty but for an index.
        again = [j for j in words if j not in over and first[j] in set(self.columns[j])]
        empty = numbers and any(cell in MISSING for cell in first[1:])
        named = any(name in first and is_word(name) for name in known)
        if named and all(name in first for name in known):
            return True  # whoever asks for columns by these names says that they are names
        # pandas numbers columns that have no names, and years are names now and then.
        counted = [int(first[j][:18]) if first[j].isdecimal() else -1 for j in numbers]
        unclear = -1 not in counted and (
            not words
            or counted == numbers
            or (len(counted) > 1 and all(b - a == 1 for a, b in pairwise(counted)))
        )
        is_data = bool(again or empty or (numbers and not named and not unclear))
        is_names = bool(over or named)
        if is_data != is_names:
            return is_names
        if words and not numbers and not again:
            return True  # words over words
        told = [
            ", ".join(repr(first[j]) for j in places[:3]) + why
            for places, why in (
                (numbers, ""), (again, " over the same word"), (over, " over numbers"),
            )
            if places
        ]  # fmt: skip
        raise ValueError(
            f"{self.path}, line {line} may be names of columns or data, with {' and '.join(told)}: "
            "say which by header=True or header=False where it is read (--header or --no-header)"
        )

    def _has_numbers(self, j: int) -> bool:
        """Whether there are numbers, and no words, below the first row."""
        numbers = self.columns[j].numbers if len(self.columns[j]) else None
        return numbers is not None and not np.isnan(numbers).all()
