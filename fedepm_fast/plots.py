"""Figures, with matplotlib (the ``plots`` extra)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._extras import require
from ._files import replacing
from ._validation import check_choice, check_real
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
#: The same for further runs of an algorithm in one figure.
MORE_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#D55E00", "linestyle": ":", "marker": "D"},
    {"color": "#CC79A7", "linestyle": (0, (7, 2)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "P"},
    {"color": "#000000", "linestyle": (0, (1, 1)), "marker": "X"},
)

#: Settings that tell runs of one algorithm apart, the ones that explain most first.
_TELLING = (
    "local_steps",
    "participation",
    "epsilon",
    "preset",
    "noise",
    "clients",
    "lam",
    "eta",
    "mu0",
    "learning_rate",
    "coverage_rounds",
    "seed",
    "trial",
)


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
    results: Result | Sequence[Result],
    ax: Any = None,
    *,
    optimum: float | None = None,
    x: str = "rounds",
) -> Figure:
    """f(x)/m along one or several runs.

    Parameters
    ----------
    results : Result or sequence of Result
        Runs of one algorithm are told apart by the settings in which they differ.
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

    Raises
    ------
    ImportError
        Without matplotlib.
    TypeError, ValueError
        Naming the argument.
    """
    check_choice("x", x, ("rounds", "time"))
    results = [results] if isinstance(results, Result) else list(results)
    if not results or not all(isinstance(r, Result) for r in results):
        raise TypeError("results must be a Result or a sequence of at least one")
    if optimum is not None:
        optimum = check_real("optimum", optimum)
    if ax is None:
        figure, ax = new_figure()
    else:
        figure = ax.get_figure()
    seen: set[str] = set()
    more = cycle(MORE_STYLES)
    for result, label in zip(results, labels(results), strict=True):
        name = result.algorithm["name"]
        style = next(more) if name in seen else STYLES[name]
        seen.add(name)
        rounds = np.arange(result.rounds + 1)
        across = rounds if x == "rounds" else result.history["elapsed"]
        ax.plot(
            across,
            result.history["objective"] / result.n_clients,
            label=f"{label}: {result.rounds} round{'' if result.rounds == 1 else 's'}",
            linewidth=1.6,
            markersize=4.5,
            markerfacecolor="white",
            markevery=_marks(result.rounds),
            **style,
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
        ax.set_xlim(-0.06, max(last, 1) * 1.1)  # markers at 0 stay whole
        ticks = [0] + [2**k for k in range(int(np.log2(max(last, 1))) + 1)]
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel("communication rounds (logarithmic from 1 on)")
    else:
        ax.set_xlabel("time (s)")
    ax.set_ylabel("f(x) / m")
    ax.legend(frameon=False)
    return figure


def labels(results: Sequence[Result]) -> list[str]:
    """A name for every run: its algorithm, and what sets it apart from others of that algorithm."""

    def settings(result: Result) -> dict[str, Any]:
        return {
            **result.algorithm,
            "clients": result.n_clients,
            "seed": result.seed,
            "trial": result.trial,
        }

    found: list[str] = []
    for result in results:
        mine = settings(result)
        peers = [settings(r) for r in results if r.algorithm["name"] == mine["name"]]
        apart = [k for k in _TELLING if any(p.get(k) != mine.get(k) for p in peers)]
        if {"participation", "clients"} & {*apart}:
            # By default lam and eta follow from these two.
            apart = [k for k in apart if k not in ("lam", "eta")]
        told = [f"{k.replace('_', ' ')} {_short(mine.get(k))}" for k in apart[:2]]
        label = ", ".join([LABELS[mine["name"]], *told])
        again = sum(f == label or f.startswith(f"{label} (") for f in found)
        found.append(f"{label} ({again + 1})" if again else label)
    return found


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure, its format by the suffix; the file appears complete or not at all."""
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    check_choice("the suffix of the figure", kind, ("png", "svg", "pdf"))
    matplotlib = require("matplotlib", "plots", "a figure")
    # No date in the file and no random ids: the same figure is the same bytes.
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "fedepm"}):
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(temporary, format=kind, dpi=200, metadata=dated.get(kind))


def _marks(rounds: int) -> list[int]:
    """Rounds to mark: the first ones, then about evenly on the logarithmic axis."""
    marks = np.unique(np.round(np.geomspace(1, max(rounds, 1), 12)).astype(int))
    return sorted({0, rounds, *(int(k) for k in marks if k <= rounds)})
