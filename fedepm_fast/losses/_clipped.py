"""Losses of rows that were clipped: what is minimised stays that of the rows as they were.

Scaling a row a down to ``f*a`` changes its margin, and the best model with it. These take the
margin of the row before, t/f of a margin t, and weigh the record by f: the derivative in t is that
of the loss at t/f, no larger than before, and the gradient ``f*a`` times that. A weight that
depends on the row alone leaves a model that holds as it was. The labels carry f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from ._base import Array
from .logistic import Logistic
from .multinomial import Multinomial

if TYPE_CHECKING:
    from ..kernels.losses import Loss

LEAST = 2.0**-5


def clipped_logistic(objective: Logistic, labels: Array, factors: Array) -> tuple[Logistic, Array]:
    """The loss of rows that were scaled by `factors` (d,), in [0, 1], and its labels."""
    found = ClippedLogistic(**vars(objective))
    return found, (1 - 2 * labels) / np.maximum(factors, LEAST)


def clipped_multinomial(
    objective: Multinomial, labels: Array, factors: Array
) -> tuple[Multinomial, Array]:
    """The loss of rows that were scaled by `factors` (d,), in [0, 1], and its labels."""
    found = ClippedMultinomial(**vars(objective))
    return found, labels + (1 - np.maximum(factors, LEAST))


@dataclass(frozen=True)
class ClippedLogistic(Logistic):
    """``f * softplus(s/f)``, s the signed margin of a clipped row. Labels are ``(1 - 2b) / f``."""

    labels: ClassVar[str] = "reals"
    curvature: ClassVar[float] = Logistic.curvature / LEAST

    def loss(self, t: Array, b: Array) -> Array:
        return super().loss(np.abs(b) * t, np.less(b, 0).astype(np.float64)) / np.abs(b)

    def derivative(self, t: Array, b: Array) -> Array:
        return super().derivative(np.abs(b) * t, np.less(b, 0).astype(np.float64))

    def second_derivative(self, t: Array, b: Array) -> Array:
        return super().second_derivative(b * t, np.less(b, 0).astype(np.float64)) * np.abs(b)

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


@dataclass(frozen=True)
class ClippedMultinomial(Multinomial):
    """``f * (cross entropy at t/f)``. Labels are ``b + (1 - f)``, f above 0."""

    curvature: ClassVar[float] = Multinomial.curvature / LEAST

    def fit_to_labels(self, b: Array) -> Self:
        return self

    def loss(self, t: Array, b: Array) -> Array:
        of, f = _told(b)
        return super().loss(t / f[..., None], of) * f

    def derivative(self, t: Array, b: Array) -> Array:
        of, f = _told(b)
        return super().derivative(t / f[..., None], of)

    def second_derivative(self, t: Array, b: Array) -> Array:
        of, f = _told(b)
        return super().second_derivative(t / f[..., None], of) / f[..., None, None]

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses import lanes as v

        exp_negative, log1p, load, store = v.exp_negative, v.log1p, v.load, v.store
        maximum, select, splat = v.maximum, v.select, v.splat

        def step(work, at, stride, outputs, target, parameter, total, product):
            """Cross entropy of the softmax, as `Multinomial` has it, at margins over f.

            The true class is the last one that the target is not below.
            """
            f = splat(work, 1.0)
            for k in range(outputs):
                f = select(target < k, f, (k + 1.0) - target)
            largest = true = load(work, at) / f
            for k in range(1, outputs):
                margin = load(work, at + k * stride) / f
                largest = maximum(largest, margin)
                true = select(target < k, true, margin)
            others = own = splat(work, 0.0)
            for k in range(outputs):
                j = at + k * stride
                e = exp_negative(load(work, j) / f - largest)
                above = target < k
                mine = select(above, 0.0, select(target < k + 1.0, e, 0.0))
                own += mine
                others += e - mine
                store(work, j, select(above, e, select(target < k + 1.0, splat(work, -1.0), e)))
            scale = 1.0 / (own + others)
            for k in range(outputs):
                j = at + k * stride
                e = load(work, j)
                store(work, j, scale * select(e < 0.0, -others, e))
            return total + f * ((largest - true) + log1p(others + (own - 1.0))), product

        return v.lane_loss("multinomial of clipped rows", step, labels="classes")


def _told(b: Array) -> tuple[Array, Array]:
    """Classes and factors of labels."""
    of = np.floor(b)
    return of, 1 - (b - of)
