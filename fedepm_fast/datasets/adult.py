"""Adult, the census income table of the paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_arrays
from ..data import Dataset, FederatedData, column_norms, divide_columns
from ..data.partition import Partitioner

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


class Adult(Dataset):
    """45,222 rows of 14 attributes; label 1 for an income above 50K."""

    name = "adult"
    label = "Adult"
    origin = "UCI Machine Learning Repository, Becker and Kohavi 1996"
    licence = "CC BY 4.0"
    public_scaling = True
    whole_numbers = True

    @classmethod
    def load(cls) -> Table:
        return load_adult(scaled=False)


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
        arrays = read_arrays(ADULT)
        categories = json.loads(str(arrays.pop("categories")))
        packed = arrays.pop("label")
        features = np.stack([column.astype(np.float64) for column in arrays.values()], axis=1)
        labels = np.unpackbits(packed, count=len(features)).astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{ADULT} is damaged ({error}); reinstall the package") from None
    if scaled:
        divide_columns(features, column_norms(features))
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
    return Adult.federated(clients, seed, partition)
