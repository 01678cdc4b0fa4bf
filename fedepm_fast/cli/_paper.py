"""``fedepm paper``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._common.text import fill
from . import _common as common
from . import _options as options
from ._common import INTERRUPTED, CommandFailed

if TYPE_CHECKING:
    from ..paper import Evaluation


def paper(
    trials: Annotated[int, typer.Option(help="Runs of every algorithm in every cell.")] = 100,
    out: Annotated[
        Path, typer.Option(help="Folder for the report, figures and tables.", metavar="DIR")
    ] = Path("paper"),
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs at a time.", show_default="one for each processor"),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps finished runs, to go on where one was stopped.",
            metavar="FILE",
            show_default="runs.sqlite in the folder",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the splits and of the runs.")] = 0,
    quiet: options.Quiet = False,
) -> None:
    """Run the paper's evaluation: figures 2 to 5, table 1, and its claims beside what is measured.

    Each distinct run of the experiments once; with 100 trials 7,200 runs. Finished runs are kept:
    after Ctrl-C or a crash the same command goes on.
    """
    from .._common.extras import require
    from .._common.files import check_writable_folder
    from .._common.progress import bars
    from ..paper import evaluate
    from ..sweeps import SweepInterrupted

    for library, extra in (("pandas", "tables"), ("matplotlib", "plots")):
        require(library, extra, "fedepm paper")
    common.check_is_folder(out)
    out = check_writable_folder("out", out)
    store = out / "runs.sqlite" if store is None else store
    common.announce_compilation()
    with bars(common.live(quiet), transient=True) as progress:
        try:
            evaluation = evaluate(trials, seed=seed, jobs=jobs, store=store, progress=progress)
        except SweepInterrupted as interrupted:
            raise CommandFailed(str(interrupted), INTERRUPTED) from None
        except KeyboardInterrupt:
            told = f"interrupted, all runs are kept in {store}: the same command goes on"
            raise CommandFailed(told, INTERRUPTED) from None
        except RuntimeError as error:
            raise CommandFailed(str(error)) from None
        if progress is not None:
            progress("figures and report", 0, 1)
        paths: list[Path] = []
        with common.writing(paths):
            evaluation.write(out, paths)
    print(_told(evaluation, quiet))
    print(common.wrote(paths))


def _told(evaluation: Evaluation, quiet: bool) -> str:
    """A line for each claim, or for all of them."""
    findings = evaluation.findings
    if quiet:
        held = sum(f.verdict == "holds" for f in findings)
        return f"<Evaluation {len(evaluation.table)} runs: {held} of {len(findings)} claims hold>"
    width = max(len(f.verdict) for f in findings)
    where = max(len(f.claim.source) for f in findings)
    lines = [f"{f.verdict:<{width}}  {f.claim.source:<{where}}  {f.claim.text}" for f in findings]
    indent = " " * (width + where + 4)
    return "\n".join(fill(line, indent) for line in lines)
