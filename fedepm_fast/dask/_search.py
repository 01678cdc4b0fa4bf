"""The search of ENS over blocks of clients, wherever they are: what is asked, and who asks."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import _boundary as boundary
from ..kernels.ens._blocks import _add_sums, _add_window
from ..kernels.ens._limits import LARGEST_C, c_matters, overflow_scale
from ..kernels.ens._search import EnsSearch, quiet

Array = NDArray[Any]

#: Answers that are added at a time.
FAN_IN = 8
#: So many numbers of a block are made float64 at a time.
_WIDEN = 1 << 20
_LEAST = float(np.finfo(np.float64).smallest_subnormal)
#: One search at a time has this process's threads.
_local = threading.Lock()


class Moments(NamedTuple):
    """What blocks are asked for first."""

    sums: Array
    squares: Array

    def __add__(self, other: Any) -> Moments:
        with np.errstate(over="ignore", invalid="ignore"):
            return Moments(self.sums + other.sums, self.squares + other.squares)

    @staticmethod
    def check_finite(block: Array, row: int, column: int) -> None:
        """Raise ValueError naming the first entry of all of z that is NaN or infinite."""
        finite = np.isfinite(block)
        if not finite.all():
            wrong = np.argwhere(~finite)
            i, j = wrong[0].tolist()
            boundary.raise_not_finite("z", block[i, j], (i + row, j + column), len(wrong), None)


class Window(NamedTuple):
    """What lies around a point of every coordinate: see `EnsSearch.update`."""

    above: Array
    below: Array
    next_above: Array

    def __add__(self, other: Any) -> Window:
        return Window(
            self.above + other.above,
            np.maximum(self.below, other.below),
            np.minimum(self.next_above, other.next_above),
        )


def _parts(block: Any, unit: float, weights: Any) -> Iterator[tuple[Array, Any]]:
    """The block's rows as float64 times `unit`, and their weights, a part at a time."""
    z = boundary.view("z", block)
    boundary.float_dtype("z", z.dtype)
    step = max(1, _WIDEN // max(1, z.shape[1]))
    if z.dtype == np.float64 and unit == 1.0:
        step = len(z)
    for i in range(0, len(z), step):
        part = np.ascontiguousarray(z[i : i + step], np.float64)
        yield part if unit == 1.0 else part * unit, None if weights is None else weights[i:][:step]


@quiet
def moments_of(block: Any, weights: Any, row: int, column: int, unit: float) -> Moments:
    """Sums of a block's rows and of their squares; ValueError if a number is not finite."""
    block = block() if isinstance(block, Maker) else block
    sums, lost, squares = np.zeros((3, np.shape(block)[1]))
    for part, own in _parts(block, unit, weights):
        _add_sums(part, own, sums, lost, squares)
    sums += lost
    if not np.isfinite(sums).all():
        Moments.check_finite(boundary.view("z", block), row, column)
    return Moments(sums, squares)


def window_of(block: Any, weights: Any, unit: float, point: Array) -> Window:
    """A block's part of the answer for `point`."""
    block = block() if isinstance(block, Maker) else block
    found = Window(np.zeros(len(point)), *np.full((2, len(point)), np.inf))
    np.negative(found.below, out=found.below)
    for part, own in _parts(block, unit, weights):
        _add_window(part, own, point, *found)
    return found


def add(*answers: Any) -> Any:
    """Answers of several blocks as that of one."""
    total = answers[0]
    for answer in answers[1:]:
        total = total + answer
    return total


class Columns:
    """Blocks of clients that have the same coordinates, not computed yet.

    Nothing that Dask looks into: a task is given it as it is.

    Parameters
    ----------
    z : dask.array.Array
        One column of blocks.
    start : int
        Its first coordinate.
    weights : ndarray of shape (m,) or None
    """

    def __init__(self, z: Any, start: int, weights: Any) -> None:
        self.start, self.m, self.weights = start, z.shape[0], weights
        keys = [key for row in z.__dask_keys__() for key in row]
        whole = z.__dask_graph__()
        self._graph = dict(z.__dask_optimize__(whole, keys))
        futures = _futures(dict(whole))
        makers = None if futures else _apart(self._graph, keys)
        if makers is not None:
            self._graph = {}
        # Dask leaves it to others to hold on to them.
        needed = [keys, *(getattr(task, "dependencies", futures) for task in self._graph.values())]
        names = futures.keys() & set(itertools.chain(*needed))
        self._graph |= {name: futures[name] for name in names}
        #: What gives each block that has some clients, its first row, and its clients' weights.
        self._blocks: list[tuple[Any, int, Any]] = []
        row = 0
        for k, height in enumerate(z.chunks[0]):
            if height:
                own = None if weights is None else weights[row : row + height]
                self._blocks.append((keys[k] if makers is None else makers[k], row, own))
            row += height

    def question(self, asked: Any, *arguments: Any, rows: bool = False) -> tuple[str, Any]:
        """The key of all blocks' answer, and a graph that has it.

        Answers are added by a tree, whose shape depends on the number of blocks alone.
        """
        name, graph = uuid.uuid4().hex, dict(self._graph)
        level = []
        for k, (block, row, own) in enumerate(self._blocks):
            level.append(f"{asked.__name__}-{name}-{k}")
            graph[level[-1]] = (asked, block, own, *((row,) if rows else ()), *arguments)
        while len(level) > 1:
            above = []
            for k in range(0, len(level), FAN_IN):
                above.append(f"add-{asked.__name__}-{name}-{len(level)}-{k}")
                graph[above[-1]] = (add, *level[k : k + FAN_IN])
            level = above
        return level[0], graph


class Maker:
    """Makes a block within the task that looks at it: no other one ever holds it."""

    def __init__(self, graph: dict[Any, Any], key: Any) -> None:
        self._graph, self._key = graph, key

    def __call__(self) -> Any:
        from dask.local import get_sync

        return get_sync(self._graph, self._key)


def _futures(graph: dict[Any, Any]) -> dict[Any, Any]:
    """What of a graph is in the memory of a cluster."""
    kind: Any = getattr(sys.modules.get("distributed"), "Future", ())
    return {name: task for name, task in graph.items() if isinstance(task, kind)}


def _apart(graph: dict[Any, Any], keys: list[Any]) -> list[Maker] | None:
    """What makes each block, unless some have tasks in common."""
    from dask.optimization import cull

    found: list[Maker] = []
    taken: set[Any] = set()
    for key in keys:
        needed, _ = cull(graph, [key])
        tasks = {
            name
            for name, task in needed.items()
            if isinstance(task, tuple) or callable(getattr(task, "func", None))
        }
        if tasks & taken:
            return None
        taken |= tasks
        found.append(Maker(dict(needed), key))
    return found


@quiet
def search(moments: Moments, columns: Columns, c: float, dtype: Any) -> Array:
    """ENS of the columns, whose sums are known, by asking their blocks."""
    p, m, unit = columns.weights, columns.m, 1.0
    (sums, squares), largest = moments, LARGEST_C[8]
    with _asking() as (ask, share):
        large = np.sqrt(squares.max(initial=0.0)) > largest * c_matters(m, p)
        if not np.isfinite(sums).all() or (c > largest and large):
            unit = overflow_scale(m)  # finite numbers whose sums are not
            sums, squares = ask(*columns.question(moments_of, columns.start, unit, rows=True))
        total, smallest = float(m), None
        if p is not None:  # which beside the largest may have become 0
            total, smallest = float(p.sum()), max(float(p.min()), _LEAST)
        one = EnsSearch(sums, total, c * unit, smallest=smallest, squares=squares)
        del moments, sums, squares
        while not one.done:
            # A cluster has one name for all that goes on there.
            point = f"ens-point-{uuid.uuid4().hex}"
            key, graph = columns.question(window_of, unit, point)
            graph[point] = share(one.point)
            try:
                one.update(*ask(key, graph))
            except ValueError as error:
                raise ValueError(f"z must have the same numbers each time: {error}") from None
    solution = one.solution
    return (solution if unit == 1.0 else solution / unit).astype(dtype, copy=False)


@contextlib.contextmanager
def _asking() -> Iterator[tuple[Callable[[str, Any], Any], Callable[[Array], Any]]]:
    """``answer = ask(key, graph)`` in this task, and ``share(point)``, a point for a graph.

    On a cluster its workers answer, and this task's thread is free for their work meanwhile.
    """
    import dask
    from dask.delayed import Delayed

    if _on_a_worker():
        from distributed import worker_client

        with worker_client() as client:
            yield (
                lambda key, graph: client.compute(Delayed(key, graph)).result(),
                # Once to the cluster, rather than in every task.
                lambda point: client.scatter(point, hash=False),
            )
        return
    itself: Any = lambda point: point  # noqa: E731
    if threading.current_thread() is threading.main_thread():
        yield lambda key, graph: Delayed(key, graph).compute(scheduler="synchronous"), itself
        return
    with _local:
        yield lambda key, graph: dask.compute(Delayed(key, graph), scheduler="threads")[0], itself


def _on_a_worker() -> bool:
    try:
        from distributed import get_worker
    except ImportError:
        return False
    try:
        get_worker()
    except ValueError:
        return False
    return True
