"""Search spaces: ranges and choices of the parameters of an algorithm, and of ``beta``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from .._common.grid import is_axis
from .._common.parameters import Among, parameters
from .._common.validation import check_choice, check_int, check_real, prefixed
from ..algorithms import Algorithm
from ..objectives import Objective
from ..store._where import as_number

#: Values of a range on a grid.
GRID_POINTS = 5

#: Parameters of the objective that may be tuned; others change what the loss is.
OF_OBJECTIVE = ("beta",)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether they are integers."""

    def suggest(self, trial: Any, name: str) -> Any:
        """A value from an Optuna trial."""
        suggest = trial.suggest_int if self.whole else trial.suggest_float
        return suggest(name, self.low, self.high, log=self.log)

    def distribution(self, optuna: Any) -> Any:
        """As Optuna describes it."""
        kind = "IntDistribution" if self.whole else "FloatDistribution"
        return getattr(optuna.distributions, kind)(self.low, self.high, log=self.log)

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def position(self, value: float) -> float:
        """Where a value stands, from 0 to 1, on the scale of the range."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (at - low) / (high - low)

    def points(self) -> list[Any]:
        """Its values on a grid."""
        spaced = (np.geomspace if self.log else np.linspace)(self.low, self.high, GRID_POINTS)
        if self.whole:
            return sorted({int(v) for v in np.round(spaced)})
        return [min(max(float(v), self.low), self.high) for v in spaced]

    def describe(self) -> list[Any]:
        """As it is given."""
        return [self.low, self.high, "log" if self.log else "linear"]


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """A value from an Optuna trial."""
        return trial.suggest_categorical(name, self.values)

    def distribution(self, optuna: Any) -> Any:
        """As Optuna describes it."""
        return optuna.distributions.CategoricalDistribution(self.values)

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def points(self) -> list[Any]:
        """Its values on a grid."""
        return list(self.values)

    def describe(self) -> list[Any]:
        """As they are given."""
        return list(self.values)


Axis = Range | Choices
Space = dict[str, Axis]


def default_space(algorithm: Algorithm, objective: Objective) -> Space:
    """What is tuned where no space is given, about the values of a resolved algorithm.

    Raises
    ------
    ValueError
        For an algorithm of the user's own, or a value that no logarithmic scale has.
    """

    space = {name: _searched(algorithm, name) for name in algorithm.tuned}
    if not space and not (algorithm.keeps_models and objective.beta):
        raise ValueError(f"space must be given for {type(algorithm).__name__}, it has no default")
    # The score has no regulariser: were beta not tuned, the others would be tuned to stop early.
    return {**space, **({"beta": _searched(objective, "beta")} if objective.beta else {})}


def _searched(owner: Any, name: str) -> Axis:
    """The axis of a parameter about its value, as its field says."""
    how, value = parameters(type(owner))[name].search, getattr(owner, name)
    if isinstance(how, Among):
        return Choices(tuple(sorted({*how.values, value})))
    if how is None or not value > 0:
        raise ValueError(
            f"space must be given where {name} is {value}: no logarithmic scale has it"
        )
    return Range(value / how.below, value * how.above, log=True)


def as_space(space: Any, algorithm: Algorithm, objective: Objective) -> Space:
    """A space as users give it, checked.

    Raises
    ------
    ValueError, TypeError
        Naming ``space`` and the parameter.
    """
    if not isinstance(space, Mapping) or not space:
        raise TypeError(
            'space must be a mapping such as {"lam": (1e-6, 1.0, "log")} with at least one '
            f"parameter, got {space!r}"
        )
    return {
        str(name): _axis(str(name), given, algorithm, objective) for name, given in space.items()
    }


def _axis(name: str, given: Any, algorithm: Algorithm, objective: Objective) -> Axis:
    where = f"space of {name}"
    owner, kinds = _owner(name, algorithm, objective)
    number = int if int in kinds else float if float in kinds else None

    def check(value: Any) -> Any:
        with prefixed(f"{where}:"):
            if number is int and value is not None:
                value = check_int(name, value)
            elif number is float and value is not None and not isinstance(value, str):
                value = check_real(name, value)
            made = dataclasses.replace(owner, **{name: value})
        return getattr(made, name)

    if isinstance(given, tuple) and number is not None:
        if len(given) not in (2, 3):
            raise ValueError(f'{where} must be (low, high) or (low, high, "log"), got {given!r}')
        scale = check_choice(f"{where}: the scale", (*given, "linear")[2], ("log", "linear"))
        low, high = map(check, given[:2])
        if not low < high:
            raise ValueError(f"{where} must have low < high, got {given!r}")
        if scale == "log" and not low > 0:
            raise ValueError(f"{where} must have low > 0 on a logarithmic scale, got {given!r}")
        return Range(low, high, scale == "log", number is int)
    if not isinstance(given, (list, tuple)) and not is_axis(given):
        allowed = 'a range (low, high) or (low, high, "log"), or ' if number else ""
        raise TypeError(f"{where} must be {allowed}a list of values, got {given!r}")
    values = tuple(map(check, given))
    if not values or len({*values}) < len(values):
        raise ValueError(f"{where} must be a list of different values, got {given!r}")
    return Choices(values)


def _owner(name: str, algorithm: Algorithm, objective: Objective) -> tuple[Any, set[type]]:
    """What has the parameter, and the types of its values."""
    own = [name for name in parameters(type(algorithm)) if name != "mechanism"]
    if name not in (*own, *OF_OBJECTIVE):
        why = ""
        if name in {f.name for f in dataclasses.fields(objective)}:
            why = ", which changes what is minimised, and so the score itself"
        raise ValueError(
            f"space must name parameters of {algorithm.name} or beta, got {name!r}{why}: "
            f"{', '.join((*own, *OF_OBJECTIVE))}"
        )
    owner: Any = algorithm if name in own else objective
    hint = get_type_hints(type(owner))[name]
    return owner, {hint, *get_args(hint)}


def parse_space(texts: Iterable[str], algorithm: Algorithm, objective: Objective) -> dict[str, Any]:
    """A space from a command line: ``lam=1e-6:1:log``, ``local_steps=4,8,12``.

    Raises
    ------
    ValueError
        Naming the text, or a parameter that there is not.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not (name and equals and value):
            raise ValueError(
                f"space must be NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C, got {text!r}"
            )
        if name in found:
            raise ValueError(f"space must name a parameter once, got {name} twice")
        kinds = _owner(name, algorithm, objective)[1]
        if ":" in value:
            ends = value.split(":")
            found[name] = (*(_value(part, kinds) for part in ends[:2]), *ends[2:])
        else:
            found[name] = [_value(part.strip(), kinds) for part in value.split(",")]
    return found


def _value(text: str, kinds: set[type]) -> Any:
    """A value of one of the types that a parameter takes; the text where it is none."""
    return as_number(text) if kinds & {int, float} else text


def values_of(space: Space, algorithm: Algorithm, objective: Objective) -> dict[str, Any]:
    """The values that an algorithm and an objective have of the parameters of a space."""
    return {name: getattr(objective if name in OF_OBJECTIVE else algorithm, name) for name in space}


def with_values(
    values: Mapping[str, Any], algorithm: Algorithm, objective: Objective
) -> tuple[Algorithm, Objective]:
    """An algorithm and an objective with other values.

    Raises
    ------
    ValueError
        If they do not fit each other.
    """
    of_objective = {name: v for name, v in values.items() if name in OF_OBJECTIVE}
    of_algorithm = {name: v for name, v in values.items() if name not in OF_OBJECTIVE}
    return (
        dataclasses.replace(algorithm, **of_algorithm),
        objective.changed(**of_objective),
    )
