"""Losses as functions that the kernels are compiled with; `_steps` compiles them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._boundary import ArgumentTypeError, ArgumentValueError
from .._identity import own_identity, plain
from .._sources import is_ours


@dataclass(frozen=True, eq=False)
class Loss:
    """A loss for `losses.pack`, made by `losses.lanes.lane_loss` or `losses.scalar_loss`.

    Two are equal whose functions have the same hashes and whose labels are the same.
    """

    name: str
    """What messages call it."""
    functions: tuple[Callable[..., Any], ...]
    """A step and perhaps its settlement, or, if `scalar`, a value and a gradient."""
    identities: tuple[str, ...]
    """Hashes of the functions, which stand for them."""
    labels: str
    """"binary", "classes" (a margin for each), "counts" or "reals"."""
    scalar: bool = False
    """Whether the functions are of numbers."""
    no_margin: float = 0.0
    """A margin whose loss and derivative are exactly zero, with a target of `no_target`."""
    no_target: float = 0.0
    folds: bool = False
    """Whether the target is a sign that is folded into the row."""
    quadratic: bool = False
    """Whether t times margin, target and parameter give t^2 times the loss."""

    @cached_property
    def may_raise(self) -> bool:
        """Whether a function is not the package's, and so may raise."""
        return not all(map(is_ours, self.functions))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        told = self.labels, self.scalar, self.folds, self.quadratic
        return self.identities, *told, repr((self.no_margin, self.no_target))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loss) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.name


def lane_loss(
    name: str,
    step: Callable[..., Any],
    settle: Callable[..., Any] | None = None,
    *,
    labels: str = "reals",
    no_margin: float = 0.0,
    no_target: float = 0.0,
    folds: bool = False,
    quadratic: bool = False,
) -> Loss:
    """A loss by its step on the lanes of vectors.

    Parameters
    ----------
    name : str
        What messages call it.
    step : callable
        ``residual, total, product = step(margin, target, parameter, total, product)``: the
        derivatives of the loss in the margins of 8 rows (float32: 16), and the sums with their
        losses added. What is cheaper to multiply than to add goes to `product`, which starts at
        zero. With labels "classes" a row has a margin for each class: ``total, product =
        step(work, at, stride, outputs, target, parameter, total, product)`` replaces the margins,
        the k-th ones at ``at + k * stride`` of `work`, by the derivatives.
    settle : callable, optional
        ``total = settle(total, product)`` moves what `product` holds into `total`, after 64 steps
        at most.
    labels : {"reals", "counts", "binary", "classes"}
        What labels are: any numbers, such as are at least 0, 0 and 1, or 0 to K - 1.
    no_margin, no_target : float
        A margin and a target whose loss and derivative are exactly zero: they stand where there is
        no row. Further margins are -inf there.
    folds : bool
        Whether the loss is one of the signed margin ``(1 - 2b) t``, for binary labels b: rows are
        multiplied by that sign, and `target` is not to be looked at.
    quadratic : bool
        Whether s times margin, target and parameter give s^2 times the loss: sums that overflow
        are formed anew of smaller numbers.

    Returns
    -------
    Loss
    """
    functions = (step,) if settle is None else (step, settle)
    identities = tuple(own_identity(f) for f in functions)
    return Loss(name, functions, identities, labels, False, no_margin, no_target, folds, quadratic)


def scalar_loss(
    value: Callable[[float, float], float],
    gradient: Callable[[float, float], float],
    *,
    labels: str = "reals",
) -> Loss:
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
    Loss

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
        raise ArgumentValueError("labels", f"must be 'reals' or 'binary', got {labels!r}")
    functions = function_of("value", value), function_of("gradient", gradient)
    identities = identity_of("value", functions[0]), identity_of("gradient", functions[1])
    return of_numbers(functions, identities, labels)


def of_numbers(
    functions: tuple[Callable[..., Any], ...], identities: tuple[str, ...], labels: str
) -> Loss:
    """The loss of a value and a gradient of numbers, of which these are the hashes."""
    return Loss("own", functions, identities, labels, scalar=True, no_target=np.nan)


def function_of(name: str, function: Any) -> Callable[..., Any]:
    """The Python function of an argument, or TypeError."""
    function = plain(function)
    if not hasattr(function, "__code__"):
        raise ArgumentTypeError(
            name, f"must be a function that Numba can compile, got {type(function).__name__}"
        )
    return function  # type: ignore[no-any-return]


def identity_of(name: str, function: Any) -> str:
    """The hash of the function that is this argument, or TypeError."""
    try:
        return own_identity(function)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} {error}") from None
