"""The runs of the paper's experiments, and the optimum of every split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    Trial t has the seed ``seed + t``, of its split and of its selections and noise, so the
    algorithms and the cells with equally many clients meet on the same splits.
    """
    import warnings

    from .algorithms import ALGORITHMS
    from .result import DivergenceWarning
    from .runner import run

    pandas = require("pandas", "tables", "fedepm paper")
    rows: list[dict[str, Any]] = []
    histories: dict[int, dict[str, Any]] = {}
    total = len(cells) * trials * len(ALGORITHM_NAMES)
    warnings.simplefilter("ignore", DivergenceWarning)
    for cell in cells:
        for trial in range(trials):
            data = _split(cell.clients, seed + trial)
            settings: dict[str, Any] = {**as_parameters(cell)}
            del settings["clients"]
            for name in ALGORITHM_NAMES:
                result = run(ALGORITHMS[name](**settings), data, seed=seed + trial)
                run_id = len(rows)
                kept = {k: v for k, v in result.summary().items() if k != "message"}
                rows.append(
                    {"run_id": run_id, **as_parameters(cell), "seed": seed + trial, "trial": 0}
                    | kept
                    | {"reasons": " ".join(result.reasons)}
                )
                histories[run_id] = {k: v for k, v in result.history.items() if k != "x"}
                if progress is not None:
                    progress("runs", len(rows), total)
    return pandas.DataFrame(rows), histories


def _split(clients: int, seed: int) -> FederatedData:
    from .datasets import adult

    return adult(clients=clients, seed=seed)


def optima(table: DataFrame, jobs: int, progress: Progress | None) -> DataFrame:
    """f*/m of every split in a table of runs.

    Returns
    -------
    pandas.DataFrame
        Columns ``clients``, ``seed``, ``optimum`` and ``gradient_norm``, the norm of the gradient
        of f/m there.
    """
    splits = table[["clients", "seed"]].drop_duplicates().reset_index(drop=True)
    pairs = [(int(clients), int(seed)) for clients, seed in splits.itertuples(index=False)]
    found = []
    for optimum in _each(_optimum, pairs, jobs):
        found.append(optimum)
        if progress is not None:
            progress("optima", len(found), len(pairs))
    splits[["optimum", "gradient_norm"]] = found
    return splits


def _each(function: Any, arguments: Sequence[Any], jobs: int) -> Any:
    """``function(*a)`` of every a, in order."""
    if min(jobs, len(arguments)) == 1:
        return (function(*a) for a in arguments)
    joblib = require("joblib", "sweeps", "jobs above 1")
    # A BLAS with threads of its own in every process would take ten times as long.
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        return joblib.Parallel(return_as="generator")(
            joblib.delayed(function)(*a) for a in arguments
        )


def _optimum(clients: int, seed: int) -> tuple[float, float]:
    from .algorithms import FedEPM
    from .runner import make_problem

    found = make_problem(FedEPM(), _split(clients, seed)).optimum(method="newton")
    return found.value / clients, found.gradient_norm / clients
