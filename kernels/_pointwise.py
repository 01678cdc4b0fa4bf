"""Pointwise losses on vectors of margins, as the layouts of `losses` call them.

A loss has a *step*, ``residual, total, product = step(margin, target, total, product)``:
the derivative at the margins, and sums that grow by the losses; ``total = settle(total,
product)`` moves what `product` holds into `total`, after which `product` starts at zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._jit import device
from ._simd import absolute, fma, maximum, select, splat
from .vecmath import vector_exp_negative, vector_log1p


class Pointwise(NamedTuple):
    """A loss, for the factories of kernels."""

    step: Any
    settle: Any
    #: A margin whose loss and derivative are exactly zero, with a target of `no_target`.
    no_margin: float
    no_target: float
    #: Whether the target is a sign that can be folded into the row.
    folds: bool


@device
def _logistic_step(margin: Any, target: Any, total: Any, product: Any) -> Any:
    """Softplus of the signed margin s; the target, folded into it, is not looked at.

    ``softplus(s) = max(s, 0) + log(1 + e)`` with ``e = exp(-abs(s))``. Instead of a logarithm
    for every margin, `product` is (1 + e_1)(1 + e_2)... - 1. Kept without its 1 it has a small
    relative error even where every e is tiny; it grows by one fused operation.
    """
    e = vector_exp_negative(-absolute(margin))
    one_e = e + 1.0
    sigmoid = select(margin < 0.0, e, 1.0) / one_e
    # NaN is the second operand of `maximum`, and stays.
    return sigmoid, total + maximum(splat(margin, 0.0), margin), fma(product, one_e, e)


@device
def _logistic_settle(total: Any, product: Any) -> Any:
    return total + vector_log1p(product)


@device
def _squares_step(margin: Any, target: Any, total: Any, product: Any) -> Any:
    residual = margin - target
    return residual, fma(0.5 * residual, residual, total), product


@device
def _squares_settle(total: Any, product: Any) -> Any:
    return total


LOGISTIC = Pointwise(_logistic_step, _logistic_settle, float("-inf"), 1.0, True)
LEAST_SQUARES = Pointwise(_squares_step, _squares_settle, 0.0, 0.0, False)

POINTWISE = {"logistic": LOGISTIC, "least_squares": LEAST_SQUARES}
