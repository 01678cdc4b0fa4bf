"""``fedepm audit`` and ``fedepm tradeoff``."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from . import _options as options
from ._options import taken, with_options
from ._plan import SETTLED, PlannedRun

if TYPE_CHECKING:
    from ..algorithms import FedEPM
    from ..privacy.audit import Audit
    from ..privacy.tradeoff import Tradeoff


@with_options("mechanism", "algorithm:fedepm", without=["participation", "coverage_rounds"])
def audit(
    runs: Annotated[int, typer.Option(help="Runs of each of the two datasets.")] = 4000,
    seed: Annotated[int | None, typer.Option(help="Of the runs.", show_default="0")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Of a plan: uploads, over which a budget is split.", metavar="N", show_default="3"
        ),
    ] = None,
    features: Annotated[
        int | None, typer.Option(help="Of a plan: at least 2.", show_default="2")
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(help="Of a private plan: rows of the client.", show_default="2"),
    ] = None,
    client: Annotated[
        bool,
        typer.Option("--client", help="Of a private plan: attack uploads of PrivateClient."),
    ] = False,
    confidence: Annotated[
        float | None, typer.Option(help="Of a plan: of the lower bound.", show_default="0.95")
    ] = None,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Attack the uploads: lower bounds on epsilon of the paper's noise and of private runs.

    A client's record is one of two; an observer of its uploads decides which. Without options of a
    plan: both presets and four private plans, with confidence 95 %. With --total-epsilon: a
    private plan, its local steps those of fedepm plan unless others are given. With --preset,
    --noise or --epsilon: the paper's noise.
    """
    from .._common.validation import check_int
    from ..privacy.audit import standard

    check_int("runs", runs, low=10)
    own = {
        "rounds": rounds, "features": features, "records": records, "client": client or None,
        "confidence": confidence,
    }  # fmt: skip
    own = {name: value for name, value in own.items() if value is not None}
    live = sys.stderr.isatty() and not json
    if own or given:
        own |= {"runs": runs} | ({} if seed is None else {"seed": seed})
        attacked, found = _audit_plan(given, own)
        if json:
            record = {"parameters": attacked.describe(), **asdict(found), "broken": found.broken}
            print(json_module.dumps(record, allow_nan=False))
            return
        print(_describe(attacked, found, client))
        print(found)
        return
    common.announce_compilation()
    each = standard(
        runs, seed or 0, (lambda name: print(f"{name} ...", file=sys.stderr)) if live else None
    )
    if json:
        print(json_module.dumps({name: asdict(a) for name, a in each.items()}, allow_nan=False))
        return
    print(f"{'':32}{'stated':>8}{'at least':>10}  {runs} runs each, confidence 0.95")
    for name, a in each.items():
        verdict = "refuted" if a.broken else "not refuted"
        print(f"{name:32}{a.stated:>8.3g}{a.lower_bound:>10.3g}  {verdict}{_detects(a)}")


def _audit_plan(given: dict[str, Any], own: dict[str, Any]) -> tuple[FedEPM, Audit]:
    """The algorithm that the options name, and the attack on it."""
    from ..privacy.audit import audit

    if taken(given, "mechanism"):
        if "client" in own and "seed" in own:
            raise ValueError("seed has no meaning with --client")
        if "epsilon" in given:
            raise ValueError("epsilon has no meaning with --total-epsilon")
        given = _as_planned(common.make_private(given, True, public_scaling=False), own)
        given.pop("rounds", None)
    elif not given.keys() & {"preset", "noise", "epsilon"}:
        first = min({*given, *own} - {"runs", "seed"})
        raise ValueError(
            f"{first} is of a plan: give --total-epsilon for a private one, or --preset, "
            "--noise or --epsilon for the paper's noise"
        )
    elif "records" in own:
        raise ValueError("records is of a private plan, the paper's noise is attacked on one")
    algorithm: Any = common.make_algorithm("fedepm", given)
    common.announce_compilation()
    return algorithm, audit(algorithm, **{"rounds": 3, **own})


def _as_planned(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`given` with a plan's parameters of the local steps where they are not given."""
    from ..privacy import plan

    made = plan(
        mechanism=given["private"], client_sizes=[own.get("records", 2)],
        n_features=own.get("features", 2),
    ).algorithm  # fmt: skip
    names = ("lam", "eta", "mu0", "local_steps", "step", "start", "participation")
    return {**{name: getattr(made, name) for name in names}, **given}


def _describe(algorithm: FedEPM, found: Audit, client: bool) -> str:
    """What was attacked, in a line."""
    mechanism = algorithm.mechanism
    noise = (
        f"preset {algorithm.preset}, {algorithm.noise_model.name} noise"
        if mechanism is None
        else f"private, {mechanism.name} noise{', PrivateClient' * client}"
    )
    uploads = f"{found.rounds} upload{'s' * (found.rounds != 1)}"
    if found.moments:
        uploads = f"second moments that spend as {found.moments}, {uploads}"
    delta = f", delta {found.delta:g}" * (found.delta > 0)
    return f"{noise}, {uploads}, {algorithm.local_steps} local steps{delta}"


def _detects(found: Audit) -> str:
    """The smallest lack of noise that so many runs would show."""
    lack = found.shortfall
    return "" if lack is None else f" (would be, lacking {lack:.0%} of its noise: power 90 %)"


@with_options("data", "mechanism", without=["total_epsilon", "clip", *SETTLED])
def tradeoff(
    epsilons: Annotated[
        str, typer.Option(help="Total epsilons, separated by commas.", metavar="LIST")
    ] = "0.25,0.5,1,2,5,10,20",
    trials: Annotated[int, typer.Option(help="Splits, each with a run for each epsilon.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the first trial.")] = 0,
    public_scaling: Annotated[
        bool,
        typer.Option(
            "--public-scaling",
            help="Means and deviations of the columns are public; they are for adult.",
        ),
    ] = False,
    trust: options.Trust = None,
    honest: options.Honest = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the runs as CSV and JSON, and the figure.", metavar="DIR"),
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """What privacy costs: f(x)/m and accuracy against each client's total epsilon.

    Runs of fedepm run --private, as fedepm plan plans them.
    """
    from .._common.progress import bars
    from ..privacy.tradeoff import LOSS
    from ..privacy.tradeoff import tradeoff as compute

    try:
        budgets = [float(text) for text in epsilons.split(",")]
    except ValueError:
        raise ValueError(
            f"epsilons must be numbers separated by commas, got {epsilons!r}"
        ) from None
    given |= {"public_scaling": public_scaling}
    run = PlannedRun({**given, "total_epsilon": 1.0}, LOSS, trust=trust, honest=honest)
    out = common.check_out(out)
    common.announce_compilation()

    def split(split_seed: int) -> Any:
        return run.columns(common.load_data(given, split_seed, LOSS))

    with bars(common.live(quiet or json), transient=True) as show:
        found = compute(
            split, epsilons=budgets, trials=trials, seed=seed,
            delta=getattr(run.mechanism, "delta", 0.0), neighbours=run.mechanism.neighbours,
            public_scaling=run.public,
            **{name: value for name, value in run.trust.items() if value is not None},
            progress=None if show is None else partial(show, "runs"),
        )  # fmt: skip
    lines = [str(found), f"privacy guarantee: {found.rows[0]['guarantee']}"]
    if out is not None:
        paths: list[Path] = []
        with common.writing(paths, out):
            write(out, found, paths)
        lines.append(common.wrote(paths))
    print(json_module.dumps(found.rows, allow_nan=False) if json else "\n".join(lines))


def write(out: Path, found: Tradeoff, paths: list[Path]) -> None:
    """Runs as CSV and JSON, and the figure; each is appended to `paths` once whole."""
    from .._common.files import write_csv

    common.write_json(out / "tradeoff.json", found.rows, paths)
    columns = {name: [row[name] for row in found.rows] for name in found.rows[0]}
    write_csv(out / "tradeoff.csv", columns)
    paths.append(out / "tradeoff.csv")
    common.write_figure(out / "tradeoff", lambda _: found.plot(), paths)
