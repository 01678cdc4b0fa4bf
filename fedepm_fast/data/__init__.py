"""Federated data: rows held client by client."""

from __future__ import annotations

from ._federated import FederatedData
from ._labels import TASKS, class_labels
from ._scaling import column_norms, divide_columns

__all__ = ["TASKS", "FederatedData", "class_labels", "column_norms", "divide_columns"]

FederatedData.__module__ = __name__  # where documentation and pickles name it
