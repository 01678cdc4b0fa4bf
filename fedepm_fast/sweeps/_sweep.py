"""What a sweep consists of: runs, over grids of parameters and over trials."""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from .._common.grid import as_axis, check_count, grid, is_axis
from .._common.text import counted
from .._common.validation import MAX_SEED, check_int
from ..algorithms import Algorithm
from ..data import FederatedData
from ..data.partition import Partitioner
from ..data.sources import (
    Fixed,
    Partitioned,
    Source,
    Synthetic,
    from_options,
    names_shown,
    read_table,
    table_of,
)
from ..objectives import Objective, Problem, as_objective
from ..randomness import split_seed
from ..stopping import StoppingRule
from ._cells import Cell, Run
from ._spec import read_dict, read_toml


class Sweep(Sequence[Run]):
    """Runs to do: every combination of what is given, times the trials.

    Every argument may be a list. Each trial has its own shuffle, split, selection and noise;
    runs of different cells with the same data, seed and trial share their split, which makes
    comparisons paired. Runs that are the same, whatever they are called, are one, and there are
    at most a million. Sweeps can be added.

    Parameters
    ----------
    algorithms : Algorithm or list of them
        `grid` makes lists.
    data : str, path, FederatedData, Source, or list of them
        ``"adult"``, ``"synthetic"``, a file that `loaders.load` reads, or an object of
        `fedepm_fast.data.sources`. Federated data are taken as they are, in every trial.
    clients : int or list of int, optional
        100 by default.
    partition : str, Partitioner, or list of them, optional
        ``"random"`` (the default), ``"equal"``, ``"dirichlet"``, each with `clients`, or a
        partitioner.
    objective : str, Objective, or list of them
    trials : int or sequence of int
        How many, from 0, or which.
    seed : int or list of int
    stopping, rounds, max_rounds, max_iterations, engine
        As in `run`.

    Raises
    ------
    ValueError, TypeError, OSError
        Naming the argument.

    Examples
    --------
    >>> from fedepm_fast import FedEPM, SFedAvg, Sweep, grid
    >>> steps = [4, 12, 20]
    >>> algorithms = grid(FedEPM, local_steps=steps) + grid(SFedAvg, local_steps=steps)
    >>> len(Sweep(algorithms, clients=[50, 100], trials=100))
    1200
    """

    def __init__(
        self,
        algorithms: Algorithm | Sequence[Algorithm],
        data: Any = "adult",
        *,
        clients: int | Sequence[int] | None = None,
        partition: str | Partitioner | Sequence[str | Partitioner] | None = None,
        objective: str | Objective | Sequence[str | Objective] = "logistic",
        trials: int | Iterable[int] = 1,
        seed: int | Sequence[int] = 0,
        stopping: str | StoppingRule | Sequence[str | StoppingRule] | None = None,
        rounds: int | Sequence[int] | None = None,
        max_rounds: int | Sequence[int] = 500,
        max_iterations: int | Sequence[int | None] | None = None,
        engine: str | Sequence[str] | None = None,
    ) -> None:
        settings = {
            "stopping": stopping,
            "rounds": rounds,
            "max_rounds": max_rounds,
            "max_iterations": max_iterations,
            "engine": engine,
        }
        chosen = as_axis("algorithms", algorithms)
        names = list(settings)
        axes = [as_axis(name, value) for name, value in settings.items()]
        check_count("cells", len(chosen), *map(len, axes))
        cells = [
            Cell(algorithm, source, goal, **dict(zip(names, values, strict=True)))
            for goal in map(as_objective, as_axis("objective", objective))
            for source in _sources(data, clients, partition, goal)
            for algorithm in chosen
            for values in itertools.product(*axes)
        ]
        self._set(_runs(cells, seed, trials))

    def _set(self, runs: Iterable[Run]) -> None:
        self.runs = tuple({run.run_id: run for run in runs}.values())
        self.cells = tuple({id(run.cell): run.cell for run in self.runs}.values())
        self._fitting: set[tuple[int, str]] = set()  # sources, by id, and losses that `check` tried

    @classmethod
    def from_cells(
        cls, cells: Iterable[Cell], *, trials: int | Iterable[int] = 1, seed: Any = 0
    ) -> Sweep:
        """From cells, each with every seed and trial."""
        made = cls.__new__(cls)
        made._set(_runs(list(cells), seed, trials))
        return made

    @classmethod
    def from_toml(
        cls, path: str | os.PathLike[str], *, trials: int | Iterable[int] | None = None
    ) -> Sweep:
        """From a specification in TOML, see `from_dict`; `trials` overrides its own.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError, TypeError
            If it is not TOML, or a key is unknown or has a value that is not allowed, naming
            file, table and key.
        """

        def made(cells: list[Cell], own: Any, seed: Any) -> Sweep:
            return cls.from_cells(cells, trials=own if trials is None else trials, seed=seed)

        return read_toml(path, made)

    @classmethod
    def from_dict(cls, specification: Mapping[str, Any]) -> Sweep:
        """From a specification: the tables of the TOML file as mappings.

        ``data`` and ``algorithm`` are tables or lists of tables. Any value may be a list, which
        is an axis; ``zip`` joins axes, also of different tables, that move together. The other
        keys are ``trials``, ``seed``, ``objective``, ``beta``, ``regularizer`` and the settings
        of a run.
        """
        cells, trials, seed = read_dict(specification)
        return cls.from_cells(cells, trials=trials, seed=seed)

    def __add__(self, other: Sweep) -> Sweep:
        made = Sweep.__new__(Sweep)
        made._set([*self.runs, *other.runs])
        return made

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: Any) -> Any:
        return self.runs[index]

    def __repr__(self) -> str:
        return f"<Sweep of {counted(len(self.runs), 'run')} in {counted(len(self.cells), 'cell')}>"

    def check(self, done: Container[str] = ()) -> None:
        """Make the first split of every source, to find what does not fit before any work.

        Synthetic data, which any parameters fit, are not made, and nothing is made twice.

        Parameters
        ----------
        done : container of str
            Ids of runs whose sources need not be looked at.
        """
        for run in self.runs:
            source, objective = run.cell.source, run.cell.objective
            known = (id(source), objective.name)
            if run.run_id in done or known in self._fitting or isinstance(source, Synthetic):
                continue
            Problem(source.split(split_seed(run.seed, run.trial)), objective)
            self._fitting.add(known)


def _runs(cells: Sequence[Cell], seed: Any, trials: Any) -> list[Run]:
    # What is given twice counts once.
    cells = list({cell.run_id(0, 0): cell for cell in cells}.values())
    seeds = list({check_int("seed", s, high=MAX_SEED): 0 for s in as_axis("seed", seed)})
    numbers: Any = trials
    if not is_axis(trials):
        numbers = range(check_int("trials", trials, low=1))
    # Counted before anything is made of them.
    if isinstance(numbers, range):
        check_count("runs", len(cells), len(seeds), len(numbers))
    numbers = list({check_int("trials", t, high=MAX_SEED): 0 for t in as_axis("trials", numbers)})
    check_count("runs", len(cells), len(seeds), len(numbers))
    return [Run(c.run_id(s, t), c, s, t) for c in cells for s in seeds for t in numbers]


def _sources(data: Any, clients: Any, partition: Any, goal: Objective) -> list[Source]:
    found: list[Source] = []
    for one in as_axis("data", data):
        given = {"clients": clients, "partition": partition}
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(one, (Source, FederatedData)):
            for name in given:
                raise ValueError(f"{name} is for a dataset or a file, these data are split already")
            found.append(one if isinstance(one, Source) else Fixed(one))
        elif not isinstance(one, (str, os.PathLike)):
            raise TypeError(
                f"data must be {names_shown()}, a path, FederatedData or a source, "
                f"got {type(one).__name__}"
            )
        else:
            found += _named_sources(os.fspath(one), given, goal)
    return found


def _named_sources(source: str, given: dict[str, Any], goal: Objective) -> list[Source]:
    if source == "synthetic" and "partition" in given:
        raise ValueError("partition is for a table, synthetic data are made client by client")
    ways = as_axis("partition", given.pop("partition", None))
    made = [way for way in ways if isinstance(way, Partitioner)]
    named = [{} if way is None else {"partition": way} for way in ways if way not in made]
    if made and not named and "clients" in given:
        raise ValueError("clients is for partitions by name, a partitioner has its own")
    read = cache(read_table)
    found: list[Source] = []
    for way in made:
        found.append(Partitioned(table_of(source, loss=goal, read=read), way))
    for way, clients in itertools.product(named, grid(dict, **given)):
        options = {"source": source, **way, **clients}
        found.append(from_options(options, loss=goal, read=read))
    return found
