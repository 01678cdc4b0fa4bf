"""What figures share: colours, lines, hatches, axes, and how they are written."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.extras import require
from .._common.files import replacing
from .._common.validation import check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colour (Okabe and Ito's, safe for colour-blind readers), line and marker of each algorithm;
#: line and marker alone tell them apart in grey.
STYLES: dict[str, dict[str, Any]] = {
    "fedepm": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "sfedprox": {"color": "#E69F00", "linestyle": "--", "marker": "s"},
    "sfedavg": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
}
#: The same for further runs of an algorithm in one figure.
MORE_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#D55E00", "linestyle": ":", "marker": "D"},
    {"color": "#CC79A7", "linestyle": (0, (7, 2)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "P"},
    {"color": "#767676", "linestyle": (0, (1, 1)), "marker": "X"},
)
#: Lines and markers of their colours, for more runs yet.
_AGAIN: tuple[tuple[str, str], ...] = (("-", "*"), ("--", "<"), ("-.", ">"))
#: Hatches of boxes, in the order of the styles.
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++")


def further_styles() -> Iterator[dict[str, Any]]:
    """Styles for further runs: the first sixteen can be told apart, then they come again."""
    yield from MORE_STYLES
    for line, marker in cycle(_AGAIN):
        for style in MORE_STYLES:
            yield {**style, "linestyle": line, "marker": marker}


def styles_of(values: Iterable[Hashable]) -> dict[Any, dict[str, Any]]:
    """A style, hatch included, for every value; an algorithm's is always the same.

    Raises
    ------
    ValueError
        If there are more values than can be told apart.
    """
    values = list(values)
    ways = [
        {**style, "hatch": hatch}
        for style, hatch in zip((*STYLES.values(), *MORE_STYLES), HATCHES, strict=True)
    ]
    own = dict(zip(STYLES, ways, strict=False))
    if own.keys() & set(values):
        free = iter(ways[len(own) :])
        ways = [own[value] if value in own else next(free, {}) for value in values]
        if not all(ways):
            raise ValueError(
                f"a figure tells {len(HATCHES)} kinds of runs apart, four beside the package's "
                f"own algorithms, got {len(values)}: select some of them"
            )
        return dict(zip(values, ways, strict=True))
    if len(values) > len(ways):
        raise ValueError(
            f"a figure tells {len(ways)} kinds of runs apart, there are {len(values)}: "
            "select some of them"
        )
    return dict(zip(values, ways, strict=False))


def ink(share: float = 1.0) -> tuple[float, float, float]:
    """The colour of text in matplotlib's style, mixed with what it stands on unless all of it."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    text, ground = (np.array(to_rgb(rcParams[key])) for key in ("text.color", "figure.facecolor"))
    red, green, blue = map(float, share * text + (1 - share) * ground)
    return red, green, blue


def paper() -> tuple[float, float, float]:
    """The colour that figures stand on in matplotlib's style."""
    return ink(0.0)


def note(figure: Figure, text: str) -> None:
    """A remark below a figure."""
    figure.supxlabel(text, fontsize=8, color=ink(0.65))


def new_figure(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Any]:
    """A figure of its own, outside pyplot's global state, and its axes."""
    figure, axes = new_grid(1, 1, width, height)
    return figure, axes[0, 0]


def new_grid(
    rows: int, columns: int, width: float, height: float, **subplots: Any
) -> tuple[Figure, Any]:
    """A figure of its own and an array of axes of shape (rows, columns)."""
    require("matplotlib", "plots", "a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, alpha=0.25, linewidth=0.6)
    return figure, axes


def rounds_axis(ax: Any, last: int) -> None:
    """Communication rounds 0..last across: the paper's axis, base 2, but linear from 0 to 1."""
    ax.set_xscale("symlog", base=2, linthresh=1, linscale=0.6)
    ax.set_xlim(-0.06, max(last, 1) * 1.1)  # markers at 0 stay whole
    powers = int(np.log2(max(last, 1)))
    # Every other power, say, where the numbers would touch one another in a narrow panel.
    inches = ax.get_position().width * ax.get_figure().get_size_inches()[0]
    step = int(np.ceil(0.3 * (powers + 1) / inches))
    ticks = [0] + [2**k for k in range(0, powers + 1, step)]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()


def objective_axis(
    ax: Any, lines: Sequence[Any], diverged: Sequence[bool], optimum: float | None
) -> None:
    """No run that diverged, and no peak, flattens the others; lines that leave the axis say so.

    Where every run diverged the axis is logarithmic, if f is positive.
    """
    everything = np.concatenate([line.get_ydata() for line in lines])
    peak = np.max(everything, initial=-np.inf, where=np.isfinite(everything))
    kept = [line.get_ydata() for line, lost in zip(lines, diverged, strict=True) if not lost]
    if not kept:
        if everything.min() > 0 and (optimum is None or optimum > 0):
            ax.set_yscale("log")
        return
    low = min(np.min([y.min() for y in kept]), np.inf if optimum is None else optimum)
    high = max(end for y in kept for end in (y[0], y[-1]))
    reach = max(high - low, 0.1 * abs(high))
    top = high + 0.25 * reach
    if reach > 0 and peak > high + 2 * reach:
        ax.set_ylim(low - 0.05 * reach, top)
        for line in lines:
            if not np.all(line.get_ydata() <= top):
                line.set_label(f"{line.get_label()}, leaves the axis")


def optimum_line(ax: Any, optimum: float) -> None:
    """A dashed line at f*/m."""
    ax.axhline(optimum, color=ink(0.65), linestyle=(0, (4, 3)), linewidth=1, zorder=0)
    scale = ax.yaxis.get_transform()
    low, high, place = scale.transform([*ax.get_ylim(), optimum])
    ax.set_ylim(bottom=scale.inverted().transform(min(low, place - 0.11 * (high - low))))
    # At the left end, where no run has come down yet, and below the line, where none can be.
    ax.annotate(
        "optimum",
        (0, optimum),
        xycoords=("axes fraction", "data"),
        xytext=(6, -3),
        va="top",
        textcoords="offset points",
        color=ink(0.65),
        fontsize=9,
    )


def marks(rounds: int) -> list[int]:
    """Rounds to mark: the first ones, then about evenly on the logarithmic axis."""
    found = np.unique(np.round(np.geomspace(1, max(rounds, 1), 12)).astype(int))
    return sorted({0, rounds, *(int(k) for k in found if k <= rounds)})


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure, its format by the suffix; the file appears complete or not at all."""
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    check_choice("the suffix of the figure", kind, ("png", "svg", "pdf"))
    matplotlib = require("matplotlib", "plots", "a figure")
    # No date in the file and no random ids: the same figure is the same bytes.
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "fedepm"}):
        figure.draw_without_rendering()  # or the layout settles at the second time only
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(temporary, format=kind, dpi=200, metadata=dated.get(kind))
