"""What the runs of the comparison cost: by contender and setting, and beside the best of all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from comparison_runs import WRONG_SEEDS

Cell = dict[str, Any]
#: What a run costs: its key in cells, what it is called, and the unit that tables have.
COSTS = {
    "rounds": ("rounds", 1.0, ""),
    "gradients": ("gradients of a client", 1.0, ""),
    "seconds": ("local time", 1e3, " ms"),
    "bytes": ("bytes of a client", 1e-3, " kB"),
}
PERCENT = ("1 %", "0.01 %")
OURS = ("curvature", "fedepm", "paper")


def order(cells: Iterable[Cell]) -> dict[str, str]:
    """Names and labels of the contenders, FedEPM's first, then by name."""
    found = {cell["contender"]: cell["label"] for cell in cells}
    names = sorted(found, key=lambda name: (OURS.index(name) if name in OURS else 9, name))
    return {name: found[name] for name in names}


def costs(cells: Iterable[Cell], cost: str, share: int) -> Any:
    """What each run of the cells cost to get there, inf where it did not; shape (runs,)."""
    found = [run[cost][share] for cell in cells for run in cell["runs"]]
    return np.array([math.inf if value is None else value for value in found])


def key(cell: Cell) -> tuple[Any, ...]:
    """The setting of a cell."""
    return cell["problem"], cell["clients"], cell["coordinates"], cell["participation"]


class Profile(NamedTuple):
    """Performance profiles (Dolan and More 2002): shares of instances within a factor."""

    ratios: dict[str, Any]
    """Of each contender, its cost over the least of all, sorted; inf where it failed."""

    def at(self, name: str, factor: float) -> float:
        """The share of the instances on which it was within that factor of the best."""
        return float((self.ratios[name] <= factor).mean())


def profile(cells: Sequence[Cell], cost: str, share: int) -> Profile:
    """Profiles over all settings and seeds; an instance that nobody finishes is none's."""
    table = {
        name: np.concatenate([
            costs([cell], cost, share)
            for cell in sorted((c for c in cells if c["contender"] == name), key=key)
        ])
        for name in order(cells)
    }  # fmt: skip
    best = np.min(list(table.values()), axis=0)
    with np.errstate(invalid="ignore"):  # all took none, or nobody finished
        ratios = {name: np.where(mine == best, 1.0, mine / best) for name, mine in table.items()}
    for mine in ratios.values():
        mine[~np.isfinite(best)] = math.inf
    return Profile({name: np.sort(np.nan_to_num(r, nan=math.inf)) for name, r in ratios.items()})


def median(values: Any) -> float:
    """One of the values, inf where fewer than half of these runs got there."""
    return float(np.quantile(values, 0.5, method="inverted_cdf"))


def medians(cells: Sequence[Cell], cost: str, share: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """By setting, the median cost of each contender."""
    found: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for cell in cells:
        found[key(cell)][cell["contender"]] = median(costs([cell], cost, share))
    return found


def wrong(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Of each contender with a parameter: rounds to 1 % where it is wrong, and as tuned.

    Arrays of the same runs, inf where they do not get there, by the factor.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        if cell["wrong"]:
            mine = found.setdefault(cell["contender"], defaultdict(list))
            tuned = [run["rounds"] for run in cell["runs"][: len(WRONG_SEEDS)]]
            for factor, rounds in {"1": tuned, **cell["wrong"]}.items():
                mine[factor] += [math.inf if r[0] is None else r[0] for r in rounds]
    return {n: {f: np.array(v) for f, v in of.items()} for n, of in found.items()}
