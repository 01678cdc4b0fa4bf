"""``fedepm compare``."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.text import WIDTH, fill
from .._words import manner_of, number, objective_text, snr_text, stopped_by
from . import _common as common
from . import _options as options
from ._names import with_option_names
from ._options import of_group, taken, with_options
from ._run import RoundsTable, is_adult

if TYPE_CHECKING:
    from ..result import Result


#: What the paper compares.
PAPERS = ["fedepm", "sfedprox", "sfedavg"]
#: Of columns of the table that has a run in each row.
_OF_A_CLIENT = "gradients and what is sent (uploads): of one client, in the mean of all"


@with_options("algorithm", "settings", "objective", "mechanism", "data", without=["algorithm"])
def compare(
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Those to run, separated by commas.",
            metavar="NAMES",
            show_default=f"{','.join(PAPERS)} for Adult, --all for other data",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Every algorithm there is, without noise unless --noise asks."),
    ] = False,
    seed: options.Seed = 0,
    trial: options.Trial = 0,
    private: options.Private = False,
    out: options.Out = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw f(x)/m against rounds to this PNG or SVG.", metavar="FILE"),
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Run algorithms on the same split and print them side by side."""
    from ..runner import make_problem

    if every and algorithms is not None:
        raise ValueError(f"all and algorithms exclude each other, got {algorithms}")
    # The paper's parameters are made for its data, and others' runs diverge by them.
    by_default = algorithms is None and not (every or private or is_adult(given))
    every = every or by_default
    names = PAPERS if algorithms is None else [name.strip() for name in algorithms.split(",")]
    if every:
        names, given = _every_one(given, private)
    given = common.make_private(given, private)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"algorithms must be different ones, got {name} more than once")
    chosen = [
        common.make_algorithm(name, given, option="algorithms", lenient=True) for name in names
    ]
    known = {option for name in names for option in of_group(f"algorithm:{name}")}
    for name in of_group("algorithm"):
        if name in given and name not in known:
            raise ValueError(f"{name} is not a parameter of {', '.join(names)}")
    goal = chosen[0].objective(common.make_objective(given))  # the same for all
    federated = common.load_data(given, seed, goal)
    out = common.check_out(out)
    check_plot(plot)
    results: list[Result] = []
    skipped: dict[str, str] = {}
    live = common.live(quiet or json)
    for algorithm in chosen:
        table = RoundsTable(algorithm.name, keep=False) if live else None
        try:
            with table or nullcontext():
                result = common.run_quietly(
                    algorithm, federated, objective=goal, seed=seed, trial=trial, callback=table,
                    **taken(given, "settings"),
                )  # fmt: skip
        except ValueError as error:  # one of all may not be for these data
            if not every:
                raise
            skipped[algorithm.name] = str(error)
            continue
        results.append(result)
    if not results:
        raise ValueError(_why_none(skipped))
    optimum = common.optimum_per_client(make_problem(chosen[0], federated, goal), live=live)

    gaps = [common.gap_percent(result, optimum) for result in results]

    record = {
        "optimum": optimum,
        "data": federated.summary(),
        "runs": [{**r.to_dict(), "gap_percent": gap} for r, gap in zip(results, gaps, strict=True)],
        **({"skipped": skipped} if every else {}),
    }
    paths: list[Path] = []
    with common.writing(paths, out):
        if out is not None:
            common.write_json(out / "summary.json", record, paths)
        write(out, plot, results, optimum, paths)
    if json:
        print(json_module.dumps(record, allow_nan=False))
    else:
        if quiet:
            for result, gap in zip(results, gaps, strict=True):
                print(f"{result!r} {common.percent(gap)} above the optimum")
        else:
            print_side_by_side(results, optimum, gaps, rows=every)
            if every and not {"rounds", "stopping"} & {*taken(given, "settings")}:
                print("  each ended by its own stopping rule; --rounds gives all as many rounds")
            if by_default:
                print("  default for data other than Adult: --all")
        if paths:
            print(common.wrote(paths))
    for name, why in skipped.items():
        print(f"{name} was not run: {with_option_names(why, 'compare')}", file=sys.stderr)
    # That some of all diverge is what a comparison is to show.
    common.tell_where_runs_ended(results, "compare", fail=not every)


def _every_one(given: dict[str, Any], private: bool) -> tuple[list[str], dict[str, Any]]:
    """The names of all algorithms, and `given` with no noise where none is asked for."""
    from ..algorithms import ALGORITHMS

    if private:
        raise ValueError("all and private exclude each other: only FedEPM takes a mechanism")
    first = "fedepm"  # whose preset says what the objective of all is
    names = [first, *(name for name in ALGORITHMS if name != first)]
    return names, {"noise": "none", **given}


def _why_none(skipped: Mapping[str, str]) -> str:
    """Why no algorithm could be run, each reason once."""
    named: dict[str, list[str]] = {}
    for name, why in skipped.items():
        named.setdefault(why, []).append(name)
    if len(named) == 1:
        return next(iter(named))
    texts = {with_option_names(why, "compare"): names for why, names in named.items()}
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in texts.items())


def check_plot(plot: Path | None, name: str = "plot") -> None:
    """Prove before any work that the figure can be drawn and written."""
    from .._common.extras import require
    from .._common.files import check_writable_file
    from .._common.validation import check_choice

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
        common.write_figure(
            out / "compare", lambda plots: plots.history(results, optimum=optimum), paths
        )
    if plot is not None:
        plots.save(plots.history(results, optimum=optimum), plot)
        paths.append(plot)


def _noise(result: Result) -> str:
    of = result.algorithm
    if of["noise"] == "none":
        return "no noise"
    if "epsilon" not in of:
        return f"{of['mechanism']['name']} mechanism; privacy guarantee: {result.guarantee}"
    return f"{of['noise']} noise, epsilon {of['epsilon']:g} (no privacy guarantee)"


def _by_algorithm(results: list[Result], text: Callable[[Result], str]) -> list[str]:
    """What there is to say of each, and of whom where that is not the same of all."""
    from ..algorithms import label_of

    said: dict[str, list[str]] = {}
    for result in results:
        said.setdefault(text(result), []).append(label_of(result.algorithm["name"]))
    if len(said) == 1:
        return [*said]
    return [f"{', '.join(names)}: {line}" for line, names in said.items()]


def print_side_by_side(
    results: list[Result], optimum: float, gaps: list[float | None], *, rows: bool = False
) -> None:
    """The runs as columns of one table, or as its rows."""
    from rich.console import Console

    first = results[0]
    trial = f", trial {first.trial}" if first.trial else ""
    for line in (
        first.data["description"],
        *_by_algorithm(results, lambda r: f"{manner_of(r.algorithm)}, seed {r.seed}{trial}"),
        *_by_algorithm(results, _noise),
        objective_text(first.objective, first.data),
        *([] if first.accuracy is None else [f"accuracy {first.beside}"]),
        f"optimum by BFGS: f*/m = {number(optimum)}",
        *([_OF_A_CLIENT] if rows else []),
    ):
        print(fill(line, "  "))
    print()
    table = _as_rows(results, gaps) if rows else _as_columns(results, gaps)
    # A pipe has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH, color_system=None)
    console.print(table)


def _table() -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _as_columns(results: list[Result], gaps: list[float | None]) -> Any:
    """A column for each run."""
    from ..algorithms import label_of

    rows = {
        "f(x)/m": [number(r.mean_objective) for r in results],
        "above optimum": [common.percent(gap) for gap in gaps],
        "rounds (CR)": [str(r.rounds) for r in results],
        "time (TCT)": [f"{r.total_time:.3f} s" for r in results],
        "local (LCT)": [f"{1e3 * r.local_time:.3g} ms" for r in results],
        "accuracy": ["-" if r.accuracy is None else f"{r.accuracy:.4f}" for r in results],
        "SNR": [snr_text(r.snr) for r in results],
        "stopped by": ["\n".join(stopped_by(r.reasons, r.diverged)) for r in results],
    }
    table = _table()
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(label_of(result.algorithm["name"]), justify="right", max_width=17)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _as_rows(results: list[Result], gaps: list[float | None]) -> Any:
    """A row for each run, the lowest f first; what a client computed and sent, the mean of all."""
    from ..algorithms import label_of

    table = _table()
    table.collapse_padding = True
    table.add_column("", no_wrap=True)
    for name in ("f(x)/m", "above f*", "rounds", "gradients", "sent", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    both = sorted(zip(results, gaps, strict=True), key=lambda pair: pair[0].mean_objective)
    for r, gap in both:
        m = r.n_clients
        table.add_row(
            label_of(r.algorithm["name"]),
            number(r.mean_objective), "diverged" if r.diverged else common.percent(gap),
            str(r.rounds), f"{r.work['gradients'] / m:,.4g}",
            f"{r.work['bytes_up'] / m / 1e3:.3g} kB", f"{r.total_time:.2f} s",
        )  # fmt: skip
    return table
