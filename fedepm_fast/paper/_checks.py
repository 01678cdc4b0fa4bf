"""Checks of a table of runs: comparisons of medians, cell by cell or line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._common.measures import MEASURES
from ..algorithms import label_of
from ._experiments import ALGORITHM_NAMES, EXPERIMENTS, PARAMETERS, Experiment

if TYPE_CHECKING:
    from pandas import DataFrame, Series

#: Objective values that differ by at most so many percent are about the same.
SAME_PERCENT = 2.0
#: In a trend of medians, one step may go against it by so many percent; the ends must not.
STEP_AGAINST_PERCENT = 5.0
#: "Not greatly": the largest median over the smallest, at most.
NOT_GREATLY = 1.5
#: "Far more slowly": growth beyond 1 is at most this share of the others'.
FAR_SLOWER = 0.5

_FIG2, _TABLE1 = EXPERIMENTS["fig2"], EXPERIMENTS["table1"]

SYMBOLS = {"clients": "m", "local_steps": "k0", "participation": "rho", "epsilon": "eps"}


class Test(NamedTuple):
    """One comparison."""

    where: str
    holds: bool
    shown: str
    """The numbers that were compared."""

    def __str__(self) -> str:
        return f"{self.where}: {self.shown}"


class Checked(NamedTuple):
    """What a check found."""

    tests: list[Test]
    headline: str


Check = Callable[["DataFrame"], Checked]


# Medians -----------------------------------------------------------------------------------


def medians(table: DataFrame, experiment: Experiment, measure: str) -> DataFrame:
    """Medians over the trials: one row a cell, one column an algorithm, complete rows only."""
    rows = experiment.of(table)
    wide = rows.groupby([*PARAMETERS, "algorithm"])[measure].median().unstack("algorithm")
    return wide.reindex(columns=list(ALGORITHM_NAMES)).dropna()


def lines(wide: DataFrame, experiment: Experiment, along: str) -> Iterator[tuple[str, str, Series]]:
    """Lines of a figure: the rest of the cell in words, algorithm, medians by the parameter."""
    rest = [name for name in PARAMETERS if name != along]
    for values, part in wide.groupby(rest):
        part = part.droplevel(rest)
        where = _where(dict(zip(rest, values, strict=True)), experiment)
        for name in ALGORITHM_NAMES if len(part) > 1 else ():
            yield where, name, part[name]


def _where(cell: Mapping[str, float], experiment: Experiment | None = None) -> str:
    """A cell in words, by those of its parameters that vary in the experiment."""
    varying = [n for n in cell if experiment is None or experiment.varies(n)]
    return ", ".join(f"{SYMBOLS[name]} {cell[name]:g}" for name in varying)


def _named(name: str, where: str) -> str:
    return f"{name}, {where}" if where else name


def _cell(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(PARAMETERS, values, strict=True))


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _seconds(value: float) -> str:
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _shower(measure: str) -> Callable[[float], str]:
    return _seconds if measure.endswith("time") else _number


def _ranges(wide: DataFrame, show: Callable[[float], str]) -> str:
    ends = {name: dict.fromkeys([show(wide[name].min()), show(wide[name].max())]) for name in wide}
    return ", ".join(f"{label_of(name)} {' to '.join(values)}" for name, values in ends.items())


def _unfinished(gap: float) -> str:
    """A remark where runs stopped far from the optimum, and rounds and times mean little."""
    return f" (stopped {gap:.0f} % above the optimum)" if gap > SAME_PERCENT else ""


# Checks ------------------------------------------------------------------------------------


def extreme(
    experiment: Experiment,
    measures: Sequence[str],
    name: str = "fedepm",
    *,
    largest: bool = False,
    factor: float = 1.0,
    than: Sequence[str] = ALGORITHM_NAMES,
) -> Check:
    """An algorithm has the smallest (largest) median of `measures` in every cell."""

    def check(table: DataFrame) -> Checked:
        tests, parts = [], []
        gaps = medians(table, experiment, "gap_percent")
        for measure in measures:
            wide, show = medians(table, experiment, measure), _shower(measure)
            if wide.empty:
                continue
            others = [other for other in than if other != name]
            for cell, row in wide.iterrows():
                mine, rest = row[name], row[others]
                holds = mine > rest.max() if largest else mine < factor * rest.min()
                values = ", ".join(
                    f"{label_of(n)} {show(row[n])}{_unfinished(gaps.at[cell, n])}" for n in than
                )
                where = _named(MEASURES[measure].short, _where(_cell(cell), experiment))
                tests.append(Test(where, bool(holds), values))
            parts.append(f"{MEASURES[measure].short} {_ranges(wide[list(than)], show)}")
        return Checked(tests, "; ".join(parts))

    return check


def trend(experiment: Experiment, measures: Sequence[str], along: str, sign: int) -> Check:
    """Every line of medians rises (`sign` 1) or falls (-1) along a parameter."""

    def check(table: DataFrame) -> Checked:
        tests = []
        for where, show, line in _lines_of(table, experiment, measures, along):
            tests.append(Test(where, _goes_with(line, sign), ", ".join(map(show, line))))
        values = ", ".join(f"{v:g}" for v in getattr(experiment, along))
        return Checked(tests, f"medians for {SYMBOLS[along]} {values}")

    return check


def steady(experiment: Experiment, measures: Sequence[str], along: str) -> Check:
    """No line of medians changes greatly along a parameter."""

    def check(table: DataFrame) -> Checked:
        tests, factors = [], []
        for where, show, line in _lines_of(table, experiment, measures, along):
            factors.append(line.max() / line.min())
            shown = f"{', '.join(map(show, line))} (factor {factors[-1]:.2f})"
            tests.append(Test(where, bool(factors[-1] <= NOT_GREATLY), shown))
        form = "largest over smallest median {:.2f} to {:.2f}"
        return Checked(tests, form.format(min(factors), max(factors)) if factors else "")

    return check


def _lines_of(
    table: DataFrame, experiment: Experiment, measures: Sequence[str], along: str
) -> Iterator[tuple[str, Callable[[float], str], Series]]:
    """Lines of medians: which measure, algorithm and cells, how to show a value, the values."""
    for measure in measures:
        for rest, name, line in lines(medians(table, experiment, measure), experiment, along):
            yield (
                _named(f"{MEASURES[measure].short} of {label_of(name)}", rest),
                _shower(measure),
                line,
            )


def _goes_with(line: Series, sign: int) -> bool:
    """Whether a line rises (`sign` 1) or falls (-1), small steps aside."""
    values = line.to_numpy()
    # Of the size of the one before, for SNR, which is a logarithm and may be negative.
    slack = STEP_AGAINST_PERCENT / 100 * np.abs(values[:-1])
    steps = sign * np.diff(values) >= -slack
    return bool(steps.all() and sign * (values[-1] - values[0]) > 0)


def same_end(table: DataFrame) -> Checked:
    """The baselines end where FedEPM ends."""
    wide = medians(table, _FIG2, "mean_objective")
    tests = []
    for values, row in wide.iterrows():
        for name in ALGORITHM_NAMES[1:]:
            apart = 100 * abs(row[name] / row["fedepm"] - 1)
            where = f"{label_of(name)}, {_where(_cell(values), _FIG2)}"
            shown = f"f/m {row[name]:.4f} and {row['fedepm']:.4f}, {apart:.2f} % apart"
            tests.append(Test(where, bool(apart <= SAME_PERCENT), shown))
    return Checked(tests, f"median f/m {_ranges(wide, lambda v: f'{v:.4f}')}")


def near_optimum(table: DataFrame) -> Checked:
    """All end within 1 % of their split's optimum, SFedAvg at four local steps within 2 %."""
    tests, worst = [], dict.fromkeys(ALGORITHM_NAMES, -np.inf)
    for (*values, name), runs in table.groupby([*PARAMETERS, "algorithm"]):
        cell, gap = _cell(values), runs["gap_percent"].median()
        bound = 2.0 if name == "sfedavg" and cell["local_steps"] <= 4 else 1.0
        worst[name] = max(worst[name], gap)
        shown = f"{gap:.2f} %, bound {bound:g} %"
        if gap > bound:
            reason, count = Counter(runs["reasons"]).most_common(1)[0]
            shown += f", {count} of {len(runs)} runs stopped by {reason.replace('_', ' ')}"
        tests.append(Test(f"{label_of(name)}, {_where(cell)}", bool(gap <= bound), shown))
    text = ", ".join(f"{label_of(n)} {g:.2f} %" for n, g in worst.items() if np.isfinite(g))
    return Checked(tests, f"largest median gap: {text}")


def slower_growth(table: DataFrame) -> Checked:
    """LCT grows more slowly with the local steps for FedEPM."""
    growth: dict[str, dict[str, float]] = {}
    wide = medians(table, _TABLE1, "local_time")
    for rest, name, line in lines(wide, _TABLE1, "local_steps"):
        growth.setdefault(rest, {})[name] = line.iloc[-1] / line.iloc[0]
    tests = []
    for rest, of in growth.items():
        for name in ALGORITHM_NAMES[1:]:
            holds = of["fedepm"] - 1 <= FAR_SLOWER * (of[name] - 1)
            shown = f"x {of['fedepm']:.2f} against x {of[name]:.2f}"
            tests.append(Test(f"{rest}: {label_of(name)}", bool(holds), shown))
    text = "; ".join(
        f"{rest}: " + ", ".join(f"{label_of(n)} x {g:.2f}" for n, g in of.items())
        for rest, of in growth.items()
    )
    return Checked(tests, f"from fewest to most local steps {text}")


def rising_ratio(table: DataFrame) -> Checked:
    """The baselines' LCT in units of FedEPM's rises with the local steps."""
    wide = medians(table, _TABLE1, "local_time")
    ratios = wide.div(wide["fedepm"], axis=0)
    tests, parts = [], []
    for rest, name, line in lines(ratios, _TABLE1, "local_steps"):
        if name == "fedepm":
            continue
        where, shown = f"{rest}: {label_of(name)}/FedEPM", ", ".join(f"{v:.1f}" for v in line)
        tests.append(Test(where, _goes_with(line, 1), shown))
        parts.append(f"{where} {line.iloc[0]:.1f} to {line.iloc[-1]:.1f}")
    return Checked(tests, "; ".join(parts))
