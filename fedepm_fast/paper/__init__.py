"""The evaluation of the paper: its experiments, figures and table, and its claims beside them.

``evaluate(trials)`` runs what figures 2 to 5 and table 1 of the paper show, each distinct run
once; the `Evaluation` it gives judges the claims of the paper and writes figures, tables and a
report. ``fedepm paper`` does both.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.extras import require
from .._common.files import check_writable_folder, replacing
from .._common.measures import DRAWN
from .._common.validation import MAX_SEED, check_int
from ..plots._tables import Histories, summarize
from ._claims import Finding, judge
from ._compute import SPLIT, Progress, _compute, optima
from ._experiments import EXPERIMENTS, PARAMETERS, Cell, Experiment, distinct_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["EXPERIMENTS", "Cell", "Evaluation", "Experiment", "Finding", "evaluate"]


def evaluate(
    trials: int = 100,
    *,
    seed: int = 0,
    jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run the experiments of the paper.

    Parameters
    ----------
    trials : int
        Runs of every algorithm in every cell, each with its own shuffle, split, selections and
        noise; the paper has 100. Of a trial all algorithms, and all cells with equally many
        clients, have the same split.
    seed : int
    jobs : int, optional
        Runs at a time; as many as there are processors by default.
    store : path, optional
        File that keeps finished runs; runs that it holds already are not run again.
    experiments : mapping of str to Experiment, optional
        Of the paper's by default; cut-down ones keep their names.
    progress : callable, optional
        Called with what is being done, how much of it is done, and of how much.

    Returns
    -------
    Evaluation

    Raises
    ------
    ImportError
        Without pandas.
    ValueError, TypeError
        Naming the argument.
    """
    trials, seed = check_int("trials", trials, low=1), check_int("seed", seed, high=MAX_SEED)
    jobs = (os.cpu_count() or 1) if jobs is None else check_int("jobs", jobs, low=1)
    experiments = dict(EXPERIMENTS if experiments is None else experiments)
    unknown = experiments.keys() - EXPERIMENTS.keys()
    if unknown or not experiments:
        raise ValueError(
            f"experiments must be some of {', '.join(EXPERIMENTS)}, got {', '.join(experiments)}"
        )
    require("pandas", "tables", "the evaluation of the paper")
    began = time.perf_counter()
    cells = distinct_cells(experiments.values())
    table, histories = _compute(
        cells, trials, seed, jobs, None if store is None else Path(store), progress
    )
    table = _against_optima(table, histories, optima(table, jobs, progress))
    environment = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "trials": trials,
        "seed": seed,
        "cells": len(cells),
        "runs": len(table),
        "jobs": jobs,
        "engine": ", ".join(sorted(table["engine"].unique())),
        "computing_time": float(table["total_time"].sum()),
        "wall_time": time.perf_counter() - began,
        "machine": _machine(),
        "versions": _versions(),
    }
    return Evaluation(table, histories, experiments, environment)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The runs of the paper's experiments.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a run: parameters, seed, measures, ``optimum`` (f*/m of its split), ``gap_percent``
        (of f above it) and ``rounds_to_5_percent`` (rounds until f is within 5 % of it; inf if
        never).
    histories : mapping
        Per-round arrays by ``run_id``.
    experiments : dict of str to Experiment
    environment : dict
        When, where, with what and how long, as plain values.
    """

    table: DataFrame
    histories: Histories
    experiments: dict[str, Experiment]
    environment: dict[str, Any]

    @cached_property
    def findings(self) -> list[Finding]:
        """The paper's claims beside what was measured, with verdicts."""
        return judge(self.table)

    @cached_property
    def summary(self) -> DataFrame:
        """Median, quartiles and mean of every measure, cell by cell and algorithm."""
        measures = [m for m in (*DRAWN, "rounds_to_5_percent") if m in self.table]
        return summarize(self.table, [*PARAMETERS, "algorithm"], measures)

    def table1(self) -> DataFrame:
        """Median LCT in seconds: one row a number of local steps, columns (clients, algorithm)."""
        rows = self.experiments["table1"].of(self.table)
        wide = rows.pivot_table(
            "local_time", "local_steps", ["clients", "algorithm"], aggfunc="median"
        )
        return wide.sort_index(axis=1)

    def figures(self) -> dict[str, Figure]:
        """The figures, by the names of their experiments."""
        from ._figures import DRAWINGS

        return {name: draw(self) for name, draw in DRAWINGS.items() if name in self.experiments}

    def write(self, out: str | os.PathLike[str], paths: list[Path] | None = None) -> list[Path]:
        """Write runs, summaries, table 1, figures (PNG, SVG), verdicts and the report.

        Every file appears complete or not at all; the report is the last.

        Parameters
        ----------
        out : path
            Folder; created if need be.
        paths : list of Path, optional
            Each file is appended to it once it is whole.

        Returns
        -------
        list of Path
            What was written: ``runs.csv``, ``summary.csv``, ``table1.csv``, ``fig*.png``,
            ``fig*.svg``, ``findings.json`` and ``report.html``.
        """
        from ..plots import save
        from ._report import report

        out = check_writable_folder("out", out)
        paths = [] if paths is None else paths

        def text(name: str, content: str) -> None:
            with replacing(out / name) as temporary:
                temporary.write_text(content, encoding="utf-8")
            paths.append(out / name)

        text("runs.csv", self.table.to_csv(index=False))
        text("summary.csv", self.summary.to_csv(index=False))
        if "table1" in self.experiments:
            text("table1.csv", self.table1().to_csv())
        for name, figure in self.figures().items():
            for suffix in (".png", ".svg"):
                save(figure, out / f"{name}{suffix}")
                paths.append(out / f"{name}{suffix}")
        record = {"environment": self.environment, "findings": [f.as_dict() for f in self.findings]}
        text("findings.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
        drawn = {p.stem: p.read_text(encoding="utf-8") for p in paths if p.suffix == ".svg"}
        text("report.html", report(self, drawn))
        return paths


def _against_optima(table: DataFrame, histories: Histories, found: DataFrame) -> DataFrame:
    """The table with each run beside the optimum of its split."""
    table = table.merge(found[[*SPLIT, "optimum"]], on=SPLIT, how="left")
    table["gap_percent"] = 100 * (table["mean_objective"] / table["optimum"] - 1)

    def first_below(run_id: Any, bound: float) -> float:
        below = np.flatnonzero(histories[run_id]["objective"] <= bound)
        return float(below[0]) if len(below) else np.inf

    bounds = 1.05 * table["optimum"] * table["clients"]
    table["rounds_to_5_percent"] = [
        first_below(run_id, bound) for run_id, bound in zip(table["run_id"], bounds, strict=True)
    ]
    return table


def _machine() -> str:
    """Processor and system, as far as they can be told."""
    processor = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    count = os.cpu_count()
    return f"{processor}, {count} logical processor{'' if count == 1 else 's'}, {platform.system()}"


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    from .. import __version__

    libraries = ("numpy", "scipy", "numba", "pandas", "matplotlib")
    return {
        "fedepm_fast": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }
