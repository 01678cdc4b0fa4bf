"""Specifications of sweeps, as TOML or as mappings."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .._common.grid import as_axis, check_zips, combinations, is_axis
from .._common.parameters import parameters
from .._common.validation import check_choice, prefixed
from ..algorithms import ALGORITHMS, Algorithm
from ..data import sources
from ..mechanisms import MECHANISMS, as_mechanism
from ..objectives import OBJECTIVES, Objective, as_objective
from ..stopping import RULES, StoppingRule, as_rule
from ._cells import Cell

#: What a cell has of its own, beside algorithm, source and objective.
_SETTINGS = tuple(
    name for name in parameters(Cell) if name not in ("algorithm", "source", "objective")
)

T = TypeVar("T")


def read_toml(path: str | os.PathLike[str], make: Callable[..., T]) -> T:
    """What `make` makes of the cells, trials and seeds of a file; every error begins with its
    name."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from None
    with prefixed(f"{path},"):
        try:
            return make(*read_dict(tomllib.loads(text), Reader(path.parent)))
        except RecursionError:
            raise ValueError("has values that are nested too deeply") from None


def read_dict(
    specification: Mapping[str, Any], read: Reader | None = None
) -> tuple[list[Cell], Any, Any]:
    """Cells, trials and seeds from tables; data are read by `read`."""
    losses = _options(OBJECTIVES)
    # A parameter's own name is understood, too, where its option has another.
    other = {name: option for option, name in losses.items() if name != option}
    top = {other.get(key, key): value for key, value in specification.items()}
    known = ("data", "algorithm", "zip", "trials", "seed", "objective", *losses, *_SETTINGS)
    _check_keys(top, known)
    zips = check_zips(top.pop("zip", ()))
    seed, number = top.pop("seed", 0), top.pop("trials", 1)
    tables = {
        "data": _tables("data", top.pop("data", {})),
        "algorithm": _tables("algorithm", top.pop("algorithm", {})),
    }
    read = Reader() if read is None else read
    cells = [
        cell
        for data_name, data in tables["data"]
        for algorithm_name, algorithm in tables["algorithm"]
        for cell in _cells(top, data_name, data, algorithm_name, algorithm, zips, read)
    ]
    return cells, number, seed


def _cells(
    top: dict[str, Any],
    data_name: str,
    data: dict[str, Any],
    algorithm_name: str,
    algorithm: dict[str, Any],
    zips: list[tuple[str, ...]],
    read: Reader,
) -> Iterator[Cell]:
    with prefixed(data_name):
        for kind in as_axis("source", data.get("source", "adult")):
            _check_keys(data, ("source", *sources.allowed_options(kind)), f" of {kind!r}")
    with prefixed(algorithm_name):
        names = as_axis("name", algorithm.get("name", "fedepm"))
        kinds = [ALGORITHMS[check_choice("name", name, ALGORITHMS)] for name in names]
        for kind in kinds:
            allowed = ("name", *parameters(kind), *_options(MECHANISMS))
            _check_keys(algorithm, allowed, f" of {kind.name!r}")
    axes = {**top, **data, **algorithm}
    # A group whose axes this pair of tables has none of is another pair's.
    groups = [group for group in zips if any(is_axis(axes.get(name)) for name in group)]
    with prefixed(f"{data_name} with {algorithm_name}"):
        chosen = list(combinations(axes, groups))
    for values in chosen:
        with prefixed(algorithm_name):
            made = _algorithm({name: values[name] for name in algorithm})
        goal = _objective({name: values[name] for name in top if name not in _SETTINGS})
        with prefixed(data_name):
            source = read({name: values[name] for name in data}, goal)
        settings = {name: values[name] for name in _SETTINGS if name in top}
        if "stopping" in settings:
            settings["stopping"] = _rule(settings["stopping"])
        with prefixed(f"{data_name} with {algorithm_name}"):
            yield Cell(made, source, goal, **settings)


def _options(registry: Mapping[str, type]) -> dict[str, str]:
    """The names of the parameters of everything of a registry, by what specifications call them."""
    return {of.option: name for cls in registry.values() for name, of in parameters(cls).items()}


def _algorithm(values: dict[str, Any]) -> Algorithm:
    cls = ALGORITHMS[values.pop("name", "fedepm")]
    private = {n: values.pop(n) for n in ("mechanism", *_options(MECHANISMS)) if n in values}
    if private:
        values["mechanism"] = as_mechanism(**private)
    return cls(**values)


def _objective(values: dict[str, Any]) -> Objective:
    names, objective = _options(OBJECTIVES), values.pop("objective", "logistic")
    return as_objective(objective, **{names[key]: value for key, value in values.items()})


def _rule(value: Any) -> StoppingRule:
    """A rule by its name, or ``{rule = "released", tolerance = 1e-8}``."""
    given = dict(value) if isinstance(value, Mapping) else {"rule": value}
    kind = RULES[check_choice("stopping", given.pop("rule", None), RULES)]
    _check_keys(given, list(parameters(kind)), f" of the stopping rule {kind.name!r}")
    return as_rule(kind.name, **given)


class Reader:
    """Sources from options, each made once and each file read once; relative paths start from
    `folder`."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder
        self.made: dict[str, sources.Source] = {}
        self.tables: dict[str, sources.Table] = {}

    def __call__(self, options: dict[str, Any], goal: Objective) -> sources.Source:
        key = json.dumps([options, goal.name], default=str)
        if key not in self.made:
            self.made[key] = sources.from_options(options, loss=goal, read=self._read)
        return self.made[key]

    def _read(self, path: str, **options: Any) -> sources.Table:
        key = json.dumps([path, options], default=str)
        if key not in self.tables:
            self.tables[key] = sources.read_table(self.folder / path, **options)
        return self.tables[key]


def _tables(name: str, given: Any) -> list[tuple[str, dict[str, Any]]]:
    """One table, or several, each with what messages call it."""
    if isinstance(given, Mapping):
        return [(f"[{name}]", dict(given))]
    if not isinstance(given, list) or not given or not all(isinstance(t, Mapping) for t in given):
        raise TypeError(f"{name} must be a table [{name}], or several [[{name}]], got {given!r}")
    return [(f"[[{name}]] {i}", dict(table)) for i, table in enumerate(given, 1)]


def _check_keys(table: Mapping[str, Any], allowed: Iterable[str], of: str = "") -> None:
    for key in table:
        if key not in allowed:
            raise ValueError(f"key {key!r} is unknown, those{of} are {', '.join(allowed)}")
