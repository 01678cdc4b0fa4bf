"""Archives of arrays that are read back as they were written, or refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .files import replacing

Array = NDArray[Any]


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array], **how: Any
) -> None:
    """Replace `path`, as `_files.replacing` does, by a JSON-able header, arrays and a digest."""
    text = json.dumps(header)
    digest = _digest(text, arrays.values())
    with replacing(path, **how) as temporary, temporary.open("wb") as file:
        np.savez(file, header=text, **arrays, digest=digest)  # type: ignore[arg-type]


def read_archive(path: Path, names: Sequence[str] = ()) -> tuple[dict[str, Any], list[Array]]:
    """The header and the arrays that its "arrays" names; where it names none, those of `names`.

    Raises
    ------
    ValueError
        Without the path, if there is no such archive, or one that is damaged.
    """
    try:
        saved = read_arrays(path)
        text = str(saved["header"])
        header = dict(json.loads(text))
        arrays = [saved[name] for name in header.get("arrays", names)]
        if str(saved["digest"]) != _digest(text, arrays):
            raise ValueError("its digest is another")
        return header, arrays
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (OSError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an ``.npz`` file, whole: each is read to its end, where its checksum is.

    Raises
    ------
    ValueError
        If the file is damaged, saying how, without its name.
    OSError
        If it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name.removesuffix(".npy"): np.load(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
            }
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of the many kinds that damaged bytes lead to
        raise ValueError(f"damaged: {error or type(error).__name__}") from None


def read_without_digest(path: Path) -> dict[str, Array]:
    """The arrays of an archive as version 0.1 wrote them at first; none if it is no such one."""
    try:
        saved = read_arrays(path)
    except (OSError, MemoryError, ValueError):
        return {}
    return {} if "digest" in saved else saved


def _digest(text: str, arrays: Iterable[Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(f" {array.dtype} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
