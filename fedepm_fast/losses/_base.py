"""What a loss is: pointwise functions of margins and labels, with an l2 regulariser."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.declared import check_own_fields
from .._common.docstrings import inherit_parameters
from .._common.parameters import Around, check_fields, choice, param, real
from .._common.registry import LOSSES, Registry
from .._common.validation import check_array, check_choice, check_parameters
from ..kernels._labels import check_labels
from ._agreement import check_derivatives, check_step

if TYPE_CHECKING:
    from ..data import FederatedData
    from ..kernels.losses import Loss

Array = NDArray[np.float64]

#: Of clipped rows, the least factor that their loss knows: the rounding of t/f grows with 1/f, and
#: rows that are clipped further are few.
LEAST_FACTOR = 2.0**-5

#: How the regulariser's weight follows from ``beta``: ``"beta/d"`` divides by the number of
#: samples of the client (the authors' program), ``"beta"`` does not (the printed equations).
REGULARIZERS = ("beta/d", "beta")
#: The kind of labels, of `kernels._labels`, that a task has where its loss does not say another.
_LABELS = {"classification": "binary", "multiclass": "classes", "regression": "reals"}


#: The losses by name, those of a user beside the built-in ones.
OBJECTIVES: Registry[type[Objective]] = LOSSES


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

    beta: float = param(
        1e-3, check=real(low=0.0), search=Around(1e4, 10.0), symbol=r"$\beta$",
        label=r"regulariser $\beta$", help="weight of the l2 regulariser",
    )  # fmt: skip

    regularizer: str | None = param(
        None,
        check=choice(REGULARIZERS),
        help="beta/d or beta: divided by the rows of a client, or not",
        shown="the preset's",
    )
    weights: tuple[float, ...] | None = param(
        None, kw_only=True, shown="all 1", metavar="LIST",
        help="Weights of the features in the regulariser, separated by commas",
    )  # fmt: skip

    name: ClassVar[str]
    #: What labels are: "classification" (0 and 1), "multiclass" (0 to K - 1) or "regression".
    task: ClassVar[str]
    #: The same, finer: "binary", "classes", "counts" (at least 0) or "reals".
    labels: ClassVar[str]
    #: A bound of the second derivative of `loss` in the margins (of its largest eigenvalue), or
    #: None where there is none.
    curvature: ClassVar[float]
    #: The loss at margin 0, where it is the same for every label.
    at_zero: ClassVar[float | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_own_fields(cls, "objective")
        inherit_parameters(cls, cls.__mro__[1])
        if isinstance(task := vars(cls).get("task"), str) and "labels" not in vars(cls):
            cls.labels = _LABELS[task]
        if "loss" in vars(cls) and "at_zero" not in vars(cls):
            cls.at_zero = None
        if isinstance(name := vars(cls).get("name"), str):
            OBJECTIVES.add(name, cls)

    def __post_init__(self) -> None:
        check_fields(self)
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
            If the labels are not such as the loss takes, or `weights` not one per feature; for a
            loss of your own also if its functions are not each other's derivatives.
        """
        if self.weights is not None and len(self.weights) != data.n_features:
            raise ValueError(
                f"weights must be one per feature, {data.n_features}, got {len(self.weights)}"
            )
        if self.labels == "binary" and data.is_binary and not self._asks_labels:
            fitted = self
        else:
            fitted = self.fit_to_labels(data.labels)
        check_derivatives(fitted)
        return fitted

    @property
    def _asks_labels(self) -> bool:
        """Whether what depends on the labels is more than whether the loss takes them."""
        return type(self).fit_to_labels is not Objective.fit_to_labels

    def fit_to_labels(self, b: Array) -> Self:
        """This objective with what depends on the labels filled in and checked.

        Raises
        ------
        ValueError
            If they are not such as the loss takes.
        """
        check_labels(self.labels, b, f"the {self.name} objective", _HINTS.get(self.labels, ""))
        return self

    @property
    def slope(self) -> float | None:
        """A bound of the derivative of `loss` in the margin, for any label; None without one."""
        return None

    def of_clipped(self, labels: Array, factors: Array) -> tuple[Objective, Array]:
        """The loss of rows that were scaled by `factors` (d,), in [0, 1], and its labels.

        Scaling a row a down to ``f*a`` changes its margin, and the best model with it. A loss that
        takes the margin of the row before, t/f of a margin t, and weighs the record by f has a
        derivative in t of the same bound; and a weight that depends on the row alone leaves a model
        that holds as it was. Labels carry f then, which is taken to be at least `LEAST_FACTOR`.
        """
        return self, labels

    def slope_in(self, order: int) -> float | None:
        """A bound of the derivative's norm, L1 (order 1) or L2 (order 2), over a row's margins."""
        return self.slope

    @property
    def n_outputs(self) -> int:
        """Margins of a row."""
        return 1

    @staticmethod
    def lanes() -> Loss:
        """The loss as a step on vectors, see `kernels.losses.lanes.lane_loss`."""
        raise NotImplementedError

    @property
    def parameter(self) -> float:
        """The number that the step of `lanes` is given."""
        return 0.0

    @property
    def has_kernels(self) -> bool:
        """Whether there are compiled kernels of exactly this loss."""
        return "lanes" in vars(type(self))

    @property
    def packing(self) -> dict[str, Any]:
        """The loss as `kernels.losses.pack` takes it."""
        kind: Any = type(self)
        loss = _lanes(kind)
        check_step(self, loss)
        return {"loss": loss, "parameter": self.parameter}

    @property
    def parameters(self) -> dict[str, Any]:
        """The loss's own parameters, by name; a slope only where one is given."""
        without = {f.name for f in fields(Objective)} | ({"slope"} if self.slope is None else set())
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in without}

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain values, for records."""
        weights = {} if self.weights is None else {"weights": list(self.weights)}
        common = {"name": self.name, "beta": self.beta, "regularizer": self.regularizer}
        return {**common, **self.parameters, **weights}


#: What to do about labels of another kind.
_HINTS = {
    "binary": "; FederatedData.split maps any two values to them; objective= takes the loss of "
    "other labels, such as 'multinomial' for classes, 'least_squares' or 'poisson' for numbers",
    "classes": "; FederatedData.split(..., task='multiclass') maps any values to them",
}


@functools.cache
def _lanes(kind: Any) -> Loss:
    return kind.lanes()


def as_objective(objective: str | Objective, **parameters: Any) -> Objective:
    """Return `objective`, or the one registered under that name, with these `parameters`.

    Raises
    ------
    TypeError, ValueError
        If there is none of that name, or a parameter is not one of its own.
    """
    if not isinstance(objective, Objective):
        objective = OBJECTIVES[check_choice("objective", objective, OBJECTIVES)]()
    if not parameters:
        return objective
    own = [f.name for f in fields(objective)]
    check_parameters(f"objective {objective.name!r}", parameters, own)
    return objective.changed(**parameters)


def packing(name: str, labels: Array, **parameters: Any) -> dict[str, Any]:
    """The loss of that name, for these labels, as `kernels.losses.pack` takes it."""
    check_choice("loss", name, OBJECTIVES)
    return as_objective(name, **parameters).fit_to_labels(labels).packing
