"""The score of a tuning over one or two parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._draw import parameter_label, value_label
from ._style import MORE_STYLES, STYLES, ink, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..tuning import TuneResult, TuneTrial
    from ..tuning._space import Axis

Array = NDArray[np.float64]

#: From bad to good; lightness alone tells the order, in grey and to colour-blind readers.
COLOURS = "cividis"
LEVELS = 12

_EDGE = {"edgecolors": "white", "linewidths": 1.1}
_BEST = {"marker": "*", "s": 230, "color": MORE_STYLES[0]["color"], **_EDGE}
_DEFAULT = {"marker": "D", "s": 62, "color": STYLES["fedepm"]["color"], **_EDGE}
#: How far from the trials the surface goes, in lengths of the axes.
REACH = 0.4


def tuning(result: TuneResult, parameters: Sequence[str] | None = None) -> Figure:
    """Draw the score of a tuning over two of its parameters, or over one.

    Over two: a smooth surface through the trials, whose other parameters differ too, with the
    trials as points, the best, the algorithm as given, and the trials without a score. Scores far
    worse than the middle ones are drawn as if they were at the end of the scale. Over one:
    trials with standard errors.

    Parameters
    ----------
    result : TuneResult
    parameters : sequence of one or two str, optional
        The most important ones by default, see `TuneResult.importance`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError, TypeError
        Naming the argument.
    """
    if not all(hasattr(result, name) for name in ("importance", "space", "trials")):
        raise TypeError(f"result must be a TuneResult, got {type(result).__name__}")
    if parameters is None:
        parameters = list(result.importance())[:2]
    names = [parameters] if isinstance(parameters, str) else list(parameters)
    unknown = [name for name in names if name not in result.space]
    if unknown or not 1 <= len({*names}) == len(names) <= 2:
        raise ValueError(
            f"parameters must be one or two of {', '.join(result.space)}, got {parameters!r}"
        )
    return (_line if len(names) == 1 else _surface)(result, *names)


class _Scale:
    """One axis: where a value of a parameter stands."""

    def __init__(self, name: str, axis: Axis, trials: Sequence[TuneTrial]) -> None:
        self.name, self.axis = name, axis
        #: The values to choose from, and those of the trials; a range has none of its own.
        self.choices = list(getattr(axis, "values", ()))
        values = [*self.choices, *(t.parameters[name] for t in trials)]
        self.numeric = all(map(_is_number, values))
        self.values = sorted({*values}) if self.numeric else list(dict.fromkeys(values))
        self.log = self.numeric and getattr(axis, "log", False)

    def places(self, trials: Sequence[TuneTrial]) -> Array:
        """Of trials, in the units of the axis."""
        found = [t.parameters[self.name] for t in trials]
        return np.array(found if self.numeric else list(map(self.values.index, found)), float)

    def unit(self, places: Array) -> Array:
        """Places as numbers from 0 to 1, for the smooth surface."""
        low, high = self.ends
        if self.log:
            return (np.log(places) - np.log(low)) / (np.log(high) - np.log(low))
        return (places - low) / (high - low)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest place."""
        known = [float(v) for v in self.values] if self.numeric else [0.0, len(self.values) - 1.0]
        if not self.choices:
            known += [self.axis.low, self.axis.high]  # type: ignore[union-attr]
        return min(known), max(known) if max(known) > min(known) else min(known) + 1.0

    def spaced(self, count: int) -> Array:
        """Places from end to end."""
        return (np.geomspace if self.log else np.linspace)(*self.ends, count)

    def draw(self, axis: Any) -> None:
        """Name, scale and ticks of a matplotlib axis."""
        margin = 0.06 if self.choices else 0.02
        axis.axes.set(**{f"{axis.axis_name}label": parameter_label(self.name)})
        low, high = self.ends
        if self.log:
            axis.axes.set(**{f"{axis.axis_name}scale": "log"})
            room = (high / low) ** margin
            limits = low / room, high * room
        else:
            room = margin * (high - low)
            limits = low - room, high + room
        axis.axes.set(**{f"{axis.axis_name}lim": limits})
        if self.choices:
            ticks = self.values if self.numeric else range(len(self.values))
            axis.set_ticks(list(ticks), [value_label(v) for v in self.values])


def _is_number(value: Any) -> bool:
    """Whether a value of a parameter has a place on an axis of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _score_label(result: TuneResult) -> str:
    score = "accuracy" if result.maximize else "mean loss"
    return f"held-out {score}, {result.settings['folds']} folds of {result.settings['over']}"


def _parts(result: TuneResult) -> tuple[list[TuneTrial], list[TuneTrial]]:
    """Trials with a score, and those without."""
    complete = [t for t in result.trials if t.score is not None]
    return complete, [t for t in result.trials if t.score is None]


def _bounds(scores: Array, maximize: bool) -> tuple[float, float]:
    """The ends of the colour scale: the best score, and one that bad ones do not stretch."""
    worse = -scores if maximize else scores
    best, (middle, third) = worse.min(), np.quantile(worse, (0.5, 0.75))
    end = min(worse.max(), middle + 2.5 * (third - best))
    if not end > best:
        end = best + max(abs(best), 1.0) * 1e-3
    return (-end, -best) if maximize else (best, end)


def _surface(result: TuneResult, across: str, up: str) -> Figure:
    from matplotlib.colors import Normalize

    complete, lost = _parts(result)
    x, y = (_Scale(name, result.space[name], result.trials) for name in (across, up))
    scores = np.array([t.score for t in complete], dtype=float)
    low, high = _bounds(scores, result.maximize)
    figure, ax = new_figure(6.8, 4.8)
    ax.grid(False)
    norm = Normalize(low, high)
    colours = {"cmap": COLOURS if result.maximize else f"{COLOURS}_r", "norm": norm}
    places = x.places(complete), y.places(complete)
    if x.numeric and y.numeric and len({*zip(*places, strict=True)}) >= 6:
        _smooth(ax, x, y, places, np.clip(scores, low, high), colours)
    shown = ax.scatter(
        *places, c=scores, s=26, edgecolors="black", linewidths=0.6, zorder=4, **colours
    )
    _crosses(ax, x.places(lost), y.places(lost))
    for trial, label, style in _marked(result):
        place = x.places([trial]), y.places([trial])
        ax.scatter(*place, zorder=6, label=label, **style)
    x.draw(ax.xaxis)
    y.draw(ax.yaxis)
    cut = scores.min() < low or scores.max() > high
    extend = ("min" if result.maximize else "max") if cut else "neither"
    bar = figure.colorbar(shown, ax=ax, extend=extend, pad=0.02)
    bar.set_label(_score_label(result))
    _legend(figure, ax)
    return figure


def _marked(result: TuneResult) -> list[tuple[TuneTrial, str, dict[str, Any]]]:
    """The algorithm as given and the best trial, what to call them, and how to draw them."""

    def named(trial: TuneTrial, name: str) -> str:
        if trial.score is None:
            return f"{name}: {trial.state}"
        return f"{name}: {trial.score:.4f} ± {trial.standard_error:.4f}"

    if result.best is result.default:
        return [(result.best, named(result.best, "as given, and best"), _BEST)]
    return [
        (result.default, named(result.default, "as given"), _DEFAULT),
        (result.best, named(result.best, "best"), _BEST),
    ]


def _crosses(ax: Any, x: Array, y: Array) -> None:
    """Trials without a score, on any ground."""
    if len(x):
        from matplotlib.patheffects import withStroke

        ax.scatter(
            x, y, s=30, color="black", linewidths=1.3, label=f"no score ({len(x)})", marker="x",
            zorder=4, clip_on=False, path_effects=[withStroke(linewidth=3.4, foreground="white")],
        )  # fmt: skip


def _legend(figure: Figure, ax: Any) -> None:
    """What marks stand for, above the axes, where it covers no data."""
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False,
        fontsize=9, handletextpad=0.3, columnspacing=1.4,
    )  # fmt: skip


def _smooth(
    ax: Any, x: _Scale, y: _Scale, places: tuple[Array, Array], scores: Array, colours: Any
) -> None:
    """A surface near the trials: it leaves out what is far from all of them."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial import cKDTree

    points = np.column_stack([x.unit(places[0]), y.unit(places[1])])
    grid = [x.spaced(160), y.spaced(160)]
    unit = np.column_stack([part.ravel() for part in np.meshgrid(x.unit(grid[0]), y.unit(grid[1]))])
    # Trials at the same place differ in other parameters: no surface passes through all.
    surface = RBFInterpolator(points, scores, kernel="linear", smoothing=0.05, degree=0)
    fitted = np.clip(surface(unit), colours["norm"].vmin, colours["norm"].vmax)
    far = cKDTree(points).query(unit)[0] > REACH
    field = np.ma.array(fitted, mask=far).reshape(len(grid[1]), len(grid[0]))
    levels = np.linspace(colours["norm"].vmin, colours["norm"].vmax, LEVELS + 1)
    ax.contourf(*grid, field, levels, zorder=1, **colours)
    ax.contour(*grid, field, levels[1:-1], colors="white", linewidths=0.5, alpha=0.7, zorder=2)


def _line(result: TuneResult, name: str) -> Figure:
    complete, lost = _parts(result)
    scale = _Scale(name, result.space[name], result.trials)
    scores = np.array([t.score for t in complete], dtype=float)
    low, high = _bounds(scores, result.maximize)
    figure, ax = new_figure()
    inside = (scores >= low) & (scores <= high)
    errors = np.array([t.standard_error for t in complete])
    places = scale.places(complete)
    points = {"linestyle": "none", "markersize": 4, "color": ink(0.65), "zorder": 2}
    ax.errorbar(
        places[inside], scores[inside], errors[inside], marker="o", elinewidth=0.8, capsize=2,
        label="trials", **points,
    )  # fmt: skip
    end, room = (low if result.maximize else high), 0.06 * (high - low)
    if not inside.all():
        ax.plot(
            places[~inside], np.full((~inside).sum(), end), marker="v" if result.maximize else "^",
            label="worse, beyond the axis", **points,
        )  # fmt: skip
    for trial, label, style in _marked(result):
        if trial.score is not None:
            place = scale.places([trial]), [np.clip(trial.score, low, high)]
            ax.scatter(*place, zorder=5, label=label, **style)
    _crosses(ax, scale.places(lost), np.full(len(lost), end))
    scale.draw(ax.xaxis)
    ax.set_ylim(low - room, high + room)
    ax.set_ylabel(_score_label(result))
    _legend(figure, ax)
    return figure
