"""Rows of a store: what their columns hold, and their checksums."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from .._common.measures import MEASURES, OF_RUN
from .._common.validation import MAX_SEED, check_int
from ._record import Record

#: Columns of runs that the checksum of a row is of, in its order.
CHECKED = (
    "run_id", "cell", "seed", "trial", "error", *OF_RUN, "versions", "machine", "created",
    "history_checksum",
)  # fmt: skip

_COLUMNS = (*CHECKED, "checksum", "history")

#: Adds a run, or replaces one that failed.
INSERT = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (run_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
    + " WHERE runs.error IS NOT NULL"
)

#: What the columns of runs hold. SQLite has no truth values.
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "machine", "created", "versions"), (str,)),
    **dict.fromkeys(("cell", "seed", "trial", "failed"), (int,)),
    "error": (str, type(None)),
    "history_checksum": (int, type(None)),
    "history": (bytes, type(None)),
    **{
        name: (int if MEASURES[name].kind is bool else MEASURES[name].kind, type(None))
        for name in OF_RUN
    },
}

_CODES = {int: "q", float: "d", str: "s", type(None): "n"}


def checksum(values: Sequence[Any]) -> int:
    """CRC-32 of the values that a row holds, to the last bit, and of their types.

    Raises
    ------
    ValueError
        If one is of another type than int, float, str and None.
    OverflowError
        If an integer has more than 64 bits.
    """
    start, pack, numbers, texts = _layout(tuple(map(type, values)))
    try:
        packed = pack(*numbers(values))
    except struct.error as error:
        raise OverflowError(error) from None
    return zlib.crc32("\0".join(texts(values)).encode(), zlib.crc32(packed, start))


@cache
def _layout(types: tuple[type, ...]) -> tuple[int, Callable[..., bytes], Any, Any]:
    """How to make bytes of values of such types: a checksum of the types to begin with, and the
    numbers and texts among them."""
    for kind in types:
        if kind not in _CODES:
            raise ValueError(f"a value is of type {kind.__name__}")
    codes = "".join(_CODES[kind] for kind in types)
    numbers = [i for i, code in enumerate(codes) if code in "qd"]
    texts = [i for i, code in enumerate(codes) if code == "s"]
    pack = struct.Struct("<" + "".join(codes[i] for i in numbers)).pack
    return zlib.crc32(codes.encode()), pack, _picked(numbers), _picked(texts)


def _picked(places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[i] for i in places]


def history_checksum(history: Any) -> int | None:
    """CRC-32 of a history, None of none.

    Raises
    ------
    ValueError
        If it is not of bytes.
    """
    if history is None:
        return None
    if not isinstance(history, bytes):
        raise ValueError(f"a history is of type {type(history).__name__}")
    return zlib.crc32(history)


def as_stored(name: str, value: Any) -> Any:
    """A value as its column gives it back; SQLite has neither NaN nor a zero below zero."""
    if value is None or value != value:
        return None
    kind = KINDS[name][0]
    return float(value) + 0.0 if kind is float else kind(value)


def cell_of(connection: sqlite3.Connection, text: str) -> int:
    """The number of the cell with these parameters, which is made if need be."""
    row = connection.execute("SELECT cell FROM cells WHERE parameters = ?", [text]).fetchone()
    if row is not None:
        return int(row[0])
    cell = connection.execute("SELECT ifnull(max(cell), 0) + 1 FROM cells").fetchone()[0]
    connection.execute("INSERT INTO cells VALUES (?, ?, ?)", (cell, text, checksum((cell, text))))
    return int(cell)


def row_of(record: Record, cell: int) -> tuple[Any, ...]:
    """A run as a row for `INSERT`: what its checksum is of, the checksum, the history."""
    found = {
        **{name: getattr(record, name) for name in ("run_id", "error", "machine", "created")},
        **{name: record.measures.get(name) for name in OF_RUN},
        **{name: _signed(name, getattr(record, name)) for name in ("seed", "trial")},
        "cell": cell,
        "versions": _as_json(tuple(record.versions.items())),
        "history_checksum": history_checksum(record.packed),
    }
    values = [as_stored(name, found[name]) for name in CHECKED]
    return (*values, checksum(values), record.packed)


@lru_cache
def _as_json(items: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(items))


def _signed(name: str, value: Any) -> int:
    """An integer in [0, 2^64) as SQLite holds it."""
    value = check_int(name, value, high=MAX_SEED)
    return value - 2**64 if value >= 2**63 else value
