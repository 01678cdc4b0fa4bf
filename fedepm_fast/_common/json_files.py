"""Values that are kept in a file of JSON of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .files import replacing

T = TypeVar("T")


class NotDefined(ValueError):
    """A complete record names what a user has defined, but not in this process, or otherwise."""


def _version(record: dict[str, Any]) -> Any:
    return record.pop("format")


def write_json(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Write plain values to a file that appears complete or not at all; floats are exact."""
    text = json.dumps(record, indent=1, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(
    path: str | os.PathLike[str],
    newest: int,
    make: Callable[[dict[str, Any]], T],
    what: str,
    version_of: Callable[[dict[str, Any]], Any] = _version,
) -> T:
    """What `make` makes of the values that `write_json` wrote; `what` has its article.

    `version_of` tells the version by the values: by default their ``format``, which it takes out.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is something else, is damaged, or was written by a newer version; `NotDefined`, with
        the path, where `make` raises that.
    """
    path = Path(path)
    if not (path.is_file() or path.is_fifo()):
        raise FileNotFoundError(f"no file of {what} at {path}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = version_of(found)
        if type(version) is not int:
            raise TypeError
        if version <= newest:
            return make(found)
    except NotDefined as error:
        raise NotDefined(f"{path}: {error}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        raise ValueError(f"{path} is not a complete file of {what}, as save writes it") from None
    raise ValueError(
        f"{path} has format {version}, this version of fedepm_fast reads up to {newest}"
    )
