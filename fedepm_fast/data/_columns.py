"""Tables whose columns are told apart: which is the label, the client, a feature."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.text import first_few
from .._common.validation import (
    ArgumentValueError,
    check_int,
    numbers_of_column,
    ordered_categories,
)
from ._cells import is_missing, is_word
from ._csv import Text
from ._formats import beginning, has_svmlight

#: Names that columns without one have, as written and as pandas reads them.
_NAMELESS = re.compile(r"(Unnamed: [0-9]+(\.[0-9]+)?(_level_[0-9]+)?)?")
#: A number with a decimal comma.
_COMMA = re.compile(r"'[+-]?[0-9]+,[0-9]+'")
_WHOLE = re.compile(r"[+-]?[0-9]+")


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


class Held:
    """A column of an array or a frame; `_cells.Cells` is one of text."""

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


class Columns(NamedTuple):
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
                has = first_few(names) or f"{len(self.columns)} columns without names"
                raise ArgumentValueError(
                    argument, f"must be a column of {self.path}, got {wanted!r}; it has {has}"
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
            if self.text is not None and has_svmlight(beginning(path)):
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
            told = first_few((self.called(j) for j in odd), 10)
            raise ValueError(
                f"{path} must have numbers in its feature columns, but not so: {told}{where}"
                f"{_instead(where, who)}"
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


def _instead(where: str, who: int | None) -> str:
    """What takes columns that are no numbers."""
    if _COMMA.search(where):
        of_fit = "fit, of read_table(..., decimal=',') (fedepm fit --decimal ,)"
        return f"; decimal commas are read by {of_fit}"
    if who is not None:
        return "; categories and gaps are taken by fit (fedepm fit)"
    return (
        "; client_column names who holds a row, in place of a number of clients or a partition; "
        "other categories, and gaps, are taken by fit (fedepm fit)"
    )
