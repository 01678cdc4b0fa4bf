"""Frames of pandas, polars and Arrow, through narwhals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common.extras import require
from .._common.validation import ArgumentTypeError
from ._columns import CodedColumn, Column, NumberColumn, WordColumn
from ._table import refused, unique

_LIBRARIES = ("pandas", "polars", "pyarrow")


def columns_of_frame(frame: Any) -> dict[str, Column]:
    """The columns of a frame, by their names.

    Raises
    ------
    ImportError
        Without narwhals.
    TypeError
        If it is no frame that is in memory.
    ValueError
        If two columns have one name.
    """
    narwhals = require("narwhals", "tables", "reading data frames")
    names = unique(getattr(frame, "column_names", None) or frame.columns)
    try:
        held = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise ArgumentTypeError(
            "table",
            f"must be a frame of pandas, polars or Arrow in memory, got {type(frame).__name__}",
        ) from None
    return {
        name: _column(narwhals, name, series)
        for name, series in zip(names, held.iter_columns(), strict=True)
    }


def column_of_series(name: str, cells: Any) -> Column | None:
    """A series as the frames' columns are; None where it is none, or narwhals is not there."""
    if type(cells).__module__.partition(".")[0] not in _LIBRARIES:
        return None
    try:
        import narwhals

        return _column(narwhals, name, narwhals.from_native(cells, series_only=True))
    except (ImportError, TypeError):  # an array of theirs
        return None


def _column(narwhals: Any, name: str, series: Any) -> Column:
    dtype = series.dtype
    if isinstance(dtype, (narwhals.Categorical, narwhals.Enum)):
        return _categorical(name, series)
    if dtype.is_numeric():
        return NumberColumn(name, _numbers(narwhals, series))
    if isinstance(dtype, narwhals.Boolean):
        if series.null_count():
            return WordColumn(name, series.to_list())
        return NumberColumn(name, np.asarray(series.to_numpy(), dtype=bool))
    if isinstance(dtype, (narwhals.String, narwhals.Object)):
        return WordColumn(name, series.to_list())
    if series.null_count() == len(series):  # a column of nothing has no type
        return NumberColumn(name, np.full(len(series), np.nan))
    kept = np.asarray(series.to_native()) if isinstance(dtype, narwhals.Unknown) else None
    if kept is not None and kept.dtype.kind in "buif":  # sparse, or of an extension
        return NumberColumn(name, kept)
    told = getattr(series.to_native(), "dtype", dtype) if kept is not None else dtype
    return refused(name, len(series), str(told))


def _numbers(narwhals: Any, series: Any) -> Any:
    """Numbers, NaN where they are missing; without a copy where there is nothing to do."""
    if series.dtype.is_float() and series.dtype != narwhals.Float64:
        series = series.cast(narwhals.Float64)
    if series.dtype.is_integer() and not series.null_count():
        return series.to_numpy()
    return np.asarray(series.cast(narwhals.Float64).to_numpy(), dtype=np.float64)


def _categorical(name: str, series: Any) -> Column:
    native = series.to_native()
    if series.implementation.is_pandas():
        kept = native.array
        if hasattr(kept, "codes"):
            return CodedColumn(name, kept.codes, list(kept.categories), bool(kept.ordered))
    cells = series.to_list()
    if type(series.dtype).__name__ != "Enum":
        return WordColumn(name, cells)
    index = {text: k for k, text in enumerate(series.dtype.categories)}
    codes = np.array([-1 if cell is None else index[cell] for cell in cells])
    return CodedColumn(name, codes, list(index), True)
