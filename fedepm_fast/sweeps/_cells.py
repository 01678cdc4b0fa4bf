"""Descriptions of runs: what determines a result, and its name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

from .._common.parameters import param
from .._common.validation import check_choice
from ..algorithms import ALGORITHMS, Algorithm, Size
from ..data.sources import Source
from ..objectives import OBJECTIVES, Logistic, Objective, ScalarLoss, as_objective
from ..runner import ENGINES, Limits, check_limits
from ..stopping import RULES, StoppingRule
from ._repeated import Repeated

#: Raised whenever a change of the package changes results, so that stored ones of before are
#: not taken for those of now.
RESULTS_VERSION = 1
#: The same of runs with a mechanism, beside it.
PRIVATE_RESULTS_VERSION = 4


@dataclass(frozen=True, eq=False)
class Cell:
    """Everything that determines a run but its seed and trial.

    Parameters
    ----------
    algorithm : Algorithm
    source : Source
        Data before the split.
    objective : str or Objective
    stopping, rounds, max_rounds, max_iterations, engine
        As in `run`.

    Raises
    ------
    ValueError, TypeError
        Naming the argument. What could not be told from a stored description, such as a rule
        or an objective that is not registered, is refused.
    """

    algorithm: Algorithm
    source: Source
    objective: Objective = field(default_factory=Logistic)
    stopping: StoppingRule | None = None
    rounds: int | None = param(None, help="Run exactly so many rounds", metavar="N")
    max_rounds: int = param(500, help="Cap on the rounds")
    max_iterations: int | None = param(None, help="Cap on the local iterations", metavar="N")
    engine: str | None = param(
        None, help="compiled or reference", shown="compiled, where there are kernels"
    )

    def __post_init__(self) -> None:
        algorithm, source = self.algorithm, self.source
        _registered("algorithm", algorithm, Algorithm, ALGORITHMS)
        if not isinstance(source, Source):
            raise TypeError(f"source must be a source of data, got {type(source).__name__}")
        objective = as_objective(self.objective)
        if type(objective) is not ScalarLoss:  # which has a hash of its own
            _registered("objective", objective, Objective, OBJECTIVES)
        if algorithm.mechanism is not None and self.rounds is None and self.stopping is None:
            raise ValueError("rounds must be given: a private run fixes their number in advance")
        limits = check_limits(
            algorithm, self.stopping, self.rounds, self.max_rounds, self.max_iterations, None
        )
        _registered("stopping", limits.rule, StoppingRule, RULES)
        compiled = algorithm.compiled and objective.has_kernels and not source.has_weights
        engine = self.engine or ENGINES[0 if compiled else 1]
        check_choice("engine", engine, ENGINES)
        # A margin for each of at least two classes has as many parameters for each feature.
        outputs = 1
        if objective.task == "multiclass":
            outputs = getattr(objective, "classes", None) or 2
        size = Size(source.n_clients, outputs * source.n_features, source.n_samples)
        resolved = algorithm.resolve(size)
        resolved.check_coverage(source.n_clients)
        for name, value in {
            "algorithm": resolved,
            "objective": algorithm.objective(objective),
            "stopping": limits.rule,
            "rounds": None,
            "max_rounds": limits.max_rounds,
            "engine": engine,
        }.items():
            object.__setattr__(self, name, value)

    @cached_property
    def repeated(self) -> Repeated | None:
        """What does the runs of this cell, where they can share something."""
        if not Repeated.supports(self.algorithm, cast(str, self.engine)):
            return None
        rule = cast(StoppingRule, self.stopping)
        limits = Limits(rule, self.max_rounds, self.max_iterations)
        return Repeated(self.algorithm, self.objective, limits)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The description as one flat mapping of plain values, for tables and filters."""
        return self._flat(self.source.columns)

    @cached_property
    def _identity(self) -> str:
        found = {"results": RESULTS_VERSION, **self._flat(self.source.identity)}
        if self.algorithm.mechanism is not None:
            found["private_results"] = PRIVATE_RESULTS_VERSION
        return json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def _flat(self, data: dict[str, Any]) -> dict[str, Any]:
        algorithm, objective = self.algorithm.describe(), self.objective.describe()
        mechanism = algorithm.pop("mechanism")
        if mechanism is not None:
            algorithm["mechanism"] = mechanism.pop("name")
            # A loss may have a parameter of that name too, as Huber's delta.
            algorithm |= {
                f"mechanism_{k}" if k in objective else k: v for k, v in mechanism.items()
            }
        rule = cast(StoppingRule, self.stopping)
        parts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("algorithm", {"algorithm": algorithm.pop("name"), **algorithm}),
            ("data", data),
            ("objective", {"objective": objective.pop("name"), **objective}),
            ("stopping", {"stopping": rule.name, **dataclasses.asdict(rule)}),
            ("settings", {
                "max_rounds": self.max_rounds,
                "max_iterations": self.max_iterations,
                "engine": self.engine,
            }),
        )  # fmt: skip
        found: dict[str, Any] = {}
        for of, part in parts:
            for name in part.keys() & found.keys():
                raise ValueError(
                    f"algorithm and stopping must have parameters of names that no other has, "
                    f"got {name!r} of {of} a second time"
                )
            found |= part
        return found

    def run_id(self, seed: int, trial: int) -> str:
        """SHA-256, in hexadecimal, of the canonical JSON of the cell, the seed and the trial."""
        return hashlib.sha256(f"{self._identity}\n{seed} {trial}".encode()).hexdigest()


class Run(NamedTuple):
    """One run of a sweep."""

    run_id: str
    cell: Cell
    seed: int
    trial: int


def _registered(name: str, value: Any, base: type, registry: Mapping[str, Any]) -> None:
    if not isinstance(value, base):
        raise TypeError(
            f"{name} must be one of {', '.join(cls.__name__ for cls in registry.values())}, "
            f"got {type(value).__name__}"
        )
    if registry.get(value.name) is not type(value):  # type: ignore[attr-defined]
        raise TypeError(
            f"{name} must be one that is registered, so that its runs can be told from others, "
            f"got {type(value).__name__}: {', '.join(c.__name__ for c in registry.values())}"
        )
