"""Losses on vectors of margins, as the layouts of `losses` call them.

A row has one margin, or one for each class. The margins of as many rows as a vector has lanes
stand in an array `work`, the k-th margins at ``at + k * stride``. A loss has a *step*, ``total,
product = step(work, at, stride, outputs, target, parameter, total, product)``, which replaces
the margins by the derivatives of the loss and adds the losses to the sums; ``total =
settle(total, product)`` moves what `product` holds into `total`, after which `product` starts
at zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._jit import device
from .._simd import absolute, fma, load, maximum, minimum, select, splat, store
from ..vecmath import vector_exp_negative, vector_log1p


class Pointwise(NamedTuple):
    """A loss, for the factories of kernels."""

    step: Any
    settle: Any
    #: ``outputs(constants)``, the number of margins of a row.
    outputs: Any
    #: A margin whose loss and derivative are exactly zero, with a target of `no_target`; any
    #: further margins are -inf.
    no_margin: float = 0.0
    no_target: float = 0.0
    #: Whether the target is a sign that can be folded into the row.
    folds: bool = False
    #: Name of the loss's one parameter, and its value where none is given.
    parameter: str | None = None
    default: float = 0.0
    #: What labels are: "binary" (0 and 1), "classes" (0 to K - 1) or "reals".
    labels: str = "reals"
    #: Whether t times margin, target and parameter give t^2 times the loss.
    quadratic: bool = False


@device
def hide(work: Any, at: Any, stride: Any, outputs: Any, held: Any, no_margin: Any) -> None:
    """Replace the margins outside the mask `held` by such as add nothing."""
    store(work, at, select(held, load(work, at), no_margin))
    for k in range(1, outputs):
        j = at + k * stride
        store(work, j, select(held, load(work, j), -np.inf))


@device
def _keep(total: Any, product: Any) -> Any:
    return total


@device
def _one(constants: Any) -> Any:
    return 1


def _of_one_margin(function: Any) -> Any:
    """The step of ``residual, total, product = function(margin, target, parameter, ...)``."""

    @device
    def step(
        work: Any,
        at: Any,
        stride: Any,
        outputs: Any,
        target: Any,
        parameter: Any,
        total: Any,
        product: Any,
    ) -> Any:
        margin = load(work, at)
        residual, total, product = function(margin, target, parameter, total, product)
        store(work, at, residual)
        return total, product

    return step


# One margin -----------------------------------------------------------------------------


@device
def _logistic(margin: Any, target: Any, parameter: Any, total: Any, product: Any) -> Any:
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
def _squared_hinge(margin: Any, target: Any, parameter: Any, total: Any, product: Any) -> Any:
    """The square of ``max(1 + s, 0)`` of the signed margin s."""
    short = maximum(splat(margin, 0.0), margin + 1.0)
    return 2.0 * short, fma(short, short, total), product


@device
def _squares(margin: Any, target: Any, parameter: Any, total: Any, product: Any) -> Any:
    residual = margin - target
    return residual, fma(0.5 * residual, residual, total), product


@device
def _huber(margin: Any, target: Any, parameter: Any, total: Any, product: Any) -> Any:
    """With c the residual r clipped at +-delta the loss is ``c * (r - c/2)``, and c its slope."""
    residual = margin - target
    slope = maximum(-parameter, minimum(parameter, residual))
    return slope, fma(slope, fma(splat(slope, -0.5), slope, residual), total), product


# A margin for each class ----------------------------------------------------------------


@device
def _classes(constants: Any) -> Any:
    return int(constants[0])


@device
def _multinomial_step(
    work: Any,
    at: Any,
    stride: Any,
    outputs: Any,
    target: Any,
    parameter: Any,
    total: Any,
    product: Any,
) -> Any:
    """Cross entropy of the softmax; the target is the number of the true class.

    With T the largest margin and ``e_k = exp(t_k - T)`` the loss is ``T - t_b + log(sum e)``.
    The sum without its 1 is the others' part and ``e_b - 1``, which is exactly zero where the
    true class b has the largest margin: small losses and small residuals keep their digits.
    """
    largest = true = load(work, at)
    for k in range(1, outputs):
        margin = load(work, at + k * stride)
        largest = maximum(largest, margin)
        true = select(target == k, margin, true)
    others = own = splat(work, 0.0)
    for k in range(outputs):
        j = at + k * stride
        e = vector_exp_negative(load(work, j) - largest)
        mine = target == k
        own = select(mine, e, own)
        others += select(mine, 0.0, e)
        store(work, j, e)
    scale = 1.0 / (own + others)
    for k in range(outputs):
        j = at + k * stride
        store(work, j, scale * select(target == k, -others, load(work, j)))
    return total + ((largest - true) + vector_log1p(others + (own - 1.0))), product


def pointwise(loss: Any) -> Pointwise:
    """The loss of that name, or one of the user's, an `OwnLoss`."""
    if isinstance(loss, str):
        return POINTWISE[loss]
    from ._own_kernels import pointwise_of

    return pointwise_of(loss)


POINTWISE = {
    "logistic": Pointwise(
        _of_one_margin(_logistic), _logistic_settle, _one, -np.inf, 1.0, True, labels="binary"
    ),
    "least_squares": Pointwise(_of_one_margin(_squares), _keep, _one, quadratic=True),
    "huber": Pointwise(
        _of_one_margin(_huber), _keep, _one, parameter="delta", default=1.0, quadratic=True
    ),
    "squared_hinge": Pointwise(
        _of_one_margin(_squared_hinge), _keep, _one, -np.inf, 1.0, True, labels="binary"
    ),
    "multinomial": Pointwise(
        _multinomial_step, _keep, _classes, parameter="classes", labels="classes"
    ),
}
