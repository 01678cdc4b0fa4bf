"""``fedepm run``."""

from __future__ import annotations

import json as json_module
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _cli_common as common
from ._cli_common import CommandFailed

if TYPE_CHECKING:
    from .reference import RoundInfo
    from .result import Result


def run(
    algorithm: Annotated[str, typer.Option(help="fedepm, sfedavg or sfedprox.")] = "fedepm",
    clients: common.Clients = 100,
    local_steps: common.LocalSteps = 12,
    participation: common.Participation = 0.5,
    epsilon: common.Epsilon = 0.1,
    preset: common.Preset = "released",
    noise: common.Noise = None,
    lam: Annotated[float | None, typer.Option(help="Weight of the l1 penalty.")] = None,
    eta: Annotated[float | None, typer.Option(help="Weight of the quadratic penalty.")] = None,
    mu0: common.Mu0 = 0.05,
    coverage_rounds: common.CoverageRounds = None,
    rounds: common.Rounds = None,
    max_rounds: common.MaxRounds = 500,
    stopping: common.Stopping = None,
    objective: common.ObjectiveName = "logistic",
    beta: common.Beta = 1e-3,
    seed: common.Seed = 0,
    trial: Annotated[int, typer.Option(help="Another run on the same split.")] = 0,
    data: common.Data = "adult",
    label: common.Label = None,
    client_column: common.ClientColumn = None,
    partition: common.Partition = "random",
    concentration: common.Concentration = 0.5,
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
    from ._validation import check_choice
    from .algorithms import ALGORITHMS
    from .runner import make_problem

    out = common.check_out(out)
    chosen = common.make(
        ALGORITHMS[check_choice("algorithm", algorithm, ALGORITHMS)],
        {
            "local_steps": local_steps,
            "participation": participation,
            "epsilon": epsilon,
            "preset": preset,
            "noise": noise,
            "mu0": mu0,
            "coverage_rounds": coverage_rounds,
            "lam": lam,
            "eta": eta,
        },
    )
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
    table = RoundsTable(chosen.name) if common.live(quiet or json) else None
    with table or nullcontext():
        result = common.run_quietly(
            chosen,
            federated,
            objective=goal,
            seed=seed,
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
        optimum = common.optimum_per_client(make_problem(chosen, federated, goal))
        gap = 100 * (result.mean_objective / optimum - 1)
        record |= {"optimum": optimum, "gap_percent": gap}
        lines += [
            f"  optimum by BFGS, f*/m = {optimum:.6f}; this run, f(x)/m = "
            f"{result.mean_objective:.6f}, {gap:.3f} % above"
        ]
    if out is not None:
        lines.append("  " + common.wrote(write(out, result, record, optimum)))
    print(json_module.dumps(record, allow_nan=False) if json else "\n".join(lines))
    if result.diverged:
        raise CommandFailed(result.message)


def write(out: Path, result: Result, record: dict[str, Any], optimum: float | None) -> list[Path]:
    """Result, history, summary and figure of a run."""
    from ._files import replacing

    result.save(out / "result.npz")
    result.to_csv(out / "history.csv")
    with replacing(out / "summary.json") as temporary:
        temporary.write_text(json_module.dumps(record, indent=1, allow_nan=False) + "\n")
    paths = [out / name for name in ("result.npz", "history.csv", "summary.json")]
    return paths + common.write_figure(out / "history", [result], optimum)


class RoundsTable(AbstractContextManager["RoundsTable"]):
    """A live table of the last rounds; a callback of `run`."""

    SHOWN = 12

    def __init__(self, algorithm: str) -> None:
        from rich.live import Live

        from .result import LABELS

        self.title = LABELS[algorithm]
        self.rows: deque[tuple[str, ...]] = deque(maxlen=self.SHOWN)
        self.live = Live(refresh_per_second=12, transient=True)

    def __enter__(self) -> RoundsTable:
        self.live.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.live.__exit__(*exc)

    def __call__(self, info: RoundInfo) -> None:
        accuracy, snr = info.accuracy[-1], info.snr[-1]
        self.rows.append(
            (
                str(info.tau),
                f"{info.objective[-1] / info.n_clients:.6f}",
                f"{info.grad_mean_sq[-1]:.3e}",
                "-" if accuracy is None else f"{accuracy:.4f}",
                "-" if snr is None else f"{snr:.2f}",
                f"{info.elapsed[-1]:.2f} s",
            )
        )
        self.live.update(self.render())

    def render(self) -> Any:
        """The table as it stands."""
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", box=None, pad_edge=False)
        for name in ("round", "f(x)/m", "|mean grad|^2", "accuracy", "SNR", "elapsed"):
            table.add_column(name, justify="right", min_width=8)
        for row in self.rows:
            table.add_row(*row)
        return table
