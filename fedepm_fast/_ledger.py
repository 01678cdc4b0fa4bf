"""A private client's ledger: what it has uploaded, in a file that is written before it is sent.

The file is replaced atomically and durably, under a lock that a killed process gives back. What
it holds is public: rounds, noise and uploads.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._files import check_writable_folder, replacing, sync

Array = NDArray[np.float64]


class UploadRefused(RuntimeError):
    """A client that keeps to its budget, or to its guarantee, and sends nothing."""


class Entry(NamedTuple):
    """What a private client remembers between rounds."""

    uploads: int = 0
    """Made so far."""
    tau: int = -1
    """The round of the last one; -1 before."""
    scale: float | None = None
    """Of the noise of the last one; None before."""
    point: Array = np.zeros(0)
    """The last upload, shape (n,); before, the point it joined at, or nothing."""


class Ledger:
    """The ledger of one client.

    Parameters
    ----------
    path : path-like
        Of the file, made with an empty entry if there is none; its folder is created if need be.
        Beside it lies a file of the same name and ``.lock``, which knows that there is a ledger.
    settings : mapping
        What the budget is of, JSON-able: a ledger of others is refused.
    features : int
        Coordinates, n.

    Raises
    ------
    ValueError
        If `path` holds anything else, or held a ledger that is gone.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], features: int
    ) -> None:
        # Links followed: the file they lead to is the one that is replaced, under one lock.
        self.path, self.settings, self.features = Path(path).resolve(), dict(settings), features
        self._made = 0
        self._lock = self.path.with_name(f"{self.path.name}.lock")
        folder = self.path.parent
        new = not folder.exists()
        check_writable_folder("path", folder)
        if new:
            sync(folder.parent)
        with self.locked():
            known = self._lock.stat().st_size > 0
            if self.path.exists():
                self.read()
            elif known:
                raise ValueError(
                    f"path held a client's ledger, which is gone: {self.path}; with it, what was "
                    f"spent. Only who knows that this was nothing may remove {self._lock.name}"
                )
            else:
                self.write(Entry())
            if not known:
                self._lock.write_bytes(b"of a ledger\n")
                sync(self._lock)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all threads and processes; waits for others, and not for dead ones."""
        try:
            import fcntl
        except ModuleNotFoundError:  # pragma: no cover
            raise RuntimeError("a ledger needs the file locks of a POSIX system (fcntl)") from None
        with self._lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:  # also where a process that was forked meanwhile has the file open
                fcntl.flock(file, fcntl.LOCK_UN)

    def write(self, entry: Entry) -> None:
        """Replace the entry: on the disk when this returns; if it raises, this one or the old."""
        facts = {**entry._asdict(), "settings": self.settings}
        point = facts.pop("point")
        header = json.dumps(facts)
        with replacing(self.path, durable=True) as temporary, temporary.open("wb") as file:
            np.savez(file, header=header, point=point, digest=_digest(header, point))
        self._made = entry.uploads

    def sync(self) -> None:
        """Have the file and its name on the disk."""
        sync(self.path)
        sync(self.path.parent)

    def read(self) -> Entry:
        """The entry that was written last.

        Raises
        ------
        ValueError
            If the file is damaged, gone, of other settings, or of the past.
        """
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                header, point = str(saved["header"]), saved["point"]
                if str(saved["digest"]) != _digest(header, point):
                    raise ValueError("its digest is another")
                facts = json.loads(header)
                settings = facts.pop("settings")
                entry = Entry(**facts, point=point)
        # Whatever a damaged archive makes its reader say.
        except (
            OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, zipfile.BadZipFile,
        ) as error:  # fmt: skip
            raise ValueError(f"path must hold a client's ledger: {self.path}: {error}") from None
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise ValueError(
                    f"path holds a ledger with {name} = {settings.get(name)!r}, got {value!r}: "
                    f"{self.path}"
                )
        if len(entry.point) not in (0, self.features):
            raise ValueError(
                f"path holds a ledger of {len(entry.point)} coordinates, not {self.features}: "
                f"{self.path}"
            )
        if entry.uploads < self._made:
            raise ValueError(
                f"path holds a ledger of the past, of {entry.uploads} uploads after {self._made}: "
                f"{self.path}"
            )
        self._made = entry.uploads
        return entry


def _digest(header: str, point: Array) -> str:
    return hashlib.sha256(f"{header} {point.dtype} ".encode() + point.tobytes()).hexdigest()
