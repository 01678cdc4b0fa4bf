"""Poisson regression of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .._common.parameters import param, real
from ._base import Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class Poisson(Objective):
    """Poisson loss, ``exp(t) - b*t`` for counts b: the mean of b is ``exp(t)``.

    It is the negative log-likelihood without ``log(b!)``; b may be any number that is at least 0,
    a rate for instance. Without a `slope` nothing bounds its derivatives: there is no Lipschitz
    constant of its gradients, from which step sizes would follow, and no private run. A step from
    far away may overshoot to where ``exp(t)`` overflows, and the run diverges: columns of unit
    norm or of moderate size, and a larger ``mu0`` or a smaller ``learning_rate``, keep it from
    that.

    Parameters
    ----------
    slope : float, optional
        A count, above 0, as which larger ones and larger means count: the derivative is
        ``min(exp(t), slope) - min(b, slope)``. It bounds the derivative and the second one, and
        leaves the loss as it is where it is beyond all counts and means. None by default.
    """

    slope: float | None = param(
        None,
        check=real(low=0.0, open_low=True),
        help="larger counts and means count as this, which bounds the derivative",
        shown="none",
    )  # type: ignore[assignment]

    name: ClassVar[str] = "poisson"
    task: ClassVar[str] = "regression"
    labels: ClassVar[str] = "counts"

    @property
    def curvature(self) -> float | None:  # type: ignore[override]
        return self.slope

    @property
    def at_zero(self) -> float | None:  # type: ignore[override]
        return 1.0 if self.parameter >= 1 else None

    def loss(self, t: Array, b: Array) -> Array:
        beyond = np.maximum(t - np.log(self.parameter), 0.0)
        return self._mean(t) * (1 + beyond) - np.minimum(b, self.parameter) * t

    def _mean(self, t: Array) -> Array:
        most = self.parameter
        return np.minimum(np.exp(np.minimum(t, np.log(most))), most)

    def derivative(self, t: Array, b: Array) -> Array:
        return self._mean(t) - np.minimum(b, self.parameter)

    def second_derivative(self, t: Array, b: Array) -> Array:
        mean = self._mean(t)
        return np.where(mean < self.parameter, mean, 0.0)

    def predict(self, t: Array) -> Array:
        return np.exp(t)

    @property
    def parameter(self) -> float:
        return np.inf if self.slope is None else self.slope

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses.lanes import exp, fma, lane_loss, log, maximum, minimum, splat

        def step(margin, target, most, total, product):
            """The mean goes on linearly beyond `most`."""
            mean, count = minimum(most, exp(margin)), minimum(most, target)
            beyond = maximum(splat(margin, 0.0), margin - log(most))
            return mean - count, total + fma(-count, margin, mean * (beyond + 1.0)), product

        # exp(-1e4) is exactly zero.
        return lane_loss("poisson", step, labels="counts", no_margin=-1e4)
