"""Text for people, as wide as their terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable

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
