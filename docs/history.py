"""The history of speed that asv has recorded, as a figure: asv's own pages need a network.

``python docs/history.py [FOLDER]`` writes it for light and for dark pages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from figures import HERE, write
from matplotlib.figure import Figure

from fedepm_fast import plots

RESULTS = HERE.parent / "bench" / "results"
#: Times and memory; what is tracked otherwise may be better where it is larger.
KINDS = ("time", "peakmem", "track_processor")
#: Benchmarks that changed by more than this factor are named.
LARGE = 1.15


def ratios(results: Path = RESULTS) -> tuple[list[str], dict[str, Any]]:
    """The commits in order, and each benchmark over its first value; NaN where not measured.

    Of the machine that measured most. A benchmark with parameters counts with the geometric mean
    of its values.
    """
    files = max(({*m.glob("*-*.json")} for m in results.iterdir() if m.is_dir()), key=len)
    measured = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    measured.sort(key=lambda result: result["date"])
    commits = list(dict.fromkeys(result["commit_hash"][:8] for result in measured))
    found: dict[str, Any] = {}
    for result in measured:
        for key, (values, *_) in result["results"].items():
            numbers = np.array([value or np.nan for value in values or []], float)
            if key.rpartition(".")[2].startswith(KINDS) and np.isfinite(numbers).any():
                line = found.setdefault(key, np.full(len(commits), np.nan))
                line[commits.index(result["commit_hash"][:8])] = np.exp(np.nanmean(np.log(numbers)))
    return commits, {key: line / line[np.isfinite(line)][0] for key, line in found.items()}


def history(colour: Any) -> Figure:
    """Every benchmark against the commits; those that changed by much are named."""
    commits, lines = ratios()
    figure, axes = plots.new_grid(1, 1, 6.4, 3.4)
    ax, shades = axes[0, 0], (colour.blue, colour.orange, colour.green, colour.red)
    last = {key: line[np.isfinite(line)][-1] for key, line in lines.items()}
    large = [key for key in lines if not 1 / LARGE < last[key] < LARGE]
    large = sorted(large, key=lambda key: -abs(np.log(last[key])))[: len(shades)]
    for key, line in lines.items():
        measured = np.flatnonzero(np.isfinite(line))
        if key in large:
            style: dict[str, Any] = {"color": shades[large.index(key)], "label": key, "zorder": 3}
        else:
            style = {"color": colour.soft, "linewidth": 0.8}
        ax.plot(measured, line[measured], marker="o", markersize=3, **style)
    ax.set_xticks(range(len(commits)), commits, rotation=45, ha="right", fontsize=8)
    ax.set_ylabel("time or memory, over the first")
    ax.axhline(1, color=colour.soft, linewidth=0.8, linestyle=":")
    if large:
        ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    write(history, Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "_figures")
