"""Least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class LeastSquares(Objective):
    """Least squares, ``(t - b)^2 / 2`` for real labels."""

    name: ClassVar[str] = "least_squares"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0

    def loss(self, t: Array, b: Array) -> Array:
        return 0.5 * (t - b) ** 2

    def derivative(self, t: Array, b: Array) -> Array:
        return t - b

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.ones_like(t)

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import fma, lane_loss

        def step(margin, target, parameter, total, product):
            residual = margin - target
            return residual, fma(0.5 * residual, residual, total), product

        return lane_loss("least_squares", step, quadratic=True)
