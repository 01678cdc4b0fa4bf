"""Lines, bands and boxes of many runs on given axes, and how axes are named and scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._common.measures import MEASURES, Measure
from ..algorithms import label_of
from ._style import ink, marks, paper
from ._tables import (
    ROUND,
    Histories,
    Interval,
    parameters,
    summarize,
    summarize_rounds,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: A factor by which values differ by much.
WIDE = 8.0


Styles = dict[Any, dict[str, Any]]


# Names -------------------------------------------------------------------------------------


def words(name: str) -> str:
    """A column's name for people."""
    return name.replace("_", " ")


def parameter_label(name: str) -> str:
    """A parameter's name on an axis."""
    return {ROUND: "communication rounds", **parameters()}.get(name, words(name))


def value_label(value: Any) -> str:
    """A parameter's value on an axis."""
    return f"{value:.4g}" if isinstance(value, float) else label_of(str(value))


# Marks -------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """What a panel shows: a measure of the runs of `part`, a line or boxes for each style."""

    ax: Any
    part: DataFrame
    measure: str
    by: str
    """The column whose values the styles are of."""
    styles: Styles


def lines(panel: Panel, interval: Interval, against: str, across: list[Any]) -> None:
    """Medians with a band; against what is no number, points with bars side by side."""
    ax, part, measure, by, styles = panel
    summary = summarize(part, [by, against], [measure], interval)
    numeric = all(isinstance(v, (int, float)) for v in across)
    places = dict(zip(across, across if numeric else range(len(across)), strict=True))
    for k, (value, style) in enumerate(styles.items()):
        mine = summary[summary[by] == value]
        x = np.array([places[v] for v in mine[against]], dtype=float)
        if numeric:
            _line(ax, x, mine, style)
        else:
            ends = (mine["median"] - mine["lower"], mine["upper"] - mine["median"])
            point = {**_plain(style), "linestyle": "none", "markerfacecolor": paper()}
            shift = 0.5 * (k - (len(styles) - 1) / 2) / len(styles)
            ax.errorbar(x + shift, mine["median"], yerr=ends, capsize=3, **point)
    if numeric and across[0] > 0 and across[-1] > 2 * WIDE * across[0]:
        ax.set_xscale("log", base=2)
        ax.minorticks_off()
    if len(across) <= 10 or not numeric:
        ax.set_xticks(list(places.values()), [value_label(v) for v in across])


def curves(panel: Panel, interval: Interval, histories: Histories) -> int:
    """Medians round by round with a band; returns the last round drawn."""
    ax, part, measure, by, styles = panel
    summary = summarize_rounds(part, histories, [by], measure, interval)
    for value, style in styles.items():
        mine = summary[summary[by] == value]
        if len(mine):
            shown = marks(int(mine["round"].max()))
            every = np.flatnonzero(mine["round"].isin(shown)).tolist()
            _line(ax, mine["round"], mine, style, markevery=every)
    return int(summary["round"].max())


def boxes(panel: Panel, against: str, across: list[Any]) -> None:
    """Boxes side by side for every value across."""
    ax, part, measure, by, styles = panel
    width = 0.8 / len(styles)
    for k, (value, style) in enumerate(styles.items()):
        mine = part[(part[by] == value) & np.isfinite(part[measure])]
        groups = [mine.loc[mine[against] == v, measure].to_numpy() for v in across]
        places = np.arange(len(across)) + (k - (len(styles) - 1) / 2) * width
        edge = {"color": _shade(style, 0.25, ink()), "linewidth": 1.2}
        ax.boxplot(
            groups,
            positions=places,
            widths=0.8 * width,
            patch_artist=True,
            manage_ticks=False,
            boxprops=_box(style),
            whiskerprops=edge,
            capprops=edge,
            medianprops={"color": ink(), "linewidth": 1.2},
            flierprops={"marker": "x", "markersize": 3.5, "markeredgecolor": edge["color"]},
        )
        # Which box it is, where it is too flat for its hatch.
        medians = [np.median(group) if len(group) else np.nan for group in groups]
        ax.plot(places, medians, linestyle="none", zorder=5, **_marker(style))
    ax.set_xticks(range(len(across)), [value_label(v) for v in across])
    ax.set_xticks(np.arange(len(across) - 1) + 0.5, minor=True)
    ax.tick_params(axis="x", which="both", length=0)
    ax.grid(False, axis="x")
    ax.grid(True, axis="x", which="minor", alpha=0.5, linewidth=0.8)
    ax.set_xlim(-0.5, len(across) - 0.5)


def legend(figure: Figure, styles: Styles, kind: str, title: str | None) -> None:
    """What lines or boxes stand for, above the panels, where it covers no data."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for style in styles.values():
        if kind == "line":
            handles.append(Line2D([], [], **lined(style)))
        else:
            marker = Line2D([], [], linestyle="none", **_marker(style))
            handles.append((Patch(**_box(style)), marker))
    figure.legend(
        handles,
        [value_label(value) for value in styles],
        title=title,
        loc="outside upper center",
        ncols=len(handles),
        frameon=False,
        handlelength=3,
    )


def measure_axis(ax: Any, measure: str, frame: DataFrame, scale: str) -> None:
    """Scale and ticks of a measure's axis, by all its values in the figure."""
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
    known = MEASURES.get(measure, Measure(measure))
    if scale == "log" or (scale == "auto" and known.log and spread):
        base = known.log or 10
        ax.set_yscale("log", base=base)
        ax.yaxis.set_major_locator(LogLocator(base=base, subs=(1, 2, 5) if base == 10 else (1,)))
        ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        ax.yaxis.set_minor_locator(NullLocator())
    elif known.kind is int:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if known.unit is not None:
        ax.yaxis.set_major_formatter(EngFormatter(unit=known.unit))


def _line(ax: Any, x: Any, summary: DataFrame, style: dict[str, Any], **more: Any) -> None:
    ax.fill_between(
        x, summary["lower"], summary["upper"], color=style["color"], alpha=0.18, linewidth=0
    )
    ax.plot(x, summary["median"], **lined(style), **more)


def _plain(style: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in style.items() if k != "hatch"}


def lined(style: dict[str, Any]) -> dict[str, Any]:
    """A line of this style, and its markers."""
    return {**_plain(style), "linewidth": 1.6, "markersize": 4.5, "markerfacecolor": paper()}


def _shade(style: dict[str, Any], share: float, other: tuple[float, float, float]) -> Any:
    """Its colour, mixed with so much of another."""
    from matplotlib.colors import to_rgb

    return tuple((1 - share) * np.array(to_rgb(style["color"])) + share * np.array(other))


def _box(style: dict[str, Any]) -> dict[str, Any]:
    # Light enough for the median and the hatch to be seen, in grey too.
    face, edge = _shade(style, 0.55, paper()), _shade(style, 0.25, ink())
    return {"facecolor": face, "edgecolor": edge, "hatch": style["hatch"]}


def _marker(style: dict[str, Any]) -> dict[str, Any]:
    return {
        "marker": style["marker"],
        "markersize": 4,
        "markerfacecolor": paper(),
        "markeredgecolor": ink(),
        "markeredgewidth": 0.8,
    }
