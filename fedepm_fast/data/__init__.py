"""Federated data: rows held client by client."""

from __future__ import annotations

from ._federated import FederatedData
from ._labels import TASKS, class_labels
from ._named import DATASETS, Dataset
from ._scaling import column_norms, divide_columns
from ._standardised import standardised
from .partition import PARTITIONERS

__all__ = [
    "DATASETS",
    "PARTITIONERS",
    "TASKS",
    "Dataset",
    "FederatedData",
    "class_labels",
    "column_norms",
    "divide_columns",
    "standardised",
]

for _public in (FederatedData, Dataset):
    _public.__module__ = __name__  # where documentation and pickles name them
