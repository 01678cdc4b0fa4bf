"""Runs summed up cell by cell, without pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._common.measures import MEASURES, OF_RUN

#: Measures that have quartiles.
QUARTILES = tuple(name for name in OF_RUN if MEASURES[name].quartiles)

# Parameters that may follow from others: shown only where they do not.
_DERIVED = (
    "preset", "noise", "coordinates", "coverage_rounds", "step", "lam", "eta", "learning_rate",
    "prox", "inner_steps", "samples", "partition", "min_share", "concentration", "min_samples",
    "content", "client_ids", "scale", "regularizer", "stopping", "tolerance",
    "gradient_tolerance", "variance_tolerance",
)  # fmt: skip

_NOT_OF_CELL = ("run_id", "trial", "error", "machine", "created", *OF_RUN)


class Summary(NamedTuple):
    """The runs of one cell."""

    of: tuple[Any, ...]
    """Values of the parameters that the runs were grouped by."""
    runs: int
    failed: int
    diverged: int
    quartiles: dict[str, tuple[float, float, float]]
    """Of the measures of the runs that did not fail; NaN where there are none."""


def varying(table: Mapping[str, Sequence[Any]]) -> list[str]:
    """Parameters of which the runs have more than one value, and that do not follow from the
    other ones; the algorithm first."""
    several = [n for n in table if n not in _NOT_OF_CELL and _varies(table, n)]
    base = [name for name in several if name not in _DERIVED]
    groups = _groups(table, base)
    shown = [
        name
        for name in several
        if name in base or any(len({table[name][i] for i in g}) > 1 for g in groups.values())
    ]
    return shown if shown or "algorithm" not in table else ["algorithm"]


def _varies(table: Mapping[str, Sequence[Any]], name: str) -> bool:
    """Whether there are several values, not counting that some algorithms have none."""
    if len(set(table[name]) - {None}) > 1:
        return True
    algorithms: dict[Any, set[Any]] = {}
    for algorithm, value in zip(table.get("algorithm", table[name]), table[name], strict=True):
        algorithms.setdefault(algorithm, set()).add(value)
    return any(len(values) > 1 for values in algorithms.values())


def summarize(table: Mapping[str, Sequence[Any]], by: Sequence[str]) -> list[Summary]:
    """Quartiles of the measures, for each combination of the parameters `by` that occurs, in
    their order."""

    def order(group: tuple[tuple[Any, ...], list[int]]) -> list[tuple[bool, bool, Any]]:
        return [(value is not None, isinstance(value, str), value) for value in group[0]]

    found = []
    for of, rows in sorted(_groups(table, by).items(), key=order):
        good = [i for i in rows if table["error"][i] is None]
        quartiles = {}
        for name in QUARTILES:
            values = np.array([table[name][i] for i in good], dtype=np.float64)
            values = values[~np.isnan(values)]
            # Between infinities, as the SNR without noise is, there is nothing to interpolate.
            way: Any = "linear" if np.isfinite(values).all() else "lower"
            q: Any = (np.nan,) * 3
            if len(values):
                q = np.quantile(values, (0.25, 0.5, 0.75), method=way)
            quartiles[name] = (float(q[0]), float(q[1]), float(q[2]))
        diverged = sum(bool(table["diverged"][i]) for i in good)
        found.append(Summary(of, len(rows), len(rows) - len(good), diverged, quartiles))
    return found


def _groups(
    table: Mapping[str, Sequence[Any]], by: Sequence[str]
) -> dict[tuple[Any, ...], list[int]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in range(len(table["run_id"])):
        groups.setdefault(tuple(table[name][i] for name in by), []).append(i)
    return groups
