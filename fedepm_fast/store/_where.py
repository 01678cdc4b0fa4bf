"""Conditions on runs, ``local_steps = 12``: as mappings, or as text from a command line."""

from __future__ import annotations

import numbers
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .._common.grid import as_axis, is_axis

Where = Mapping[str, Any] | Iterable[str] | None

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Values that a message lists at most.
_SHOWN = 10
#: A value, in quotes or not.
_ITEM = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*,""")
_NUMBERS = {int: r"[+-]?\d+", float: r"[^_]+"}
_WORDS = {"true": True, "false": False, "none": None, "null": None}


class Condition(NamedTuple):
    """One condition; of several values one must hold."""

    name: str
    relation: str
    values: list[Any]
    texts: list[str] | None = None
    """The values as they were typed, if they were."""

    def on(self, found: Iterable[Any]) -> Condition:
        """The condition on a column that holds such values, of which it must compare the kind.

        What was typed is text for a column of text, even if it looks like a number.
        """
        kinds: dict[Any, Any] = {}
        found = list(found)
        for value in found:
            kinds.setdefault(_kind(value), value)
        kinds.pop("nothing", None)
        if not kinds or None in kinds:
            return self
        values = []
        for value, text in zip(self.values, self.texts or self.values, strict=True):
            kind = _kind(value)
            if isinstance(text, str) and text in found:  # "none" may be a name
                values.append(text)
            elif kind in ("nothing", *kinds) or ("truth" in kinds and value in (0, 1)):
                values.append(value)
            elif "text" in kinds and isinstance(text, str):
                values.append(text)
            else:
                example = next(iter(kinds.values()))
                raise ValueError(
                    f"where must compare {self.name}, such as {example!r}, with values of its "
                    f"kind, got {value!r}"
                )
        return self._replace(values=values)

    def absent(self, found: Iterable[Any]) -> str | None:
        """That a column of names or numbers, holding such values, has none that is asked for."""
        stored = sorted({v for v in found if v is not None}, key=lambda v: (isinstance(v, str), v))
        truth = any(isinstance(v, bool) for v in stored)
        if not stored or truth or self.relation not in ("=", "!="):
            return None
        asked = [v for v in self.on(stored).values if v is not None and v not in stored]
        if not asked:
            return None
        more = ", ..." if len(stored) > _SHOWN else ""
        return (
            f"no run has {self.name} = {' or '.join(map(str, asked))}; "
            f"stored: {', '.join(map(str, stored[:_SHOWN]))}{more}"
        )

    def holds(self, found: Any) -> bool:
        """Whether a value satisfies it; an absent one, None, is only equal to None.

        Python compares integers of any size, and integers with floats, exactly.
        """
        if self.relation in ("=", "!="):
            equal = any(found == value for value in self.values)
            return equal == (self.relation == "=")
        (value,) = self.values
        if found is None:
            return False
        try:
            return _OPERATORS[self.relation](found, value)
        except TypeError:  # a column of several kinds
            return False


def _kind(value: Any) -> str | None:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, numbers.Number):
        return "number"
    return "text" if isinstance(value, str) else None


def conditions(where: Where) -> list[Condition]:
    """Conditions from ``{"local_steps": [4, 12]}`` or ``["local_steps=4,12", "epsilon>=0.3"]``.

    Raises
    ------
    ValueError, TypeError
        If `where` is neither.
    """
    if where is None:
        return []
    if isinstance(where, Mapping):
        return [
            # NumPy's scalars compare as float64.
            Condition(name, "=", [v.item() if isinstance(v, np.generic) else v for v in values])
            for name, values in ((str(n), as_axis(n, value)) for n, value in where.items())
        ]
    if isinstance(where, str) or not is_axis(where):
        raise TypeError(f"where must be a mapping or a list of conditions, got {where!r}")
    return [_parse(text) for text in where]


def _parse(text: str) -> Condition:
    match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|!=|==?|<|>)\s*(.*?)\s*", str(text))
    if match is None or not match[3]:
        raise ValueError(
            f"where must be conditions such as local_steps=12 or epsilon>=0.3, got {text!r}"
        )
    relation = "=" if match[2] == "==" else match[2]
    items = _ITEM.findall(match[3] + ",")
    texts = [item[1:-1] if re.fullmatch(r"""(["']).*\1""", item) else item for item in items]
    values = [_value(part) for part in texts]
    if len(values) > 1 and relation not in ("=", "!="):
        raise ValueError(f"where takes several values for = and != only, got {text!r}")
    return Condition(match[1], relation, values, texts)


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    return as_number(text)


def as_number(text: str) -> Any:
    """The number that a text is, or the text; Python itself takes 1_0 for 10."""
    for kind, digits in _NUMBERS.items():
        with suppress(ValueError):
            if re.fullmatch(digits, text):
                return kind(text)
    return text
