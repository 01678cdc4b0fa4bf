"""The runs of the paper's experiments, and the optimum of every split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._extras import require
from ._paper_experiments import ALGORITHM_NAMES, Cell, as_parameters
from ._tables import Histories

if TYPE_CHECKING:
    from pandas import DataFrame

    from .data import FederatedData

#: Called with what is being done, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


def _compute(
    cells: Sequence[Cell],
    trials: int,
    seed: int,
    jobs: int,
    store: Path | None,
    progress: Progress | None,
) -> tuple[DataFrame, Histories]:
    """One row for every run, and the histories by its ``run_id``.

    Trial t has its own split, selections and noise, which the algorithms, and the cells with
    equally many clients, have in common.
    """
    import warnings

    from .algorithms import ALGORITHMS
    from .result import DivergenceWarning
    from .runner import run

    pandas = require("pandas", "tables", "fedepm paper")
    rows: list[dict[str, Any]] = []
    histories: dict[int, dict[str, Any]] = {}
    total = len(cells) * trials * len(ALGORITHM_NAMES)
    for cell, trial, name in product(cells, range(trials), ALGORITHM_NAMES):
        settings: dict[str, Any] = {**as_parameters(cell)}
        del settings["clients"]
        data = _split(cell.clients, seed, trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)
            result = run(ALGORITHMS[name](**settings), data, seed=seed, trial=trial)
        run_id = len(rows)
        rows.append(
            {"run_id": run_id, **as_parameters(cell), "seed": seed, "trial": trial}
            | {"engine": result.engine}
            | {k: v for k, v in result.summary().items() if k != "message"}
            | {"reasons": "+".join(result.reasons)}
        )
        histories[run_id] = {k: v for k, v in result.history.items() if k != "x"}
        if progress is not None:
            progress("runs", len(rows), total)
    return pandas.DataFrame(rows), histories


def _split(clients: int, seed: int, trial: int) -> FederatedData:
    from .datasets import adult

    return adult(clients=clients, seed=seed + trial)


#: What names a split.
SPLIT = ["clients", "seed", "trial"]


def optima(table: DataFrame, jobs: int, progress: Progress | None) -> DataFrame:
    """f*/m of every split in a table of runs.

    Returns
    -------
    pandas.DataFrame
        Columns ``clients``, ``seed``, ``trial``, ``optimum`` and ``gradient_norm``, the norm of
        the gradient of f/m there.
    """
    splits = table[SPLIT].drop_duplicates().reset_index(drop=True)
    found = []
    for optimum in _each(_optimum, [tuple(map(int, row)) for row in splits.to_numpy()], jobs):
        found.append(optimum)
        if progress is not None:
            progress("optima", len(found), len(splits))
    splits[["optimum", "gradient_norm"]] = found
    return splits


def _each(function: Any, arguments: Sequence[Any], jobs: int) -> Any:
    """``function(*a)`` of every a, in order; in `jobs` processes where joblib is installed."""
    if min(jobs, len(arguments)) == 1 or find_spec("joblib") is None:
        return (function(*a) for a in arguments)
    import joblib

    # Threads of BLAS in every process would slow each other down tenfold.
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        return joblib.Parallel(return_as="generator")(
            joblib.delayed(function)(*a) for a in arguments
        )


def _optimum(clients: int, seed: int, trial: int) -> tuple[float, float]:
    from .algorithms import FedEPM
    from .runner import make_problem

    found = make_problem(FedEPM(), _split(clients, seed, trial)).optimum(method="newton")
    return found.value / clients, found.gradient_norm / clients
