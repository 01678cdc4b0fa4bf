"""Losses of linear models: pointwise functions of margins and labels.

The margin of a row a is ``t = <a, w>``. The multinomial loss has a margin for each of K classes;
its parameter w is the coefficients of class 0, then those of class 1, and so on:
``coefficients.ravel()`` of an array (K, n).

A built-in loss is one file here, named after it, with its class and its step on vectors;
``OBJECTIVES`` has them by name, and a user's own beside them.
"""

from __future__ import annotations

from typing import Any

from ._base import OBJECTIVES, REGULARIZERS, Array, Objective, as_objective, packing

#: The class of every built-in loss, by its own name.
_CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in map(OBJECTIVES.__getitem__, OBJECTIVES.built_in())
}
globals().update(_CLASSES)

__all__ = ["OBJECTIVES", "REGULARIZERS", "Array", "Objective", "as_objective", "packing"]
__all__ += [*_CLASSES]


def __getattr__(name: str) -> Any:  # for type checkers: classes are there by now
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
