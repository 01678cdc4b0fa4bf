"""Levels of a category: what cells are called, and what is no category."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Collection, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._common.text import first_few
from .._common.validation import ArgumentError, ArgumentTypeError, ArgumentValueError
from ..data._cells import TRUTH, is_word

#: Levels of a preparation's own.
OTHER = "(other)"
MISSING_LEVEL = "(missing)"
#: How decimal commas are read, in Python.
_COMMA = "decimal=','"
#: Above so many numbers among its levels, a column is one of numbers with a few words.
_CODES = 10
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:[.,'][0-9]{3})+(?:[.,][0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}.*")


class Levels(NamedTuple):
    """The levels of a column, each a text, and which of them a cell is."""

    codes: NDArray[np.int32]
    """Shape (d,), indices of `names`; -1 where a cell is missing."""
    names: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """How many cells each level has, in the order of the names; levels without one left out."""
        held = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return {name: int(n) for name, n in zip(self.names, held, strict=True) if n}


def level_text(cell: Any) -> str | None:
    """What a cell is called as a level; None where it is missing.

    Blanks around text are not part of it, letters with accents are one character each, and
    whole numbers have no decimals: ``2.0`` is level ``2``.
    """
    if isinstance(cell, str):
        text = unicodedata.normalize("NFC", cell).strip()
        return text.lower() if text.lower() in TRUTH else text or None
    if is_missing(cell):
        return None
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, Integral) or float(cell).is_integer():
        return str(int(cell))
    return repr(float(cell))


def category_text(category: Any) -> str | None:
    """What a category of a frame is called, which may be an interval or a date as well."""
    known = isinstance(category, (str, Real, Decimal, np.bool_)) or category is None
    return level_text(category if known else str(category))


def is_missing(cell: Any) -> bool:
    """Whether a cell that is no text is missing.

    Raises
    ------
    TypeError
        If it is neither missing nor a number.
    """
    if cell is None:
        return True
    try:
        if bool(cell != cell):
            return True
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True
    if isinstance(cell, (Real, Decimal, np.bool_)):
        return False
    raise ArgumentTypeError(
        "table", f"must hold numbers, text or booleans, got {cell!r} of type {type(cell).__name__}"
    )


def in_lower_case(levels: Levels) -> Levels:
    """Levels that differ in upper and lower case only as one, in lower case."""
    return named(levels.codes, [name.lower() for name in levels.names])


def named(codes: NDArray[np.int32], texts: Sequence[str | None]) -> Levels:
    """Levels by their texts: equal ones are one level, None is missing."""
    index: dict[str, int] = {}
    table = [-1 if text is None else index.setdefault(text, len(index)) for text in texts]
    if table == list(range(len(table))):
        return Levels(codes, tuple(index))
    lookup = np.array([*table, -1], dtype=np.int32)  # the last is that of code -1
    return Levels(lookup[codes], tuple(index))


def check_words(name: str, levels: Collection[str]) -> None:
    """Refuse dates, and numbers with a few words among them, as a category nobody declared."""
    as_levels = f"or say that they are levels, by {_kind(name, 'category')}"
    if levels and all(map(_DATE.fullmatch, levels)):
        raise ArgumentValueError(
            f"column {name!r}",
            f"must be numbers or levels, got dates such as {next(iter(levels))!r}: "
            f"{leave_out(name)}, give days since a date, as numbers, {as_levels}",
        )
    if len(levels) > _CODES and (unit := _unit(levels)) is not None:
        raise ArgumentValueError(
            f"column {name!r}",
            f"must be numbers or levels, got {len(levels)} different numbers with {unit}, such as "
            f"{next(iter(levels))!r}: write plain numbers, {leave_out(name)}, {as_levels}",
        )
    words = [level for level in levels if not _is_number(level) and level not in TRUTH]
    numbers = len(levels) - len(words)
    if not words or numbers <= _CODES or 10 * len(words) > numbers:
        return
    told = first_few(map(repr, words), 5)
    comma = any("," in level for level in levels if level not in words)
    raise ArgumentValueError(
        f"column {name!r}",
        f"must be numbers or levels, got {numbers} different numbers and {told}: say what stands "
        f"for a missing cell of a file, by {_reading('na=[...]', *[_COMMA] * comma)} "
        f"({' and '.join(['--na', *['--decimal ,'] * comma])}), {as_levels}",
    )


def _unit(levels: Collection[str]) -> str | None:
    """What all levels have that are numbers but for it, such as ``%``; None where they are not."""
    units = {level.lstrip("+-0123456789.,'") for level in levels}
    if len(units) != 1 or not all(level[:1].isdigit() or level[:1] in "+-" for level in levels):
        return None
    (unit,) = units
    if unit.strip() and not any(char.isdigit() for char in unit):
        return repr(unit.strip())
    grouped = not unit and any(map(_GROUPED.fullmatch, levels))
    return "thousands separators" if grouped and not all(map(_is_number, levels)) else None


def check_count(name: str, levels: Collection[str], most: int) -> None:
    """Refuse a category of too many levels: free text, or numbers of persons."""
    if len(levels) <= most:
        return
    hint = f"{leave_out(name)}, or allow more by Preparation(max_levels=...)"
    if all(map(_is_number, levels)):
        hint = f"if its cells are numbers, say so by {_kind(name, 'numeric')}"
        if any("," in level for level in levels):
            read = f"{_reading(_COMMA)} (--decimal ,)"
            hint = f"if its cells are numbers of a file, read it by {read}"
    raise ArgumentValueError(
        f"column {name!r}",
        f"must have at most max_levels={most} levels as a category, got {len(levels)}, such as "
        f"{', '.join(map(repr, list(levels)[:3]))}: {hint}",
    )


def raise_all(errors: Sequence[ArgumentError]) -> NoReturn:
    """Raise an error, or one of all of them: so that a table is mended once."""
    if len(errors) == 1:
        raise errors[0]
    lines = "".join(f"\n({k}) {error}" for k, error in enumerate(errors, 1))
    raise ArgumentValueError("table", f"has {len(errors)} columns that cannot be used:{lines}")


def same_but_for_case(levels: Collection[str]) -> list[list[str]]:
    """Levels that differ in upper and lower case only."""
    found: dict[str, list[str]] = {}
    for level in levels:
        found.setdefault(level.casefold(), []).append(level)
    return [alike for alike in found.values() if len(alike) > 1]


def _is_number(level: str) -> bool:
    """Whether a level reads as a number, with a decimal point or comma."""
    return not is_word(level.replace(",", ".", 1))


def leave_out(name: str) -> str:
    """How a column is left out, in Python and on the command line."""
    return f"leave it out by Preparation(drop=[{name!r}]) (--drop {shlex.quote(name)})"


def _kind(name: str, kind: str) -> str:
    """How a column's kind is declared, likewise."""
    declared = f"Preparation(kinds={{{name!r}: {kind!r}}})"
    return f"{declared} (--kind {shlex.quote(f'{name}={kind}')})"


def if_decimal(cell: Any) -> str:
    """What reads a cell of a file that is a number but for its decimal comma."""
    if not (isinstance(cell, str) and "," in cell and _is_number(cell)):
        return ""
    return f": decimal commas are read by {_reading(_COMMA)} (--decimal ,)"


def _reading(*options: str) -> str:
    """How a file is read otherwise, in Python."""
    return f"read_table(..., {', '.join(options)})"
