"""What `bench/private.py` found, as tables and as a figure."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rcParams, style
from private import HOW, TABLES

from fedepm_fast import plots

#: The style of the documentation's figures on dark pages.
DARK = Path(__file__).parents[1] / "docs" / "dark.mplstyle"


@dataclass(frozen=True)
class Cell:
    """The trials of a table, a way and an epsilon."""

    accuracies: list[float]
    losses: list[float]
    rise: float
    seconds: float


Cells = dict[tuple[str, str, float], Cell]


def read(path: Path) -> Cells:
    """Cells by table, way and epsilon; of settings the one whose median is best."""
    trials: dict[tuple[str, str, float], list[list[dict[str, float]]]] = {}
    for line in path.read_text().splitlines():
        *cell, _ = (record := json.loads(line))["key"]
        trials.setdefault(tuple(cell), []).append(record["found"])
    cells = {}
    for key, found in trials.items():
        settings = [*zip(*found, strict=True)]
        best = max(settings, key=lambda of: statistics.median(one["accuracy"] for one in of))
        of = {name: [one.get(name, math.nan) for one in best] for name in
              ("accuracy", "loss", "rise", "seconds")}  # fmt: skip
        cells[key] = Cell(
            of["accuracy"], of["loss"], statistics.median(of["rise"]),
            statistics.median(of["seconds"]),
        )  # fmt: skip
    return cells


def show(path: Path, figure: Path | None) -> None:
    """The tables, as Markdown, and the figure, for light and for dark pages."""
    cells = read(path)
    if figure:
        draw(cells, figure)
        with style.context(str(DARK)):
            draw(cells, figure.with_stem(f"{figure.stem}-dark"))
    for name, table in TABLES.items():
        print(f"\n**{table.words}**\n")
        print("| trusted | epsilon | accuracy | worst | excess loss | said before | s | trials |")
        print("|---|---|---|---|---|---|---|---|")
        best = cells.get((name, "optimum", math.inf))
        for way, how in HOW.items():
            for epsilon in how.epsilons:
                if cell := cells.get((name, way, epsilon)):
                    excess = statistics.median(cell.losses) - (best.losses[0] if best else math.nan)
                    print(
                        f"| {how.words} | {epsilon:g} | {statistics.median(cell.accuracies):.4f} "
                        f"| {min(cell.accuracies):.4f} | {excess:.4f} | {cell.rise:.2g} "
                        f"| {cell.seconds:.2f} | {len(cell.accuracies)} |"
                    )


def draw(cells: Cells, path: Path) -> None:
    """Accuracy against epsilon, a panel a table and a line a way, medians and worst trials."""
    figure, grid = plots.new_grid(2, 2, 9.0, 6.4)
    styles = dict(zip(HOW, [*plots.STYLES.values(), *plots.MORE_STYLES], strict=False))
    for ax, (name, table) in zip(grid.flat, TABLES.items(), strict=True):
        for way, look in styles.items():
            found = {e: cells[name, way, e] for e in HOW[way].epsilons if (name, way, e) in cells}
            middle = [statistics.median(cell.accuracies) for cell in found.values()]
            if [*found] == [math.inf]:
                ax.axhline(middle[0], color=rcParams["text.color"], linestyle=(0, (1, 2)), lw=1)
                words = dict(xytext=(0, 2), textcoords="offset points")
                ax.annotate(HOW[way].words, (5, middle[0]), ha="right", fontsize=8, **words)
            elif found:
                ax.plot([*found], middle, label=HOW[way].words, markersize=4, **look)
                worst = [min(cell.accuracies) for cell in found.values()]
                ax.fill_between([*found], worst, middle, color=look["color"], alpha=0.12, lw=0)
        ax.set_xscale("log")
        ax.set_xticks([0.25, 0.5, 1, 2, 5], ["0.25", "0.5", "1", "2", "5"])
        ax.minorticks_off()
        ax.set_title(table.words, fontsize=10)
    for ax in grid[-1]:
        ax.set_xlabel("epsilon of each record")
    for ax in grid[:, 0]:
        ax.set_ylabel("accuracy")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)
