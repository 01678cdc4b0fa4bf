"""Stopping rules: functions of the history of f(x) and of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ._validation import check_choice, check_real

VARIANCE = "objective_variance"
RISE = "objective_and_gradient_rise"
GRADIENT = "gradient_norm"
MAX_ROUNDS = "max_rounds"
MAX_ITERATIONS = "max_iterations"
CALLBACK = "callback"
DIVERGED = "diverged"
PRECISION = "precision"

#: What each reason for stopping means, for people.
REASONS: dict[str, str] = {
    VARIANCE: "the objective has settled (variance of its last four values)",
    RISE: "objective and gradient both rose above their last three values",
    GRADIENT: "the gradient is small",
    MAX_ROUNDS: "the number of rounds was reached",
    MAX_ITERATIONS: "the number of iterations was reached",
    CALLBACK: "the callback asked to stop",
    DIVERGED: "the run diverged",
    PRECISION: "the noise of the next uploads would be too small beside the points for "
    "floating-point numbers to hide a record, or either is too large",
}


@dataclass(frozen=True)
class StoppingRule:
    """A rule is asked after every round which of its conditions hold.

    The history holds, per round, ``objective`` f(x) summed over the m clients and
    ``grad_mean_sq``, the squared norm of the mean of the clients' gradients.
    """

    name: ClassVar[str]
    #: What it can report, in the order in which it does.
    conditions: ClassVar[tuple[str, ...]] = ()

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        """The names of the conditions that hold; empty to go on."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReleasedRule(StoppingRule):
    """The rule of the authors' program.

    With T = tolerance * n, stop when the variance of the last four objective values is below
    ``T / (1 + f)``, when objective and squared mean gradient both exceed all three values
    before them, or when the squared mean gradient is below T.
    """

    tolerance: float = 1e-9
    name: ClassVar[str] = "released"
    conditions: ClassVar[tuple[str, ...]] = (VARIANCE, RISE, GRADIENT)

    def __post_init__(self) -> None:
        check_real("tolerance", self.tolerance, low=0.0)

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        bound = self.tolerance * n
        reasons = []
        if len(objective) >= 4:
            if np.var(objective[-4:], ddof=1) < bound / (1 + objective[-1]):
                reasons.append(VARIANCE)
            if objective[-1] > max(objective[-4:-1]) and grad_mean_sq[-1] > max(
                grad_mean_sq[-4:-1]
            ):
                reasons.append(RISE)
        if grad_mean_sq[-1] < bound:
            reasons.append(GRADIENT)
        return tuple(reasons)


@dataclass(frozen=True)
class TextRule(StoppingRule):
    """The rule as printed: ``|grad f(x)|^2 < 1e-6``, or ``var <= n * 1e-8 / (1 + |f|)``."""

    gradient_tolerance: float = 1e-6
    variance_tolerance: float = 1e-8
    name: ClassVar[str] = "text"
    conditions: ClassVar[tuple[str, ...]] = (GRADIENT, VARIANCE)

    def __post_init__(self) -> None:
        check_real("gradient_tolerance", self.gradient_tolerance, low=0.0)
        check_real("variance_tolerance", self.variance_tolerance, low=0.0)

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        reasons = []
        if m**2 * grad_mean_sq[-1] < self.gradient_tolerance:
            reasons.append(GRADIENT)
        if len(objective) >= 4:
            bound = n * self.variance_tolerance / (1 + abs(objective[-1]))
            if np.var(objective[-4:], ddof=1) <= bound:
                reasons.append(VARIANCE)
        return tuple(reasons)


@dataclass(frozen=True)
class NoRule(StoppingRule):
    """No rule of its own: the run ends at ``max_rounds`` or ``max_iterations``."""

    name: ClassVar[str] = "none"

    def fired(
        self, n: int, m: int, objective: Sequence[float], grad_mean_sq: Sequence[float]
    ) -> tuple[str, ...]:
        return ()


RULES: dict[str, type[StoppingRule]] = {
    rule.name: rule for rule in (ReleasedRule, TextRule, NoRule)
}


def as_rule(stopping: str | StoppingRule) -> StoppingRule:
    """Return `stopping`, or the rule registered under that name with its defaults."""
    if isinstance(stopping, StoppingRule):
        return stopping
    return RULES[check_choice("stopping", stopping, RULES)]()
