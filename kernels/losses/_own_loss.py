"""Losses of one margin whose functions are the user's; `_own_kernels` compiles them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._own_identity import own_identity, plain


@dataclass(frozen=True)
class OwnLoss:
    """A loss for `losses.pack`, made by `losses.scalar_loss`."""

    value: Callable[[float, float], float] = field(compare=False)
    gradient: Callable[[float, float], float] = field(compare=False)
    #: "binary" or "reals".
    labels: str
    #: Hashes of both functions, which stand for them.
    identities: tuple[str, str]

    def __str__(self) -> str:
        return "own"


def scalar_loss(
    value: Callable[[float, float], float],
    gradient: Callable[[float, float], float],
    *,
    labels: str = "reals",
) -> OwnLoss:
    """A loss of one margin, for `pack`, by two functions of your own.

    Parameters
    ----------
    value, gradient : callable
        ``value(t, y)``, the loss of the margin t = <a, w> with the label y, and ``gradient(t,
        y)``, its derivative in t: functions that Numba can compile, or has compiled. They take
        and return numbers; their own compilation options, such as ``fastmath``, do not count.
    labels : {"reals", "binary"}
        What labels are: any numbers, or 0 and 1.

    Returns
    -------
    OwnLoss

    Raises
    ------
    TypeError, ValueError
        Naming the argument: not a function, or one that refers to what cannot be told from
        others of its kind.

    Notes
    -----
    Functions made of arithmetic, comparisons within ``np.where``, `abs`, `max` and `min` of two
    numbers, and `exp`, `log`, `log1p` and `sqrt` of `math` or NumPy are computed for 8 rows at a
    time; others, with branches for instance, row by row.
    """
    if labels not in ("reals", "binary"):
        raise ValueError(f"labels must be 'reals' or 'binary', got {labels!r}")
    value, gradient = function_of("value", value), function_of("gradient", gradient)
    identities = identity_of("value", value), identity_of("gradient", gradient)
    return OwnLoss(value, gradient, labels, identities)


def function_of(name: str, function: Any) -> Callable[..., Any]:
    """The Python function of an argument, or TypeError."""
    function = plain(function)
    if not hasattr(function, "__code__"):
        raise TypeError(
            f"{name} must be a function that Numba can compile, got {type(function).__name__}"
        )
    return function  # type: ignore[no-any-return]


def identity_of(name: str, function: Any) -> str:
    """The hash of the function that is this argument, or TypeError."""
    try:
        return own_identity(function)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} {error}") from None
