"""Tables of runs: one row a run, its parameters and its measures; and summaries of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from .._common.measures import DRAWN
from .._common.parameters import parameters as of_class
from .._common.validation import check_choice
from ..algorithms import ALGORITHMS

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[np.float64]
Histories = Mapping[Any, Mapping[str, Array]]
"""Per-round arrays of each run, by its ``run_id``."""
Interval = Literal["quartiles", "bootstrap"]

#: Parameters that a table may have beside those of the algorithms, and how they are called on an
#: axis; the others are called as their fields say.
OF_DATA: dict[str, str] = {
    "algorithm": "algorithm",
    "clients": "clients $m$",
    "data": "data",
    "partition": "partition",
    "concentration": "concentration",
    "objective": "objective",
    "beta": r"regulariser $\beta$",
    "regularizer": "regularizer",
    "delta": "delta",
    "stopping": "stopping",
    "max_rounds": "max rounds",
}
#: Pseudo-parameter: the measures of a history, round by round.
ROUND = "round"


def parameters() -> dict[str, str]:
    """Every parameter that runs may differ in, seed and trial aside, and its label."""
    found = dict(OF_DATA)
    for cls in ALGORITHMS.values():
        for name, parameter in of_class(cls).items():
            found.setdefault(name, parameter.label)
    return found


def as_table(table: Any) -> DataFrame:
    """`table` as a DataFrame with at least one row; anything with ``to_pandas()`` is one.

    Raises
    ------
    TypeError, ValueError
        If it is not a table, or is empty.
    """
    pandas = require("pandas", "tables", "a table of runs")
    if not isinstance(table, pandas.DataFrame) and hasattr(table, "to_pandas"):
        table = table.to_pandas()
    if not isinstance(table, pandas.DataFrame):
        raise TypeError(
            "table must be a pandas DataFrame or have a method to_pandas, "
            f"got {type(table).__name__}"
        )
    if table.index.name is not None and table.index.name not in table:
        table = table.reset_index()
    if table.empty:
        raise ValueError("table must have at least one run")
    return table


def check_column(name: str, column: Any, table: DataFrame) -> str:
    """Return `column` if the table has it."""
    return check_choice(name, column, [str(c) for c in table.columns])


def check_measure(name: str, column: Any, table: DataFrame) -> str:
    """Return `column` if the table has it, and numbers in it."""
    numeric = table.select_dtypes(["number"]).columns
    check_choice(name, column, [c for c in numeric if c in DRAWN or c == column])
    if not np.isfinite(table[column]).any():
        raise ValueError(f"{name} must have values, {column!r} has none in any of these runs")
    return str(column)


def check_unmixed(table: DataFrame, keys: Sequence[str]) -> None:
    """Refuse a table whose runs differ, within groups of equal `keys`, in another parameter.

    A median over them would mix what should be told apart.
    """
    others = [p for p in parameters() if p in table and p not in keys]
    if not others:
        return
    kinds = table.groupby(list(keys), dropna=False)[others].nunique(dropna=False).max()
    mixed = [p for p in others if kinds[p] > 1]
    if mixed:
        some = table[mixed[0]].drop_duplicates().tolist()
        shown = ", ".join(map(str, some[:4])) + (", ..." if len(some) > 4 else "")
        raise ValueError(
            f"the runs also differ in {', '.join(mixed)} ({mixed[0]}: {shown}), which would be "
            f"mixed: select the rows of one, or give it as by, against or facet"
        )


def _quartiles(values: Array) -> Array:
    return np.quantile(values, [0.25, 0.5, 0.75], axis=0)


def _bootstrap(values: Array, resamples: int = 1000) -> Array:
    # A fixed seed: the same runs give the same figure.
    picks = np.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    medians = np.stack([np.median(column[picks], axis=1) for column in values.T], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], axis=0)
    return np.stack([low, np.median(values, axis=0), high])


#: Functions of values (runs, points): lower end, median, upper end, shape (3, points).
INTERVALS = {"quartiles": _quartiles, "bootstrap": _bootstrap}


def summarize(
    table: DataFrame,
    keys: Sequence[str],
    measures: Sequence[str],
    interval: Interval = "quartiles",
) -> DataFrame:
    """Median, interval and mean of measures over the runs with equal `keys`.

    Returns
    -------
    pandas.DataFrame
        Columns: the keys, ``measure``, ``runs``, ``lower``, ``median``, ``upper``, ``mean``. Runs
        in which a measure does not exist are not counted.
    """
    pandas = require("pandas", "tables", "a table of runs")
    rows = []
    for key, group in table.groupby(list(keys), sort=True, dropna=False):
        for measure in measures:
            values = group[measure].to_numpy(dtype=np.float64)
            values = values[np.isfinite(values)]
            if len(values):
                low, median, high = INTERVALS[interval](values[:, None])[:, 0]
                rows.append((*key, measure, len(values), low, median, high, values.mean()))
    columns = [*keys, "measure", "runs", "lower", "median", "upper", "mean"]
    return pandas.DataFrame(rows, columns=columns)


def summarize_rounds(
    table: DataFrame,
    histories: Histories,
    keys: Sequence[str],
    measure: str,
    interval: Interval = "quartiles",
) -> DataFrame:
    """Median and interval of a measure, round by round, over the runs with equal `keys`.

    A run that has stopped keeps its last value. Rounds are listed up to the median of the
    runs' last ones, from the first in which every run has a value.

    Returns
    -------
    pandas.DataFrame
        Columns: the keys, ``measure``, ``round``, ``runs``, ``lower``, ``median``, ``upper``.
    """
    pandas = require("pandas", "tables", "a table of runs")
    parts = []
    for key, group in table.groupby(list(keys), sort=True, dropna=False):
        series = [of_round(histories[row.run_id], measure, row.clients) for row in rows_of(group)]
        length = int(np.median([len(s) for s in series]))
        values = np.stack(
            [np.pad(s, (0, max(0, length - len(s))), "edge")[:length] for s in series]
        )
        rounds = np.flatnonzero(np.isfinite(values).all(axis=0))
        if not len(rounds):
            raise ValueError(f"measure must have values, {measure!r} has none in these histories")
        low, median, high = INTERVALS[interval](values[:, rounds])
        part = {"measure": measure, "round": rounds, "runs": len(series)}
        part |= {"lower": low, "median": median, "upper": high}
        parts.append(pandas.DataFrame({**dict(zip(keys, key, strict=True)), **part}))
    return pandas.concat(parts, ignore_index=True)


def rows_of(group: DataFrame) -> Any:
    """The rows of a table as named tuples."""
    return group.itertuples(index=False)


def of_round(history: Mapping[str, Array], measure: str, clients: int) -> Array:
    """A measure round by round."""
    if measure == "mean_objective":
        return history["objective"] / clients
    return np.asarray(history[measure], dtype=np.float64)
