"""Losses of linear models: pointwise functions of margins and labels.

The margin of a row a is ``t = <a, w>``. The multinomial loss has a margin for each of K classes;
its parameter w is the coefficients of class 0, then those of class 1, and so on:
``coefficients.ravel()`` of an array (K, n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from .._docstrings import inherit_parameters
from .._validation import check_array, check_choice, check_int, check_parameters, check_real

if TYPE_CHECKING:
    from ..data import FederatedData

Array = NDArray[np.float64]

#: How the regulariser's weight follows from ``beta``: ``"beta/d"`` divides by the number of
#: samples of the client (the authors' program), ``"beta"`` does not (the printed equations).
REGULARIZERS = ("beta/d", "beta")


@dataclass(frozen=True)
class Objective:
    """A loss and its l2 regulariser.

    Parameters
    ----------
    beta : float
        Weight of the regulariser, at least 0.
    regularizer : {"beta/d", "beta"}, optional
        ``reg_i = beta / d_i`` or ``reg_i = beta``. By default the preset of the algorithm
        decides.
    weights : sequence of float, optional
        Weights of the features in the regulariser, each at least 0: it is ``reg_i/2 * sum_j
        weights_j * w_j^2``. All 1 by default; 0 leaves a feature, an intercept say, alone.
    """

    beta: float = 1e-3
    regularizer: str | None = None
    weights: tuple[float, ...] | None = field(default=None, kw_only=True)

    name: ClassVar[str]
    #: What labels are: "classification" (0 and 1), "multiclass" (0 to K - 1) or "regression".
    task: ClassVar[str]
    #: A bound of the second derivative of `loss` in the margins (of its largest eigenvalue).
    curvature: ClassVar[float]
    #: Name of the loss among the compiled kernels, if they have it.
    kernel: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_parameters(cls, cls.__mro__[1])

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", check_real("beta", self.beta, low=0.0))
        if self.regularizer is not None:
            check_choice("regularizer", self.regularizer, REGULARIZERS)
        if self.weights is not None:
            weights = check_array("weights", self.weights, ndim=1)
            if (weights < 0).any():
                raise ValueError(f"weights must be at least 0, got {weights.min()}")
            object.__setattr__(self, "weights", tuple(weights.tolist()))

    def changed(self, **parameters: Any) -> Self:
        """This objective with other parameters."""
        return replace(self, **parameters)

    def loss(self, t: Array, b: Array) -> Array:
        """Pointwise loss of margins `t` and labels `b`, both (d,)."""
        raise NotImplementedError

    def derivative(self, t: Array, b: Array) -> Array:
        """Derivative of `loss` in `t`."""
        raise NotImplementedError

    def second_derivative(self, t: Array, b: Array) -> Array:
        """Second derivative of `loss` in `t`."""
        raise NotImplementedError

    def predict(self, t: Array) -> Array:
        """The label that margins speak for."""
        return (t > 0).astype(np.float64) if self.task == "classification" else t

    def fit_to(self, data: FederatedData) -> Self:
        """This objective with what depends on the data filled in and checked.

        Raises
        ------
        ValueError
            If the labels are not such as the loss takes, or `weights` not one per feature.
        """
        if self.weights is not None and len(self.weights) != data.n_features:
            raise ValueError(
                f"weights must be one per feature, {data.n_features}, got {len(self.weights)}"
            )
        if self.task == "classification" and not data.is_binary:
            raise ValueError(
                f"labels must be 0 or 1 for the {self.name} objective; "
                "FederatedData.split maps any two values to them"
            )
        return self

    @property
    def slope(self) -> float | None:
        """A bound of the derivative of `loss` in the margin, for any label; None without one."""
        return None

    def slope_in(self, order: int) -> float | None:
        """A bound of the derivative's norm, L1 (order 1) or L2 (order 2), over a row's margins."""
        return self.slope

    @property
    def n_outputs(self) -> int:
        """Margins of a row."""
        return 1

    @property
    def has_kernels(self) -> bool:
        """Whether there are compiled kernels of exactly this loss."""
        return self.kernel is not None and OBJECTIVES.get(self.kernel) is type(self)

    @property
    def packing(self) -> dict[str, Any]:
        """The loss as `kernels.losses.pack` takes it."""
        return {"loss": str(self.kernel), **self.parameters}

    @property
    def parameters(self) -> dict[str, Any]:
        """The loss's own parameters, by name."""
        common = {f.name for f in fields(Objective)}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in common}

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        weights = {} if self.weights is None else {"weights": list(self.weights)}
        common = {"name": self.name, "beta": self.beta, "regularizer": self.regularizer}
        return {**common, **self.parameters, **weights}


@dataclass(frozen=True)
class Logistic(Objective):
    """Logistic loss, ``softplus(t) - b*t`` for labels 0 and 1.

    Both functions are evaluated at the signed margin ``(1 - 2b) t``, where they neither
    overflow nor cancel: ``softplus(t) - t`` would lose every digit for large `t`.
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 0.25
    kernel: ClassVar[str | None] = "logistic"

    @property
    def slope(self) -> float:
        return 1.0

    def loss(self, t: Array, b: Array) -> Array:
        s = (1 - 2 * b) * t
        return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))

    def derivative(self, t: Array, b: Array) -> Array:
        sign = 1 - 2 * b
        return sign * expit(sign * t)

    def second_derivative(self, t: Array, b: Array) -> Array:
        return expit(t) * expit(-t)


@dataclass(frozen=True)
class SquaredHinge(Objective):
    """Squared hinge loss, ``max(0, 1 - (2b - 1) t)^2`` for labels 0 and 1."""

    name: ClassVar[str] = "squared_hinge"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 2.0
    kernel: ClassVar[str | None] = "squared_hinge"

    def loss(self, t: Array, b: Array) -> Array:
        return np.maximum(1 + (1 - 2 * b) * t, 0) ** 2

    def derivative(self, t: Array, b: Array) -> Array:
        sign = 1 - 2 * b
        return sign * (2 * np.maximum(1 + sign * t, 0))

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.where(1 + (1 - 2 * b) * t > 0, 2.0, 0.0)


@dataclass(frozen=True)
class LeastSquares(Objective):
    """Least squares, ``(t - b)^2 / 2`` for real labels."""

    name: ClassVar[str] = "least_squares"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0
    kernel: ClassVar[str | None] = "least_squares"

    def loss(self, t: Array, b: Array) -> Array:
        return 0.5 * (t - b) ** 2

    def derivative(self, t: Array, b: Array) -> Array:
        return t - b

    def second_derivative(self, t: Array, b: Array) -> Array:
        return np.ones_like(t)


@dataclass(frozen=True)
class Huber(Objective):
    """Huber loss of the residual r = t - b: ``r^2 / 2`` where ``abs(r) <= delta``, else
    ``delta * (abs(r) - delta / 2)``.

    Parameters
    ----------
    delta : float
        Above 0, in the units of the labels.
    """

    delta: float = 1.0

    name: ClassVar[str] = "huber"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0
    kernel: ClassVar[str | None] = "huber"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delta", check_real("delta", self.delta, low=0.0, open_low=True))

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

    classes: int | None = None

    name: ClassVar[str] = "multinomial"
    task: ClassVar[str] = "multiclass"
    curvature: ClassVar[float] = 0.5
    kernel: ClassVar[str | None] = "multinomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None:
            object.__setattr__(self, "classes", check_int("classes", self.classes, low=2))

    def fit_to(self, data: FederatedData) -> Self:
        b = data.labels
        if (b < 0).any() or (b != np.floor(b)).any():
            raise ValueError(
                "labels must be whole numbers from 0 for the multinomial objective; "
                "FederatedData.split(..., task='multiclass') maps any values to them"
            )
        least = int(b.max()) + 1
        if self.classes is not None and least > self.classes:
            raise ValueError(f"labels must be below classes = {self.classes}, got {least - 1}")
        return super().fit_to(data).changed(classes=self.classes or max(least, 2))

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
        p = softmax(t, axis=-1)
        second = -p[..., :, None] * p[..., None, :]
        # Rows add up to zero: 1 - p_k is the sum of the others, without cancellation.
        diagonal = np.arange(t.shape[-1])
        second[..., diagonal, diagonal] = 0.0
        second[..., diagonal, diagonal] = -second.sum(axis=-1)
        return second

    def predict(self, t: Array) -> Array:
        return t.argmax(axis=-1).astype(np.float64)


OBJECTIVES: dict[str, type[Objective]] = {
    cls.name: cls for cls in (Logistic, LeastSquares, Huber, SquaredHinge, Multinomial)
}


def as_objective(objective: str | Objective, **parameters: Any) -> Objective:
    """Return `objective`, or the one registered under that name, with these `parameters`.

    Raises
    ------
    TypeError, ValueError
        If there is none of that name, or a parameter is not one of its own.
    """
    if not isinstance(objective, Objective):
        objective = OBJECTIVES[check_choice("objective", objective, OBJECTIVES)]()
    own = [f.name for f in fields(objective)]
    check_parameters(f"objective {objective.name!r}", parameters, own)
    return objective.changed(**parameters) if parameters else objective
