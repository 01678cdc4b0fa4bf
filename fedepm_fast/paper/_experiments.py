"""The experiments of the paper, as ``experiments.toml`` has them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import reduce
from itertools import product
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._common.grid import as_axis

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, order=True)
class Cell:
    """What the runs of one point of an experiment have in common, the algorithm aside."""

    clients: int
    local_steps: int
    participation: float
    epsilon: float

    @property
    def specification(self) -> dict[str, Any]:
        """Its runs for `Sweep.from_dict`: of every algorithm, on the Adult data."""
        values = asdict(self)
        return {
            "data": {"clients": values.pop("clients")},
            "algorithm": {"name": list(ALGORITHM_NAMES), **values},
        }


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of the paper: every combination of these parameters.

    Attributes
    ----------
    source : str
        As the paper calls it.
    title : str
        What it shows.
    caption : str
        Of its figure in the report.
    """

    source: str
    title: str
    clients: tuple[int, ...] = (50,)
    local_steps: tuple[int, ...] = (12,)
    participation: tuple[float, ...] = (0.5,)
    epsilon: tuple[float, ...] = (0.1,)
    caption: str = ""

    @property
    def cells(self) -> list[Cell]:
        """Its cells."""
        return [Cell(*values) for values in product(*(getattr(self, name) for name in PARAMETERS))]

    def varies(self, parameter: str) -> bool:
        """Whether its cells differ in a parameter."""
        return len(getattr(self, parameter)) > 1

    def of(self, table: DataFrame) -> DataFrame:
        """The rows of a table of runs that belong to it."""
        return table[reduce(and_, (table[name].isin(getattr(self, name)) for name in PARAMETERS))]


def read_part(name: str) -> str:
    """The text of a file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


#: The parameters of a cell.
PARAMETERS = tuple(f.name for f in fields(Cell))

_READ = tomllib.loads(read_part("experiments.toml"))

#: The algorithms of every experiment, in the order of tables and figures.
ALGORITHM_NAMES: tuple[str, ...] = tuple(_READ["algorithms"])


def _experiment(given: dict[str, Any]) -> Experiment:
    axes: Any = {name: tuple(as_axis(name, given[name])) for name in PARAMETERS if name in given}
    return Experiment(**{**given, **axes})


EXPERIMENTS = {name: _experiment(given) for name, given in _READ["experiment"].items()}

#: Table 1 as the paper prints it: LCT in seconds by (clients, local steps) and algorithm.
PRINTED_LCT: dict[tuple[int, int], dict[str, float]] = {
    (int(clients), int(local_steps)): dict(zip(ALGORITHM_NAMES, seconds, strict=True))
    for clients, row in _READ["printed_lct"].items()
    for local_steps, seconds in row.items()
}


def distinct_cells(experiments: Iterable[Experiment]) -> list[Cell]:
    """Every cell once, though several experiments may share it, those of a split side by side."""
    return sorted({cell for experiment in experiments for cell in experiment.cells})
