"""``fedepm predict`` and ``fedepm evaluate``: what a model says of other tables."""

from __future__ import annotations

import json as json_module
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from . import _options as options
from . import _tables as tables
from ._options import with_options

if TYPE_CHECKING:
    from ..preparation import Table

#: What reads as a number, but is none: 0045.
_CODE = re.compile(r"-?0[0-9]+")

ModelFile = Annotated[Path, typer.Argument(help="What fedepm fit --out wrote.", metavar="MODEL")]
Label = Annotated[
    str | None,
    typer.Option(help="Column of the labels.", show_default="the model's", metavar="COLUMN"),
]
ClientColumn = Annotated[
    str | None,
    typer.Option(
        "--client-column", help="Column that says who holds a row.", metavar="COLUMN",
        show_default="the model's, if the table has it",
    ),
]  # fmt: skip


@with_options("table")
def predict(
    model: ModelFile,
    table: tables.Rows,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the predictions are written, as CSV.",
            metavar="FILE",
            show_default="standard output",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the table to write beside the predictions; can be given again.",
            metavar="COLUMN",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Predict the rows of a table by a model: a CSV file with a row for each.

    A CSV table is read by the options that fedepm fit was given, unless others are.
    """
    from ..models import Model

    tables.check_files(out, None, model=model, table=table)
    known = Model.load(model)
    rows = tables.read(
        table, given, [*known.prepared.table_columns, *(keep or ())], known,
    )  # fmt: skip
    columns: dict[str, list[Any]] = {name: _cells(rows, name) for name in keep or ()}
    with tables.warnings_told():
        columns |= {name: cells.tolist() for name, cells in known.predictions(rows).items()}
    if out is None:
        _print_csv(columns)
        return
    from .._common.files import write_csv

    with common.writing([]):
        write_csv(out, columns)
    print(f"wrote {len(rows):,} predictions of {known.label} to {out}")


@with_options("table")
def evaluate(
    model: ModelFile,
    table: tables.Rows,
    label: Label = None,
    client: ClientColumn = None,
    sample_weight: Annotated[
        str | None, typer.Option(help="Column of weights of the rows.", metavar="COLUMN")
    ] = None,
    plot: tables.Plot = None,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Measure how well a model predicts the rows of a table, client by client and over all.

    A CSV table is read by the options that fedepm fit was given, unless others are.
    """
    from ..models import Model
    from ..models import evaluate as evaluated

    tables.check_files(None, plot, model=model, table=table)
    known = Model.load(model)
    rows = tables.read(
        table, given, [known.label if label is None else label, client, sample_weight], known,
    )  # fmt: skip
    with tables.warnings_told():
        found = evaluated(known, rows, label, client, sample_weight)
    paths: list[Path] = []
    tables.draw(known, found, 0.95, plot, paths)
    if json:
        print(json_module.dumps(found.to_dict(), allow_nan=False))
        return
    print(f"{table.name}, by the model {model.name}, {known!r}\n")
    print(found)
    if paths:
        print(common.wrote(paths))


def _cells(table: Table, name: str) -> list[Any]:
    """A column as it is written again."""
    column = table.column(name, "keep")
    codes, names = column.levels
    if column.kind == "category" or any(map(_CODE.fullmatch, names)):
        return [None if code < 0 else names[code] for code in codes.tolist()]
    cells = column.numbers.tolist()
    return [None if cell != cell else int(cell) if cell == int(cell) else cell for cell in cells]


def _print_csv(columns: dict[str, list[Any]]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
