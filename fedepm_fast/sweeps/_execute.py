"""Executing runs from their descriptions, here or in another process."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

from .. import __version__
from .._common.measures import measured
from .._common.notes import notes_of
from ..data import FederatedData
from ..engine import Ended
from ..guarantees import share_a_seed
from ..randomness import split_seed
from ..result import DivergenceWarning, Result
from ..runner import run, versions
from ..store import _history
from ..store._record import Record
from ._cells import Cell
from ._trials import Trials

Item = tuple[str, int, int, int]
"""A run to do as (run_id, index of its cell, seed, trial)."""

Task = Sequence[Item]


#: Runs after which records are made of them.
_BLOCK = 32


class _Own(threading.local):
    """What a thread has of the sweep that it works for."""

    cells: Any = None
    trials: Trials
    split: Any = None


_own = _Own()


class Done(NamedTuple):
    """A run that has been executed."""

    cell: int
    record: Record
    seconds: float
    """What it took, with what is around it."""


def execute(cell: Cell, seed: int, trial: int, data: FederatedData) -> Result:
    """The run of `cell` with this seed and trial, on `data`, which is their split.

    What nothing is kept of may be missing in the result.
    """
    if cell.repeated is not None:
        return cell.repeated(data, seed, trial)
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
    if _own.cells is not cells:
        _own.cells, _own.trials = cells, Trials()
    done: list[Done] = []
    for first in range(0, len(task), _BLOCK):
        block: list[tuple[Item, Ended, float]] = []
        for _, index, seed, trial in task[first : first + _BLOCK]:
            _own.trials.draw(cells[index], seed, trial)
        for item in task[first : first + _BLOCK]:
            if stop is not None and stop.is_set():
                break
            began = perf_counter()
            _, index, seed, trial = item
            ended = _own.trials.run(cells[index], seed, trial)
            if ended is not None:
                block.append((item, ended, perf_counter() - began))
                continue
            kept = _own.split  # of neighbours
            if kept is None or kept[0] != (id(cells[index].source), seed, trial):
                _own.split = kept = None  # the old one goes before the new one comes
            done.append(_alone(cells[index], item, keep_x, began))
        done += _recorded(cells, block, keep_x)
    _own.split = None
    return done


def _alone(cell: Cell, item: Item, keep_x: bool, began: float) -> Done:
    """A run on data of its own, or those of its neighbour."""
    _, index, seed, trial = item

    def result() -> Result:
        if _own.split is None:
            data = cell.source.split(split_seed(seed, trial))
            _own.split = (id(cell.source), seed, trial), data
        return execute(cell, seed, trial, _own.split[1])

    return Done(index, _record(cell, item, result, keep_x), perf_counter() - began)


def _recorded(
    cells: Sequence[Cell], block: Sequence[tuple[Item, Ended, float]], keep_x: bool
) -> list[Done]:
    """Runs of a block, with what it takes to record them shared among them."""
    began, done = perf_counter(), []
    for item, ended, seconds in block:
        index = item[1]
        result = partial(_result, cells[index], item, ended)
        done.append(Done(index, _record(cells[index], item, result, keep_x), seconds))
    each = (perf_counter() - began) / max(1, len(block))
    return [one._replace(seconds=one.seconds + each) for one in done]


def _result(cell: Cell, item: Item, ended: Ended) -> Result:
    assert cell.repeated is not None
    return cell.repeated.result(_own.trials.outcome(cell, ended), *item[2:])


def _record(cell: Cell, item: Item, made: Callable[[], Result], keep_x: bool) -> Record:
    """What is stored of a run: of one that raises, or whose result does, the error."""
    try:
        result = made()
        kept = {name: v for name, v in result.history.items() if keep_x or name != "x"}
        return record_of(cell, item, measures=measured(result), packed=_history.encode(kept))
    except Exception as failure:
        text = f"{type(failure).__name__}: {failure}{notes_of(failure)}"
        return record_of(cell, item, error=text)


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
