"""Logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ._base import LEAST_FACTOR, Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class Logistic(Objective):
    """Logistic loss, ``softplus(t) - b*t`` for labels 0 and 1.

    Both functions are evaluated at the signed margin ``(1 - 2b) t``, where they neither
    overflow nor cancel: ``softplus(t) - t`` would lose every digit for large `t`.
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 0.25
    at_zero: ClassVar[float | None] = math.log(2.0)

    @property
    def slope(self) -> float:
        return 1.0

    def loss(self, t: Array, b: Array) -> Array:
        s = (1 - 2 * b) * t
        return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))

    def derivative(self, t: Array, b: Array) -> Array:
        from scipy.special import expit

        sign = 1 - 2 * b
        return sign * expit(sign * t)

    def second_derivative(self, t: Array, b: Array) -> Array:
        from scipy.special import expit

        return expit(t) * expit(-t)

    def of_clipped(self, labels: Array, factors: Array) -> tuple[Objective, Array]:
        found = ClippedLogistic(self.beta, self.regularizer, weights=self.weights)
        return found, (1 - 2 * labels) / np.maximum(factors, LEAST_FACTOR)

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses import lanes as v

        absolute, select, maximum, splat, fma = v.absolute, v.select, v.maximum, v.splat, v.fma
        exp_negative, log1p = v.exp_negative, v.log1p

        def step(margin, target, parameter, total, product):
            """Softplus of the signed margin s.

            ``softplus(s) = max(s, 0) + log(1 + e)`` with ``e = exp(-abs(s))``. Instead of a
            logarithm for every margin, `product` is (1 + e_1)(1 + e_2)... - 1. Kept without its 1
            it has a small relative error even where every e is tiny; it grows by one fused
            operation.
            """
            e = exp_negative(-absolute(margin))
            one_e = e + 1.0
            sigmoid = select(margin < 0.0, e, 1.0) / one_e
            # NaN is the second operand of `maximum`, and stays.
            return sigmoid, total + maximum(splat(margin, 0.0), margin), fma(product, one_e, e)

        def settle(total, product):
            return total + log1p(product)

        return v.lane_loss(
            "logistic", step, settle, labels="binary", no_margin=-np.inf, no_target=1.0, folds=True
        )


@dataclass(frozen=True)
class ClippedLogistic(Logistic):
    """``f * softplus(s/f)``, s the signed margin of a clipped row. Labels are ``(1 - 2b) / f``."""

    labels: ClassVar[str] = "reals"
    curvature: ClassVar[float] = Logistic.curvature / LEAST_FACTOR

    def loss(self, t: Array, b: Array) -> Array:
        return super().loss(np.abs(b) * t, (b < 0).astype(np.float64)) / np.abs(b)

    def derivative(self, t: Array, b: Array) -> Array:
        return super().derivative(np.abs(b) * t, (b < 0).astype(np.float64))

    def second_derivative(self, t: Array, b: Array) -> Array:
        return super().second_derivative(b * t, (b < 0).astype(np.float64)) * np.abs(b)

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses import lanes as v

        absolute, select, maximum, splat = v.absolute, v.select, v.maximum, v.splat
        exp_negative, log1p = v.exp_negative, v.log1p

        def step(margin, target, parameter, total, product):
            """Softplus of the signed margin before clipping, over the size of its factor."""
            signed = target * margin
            e = exp_negative(-absolute(signed))
            sigmoid = select(signed < 0.0, e, 1.0) / (e + 1.0)
            # NaN is the second operand of `maximum`, and stays.
            value = maximum(splat(margin, 0.0), signed) + log1p(e)
            return (
                select(target < 0.0, -sigmoid, sigmoid), total + value / absolute(target), product
            )  # fmt: skip

        return v.lane_loss(
            "logistic of clipped rows", step, labels="binary", no_margin=-np.inf, no_target=1.0
        )
