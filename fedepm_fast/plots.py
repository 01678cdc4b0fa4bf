"""Figures, with matplotlib (the ``plots`` extra)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._extras import require
from ._files import replacing
from ._validation import check_choice
from .result import LABELS, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colour (Okabe and Ito's, safe for colour-blind readers), line and marker of each algorithm;
#: line and marker alone tell them apart in grey.
STYLES: dict[str, dict[str, Any]] = {
    "fedepm": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "sfedprox": {"color": "#E69F00", "linestyle": "--", "marker": "s"},
    "sfedavg": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
}


def new_figure(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Any]:
    """A figure of its own, outside pyplot's global state, and its axes."""
    require("matplotlib", "plots", "a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, alpha=0.25, linewidth=0.6)
    return figure, ax


def history(
    results: Sequence[Result],
    *,
    ax: Any = None,
    optimum: float | None = None,
    x: str = "rounds",
) -> Figure:
    """f(x)/m along one or several runs.

    Parameters
    ----------
    results : sequence of Result
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    optimum : float, optional
        f*/m, drawn as a dashed line.
    x : {"rounds", "time"}
        Against communication rounds (the paper's logarithmic axis, base 2; round 0 stands at
        its left end, where the scale is linear), or against seconds.

    Returns
    -------
    matplotlib.figure.Figure
    """
    check_choice("x", x, ("rounds", "time"))
    results = list(results)
    if not results or not all(isinstance(r, Result) for r in results):
        raise TypeError("results must be a sequence of at least one Result")
    if ax is None:
        figure, ax = new_figure()
    else:
        figure = ax.figure
    used: dict[str, int] = {}
    for result in results:
        name = result.algorithm["name"]
        used[name] = used.get(name, 0) + 1
        label = LABELS[name] + (f" ({used[name]})" if used[name] > 1 else "")
        rounds = np.arange(result.rounds + 1)
        across = rounds if x == "rounds" else result.history["elapsed"]
        ax.plot(
            across,
            result.history["objective"] / result.n_clients,
            label=f"{label}, {result.rounds} rounds",
            linewidth=1.6,
            markersize=4.5,
            markerfacecolor="white",
            markevery=_marks(result.rounds),
            **STYLES[name],
        )
    if optimum is not None:
        ax.axhline(optimum, color="0.35", linestyle=(0, (4, 3)), linewidth=1, zorder=0)
        # At the left end, where no run has come down yet.
        ax.annotate(
            "optimum",
            (0, optimum),
            xycoords=("axes fraction", "data"),
            xytext=(6, 3),
            textcoords="offset points",
            color="0.35",
            fontsize=9,
        )
    if x == "rounds":
        ax.set_xscale("symlog", base=2, linthresh=1, linscale=0.6)
        last = max(r.rounds for r in results)
        ax.set_xlim(0, max(last, 1) * 1.1)
        ticks = [0] + [2**k for k in range(int(np.log2(max(last, 1))) + 1)]
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel("communication rounds (logarithmic from 1 on)")
    else:
        ax.set_xlabel("time (s)")
    ax.set_ylabel("f(x) / m")
    ax.legend(frameon=False)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure, its format by the suffix; the file appears complete or not at all."""
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    check_choice("the suffix of the figure", kind, ("png", "svg", "pdf"))
    with replacing(path) as temporary:
        # No date in the file: the same figure is the same bytes.
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(temporary, format=kind, dpi=200, metadata=dated.get(kind))


def _marks(rounds: int) -> list[int]:
    """Rounds to mark: the first ones, then about evenly on the logarithmic axis."""
    marks = np.unique(np.round(np.geomspace(1, max(rounds, 1), 12)).astype(int))
    return sorted({0, rounds, *(int(k) for k in marks if k <= rounds)})
