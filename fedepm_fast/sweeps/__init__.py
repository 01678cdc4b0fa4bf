"""Sweeps: many runs, over grids of parameters and over trials, resumable."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from .._common.grid import grid
from .._common.progress import counting
from .._common.validation import check_int
from ..result import DivergenceWarning
from ..store import Store
from ._backends import make_backend
from ._cells import Cell, Run
from ._drive import Driver
from ._execute import Item
from ._result import SweepResult
from ._sweep import Sweep

__all__ = ["Sweep", "SweepInterrupted", "SweepResult", "grid", "sweep"]


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a sweep; the message says how many runs are kept, and where."""


def sweep(
    spec: Sweep | Mapping[str, Any] | str | os.PathLike[str],
    *,
    store: Store | str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    backend: str = "threads",
    address: Any = None,
    progress: bool | Callable[[int, int, int], Any] = True,
    keep_x: bool = False,
) -> SweepResult:
    """Do the runs of a sweep that the store has not.

    Results are those of ``run(algorithm, data, seed=seed, trial=trial)`` on the split of
    ``randomness.split_seed(seed, trial)``, bit by bit, whatever the backend, the jobs and the
    order; private runs state no guarantee here, for they share seeds.
    A run that raises is recorded as failed, and the sweep goes on; failed runs are tried
    again by the next sweep. A run that diverges is a result. Several programs may do the same
    sweep into one store: each does what no other has stored by then, and few runs twice.

    Parameters
    ----------
    spec : Sweep, mapping or path
        See `Sweep.from_dict` and `Sweep.from_toml`.
    store : Store or path, optional
        Where results go as they finish; an interrupted sweep goes on from there, and one with
        more trials or cells adds what is missing. In memory by default.
    jobs : int, optional
        Workers; by default as many as there are CPUs, or as the cluster has.
    backend : {"threads", "processes", "dask", "ray"}
    address : str or distributed.Client, optional
        Of the Dask or Ray cluster.
    progress : bool or callable
        Show progress on standard error: a bar, or a line now and then where that is no terminal.
        Or call ``progress(done, total, failed)``.
    keep_x : bool
        Keep the points of the histories, too.

    Returns
    -------
    SweepResult

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before any work.
    StoreError
        If the store cannot be read or written; what it holds is whole.
    SweepInterrupted
        On Ctrl-C, a KeyboardInterrupt; what had finished is stored.
    ImportError
        Where a backend's library is missing.

    Examples
    --------
    >>> from fedepm_fast import FedEPM, Sweep, grid, sweep
    >>> runs = Sweep(grid(FedEPM, local_steps=[4, 12]), clients=50, trials=3, rounds=2)
    >>> result = sweep(runs)
    >>> result.to_pandas().groupby("local_steps").rounds.median().to_dict()
    {4: 2.0, 12: 2.0}
    """
    if isinstance(spec, (str, os.PathLike)):
        spec = Sweep.from_toml(spec)
    elif isinstance(spec, Mapping):
        spec = Sweep.from_dict(spec)
    elif not isinstance(spec, Sweep):
        raise TypeError(f"spec must be a Sweep, a mapping or a path, got {type(spec).__name__}")
    if jobs is not None:
        check_int("jobs", jobs, low=1)
    if not isinstance(store, Store) and (store is None or not os.path.exists(store)):
        spec.check()  # before a store is made that would stay empty
    opened = store if isinstance(store, Store) else Store(":memory:" if store is None else store)
    if opened.readonly:
        raise ValueError(f"store must be one to write to, {opened.path} was opened to read only")
    try:
        done = opened.done(run.run_id for run in spec.runs)
        missing = [run for run in spec.runs if run.run_id not in done]
        if missing:
            spec.check(done)
            cells = list({id(run.cell): run.cell for run in missing}.values())
            most = None if jobs is None else min(jobs, len(missing))
            workers = make_backend(backend, cells, keep_x=keep_x, jobs=most, address=address)
            there = len(spec) - len(missing)
            with (
                closing(workers),
                counting(progress, there, len(spec)) as shown,
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore", DivergenceWarning)
                Driver(_items(missing, cells), workers, opened, shown).drive()
    except KeyboardInterrupt:
        raise _interrupted(spec, opened) from None
    finally:
        if opened is not store and sys.exception() is not None:
            opened.close()
    return SweepResult(spec.runs, opened)


def _items(runs: Iterable[Run], cells: Sequence[Cell]) -> list[Item]:
    """Runs in the order to execute them: those that share a split side by side, and all cells'
    first trials before the second ones."""
    index = {id(cell): i for i, cell in enumerate(cells)}
    sources = {id(cell.source): i for i, cell in reversed(list(enumerate(cells)))}
    ordered = sorted(
        runs,
        key=lambda r: (r.trial, r.seed, sources[id(r.cell.source)], index[id(r.cell)]),
    )
    return [(r.run_id, index[id(r.cell)], r.seed, r.trial) for r in ordered]


def _interrupted(spec: Sweep, store: Store) -> SweepInterrupted:
    if store.path == ":memory:":
        return SweepInterrupted("interrupted; without a store nothing is kept")
    kept = len(store.done(run.run_id for run in spec.runs))
    return SweepInterrupted(
        f"interrupted, {kept} of {len(spec)} runs are kept in {store.path}: "
        "the same again does the others"
    )
