"""``fedepm tune``."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from ._common import INTERRUPTED, CommandFailed
from ._compare import check_plot

if TYPE_CHECKING:
    from ..tuning import TuneResult

#: Settings of the run that the printed command repeats.
_OF_RUN = ("rounds", "max_rounds", "stopping", "objective", "beta", "huber_delta", "seed")


def tune(
    ctx: typer.Context,
    algorithm: Annotated[str, typer.Option(help="fedepm, sfedavg or sfedprox.")] = "fedepm",
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter to tune, several times: LOW:HIGH, LOW:HIGH:log or A,B,C.",
            metavar="NAME=VALUES",
            show_default="by algorithm",
        ),
    ] = None,
    over: Annotated[
        str,
        typer.Option(help="clients: serve those never seen; records: those there are."),
    ] = "clients",
    folds: Annotated[int, typer.Option(help="Of the cross-validation.", metavar="K")] = 5,
    trials: Annotated[int, typer.Option(help="Choices of parameters to try.", metavar="N")] = 50,
    score: Annotated[str, typer.Option(help="loss or accuracy.")] = "loss",
    sampler: Annotated[str, typer.Option(help="tpe, random, grid, qmc or cmaes.")] = "tpe",
    prune: Annotated[
        bool, typer.Option("--prune", help="Give trials up whose first folds are poor.")
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(help="Keep trials and go on from them: a path or URL.", metavar="FILE"),
    ] = None,
    study: Annotated[str, typer.Option(help="The name in the storage.")] = "tune",
    jobs: Annotated[
        int | None, typer.Option(help="Threads.", metavar="N", show_default="the CPUs")
    ] = None,
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
    alpha: common.Alpha = 1.001,
    c: common.C = 1e-8,
    prox: common.Prox = None,
    inner_steps: common.InnerSteps = None,
    coverage_rounds: common.CoverageRounds = None,
    rounds: common.Rounds = None,
    max_rounds: common.MaxRounds = 500,
    stopping: common.Stopping = None,
    objective: common.ObjectiveName = "logistic",
    beta: common.Beta = 1e-3,
    huber_delta: common.Delta = None,
    seed: Annotated[int, typer.Option(help="Of the split, the folds, the runs, the sampler.")] = 0,
    data: common.Data = "adult",
    label: common.Label = None,
    client_column: common.ClientColumn = None,
    format: common.FileFormat = None,
    header: common.Header = None,
    separator: common.Separator = None,
    partition: common.Partition = None,
    concentration: common.Concentration = None,
    scale: common.Scale = True,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the score over two parameters.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for trials, summary, specification, figure.", metavar="DIR"),
    ] = None,
    quiet: common.Quiet = False,
    json: common.Json = False,
) -> None:
    """Tune parameters by cross-validation, starting from those given.

    Without options: lam, eta, mu0 and beta of FedEPM on Adult, 100 clients.
    """
    from .._validation import check_choice
    from ..algorithms import ALGORITHMS
    from ..tuning import tune as do_tune
    from ..tuning._space import parse_space

    chosen = common.make(
        ALGORITHMS[check_choice("algorithm", algorithm, ALGORITHMS)],
        common.options_of(ctx, common.OF_ALGORITHM),
    )
    goal = common.make_objective(objective, beta, huber_delta)
    searched = parse_space(space, chosen, goal) if space else None
    check_plot(plot)
    out = common.check_out(out)
    of_data = common.options_of(ctx, common.OF_DATA)
    federated = common.load_data(seed=seed, objective=objective, **of_data)
    try:
        result = do_tune(
            chosen, federated, space=searched, over=over, folds=folds, trials=trials, score=score,
            objective=goal, sampler=sampler, pruner="median" if prune else None, seed=seed,
            storage=storage, study=study, jobs=jobs, stopping=stopping, rounds=rounds,
            max_rounds=max_rounds, progress=not (quiet or json),
        )  # fmt: skip
    except RuntimeError as error:
        raise CommandFailed(str(error)) from None
    except KeyboardInterrupt:
        told = "nothing was kept"
        if storage and storage != ":memory:":
            from ..tuning._storage import located

            where = located(storage)[1]
            told = f"finished trials are kept in {where}, the same command goes on from there"
        raise CommandFailed(f"interrupted, {told}", INTERRUPTED) from None
    command = run_command(ctx, result)
    record = {**result.to_dict(), "data": federated.summary(), "command": command}
    paths: list[Path] = []
    with common.writing(paths):
        _write(out, plot, result, record, _data_table(of_data), paths)
    if json:
        print(json_module.dumps(record, allow_nan=False))
        return
    if quiet:
        print(repr(result))
        print(command)
    else:
        print(federated.summary(), result, "", command, "", result.code().rstrip(), sep="\n")
    if paths:
        print(common.wrote(paths))


def run_command(ctx: typer.Context, result: TuneResult) -> str:
    """``fedepm run`` with the tuned parameters and what else was given."""
    given = {
        name: ctx.params[name]
        for name in ("algorithm", *common.OF_ALGORITHM, *_OF_RUN, *common.OF_DATA)
        if common.was_given(ctx, name)
    }
    own = (*common.OF_ALGORITHM, *_OF_RUN)
    tuned = result.parameters if result.best.number else {}
    given |= {name: value for name, value in tuned.items() if name in own}
    words = ["fedepm", "run"]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif value is not None:
            words += [option, str(value)]
    left = [name for name in tuned if name not in own]
    remark = f"  # without {', '.join(left)}, for which it has no option" if left else ""
    return shlex.join(words) + remark


def _data_table(options: dict[str, Any]) -> dict[str, Any]:
    """The options as a specification names them."""
    table = {"source": options["data"], **options}
    del table["data"]
    if table["scale"]:
        del table["scale"]
    if table["source"] not in ("adult", "synthetic"):
        table["source"] = str(Path(table["source"]).absolute())
    return table


def _write(
    out: Path | None,
    plot: Path | None,
    result: TuneResult,
    record: dict[str, Any],
    data: dict[str, Any],
    paths: list[Path],
) -> None:
    """Trials, summary, specification and figure; each is appended to `paths` once whole."""
    from .. import plots
    from .._files import replacing

    wanted = [plot] if plot is not None else []
    if out is not None:
        result.to_csv(out / "trials.csv")
        paths.append(out / "trials.csv")
        common.write_summary(out, record, paths)
        with replacing(out / "tuned.toml") as temporary:
            temporary.write_text(result.toml(data))
        paths.append(out / "tuned.toml")
        wanted += [out / "scores.png", out / "scores.svg"]
    if not wanted:
        return
    try:
        figure = result.plot()
    except ImportError as hint:
        print(f"no figure: {hint}", file=sys.stderr)
        return
    for path in wanted:
        plots.save(figure, path)
        paths.append(path)
