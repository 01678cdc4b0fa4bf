"""Files of text that may be compressed, by the end of their names."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What reading a damaged file raises.
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


def is_compressed(path: Path) -> bool:
    """Whether the name ends as one of a compressed file."""
    return path.suffix.lower() in OPENERS


def open_file(path: Path, mode: str = "rb", **options: Any) -> Any:
    """The file, decompressed; `mode` is "rb" or "rt"."""
    return OPENERS.get(path.suffix.lower(), open)(path, mode, **options)
