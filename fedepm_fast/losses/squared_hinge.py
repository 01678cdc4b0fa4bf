"""The squared hinge: support vector machines with a smooth loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .._common.parameters import param, real
from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class SquaredHinge(Objective):
    """Squared hinge loss, ``max(0, 1 - (2b - 1) t)^2`` for labels 0 and 1.

    Parameters
    ----------
    slope : float, optional
        A bound of the derivative, above 0: the loss goes on linearly where it is reached (the
        huberised hinge of Rosset and Zhu 2007). None by default.
    """

    slope: float | None = param(
        None,
        check=real(low=0.0, open_low=True),
        help="bound of the derivative, beyond which the loss is linear",
        shown="none",
    )  # type: ignore[assignment]

    name: ClassVar[str] = "squared_hinge"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 2.0

    def loss(self, t: Array, b: Array) -> Array:
        short = np.maximum(1 + (1 - 2 * b) * t, 0)
        within = np.minimum(short, self.parameter / 2)
        return within * (2 * short - within)

    def derivative(self, t: Array, b: Array) -> Array:
        sign = 1 - 2 * b
        return sign * np.minimum(2 * np.maximum(1 + sign * t, 0), self.parameter)

    def second_derivative(self, t: Array, b: Array) -> Array:
        short = 1 + (1 - 2 * b) * t
        return np.where((short > 0) & (2 * short < self.parameter), 2.0, 0.0)

    @property
    def parameter(self) -> float:
        return np.inf if self.slope is None else self.slope

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import fma, lane_loss, maximum, minimum, splat

        def step(margin, target, slope, total, product):
            """With u = ``max(1 + s, 0)`` of the signed margin s, and v that up to half the slope,
            the loss is ``v * (2u - v)``."""
            short = maximum(splat(margin, 0.0), margin + 1.0)
            within = minimum(0.5 * slope, short)
            return (
                2.0 * within,
                fma(within, fma(splat(margin, 2.0), short, -within), total),
                product,
            )

        return lane_loss(
            "squared_hinge", step, labels="binary", no_margin=-np.inf, no_target=1.0, folds=True
        )
