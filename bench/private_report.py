"""What `bench/private.py` found, as tables and as a figure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from matplotlib import rcParams, style
from private import HOW, PURE, TABLES, planned

from fedepm_fast import plots
from fedepm_fast.privacy import PrivatePlan

#: The style of the documentation's figures on dark pages.
DARK = Path(__file__).parents[1] / "docs" / "dark.mplstyle"

CLASSES = {"digits": 10}


@dataclass(frozen=True)
class Cell:
    """What each trial of a table, a way and an epsilon gave, by its seed."""

    accuracy: dict[int, float]
    loss: dict[int, float]
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
            for name in ("accuracy", "loss", "seconds")
        )
        cells[key] = Cell(*parts)
    return cells


def left(cells: Cells, name: str, cell: Cell) -> float:
    """Share of the way that is left from w = 0 to the optimum, by the mean loss of the same split:
    the median."""
    best, start = cells[name, "optimum", math.inf].loss, math.log(CLASSES.get(name, 2))
    return (
        math.nan
        if not cell.loss
        else median((loss - best[seed]) / (start - best[seed]) for seed, loss in cell.loss.items())
    )


def said(made: PrivatePlan) -> str:
    """What a plan said beforehand of the way that is left."""
    if made.left is None:
        return f"+{made.rise:.2g} of loss"
    return f"{made.left[0]:.0%} ({made.left[1]:.0%})"


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
        columns, trial = PURE, table.make(0)
        print(f"\n| {table.words} | {' | '.join(f'{epsilon:g}' for epsilon in columns)} |")
        print("|---" * (1 + len(columns)) + "|")
        for way, how in HOW.items():
            found = [cells.get((name, way, epsilon)) for epsilon in columns]
            if any(found):
                print(f"| {how.words} | {' | '.join(str(cell or '') for cell in found)} |")
            row = []
            for epsilon, cell in zip(columns, found, strict=True):
                before = isinstance(how.how, dict) and said(planned(trial, epsilon, how.how))
                row.append(f"{before or ''}; {left(cells, name, cell):.0%}" if cell else "")
            if any(cell and cell.loss for cell in found):
                print(f"| way left: said; found | {' | '.join(row)} |")
        times = [median(cell.seconds.values()) for (of, *_), cell in cells.items()
                 if of == name and cell.seconds]  # fmt: skip
        if times:
            print(f"\nA run takes {min(times):.2g} to {max(times):.2g} s of the processor.")


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
