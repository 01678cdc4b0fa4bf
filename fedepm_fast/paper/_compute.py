"""The runs of the paper's experiments, and the optimum of every split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plots._tables import Histories
from ._experiments import Cell

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..data import FederatedData

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
    from ..sweeps import Sweep, sweep
    from ..sweeps._spec import Reader, read_dict

    read = Reader()  # a source for all cells with equally many clients
    of_cells = [read_dict(cell.specification, read)[0] for cell in cells]
    runs = Sweep.from_cells(chain(*of_cells), trials=trials, seed=seed)
    tell = (lambda done, total, _: progress("runs", done, total)) if progress else False
    result = sweep(runs, store=store, jobs=jobs, progress=tell)
    for run_id, message in result.failed.items():
        raise RuntimeError(
            f"{len(result.failed)} runs failed, the first ({run_id[:12]}): {message}"
        )
    return result.to_pandas().drop(columns="error"), result.histories()


def _split(clients: int, seed: int, trial: int) -> FederatedData:
    from ..datasets import adult
    from ..randomness import split_seed

    return adult(clients=clients, seed=split_seed(seed, trial))


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
    from ..algorithms import FedEPM
    from ..runner import make_problem

    found = make_problem(FedEPM(), _split(clients, seed, trial)).optimum(method="newton")
    return found.value / clients, found.gradient_norm / clients
