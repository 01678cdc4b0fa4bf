"""Losses by functions of your own, compiled into the engine."""

from __future__ import annotations

import functools
import hashlib
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._common.validation import check_choice, check_real
from ._agreement import is_slope, slope_of
from ._base import OBJECTIVES, Array, Objective

if TYPE_CHECKING:
    from ..kernels.losses import Loss

Scalar = Callable[[float, float], float]

#: What labels may be, and such as functions are tried with.
_LABELS = {"classification": (0.0, 1.0), "regression": (0.37, 1.0, 2.0)}
#: Margins that functions are tried with: off round numbers, where losses have their kinks.
_MARGINS = np.concatenate([np.linspace(-3.1379, 2.9471, 17), [-31.73, -9.417, 8.523, 29.61]])
#: From there on values may overflow.
_LARGE = 5.0


@dataclass(frozen=True)
class ScalarLoss(Objective):
    """A loss of the margin, by functions of one row's margin t = <a, w> and label y.

    Parameters
    ----------
    value, gradient : callable
        ``value(t, y)`` is the loss and ``gradient(t, y)`` its derivative in t. Plain functions of
        two numbers, or ones that Numba compiled: they are compiled anew, into the kernels.
    second : callable, optional
        ``second(t, y)``, the second derivative in t, for Newton's steps of `Problem.optimum`;
        by default central differences of `gradient`.
    curvature : float, optional
        A bound of the second derivative, the Lipschitz constant of `gradient` in t. What needs it,
        such as `Problem.lipschitz`, is refused without it.
    slope : float, optional
        A bound of ``abs(gradient)``, for any margin and label. Private runs need it, and
        `curvature`: nothing proves a bound of functions of your own at every margin, so they clip
        what `gradient` gives to it. Where it does bound `gradient`, that changes nothing;
        elsewhere the loss that they minimise is the one with the clipped derivative.
    task : {"regression", "classification"}
        What labels are: any numbers; or 0 and 1, which are predicted by the sign of the margin.
    name : str
        What records call the loss.
    beta, regularizer, weights
        As of `Objective`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument: functions that do not compile, are not finite at moderate margins, or
        do not agree with each other's central differences or with the bounds, and where.

    Notes
    -----
    Records hold the name and a hash of the functions: their bytecode, and all constants and
    functions that it refers to. Globals count as they were when the loss was made.

    Examples
    --------
    >>> import math
    >>> from fedepm_fast import FedEPM, ScalarLoss, run
    >>> from fedepm_fast.data.synthetic import make_federated
    >>> data = make_federated("least_squares", clients=10, samples=500, features=4, seed=1)
    >>> log_cosh = ScalarLoss(
    ...     value=lambda t, y: abs(t - y) + math.log1p(math.exp(-2 * abs(t - y))),
    ...     gradient=lambda t, y: 2 / (1 + math.exp(-2 * (t - y))) - 1,
    ...     curvature=1.0,
    ...     name="log_cosh",
    ... )
    >>> run(FedEPM(mu0=5.0), data, objective=log_cosh, rounds=2).objective["name"]
    'log_cosh'
    """

    value: Scalar = field(kw_only=True)
    gradient: Scalar = field(kw_only=True)
    second: Scalar | None = field(default=None, kw_only=True)
    curvature: float | None = field(default=None, kw_only=True)  # type: ignore[assignment,misc]
    slope: float | None = field(default=None, kw_only=True)  # type: ignore[misc]
    task: str = field(default="regression", kw_only=True)  # type: ignore[misc]
    name: str = field(default="scalar", kw_only=True)  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("task", self.task, _LABELS)
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"name must be an identifier, got {self.name!r}")
        if self.name in OBJECTIVES or keyword.iskeyword(self.name):
            raise ValueError(f"name must not be that of a built-in loss, got {self.name!r}")
        for bound in ("curvature", "slope"):
            if getattr(self, bound) is not None:
                value = check_real(bound, getattr(self, bound), low=0.0)
                object.__setattr__(self, bound, value)
        _check(_Checked(self.identity, self.task, self.curvature, self.slope, self))

    def changed(self, **parameters: Any) -> Self:
        if not parameters.keys() <= {"beta", "regularizer", "weights"}:
            return super().changed(**parameters)
        # The functions stay those that were tried, whatever the globals that they read are now.
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        for name, value in parameters.items():
            object.__setattr__(new, name, value)
        Objective.__post_init__(new)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # nothing compiled

    @cached_property
    def _functions(self) -> dict[str, Scalar]:
        from ..kernels.losses._loss import function_of

        given = {name: getattr(self, name) for name in ("value", "gradient", "second")}
        return {name: function_of(name, f) for name, f in given.items() if f is not None}

    @cached_property
    def _identities(self) -> dict[str, str]:
        from ..kernels.losses._loss import identity_of

        return {name: identity_of(name, f) for name, f in self._functions.items()}

    @property
    def identity(self) -> str:
        """A hash of the functions."""
        return hashlib.sha256(repr(self._identities).encode()).hexdigest()

    def loss(self, t: Array, b: Array) -> Array:
        return self._map("value", t, b)

    def derivative(self, t: Array, b: Array) -> Array:
        return self._map("gradient", t, b)

    def second_derivative(self, t: Array, b: Array) -> Array:
        if self.second is not None:
            return self._map("second", t, b)
        return slope_of(functools.partial(self._map, "gradient"), t, b)

    def _map(self, name: str, t: Array, b: Array) -> Array:
        from ..kernels.losses._client_rows import read_only

        out = np.empty(t.shape)
        self._maps(name)(read_only(np.ascontiguousarray(t)), read_only(b), out)
        return out

    def _maps(self, name: str) -> Any:
        maps = self.__dict__.setdefault("_compiled", {})
        if name not in maps:
            from ..kernels.losses._steps import own_map

            maps[name] = own_map(self._functions[name], self._identities[name])
        return maps[name]

    def bounded(self) -> _Bounded:
        """This loss with what `gradient` gives clipped to ``+-slope``, NaN to 0."""
        new = object.__new__(_Bounded)
        new.__dict__.update(self.__dict__)
        return new

    def of_clipped(self, labels: Array, factors: Array) -> tuple[Objective, Array]:
        return self.bounded(), labels

    @property
    def labels(self) -> str:  # type: ignore[override]
        return "binary" if self.task == "classification" else "reals"

    def lanes(self) -> Loss:  # type: ignore[override]
        return self._loss

    @cached_property
    def _loss(self) -> Loss:
        from ..kernels.losses._loss import of_numbers

        both = ("value", "gradient")
        functions, identities = self._functions, self._identities
        return of_numbers(
            tuple(functions[k] for k in both), tuple(identities[k] for k in both), self.labels
        )

    @property
    def packing(self) -> dict[str, Any]:
        return {"loss": self._loss, "parameter": self.parameter}

    @property
    def parameter(self) -> float:
        """What the kernels clip the derivative to."""
        return np.inf

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "functions": self.identity,
            "task": self.task,
            "curvature": self.curvature,
            "slope": self.slope,
        }


@dataclass(frozen=True)
class _Bounded(ScalarLoss):
    """A loss whose derivative is within its slope, at every margin and label.

    Its value is that of the functions.
    """

    def derivative(self, t: Array, b: Array) -> Array:
        found = super().derivative(t, b)
        found[np.isnan(found)] = 0.0
        return np.clip(found, -self.parameter, self.parameter)

    def lanes(self) -> Loss:  # type: ignore[override]
        return self._loss

    @property
    def parameter(self) -> float:
        assert self.slope is not None
        return self.slope


@dataclass(frozen=True)
class _WithoutFunctions(ScalarLoss):
    """A loss of which a record holds a hash of the functions: it predicts, which needs none."""

    functions: str = field(kw_only=True)

    def __post_init__(self) -> None:
        Objective.__post_init__(self)
        check_choice("task", self.task, _LABELS)

    @property
    def identity(self) -> str:
        return self.functions

    @cached_property
    def _functions(self) -> dict[str, Scalar]:
        raise ValueError(
            f"the loss {self.name!r} was read from a file, which does not hold its functions: "
            "give the ScalarLoss itself"
        )


def is_of_functions(described: Mapping[str, Any]) -> bool:
    """Whether `Objective.describe` told this of a `ScalarLoss`."""
    return {"functions", "task", "curvature", "slope"} <= described.keys()


def without_functions(**described: Any) -> ScalarLoss:
    """The loss of which it told, without the functions, as far as predictions need one."""
    return _WithoutFunctions(value=_missing, gradient=_missing, **described)


def _missing(t: float, y: float) -> float:
    raise NotImplementedError  # never called: `_functions` raises first


@dataclass(frozen=True)
class _Checked:
    """What the checks of a loss depend on."""

    identity: str
    task: str
    curvature: float | None
    slope: float | None
    loss: ScalarLoss = field(compare=False)


@functools.lru_cache(maxsize=256)
def _check(checked: _Checked) -> None:
    """Compile the functions, and try them."""
    loss = checked.loss
    t, y = (a.ravel() for a in np.meshgrid(_MARGINS, _LABELS[loss.task]))
    with np.errstate(all="ignore"):
        found = {name: _try(loss, name, t, y) for name in loss._functions}
        _agree(loss, "value", "gradient", found, t, y)
        if loss.second is not None:
            _agree(loss, "gradient", "second", found, t, y)
        if loss.slope is not None:
            _bounded("slope", loss.slope, "abs(gradient)", np.abs(found["gradient"]), t, y)
        if loss.curvature is not None:
            rise = slope_of(functools.partial(loss._map, "gradient"), t, y)
            _bounded("curvature", loss.curvature, "the slope of gradient", np.abs(rise), t, y)


def _try(loss: ScalarLoss, name: str, t: Array, y: Array) -> Array:
    from numba.core.errors import NumbaError

    try:
        found = loss._map(name, t, y)
    except (NumbaError, TypeError) as error:
        raise TypeError(
            f"{name} must be a function of two numbers, t and y, to a number that Numba can "
            f"compile: {_reason(error)}"
        ) from error
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"{name} must not raise, got {type(error).__name__}: {error}") from error
    broken = np.flatnonzero(~np.isfinite(found) & (np.abs(t) < _LARGE))
    if len(broken):
        k = broken[0]
        raise ValueError(f"{name} must be finite, got {found[k]} at t = {t[k]:.5g}, y = {y[k]:g}")
    return found


#: Lines of Numba's messages that say where, and not what.
_WHERE = ("During:", "File ", "Failed in", "Overload of", "Enable logging", "<source", "Did you")


def _reason(error: Exception) -> str:
    """The line of a long message that says most."""
    lines = [line.strip(" -^*") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_WHERE)]
    telling = [line for line in lines if "rror" in line or "annot" in line or "nknown" in line]
    return next(iter(telling or lines), type(error).__name__)


def _agree(
    loss: ScalarLoss, name: str, slope: str, found: dict[str, Array], t: Array, y: Array
) -> None:
    numeric = slope_of(functools.partial(loss._map, name), t, y)
    wrong = ~is_slope(numeric, found[name], found[slope])
    if wrong.any():
        k = np.flatnonzero(wrong)[0]
        raise ValueError(
            f"{slope} must be the derivative of {name} in t: at t = {t[k]:.5g}, y = {y[k]:g} it is "
            f"{found[slope][k]:.6g}, the central difference {numeric[k]:.6g}"
        )


def _bounded(name: str, bound: float, what: str, sizes: Array, t: Array, y: Array) -> None:
    above = np.flatnonzero(sizes > bound + 1e-6 * (1 + bound))
    if len(above):
        k = above[0]
        raise ValueError(
            f"{name} must bound {what}, got {bound:g}, below the {sizes[k]:.6g} at t = {t[k]:.5g}, "
            f"y = {y[k]:g}"
        )
