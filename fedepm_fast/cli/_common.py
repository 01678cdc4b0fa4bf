"""What commands share: options, data, output."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..data import FederatedData
    from ..objectives import Objective, Problem
    from ..result import Result


class CommandFailed(RuntimeError):
    """A command did what was asked and the outcome is a failure; ends with exit code `code`."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


#: The exit code after Ctrl-C.
INTERRUPTED = 130


# Options -----------------------------------------------------------------------------------

# None stands for a default where an explicit choice can contradict the data, to be refused.
Clients = Annotated[int | None, typer.Option(help="Number of clients.", show_default="100")]
LocalSteps = Annotated[int, typer.Option(help="Local steps between two communications, k0.")]
Participation = Annotated[float, typer.Option(help="Share of clients in a round, in (0, 1].")]
Epsilon = Annotated[
    float,
    typer.Option(help="Divides the noise; no privacy guarantee, see run --private."),
]
Preset = Annotated[
    str, typer.Option(help="released: the authors' program; text: the printed equations.")
]
Noise = Annotated[
    str | None,
    typer.Option(help="standardized, laplace or none; by default the preset's.", metavar="MODEL"),
]
Lam = Annotated[float | None, typer.Option(help="FedEPM: weight of the l1 penalty.")]
Eta = Annotated[float | None, typer.Option(help="FedEPM: weight of the quadratic penalty.")]
LearningRate = Annotated[
    float | None,
    typer.Option(help="SFedAvg, SFedProx: scale of the gradient steps.", show_default="2.0"),
]
Mu0 = Annotated[float, typer.Option(help="Penalty parameter of the local steps at the start.")]
Alpha = Annotated[float, typer.Option(help="Growth of the penalty parameter in a local step.")]
C = Annotated[float, typer.Option("--c", help="Growth of the penalty parameter with the gap.")]
Prox = Annotated[
    float | None,
    typer.Option(help="SFedProx: weight of the proximal term.", show_default="1e-05"),
]
InnerSteps = Annotated[
    int | None, typer.Option(help="SFedProx: gradient steps in a local step.", show_default="3")
]
CoverageRounds = Annotated[
    int | None,
    typer.Option(help="Every client takes part at least once in so many rounds.", metavar="S0"),
]
Rounds = Annotated[
    int | None, typer.Option(help="Run exactly so many rounds.", metavar="N", show_default=False)
]
MaxRounds = Annotated[int, typer.Option(help="Cap on the rounds.")]
Stopping = Annotated[
    str | None,
    typer.Option(help="released, text or none; by default the preset's.", metavar="RULE"),
]
ObjectiveName = Annotated[
    str,
    typer.Option(
        help="logistic, squared_hinge, multinomial, least_squares or huber. No intercept is added."
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(help="huber: residuals beyond it count linearly.", show_default="1.0"),
]
Beta = Annotated[float, typer.Option(help="Weight of the l2 regulariser.")]
Seed = Annotated[int, typer.Option(help="Of the split and of the run.")]
Trial = Annotated[int, typer.Option(help="Another run on the same split.")]
TotalEpsilon = Annotated[
    float | None, typer.Option(help="Private: what each client may spend.", metavar="E")
]
MechanismName = Annotated[
    str | None,
    typer.Option(
        help="Private: the noise, laplace or gaussian.",
        show_default="gaussian with --delta, else laplace",
        metavar="LAW",
    ),
]
PrivacyDelta = Annotated[
    float | None,
    typer.Option(
        help="Private: in (0, 1); laplace without one is pure, gaussian takes 1e-06.", metavar="D"
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(help="Private: bound on a record's gradient.", show_default="from public sizes"),
]
Data = Annotated[
    str,
    typer.Option(
        help="adult, synthetic, or a LIBSVM, CSV, Parquet or NumPy file; for an intercept it needs "
        "a column of ones.",
        metavar="DATA",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(help="Label column of the file; the last by default.", metavar="COLUMN"),
]
ClientColumn = Annotated[
    str | None,
    typer.Option(help="Column of the file that names each row's client.", metavar="COLUMN"),
]
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Of the file: svmlight, csv, parquet, npy or npz.",
        show_default="from its name",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a CSV file names its columns.",
        show_default="what it looks like",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Of a CSV file: a character, or tab.", show_default="one of , ; tab |", metavar="CHAR"
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(help="random (the paper's), equal or dirichlet.", show_default="random"),
]
Concentration = Annotated[
    float | None,
    typer.Option(help="Of --partition dirichlet: small is more skewed.", show_default="0.5"),
]
Scale = Annotated[bool, typer.Option(help="Scale the columns to unit norm.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for result, history, summary and figure, made if the one above it is there.",
        metavar="DIR",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Nothing live, and one line for each run.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]


#: Options of `fedepm run` and `fedepm tune` that are parameters of an algorithm.
OF_ALGORITHM = (
    "local_steps",
    "participation",
    "epsilon",
    "preset",
    "noise",
    "mu0",
    "c",
    "alpha",
    "coverage_rounds",
    "lam",
    "eta",
    "learning_rate",
    "prox",
    "inner_steps",
)

#: Options that make a private run's mechanism, but for `total_epsilon`, which all need.
OF_MECHANISM = ("mechanism", "delta", "clip")

#: Options that say which data; with `seed` and `objective` the arguments of `load_data`.
OF_DATA = (
    "data", "clients", "label", "client_column", "format", "header", "separator", "partition",
    "concentration", "scale",
)  # fmt: skip


def options_of(ctx: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """The values that a command's options have."""
    return {name: ctx.params[name] for name in names}


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


# Data --------------------------------------------------------------------------------------


def load_data(
    data: str,
    *,
    clients: int | None,
    seed: int,
    objective: str,
    label: str | None,
    client_column: str | None,
    format: str | None,
    header: bool | None,
    separator: str | None,
    partition: str | None,
    concentration: float | None,
    scale: bool,
) -> FederatedData:
    """The data that the options name; an option that would have no effect is refused."""
    from ..data.sources import from_options
    from ..objectives import as_objective

    announce_compilation()
    options: dict[str, Any] = {
        "clients": clients,
        "partition": partition,
        "concentration": concentration,
        "label": label,
        "client_column": client_column,
        "format": format,
        "header": header,
        "separator": separator,
        "scale": scale,
    }
    if data == "adult":
        if not scale:
            raise ValueError("no_scale is for a file or --data synthetic, Adult comes scaled")
        del options["scale"]
    given = {name: value for name, value in options.items() if value is not None}
    return from_options({"source": data, **given}, loss=as_objective(objective)).split(seed)


def make(cls: type[Algorithm], options: dict[str, Any], *, lenient: bool = False) -> Algorithm:
    """An algorithm from those options that are set; one that it has not is refused, or left out."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - {f.name for f in fields(cls)}:
        if not lenient:
            raise ValueError(f"{name} is not a parameter of {cls.name}")
        del given[name]
    return cls(**given)


def make_objective(name: str, beta: float, delta: float | None) -> Objective:
    """The objective that the options name."""
    from ..objectives import as_objective

    try:
        return as_objective(name, beta=beta, **({} if delta is None else {"delta": delta}))
    except ValueError as error:
        if str(error).startswith("delta "):
            raise ValueError(f"huber_{error}") from None
        raise


# Output ------------------------------------------------------------------------------------


def check_out(out: Path | None) -> Path | None:
    """Prove before any work that results can be written."""
    from .._files import check_writable_folder

    return None if out is None else check_writable_folder("out", out)


@cache
def announce_compilation() -> None:
    """Say so on standard error, once in a process, when kernels have to be compiled."""
    from ..kernels import on_compile

    told = "compiling kernels, the first time only ..."
    on_compile(lambda kernel: print(told, file=sys.stderr, flush=True))


def live(quiet: bool) -> bool:
    """Whether to show progress."""
    return not quiet and sys.stdout.isatty()


def write_figure(
    stem: Path, results: list[Result], optimum: float | None, paths: list[Path]
) -> None:
    """Draw f(x)/m against rounds as PNG and SVG, if matplotlib is installed."""
    from .. import plots

    try:
        figure = plots.history(results, optimum=optimum)
    except ImportError as hint:
        print(f"no figure: {hint}", file=sys.stderr)
        return
    for suffix in (".png", ".svg"):
        plots.save(figure, stem.with_suffix(suffix))
        paths.append(stem.with_suffix(suffix))


def run_quietly(*arguments: Any, **options: Any) -> Result:
    """`run`, with a divergence left in the result instead of a warning on the terminal."""
    import warnings

    from ..result import DivergenceWarning
    from ..runner import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return run(*arguments, **options)


def tell_where_runs_ended(results: list[Result]) -> None:
    """Say on standard error what is wrong with the ends of runs; fail if one has diverged."""
    error = ""
    for result in results:
        text = (f"{result.algorithm['name']}: " if len(results) > 1 else "") + result.warning
        if result.diverged and not error:
            error = text
        elif result.warning:
            print(f"warning: {text}", file=sys.stderr)
    if error:
        raise CommandFailed(error)


@contextmanager
def writing(paths: list[Path]) -> Iterator[None]:
    """Ctrl-C in the block, which writes files and appends them to `paths`, says which are whole."""
    try:
        yield
    except KeyboardInterrupt:
        whole = f"only wrote {', '.join(map(str, paths))}" if paths else "nothing was written"
        raise CommandFailed(f"interrupted, {whole}", INTERRUPTED) from None


def gap_percent(result: Result, optimum: float) -> float | None:
    """How far f is above the optimum, in percent; None where that is zero to rounding."""
    start = float(result.history["objective"][0]) / result.n_clients
    if not optimum > 1e-12 * start:
        return None
    gap = 100 * (result.mean_objective / optimum - 1)
    return gap if math.isfinite(gap) else None


def number(value: float) -> str:
    """f(x)/m for people: six decimals, unless a run diverged."""
    return f"{value:.6f}" if abs(value) < 1e6 else f"{value:.6g}"


def percent(gap: float | None) -> str:
    """A gap for people."""
    return "-" if gap is None else f"{gap:.3f} %" if gap < 1e4 else f"{gap:.2e} %"


def optimum_per_client(problem: Problem, *, live: bool) -> float:
    """f*/m of the problem, by BFGS, which may take longer than the runs."""
    if live:
        from rich.console import Console

        with Console().status("finding the optimum by BFGS"):
            return optimum_per_client(problem, live=False)
    return problem.optimum().value / problem.n_clients


def write_summary(out: Path, record: dict[str, Any], paths: list[Path]) -> None:
    """Write ``summary.json`` and add it to what was written."""
    import json

    from .._files import replacing

    with replacing(out / "summary.json") as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    paths.append(out / "summary.json")


def wrote(paths: list[Path]) -> str:
    """Lines that say what was written, folder by folder."""
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    return "\n".join(f"wrote {', '.join(names)} in {folder}" for folder, names in folders.items())
