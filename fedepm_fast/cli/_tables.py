"""Tables, models and figures, as ``fedepm fit``, ``predict`` and ``evaluate`` share them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..models import Evaluation, Model
    from ..preparation import Table

Rows = Annotated[
    Path, typer.Argument(help="CSV (any separator), Parquet or NumPy file.", metavar="TABLE")
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Of a CSV file: a character, or tab.", show_default="one of , ; tab |", metavar="CHAR"
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line of a CSV file names its columns.",
        show_default="what it looks like",
    ),
]  # fmt: skip
Na = Annotated[
    str | None,
    typer.Option(
        help="What else stands for missing cells of a CSV file, separated by commas.",
        metavar="LIST", show_default="empty cells, NA and the like",
    ),
]  # fmt: skip
Encoding = Annotated[
    str | None,
    typer.Option(help="Of a CSV file: utf-8, latin-1, ...", show_default="utf-8", metavar="NAME"),
]
Decimal = Annotated[str, typer.Option(help="Decimal point of a CSV file: . or a comma.")]
Format = Annotated[
    str | None,
    typer.Option(help="Of the table: csv, parquet or npy.", show_default="from its name"),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Figure of coefficients, and of the calibration by client: .png, .svg or .pdf.",
        metavar="FILE",
    ),
]


def read(
    path: Path,
    separator: str | None,
    header: bool | None,
    na: str | None,
    encoding: str | None,
    decimal: str,
    format: str | None,
    known: list[str | None],
) -> Table:
    """The table of a file, which has the columns that are `known` if it has names."""
    from ..preparation import read_table

    markers = () if na is None else tuple(text.strip() for text in na.split(","))
    return read_table(
        path, separator=separator, header=header, na=markers, encoding=encoding, decimal=decimal,
        format=format, known=[name for name in known if name is not None],
    )  # fmt: skip


def check_files(out: Path | None, plot: Path | None) -> None:
    """Prove before any work that the files can be written."""
    from .._common.files import check_writable_file
    from ._compare import check_plot

    if out is not None:
        check_writable_file("out", out)
    check_plot(plot)


@contextmanager
def warnings_told(*, at_once: bool = False) -> Iterator[None]:
    """Say what the block warns of on standard error, after it or `at_once`.

    What models warn of they say themselves, but not at once.
    """
    import warnings

    from ..models import ModelWarning

    told: list[str] = []

    def tell(message: Any, category: type[Warning], *_: Any) -> None:
        if str(message) in told or (not at_once and issubclass(category, ModelWarning)):
            return
        told.append(str(message))
        if at_once:
            print(f"warning: {message}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = tell  # type: ignore[assignment]
        yield
    for text in () if at_once else told:
        print(f"warning: {text}", file=sys.stderr)


def draw(
    model: Model, evaluation: Evaluation | None, level: float, plot: Path | None, paths: list[Path]
) -> None:
    if plot is None:
        return
    from .. import plots

    plots.save(model.plot(evaluation, level), plot)
    paths.append(plot)
