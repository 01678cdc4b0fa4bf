"""What `bench/private.py` found, as tables and as a figure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from matplotlib import rcParams, style
from private import HOW, TABLES

from fedepm_fast import plots

#: The style of the documentation's figures on dark pages.
DARK = Path(__file__).parents[1] / "docs" / "dark.mplstyle"


@dataclass(frozen=True)
class Cell:
    """What each trial of a table, a way and an epsilon gave, by its seed."""

    accuracy: dict[int, float]
    loss: dict[int, float]
    rise: dict[int, float]
    reach: dict[int, float]
    seconds: dict[int, float]

    def __str__(self) -> str:
        return f"{median(self.accuracy.values()):.3f} ({min(self.accuracy.values()):.3f})"


Cells = dict[tuple[str, str, float], Cell]


def read(path: Path) -> Cells:
    """Cells by table, way and epsilon; of a curator's settings those whose median is best."""
    trials: dict[tuple[str, str, float], dict[int, list[dict[str, float]]]] = {}
    for line in path.read_text().splitlines():
        *key, seed = (record := json.loads(line))["key"]
        trials.setdefault(tuple(key), {})[seed] = record["found"]
    cells = {}
    for key, found in trials.items():
        settings = [dict(zip(found, of, strict=True)) for of in zip(*found.values(), strict=True)]
        best = max(settings, key=lambda of: median(one["accuracy"] for one in of.values()))
        parts = (
            {seed: one[name] for seed, one in best.items() if name in one}
            for name in ("accuracy", "loss", "rise", "reach", "seconds")
        )
        cells[key] = Cell(*parts)
    return cells


def excess(cells: Cells, name: str, cell: Cell) -> float:
    """How far the mean loss is above that without privacy, of the same split: the median."""
    best = cells[name, "optimum", math.inf].loss
    return median(loss - best[seed] for seed, loss in cell.loss.items())


def show(path: Path, figure: Path | None) -> None:
    """The tables, as Markdown, and the figure, for light and for dark pages."""
    cells = read(path)
    if figure:
        draw(cells, figure)
        with style.context(str(DARK)):
            draw(cells, figure.with_stem(f"{figure.stem}-dark"))
    print(f"| trusted | protected | how | {' | '.join(t.words for t in TABLES.values())} |")
    print("|---" * (3 + len(TABLES)) + "|")
    for way, how in HOW.items():
        epsilon = math.inf if math.inf in how.epsilons else 1.0
        if how.row:
            row = [str(cells.get((name, way, epsilon), "")) for name in TABLES]
            print(f"| {how.row} | {' | '.join(row)} |")
    for name, table in TABLES.items():
        columns = (0.25, 0.5, 1.0, 2.0, 5.0)
        print(f"\n| {table.words} | {' | '.join(f'{epsilon:g}' for epsilon in columns)} |")
        print("|---" * (1 + len(columns)) + "|")
        for way, how in HOW.items():
            found = [cells.get((name, way, epsilon)) for epsilon in columns]
            if any(found):
                print(f"| {how.words} | {' | '.join(str(cell or '') for cell in found)} |")
            if any(cell and cell.rise for cell in found):
                said = [
                    f"{median(cell.rise.values()):.2g}, {median(cell.reach.values()):.0%}; "
                    f"{excess(cells, name, cell):.2g}" if cell else "" for cell in found
                ]  # fmt: skip
                print(f"| noise, and way, said; loss found | {' | '.join(said)} |")
        times = [median(c.seconds.values()) for (of, *_), c in cells.items()
                 if of == name and c.seconds]  # fmt: skip
        if times:
            print(f"\n{min(times):.2f} to {max(times):.2f} s a run")


#: Colour by who is trusted, line and marker by what is protected and by which noise.
LOOKS: dict[str, tuple[str, str, str]] = {
    "gaussian": ("#0072B2", "-", "o"),
    "laplace": ("#0072B2", "--", "s"),
    "client": ("#0072B2", ":", "v"),
    "sums": ("#009E73", "-", "o"),
    "client sums": ("#009E73", ":", "v"),
    "central": ("#E69F00", "-.", "D"),
}


def draw(cells: Cells, path: Path) -> None:
    """Accuracy against epsilon, a panel a table and a line a way: medians, and shaded down to the
    worst trial where records have Gaussian noise."""
    figure, grid = plots.new_grid(2, 2, 9.0, 6.4)
    for ax, (name, table) in zip(grid.flat, TABLES.items(), strict=True):
        levels = []
        for way in ("majority", "optimum"):
            levels += [median(cells[name, way, math.inf].accuracy.values())]
            ax.axhline(levels[-1], color=rcParams["text.color"], linestyle=(0, (1, 2)), lw=1)
            words = dict(xytext=(0, 2), textcoords="offset points")
            ax.annotate(HOW[way].words, (0.25, levels[-1]), fontsize=8, **words)
        for way, (colour, line, marker) in LOOKS.items():
            found = {e: cells[name, way, e] for e in HOW[way].epsilons if (name, way, e) in cells}
            middle = [median(cell.accuracy.values()) for cell in found.values()]
            ax.plot(
                [*found], middle, label=HOW[way].words, color=colour, linestyle=line,
                marker=marker, markersize=4,
            )  # fmt: skip
            if way in ("gaussian", "sums"):
                worst = [min(cell.accuracy.values()) for cell in found.values()]
                ax.fill_between([*found], worst, middle, color=colour, alpha=0.15, lw=0)
        low, high = levels
        ax.set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
        ax.set_xscale("log")
        ax.set_xticks([0.25, 0.5, 1, 2, 5], ["0.25", "0.5", "1", "2", "5"])
        ax.minorticks_off()
        ax.set_title(table.words, fontsize=10)
    for ax in grid[-1]:
        ax.set_xlabel("epsilon")
    for ax in grid[:, 0]:
        ax.set_ylabel("accuracy")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
