"""Multinomial logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from .._common.parameters import integer, param
from ._base import LEAST_FACTOR, Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss


@dataclass(frozen=True)
class Multinomial(Objective):
    """Cross entropy of the softmax of K margins, for labels 0 to K - 1.

    Margins are (d, K); so are the derivatives, and the second derivatives are (d, K, K).
    With T the largest margin of a row, the loss is ``T - t_b + log(sum_k exp(t_k - T))``,
    evaluated such that small losses keep their digits.

    Parameters
    ----------
    classes : int, optional
        K, at least 2; by default the largest label plus 1.
    """

    classes: int | None = param(
        None,
        check=integer(low=2),
        help="number of classes",
        shown="the largest label plus 1",
    )

    name: ClassVar[str] = "multinomial"
    task: ClassVar[str] = "multiclass"
    curvature: ClassVar[float] = 0.5

    def fit_to_labels(self, b: Array) -> Self:
        checked = super().fit_to_labels(b)
        least = int(b.max()) + 1
        if self.classes is not None and least > self.classes:
            raise ValueError(f"labels must be below classes = {self.classes}, got {least - 1}")
        return checked.changed(classes=self.classes or max(least, 2))

    @property
    def n_outputs(self) -> int:
        if self.classes is None:
            raise ValueError("classes depend on the data: Problem fills them in")
        return self.classes

    @property
    def slope(self) -> float:
        # Of all classes together: the true one's derivative is that of all the others, at most 1.
        return 2.0

    def slope_in(self, order: int) -> float:
        # In L2 it is largest where all of the others' probability is one class's.
        return self.slope if order == 1 else math.nextafter(math.sqrt(2.0), 2.0)

    @staticmethod
    def _parts(t: Array, b: Array) -> tuple[Array, Array, Array, Array]:
        """exp(t - T), where the true class is, the sum of the others, and T - t_b."""
        largest = t.max(axis=-1, keepdims=True)
        e = np.exp(t - largest)
        own = np.arange(t.shape[-1]) == b[..., None]
        others = np.where(own, 0.0, e).sum(axis=-1)
        return e, own, others, largest[..., 0] - t[own].reshape(b.shape)

    def loss(self, t: Array, b: Array) -> Array:
        e, own, others, short = self._parts(t, b)
        # Exactly zero where the true class has the largest margin.
        below_one = e[own].reshape(b.shape) - 1
        return short + np.log1p(others + below_one)

    def derivative(self, t: Array, b: Array) -> Array:
        e, own, others, _ = self._parts(t, b)
        total = e[own].reshape(b.shape) + others
        return np.where(own, -others[..., None], e) / total[..., None]

    def second_derivative(self, t: Array, b: Array) -> Array:
        from scipy.special import softmax

        p = softmax(t, axis=-1)
        second = -p[..., :, None] * p[..., None, :]
        # Rows add up to zero: 1 - p_k is the sum of the others, without cancellation.
        diagonal = np.arange(t.shape[-1])
        second[..., diagonal, diagonal] = 0.0
        second[..., diagonal, diagonal] = -second.sum(axis=-1)
        return second

    def predict(self, t: Array) -> Array:
        return t.argmax(axis=-1).astype(np.float64)

    @property
    def parameter(self) -> float:
        return self.n_outputs

    def of_clipped(self, labels: Array, factors: Array) -> tuple[Objective, Array]:
        found = ClippedMultinomial(
            self.beta, self.regularizer, weights=self.weights, classes=self.classes
        )
        return found, labels + (1 - np.maximum(factors, LEAST_FACTOR))

    @staticmethod
    def lanes() -> Loss:
        from ..kernels.losses import lanes as v

        exp_negative, log1p, load, store = v.exp_negative, v.log1p, v.load, v.store
        maximum, select, splat = v.maximum, v.select, v.splat

        def step(work, at, stride, outputs, target, parameter, total, product):
            """Cross entropy of the softmax; the target is the number of the true class.

            With T the largest margin and ``e_k = exp(t_k - T)`` the loss is ``T - t_b + log(sum
            e)``. The sum without its 1 is the others' part and ``e_b - 1``, which is exactly zero
            where the true class b has the largest margin: small losses and small residuals keep
            their digits.
            """
            largest = true = load(work, at)
            for k in range(1, outputs):
                margin = load(work, at + k * stride)
                largest = maximum(largest, margin)
                true = select(target == k, margin, true)
            others = own = splat(work, 0.0)
            for k in range(outputs):
                j = at + k * stride
                e = exp_negative(load(work, j) - largest)
                mine = target == k
                own = select(mine, e, own)
                others += select(mine, 0.0, e)
                store(work, j, e)
            scale = 1.0 / (own + others)
            for k in range(outputs):
                j = at + k * stride
                store(work, j, scale * select(target == k, -others, load(work, j)))
            return total + ((largest - true) + log1p(others + (own - 1.0))), product

        return v.lane_loss("multinomial", step, labels="classes")


@dataclass(frozen=True)
class ClippedMultinomial(Multinomial):
    """``f * (cross entropy at t/f)``. Labels are ``b + (1 - f)``, f above 0."""

    curvature: ClassVar[float] = Multinomial.curvature / LEAST_FACTOR

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
