"""Stopping rules: functions of the history of f(x) and of the gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ._common.validation import check_choice, check_real
from .callbacks import Rounds
from .kernels import _loop as loop

if TYPE_CHECKING:
    from .objectives import Problem

VARIANCE = "objective_variance"
RISE = "objective_and_gradient_rise"
GRADIENT = "gradient_norm"
MAX_ROUNDS = "max_rounds"
MAX_ITERATIONS = "max_iterations"
CALLBACK = "callback"
DIVERGED = "diverged"
PRECISION = "precision"
CONVERGED = "converged"
TARGET = "target"

#: The loop's flag of each condition that it knows.
FLAGS = {
    VARIANCE: loop.VARIANCE,
    RISE: loop.RISE,
    GRADIENT: loop.GRADIENT,
    CONVERGED: loop.CONVERGED,
    TARGET: loop.TARGET,
    DIVERGED: loop.DIVERGED,
    MAX_ROUNDS: loop.MAX_ROUNDS,
    MAX_ITERATIONS: loop.MAX_ITERATIONS,
}

#: What each reason for stopping means, for people.
REASONS: dict[str, str] = {
    VARIANCE: "the objective has settled (variance of its last four values)",
    RISE: "objective and gradient both rose above their last three values",
    GRADIENT: "the gradient is small",
    CONVERGED: "converged: a further round would change the objective by next to nothing of what "
    "it was at the start",
    TARGET: "the objective has come down to the target",
    MAX_ROUNDS: "the number of rounds was reached",
    MAX_ITERATIONS: "the number of iterations was reached",
    CALLBACK: "the callback asked to stop",
    DIVERGED: "the run diverged",
    PRECISION: "the noise of the next uploads would be too small beside the points for "
    "floating-point numbers to hide a record, or either is too large",
}

#: A run ends above its start if f is larger by more than rounding, a share of f there; or, if a
#: start was given, which may be an optimum that noise leads away from, by more than `NEAR` of f at
#: zero. By more than `RISE_OF_DIVERGED` of f at the start it has diverged: two in a hundred of the
#: paper's runs of SFedAvg with a fifth of the clients are stopped, by their rule, 0.8 % above it.
ROUNDING, NEAR, RISE_OF_DIVERGED = 1e-9, 0.05, 0.01

#: A run ends far above its best if it gave back more than a share of what it had gained, and that
#: is more than a share of f at the start. None of the paper's runs does.
GIVEN_BACK, FAR = 0.5, 0.1


@dataclass(frozen=True)
class StoppingRule:
    """A rule is asked after every round which of its conditions hold.

    The history holds, per round, ``objective`` f(x) summed over the m clients and
    ``grad_mean_sq``, the squared norm of the mean of the clients' gradients: read-only
    sequences.

    A rule of your own is a frozen dataclass derived from this one, its fields the parameters,
    with a method `fired`. It may report conditions of this module or reasons of its own. Enter
    its class in `RULES` under its `name` to use it in sweeps.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Below(StoppingRule):
    ...     mean: float = 0.35
    ...
    ...     def fired(self, n, m, objective, grad_mean_sq):
    ...         return ("low enough",) if objective[-1] / m < self.mean else ()
    """

    #: What results call it: the name of its class, unless the class says otherwise.
    name: ClassVar[str]
    #: What it can report, in the order in which it does.
    conditions: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        """The conditions that hold, a tuple or list of strings; empty to go on.

        A reason is not empty, and has no ``+``, which joins them in tables.
        """
        raise NotImplementedError

    def resolve(self, problem: Problem) -> StoppingRule:
        """This rule with every default that depends on the problem filled in."""
        return self

    def ask(
        self, n: int, m: int, objective: list[float], grad_mean_sq: list[float]
    ) -> tuple[str, ...]:
        """What `fired` says of a history, which it cannot change.

        Raises
        ------
        TypeError, ValueError
            Naming the rule, what it returned and what is allowed.
        """
        found: Any = self.fired(
            n, m, Rounds(objective, len(objective)), Rounds(grad_mean_sq, len(grad_mean_sq))
        )
        rule = f"fired of the stopping rule {type(self).__name__} must return a tuple of strings, "
        rule += "the reasons to stop, empty to go on"
        if not isinstance(found, (tuple, list)) or not all(isinstance(why, str) for why in found):
            raise TypeError(f"{rule}, got {found!r} of type {type(found).__name__}")
        for why in found:
            if not why or "+" in why:
                raise ValueError(f"{rule}, none of them '' or with a '+', got {found!r}")
        return tuple(map(str, found))


class _BuiltIn(StoppingRule):
    """A rule that the loop of a run has."""

    number: ClassVar[int]

    @property
    def tolerances(self) -> tuple[float, float]:
        """What the loop compares with, see `kernels._loop.stops`."""
        return 0.0, 0.0

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        recent, tau = np.zeros((2, 4)), len(objective) - 1
        for row, values in zip(recent, (objective, grad_mean_sq), strict=True):
            row[-min(4, tau + 1) :] = values[-4:]
        first = np.array([abs(objective[0]), grad_mean_sq[0]])
        flags = loop.stops(self.number, *self.tolerances, m, n, tau, recent, first)
        return tuple(name for name in self.conditions if flags & FLAGS[name])


@dataclass(frozen=True)
class ReleasedRule(_BuiltIn):
    """The rule of the authors' program.

    With T = tolerance * n, stop when the variance of the last four objective values is below
    ``T / (1 + f)``, when objective and squared mean gradient both exceed all three values
    before them, or when the squared mean gradient is below T.

    Parameters
    ----------
    tolerance : float
        At least 0.
    """

    tolerance: float = 1e-9
    name: ClassVar[str] = "released"
    number: ClassVar[int] = loop.RELEASED_RULE
    conditions: ClassVar[tuple[str, ...]] = (VARIANCE, RISE, GRADIENT)

    def __post_init__(self) -> None:
        check_real("tolerance", self.tolerance, low=0.0)

    @property
    def tolerances(self) -> tuple[float, float]:
        return self.tolerance, 0.0


@dataclass(frozen=True)
class TextRule(_BuiltIn):
    """The rule as printed: ``|grad f(x)|^2 < 1e-6``, or ``var <= n * 1e-8 / (1 + |f|)``.

    Parameters
    ----------
    gradient_tolerance, variance_tolerance : float
        The 1e-6 and 1e-8, at least 0.
    """

    gradient_tolerance: float = 1e-6
    variance_tolerance: float = 1e-8
    name: ClassVar[str] = "text"
    number: ClassVar[int] = loop.TEXT_RULE
    conditions: ClassVar[tuple[str, ...]] = (GRADIENT, VARIANCE)

    def __post_init__(self) -> None:
        check_real("gradient_tolerance", self.gradient_tolerance, low=0.0)
        check_real("variance_tolerance", self.variance_tolerance, low=0.0)

    @property
    def tolerances(self) -> tuple[float, float]:
        return self.gradient_tolerance, self.variance_tolerance


@dataclass(frozen=True)
class NoRule(_BuiltIn):
    """No rule of its own: the run ends at ``max_rounds`` or ``max_iterations``."""

    name: ClassVar[str] = "none"
    number: ClassVar[int] = loop.NO_RULE


@dataclass(frozen=True)
class ConvergedRule(_BuiltIn):
    """Stop when the server's models of the clients promise no further decrease.

    That is for it to know, not for the history: `CurvatureFedEPM` and `FedNL` say what is next to
    nothing, and other algorithms have no such models.
    """

    name: ClassVar[str] = "converged"
    number: ClassVar[int] = loop.CONVERGED_RULE
    conditions: ClassVar[tuple[str, ...]] = (CONVERGED,)


@dataclass(frozen=True)
class TargetRule(_BuiltIn):
    """Stop as soon as ``f(x)/m`` is at most a number.

    That is how algorithms are compared: by what each of them spends until f is as low as that.

    Parameters
    ----------
    target : float
        Of f/m, finite. Round 0, where nothing has been done, counts as well.
    """

    target: float
    name: ClassVar[str] = "target"
    number: ClassVar[int] = loop.TARGET_RULE
    conditions: ClassVar[tuple[str, ...]] = (TARGET,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", check_real("target", self.target))

    @property
    def tolerances(self) -> tuple[float, float]:
        return self.target, 0.0


@dataclass(frozen=True)
class FedADMMRule(_BuiltIn):
    """The rule of FedADMM's authors: the gradient is small beside that of round 0.

    With err the squared norm of the clients' mean gradient of f/m, which is ``grad_mean_sq / m^2``,
    stop when ``err < min(tolerance, gradient_share * err of round 0)``, or where that is zero.

    Parameters
    ----------
    tolerance : float, optional
        By default ``c*n/(m*d)`` for n parameters and d rows, with c = 2e-3 for regression and 5e-7
        for classification.
    gradient_share : float
        At least 0.
    """

    tolerance: float | None = None
    gradient_share: float = 0.2
    name: ClassVar[str] = "fedadmm"
    number: ClassVar[int] = loop.FEDADMM_RULE
    conditions: ClassVar[tuple[str, ...]] = (GRADIENT,)

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_real("tolerance", self.tolerance, low=0.0)
        check_real("gradient_share", self.gradient_share, low=0.0)

    def resolve(self, problem: Problem) -> FedADMMRule:
        if self.tolerance is not None:
            return self
        loss = getattr(problem, "objective", None)  # callables have none
        c = 2e-3 if loss is not None and loss.task == "regression" else 5e-7
        tolerance = c * problem.n_parameters / (problem.n_clients * problem.n_samples)
        return dataclasses.replace(self, tolerance=tolerance)

    @property
    def tolerances(self) -> tuple[float, float]:
        if self.tolerance is None:
            raise ValueError("tolerance depends on the data: resolve(problem) fills it in")
        return self.tolerance, self.gradient_share


#: Exactly these: the loop does not know what a subclass does.
BUILT_IN: tuple[type[_BuiltIn], ...] = (
    ReleasedRule,
    TextRule,
    NoRule,
    ConvergedRule,
    TargetRule,
    FedADMMRule,
)
#: The rules by name, for sweeps, specifications and the command line.
RULES: dict[str, type[StoppingRule]] = {rule.name: rule for rule in BUILT_IN}


def as_rule(stopping: str | StoppingRule, **parameters: Any) -> StoppingRule:
    """Return `stopping`, or the rule registered under that name with these parameters.

    Raises
    ------
    ValueError
        If there is none of that name, or a parameter without a default is missing.
    """
    if isinstance(stopping, StoppingRule):
        return stopping
    kind: Any = RULES[check_choice("stopping", stopping, RULES)]
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if field.name not in parameters and field.default is dataclasses.MISSING:
            raise ValueError(
                f"stopping must say which {field.name}, got {stopping!r} alone: in Python "
                f"{kind.__name__}({field.name}=...), in a specification "
                f'{{rule = "{stopping}", {field.name} = ...}}'
            )
    made: StoppingRule = kind(**parameters)
    return made
