"""Figures, with matplotlib (the ``plots`` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.validation import check_choice, check_real
from ..algorithms import label_of
from ._draw import lined, words
from ._model import calibration, coefficients
from ._style import (
    MORE_STYLES,
    STYLES,
    further_styles,
    marks,
    new_figure,
    new_grid,
    objective_axis,
    optimum_line,
    rounds_axis,
    save,
)
from ._sweep import sweep, sweep_plot_options
from ._tune import tuning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..result import Result

__all__ = [
    "MORE_STYLES",
    "STYLES",
    "calibration",
    "coefficients",
    "history",
    "labels",
    "new_figure",
    "new_grid",
    "save",
    "sweep",
    "sweep_plot_options",
    "tuning",
]

#: Runs whose legend has its place among the lines; that of more stands beside them.
_INSIDE = 6
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


def history(
    results: Result | Sequence[Result],
    ax: Any = None,
    *,
    optimum: float | None = None,
    x: str = "rounds",
) -> Figure:
    """f(x)/m along one or several runs.

    Runs that diverged are named so. Where one would flatten all others, the axis ends at what
    the others need, and the legend says whose line leaves it; where all did, it is logarithmic.

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
    results = [results] if _is_run(results) else list(results)  # type: ignore[list-item,arg-type]
    if not results or not all(map(_is_run, results)):
        raise TypeError("results must be a Result or a sequence of at least one")
    if optimum is not None:
        optimum = check_real("optimum", optimum)
    if ax is None:
        figure, ax = new_figure(*((6.4, 4.0) if len(results) <= _INSIDE else (9.4, 4.6)))
    else:
        figure = ax.get_figure()
    lines: list[Any] = []
    seen: set[str] = set()
    more = further_styles()
    for result, label in zip(results, labels(results), strict=True):
        name = result.algorithm["name"]
        style = next(more) if name in seen or name not in STYLES else STYLES[name]
        seen.add(name)
        rounds = np.arange(result.rounds + 1)
        across = rounds if x == "rounds" else result.history["elapsed"]
        text = f"{label}: {result.rounds} round{'' if result.rounds == 1 else 's'}"
        text += ", diverged" * result.diverged
        values = result.history["objective"] / result.n_clients
        lines += ax.plot(across, values, label=text, markevery=marks(result.rounds), **lined(style))
    objective_axis(ax, lines, [result.diverged for result in results], optimum)
    if optimum is not None:
        optimum_line(ax, optimum)
    if x == "rounds":
        rounds_axis(ax, max(r.rounds for r in results))
        ax.set_xlabel("communication rounds (logarithmic from 1 on)")
    else:
        ax.set_xlabel("time (s)")
    ax.set_ylabel("f(x) / m")
    for line in lines:  # a legend wider than the axes would squeeze them
        line.set_label(fill(line.get_label(), 44))
    beside: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    ax.legend(frameon=False, **(beside if len(results) > _INSIDE else {}))
    return figure


def _is_run(given: Any) -> bool:
    """Whether it is a `Result`, or as good as one; results know figures, not figures results."""
    return all(hasattr(given, name) for name in ("algorithm", "history", "n_clients"))


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
        known = dict.fromkeys([*_TELLING, *(k for k in mine if k != "mechanism")])
        apart = [k for k in known if any(p.get(k) != mine.get(k) for p in peers)]
        if {"participation", "clients"} & {*apart}:
            # By default lam and eta follow from these two.
            apart = [k for k in apart if k not in ("lam", "eta")]
        values = [f"{words(k)} {_short(mine.get(k))}" for k in apart[:2]]
        label = ", ".join([label_of(mine["name"]), *values])
        again = sum(f == label or f.startswith(f"{label} (") for f in found)
        found.append(f"{label} ({again + 1})" if again else label)
    return found


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
