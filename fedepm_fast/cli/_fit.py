"""``fedepm fit``: from a table whose rows clients hold to a model."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from . import _options as options
from . import _tables as tables
from ._options import with_options
from ._run import RoundsTable

if TYPE_CHECKING:
    from ..models import Model
    from ..preparation import Preparation, Prepared


@with_options("table")
def fit(
    table: tables.Rows,
    label: Annotated[str, typer.Option(help="Column of the labels.", metavar="COLUMN")],
    client: Annotated[
        str | None,
        typer.Option(
            "--client-column",
            help="Column that says who holds a row.",
            metavar="COLUMN",
            show_default="one client has all",
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Instead of --client-column: deal the rows to so many.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="classification, multiclass or regression.", show_default="from the labels"
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="logistic, multinomial, least_squares, poisson, huber, squared_hinge ...",
            show_default="from the task",
            metavar="LOSS",
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="huber: residuals beyond it count linearly.")
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Of two labels the one whose probability is modelled.",
            show_default="the second",
            metavar="LABEL",
        ),
    ] = None,
    client_weight: Annotated[
        str, typer.Option(help="size: all rows count alike; equal: all clients.")
    ] = "size",
    beta: Annotated[
        float, typer.Option(help="Weight of the l2 penalty, of standardised columns.")
    ] = 0.0,
    sample_weight: Annotated[
        str | None, typer.Option(help="Column of the rows' weights.", metavar="COLUMN")
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(help="balanced: weights that give each class the same sum.", metavar="HOW"),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column that is left out; can be given again.", metavar="COLUMN"),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="numeric, boolean or category for a column whose cells say another; can be "
            "given again.",
            metavar="COLUMN=KIND",
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Level of a category that the others are compared with; can be given again.",
            show_default="the most frequent",
            metavar="COLUMN=LEVEL",
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(help="Levels of fewer rows are taken together as (other).")
    ] = 1,
    ignore_case: Annotated[
        bool,
        typer.Option("--ignore-case", help="Levels, and labels, that differ in case only are one."),
    ] = False,
    holdout: Annotated[
        float,
        typer.Option(help="Share of each client's rows that is kept from the fit, to judge it by."),
    ] = 0.0,
    participation: Annotated[
        float, typer.Option(help="Share of the clients that take part in a round.")
    ] = 1.0,
    max_rounds: Annotated[int, typer.Option(help="Communication rounds at most.")] = 500,
    tol: Annotated[
        float,
        typer.Option(help="Ends where a round lowers the objective by less than this share."),
    ] = 1e-14,
    seed: Annotated[
        int, typer.Option(help="Of rows that are held out or dealt, and of selections.")
    ] = 0,
    start: Annotated[
        Path | None, typer.Option(help="Model to start from.", metavar="MODEL")
    ] = None,
    total_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fit under differential privacy: what each client may spend. Needs --public.",
            metavar="E",
        ),
    ] = None,
    privacy_delta: Annotated[
        float | None,
        typer.Option(
            help="With --total-epsilon: Gaussian noise at this delta; 0 takes Laplace noise, "
            "whose guarantee is pure.",
            show_default="1e-06",
            metavar="D",
        ),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="With --total-epsilon: JSON of the columns, their public bounds, or means and "
            "deviations, or levels, as Preparation.public has them.",
            metavar="FILE",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="With --total-epsilon: the values of the label, known to everyone.",
            show_default="those of the rows, then taken as public",
            metavar="A,B,...",
        ),
    ] = None,
    label_bounds: Annotated[
        str | None,
        typer.Option(
            help="With --total-epsilon, for a regression: least and largest label there can be.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    trust: options.Trust = None,
    honest: options.Honest = None,
    neighbours: Annotated[
        str | None,
        typer.Option(
            help="With --total-epsilon: record, or client, which hides all rows of a client.",
            show_default="record",
            metavar="WHAT",
        ),
    ] = None,
    errors: Annotated[
        str | None,
        typer.Option(
            help="Standard errors: wald, robust (HC1) or clustered by client.",
            show_default="the first that there is",
            metavar="KIND",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the confidence intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="Where the model is written, as JSON.", metavar="FILE")
    ] = None,
    plot: tables.Plot = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Fit a model to a table whose rows clients hold: coefficients, their errors, measures.

    By default the maximum of the pooled rows' likelihood, with an intercept and no penalty.
    """
    from .._common.validation import check_real
    from ..models import Model
    from ..models import fit as fitted

    tables.check_files(out, plot, table=table, declaration=public)
    check_errors(errors, level)
    prepared: Any = _preparation(drop, kind, reference, min_count, ignore_case)
    if total_epsilon is not None or public is not None or privacy_delta is not None:
        if total_epsilon is None:
            beside = "--privacy-delta" if public is None else "--public"
            raise ValueError(f"total_epsilon must be given with {beside}")
        if public is None:
            raise ValueError(
                "public must be given with --total-epsilon: a JSON file that declares what is "
                'public of each column, such as {"age": {"bounds": [18, 100]}, "sex": {"levels": '
                '["f", "m"]}}; others are left out'
            )
        if drop or kind or reference or min_count != 1 or ignore_case:
            raise ValueError(
                "public must say all there is of the columns: --drop, --kind, --reference, "
                "--min-count and --ignore-case are for fits that are not private"
            )
        if privacy_delta is not None:  # that of `fit` is called delta
            check_real("privacy_delta", privacy_delta, low=0.0, high=1.0, open_high=True)
        prepared = _public(public)
    loss = _objective(objective, delta)
    begun = None if start is None else Model.load(start)
    rows = tables.read(table, given, [label, client])
    private = total_epsilon is not None
    if private:  # other fits compile nothing
        common.announce_compilation()
    # Of a private fit nothing is shown that it does not release.
    live = common.live(quiet or json) and not private
    rounds = RoundsTable("curvature", keep=False) if live else None
    with tables.warnings_told(at_once=private), rounds or nullcontext():
        model = fitted(
            rows, label, client, clients=clients, task=task, positive=positive, objective=loss,
            client_weight=client_weight, beta=beta, sample_weight=sample_weight,
            class_weight=class_weight, participation=participation, preparation=prepared,
            holdout=holdout, seed=seed, max_rounds=max_rounds, tol=tol, start=begun,
            callback=rounds, total_epsilon=total_epsilon, delta=privacy_delta,
            classes=None if classes is None else classes.split(","),
            label_bounds=_bounds(label_bounds), trust=trust, honest=honest,
            neighbours=neighbours,
        )  # fmt: skip
    text = summary_of(model, errors, level)
    paths: list[Path] = []
    with common.writing(paths):
        if out is not None:
            model.save(out)
            paths.append(out)
        tables.draw(model, None, level, plot, paths)
    if json:
        print(json_module.dumps(record_of(model, errors, level), allow_nan=False))
    else:
        print(repr(model) if quiet else text)
        if paths:
            print(common.wrote(paths))
    if private:  # whose notes are told as soon as they are known
        return
    if not (model.training["converged"] or model.training["unbounded"]):
        raise common.CommandFailed(model.notes[0])
    for note in model.notes:
        print(f"warning: {note}", file=sys.stderr)


def check_errors(errors: str | None, level: float) -> None:
    """Refuse a kind of standard errors that there never is, before any work."""
    from .._common.validation import check_choice, check_real
    from ..models._inference import KINDS

    if errors is not None:
        check_choice("errors", errors, KINDS)
    check_real("level", level, low=0.0, high=1.0, open_low=True, open_high=True)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """What an option that names columns was given, by column."""
    found = {}
    for text in given or ():
        name, is_pair, value = text.rpartition("=")
        if not (is_pair and name and value):
            raise ValueError(f"{option} must be COLUMN=VALUE, got {text!r}")
        found[name] = value
    return found


def _preparation(
    drop: list[str] | None,
    kind: list[str] | None,
    reference: list[str] | None,
    min_count: int,
    ignore_case: bool,
) -> Preparation:
    from ..preparation import Preparation

    return Preparation(
        drop=tuple(drop or ()), kinds=_pairs("kind", kind),
        reference=_pairs("reference", reference), min_count=min_count,
        ignore_case=ignore_case,
    )  # fmt: skip


def _public(path: Path) -> Prepared:
    """What a file declares public of the columns."""
    from ..preparation import Preparation

    try:
        columns = json_module.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no file at {path}") from None
    except ValueError as error:
        raise ValueError(f"public must be a file of JSON, but {path} is none: {error}") from None
    try:
        return Preparation.public(columns)
    except (TypeError, ValueError) as error:
        raise ValueError(f"public must declare columns, {path} does not: {error}") from None


def _bounds(text: str | None) -> Any:
    """Two numbers separated by a comma."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"label_bounds must be LOW,HIGH, got {text!r}") from None
    return low, high


def _objective(name: str | None, delta: float | None) -> Any:
    if delta is None:
        return name
    from ..losses import as_objective

    if name != "huber":
        raise ValueError("delta is for --objective huber")
    return as_objective(name, delta=delta)


def summary_of(model: Model, errors: str | None, level: float) -> str:
    """The summary, without what the command warns of; a kind of errors that the model has not is
    the option's mistake."""
    from dataclasses import replace

    from .._common.validation import ArgumentError

    try:
        return replace(model, notes=()).summary(errors, level)
    except ArgumentError as error:
        raise error.of("errors") from None


def record_of(model: Model, errors: str | None, level: float) -> dict[str, Any]:
    """A model for other programs: the statistics of its coefficients, without what predicts."""
    from ..models._saving import coefficient_records

    record = model.to_dict()
    for name in ("format", "version", "prepared", "w", "null", "feature_names"):
        del record[name]
    del record["inference"]["covariances"]
    return {
        **record, "errors": errors or model.inference.default, "level": level,
        "coefficients": coefficient_records(model, errors, level),
    }  # fmt: skip
