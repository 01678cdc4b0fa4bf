"""The figure of the battery: rounds to 0.1 %, a line of dots for each problem."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from fedepm_fast import plots

if TYPE_CHECKING:
    from battery import Row

#: Where "not in 200 rounds" is drawn.
NEVER = 400
OURS = {
    1.0: ("#0072B2", "all clients"),
    0.5: ("#56B4E9", "half of them"),
    0.2: ("#BBDDF0", "a fifth"),
}
OTHERS = {
    "sfedavg": ("#009E73", "^", "SFedAvg, tuned, all clients"),
    "sfedprox": ("#E69F00", "s", "SFedProx, tuned, all clients"),
    "paper": ("#767676", "X", "FedEPM with the paper's parameters"),
}


def draw(rows: list[Row], path: Path) -> None:
    """Write it; of averaging, the coordinates that were better."""
    figure, grid = plots.new_grid(1, 1, 8.5, 0.19 * len(rows) + 1.6)
    axes = grid[0, 0]
    for k, row in enumerate(rows):
        for name, (colour, marker, _) in OTHERS.items():
            paths = [found[1.0] for rival, found in row.rivals.items() if rival.startswith(name)]
            if paths:
                best = min(found.to(1e-3) for found in paths)
                axes.plot(at(best), k, marker, color=colour, markersize=4.5, mfc="none", zorder=2)
        for rho, (colour, _) in reversed(OURS.items()):
            here = at(row.ours[rho].path.to(1e-3))
            axes.plot(here, k, "o", color=colour, markersize=6.5, mec="white", mew=0.5, zorder=3)
    for colour, label in OURS.values():
        axes.plot([], [], "o", color=colour, label=f"FedEPM, curvature: {label}")
    for colour, marker, label in OTHERS.values():
        axes.plot([], [], marker, color=colour, mfc="none", linestyle="", label=label)
    axes.set_xscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, NEVER]
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), "not in\n200"])
    axes.minorticks_off()
    axes.axvline(280, color="0.6", linewidth=0.8)
    axes.set_xlim(0.85, 520)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xlabel("rounds until 0.1 % of the way to the optimum is left")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8
    )
    figure.savefig(path, dpi=110)


def at(rounds: float) -> float:
    return rounds if math.isfinite(rounds) else NEVER
