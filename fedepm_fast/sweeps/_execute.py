"""Executing runs from their descriptions, here or in another process."""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Sequence
from functools import cache
from threading import Event
from time import perf_counter
from typing import Any

from .. import __version__
from ..data import FederatedData
from ..privacy.runs import share_a_seed
from ..randomness import split_seed
from ..result import DivergenceWarning, Result
from ..runner import run, versions
from ..store import _history
from ..store._record import MEASURES, Outcome, Task
from ._cells import Cell


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
) -> list[Outcome]:
    """Execute runs one after the other; neighbours that share a split share its data.

    A run that raises is an outcome with its message. Runs that `stop` leaves out have none.
    """
    outcomes: list[Outcome] = []
    key, data = None, None
    machine = socket.gethostname()
    for run_id, index, seed, trial in task:
        if stop is not None and stop.is_set():
            break
        cell = cells[index]
        began = perf_counter()
        error, measures, history = None, (), None
        try:
            if key != (id(cell.source), seed, trial):
                key, data = None, None  # the old one goes before the new one comes
                data = cell.source.split(split_seed(seed, trial))
                key = (id(cell.source), seed, trial)
            assert data is not None
            result = execute(cell, seed, trial, data)
            measures = _measures(result)
            history = _history.encode(
                {name: v for name, v in result.history.items() if keep_x or name != "x"}
            )
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        seconds = perf_counter() - began
        outcomes.append(
            Outcome(
                run_id, index, seed, trial, error, measures, history, _versions(), machine, seconds
            )
        )
    return outcomes


def _measures(result: Result) -> tuple[Any, ...]:
    found = {**result.summary(), "snr": result.snr, "reasons": "+".join(result.reasons)}
    return tuple(found[name] for name in MEASURES)


@cache
def _versions() -> str:
    return json.dumps(dict(versions()))


# In other processes -------------------------------------------------------------------

_installed: dict[str, Sequence[Cell]] = {}


def install(sweep: str, cells: Sequence[Cell]) -> None:
    """Keep the cells of a sweep in this process, so that tasks need only name them."""
    _installed[sweep] = cells


def uninstall(sweep: str) -> None:
    """Forget the cells of a sweep."""
    _installed.pop(sweep, None)


def execute_installed(sweep: str, version: str, task: Task, keep_x: bool = False) -> list[Outcome]:
    """`execute_task` with cells that were installed, in a process of our own."""
    if version != __version__:
        raise RuntimeError(
            f"this worker has fedepm_fast {__version__}, the sweep was started by {version}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return execute_task(_installed[sweep], task, keep_x)
