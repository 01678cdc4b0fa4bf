"""Sweeps: many runs, over grids of parameters and over trials, resumable."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Any

from .._grid import as_axis, check_count, grid, is_axis
from .._progress import as_progress
from .._validation import MAX_SEED, check_int
from ..algorithms import Algorithm
from ..data import FederatedData
from ..data.partition import Partitioner
from ..data.sources import (
    Fixed,
    Partitioned,
    Source,
    Synthetic,
    from_options,
    read_adult,
    read_table,
)
from ..objectives import Objective, Problem, as_objective
from ..randomness import split_seed
from ..result import DivergenceWarning
from ..stopping import StoppingRule
from ..store import Store
from ..store._record import Array, Item
from ._backends import make_backend
from ._cells import Cell, Run
from ._drive import Driver
from ._plan import Plan

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Sweep", "SweepInterrupted", "SweepResult", "grid", "sweep"]


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a sweep; the message says how many runs are kept, and where."""


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
        from ._spec import read_toml

        return read_toml(path, trials)

    @classmethod
    def from_dict(cls, specification: Mapping[str, Any]) -> Sweep:
        """From a specification: the tables of the TOML file as mappings.

        ``data`` and ``algorithm`` are tables or lists of tables. Any value may be a list, which
        is an axis; ``zip`` joins axes, also of different tables, that move together. The other
        keys are ``trials``, ``seed``, ``objective``, ``beta``, ``regularizer`` and the settings
        of a run.
        """
        from ._spec import read_dict

        return read_dict(specification)

    def __add__(self, other: Sweep) -> Sweep:
        made = Sweep.__new__(Sweep)
        made._set([*self.runs, *other.runs])
        return made

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: Any) -> Any:
        return self.runs[index]

    def __repr__(self) -> str:
        return f"<Sweep of {len(self.runs)} runs in {len(self.cells)} cells>"

    def check(self) -> None:
        """Make the first split of every source, to find what does not fit before any work.

        Synthetic data, which any parameters fit, are not made.
        """
        _check_sources(self.runs)


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
                raise ValueError(f"{name} is for adult or a file, these data are split already")
            found.append(one if isinstance(one, Source) else Fixed(one))
        elif not isinstance(one, (str, os.PathLike)):
            raise TypeError(
                "data must be 'adult', 'synthetic', a path, FederatedData or a source, "
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
        table = read_adult() if source == "adult" else read(source, task=goal.task)
        found.append(Partitioned(table, way))
    for way, clients in itertools.product(named, grid(dict, **given)):
        options = {"source": source, **way, **clients}
        found.append(from_options(options, loss=goal, read=read))
    return found


def _check_sources(runs: Iterable[Run]) -> None:
    seen: set[tuple[int, str]] = set()
    for run in runs:
        source, objective = run.cell.source, run.cell.objective
        if isinstance(source, Synthetic) or (id(source), objective.name) in seen:
            continue
        seen.add((id(source), objective.name))
        Problem(source.split(split_seed(run.seed, run.trial)), objective)


class SweepResult(Sequence[str]):
    """The runs of a sweep: a sequence of their ids, and what a store holds of them.

    Parameters
    ----------
    runs : sequence of Run
        As of `Sweep.runs`.
    store : Store
    """

    def __init__(self, runs: Sequence[Run], store: Store) -> None:
        self.run_ids = tuple(run.run_id for run in runs)
        self.store = store

    def __len__(self) -> int:
        return len(self.run_ids)

    def __getitem__(self, index: Any) -> Any:
        return self.run_ids[index]

    def __repr__(self) -> str:
        failed = len(self.failed)
        return f"<SweepResult of {len(self)} runs{f', {failed} failed' * bool(failed)}>"

    def table(self) -> dict[str, list[Any]]:
        """The runs as columns, see `Store.table`, in the order of the sweep."""
        return self.store.table(ids=self.run_ids)

    def to_pandas(self) -> DataFrame:
        """The runs as a tidy table, one row each, in the order of the sweep.

        Columns: ``run_id``, ``algorithm``, every parameter of algorithms, data, objective and
        stopping (missing where an algorithm has it not), ``seed``, ``trial``,
        ``mean_objective``, ``rounds``, ``iterations``, ``total_time``, ``local_time``, ``snr``,
        ``accuracy``, ``grad_mean_sq``, ``diverged``, ``reasons``, ``error``, ``machine``,
        ``created``.
        """
        return self.store.to_pandas(ids=self.run_ids)

    def history(self, run_id: str) -> dict[str, Array]:
        """Per-round arrays of a run, see `Store.history`."""
        return self.store.history(run_id)

    def histories(self) -> dict[str, dict[str, Array]]:
        """Per-round arrays of every run, by run id; empty for a run that failed."""
        return self.store.histories(self.run_ids)

    @property
    def failed(self) -> dict[str, str]:
        """Messages of the runs that failed, by run id."""
        found = self.store.table({"failed": True}, ids=self.run_ids)
        return dict(zip(found["run_id"], found["error"], strict=True))


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
        Show progress if standard error is a terminal; or call ``progress(done, total, failed)``.
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
    opened = store if isinstance(store, Store) else Store(":memory:" if store is None else store)
    if opened.readonly:
        raise ValueError(f"store must be one to write to, {opened.path} was opened to read only")
    try:
        done = opened.done(run.run_id for run in spec.runs)
        missing = [run for run in spec.runs if run.run_id not in done]
        if missing:
            _check_sources(missing)
            cells = list({id(run.cell): run.cell for run in missing}.values())
            shown = as_progress(progress, len(spec) - len(missing), len(spec))
            most = None if jobs is None else min(jobs, len(missing))
            workers = make_backend(backend, cells, keep_x=keep_x, jobs=most, address=address)
            with closing(workers), shown, warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)
                plan = Plan(_items(missing, cells), workers.target, workers.jobs)
                Driver(plan, workers, opened, cells, shown.update, shown.others).drive()
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
