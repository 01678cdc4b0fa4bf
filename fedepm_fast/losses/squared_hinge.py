"""The squared hinge: support vector machines with a smooth loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class SquaredHinge(Objective):
    """Squared hinge loss, ``max(0, 1 - (2b - 1) t)^2`` for labels 0 and 1."""

    name: ClassVar[str] = "squared_hinge"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 2.0

    def loss(self, t: Array, b: Array) -> Array:
        return np.maximum(1 + (1 - 2 * b) * t, 0) ** 2

    def derivative(self, t: Array, b: Array) -> Array:
        sign = 1 - 2 * b
        return sign * (2 * np.maximum(1 + sign * t, 0))

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.where(1 + (1 - 2 * b) * t > 0, 2.0, 0.0)

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import fma, lane_loss, maximum, splat

        def step(margin, target, parameter, total, product):
            """The square of ``max(1 + s, 0)`` of the signed margin s."""
            short = maximum(splat(margin, 0.0), margin + 1.0)
            return 2.0 * short, fma(short, short, total), product

        return lane_loss(
            "squared_hinge", step, labels="binary", no_margin=-np.inf, no_target=1.0, folds=True
        )
