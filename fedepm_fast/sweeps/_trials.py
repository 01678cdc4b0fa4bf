"""Runs of one table, dealt anew for each trial, in memory of their own.

A FedEPM run on Adult takes two milliseconds of compiled code, and it took as much again to make
every array, description and result around it anew. Here a thread makes them once for all trials of
a cell; it draws the splits of a block of runs before the first of them and makes their results
after the last, for code and objects that a run has driven from the caches take several times as
long; and a run is one call of compiled code, which deals the rows and does what `run` does, in the
same order with the same numbers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import numpy as np

from ..algorithms import Algorithm
from ..data.partition import EqualParts, RandomCuts, Shuffled
from ..data.sources import Partitioned
from ..engine import Ended, Outcome, Repeatable
from ..objectives import Problem
from ..randomness import SHUFFLE, split_seed
from ..stopping import BUILT_IN
from ._cells import Cell

#: Rows, and numbers of the clients' parameters and of the points of a run, up to which a thread has
#: such memory.
_ROWS, _NUMBERS = 1 << 20, 1 << 16
#: Runs of a cell in a row that are left to `run` before all others are: a table with a row of
#: zeros has a tie in each, and they would be done twice.
_LEFT = 5


class Trials:
    """What does the runs of a sweep in one thread, for the cells of which it can."""

    def __init__(self) -> None:
        self._dealt: dict[Any, Dealt] = {}
        self._of_cell: dict[int, tuple[Cell, Repeatable, Dealt] | None] = {}
        self._left: dict[int, int] = {}
        self._drawn: dict[tuple[int, int, int], Any] = {}
        self._memory: dict[Any, Any] = {}

    def draw(self, cell: Cell, seed: int, trial: int) -> None:
        """Draw how rows will be dealt: for many runs at once that is quicker than between them."""
        if self._of_cell.get(id(cell)) is not None and self._left[id(cell)] < _LEFT:
            with suppress(Exception):  # which comes again
                self._draw(cell, seed, trial)

    def run(self, cell: Cell, seed: int, trial: int) -> Ended | None:
        """A run that has ended; None where it is left to `run` itself."""
        if id(cell) not in self._of_cell:
            self._of_cell[id(cell)], self._left[id(cell)] = None, 0
            with suppress(Exception):  # which `run` raises again, for every run that it is so of
                self._of_cell[id(cell)] = self._made(cell) if _can(cell) else None
        found = self._of_cell[id(cell)]
        if found is None or self._left[id(cell)] >= _LEFT:
            self._drawn.pop((id(cell), seed, trial), None)
            return None
        self._left[id(cell)] += 1
        _, repeatable, dealt = found
        try:
            split, given = self._draw(cell, seed, trial)
            del self._drawn[id(cell), seed, trial]
            anew = dealt.trial != (seed, trial)
            if anew:
                dealt.prepare(split)
            ended = repeatable(seed, trial, given, anew)
            dealt.trial = seed, trial
            if ended is not None:
                self._left[id(cell)] = 0
            return ended
        except Exception:  # which `run` raises again
            return None

    def outcome(self, cell: Cell, ended: Ended) -> Outcome:
        """What came of a run: of the clients' parameters only the shape."""
        found = self._of_cell[id(cell)]
        assert found is not None
        return found[1].outcome(ended)

    def _draw(self, cell: Cell, seed: int, trial: int) -> Any:
        """Key and sizes of a trial's split, and what clients are given that hold so many rows."""
        key = id(cell), seed, trial
        if key not in self._drawn:
            _, repeatable, dealt = cast(Any, self._of_cell[id(cell)])
            split = dealt.drawn(seed, trial)
            self._drawn[key] = split, repeatable.given(split[1])
        return self._drawn[key]

    def _made(self, cell: Cell) -> tuple[Cell, Repeatable, Dealt]:
        source, objective = cast(Partitioned, cell.source), cell.objective
        key = id(source), repr(objective)
        if key not in self._dealt:
            self._dealt[key] = Dealt(source, objective)
        dealt, rule = self._dealt[key], cast(Any, cell.stopping)
        repeatable = Repeatable(
            cell.algorithm, Problem(dealt.data, objective), dealt.sizes, dealt.pack, rule,
            cell.max_rounds, cell.max_iterations, self._memory,
        )  # fmt: skip
        return cell, repeatable, dealt


def _can(cell: Cell) -> bool:
    """Whether a run depends on its split by the rows and by the clients' sizes alone, and all of it
    is small."""
    from ..kernels._jit import JIT_DISABLED
    from ..kernels.losses._packed import in_blocks

    source, a, objective = cell.source, cell.algorithm, cell.objective
    if JIT_DISABLED or cell.repeated is None or not isinstance(source, Partitioned):
        return False
    held = source.table.held
    return (
        type(source.partition) in (RandomCuts, EqualParts)
        and not held.is_sparse
        and held.features.dtype == np.float64
        and held.sample_weight is None
        and held.n_samples <= _ROWS
        and in_blocks(held.n_features, held._narrow is not None)
        and held.n_features * max(source.n_clients, cell.max_rounds + 1) <= _NUMBERS
        and held.is_binary
        and objective.labels == "binary"
        and objective.at_zero is not None
        and type(cell.stopping) in BUILT_IN
        and not (a.draws_batches or a.tells)
        and (type(a).told, type(a).agreed) == (Algorithm.told, Algorithm.agreed)
        and type(a).__module__.startswith(Algorithm.__module__.rpartition(".")[0])
    )


class Dealt:
    """The rows of a table as the last trial dealt them to clients, packed for one loss."""

    def __init__(self, source: Partitioned, objective: Any) -> None:
        from ..kernels.losses import NarrowRows, narrow_table
        from ..kernels.losses._repacking import Repacking

        held = source.table.held
        self._partition = cast(Shuffled, source.partition)
        self._rows = held.n_samples
        self._last: Any = None
        #: The one whose rows are dealt.
        self.trial: tuple[int, int] | None = None
        data = source.split(0)
        first = cast(Any, data.packed(weights=objective.weights, **objective.packing))
        table = held.features
        if isinstance(first, NarrowRows):
            table = held._narrow() if held._narrow else narrow_table(table)
        self.pack = Repacking(first, table, held.labels, SHUFFLE)
        #: Of clients of these sizes and of packed rows; of no others, which runs do not ask for.
        self.sizes = data.client_sizes.copy()
        self.data = data.in_place(self.pack.rows, self.sizes)

    def drawn(self, seed: int, trial: int) -> tuple[Any, Any]:
        """The key of a trial's shuffle, and the clients' sizes; of cells that share it the same."""
        if self._last is None or self._last[0] != (seed, trial):
            rng = np.random.default_rng(split_seed(seed, trial))
            found = self._partition.key(self._rows, rng), self._partition.sizes(self._rows, rng)
            self._last = (seed, trial), found
        return self._last[1]  # type: ignore[no-any-return]

    def prepare(self, split: tuple[Any, Any]) -> None:
        """Prepare for a run that deals the rows first, by key and sizes."""
        self.trial = None
        self.pack.key[:2], self.pack.sizes[:] = split
