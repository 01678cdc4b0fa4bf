"""``fedepm tune``."""

from __future__ import annotations

import json as json_module
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from . import _options as options
from ._common import INTERRUPTED, CommandFailed
from ._compare import check_plot
from ._names import with_option_names
from ._options import of_group, taken, with_options
from ._run import default_algorithm

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..objectives import Objective
    from ..tuning import TuneResult


@with_options(
    "algorithm", "settings", "objective", "mechanism", "data",
    shown={"algorithm": "fedepm for Adult, curvature for other data"},
)  # fmt: skip
def tune(
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
    folds: Annotated[
        int | None,
        typer.Option(
            help="Of the cross-validation.", metavar="K", show_default="5, or the clients if fewer"
        ),
    ] = None,
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
    seed: Annotated[int, typer.Option(help="Of the split, the folds, the runs, the sampler.")] = 0,
    private: options.Private = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the score over two parameters.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for trials, summary, specification, figure.", metavar="DIR"),
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Tune parameters by cross-validation, starting from those given.

    Without options: lam, eta, mu0 and beta of FedEPM on Adult, 100 clients. On other data: beta
    of FedEPM with eta the curvature, which is what fedepm run takes there and has no other to
    tune, unless an option or --space names a parameter that only the paper's has.
    """
    from ..tuning import tune as do_tune
    from ..tuning._text import summary

    asked = dict(given)
    given = common.make_private(given, private)
    name, why = _algorithm(given, space, private=private)
    chosen = common.make_algorithm(name, given)
    goal = common.make_objective(given)
    searched = _searched(space, chosen, goal) if space else None
    check_plot(plot)
    out = common.check_out(out)
    federated = common.load_data(given, seed, goal)
    progress: bool | str = not (quiet or json)
    if why and progress:  # said when all that is asked for is known to be right
        progress = f"tuning {chosen.label}, {why}"
    try:
        result = do_tune(
            chosen, federated, space=searched, over=over, folds=folds, trials=trials, score=score,
            objective=goal, sampler=sampler, pruner="median" if prune else None, seed=seed,
            storage=storage, study=study, jobs=jobs, progress=progress,
            **taken(given, "settings"),
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
    if why:  # which follows from the space, too
        asked["algorithm"] = name
    command = run_command(asked | ({"seed": seed} if seed else {}), result)
    record = {**result.to_dict(), "data": federated.summary(), "command": command}
    paths: list[Path] = []
    with common.writing(paths, out):
        _write(out, plot, result, record, _absolute(common.data_table(given)), paths)
    if json:
        print(json_module.dumps(record, allow_nan=False))
        return
    if quiet:
        print(repr(result))
        print(command)
    else:
        told = summary(result, lambda text: with_option_names(text, "tune"))
        print(federated.summary(), told, "", command, "", result.code().rstrip(), sep="\n")
    if paths:
        print(common.wrote(paths))


def _algorithm(given: dict[str, Any], space: list[str] | None, *, private: bool) -> tuple[str, str]:
    """The algorithm, that of ``fedepm run`` where none is named, and what to say of that."""
    if "algorithm" in given:
        return given["algorithm"], ""
    searched = [text.partition("=")[0].strip().replace("-", "_") for text in space or ()]
    name, why = default_algorithm({**dict.fromkeys(searched), **given}, private=private)
    return name, why and f"as fedepm run takes it here: {' '.join(why.split())}"


def _searched(space: list[str], chosen: Algorithm, goal: Objective) -> dict[str, Any]:
    """What is searched, by the names of parameters: an option's is taken as well, and errors have
    it then."""
    from ..tuning._space import as_space, parse_space

    its = of_group(f"algorithm:{chosen.name}")
    texts, typed = [], {}
    for text in space:
        name, equals, values = text.partition("=")
        of = its.get(name.strip().replace("-", "_"))
        if of is not None and of.name != of.option:
            typed[of.name], text = name.strip(), f"{of.name}{equals}{values}"
        texts.append(text)
    try:
        searched = parse_space(texts, chosen, goal)
        as_space(searched, chosen, goal)  # before any work
    except (ValueError, TypeError) as error:
        if not typed:
            raise
        named = rf"(?<![\w-])(?:{'|'.join(typed)})(?![\w-])"
        raise ValueError(re.sub(named, lambda m: typed[m[0]], str(error))) from None
    return searched


def run_command(given: dict[str, Any], result: TuneResult) -> str:
    """``fedepm run`` with the tuned parameters and what else was given."""
    tuned = result.parameters if result.best.number else {}
    groups = f"algorithm:{result.algorithm.name}", "objective"
    known = {of.name: name for group in groups for name, of in of_group(group).items()}
    given = given | {known[name]: value for name, value in tuned.items() if name in known}
    words = ["fedepm", "run"]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif value is not None:
            words += [option, str(value)]
    left = [name for name in tuned if name not in known]
    remark = f"  # without {', '.join(left)}, for which it has no option" if left else ""
    return shlex.join(words) + remark


def _absolute(table: dict[str, Any]) -> dict[str, Any]:
    """The data of a specification that is read from another folder."""
    from ..data import DATASETS

    if table["source"] not in (*DATASETS, "synthetic"):
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
    from .._common.files import replacing

    wanted = [plot] if plot is not None else []
    if out is not None:
        result.to_csv(out / "trials.csv")
        paths.append(out / "trials.csv")
        common.write_json(out / "summary.json", record, paths)
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
