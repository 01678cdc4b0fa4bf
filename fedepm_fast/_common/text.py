"""Text for people, as wide as their terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

#: Where the output is no terminal, and has no width of its own.
WIDTH = 80


def terminal_width() -> int | None:
    """Columns of the terminal that is written to; None where it is none."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def fill(text: str, indent: str = "", width: int | None = None) -> str:
    """A paragraph whose further lines begin with `indent`; words stay whole."""
    return textwrap.fill(
        text, width or terminal_width() or WIDTH, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def pairs(rows: Iterable[tuple[str, str]], margin: str = "", width: int | None = None) -> list[str]:
    """Names and what they stand for, side by side, long ones continued below themselves."""
    rows = list(rows)
    room = max((len(name) for name, _ in rows), default=0)
    indent = " " * (len(margin) + room + 2)
    return [fill(f"{margin}{name:<{room}}  {text}", indent, width).rstrip() for name, text in rows]


def aligned(rows: Sequence[Sequence[str]], margin: str = "") -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    rooms = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        margin
        + "  ".join(
            cell.ljust(room) if j == 0 else cell.rjust(room)
            for j, (cell, room) in enumerate(zip(row, rooms, strict=True))
        ).rstrip()
        for row in rows
    ]


def counted(n: int, noun: str) -> str:
    """A number of things, of which one is in the singular."""
    return f"{n} {plural(noun, n)}"


def plural(noun: str, n: int) -> str:
    """The noun of so many things."""
    return noun if n == 1 else f"{noun}s"


def span(low: int, high: int) -> str:
    """A number, or from which to which."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def first_few(names: Iterable[object], most: int = 20) -> str:
    """The first of some names, and how many more there are."""
    told = list(map(str, names))
    more = f", ... and {len(told) - most:,} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more


def shortened(text: str, room: int) -> str:
    """A text in at most so many characters: dots stand for its middle."""
    if len(text) <= room:
        return text
    last = (room - 1) // 2
    return f"{text[: room - 1 - last]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - last :]}"
