"""Runs of one table, dealt anew for each trial, in memory of their own.

A FedEPM run on Adult takes two milliseconds of compiled code, and it took as much again to make
every array, description and result around it anew. Here a thread makes them once for all trials of
a cell; and it makes the results of a block of runs after the last of them, for code and objects
that a run has driven from the caches take several times as long. The compiled code is that of
`run`, called in the same order with the same numbers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import numpy as np

from ..algorithms import Algorithm
from ..data.partition import EqualParts, RandomCuts, Shuffled
from ..data.sources import Partitioned
from ..engine import Outcome, Repeatable
from ..objectives import Problem
from ..randomness import SHUFFLE, CounterRandomness, split_seed
from ..stopping import BUILT_IN
from ._cells import Cell

#: Rows, columns, and numbers of the clients' parameters, up to which a thread has such memory.
_ROWS, _COLUMNS, _NUMBERS = 1 << 20, 128, 1 << 16

_ZERO = np.uint64(0)


class Trials:
    """What does the runs of a sweep in one thread, for the cells of which it can."""

    def __init__(self) -> None:
        self._dealt: dict[Any, Dealt] = {}
        self._of_cell: dict[int, tuple[Cell, Repeatable, Dealt] | None] = {}

    def draw(self, cell: Cell, seed: int, trial: int) -> None:
        """Draw how rows will be dealt: for many runs at once that is quicker than between them."""
        found = self._of_cell.get(id(cell))
        if found is not None and found[2].trial != (seed, trial):
            with suppress(Exception):  # which comes again
                found[2].draw(seed, trial)

    def run(self, cell: Cell, seed: int, trial: int) -> Outcome | None:
        """The outcome of a run; None where it is left to `run` itself."""
        if id(cell) not in self._of_cell:
            self._of_cell[id(cell)] = None
            with suppress(Exception):  # which `run` raises again, for every run that it is so of
                self._of_cell[id(cell)] = self._made(cell) if _can(cell) else None
        found = self._of_cell[id(cell)]
        if found is None:
            return None
        _, repeatable, dealt = found
        try:
            dealt.deal(seed, trial)
            return repeatable(CounterRandomness(seed, trial))
        except Exception:  # which `run` raises again, or a tie, which it breaks
            return None

    def _made(self, cell: Cell) -> tuple[Cell, Repeatable, Dealt]:
        source, objective = cast(Partitioned, cell.source), cell.objective
        key = id(source), repr(objective)
        if key not in self._dealt:
            self._dealt[key] = Dealt(source, objective)
        dealt, rule = self._dealt[key], cast(Any, cell.stopping)
        problem = Problem(dealt.data, objective)
        return (
            cell,
            Repeatable(cell.algorithm, problem, rule, cell.max_rounds, cell.max_iterations),
            dealt,
        )


def _can(cell: Cell) -> bool:
    """Whether a run depends on its split by the rows and by the clients' sizes alone, and all of it
    is small."""
    from ..kernels._jit import JIT_DISABLED

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
        and held.n_features <= _COLUMNS
        and held.n_features * source.n_clients <= _NUMBERS
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
        #: The one whose rows are dealt.
        self.trial: tuple[int, int] | None = None
        self._drawn: dict[tuple[int, int], tuple[Any, Any]] = {}
        d = held.n_samples
        self._order, self._words = np.empty(d, np.int64), np.empty(d, np.uint64)
        data = source.split(0)
        first = cast(Any, data.packed(weights=objective.weights, **objective.packing))
        table = held.features
        if isinstance(first, NarrowRows):
            table = held._narrow() if held._narrow else narrow_table(table)
        self._pack = Repacking(first, table, held.labels)
        #: Of the clients' sizes and of packed rows; of no others, which runs do not ask for.
        self.data = data.in_place(self._pack.rows)

    def draw(self, seed: int, trial: int) -> tuple[Any, Any]:
        """The key of a trial's shuffle, and the clients' sizes."""
        found = self._drawn.get((seed, trial))
        if found is None:
            rng, d = np.random.default_rng(split_seed(seed, trial)), len(self._order)
            found = self._partition.key(d, rng), self._partition.sizes(d, rng)
            self._drawn[seed, trial] = found
        return found

    def deal(self, seed: int, trial: int) -> None:
        """Have the rows of a trial dealt."""
        if self.trial == (seed, trial):
            return
        from ..kernels.sampling import order_into

        self.trial = None
        key, sizes = self.draw(seed, trial)
        del self._drawn[seed, trial]
        order_into(key[0], key[1], np.uint64(SHUFFLE), _ZERO, _ZERO, self._order, self._words)
        self._pack(self._order, sizes)
        self.trial = seed, trial
