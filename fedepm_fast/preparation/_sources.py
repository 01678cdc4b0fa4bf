"""Tables of whatever kind someone has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    column_names,
    refuse_masked,
)
from ._columns import Column
from ._files import read_table
from ._frames import column_of_series, columns_of_frame
from ._table import Table, column_of, columns_of_array, unique


def as_table(table: Any, names: Sequence[str] | None = None) -> Table:
    """A table of whatever kind.

    Parameters
    ----------
    table : Table, data frame, mapping, ndarray or path-like
        A frame of pandas, polars or Arrow (``pip install 'fedepm-fast[tables]'``), a dict of
        columns, an array of shape (d, p), a structured array, or the path of a file that
        `read_table` reads.
    names : sequence of str, optional
        Names of the columns of an array; ``x1``, ``x2``, ... by default.

    Returns
    -------
    Table

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If two columns have one name, or different lengths; or the array is not of two dimensions.
    """
    if names is not None and not isinstance(table, np.ndarray):
        raise ArgumentValueError("names", f"are for arrays, got them for {type(table).__name__}")
    if isinstance(table, Table):
        return table
    if isinstance(table, (str, os.PathLike)):
        return read_table(table)
    if isinstance(table, np.ndarray):
        refuse_masked("table", table)
        return Table(columns_of_array(table, names))
    if hasattr(table, "collect"):
        raise ArgumentTypeError(
            "table", f"must be in memory, got a {type(table).__name__}: collect() it first"
        )
    if column_names(table) is not None or hasattr(table, "column_names"):
        return Table(columns_of_frame(table))
    if isinstance(table, Mapping):
        told = unique(table)
        columns = zip(told, table.values(), strict=True)
        return Table({name: _column(name, cells) for name, cells in columns})
    raise ArgumentTypeError(
        "table",
        "must be a data frame, a dict of columns, a NumPy array or the path of a file, got "
        f"{type(table).__name__}",
    )


def _column(name: str, cells: Any) -> Column:
    """A column of a dict: a series of a frame's library, an array or a list."""
    found = column_of_series(name, cells)
    return column_of(name, cells) if found is None else found
