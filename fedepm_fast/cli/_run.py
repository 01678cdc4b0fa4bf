"""``fedepm run``."""

from __future__ import annotations

import json as json_module
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common

if TYPE_CHECKING:
    from ..callbacks import RoundInfo
    from ..result import Result

#: What of a private run may be shared.
RELEASED = "released.json"


def run(
    ctx: typer.Context,
    algorithm: Annotated[str, typer.Option(help="fedepm, sfedavg or sfedprox.")] = "fedepm",
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
    seed: Annotated[
        int, typer.Option(help="Of the split and of the run; with --private of the split only.")
    ] = 0,
    trial: common.Trial = 0,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="FedEPM with noise on the sensitivity, see --mechanism.",
        ),
    ] = False,
    total_epsilon: common.TotalEpsilon = None,
    mechanism: common.MechanismName = None,
    delta: common.PrivacyDelta = None,
    clip: common.Clip = None,
    noise_seed: Annotated[
        int | None,
        typer.Option(
            help="Private: of selections and noise. No guarantee below 2^32; else keep it secret.",
            show_default="fresh from the operating system",
            metavar="N",
        ),
    ] = None,
    public_scaling: Annotated[
        bool,
        typer.Option(
            "--public-scaling",
            help="Private: the scaling of the columns is public; it is for adult.",
        ),
    ] = False,
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
    check_optimum: Annotated[
        bool, typer.Option("--check-optimum", help="Also find the optimum, by BFGS.")
    ] = False,
    quiet: common.Quiet = False,
    json: common.Json = False,
) -> None:
    """Run one algorithm: a live table of rounds, then the summary.

    Without options: FedEPM on Adult, 100 clients, 12 local steps.
    """
    from .._validation import MAX_SEED, check_choice, check_int
    from ..algorithms import ALGORITHMS
    from ..runner import make_problem

    options = common.options_of(ctx, common.OF_ALGORITHM)
    if private:
        if algorithm != "fedepm":
            raise ValueError(
                f"algorithm must be fedepm with --private, got {algorithm!r}: the baselines take "
                "many gradients at hidden points, whose sensitivity has no closed form"
            )
        public = public_scaling or data == "adult"
        for name, instead in (("epsilon", "--total-epsilon"), ("max_rounds", "--rounds")):
            if common.was_given(ctx, name):
                raise ValueError(f"{name} has no meaning with --private: give {instead}")
        if noise_seed is not None:
            check_int("noise_seed", noise_seed, high=MAX_SEED)
        if stopping == "none":
            stopping = None  # as it is anyway
        own = {name: value for name, value in options.items() if common.was_given(ctx, name)}
        settings = {**common.options_of(ctx, common.OF_MECHANISM), "public_scaling": public}
        options, planned = private_options(own, total_epsilon, **settings)
        rounds = planned if rounds is None else rounds
    else:
        for name, value in (
            ("total_epsilon", total_epsilon), ("mechanism", mechanism), ("delta", delta),
            ("clip", clip), ("noise_seed", noise_seed), ("public_scaling", public_scaling or None),
        ):  # fmt: skip
            if value is not None:
                raise ValueError(f"{name} needs --private")
    chosen = common.make(ALGORITHMS[check_choice("algorithm", algorithm, ALGORITHMS)], options)
    goal = common.make_objective(objective, beta, huber_delta)
    federated = common.load_data(
        seed=seed, objective=objective, **common.options_of(ctx, common.OF_DATA)
    )
    out = common.check_out(out)
    live = common.live(quiet or json)
    table = RoundsTable(chosen.name) if live else None
    with table or nullcontext():
        result = common.run_quietly(
            chosen,
            federated,
            objective=goal,
            # The split shows in what a private run releases, its clients' sizes.
            seed=noise_seed if private else seed,
            trial=trial,
            stopping=stopping,
            rounds=rounds,
            max_rounds=max_rounds,
            callback=table,
        )
    record = result.to_dict()
    lines = [repr(result)] if quiet else [str(result)]
    optimum = None
    if check_optimum:
        optimum = common.optimum_per_client(make_problem(chosen, federated, goal), live=live)
        gap = common.gap_percent(result, optimum)
        record |= {"optimum": optimum, "gap_percent": gap}
        lines += [
            f"  optimum by BFGS       f*/m = {common.number(optimum)}",
            f"  this run              f(x)/m = {common.number(result.mean_objective)}, "
            f"{common.percent(gap)} above",
        ]
    if out is not None:
        paths: list[Path] = []
        with common.writing(paths):
            write(out, result, record, optimum, paths)
        lines.append(common.wrote(paths))
        if private:
            lines.append(
                f"of these only {RELEASED} may be shared, under its guarantee"
                if out / RELEASED in paths
                else "none of these may be shared: the run has no guarantee"
            )
    print(json_module.dumps(record, allow_nan=False) if json else "\n".join(lines))
    common.tell_where_runs_ended([result])


def private_options(
    own: dict[str, Any],
    total_epsilon: float | None,
    mechanism: str | None,
    delta: float | None,
    **parameters: Any,
) -> tuple[dict[str, Any], int]:
    """Parameters and rounds of a private run: the defaults of its budget, but for `own` ones."""
    from .._validation import check_choice
    from ..privacy import MECHANISMS
    from ..privacy.defaults import private_settings

    if total_epsilon is None:
        raise ValueError("total_epsilon must be given, what each client may spend")
    if mechanism is None:
        mechanism = "laplace" if delta is None else "gaussian"
    law = MECHANISMS[check_choice("mechanism", mechanism, MECHANISMS)]
    if delta is not None:
        parameters["delta"] = delta
    made = law(total_epsilon=total_epsilon, **parameters)
    settings = private_settings(total_epsilon)
    planned = settings.pop("rounds")
    return {**settings, **own, "mechanism": made}, planned


def write(
    out: Path, result: Result, record: dict[str, Any], optimum: float | None, paths: list[Path]
) -> None:
    """Result, history, summary and figure of a run, and what a private one released; each is
    appended to `paths` once whole."""

    result.save(out / "result.npz")
    paths.append(out / "result.npz")
    result.to_csv(out / "history.csv")
    paths.append(out / "history.csv")
    common.write_summary(out, record, paths)
    if not result.guarantee.startswith("none"):
        result.release().save(out / RELEASED)
        paths.append(out / RELEASED)
    common.write_figure(out / "history", [result], optimum, paths)


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
        self.live.refresh()  # what drawing has to import is imported before the run is timed
        return self

    def __exit__(self, *exc: Any) -> None:
        self.live.__exit__(*exc)

    def __call__(self, info: RoundInfo) -> None:
        self.latest = info

    def render(self) -> Any:
        """The table as it stands."""
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
                common.number(info.objective[tau] / info.n_clients),
                f"{info.grad_mean_sq[tau]:.3e}",
                "-" if accuracy is None else f"{accuracy:.4f}",
                "-" if snr is None else f"{snr:.2f}",
                f"{info.elapsed[tau]:.2f} s",
            )
        return table
