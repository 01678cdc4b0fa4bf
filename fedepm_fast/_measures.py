"""Measures of a run: one description of each, which stores, tables, figures and reports read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import Result


@dataclass(frozen=True)
class Measure:
    """What there is to know of a measure.

    Attributes
    ----------
    name : str
        Its key in `Result.summary`, its column in stores and tables.
    label : str
        On an axis; a measure without one is not drawn.
    short : str
        In a sentence.
    kind : type
        float, int, bool or str.
    unit : str or None
    log : int or None
        Base of its axis where values differ by much; None for a linear one.
    quartiles : bool
        Whether summaries of several runs have it.
    of : {"run", "optimum", "round"}
        Of a run alone; of a run beside its optimum; of each round.
    value : callable, optional
        From a result to what is kept, where that is not the summary's.
    """

    name: str
    label: str = ""
    short: str = ""
    kind: type = float
    unit: str | None = None
    log: int | None = None
    quartiles: bool = False
    of: str = "run"
    value: Callable[[Result], Any] | None = None


_ALL = (
    Measure("mean_objective", "f(x) / m", "f/m", quartiles=True),
    Measure("gap_percent", "f(x) above the optimum (%)", of="optimum"),
    Measure("rounds", "communication rounds (CR)", "CR", int, log=2, quartiles=True),
    Measure("iterations", "local iterations", kind=int, log=2),
    Measure("total_time", "total time (TCT)", "TCT", unit="s", log=10, quartiles=True),
    Measure("local_time", "local time a round (LCT)", "LCT", unit="s", log=10, quartiles=True),
    # Kept as it is where it is infinite or NaN.
    Measure("snr", "SNR (log10)", "SNR", quartiles=True, value=lambda result: result.snr),
    Measure("accuracy", "accuracy", quartiles=True),
    Measure("grad_mean_sq", "squared norm of the mean gradient", log=10),
    Measure("diverged", kind=bool),
    Measure("reasons", kind=str, value=lambda result: "+".join(result.reasons)),
    Measure("guarantee", kind=str),
    Measure("rounds_to_5_percent", short="rounds to within 5 %", of="optimum"),
    Measure("objective", "f(x)", of="round"),
    Measure("elapsed", "time since the start", unit="s", of="round"),
)
MEASURES = {measure.name: measure for measure in _ALL}

#: Names of what is kept of a run beside its history, in this order.
OF_RUN = tuple(measure.name for measure in _ALL if measure.of == "run")

#: Names of what figures show of runs, and round by round of their histories beside that.
DRAWN = tuple(measure.name for measure in _ALL if measure.label and measure.of != "round")
OF_ROUND = tuple(measure.name for measure in _ALL if measure.of == "round")


def label_of_measure(name: str) -> str:
    """A measure's name on an axis; a column that is no measure is called by its name."""
    return MEASURES[name].label if name in MEASURES else name.replace("_", " ")


def measured(result: Result) -> dict[str, Any]:
    """What is kept of a run: the measures of `OF_RUN`."""
    found = result.summary()
    own = {name: MEASURES[name].value for name in OF_RUN}
    return {name: found[name] if of is None else of(result) for name, of in own.items()}
