"""Where in a run something was raised: the client and the round, found out afterwards.

Compiled rounds do not know it when a function of the user's raises, and are not slowed down for
it: what they did is done again, client by client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._common.notes import is_known, name_clients, of_client
from ..objectives import Problem
from ..reference import Reference

if TYPE_CHECKING:
    from ._run import Run

Array = NDArray[np.float64]


def note_start(error: Exception, run: Run, start: Array | None) -> None:
    """Say of what the objective at the start raised that it did, and of which client."""
    x = np.zeros(run.n) if start is None else start.reshape(-1, run.n).mean(axis=0)
    _note_client(error, run, range(run.m), x)
    _end(error, run, "at the start of the run")


def note_round(error: Exception, run: Run, tau: int, before: Array | None) -> None:
    """Say where it was that something was raised after the point `before` of round ``tau - 1``, if
    there was one, was recorded, and before that of round `tau` was."""
    state = run.state
    # The point is the server's first work in a round: as long as it stands, the clients are at
    # their local steps, or send what came of them.
    at_clients = before is not None and np.array_equal(before, state.x)
    if at_clients and not run.algorithm.keeps_models:
        _note_local(error, run, tau - 1)
    else:
        first = state.selected[: state.n_selected[0]].tolist()
        _note_client(error, run, dict.fromkeys([*first, *range(run.m)]), state.x.copy())
    _end(error, run, f"in round {tau - 1 if at_clients else tau}")


def _end(error: Exception, run: Run, when: str) -> None:
    name_clients(error, getattr(run.problem.data, "client_names", None))
    error.add_note(when)


def _note_client(error: Exception, run: Run, clients: Iterable[int], x: Array) -> None:
    """Ask the clients one by one for all that there is to ask at a point."""
    problem = run.problem
    if not _is_open(error) or not isinstance(problem, Problem):  # whose rows may be elsewhere
        return
    for i in clients:
        try:
            with of_client(i), np.errstate(all="ignore"):
                if problem.has_kernels:
                    problem.client_gradients([i], x)
                problem.value(i, x), problem.gradient(i, x)
                if run.algorithm.keeps_models:
                    problem.hessian(i, x)
        except Exception as again:
            if _take(error, again):
                return


def _note_local(error: Exception, run: Run, tau: int) -> None:
    """Do all up to the clients' work of a round again, and that in NumPy."""
    if not _is_open(error) or not isinstance(run.problem, Problem) or not run.stages.spoils:
        return
    try:
        run.begin_again()
        run.rounds(0, tau + 1)
        reference = Reference(run.algorithm, run.problem, run.randomness, run.stages.plan)
        reference.go_on(run.state, tau)
    except Exception as again:
        _take(error, again)


def _is_open(error: Exception) -> bool:
    return not (is_known(error) or isinstance(error, MemoryError))  # which more work does not help


def _take(error: Exception, again: Exception) -> bool:
    """Note on an error whose it is as another one says, if that is of its kind."""
    same = type(again) is type(error) and is_known(again)
    if same and again is not error:  # which may be one object, that has the note
        error.add_note(again.__notes__[0])
    return same
