"""Poisson regression of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class Poisson(Objective):
    """Poisson loss, ``exp(t) - b*t`` for counts b: the mean of b is ``exp(t)``.

    It is the negative log-likelihood without ``log(b!)``; b may be any number that is at least 0,
    a rate for instance. Nothing bounds its derivatives: there is no Lipschitz constant of its
    gradients, from which step sizes would follow, and no private run. A step from far away may
    overshoot to where ``exp(t)`` overflows, and the run diverges: columns of unit norm or of
    moderate size, and a larger ``mu0`` or a smaller ``learning_rate``, keep it from that.
    """

    name: ClassVar[str] = "poisson"
    task: ClassVar[str] = "regression"
    labels: ClassVar[str] = "counts"
    curvature: ClassVar[float] = None  # type: ignore[assignment]
    at_zero: ClassVar[float | None] = 1.0

    def loss(self, t: Array, b: Array) -> Array:
        return np.exp(t) - b * t

    def derivative(self, t: Array, b: Array) -> Array:
        return np.exp(t) - b

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.exp(t)

    def predict(self, t: Array) -> Array:
        return np.exp(t)

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import exp, fma, lane_loss

        def step(margin, target, parameter, total, product):
            mean = exp(margin)
            return mean - target, total + fma(-target, margin, mean), product

        # exp(-1e4) is exactly zero.
        return lane_loss("poisson", step, labels="counts", no_margin=-1e4)
