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
#: Benchmarks that every commit can run, and what they measure: the name, a factor and its unit.
SHOWN = {
    "whole.Whole.time_fedepm_10_rounds": ("ten rounds of FedEPM on Adult", 1e3, "ms"),
    "whole.Whole.time_gradients": ("gradients of 100 clients", 1e3, "ms"),
    "whole.Whole.time_ens": ("ENS, 100 x 2,000", 1e3, "ms"),
    "whole.Whole.time_laplace": ("a million Laplace numbers", 1e3, "ms"),
    "whole.Whole.time_split": ("Adult dealt to 100 clients", 1e3, "ms"),
    "whole.Waiting.timeraw_import": ("import", 1.0, "s"),
    "whole.Waiting.timeraw_first_run": ("a first run, in a process", 1.0, "s"),
    "whole.Waiting.track_processor_of_first_run_cold": ("the same and its compilation", 1.0, "s"),
}


def measured(results: Path = RESULTS) -> tuple[list[str], dict[str, Any]]:
    """The commits in order, and each benchmark's values; NaN where not measured.

    Of the machine that measured most.
    """
    files = max(({*m.glob("*-*.json")} for m in results.iterdir() if m.is_dir()), key=len)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    found.sort(key=lambda result: result["date"])
    values = {key: np.full(len(found), np.nan) for key in SHOWN}
    for k, result in enumerate(found):
        for key in SHOWN:
            numbers = result["results"].get(key, [None])[0]
            if numbers and numbers[0]:
                values[key][k] = numbers[0]
    return [result["commit_hash"][:7] for result in found], values


def history(colour: Any) -> Figure:
    """Each benchmark against the commits, with its first and its last value."""
    commits, values = measured()
    figure, axes = plots.new_grid(4, 2, 6.4, 7.2, sharex=True)
    places = np.arange(len(commits))
    for ax, (key, (name, factor, unit)) in zip(axes.flat, SHOWN.items(), strict=True):
        there = np.isfinite(values[key])
        line = factor * values[key][there]
        ax.plot(places[there], line, color=colour.blue, marker="o", markersize=3)
        ax.set_title(f"{name}: {line[0]:.3g} to {line[-1]:.3g} {unit}", fontsize=8.5, loc="left")
        ax.set_yscale("log")
        ax.set_ylim(
            *10.0 ** np.array([np.floor(np.log10(line.min())), np.ceil(np.log10(line.max()))])
        )
        ax.tick_params(axis="y", labelsize=7.5)
        ax.yaxis.set_minor_formatter("")
        ax.set_xticks(places, commits, rotation=60, ha="right", fontsize=7.5)
    return figure


if __name__ == "__main__":
    write(history, Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "_figures")
