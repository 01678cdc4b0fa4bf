"""``fedepm compare``."""

from __future__ import annotations

import json as json_module
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._text import WIDTH, fill
from . import _common as common
from ._run import RoundsTable

if TYPE_CHECKING:
    from ..result import Result

ORDER = ("fedepm", "sfedprox", "sfedavg")


def compare(
    ctx: typer.Context,
    clients: common.Clients = None,
    local_steps: common.LocalSteps = 12,
    participation: common.Participation = 0.5,
    epsilon: common.Epsilon = 0.1,
    preset: common.Preset = "released",
    noise: common.Noise = None,
    lam: common.Lam = None,
    eta: common.Eta = None,
    learning_rate: common.LearningRate = None,
    mu0: common.Mu0 = 0.05,
    coverage_rounds: common.CoverageRounds = None,
    rounds: common.Rounds = None,
    max_rounds: common.MaxRounds = 500,
    stopping: common.Stopping = None,
    objective: common.ObjectiveName = "logistic",
    beta: common.Beta = 1e-3,
    huber_delta: common.Delta = None,
    seed: common.Seed = 0,
    trial: common.Trial = 0,
    data: common.Data = "adult",
    label: common.Label = None,
    client_column: common.ClientColumn = None,
    format: common.FileFormat = None,
    header: common.Header = None,
    separator: common.Separator = None,
    partition: common.Partition = None,
    concentration: common.Concentration = None,
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
    from ..algorithms import ALGORITHMS
    from ..runner import make_problem

    options = {
        "local_steps": local_steps,
        "participation": participation,
        "epsilon": epsilon,
        "preset": preset,
        "noise": noise,
        "lam": lam,
        "eta": eta,
        "learning_rate": learning_rate,
        "mu0": mu0,
        "coverage_rounds": coverage_rounds,
    }
    algorithms = [common.make(ALGORITHMS[name], options, lenient=True) for name in ORDER]
    goal = common.make_objective(objective, beta, huber_delta)
    federated = common.load_data(
        seed=seed, objective=objective, **common.options_of(ctx, common.OF_DATA)
    )
    out = common.check_out(out)
    check_plot(plot)
    results: list[Result] = []
    live = common.live(quiet or json)
    for algorithm in algorithms:
        table = RoundsTable(algorithm.name, keep=False) if live else None
        with table or nullcontext():
            results.append(
                common.run_quietly(
                    algorithm,
                    federated,
                    objective=goal,
                    seed=seed,
                    trial=trial,
                    stopping=stopping,
                    rounds=rounds,
                    max_rounds=max_rounds,
                    callback=table,
                )
            )
    optimum = common.optimum_per_client(make_problem(algorithms[0], federated, goal), live=live)

    gaps = [common.gap_percent(result, optimum) for result in results]

    record = {
        "optimum": optimum,
        "data": federated.summary(),
        "runs": [{**r.to_dict(), "gap_percent": gap} for r, gap in zip(results, gaps, strict=True)],
    }
    paths: list[Path] = []
    with common.writing(paths):
        if out is not None:
            common.write_summary(out, record, paths)
        write(out, plot, results, optimum, paths)
    if json:
        print(json_module.dumps(record, allow_nan=False))
    else:
        if quiet:
            for result, gap in zip(results, gaps, strict=True):
                print(f"{result!r} {common.percent(gap)} above the optimum")
        else:
            print_side_by_side(results, optimum, gaps)
        if paths:
            print(common.wrote(paths))
    common.tell_where_runs_ended(results)


def check_plot(plot: Path | None, name: str = "plot") -> None:
    """Prove before any work that the figure can be drawn and written."""
    from .._extras import require
    from .._files import check_writable_file
    from .._validation import check_choice

    if plot is None:
        return
    check_choice(f"{name}'s suffix", plot.suffix.lower(), (".png", ".svg", ".pdf"))
    require("matplotlib", "plots", "--plot")
    check_writable_file(name, plot)


def write(
    out: Path | None,
    plot: Path | None,
    results: list[Result],
    optimum: float,
    paths: list[Path],
) -> None:
    """Results, histories and the figure; each is appended to `paths` once whole."""
    from .. import plots

    if out is not None:
        for result in results:
            name = result.algorithm["name"]
            result.save(out / f"{name}.npz")
            paths.append(out / f"{name}.npz")
            result.to_csv(out / f"{name}.csv")
            paths.append(out / f"{name}.csv")
        common.write_figure(out / "compare", results, optimum, paths)
    if plot is not None:
        plots.save(plots.history(results, optimum=optimum), plot)
        paths.append(plot)


def print_side_by_side(results: list[Result], optimum: float, gaps: list[float | None]) -> None:
    """The runs as columns of one table."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from ..algorithms import label_of
    from ..result import objective_text

    first = results[0]
    of = first.algorithm
    trial = f", trial {first.trial}" if first.trial else ""
    for line in (
        first.data["description"],
        f"{of['preset']} preset, local steps {of['local_steps']}, participation "
        f"{of['participation']:g}, seed {first.seed}{trial}",
        "no noise"
        if of["noise"] == "none"
        else f"{of['noise']} noise, epsilon {of['epsilon']:g} (no privacy guarantee)",
        objective_text(first.objective),
        *([] if first.accuracy is None else [f"accuracy {first.beside}"]),
        f"optimum by BFGS: f*/m = {common.number(optimum)}",
    ):
        print(fill(line, "  "))
    print()
    rows = {
        "f(x)/m": [common.number(r.mean_objective) for r in results],
        "above optimum": [common.percent(gap) for gap in gaps],
        "rounds (CR)": [str(r.rounds) for r in results],
        "time (TCT)": [f"{r.total_time:.3f} s" for r in results],
        "local (LCT)": [f"{1e3 * r.local_time:.3g} ms" for r in results],
        "accuracy": ["-" if r.accuracy is None else f"{r.accuracy:.4f}" for r in results],
        "SNR": [f"{r.snr:.3f}" if math.isfinite(r.snr) else "-" for r in results],
        "stopped by": ["\n".join(r.reasons).replace("_", " ") for r in results],
    }
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(label_of(result.algorithm["name"]), justify="right", max_width=17)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    # A pipe has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH, color_system=None)
    console.print(table)
