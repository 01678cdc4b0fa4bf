"""What commands share: options, data, output."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .algorithms import Algorithm
    from .data import FederatedData
    from .objectives import Objective, Problem
    from .result import Result


class CommandFailed(RuntimeError):
    """A command did what was asked and the outcome is a failure; exit code 1."""


# Options -----------------------------------------------------------------------------------

Clients = Annotated[int, typer.Option(help="Number of clients.")]
LocalSteps = Annotated[int, typer.Option(help="Local steps between two communications, k0.")]
Participation = Annotated[float, typer.Option(help="Share of clients in a round, in (0, 1].")]
Epsilon = Annotated[
    float, typer.Option(help="Divides the noise; no privacy guarantee, see the README.")
]
Preset = Annotated[
    str, typer.Option(help="released: the authors' program; text: the printed equations.")
]
Noise = Annotated[
    str | None,
    typer.Option(help="standardized, laplace or none; by default the preset's.", metavar="MODEL"),
]
Mu0 = Annotated[float, typer.Option(help="Penalty parameter of the local steps at the start.")]
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
ObjectiveName = Annotated[str, typer.Option(help="logistic or least_squares.")]
Beta = Annotated[float, typer.Option(help="Weight of the l2 regulariser.")]
Seed = Annotated[int, typer.Option(help="Of the split and of the run.")]
Data = Annotated[
    str,
    typer.Option(help="adult, synthetic, or a LIBSVM, CSV, Parquet or NumPy file.", metavar="DATA"),
]
Label = Annotated[
    str | None,
    typer.Option(help="Label column of the file; the last by default.", metavar="COLUMN"),
]
ClientColumn = Annotated[
    str | None,
    typer.Option(help="Column of the file that names each row's client.", metavar="COLUMN"),
]
Partition = Annotated[str, typer.Option(help="random (the paper's), equal or dirichlet.")]
Concentration = Annotated[
    float, typer.Option(help="Of --partition dirichlet: small is more skewed.")
]
Scale = Annotated[bool, typer.Option(help="Scale the columns to unit norm.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for result, history, summary and figure.", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="One line per run, nothing live.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]


# Data --------------------------------------------------------------------------------------


def load_data(
    data: str,
    *,
    clients: int,
    seed: int,
    objective: str,
    label: str | None,
    client_column: str | None,
    partition: str,
    concentration: float,
    scale: bool,
) -> FederatedData:
    """The data that the options name."""
    from . import datasets, loaders, synthetic
    from ._validation import check_choice, check_int
    from .objectives import as_objective
    from .partition import DirichletLabelSkew, EqualParts, Partitioner, RandomCuts

    objective = as_objective(objective).name
    check_int("clients", clients, low=1)
    check_choice("partition", partition, ("random", "equal", "dirichlet"))
    how: Partitioner
    if partition == "random":
        how = RandomCuts(clients)
    elif partition == "equal":
        how = EqualParts(clients)
    else:
        how = DirichletLabelSkew(clients, concentration)
    if data in ("adult", "synthetic"):
        for option, value in (("label", label), ("client_column", client_column)):
            if value is not None:
                raise ValueError(f"{option} is for a file, not for --data {data}")
    if data == "adult":
        return datasets.adult(seed=seed, partition=how)
    if data == "synthetic":
        return synthetic.make_federated(
            objective,
            clients=clients,
            samples=200 * clients,
            scale="unit-norm" if scale else None,
            seed=seed,
        )
    return loaders.read_federated(
        data,
        partition=None if client_column is not None else how,
        label=label,
        client=client_column,
        task=as_objective(objective).task,
        scale="unit-norm" if scale else None,
        seed=seed,
    )


def make(cls: type[Algorithm], options: dict[str, Any]) -> Algorithm:
    """An algorithm from those options that it has; an option it has not must be unset."""
    known = {f.name for f in fields(cls)}
    for name, value in options.items():
        if name not in known and value is not None:
            raise ValueError(f"{name} is not a parameter of {cls.name}")
    return cls(**{name: value for name, value in options.items() if name in known})


def make_objective(name: str, beta: float) -> Objective:
    """The objective that the options name."""
    from dataclasses import replace

    from .objectives import as_objective

    return replace(as_objective(name), beta=beta)


# Output ------------------------------------------------------------------------------------


def check_out(out: Path | None) -> Path | None:
    """Prove before any work that results can be written."""
    from ._files import check_writable_folder

    return None if out is None else check_writable_folder("out", out)


def live(quiet: bool) -> bool:
    """Whether to show progress."""
    return not quiet and sys.stdout.isatty()


def write_figure(figure_path: Path, results: list[Result], optimum: float | None) -> list[Path]:
    """Draw f(x)/m against rounds as PNG and SVG, if matplotlib is installed."""
    from . import plots

    try:
        figure = plots.history(results, optimum=optimum)
    except ImportError as hint:
        print(f"no figure: {hint}", file=sys.stderr)
        return []
    paths = [figure_path.with_suffix(".png"), figure_path.with_suffix(".svg")]
    for path in paths:
        plots.save(figure, path)
    return paths


def run_quietly(*arguments: Any, **options: Any) -> Result:
    """`run`, with a divergence left in the result instead of a warning on the terminal."""
    import warnings

    from .result import DivergenceWarning
    from .runner import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return run(*arguments, **options)


def optimum_per_client(problem: Problem) -> float:
    """f*/m of the problem, by BFGS."""
    return problem.optimum().value / problem.n_clients


def wrote(paths: list[Path]) -> str:
    """A line that says what was written."""
    folder = os.path.commonpath([p.parent for p in paths])
    return f"wrote {', '.join(p.name for p in paths)} in {folder}"
