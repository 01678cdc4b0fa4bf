"""Executing runs from their descriptions, here or in another process."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Sequence
from functools import cache
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

from .. import __version__
from .._common.measures import measured
from ..data import FederatedData
from ..guarantees import share_a_seed
from ..randomness import split_seed
from ..result import DivergenceWarning, Result
from ..runner import run, versions
from ..store import _history
from ..store._record import Record
from ._cells import Cell

Item = tuple[str, int, int, int]
"""A run to do as (run_id, index of its cell, seed, trial)."""

Task = Sequence[Item]


class Done(NamedTuple):
    """A run that has been executed."""

    cell: int
    record: Record
    seconds: float
    """What it took, with what is around it."""


def execute(cell: Cell, seed: int, trial: int, data: FederatedData) -> Result:
    """The run of `cell` with this seed and trial, on `data`, which is their split."""
    result = run(
        cell.algorithm,
        data,
        objective=cell.objective,
        seed=seed,
        trial=trial,
        stopping=cell.stopping,
        max_rounds=cell.max_rounds,
        max_iterations=cell.max_iterations,
        engine=cell.engine,
        every_accuracy=False,
    )
    return share_a_seed(result)


def execute_task(
    cells: Sequence[Cell], task: Task, keep_x: bool = False, stop: Event | None = None
) -> list[Done]:
    """Execute runs one after the other; neighbours that share a split share its data.

    A run that raises is done, with its message. Runs that `stop` leaves out are not.
    """
    done: list[Done] = []
    key, data = None, None
    for item in task:
        if stop is not None and stop.is_set():
            break
        _, index, seed, trial = item
        cell = cells[index]
        began = perf_counter()
        try:
            if key != (id(cell.source), seed, trial):
                key, data = None, None  # the old one goes before the new one comes
                data = cell.source.split(split_seed(seed, trial))
                key = (id(cell.source), seed, trial)
            assert data is not None
            result = execute(cell, seed, trial, data)
            kept = {name: v for name, v in result.history.items() if keep_x or name != "x"}
            record = record_of(cell, item, measures=measured(result), packed=_history.encode(kept))
        except Exception as failure:
            record = record_of(cell, item, error=f"{type(failure).__name__}: {failure}")
        done.append(Done(index, record, perf_counter() - began))
    return done


def record_of(cell: Cell, item: Item, **found: Any) -> Record:
    """What is stored of a run that was executed here."""
    here = {"error": None, "measures": {}, "versions": _versions(), "packed": None}
    run_id, _, seed, trial = item
    machine = socket.gethostname()
    return Record(run_id, cell.parameters, seed, trial, **{**here, "machine": machine, **found})


@cache
def _versions() -> dict[str, str]:
    return dict(versions())


# In other processes -------------------------------------------------------------------

_installed: list[Sequence[Cell]] = []


def install(cells: Sequence[Cell]) -> None:
    """Keep the cells of a sweep in this process, which has no other, so that tasks need not
    bring them."""
    _installed[:] = [cells]


def execute_elsewhere(
    cells: Sequence[Cell] | None, version: str, task: Task, keep_x: bool = False
) -> list[Done]:
    """`execute_task` with these cells, or those that were installed, in another process."""
    if version != __version__:
        raise RuntimeError(
            f"this worker has fedepm_fast {__version__}, the sweep was started by {version}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return execute_task(_installed[0] if cells is None else cells, task, keep_x)
