"""The result of a tuning as text: a summary, Python, a specification."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._common.text import fill
from .._words import objective_text
from ..algorithms import label_of
from ..losses.scalar import ScalarLoss

if TYPE_CHECKING:
    from ._result import TuneResult, TuneTrial

_DEFAULTS = {"stopping": None, "rounds": None, "max_rounds": 500, "max_iterations": None}


def summary(result: TuneResult, say: Callable[[str], str] = str) -> str:
    """A result on one screen; `say` puts what runs say into other words."""
    s, best, default, gain = result.settings, result.best, result.default, result.improvement
    states = [t.state for t in result.trials]
    without = [f", {states.count(k)} {k}" for k in ("diverged", "failed", "pruned") if k in states]
    lines = [
        f"{label_of(result.algorithm.name)} tuned over {s['folds']} folds of {s['over']}, "
        f"{len(states)} trials{''.join(without)}"
    ]

    def row(name: str, text: str, given: str | None = None) -> None:
        text = text if given is None else f"{text:<14} given {given}"
        lines.append(fill(f"  {name:<22}{text}", indent=" " * 24))

    row("objective", objective_text(result.objective.describe(), result.settings))
    what = "accuracy" if s["score"] == "accuracy" else "mean loss"
    row(f"held-out {what}", f"{_measured(best)} (trial {best.number})")
    row("as given", say(_measured(default)))
    if not best.number:
        lines.append("  no trial is better than the algorithm as it was given")
    elif gain is not None:
        row("better by", f"{gain.mean:.6f} +- {gain.standard_error:.6f}, fold against fold")
    if default.rounds is not None:
        row("communication rounds", f"{best.rounds:.4g}", f"{default.rounds:.4g}")
    for name, value in result.parameters.items():
        row(name, short(value), short(default.parameters[name]))
    if result.at_the_end and best.number:
        lines.append(f"  near an end of its range: {', '.join(result.at_the_end)}")
    return "\n".join(lines)


def as_code(result: TuneResult) -> str:
    """Python that makes the tuned algorithm and runs it on ``data``."""
    objective, settings = _call(result.objective), _run_settings(result)
    names = [type(result.algorithm).__name__, type(result.objective).__name__, "run"]
    if isinstance(result.objective, ScalarLoss):  # whose functions have no text
        del names[1]
        objective = f"{result.objective.name}.changed(beta={result.objective.beta!r})"
    rule = settings.get("stopping")
    more = ""
    if rule is not None and not isinstance(rule, str):
        more = f"from {type(rule).__module__} import {type(rule).__name__}\n"
    options = {"objective": objective, **{k: repr(v) for k, v in settings.items()}}
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return (
        f"from fedepm_fast import {', '.join(names)}\n{more}\n"
        f"algorithm = {_call(result.algorithm)}\n"
        f"result = run(algorithm, data, {given}, seed={result.settings['seed']})\n"
    )


def as_toml(result: TuneResult, data: Mapping[str, Any] | None) -> str:
    """A specification with the tuned algorithm."""
    if isinstance(result.objective, ScalarLoss):
        raise ValueError("a loss of your own has no place in a specification, use code")
    objective = _changed(result.objective)
    if "weights" in objective:
        raise ValueError("weights of the objective have no place in a specification, use code")
    top = {"objective": result.objective.name, **objective, **_run_settings(result)}
    rule = top.get("stopping")
    if rule is not None and not isinstance(rule, str):
        top["stopping"] = {"rule": rule.name, **dataclasses.asdict(rule)}
    top["seed"] = result.settings["seed"]
    table = "[data] # to be filled in: source, clients, ...\n"
    if data is not None:
        table = "[data]\n" + _assignments(data)
    own = {"name": result.algorithm.name, **_changed(result.algorithm)}
    return f"{_assignments(top)}\n{table}\n[[algorithm]]\n{_assignments(own)}"


def _run_settings(result: TuneResult) -> dict[str, Any]:
    """How runs are stopped, where not as by default."""
    return {k: result.settings[k] for k, v in _DEFAULTS.items() if result.settings[k] != v}


def _measured(trial: TuneTrial) -> str:
    if trial.score is None:
        return f"{trial.state}: {trial.error}"
    return f"{trial.score:.6f} +- {trial.standard_error:.6f}"


def short(value: Any) -> str:
    """A value for people."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _changed(made: Any) -> dict[str, Any]:
    """The fields that are not as by default."""
    return {
        f.name: getattr(made, f.name)
        for f in dataclasses.fields(made)
        if getattr(made, f.name) != f.default
    }


def _call(made: Any) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in _changed(made).items())
    return f"{type(made).__name__}({values})"


def _assignments(table: Mapping[str, Any]) -> str:
    return "".join(f"{k} = {_toml(v)}\n" for k, v in table.items() if v is not None)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)  # strings, numbers and lists are the same
