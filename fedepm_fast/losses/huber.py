"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .._common.parameters import param, real
from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class Huber(Objective):
    """Huber loss of the residual r = t - b: ``r^2 / 2`` where ``abs(r) <= delta``, else
    ``delta * (abs(r) - delta / 2)``.

    Parameters
    ----------
    delta : float
        Above 0, in the units of the labels.
    """

    delta: float = param(
        1.0,
        check=real(low=0.0, open_low=True),
        help="residuals beyond it count linearly",
        option="huber_delta",
        unit="labels",
    )

    name: ClassVar[str] = "huber"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0

    @property
    def slope(self) -> float:
        return self.delta

    def loss(self, t: Array, b: Array) -> Array:
        slope = self.derivative(t, b)
        return slope * (t - b - 0.5 * slope)

    def derivative(self, t: Array, b: Array) -> Array:
        return np.clip(t - b, -self.delta, self.delta)

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.where(np.abs(t - b) < self.delta, 1.0, 0.0)

    def of_clipped(self, labels: Array, factors: Array) -> tuple[Objective, Array]:
        # Residuals are scaled as their rows are: the record weighs less, and a linear model of
        # the labels remains one.
        return self, labels * factors

    @property
    def parameter(self) -> float:
        return self.delta

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import fma, lane_loss, maximum, minimum, splat

        def step(margin, target, delta, total, product):
            """With c the residual r clipped at +-delta the loss is ``c * (r - c/2)``."""
            residual = margin - target
            slope = maximum(-delta, minimum(delta, residual))
            value = fma(slope, fma(splat(slope, -0.5), slope, residual), total)
            return slope, value, product

        return lane_loss("huber", step, quadratic=True)
