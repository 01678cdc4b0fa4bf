"""``fedepm audit`` and ``fedepm tradeoff``."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from . import _cli_common as common


def audit(
    runs: Annotated[int, typer.Option(help="Runs of each of the two datasets.")] = 4000,
    seed: Annotated[int, typer.Option(help="Of the runs.")] = 0,
    json: common.Json = False,
) -> None:
    """Attack the uploads: lower bounds on epsilon of the paper's noise and of private runs.

    A client's record is one of two; an observer of its upload decides which. The bounds hold
    with confidence 95 %.
    """
    from ._validation import check_int
    from .privacy.audit import standard

    check_int("runs", runs, low=10)
    common.announce_compilation()
    live = sys.stderr.isatty() and not json
    found = standard(
        runs, seed, (lambda name: print(f"{name} ...", file=sys.stderr)) if live else None
    )
    if json:
        print(json_module.dumps({name: asdict(a) for name, a in found.items()}, allow_nan=False))
        return
    print(f"{'':32}{'stated':>8}{'at least':>10}  {runs} runs each, confidence 0.95")
    for name, a in found.items():
        verdict = "refuted" if a.broken else "not refuted"
        print(f"{name:32}{a.stated:>8.3g}{a.lower_bound:>10.3g}  {verdict}")


def tradeoff(
    ctx: typer.Context,
    epsilons: Annotated[
        str, typer.Option(help="Total epsilons, separated by commas.", metavar="LIST")
    ] = "0.25,0.5,1,2,5,10,20",
    clients: common.Clients = None,
    trials: Annotated[int, typer.Option(help="Splits, each with a run for each epsilon.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the first trial.")] = 0,
    data: common.Data = "adult",
    label: common.Label = None,
    client_column: common.ClientColumn = None,
    format: common.FileFormat = None,
    header: common.Header = None,
    separator: common.Separator = None,
    partition: common.Partition = None,
    concentration: common.Concentration = None,
    scale: common.Scale = True,
    public_scaling: Annotated[
        bool,
        typer.Option(
            "--public-scaling", help="The scaling of the columns is public; it is for adult."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the runs as CSV and JSON, and the figure.", metavar="DIR"),
    ] = None,
    quiet: common.Quiet = False,
    json: common.Json = False,
) -> None:
    """What privacy costs: f(x)/m and accuracy against each client's total epsilon."""
    from .privacy.tradeoff import tradeoff as compute

    try:
        budgets = [float(text) for text in epsilons.split(",")]
    except ValueError:
        raise ValueError(
            f"epsilons must be numbers separated by commas, got {epsilons!r}"
        ) from None
    out = common.check_out(out)
    common.announce_compilation()

    def split(split_seed: int) -> Any:
        return common.load_data(
            seed=split_seed, objective="logistic", **common.options_of(ctx, common.OF_DATA)
        )

    with common.bar(common.live(quiet or json)) as show:
        found = compute(
            split, epsilons=budgets, trials=trials, seed=seed,
            public_scaling=public_scaling or data == "adult",
            progress=None if show is None else partial(show, "runs"),
        )  # fmt: skip
    lines = [str(found), f"privacy guarantee: {found.rows[0]['guarantee']}"]
    if out is not None:
        paths: list[Path] = []
        with common.writing(paths):
            write(out, found, paths)
        lines.append(common.wrote(paths))
    print(json_module.dumps(found.rows, allow_nan=False) if json else "\n".join(lines))


def write(out: Path, found: Any, paths: list[Path]) -> None:
    """Runs as CSV and JSON, and the figure; each is appended to `paths` once whole."""
    import csv

    from . import plots
    from ._files import replacing

    with replacing(out / "tradeoff.json") as path:
        path.write_text(json_module.dumps(found.rows, indent=1, allow_nan=False))
    paths.append(out / "tradeoff.json")
    with replacing(out / "tradeoff.csv") as path, open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(found.rows[0]))
        writer.writeheader()
        writer.writerows(found.rows)
    paths.append(out / "tradeoff.csv")
    try:
        figure = found.plot()
    except ImportError as hint:
        print(f"no figure: {hint}", file=sys.stderr)
        return
    for suffix in (".png", ".svg"):
        plots.save(figure, out / f"tradeoff{suffix}")
        paths.append(out / f"tradeoff{suffix}")
