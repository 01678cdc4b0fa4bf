"""Docstrings of classes that share parameters: each names all of its own and its base's."""

from __future__ import annotations

import inspect
import re
from dataclasses import Field

_SECTION = re.compile(r"(?m)^(?=\S[^\n]*\n-{3,}$)")
_PARAMETERS = "Parameters\n----------\n"


def inherit_parameters(cls: type, base: type) -> None:
    """Put the parameters of `base` that `cls` does not describe itself before its own."""
    if not (vars(cls).get("__doc__") and base.__doc__):  # as under -OO
        return
    sections = _sections(cls)
    at = next((i for i, s in enumerate(sections) if s.startswith(_PARAMETERS)), None)
    own = "" if at is None else sections.pop(at)
    theirs = next((s for s in _sections(base) if s.startswith(_PARAMETERS)), "")
    mine = _entries(own)
    described = {name for names in mine for name in names} | _no_arguments(cls, base)
    entries = {n: text for n, text in _entries(theirs).items() if not {*n} & described} | mine
    sections.insert(at or 1, _PARAMETERS + "\n".join(entries.values()))
    cls.__doc__ = "\n\n".join(sections) + "\n"


def _no_arguments(cls: type, base: type) -> set[str]:
    """Fields that `cls`, not a dataclass yet, or `base` has and takes no values of."""
    own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    return {
        name for name, f in (getattr(base, "__dataclass_fields__", {}) | own).items() if not f.init
    }


def _sections(cls: type) -> list[str]:
    """The docstring of a class: what is before its first section, and every section."""
    parts = _SECTION.split(inspect.cleandoc(cls.__doc__ or ""))
    return [part.strip("\n") for part in parts]


def _entries(section: str) -> dict[tuple[str, ...], str]:
    """The text of every entry, by the parameters that it describes."""
    found = re.split(r"(?m)^(?=\S)", section.removeprefix(_PARAMETERS).strip("\n"))
    heads = [tuple(text.partition("\n")[0].partition(" :")[0].split(", ")) for text in found]
    return {h: text.rstrip("\n") for h, text in zip(heads, found, strict=True) if text.strip()}
