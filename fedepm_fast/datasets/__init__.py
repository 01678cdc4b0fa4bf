"""Data that ship with the package, and a user's own, by name.

A built-in dataset is one file of this package, named after it: a `Dataset` with its rows, its task
and its licence. ``DATASETS`` has them all.
"""

from __future__ import annotations

from .._common.validation import check_choice
from ..data import DATASETS, Dataset, FederatedData
from ..data.partition import Partitioner
from .adult import ADULT, Adult, Table, adult, load_adult

__all__ = ["ADULT", "DATASETS", "Dataset", "Table", "adult", "federated", "load_adult"]

for _public in (Table, adult, load_adult):
    _public.__module__ = __name__  # where documentation and pickles name it
_narrow_adult = Adult._narrow  # the name in pickles of version 0.1


def federated(
    name: str, clients: int = 100, seed: int = 0, partition: Partitioner | None = None
) -> FederatedData:
    """A dataset, scaled and split into clients.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    clients, seed, partition
        As in `adult`.

    Returns
    -------
    FederatedData

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    FileNotFoundError, ImportError
        If the file or the library that has the rows is missing.
    """
    return DATASETS[check_choice("name", name, DATASETS)].federated(clients, seed, partition)
