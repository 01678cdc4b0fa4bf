"""A model's coefficients with intervals, and how its predictions agree with what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._common.text import shortened
from .._common.validation import ArgumentValueError, check_array
from ._draw import lined
from ._style import HATCHES, ink, new_figure, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Coefficients that a panel shows, and characters of their names.
_SHOWN, _NAME = 25, 28
#: Area of the marker of the largest bin.
_AREA = 70.0


def coefficients(
    names: Sequence[str],
    values: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    ax: Any = None,
    *,
    label: str = "coefficient",
) -> Figure:
    """Coefficients as points with their intervals, one below the other.

    Parameters
    ----------
    names : sequence of str, shape (p,)
    values : array_like of shape (p,)
    low, high : array_like of shape (p,), optional
        Ends of the intervals.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    label : str
        Of the axis.

    Returns
    -------
    matplotlib.figure.Figure
        Of many coefficients the 25 whose intervals are farthest from zero, or that are largest.

    Raises
    ------
    ImportError
        Without matplotlib.
    TypeError, ValueError
        Naming the argument.
    """
    point = check_array("values", values, shape=(len(names),))
    ends = [check_array(n, e, shape=point.shape) for n, e in (("low", low), ("high", high)) if
            e is not None]  # fmt: skip
    if len(ends) == 1:
        raise ArgumentValueError("low", "and high must be given together")
    chosen = np.arange(len(point))
    if len(point) > _SHOWN:
        spread = ends[1] - ends[0] if ends else np.ones(len(point))
        strength = np.abs(point) / np.maximum(spread, np.finfo(float).tiny)
        chosen = np.sort(np.argsort(-strength, kind="stable")[:_SHOWN])
    if ax is None:
        _, ax = new_figure(6.4, 1.2 + 0.28 * len(chosen))
    places = np.arange(len(chosen))[::-1]
    style = lined(next(iter(styles_of(["fedepm"]).values()))) | {"linestyle": "none"}
    bars = None
    if ends:
        bars = np.array([point - ends[0], ends[1] - point])[:, chosen]
    ax.errorbar(point[chosen], places, xerr=bars, capsize=2.5, **style)
    ax.axvline(0, color=ink(0.65), linewidth=1, zorder=0)
    ax.set_yticks(places, [shortened(str(names[j]), _NAME) for j in chosen.tolist()])
    ax.set_ylim(-0.7, len(chosen) - 0.3)
    ax.grid(False, axis="y")
    ax.set_xlabel(label)
    if len(chosen) < len(point):
        ax.set_title(f"the {len(chosen)} clearest of {len(point)}", fontsize=9, color=ink(0.65))
    return ax.get_figure()


def calibration(
    curves: Mapping[str, Mapping[str, ArrayLike]],
    ax: Any = None,
    *,
    predicted: str = "predicted",
    seen: str = "seen",
    unit: bool = False,
) -> Figure:
    """Means of what was seen against means of what was predicted, a line for each client.

    Parameters
    ----------
    curves : mapping of str to mapping
        By client arrays ``predicted``, ``seen`` and ``rows``, one entry for each bin of rows, as
        `Evaluation.curves` has them.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    predicted, seen : str
        Labels of the axes.
    unit : bool
        Whether both are probabilities, from 0 to 1.

    Returns
    -------
    matplotlib.figure.Figure
        Of more than seven clients those of most rows are told apart, and the others are grey.

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError
        If there is no curve.
    """
    if not curves:
        raise ArgumentValueError("curves", "must be those of at least one client, got none")
    if ax is None:
        _, ax = new_figure(4.8, 4.4)
    held = {
        name: tuple(np.asarray(curve[key], float) for key in ("predicted", "seen", "rows"))
        for name, curve in curves.items()
    }
    ends = np.concatenate([part for x, y, _ in held.values() for part in (x, y)])
    # Of rare outcomes the corner where they are.
    low, high = float(ends.min()), float(ends.max())
    if unit:
        low, high = 0.0, min(1.0, 1.15 * high) or 1.0
    ax.plot([low, high], [low, high], color=ink(0.65), linestyle=(0, (4, 3)), linewidth=1, zorder=0)
    most = max(float(rows.max()) for *_, rows in held.values())
    by_size = sorted(held, key=lambda name: -float(held[name][2].sum()))
    told = [name for name in held if name in by_size[: len(HATCHES)]]
    styles = styles_of(told) if not {"fedepm", "sfedavg", "sfedprox"} & {*told} else {}
    for name, (x, y, rows) in held.items():
        style = styles.get(name, {"color": ink(0.35), "linestyle": "-", "marker": "."})
        line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.3}
        label = shortened(name, _NAME) if name in styles else None
        ax.plot(x, y, **line)
        ax.scatter(x, y, s=_AREA * rows / most, color=style["color"], marker=style["marker"],
                   alpha=0.8, linewidth=0)  # fmt: skip
        if label is not None:
            ax.plot([], [], label=label, marker=style["marker"], markersize=4.5, **line)
    if len(told) < len(held):
        ax.plot([], [], label=f"{len(held) - len(told)} more", color=ink(0.35), marker=".")
    if unit:
        ax.set_xlim(-0.02 * high, 1.02 * high)
        ax.set_ylim(-0.02 * high, 1.02 * high)
        ax.set_aspect("equal")
    ax.set_xlabel(predicted)
    ax.set_ylabel(seen)
    ax.legend(frameon=False, fontsize=8)
    return ax.get_figure()
