"""Any measure of many runs against any of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ._plots_style import marks, new_grid, rounds_axis, styles_of
from ._tables import (
    INTERVALS,
    MEASURES,
    PER_ROUND,
    ROUND,
    Histories,
    Interval,
    as_table,
    check_column,
    check_measure,
    check_unmixed,
    parameters,
    summarise,
    summarise_rounds,
)
from ._validation import check_choice
from .result import LABELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Parameters on an axis; others are called by their names.
PARAMETER_LABELS = {
    "clients": "clients $m$",
    "local_steps": "local steps $k_0$",
    "participation": r"participation $\rho$",
    "epsilon": r"$\varepsilon$ (no privacy guarantee)",
    ROUND: "communication rounds",
}
#: Measures whose axis is logarithmic where they differ by much, and its base.
LOGARITHMIC = {"rounds": 2, "iterations": 2, "total_time": 10, "local_time": 10, "grad_mean_sq": 10}
SECONDS = ("total_time", "local_time", "elapsed")
#: "By much".
WIDE = 8.0
NOTES = {
    "quartiles": "median and quartiles of the runs",
    "bootstrap": "median of the runs and its 95 % bootstrap interval",
    "box": "boxes: quartiles and median of the runs; whiskers: up to 1.5 box lengths; x: beyond",
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
        ``snr``, ``accuracy``, ``mean_objective``. Runs that diverged are left out, and the figure
        says so.
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
        The column of which every value has its own panel, or, with one measure, the columns of
        rows and columns of panels.
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
    if against == ROUND and histories is None and hasattr(table, "histories"):
        histories = table.histories()
    frame = as_table(table)
    facets = [facet] if isinstance(facet, str) else list(facet or ())
    if len(facets) > (2 if len(measures) == 1 else 1):
        raise ValueError(f"facet must be one column, or two with a single measure, got {facet!r}")
    for name, column in (("by", by), *(("facet", f) for f in facets)):
        check_column(name, column, frame)
    if against == ROUND:
        _check_histories(frame, histories, measures, kind)
    else:
        check_column("against", against, frame)
        for column in measures:
            check_measure("measure", column, frame)
    frame, notes = _without_diverged(frame)
    keys = list(dict.fromkeys([*facets, by, *([] if against == ROUND else [against])]))
    check_unmixed(frame, keys)
    panels = _Panels(frame, measures, against, by, facets)
    last = 0
    for row, column, ax, name, part in panels:
        if against == ROUND:
            assert histories is not None
            last = max(last, _curves(ax, part, histories, name, panels.styles, by, interval))
        elif kind == "line":
            _lines(ax, part, name, against, by, panels.styles, interval)
        else:
            _boxes(ax, part, name, against, by, panels.styles, panels.across)
        _measure_axis(ax, name, frame, scale, panels.first(column))
        if row == panels.shape[0] - 1:
            ax.set_xlabel(_parameter(against))
    if against == ROUND:
        for ax in panels.axes.flat:
            rounds_axis(ax, last)
    what = NOTES[interval if kind == "line" else "box"]
    return panels.finish("; ".join([what, *notes]), kind)


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
    check_choice("plot's measure", measure, [*MEASURES, *(PER_ROUND if against == ROUND else ())])
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
    held = set.intersection(*(set(histories[r]) for r in frame["run_id"]))
    known = [m for m in (*MEASURES, *PER_ROUND) if m in held]
    for measure in measures:
        check_choice("measure", measure, ["mean_objective", *known])


def _without_diverged(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    if "diverged" not in frame or not frame["diverged"].any():
        return frame, []
    kept = frame[~frame["diverged"].astype(bool)]
    if kept.empty:
        raise ValueError("table must have a run that did not diverge")
    lost = len(frame) - len(kept)
    return kept, [f"{lost} diverged run{'' if lost == 1 else 's'} left out"]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _parameter(name: str) -> str:
    return PARAMETER_LABELS.get(name, _words(name))


def _label(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return LABELS.get(value, str(value))


class _Panels:
    """The panels of a figure, each with its axes, measure and part of the table."""

    def __init__(
        self,
        frame: DataFrame,
        measures: list[str],
        against: str,
        by: str,
        facets: list[str],
    ) -> None:
        def values(column: str) -> list[Any]:
            return sorted(frame[column].dropna().unique().tolist())

        self.frame, self.by = frame, by
        self.styles = styles_of(values(by))
        self.across = [] if against == ROUND else values(against)
        grid: list[list[tuple[str, tuple[tuple[str, Any], ...]]]]
        choices = [[(f, v) for v in values(f)] for f in facets]
        if len(facets) == 2:
            grid = [[(measures[0], (a, b)) for b in choices[1]] for a in choices[0]]
        elif facets:
            grid = [[(name, (a,)) for a in choices[0]] for name in measures]
        else:
            grid = [[(name, ()) for name in measures]]
        self.one_row = len(grid) == 1 and not facets
        width = max(len(row) for row in grid)
        self.shape = len(grid), width
        # Panels of one measure side by side share its axis.
        share: Any = "none" if self.one_row else "row"
        self.figure, self.axes = new_grid(
            *self.shape, 1.0 + 3.0 * width, 0.9 + 2.5 * len(grid), sharey=share
        )
        self.grid = grid

    def __iter__(self) -> Any:
        for row, panels in enumerate(self.grid):
            for column, (measure, chosen) in enumerate(panels):
                ax, part = self.axes[row, column], self.frame
                for name, value in chosen:
                    part = part[part[name] == value]
                if chosen and (row == 0 or len(chosen) == 2):
                    told = [f"{_parameter(name)} = {_label(value)}" for name, value in chosen]
                    ax.set_title(", ".join(told), fontsize=10)
                yield row, column, ax, measure, part

    def first(self, column: int) -> bool:
        """Whether a panel shows the name of its measure."""
        return column == 0 or self.one_row

    def finish(self, note: str, kind: str) -> Figure:
        """Legend above the panels, where it covers no data, and a note below them."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = []
        for style in self.styles.values():
            if kind == "line":
                handles.append(Line2D([], [], **_LINE, **_line_style(style)))
            else:
                marker = Line2D([], [], linestyle="none", **_marker_style(style))
                handles.append((Patch(**_box_style(style)), marker))
        if len(handles) > 1 or self.by != "algorithm":
            title = None if self.by == "algorithm" else _parameter(self.by)
            self.figure.legend(
                handles,
                [_label(value) for value in self.styles],
                title=title,
                loc="outside upper center",
                ncols=len(handles),
                frameon=False,
                handlelength=3,
            )
        self.figure.align_ylabels()
        self.figure.supxlabel(note, fontsize=8, color="0.35")
        return self.figure


_LINE: dict[str, Any] = {"linewidth": 1.6, "markersize": 4.5, "markerfacecolor": "white"}


def _line_style(style: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in style.items() if k != "hatch"}


def _line(ax: Any, x: Any, summary: DataFrame, style: dict[str, Any], **more: Any) -> None:
    ax.fill_between(
        x, summary["lower"], summary["upper"], color=style["color"], alpha=0.18, linewidth=0
    )
    ax.plot(x, summary["median"], **_LINE, **_line_style(style), **more)


def _lines(
    ax: Any,
    part: DataFrame,
    measure: str,
    against: str,
    by: str,
    styles: dict[Any, dict[str, Any]],
    interval: Interval,
) -> None:
    values = sorted(part[against].dropna().unique().tolist())
    numeric = all(isinstance(v, (int, float)) for v in values)
    places = dict(zip(values, values if numeric else range(len(values)), strict=True))
    summary = summarise(part, [by, against], [measure], interval)
    for value, style in styles.items():
        mine = summary[summary[by] == value]
        if len(mine):
            _line(ax, [places[v] for v in mine[against]], mine, style)
    if numeric and values[0] > 0 and values[-1] / values[0] > 2 * WIDE:
        ax.set_xscale("log", base=2)
        ax.minorticks_off()
    if len(values) <= 10 or not numeric:
        ax.set_xticks(list(places.values()), [_label(v) for v in values])


def _curves(
    ax: Any,
    part: DataFrame,
    histories: Histories,
    measure: str,
    styles: dict[Any, dict[str, Any]],
    by: str,
    interval: Interval,
) -> int:
    """Draw histories; the last round drawn."""
    summary = summarise_rounds(part, histories, [by], measure, interval)
    for value, style in styles.items():
        mine = summary[summary[by] == value]
        if len(mine):
            shown = set(marks(int(mine["round"].max())))
            every = [i for i, tau in enumerate(mine["round"]) if tau in shown]
            _line(ax, mine["round"], mine, style, markevery=every)
    return int(summary["round"].max())


def _shade(style: dict[str, Any], light: float) -> Any:
    """Its colour, mixed with so much white, or black if negative."""
    from matplotlib.colors import to_rgb

    colour = np.array(to_rgb(style["color"]))
    return (1 - light) * colour + light if light > 0 else (1 + light) * colour


def _box_style(style: dict[str, Any]) -> dict[str, Any]:
    # Light enough for the median and the hatch to be seen, in grey too.
    return {
        "facecolor": _shade(style, 0.55),
        "edgecolor": _shade(style, -0.25),
        "hatch": style["hatch"],
    }


def _marker_style(style: dict[str, Any]) -> dict[str, Any]:
    return {
        "marker": style["marker"],
        "markersize": 4,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.8,
    }


def _boxes(
    ax: Any,
    part: DataFrame,
    measure: str,
    against: str,
    by: str,
    styles: dict[Any, dict[str, Any]],
    across: list[Any],
) -> None:
    width = 0.8 / len(styles)
    for k, (value, style) in enumerate(styles.items()):
        mine = part[part[by] == value]
        groups = [mine.loc[mine[against] == v, measure] for v in across]
        groups = [group[np.isfinite(group)].to_numpy() for group in groups]
        places = np.arange(len(across)) + (k - (len(styles) - 1) / 2) * width
        edge = {"color": _shade(style, -0.25), "linewidth": 1.2}
        ax.boxplot(
            groups,
            positions=places,
            widths=0.8 * width,
            patch_artist=True,
            manage_ticks=False,
            boxprops=_box_style(style),
            whiskerprops=edge,
            capprops=edge,
            medianprops={"color": "black", "linewidth": 1.2},
            flierprops={"marker": "x", "markersize": 3.5, "markeredgecolor": edge["color"]},
        )
        # Which box it is, where it is too flat for its hatch.
        medians = [np.median(group) if len(group) else np.nan for group in groups]
        ax.plot(places, medians, linestyle="none", zorder=5, **_marker_style(style))
    ax.set_xticks(range(len(across)), [_label(v) for v in across])
    ax.set_xticks(np.arange(len(across) - 1) + 0.5, minor=True)
    ax.tick_params(axis="x", which="both", length=0)
    ax.grid(False, axis="x")
    ax.grid(True, axis="x", which="minor", alpha=0.5, linewidth=0.8)
    ax.set_xlim(-0.5, len(across) - 0.5)


def _measure_axis(ax: Any, measure: str, frame: DataFrame, scale: str, named: bool) -> None:
    from matplotlib.ticker import (
        EngFormatter,
        FormatStrFormatter,
        LogLocator,
        MaxNLocator,
        NullLocator,
    )

    values = frame[measure].to_numpy(float) if measure in frame else np.empty(0)
    values = values[np.isfinite(values)]
    spread = len(values) > 0 and values.min() > 0 and values.max() >= WIDE * values.min()
    if scale == "log" or (scale == "auto" and measure in LOGARITHMIC and spread):
        base = LOGARITHMIC.get(measure, 10)
        ax.set_yscale("log", base=base)
        ax.yaxis.set_major_locator(LogLocator(base=base, subs=(1, 2, 5) if base == 10 else (1,)))
        ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        ax.yaxis.set_minor_locator(NullLocator())
    elif measure in ("rounds", "iterations"):
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if measure in SECONDS:
        ax.yaxis.set_major_formatter(EngFormatter(unit="s"))
    if named:
        ax.set_ylabel({**MEASURES, **PER_ROUND}.get(measure, _words(measure)))
