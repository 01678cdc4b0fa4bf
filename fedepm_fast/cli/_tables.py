"""Tables, models and figures, as ``fedepm fit``, ``predict`` and ``evaluate`` share them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.parameters import param
from ._options import taken

if TYPE_CHECKING:
    from ..models import Evaluation, Model
    from ..preparation import Table

Rows = Annotated[
    Path, typer.Argument(help="CSV (any separator), Parquet or NumPy file.", metavar="TABLE")
]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Figure of coefficients, and of the calibration by client: .png, .svg or .pdf.",
        metavar="FILE",
    ),
]


@dataclass(frozen=True)
class TableFile:
    """How the file of a table is read: options of the commands, by `fedepm_fast.preparation`."""

    separator: str | None = param(
        None, help="of a CSV file: a character, or tab", shown="one of , ; tab |", metavar="CHAR"
    )
    header: bool | None = param(
        None, help="whether the first line of a CSV file names its columns",
        shown="what it looks like",
    )  # fmt: skip
    na: str | None = param(
        None, help="what else stands for missing cells of a CSV file, separated by commas",
        shown="empty cells, NA and the like", metavar="LIST",
    )  # fmt: skip
    encoding: str | None = param(
        None, help="of a CSV file, such as latin-1", shown="utf-8", metavar="NAME"
    )
    decimal: str = param(".", help="decimal point of a CSV file: . or a comma", metavar="CHAR")
    format: str | None = param(
        None, help="of the table: csv, parquet or npy", shown="from its name"
    )


def read(
    path: Path, given: Mapping[str, Any], known: Iterable[str | None], model: Model | None = None
) -> Table:
    """The table of a file, which has the columns that are `known` if it has names.

    With a model it is read as that of the training was, but for the options that are given.
    """
    from ..preparation._files import read_as

    how = taken(given, "table")
    if "na" in how:
        how["na"] = tuple(text.strip() for text in how["na"].split(","))
    before = {} if model is None else model.training.get("read", {})
    return read_as(path, before, [name for name in known if name is not None], **how)


def check_files(out: Path | None, plot: Path | None, **read: Path | None) -> None:
    """Prove before any work that the files can be written, and are none of those that are `read`,
    each by what it is."""
    from .._common.files import check_writable_file
    from ._compare import check_plot

    for option, written in {"out": out, "plot": plot}.items():
        for what, path in read.items():
            if written is not None and path is not None and _is_same(written, path):
                raise ValueError(f"{option} must be another file than the {what}, got {written}")
    if out is not None:
        check_writable_file("out", out)
    check_plot(plot)


def _is_same(one: Path, other: Path) -> bool:
    """Whether both name one file, by links or otherwise."""
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there, which is said where it is needed
        return False


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
