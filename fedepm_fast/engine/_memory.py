"""Memory of runs, which a thread keeps for its next ones of the same shapes.

A run takes what it finds and gives it back when it has ended, so that a run within another, of a
user's hook say, has its own.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ..kernels import _engine_state as arrays

#: Shapes of which a thread keeps memory.
_SHAPES = 8
_kept = threading.local()


class Memory(NamedTuple):
    """Of a run, without contents."""

    state: arrays.State
    history: arrays.History
    """Of one piece, which is copied from here; of large runs none, whose pieces have their own."""


def take(
    m: int, n: int, kept: int, shared: int, rounds: int, work_size: int, workspace: Any
) -> Memory:
    """Memory for m clients and n coordinates, and pieces of so many rounds: that of an earlier run
    of this thread, if there is some.

    `kept`, `shared` and `workspace`, which makes its work of `work_size`, are as of `new_state`.
    """
    rounds = rounds if rounds * n <= arrays.KEPT else 0
    shapes = (kept, m, n), (shared, n), (work_size,), (rounds,)
    found: Memory | None = _of_thread().pop(shapes, None)
    if found is None:
        state = arrays.new_state(m, n, kept=kept, shared=shared, work=workspace())
        found = Memory(state, arrays.new_history(rounds, n))
    return found


def is_kept(state: arrays.State) -> bool:
    """Whether it is given back, as that of small runs is, whose results must be copied before."""
    return state.W.size <= arrays.KEPT


def give_back(memory: Memory) -> None:
    """Leave the memory of a run to the next one, which may begin at once: in a signal's handler."""
    state, history = memory
    if not is_kept(state):
        return
    shapes = state.kept.shape, state.shared.shape, state.work.shape, history.objective.shape
    held = _of_thread()
    held[shapes] = memory
    if len(held) > _SHAPES:
        del held[next(iter(held))]


def _of_thread() -> dict[Any, Memory]:
    return _kept.__dict__.setdefault("memory", {})  # type: ignore[no-any-return]
