"""Any measure of many runs against any of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from .._common.measures import DRAWN, OF_ROUND, label_of_measure
from .._common.validation import check_choice
from ._draw import (
    Panel,
    boxes,
    curves,
    legend,
    lines,
    measure_axis,
    parameter_label,
    value_label,
    words,
)
from ._style import STYLES, new_grid, note, rounds_axis, styles_of
from ._tables import (
    INTERVALS,
    ROUND,
    Histories,
    Interval,
    as_table,
    check_column,
    check_measure,
    check_unmixed,
    parameters,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

#: Panels in a row where nothing else says how many.
ABREAST = 3
NOTES = {
    "quartiles": "median and quartiles of {}",
    "bootstrap": "median of {} and its 95 % bootstrap interval",
    "box": "boxes: quartiles and median of {}; whiskers: up to 1.5 box lengths; x: beyond",
}


def sweep(
    table: Any,
    measure: str | Sequence[str] = "rounds",
    against: str = "local_steps",
    by: str = "algorithm",
    kind: Literal["line", "box"] = "line",
    facet: str | tuple[str, str] | None = None,
    histories: Histories | None = None,
    *,
    interval: Interval = "quartiles",
    scale: Literal["auto", "linear", "log"] = "auto",
) -> Figure:
    """Draw measures of many runs against a parameter.

    Parameters
    ----------
    table : pandas.DataFrame, or what has ``to_pandas()``
        One row a run: parameters, and measures such as ``rounds``, ``total_time``, ``local_time``,
        ``snr``, ``accuracy``, ``mean_objective``. Runs that diverged, or lack a parameter of the
        figure, are left out, and the figure says so.
    measure : str or sequence of str
        One row of panels for each; with no `facet`, panels side by side.
    against : str
        The column across; ``"round"`` draws the histories, where a run that has stopped keeps its
        last value and a line ends at the median of its runs' last rounds.
    by : str
        The column of which every value has its own line or box.
    kind : {"line", "box"}
        Medians with an interval; or boxes from quartile to quartile with the median, whiskers
        up to 1.5 box lengths, and crosses for what lies beyond.
    facet : str or (str, str), optional
        The column of which every value has its own panel; or, with one measure, two, one for the
        rows of panels and one for the columns.
    histories : mapping, optional
        Per-round arrays by the table's ``run_id``, for ``against="round"``; by default those that
        ``table.histories()`` gives.
    interval : {"quartiles", "bootstrap"}
        The band about a line: quartiles of the runs, or a 95 % percentile bootstrap interval of the
        median.
    scale : {"auto", "linear", "log"}
        Of the measure's axis; automatically logarithmic (base 2 for rounds, base 10 for times)
        where rounds, iterations, times or gradients differ by a factor of 8 or more.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        Without matplotlib or pandas.
    ValueError, TypeError
        Naming the argument and what there is; also if runs that one median would be taken of
        differ in a further parameter.
    """
    check_choice("kind", kind, ("line", "box"))
    check_choice("interval", interval, INTERVALS)
    check_choice("scale", scale, ("auto", "linear", "log"))
    measures = [measure] if isinstance(measure, str) else list(measure)
    if not measures:
        raise ValueError("measure must name at least one column")
    rounds = against == ROUND
    if rounds and histories is None and hasattr(table, "histories"):
        histories = table.histories()
    frame = as_table(table)
    facets = [facet] if isinstance(facet, str) else list(facet or ())
    if len(facets) > (2 if len(measures) == 1 else 1):
        raise ValueError(f"facet must be one column, or two with a single measure, got {facet!r}")
    if rounds:
        _check_histories(frame, histories, measures, kind)
    keys = _keys(frame, [("by", by), *(("facet", name) for name in facets)]
                 + [("against", against)] * (not rounds))  # fmt: skip
    frame, notes = _drawable(frame, keys)
    check_unmixed(frame, keys)
    for column in () if rounds else measures:
        check_measure("measure", column, frame)
        if scale == "log" and not frame[column].min() > 0:
            raise ValueError(f"scale must not be log for {column}, which has values <= 0")

    figure, panels = _panels(frame, measures, facets)
    styles = styles_of(_values(frame, by))
    across = [] if rounds else _values(frame, against)

    def draw(panel: _Place) -> int:
        what = Panel(panel.ax, panel.part, panel.measure, by, styles)
        if panel.part.empty:
            panel.ax.text(0.5, 0.5, "no runs", transform=panel.ax.transAxes, ha="center")
        elif rounds:
            assert histories is not None
            return curves(what, interval, histories)
        elif kind == "line":
            lines(what, interval, against, across)
        else:
            boxes(what, against, across)
        return 0

    last = max(map(draw, panels))
    for panel in panels:
        # The loss of a run is called objective, too.
        of_run = not rounds or panel.measure not in OF_ROUND
        measure_axis(panel.ax, panel.measure, frame if of_run else frame[[]], scale)
        panel.ax.set_ylabel(label_of_measure(panel.measure) if panel.named else "")
        panel.ax.set_xlabel(parameter_label(against) if panel.bottom else "")
        if rounds:
            rounds_axis(panel.ax, last)
    if len(styles) > 1 or by != "algorithm":
        legend(figure, styles, kind, None if by == "algorithm" else parameter_label(by))
    figure.align_ylabels()
    counted = _count(frame, keys, [] if rounds else measures)
    note(figure, "; ".join([NOTES[interval if kind == "line" else "box"].format(counted), *notes]))
    return figure


def _keys(frame: DataFrame, roles: Sequence[tuple[str, str]]) -> list[str]:
    """The columns that tell the points of a figure apart, from what each is for."""
    for role, column in roles:
        check_column(role, column, frame)
    keys = [column for _, column in roles]
    if len({*keys}) < len(keys):
        raise ValueError(f"by, against and facet must be different columns, got {', '.join(keys)}")
    return keys


def sweep_plot_options(plot: str, varied: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of `sweep` from ``"MEASURE:PARAMETER"``, checked before any run.

    Parameters
    ----------
    plot : str
        Such as ``"rounds:local_steps"`` or ``"mean_objective:round"``.
    varied : sequence of str
        The parameters that the runs will differ in. What is neither `plot`'s nor told apart by its
        lines becomes facets, if it is not more than two.

    Raises
    ------
    ValueError
        If it is not of that form, names no measure or no parameter, or leaves more than two
        parameters over.
    """
    measure, colon, against = plot.partition(":")
    if not colon:
        raise ValueError(f"plot must be MEASURE:PARAMETER, as rounds:local_steps, got {plot!r}")
    check_choice("plot's measure", measure, [*DRAWN, *(OF_ROUND if against == ROUND else ())])
    check_choice("plot's parameter", against, [*parameters(), ROUND])
    left = [name for name in varied if name not in (against, "algorithm")]
    by = "algorithm"
    if "algorithm" not in varied and left and against != "algorithm":
        by = left.pop(0)
    if len(left) > 2:
        raise ValueError(
            f"plot can show two parameters beside {against} and {by}, the runs differ in "
            f"{', '.join(left)}: give one value for some of them"
        )
    return {
        "measure": measure,
        "against": against,
        "by": by,
        "facet": tuple(left) if len(left) == 2 else (left[0] if left else None),
    }


def _check_histories(
    frame: DataFrame, histories: Histories | None, measures: Sequence[str], kind: str
) -> None:
    if histories is None:
        raise ValueError('histories must be given for against="round"')
    if kind != "line":
        raise ValueError('kind must be "line" for against="round"')
    check_column("the column that names the runs", "run_id", frame)
    missing = [r for r in frame["run_id"] if r not in histories]
    if missing:
        raise ValueError(f"histories must hold every run, {len(missing)} are missing: {missing[0]}")
    common = set.intersection(*(set(histories[r]) for r in frame["run_id"]))
    known = [m for m in (*DRAWN, *OF_ROUND) if m in common]
    for measure in measures:
        check_choice("measure", measure, ["mean_objective", *known])


def _drawable(frame: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """The runs that have a place in the figure, and remarks on those that have none."""
    notes = []

    def without(lost: Series, why: str) -> None:
        nonlocal frame
        if lost.all():
            raise ValueError(f"table must have runs to draw, all are {why}")
        if count := int(lost.sum()):
            notes.append(f"left out: {count} run{'' if count == 1 else 's'} {why}")
            frame = frame[~lost]

    if "diverged" in frame:
        without(frame["diverged"].astype(bool), "that diverged")
    for name in keys:
        without(frame[name].isna(), f"without {words(name)}")
    return frame, notes


def _count(frame: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> str:
    """Of how many runs a point or a box is, in words; those without the measure do not count."""
    groups = frame.replace([np.inf, -np.inf], np.nan).groupby(list(keys))
    counts = groups[list(measures)].count().to_numpy() if measures else groups.size().to_numpy()
    fewest, most = counts[counts > 0].min(), counts.max()
    runs = f"{most} run{'' if most == 1 else 's'}"
    return f"{runs} each" if fewest == most else f"{fewest} to {runs}"


def _values(frame: DataFrame, column: str) -> list[Any]:
    found = frame[column].unique().tolist()
    known = [name for name in STYLES if name in found]
    return known if len(known) == len(found) else sorted(found)


class _Place(NamedTuple):
    ax: Any
    part: DataFrame
    measure: str
    named: bool
    """Whether it shows the name of its measure."""
    bottom: bool
    """Whether there is no other panel below it."""


def _panels(
    frame: DataFrame, measures: Sequence[str], facets: Sequence[str]
) -> tuple[Figure, list[_Place]]:
    """Axes for every measure and value of the facets."""
    values = [[(name, value) for value in _values(frame, name)] for name in facets]
    grid: list[list[tuple[str, tuple[tuple[str, Any], ...]]]]
    if len(facets) == 2:
        grid = [[(measures[0], (a, b)) for b in values[1]] for a in values[0]]
    elif facets:
        grid = [[(measure, (a,)) for a in values[0]] for measure in measures]
    else:
        grid = [[(measure, ()) for measure in measures]]
    if len(grid) == 1:
        grid = [grid[0][k : k + ABREAST] for k in range(0, len(grid[0]), ABREAST)]
    rows, columns = len(grid), max(map(len, grid))
    # Panels of one measure side by side share its axis.
    figure, axes = new_grid(
        rows,
        columns,
        *((6.4, 4.4) if rows == columns == 1 else (1.0 + 3.0 * columns, 0.9 + 2.5 * rows)),
        sharey="none" if not facets else "row" if len(measures) > 1 else "all",
    )
    panels = []
    for row, column in np.ndindex(rows, columns):
        ax = axes[row, column]
        if column >= len(grid[row]):
            ax.set_axis_off()
            continue
        measure, chosen = grid[row][column]
        part = frame
        for name, value in chosen:
            part = part[part[name] == value]
        if chosen and (row == 0 or len(measures) == 1):
            title = [f"{parameter_label(name)} = {value_label(value)}" for name, value in chosen]
            ax.set_title(", ".join(title), fontsize=10)
        bottom = row == rows - 1 or column >= len(grid[row + 1])
        panels.append(_Place(ax, part, measure, column == 0 or not facets, bottom))
    return figure, panels
