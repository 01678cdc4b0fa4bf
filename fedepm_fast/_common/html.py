"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table with a row of headings; the first column is one of headings too."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><th>{escape(first)}</th>"
        + "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table>{_caption(caption)}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def pairs(rows: Iterable[tuple[str, str]], caption: str = "") -> str:
    """Names and what they stand for, as a table without headings."""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table>{_caption(caption)}<tbody>{body}</tbody></table>"


def _caption(text: str) -> str:
    return f'<caption style="text-align:left">{escape(text)}</caption>' if text else ""
