"""A table of any kind as named columns of one length."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.text import first_few, plural
from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    ordered_categories,
    refuse_masked,
    shown,
)
from ..data._cells import INTEGER
from ._columns import (
    CodedColumn,
    Column,
    NumberColumn,
    RefusedColumn,
    WordColumn,
    following,
)
from ._levels import leave_out

#: The name of the column of ones.
INTERCEPT = "(intercept)"
#: Types of time, what they are called, and what says the same in numbers.
_OF_TIME = tuple(
    (re.compile(kind, re.IGNORECASE), called, instead)
    for kind, called, instead in (
        ("duration|timedelta", "lengths of time", "days or hours"),
        ("date|period", "dates", "days since a date"),
        ("time", "times of day", "hours"),
    )
)


class Table:
    """Named columns of one length, read once: cells stay where they are until someone asks.

    Parameters
    ----------
    columns : mapping of str to Column
    note : mapping, optional
        What was made of a file: its format, separator and header; and the options by which a CSV
        file was ``read``, if they were given.
    """

    def __init__(self, columns: Mapping[str, Column], note: Mapping[str, Any] | None = None):
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            first, *_ = lengths
            other = next(name for name in lengths if lengths[name] != lengths[first])
            raise ArgumentValueError(
                "table",
                f"must have columns of one length, got {lengths[first]} cells in {first!r} and "
                f"{lengths[other]} in {other!r}",
            )
        self._columns = dict(columns)
        self._length = next(iter(lengths.values()), 0)
        self.note = dict(note or {})

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __repr__(self) -> str:
        return f"Table of {len(self):,} {plural('row', len(self))}: {', '.join(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(self._columns)

    def column(self, name: str, argument: str = "column") -> Column:
        """A column by its name.

        Raises
        ------
        ValueError
            Naming `argument`, if there is none of that name.
        """
        found = self._columns.get(clean(name) if isinstance(name, str) else name)
        if found is None:
            has = first_few(self.names) or "none"
            raise ArgumentValueError(
                argument, f"must be a column of the table, got {name!r}; it has {has}"
            )
        return found

    def values(self, name: str, argument: str = "column") -> NDArray[Any]:
        """The cells of a column without missing ones, such as labels.

        Parameters
        ----------
        name : str
        argument : str
            What errors call the column.

        Returns
        -------
        ndarray of shape (d,)
            float64, bool or text, whichever the column is.

        Raises
        ------
        ValueError
            If there is no such column, or a cell is missing.
        """
        column = self.column(name, argument)
        missing = column.missing()
        if missing.any():
            row = int(np.argmax(missing))
            raise ArgumentValueError(
                argument,
                f"{name!r} must not be missing, but it is in {column.place(row)} "
                f"({int(missing.sum())} such cells)",
            )
        if column.kind == "category":
            return np.array(column.levels.names)[column.levels.codes]
        return column.numbers.astype(bool) if column.kind == "boolean" else column.finite()

    def without(self, names: Iterable[str]) -> Table:
        """The table without some columns, which it must have."""
        left_out = {self.column(name, "drop").name for name in names}
        return Table({n: c for n, c in self._columns.items() if n not in left_out}, self.note)

    def take(self, rows: ArrayLike) -> Table:
        """The table of some rows, given by their indices or a mask."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.intp)
        found = following(chosen)
        return Table({n: c.take(found) for n, c in self._columns.items()}, self.note)

    def split(self, by: str) -> dict[str, Table]:
        """The tables of clients, which a column names, without that column.

        Parameters
        ----------
        by : str
            A column of names, which are text: ``0045`` of a file and ``45`` are two.

        Returns
        -------
        dict of str to Table
            By the clients' names; sorted, as numbers if all are whole ones.

        Raises
        ------
        ValueError
            If there is no such column, or a cell is missing.
        """
        column = self.column(by, "client")
        codes, names = column.levels
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise ArgumentValueError(
                "client", f"{by!r} must not be missing, but it is in {column.place(row)}"
            )
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
        rest = self.without([by])
        parts = dict(zip(names, np.split(order, ends), strict=True))
        return {name: rest.take(parts[name]) for name in in_order(names) if len(parts[name])}


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted; as numbers if all are whole ones."""
    given = list(names)
    whole = all(map(INTEGER.fullmatch, given))
    return sorted(given, key=int) if whole else sorted(given)


def clean(name: str) -> str:
    """A name without blanks around it, letters with accents one character each."""
    return unicodedata.normalize("NFC", name).strip()


def unique(names: Iterable[Any]) -> list[str]:
    """Names of columns as text, which all differ.

    Raises
    ------
    ValueError
        If one is empty, that of the intercept, or there twice.
    """
    found: list[str] = []
    seen: set[str] = set()
    for given in names:
        name = clean(str(given))
        if not name or name == INTERCEPT:
            raise ArgumentValueError("table", f"must not have a column of the name {name!r}")
        if name in seen:
            raise ArgumentValueError(
                "table", f"must have columns of different names, got {name!r} twice"
            )
        found.append(name)
        seen.add(name)
    return found


def columns_of_array(array: NDArray[Any], names: Sequence[str] | None = None) -> dict[str, Column]:
    """The columns of an array of two dimensions, or of a structured one."""
    if array.dtype.names is not None and array.ndim == 1:
        if names is not None:
            raise ArgumentValueError("names", "are those of the structured array, got others")
        return {name: column_of(name, array[name]) for name in unique(array.dtype.names)}
    if array.ndim != 2:
        raise ArgumentValueError("table", f"must have 2 dimensions, got shape {array.shape}")
    if isinstance(names, str):
        raise ArgumentTypeError("names", f"must be a sequence of names, got {names!r}")
    told = unique(names if names is not None else (f"x{j + 1}" for j in range(array.shape[1])))
    if len(told) != array.shape[1]:
        raise ArgumentValueError(
            "names", f"must be one for each of {array.shape[1]} columns, got {len(told)}"
        )
    return {name: column_of(name, array[:, j]) for j, name in enumerate(told)}


def column_of(name: str, cells: Any) -> Column:
    """A column of an array or a list.

    Raises
    ------
    TypeError, ValueError
        Naming the column, if its cells are no vector.
    """
    refuse_masked(f"column {name!r}", cells)
    if isinstance(cells, (str, bytes)) or not hasattr(cells, "__len__"):
        raise ArgumentTypeError(
            f"column {name!r}", f"must be a list or an array, got {shown(cells)}"
        )
    if (order := ordered_categories(cells)) is not None:
        return CodedColumn(name, getattr(cells, "array", cells).codes, order, True)
    if hasattr(cells, "__array__"):
        array = np.asarray(cells)
    else:
        kinds = set(map(type, cells))
        if not (kinds <= {int, float} or kinds == {bool}):
            return WordColumn(name, list(cells))
        try:
            array = np.array(cells)
        except OverflowError:
            array = np.array(cells, dtype=np.float64)
    if array.ndim != 1:
        raise ArgumentValueError(
            f"column {name!r}",
            f"must have one dimension, got shape {array.shape}: a dict is of columns, and clients' "
            "tables are one table, with a column that says who holds a row",
        )
    if array.dtype.kind in "buif":
        return NumberColumn(name, array)
    if array.dtype.kind in "OUT":
        return WordColumn(name, array.tolist())
    return refused(name, len(array), str(array.dtype))


def refused(name: str, length: int, dtype: str) -> RefusedColumn:
    """A column of dates or of another type that is not taken."""
    hint, what = leave_out(name), dtype
    for kind, called, instead in _OF_TIME:
        if kind.search(dtype):
            hint, what = f"{hint}, or give {instead}, as numbers", called
            break
    return RefusedColumn(name, length, f"must be numbers, text or booleans, got {what}: {hint}")
