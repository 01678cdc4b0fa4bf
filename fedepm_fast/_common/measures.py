"""Measures of a run: one description of each, which summaries, stores, tables and figures read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..result import Result


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
    of : {"run", "optimum", "round", "summary"}
        Of a run alone, and kept in stores; of a run beside its optimum; of each round; of a run,
        in its summary only, as a measure of one's own is.
    entry : callable, optional
        From a result to the summary's; by default the result's attribute of that name.
    value : callable, optional
        From a result to what is kept, where that is not the summary's.
    heading, scale, form, suffix : str, float, str, str
        How tables of cells show it: the column's heading, a factor, a format and a unit.
    """

    name: str
    label: str = ""
    short: str = ""
    kind: type = float
    unit: str | None = None
    log: int | None = None
    quartiles: bool = False
    of: str = "run"
    entry: Callable[[Result], Any] | None = None
    value: Callable[[Result], Any] | None = None
    heading: str = ""
    scale: float = 1.0
    form: str = "g"
    suffix: str = ""

    def of_result(self, result: Result) -> Any:
        """The entry of a summary: None where the measure does not exist."""
        found = getattr(result, self.name) if self.entry is None else self.entry(result)
        if isinstance(found, float) and not math.isfinite(found):
            return None
        return list(found) if isinstance(found, tuple) else found


_ALL = (
    Measure(
        "mean_objective", "f(x) / m", "f/m", quartiles=True, heading="f(x)/m", form=".6g"
    ),
    Measure("gap_percent", "f(x) above the optimum (%)", of="optimum"),
    Measure(
        "rounds", "communication rounds (CR)", "CR", int, log=2, quartiles=True, heading="rounds"
    ),
    Measure("iterations", "local iterations", kind=int, log=2),
    Measure(
        "total_time", "total time (TCT)", "TCT", unit="s", log=10, quartiles=True,
        heading="time (TCT)", form=".3g", suffix=" s",
    ),
    Measure(
        "local_time", "local time a round (LCT)", "LCT", unit="s", log=10, quartiles=True,
        heading="local (LCT)", scale=1e3, form=".3g", suffix=" ms",
    ),
    # Kept as it is where it is infinite or NaN.
    Measure("snr", "SNR (log10)", "SNR", quartiles=True, value=lambda result: result.snr),
    Measure("accuracy", "accuracy", quartiles=True),
    Measure(
        "grad_mean_sq", "squared norm of the mean gradient", log=10,
        entry=lambda result: float(result.history["grad_mean_sq"][-1]),
    ),
    Measure("diverged", kind=bool),
    Measure("reasons", kind=str, value=lambda result: "+".join(result.reasons)),
    Measure("guarantee", kind=str),
    Measure("rounds_to_5_percent", short="rounds to within 5 %", of="optimum"),
    Measure("objective", "f(x)", of="round"),
    Measure("elapsed", "time since the start", unit="s", of="round"),
    Measure("algorithm", kind=str, of="summary", entry=lambda result: result.algorithm["name"]),
    Measure(
        "start_objective", of="summary",
        entry=lambda result: result.start_and_best[0] / result.n_clients,
    ),
    Measure(
        "best_objective", of="summary",
        entry=lambda result: result.start_and_best[1] / result.n_clients,
    ),
    Measure("best_round", kind=int, of="summary"),
    Measure("largest_class", of="summary"),
    Measure(
        "intercept", kind=bool, of="summary",
        entry=lambda result: (
            bool(result.data.get("intercept")) if "beta" in result.objective else None
        ),
    ),
    Measure("gradients", of="summary", entry=lambda result: result.work.get("gradients")),
    Measure("bytes_up", of="summary", entry=lambda result: result.work.get("bytes_up")),
    Measure("bytes_down", of="summary", entry=lambda result: result.work.get("bytes_down")),
    Measure("message", kind=str, of="summary"),
    Measure("ended_above_start", kind=bool, of="summary"),
    Measure("ended_above_best", kind=bool, of="summary"),
    Measure("warning", kind=str, of="summary"),
)  # fmt: skip
MEASURES = {measure.name: measure for measure in _ALL}

#: Names of the entries of a summary, in this order; those of one's own follow.
_SUMMARY = (
    "algorithm", "mean_objective", "start_objective", "best_objective", "best_round", "rounds",
    "iterations", "accuracy", "largest_class", "intercept", "snr", "total_time", "local_time",
    "gradients", "bytes_up", "bytes_down", "grad_mean_sq", "reasons", "message", "diverged",
    "ended_above_start", "ended_above_best", "warning", "guarantee",
)  # fmt: skip

#: Names of what is kept of a run beside its history, in this order.
OF_RUN = tuple(measure.name for measure in _ALL if measure.of == "run")

#: Names of what figures show of runs, and round by round of their histories beside that.
DRAWN = tuple(measure.name for measure in _ALL if measure.label and measure.of != "round")
OF_ROUND = tuple(measure.name for measure in _ALL if measure.of == "round")


def add_measure(measure: Measure) -> None:
    """Register a measure of one's own: `Result.summary` has it from then on.

    Parameters
    ----------
    measure : Measure
        With ``of="summary"``: the columns of a store are fixed. Its `entry` says how it follows
        from a result.

    Raises
    ------
    ValueError
        If there is another one of that name, or it is to be of something else.
    """
    if MEASURES.get(measure.name, measure) != measure:
        raise ValueError(f"{measure.name!r} names another measure")
    if measure.of != "summary" or measure.entry is None:
        raise ValueError("a measure of one's own must have of='summary' and an entry")
    MEASURES[measure.name] = measure


def summary_of(result: Result) -> dict[str, Any]:
    """Every measure of a result as a plain value."""
    own = [name for name, measure in MEASURES.items() if measure.of == "summary"]
    names = dict.fromkeys((*_SUMMARY, *own))
    return {name: MEASURES[name].of_result(result) for name in names}


def label_of_measure(name: str) -> str:
    """A measure's name on an axis; a column that is no measure is called by its name."""
    return MEASURES[name].label if name in MEASURES else name.replace("_", " ")


def measured(result: Result) -> dict[str, Any]:
    """What is kept of a run: the measures of `OF_RUN`."""
    kept = (MEASURES[name] for name in OF_RUN)
    return {m.name: m.of_result(result) if m.value is None else m.value(result) for m in kept}
