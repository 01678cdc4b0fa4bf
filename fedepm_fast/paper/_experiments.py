"""The experiments of the paper, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import reduce
from itertools import product
from operator import and_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

#: The algorithms of every experiment, in the order of tables and figures.
ALGORITHM_NAMES = ("fedepm", "sfedprox", "sfedavg")


@dataclass(frozen=True, order=True)
class Cell:
    """What the runs of one point of an experiment have in common, the algorithm aside."""

    clients: int
    local_steps: int
    participation: float
    epsilon: float


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of the paper: every combination of these parameters.

    Attributes
    ----------
    source : str
        As the paper calls it.
    title : str
        What it shows.
    """

    source: str
    title: str
    clients: tuple[int, ...] = (50,)
    local_steps: tuple[int, ...] = (12,)
    participation: tuple[float, ...] = (0.5,)
    epsilon: tuple[float, ...] = (0.1,)

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


#: The parameters of a cell.
PARAMETERS = tuple(f.name for f in fields(Cell))

EXPERIMENTS: dict[str, Experiment] = {
    "fig2": Experiment(
        "Fig. 2", "the objective along the rounds", clients=(50, 100), local_steps=(4, 12, 20)
    ),
    "fig3": Experiment(
        "Fig. 3",
        "communication rounds and total time against the local steps",
        clients=(50, 100),
        local_steps=(4, 8, 12, 16, 20),
    ),
    "table1": Experiment(
        "Table 1",
        "local time of a round against the local steps",
        clients=(50, 128),
        local_steps=(4, 8, 12, 16, 20),
    ),
    "fig4": Experiment(
        "Fig. 4", "the effect of the participation", participation=(0.2, 0.4, 0.6, 0.8, 1.0)
    ),
    "fig5": Experiment("Fig. 5", "the effect of epsilon", epsilon=(0.1, 0.3, 0.5, 0.7, 0.9)),
}


def distinct_cells(experiments: Iterable[Experiment]) -> list[Cell]:
    """Every cell once, though several experiments may share it, those of a split side by side."""
    return sorted({cell for experiment in experiments for cell in experiment.cells})


def as_parameters(cell: Cell) -> dict[str, float]:
    """The cell as columns of a table."""
    return asdict(cell)


#: Table 1 as the paper prints it: LCT in seconds by (clients, local steps), on a laptop of 2020 in
#: MATLAB, in the order of `ALGORITHM_NAMES`.
PRINTED_LCT: dict[tuple[int, int], tuple[float, float, float]] = {
    (50, 4): (0.0011, 0.0082, 0.0037),
    (50, 8): (0.0015, 0.0155, 0.0067),
    (50, 12): (0.0018, 0.0226, 0.0096),
    (50, 16): (0.0021, 0.0293, 0.0125),
    (50, 20): (0.0023, 0.0360, 0.0148),
    (128, 4): (0.0019, 0.0109, 0.0058),
    (128, 8): (0.0024, 0.0198, 0.0097),
    (128, 12): (0.0030, 0.0279, 0.0132),
    (128, 16): (0.0036, 0.0359, 0.0172),
    (128, 20): (0.0041, 0.0457, 0.0213),
}
