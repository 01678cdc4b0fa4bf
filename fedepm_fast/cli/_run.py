"""``fedepm run``."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.text import counted
from .._words import in_words, number
from . import _common as common
from . import _options as options
from ._compiling import LINE
from ._options import of_group, taken, with_options
from ._plan import PlannedRun

if TYPE_CHECKING:
    from ..callbacks import RoundInfo
    from ..data import FederatedData
    from ..objectives import Objective
    from ..result import Result

#: What of a private run may be shared.
RELEASED = "released.json"


@with_options(
    "algorithm", "settings", "objective", "mechanism", "data",
    shown={"algorithm": "fedepm for Adult, curvature for other data"},
)  # fmt: skip
def run(
    seed: Annotated[
        int, typer.Option(help="Of the split and of the run; with --private of the split only.")
    ] = 0,
    trial: options.Trial = 0,
    private: options.Private = False,
    noise_seed: Annotated[
        int | None,
        typer.Option(
            help="Private: of selections and noise. No guarantee below 2^32; else keep it secret.",
            show_default="fresh from the operating system",
            metavar="N",
        ),
    ] = None,
    trust: options.Trust = None,
    honest: options.Honest = None,
    out: options.Out = None,
    check_optimum: Annotated[
        bool, typer.Option("--check-optimum", help="Also find the optimum, by BFGS.")
    ] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Run one algorithm: a live table of rounds, then the summary.

    Without options: FedEPM on Adult, 100 clients, 12 local steps. On other data: FedEPM with eta
    the curvature, without noise, unless an option is given that only the paper's has. With
    --private: the plan of fedepm plan, printed before the run; columns are standardised, and an
    intercept is added, where their scaling is public.
    """
    from .._common.validation import MAX_SEED, check_int
    from ..runner import make_problem

    algorithm, why = given.get("algorithm"), ""
    if algorithm is None:
        algorithm, why = default_algorithm(given, private=private)
    if private and algorithm != "fedepm":
        raise ValueError(
            f"algorithm must be fedepm with --private, got {algorithm!r}: what clients of other "
            "algorithms send has no proved sensitivity here"
        )
    if noise_seed is not None:
        if not private:
            raise ValueError("noise_seed needs --private")
        check_int("noise_seed", noise_seed, high=MAX_SEED)
    goal = common.make_objective(given)
    told = {"trust": trust, "honest": honest}
    for name, value in told.items():
        if value is not None and not private:
            raise ValueError(f"{name} needs --private")
    planned = PlannedRun(given, goal, trial, **told) if private else None
    chosen: Any = planned or common.make_algorithm(algorithm, common.without_noise(given))
    federated = common.load_data(given, seed, goal)
    out = common.check_out(out)
    live = common.live(quiet or json)
    if planned is not None:
        federated = planned.columns(federated)
        made = planned.plan(federated)
        chosen, goal = made.algorithm, made.objective
        if not (quiet or json):
            print(made, end="\n\n", flush=True)
    table = RoundsTable(chosen.name) if live else None
    with table or nullcontext():
        if planned is not None:
            # The split shows in what a private run releases, its clients' sizes.
            result = planned.run(made, federated, noise_seed, table)
        else:
            result = common.run_quietly(
                chosen, federated, objective=goal, seed=seed, trial=trial, callback=table,
                **taken(given, "settings"),
            )  # fmt: skip
    record = result.to_dict()
    lines = [repr(result) if quiet else in_words(result, brief=True)]
    if why and not quiet:
        lines.append(why)
    if why == "" and "algorithm" not in given and not (quiet or json or private):
        lines += other_choice(federated, goal, seed, trial)
    optimum = None
    if check_optimum:
        optimum = common.optimum_per_client(make_problem(chosen, federated, goal), live=live)
        gap = common.gap_percent(result, optimum)
        record |= {"optimum": optimum, "gap_percent": gap}
        lines += [
            f"  optimum by BFGS       f*/m = {number(optimum)}",
            f"  this run              f(x)/m = {number(result.mean_objective)}, "
            f"{common.percent(gap)} above",
        ]
    if out is not None:
        paths: list[Path] = []
        with common.writing(paths, out):
            write(out, result, record, optimum, paths)
        lines.append(common.wrote(paths))
        if private:
            lines.append(
                f"of these only {RELEASED} may be shared, under its guarantee"
                if out / RELEASED in paths
                else "none of these may be shared: the run has no guarantee"
            )
    print(json_module.dumps(record, allow_nan=False) if json else "\n".join(lines))
    common.tell_where_runs_ended([result], "run")


def default_algorithm(given: Mapping[str, Any], *, private: bool) -> tuple[str, str]:
    """The algorithm where none is named, and what to say of that; nothing for the paper's data.

    The paper's parameters are made for its data. Options that only one of both has choose it.
    """
    theirs, ours = of_group("algorithm:fedepm"), of_group("algorithm:curvature")
    paper = [name for name in given if name in theirs and name not in ours]
    other = [name for name in given if name in ours and name not in theirs]
    of_paper = is_adult(given)
    if private:
        return "fedepm", ""
    if paper:
        told = f"  --{paper[0].replace('_', '-')} is of the paper's FedEPM: --algorithm fedepm"
        return "fedepm", "" if of_paper else told
    if other:
        return "curvature", f"  --{other[0].replace('_', '-')} is of --algorithm curvature"
    if of_paper:
        return "fedepm", ""
    return "curvature", "  default for data other than Adult: --algorithm curvature, without noise"


def is_adult(given: Mapping[str, Any]) -> bool:
    """Whether the options name the paper's data."""
    return bool(given.get("data", "adult") == "adult")


def other_choice(data: FederatedData, objective: Objective, seed: int, trial: int) -> list[str]:
    """What FedEPM with eta the curvature gives on the same clients, as a line."""
    from ..algorithms import CurvatureFedEPM

    # In NumPy, so that no kernel is compiled for it.
    result = common.run_quietly(
        CurvatureFedEPM(), data, objective=objective, seed=seed, trial=trial, engine="reference",
        every_accuracy=False,
    )  # fmt: skip
    if result.warning:
        return []
    return [
        f"  --algorithm curvature f(x)/m = {number(result.mean_objective)} after "
        f"{counted(result.rounds, 'round')}, without noise"
    ]


def write(
    out: Path, result: Result, record: dict[str, Any], optimum: float | None, paths: list[Path]
) -> None:
    """Result, history, summary and figure of a run, and what a private one released; each is
    appended to `paths` once whole."""

    result.save(out / "result.npz")
    paths.append(out / "result.npz")
    result.to_csv(out / "history.csv")
    paths.append(out / "history.csv")
    common.write_json(out / "summary.json", record, paths)
    if not result.guarantee.startswith("none"):
        result.release().save(out / RELEASED)
        paths.append(out / RELEASED)
    common.write_figure(
        out / "history", lambda plots: plots.history([result], optimum=optimum), paths
    )


class RoundsTable(AbstractContextManager["RoundsTable"]):
    """A live table of the last rounds; a callback of `run`.

    The callback only keeps what it is given, and a thread draws it a few times a second:
    drawing every round would take longer than the round, and show in the times reported.

    Parameters
    ----------
    algorithm : str
        Its name, for the title.
    keep : bool
        Leave the last rounds on the screen.
    """

    SHOWN = 8

    def __init__(self, algorithm: str, *, keep: bool = True) -> None:
        from rich.live import Live

        from ..algorithms import label_of

        self.title = label_of(algorithm)
        self.latest: RoundInfo | None = None
        self.live = Live(get_renderable=self.render, refresh_per_second=4, transient=not keep)

    def __enter__(self) -> RoundsTable:
        self.live.__enter__()
        LINE.shown = self.live.console.is_terminal
        self.live.refresh()  # what drawing has to import is imported before the run is timed
        return self

    def __exit__(self, *exc: Any) -> None:
        LINE.shown = False
        self.live.__exit__(*exc)

    def __call__(self, info: RoundInfo) -> None:
        self.latest = info

    def render(self) -> Any:
        """The table as it stands, and below it what is compiled, if anything is."""
        from rich.console import Group
        from rich.text import Text

        table, words = self._table(), Text.from_markup(LINE.words, overflow="ellipsis")
        words.no_wrap = True
        return Group(table, words) if words else table

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", box=None, pad_edge=False)
        for name in ("round", "f(x)/m", "|mean grad|^2", "accuracy", "SNR", "elapsed"):
            table.add_column(name, justify="right", min_width=8)
        info = self.latest
        if info is None:
            return table
        for tau in range(max(0, info.tau + 1 - self.SHOWN), info.tau + 1):
            accuracy, snr = info.accuracy[tau], info.snr[tau]
            table.add_row(
                str(tau),
                number(info.objective[tau] / info.n_clients),
                f"{info.grad_mean_sq[tau]:.3e}",
                "-" if accuracy is None else f"{accuracy:.4f}",
                "-" if snr is None else f"{snr:.2f}",
                f"{info.elapsed[tau]:.2f} s",
            )
        return table
