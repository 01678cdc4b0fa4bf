"""``fedepm compare``."""

from __future__ import annotations

import json as json_module
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import _cli_common as common
from ._cli_common import CommandFailed
from ._cli_run import RoundsTable

if TYPE_CHECKING:
    from .result import Result

ORDER = ("fedepm", "sfedprox", "sfedavg")


def compare(
    clients: common.Clients = 100,
    local_steps: common.LocalSteps = 12,
    participation: common.Participation = 0.5,
    epsilon: common.Epsilon = 0.1,
    preset: common.Preset = "released",
    noise: common.Noise = None,
    mu0: common.Mu0 = 0.05,
    coverage_rounds: common.CoverageRounds = None,
    rounds: common.Rounds = None,
    max_rounds: common.MaxRounds = 500,
    stopping: common.Stopping = None,
    objective: common.ObjectiveName = "logistic",
    beta: common.Beta = 1e-3,
    seed: common.Seed = 0,
    data: common.Data = "adult",
    label: common.Label = None,
    client_column: common.ClientColumn = None,
    partition: common.Partition = "random",
    concentration: common.Concentration = 0.5,
    scale: common.Scale = True,
    out: common.Out = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw f(x)/m against rounds to this PNG or SVG.", metavar="FILE"),
    ] = None,
    quiet: common.Quiet = False,
    json: common.Json = False,
) -> None:
    """Run the three algorithms on the same split and print them side by side."""
    from . import plots
    from ._files import check_writable_folder
    from ._validation import check_choice
    from .algorithms import ALGORITHMS
    from .runner import make_problem

    out = common.check_out(out)
    if plot is not None:
        check_choice("plot's suffix", plot.suffix.lower(), (".png", ".svg", ".pdf"))
        check_writable_folder("plot", plot.parent)
    options = {
        "local_steps": local_steps,
        "participation": participation,
        "epsilon": epsilon,
        "preset": preset,
        "noise": noise,
        "mu0": mu0,
        "coverage_rounds": coverage_rounds,
    }
    algorithms = [common.make(ALGORITHMS[name], options) for name in ORDER]
    goal = common.make_objective(objective, beta)
    federated = common.load_data(
        data,
        clients=clients,
        seed=seed,
        objective=objective,
        label=label,
        client_column=client_column,
        partition=partition,
        concentration=concentration,
        scale=scale,
    )
    results: list[Result] = []
    for algorithm in algorithms:
        table = RoundsTable(algorithm.name) if common.live(quiet or json) else None
        with table or nullcontext():
            results.append(
                common.run_quietly(
                    algorithm,
                    federated,
                    objective=goal,
                    seed=seed,
                    stopping=stopping,
                    rounds=rounds,
                    max_rounds=max_rounds,
                    callback=table,
                )
            )
    optimum = common.optimum_per_client(make_problem(algorithms[0], federated, goal))

    paths: list[Path] = []
    if out is not None:
        for result in results:
            name = result.algorithm["name"]
            result.save(out / f"{name}.npz")
            result.to_csv(out / f"{name}.csv")
            paths += [out / f"{name}.npz", out / f"{name}.csv"]
        paths += common.write_figure(out / "compare", results, optimum)
    if plot is not None:
        plots.save(plots.history(results, optimum=optimum), plot)
        paths.append(plot)

    if json:
        record = {
            "optimum": optimum,
            "data": federated.summary(),
            "runs": [
                {**r.to_dict(), "gap_percent": 100 * (r.mean_objective / optimum - 1)}
                for r in results
            ],
        }
        print(json_module.dumps(record, allow_nan=False))
    else:
        print_side_by_side(results, optimum, federated.summary())
        if paths:
            print(common.wrote(paths))
    diverged = [r for r in results if r.diverged]
    if diverged:
        raise CommandFailed(f"{diverged[0].algorithm['name']}: {diverged[0].message}")


def print_side_by_side(results: list[Result], optimum: float, data: str) -> None:
    """The runs as columns of one table."""
    from rich.console import Console
    from rich.table import Table

    from .result import LABELS

    first = results[0].algorithm
    rows = {
        "f(x)/m": [f"{r.mean_objective:.6f}" for r in results],
        "above the optimum": [f"{100 * (r.mean_objective / optimum - 1):.3f} %" for r in results],
        "communication rounds (CR)": [str(r.rounds) for r in results],
        "total time (TCT)": [f"{r.total_time:.3f} s" for r in results],
        "local time a round (LCT)": [f"{1e3 * r.local_time:.3g} ms" for r in results],
        "accuracy": ["-" if r.accuracy is None else f"{r.accuracy:.4f}" for r in results],
        "SNR": [f"{r.snr:.3f}" if math.isfinite(r.snr) else "-" for r in results],
        "stopped by": ["\n".join(r.reasons).replace("_", " ") for r in results],
    }
    table = Table(
        title=f"{data}\n{first['preset']} preset, local steps {first['local_steps']}, "
        f"participation {first['participation']:g}, epsilon {first['epsilon']:g} "
        f"(no privacy guarantee)\noptimum by BFGS: f*/m = {optimum:.6f}",
        title_justify="left",
        title_style="",
    )
    table.add_column("")
    for result in results:
        table.add_column(LABELS[result.algorithm["name"]], justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    # A pipe has no width of its own; 100 columns hold the table without folding.
    console = Console() if sys.stdout.isatty() else Console(width=100, color_system=None)
    console.print(table)
