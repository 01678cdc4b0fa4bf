"""The figures of the comparison: performance profiles, and what a wrong parameter costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison_costs import COSTS, OURS, PERCENT, Cell, order, profile, wrong

from fedepm_fast import plots

WORDS = {
    "profiles": "Performance profiles of every algorithm: rounds, gradients and bytes to 1 % and "
    "to 0.01 %.",
    "sensitivity": "How many runs still reach 1 %, and how many times the rounds they take, where "
    "the parameter is ten times too small or too large.",
}
_BLUES = {"curvature": "#0072B2", "fedepm": "#3F9BD6", "paper": "#8CC6EE"}
_OTHERS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#909090", "#A0522D", "#A66BD0", "#E05252",
           "#5F9EA0", "#999933", "#C45AB3")  # fmt: skip
_LINES: tuple[Any, ...] = ("--", "-.", ":", (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)))


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line of each: FedEPM's solid and blue, the others' broken."""
    others = [name for name in names if name not in OURS]
    found = {
        name: {"color": _OTHERS[k % len(_OTHERS)], "linestyle": _LINES[k % len(_LINES)]}
        for k, name in enumerate(others)
    }
    blue = {n: {"color": _BLUES[n], "linestyle": "-", "linewidth": 2.2} for n in _BLUES}
    return {name: {"linewidth": 1.5, **(found | blue)[name]} for name in names}


def profiles(cells: Sequence[Cell], path: Path) -> None:
    """Share of the instances within a factor of the best, for three costs and two goals."""
    labels = order(cells)
    how, chosen = styles(list(labels)), ("rounds", "gradients", "bytes")
    figure, grid = plots.new_grid(2, 3, 10.5, 7.0, sharex=True, sharey=True)
    factors = np.geomspace(1, 100, 300)
    for row, share in enumerate((0, 1)):
        for ax, cost in zip(grid[row], chosen, strict=True):
            found = profile(cells, cost, share)
            for name, label in labels.items():
                heights = np.searchsorted(found.ratios[name], factors, side="right")
                ax.plot(factors, heights / len(found.ratios[name]), label=label, **how[name])
            ax.set_xscale("log")
            ax.set_xlim(1, 100)
            ax.set_ylim(0, 1.02)
            ax.set_title(f"{COSTS[cost][0]} to {PERCENT[share]}", fontsize=10)
    for ax in grid[-1]:
        ax.set_xlabel("at most so many times the least of all")
        ax.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
        ax.minorticks_off()
    for ax in grid[:, 0]:
        ax.set_ylabel("share of the instances")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)


#: Where "did not get there" is drawn.
_NEVER = 400.0


def sensitivity(cells: Sequence[Cell], path: Path) -> None:
    """Two panels, a line for each contender: shares that get there, and factors in rounds."""
    found, labels = wrong(cells), order(cells)
    rows = [name for name in labels if name in found]
    figure, grid = plots.new_grid(1, 2, 9.5, 0.42 * len(rows) + 1.7, sharey=True)
    shares, factors = grid[0]
    marks = {"0.1": ("<", "#E69F00", "a tenth"), "1": ("o", "#0072B2", "tuned"),
             "10": (">", "#D55E00", "ten times")}  # fmt: skip
    for k, name in enumerate(rows):
        of = found[name]
        there = {factor: float(np.isfinite(of[factor]).mean()) for factor in marks}
        shares.plot([min(there.values()), max(there.values())], [k, k], color="0.8", zorder=0)
        for factor, (marker, colour, _) in marks.items():
            at = k + {"0.1": -0.13, "1": 0.0, "10": 0.13}[factor]
            shares.plot(there[factor], at, marker, color=colour, markersize=7, mec="white", mew=0.5)
            if factor == "1":
                continue
            kept = np.isfinite(of["1"])
            ratio = np.maximum(of[factor][kept], 1) / np.maximum(of["1"][kept], 1)
            if not len(ratio):
                continue
            low, middle, high = np.quantile(ratio, (0.25, 0.5, 0.75), method="inverted_cdf")
            low, middle, high = (v if math.isfinite(v) else _NEVER for v in (low, middle, high))
            factors.plot([low, high], [at, at], color=colour, linewidth=1.6)
            factors.plot(middle, at, marker, color=colour, markersize=7, mec="white", mew=0.5)
    shares.set_yticks(range(len(rows)), [labels[name] for name in rows])
    shares.set_ylim(max(len(rows), 1) - 0.5, -0.5)  # none where nothing has a parameter
    shares.set_xlim(-0.03, 1.03)
    shares.set_xlabel("share of the runs that reach 1 %")
    factors.set_xscale("log")
    ticks = [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    factors.set_xticks([*ticks, _NEVER], [*(f"{t:g}" for t in ticks), "never"])
    factors.minorticks_off()
    factors.axvline(1, color="0.6", linewidth=0.8)
    factors.axvline(200, color="0.6", linewidth=0.8, linestyle=":")
    factors.set_xlabel("times the rounds of the tuned parameter: median, quartiles")
    for marker, colour, label in marks.values():
        shares.plot([], [], marker, color=colour, label=label)
    figure.legend(*shares.get_legend_handles_labels(), loc="outside upper center", ncols=3,
                  fontsize=9, frameon=False)  # fmt: skip
    figure.savefig(path, dpi=110)


FIGURES = {"profiles": profiles, "sensitivity": sensitivity}
