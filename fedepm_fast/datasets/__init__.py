"""Data that ship with the package."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._validation import MAX_SEED, check_int
from ..data import FederatedData, column_norms, divide_columns
from ..data.partition import Partitioner, RandomCuts

if TYPE_CHECKING:
    from ..kernels.losses import NarrowTable

ADULT = Path(__file__).with_name("adult.npz")


class Table(NamedTuple):
    """A table of rows and labels."""

    features: NDArray[np.float64]
    """Shape (d, n)."""
    labels: NDArray[np.float64]
    """0 or 1, shape (d,)."""
    feature_names: tuple[str, ...]
    categories: dict[str, list[str]]
    """Names of the values of each categorical column, by index."""


def load_adult(*, scaled: bool = True) -> Table:
    """The Adult table of the paper: 45,222 rows, 14 attributes, label 1 for above 50K.

    Parameters
    ----------
    scaled : bool
        Divide every column by its Euclidean norm, as the paper does.

    Returns
    -------
    Table
        Source and licence: UCI Machine Learning Repository, Becker and Kohavi 1996, CC BY 4.0.

    Raises
    ------
    FileNotFoundError, ValueError
        If the packaged file is missing or damaged.
    """
    if not ADULT.exists():
        raise FileNotFoundError(f"the packaged data are missing: {ADULT}; reinstall the package")
    try:
        with open(ADULT, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        categories = json.loads(str(arrays.pop("categories")))
        packed = arrays.pop("label")
        features = np.stack([column.astype(np.float64) for column in arrays.values()], axis=1)
        labels = np.unpackbits(packed, count=len(features)).astype(np.float64)
    except Exception as error:  # a dozen kinds, from the zip's, zlib's, NumPy's and JSON's readers
        raise ValueError(f"{ADULT} is damaged ({error}); reinstall the package") from None
    if scaled:
        _to_unit_norm(features)
    return Table(features, labels, tuple(arrays), categories)


def adult(clients: int = 100, seed: int = 0, partition: Partitioner | None = None) -> FederatedData:
    """Adult, scaled and split into clients.

    Parameters
    ----------
    clients : int
        Number of clients; the split is the paper's random cuts.
    seed : int
        Of the split.
    partition : Partitioner, optional
        Another way to split; `clients` is not used then.

    Returns
    -------
    FederatedData

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    FileNotFoundError
        As `load_adult`.
    """
    partition = RandomCuts(check_int("clients", clients, low=1)) if partition is None else partition
    table = _scaled_adult()
    note = {"source": "Adult", "scale": "unit-norm", "task": "classification"}
    return FederatedData._of_table(
        table.features,
        table.labels,
        partition,
        check_int("seed", seed, high=MAX_SEED),
        table.feature_names,
        note,
        _narrow_adult,
    )


@functools.cache
def _narrow_adult() -> NarrowTable:
    """The table of `adult` for the kernels: its columns are codes and counts, scaled."""
    from ..kernels import losses

    counts = unscaled_adult().features
    table = losses.narrow_table(counts, 1 / column_norms(counts))
    assert table is not None
    return table


@functools.cache
def unscaled_adult() -> Table:
    """``load_adult(scaled=False)``, read once and read-only."""
    return _read_only(load_adult(scaled=False))


@functools.cache
def _scaled_adult() -> Table:
    """The table of `adult`, once and read-only."""
    counts = unscaled_adult()
    features = counts.features.copy()
    _to_unit_norm(features)
    return _read_only(counts._replace(features=features))


def _to_unit_norm(features: NDArray[np.float64]) -> None:
    """Divide every column by its norm, in place."""
    divide_columns(features, column_norms(features))


def _read_only(table: Table) -> Table:
    table.features.setflags(write=False)
    table.labels.setflags(write=False)
    return table
