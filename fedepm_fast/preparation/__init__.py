"""From tables to numbers, learned from sums that clients send: never from their rows.

>>> prep = Preparation()
>>> summaries = [prep.summarize(table, client=name) for name, table in tables.items()]
>>> prepared = prep.learn(summaries)
>>> X = prepared.transform(table)
"""

from __future__ import annotations

from ._choices import Preparation
from ._disclosure import DisclosureError, Thresholds
from ._files import read_table
from ._moments import SecondMoments
from ._prepared import Prepared
from ._rules import ColumnRule, Feature
from ._sources import as_table
from ._summary import ColumnSummary, TableSummary
from ._table import INTERCEPT, Table
from ._transform import PreparationWarning

__all__ = [
    "INTERCEPT",
    "ColumnRule",
    "ColumnSummary",
    "DisclosureError",
    "Feature",
    "Preparation",
    "PreparationWarning",
    "Prepared",
    "SecondMoments",
    "Table",
    "TableSummary",
    "Thresholds",
    "as_table",
    "read_table",
]

for _public in [value for name, value in globals().items() if name in __all__]:
    if not isinstance(_public, str):
        _public.__module__ = __name__  # where documentation and pickles name them
