"""``fedepm sweep``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.text import counted
from . import _common as common
from ._common import INTERRUPTED, CommandFailed
from ._compare import check_plot
from ._runs import print_cells

if TYPE_CHECKING:
    from ..sweeps import Sweep, SweepResult


def sweep(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="What to run.", show_default=False)
    ],
    store: Annotated[
        Path | None,
        typer.Option(
            help="Where the results go.",
            metavar="FILE",
            show_default="SPEC.sqlite beside SPEC.toml",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Instead of the specification's.", metavar="N")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Workers.", metavar="N", show_default="the CPUs")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="threads or processes.", show_default="threads")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Use the Dask cluster with this scheduler.", metavar="ADDRESS"),
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Use the Ray cluster, or a local one.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(
            help="Draw a measure against a parameter, or against the round.",
            metavar="MEASURE:PARAMETER",
        ),
    ] = None,
    plot_out: Annotated[
        Path | None,
        typer.Option(
            help="File of the figure.", metavar="FILE", show_default="SPEC.png beside SPEC.toml"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the specification and count the runs.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no table, only failures.")
    ] = False,
) -> None:
    """Do the runs of a specification that the store has not, and sum them up.

    Results are stored as they finish: after Ctrl-C or a crash the same command goes on, and with
    more trials or values in the specification it adds what is missing.
    """
    from ..store import Store, default_store
    from ..sweeps import Sweep, SweepInterrupted
    from ..sweeps import sweep as do_sweep

    where = _backend(backend, dask, ray)
    if jobs is not None:
        from .._common.validation import check_int

        check_int("jobs", jobs, low=1)
    runs = Sweep.from_toml(spec, trials=trials)
    path = default_store(spec) if store is None else store
    options = None if plot is None else _plot_options(runs, plot)
    figure = None
    if options is not None:
        figure = plot_out or spec.with_suffix(".png")
        check_plot(figure, "plot" if plot_out is None else "plot_out")
    elif plot_out is not None:
        raise ValueError("--plot-out needs --plot, which says what to draw")
    if dry_run:
        _count(runs, path)
        return
    done = _done(runs, path)
    runs.check(done)
    common.announce_compilation()
    with Store(path) as opened:
        if not quiet:
            stored = len(done)
            if stored == len(runs):
                print(f"nothing to do: {_size(runs)}, all in {path} already", flush=True)
            else:
                there = f", {stored} of them there already" if stored else ""
                print(f"{_size(runs)}, into {path}{there}", flush=True)
        try:
            result = do_sweep(runs, store=opened, jobs=jobs, progress=not quiet, **where)
        except SweepInterrupted as interrupted:
            raise CommandFailed(str(interrupted), INTERRUPTED) from None
        except RuntimeError as error:  # the cluster is gone
            raise CommandFailed(
                f"{error}; the runs that finished are kept in {path}, the same command goes on"
            ) from None
        if not quiet:
            print_cells(result.table())
        if options is not None and figure is not None:
            _draw(result, options, figure)
        _tell_failures(result, path)


def _backend(backend: str | None, dask: str | None, ray: bool) -> dict[str, Any]:
    from .._common.validation import check_choice

    given = [
        name
        for name, value in (("--backend", backend), ("--dask", dask), ("--ray", ray or None))
        if value is not None
    ]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: give one of them")
    if dask is not None:
        return {"backend": "dask", "address": dask}
    if ray:
        return {"backend": "ray"}
    if backend is not None:
        check_choice("backend", backend, ("threads", "processes"))
    return {"backend": backend or "threads"}


def _plot_options(runs: Sweep, plot: str) -> dict[str, Any]:
    """What to draw, checked before any run."""
    from .. import plots
    from .._common.extras import require
    from ..store._cells_table import varying

    require("pandas", "tables", "--plot")
    parameters = [cell.parameters for cell in runs.cells]
    names = list(dict.fromkeys(name for of in parameters for name in of))
    table = {name: [of.get(name) for of in parameters] for name in names}
    table["run_id"] = list(range(len(parameters)))
    return plots.sweep_plot_options(plot, varying(table))


def _draw(result: SweepResult, options: dict[str, Any], path: Path) -> None:
    from .. import plots

    histories = result.histories() if options["against"] == "round" else None
    figure = plots.sweep(result.to_pandas(), histories=histories, **options)
    plots.save(figure, path)
    print(f"wrote {path}")


def _size(runs: Sweep) -> str:
    return f"{counted(len(runs), 'run')} in {counted(len(runs.cells), 'cell')}"


def _done(runs: Sweep, path: Path) -> set[str]:
    """Ids of the runs that the store has, which is not made."""
    from ..store import Store

    if not path.exists() or not path.stat().st_size:  # what is empty becomes one
        return set()
    with Store(path, readonly=True) as opened:
        return opened.done(run.run_id for run in runs)


def _count(runs: Sweep, path: Path) -> None:
    runs.check()
    print(f"{_size(runs)}, {len(_done(runs, path))} of them in {path} already")


def _tell_failures(result: SweepResult, path: Path) -> None:
    failed = result.failed
    if failed:
        run_id, message = next(iter(failed.items()))
        sys.stdout.flush()
        raise CommandFailed(
            f"{len(failed)} of {len(result)} runs failed, the first of them ({run_id[:12]}) with "
            f"{message}; fedepm runs list {path} --where failed=true lists them, the same command "
            "tries them again"
        )
