"""A private client's ledger: what it has uploaded, in a file that is written before it is sent.

The file is replaced atomically and durably, under a lock that a killed process gives back. Only its
owner can read it: where a client is killed while it writes, a draft lies beside it, with an upload
that no one counts, until the client is used again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_archive, write_archive
from .._common.files import check_writable_folder, lock, remove_drafts, sync, unlock

Array = NDArray[np.float64]


#: How many rounds a client may skip at a time, by default.
LARGEST_JUMP = 1000


class UploadRefused(RuntimeError):
    """A client that keeps to its budget, its guarantee or its rounds, and sends nothing."""


def jump_fault(tau: int, last: int, largest: int) -> str:
    """What is wrong with round `tau` after round `last`, -1 if there was none, in words.

    A server that names a round far ahead would end a client that never goes back.
    """
    if tau - last <= largest:
        return ""
    after = "at first" if last < 0 else f"after round {last}"
    return f"round {tau} {after} is a jump of more than largest_jump = {largest} rounds"


class Entry(NamedTuple):
    """What a private client remembers between rounds."""

    uploads: int = 0
    """Made so far; second moments count as all those that they spend as much as."""
    tau: int = -1
    """The last round; -1 before."""
    scale: float | None = None
    """Of the noise of the last upload; None before."""
    point: Array = np.zeros(0)
    """The last round's upload, shape (n,); before, the point it joined at, or nothing."""
    moments: Array = np.zeros(0)
    """The second moments that were sent, packed, until the first round."""
    closed: str = ""
    """The ledger that has what is left of the budget; nothing is uploaded any more."""

    def arrays(self) -> dict[str, Array]:
        """What of it is no number."""
        return {name: value for name, value in self._asdict().items() if name in _ARRAYS}

    def is_same(self, other: Entry) -> bool:
        """Whether it is `other`, to the last bit."""
        mine, others = self.arrays(), other.arrays()
        return (self[:3], self.closed) == (other[:3], other.closed) and all(
            np.array_equal(mine[name], others[name]) for name in _ARRAYS
        )


_ARRAYS = ("point", "moments")


class Ledger:
    """The ledger of one client.

    Parameters
    ----------
    path : path-like
        Of the file, made with an empty entry if there is none; its folder is created if need be.
        Beside it lies a file of the same name and ``.lock``, which knows that there is a ledger.
    settings : mapping
        What the budget is of, JSON-able: a ledger of others is refused.
    features : int, optional
        Coordinates, n; any by default.
    terms : callable, optional
        What else is settled when the ledger is made, JSON-able. It is asked then, alone with the
        path, and never again: what it said is among `settings` for good.

    Raises
    ------
    ValueError
        If `path` holds anything else, or held a ledger that is gone.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        features: int | None = None,
        terms: Callable[[], Mapping[str, Any]] = dict,
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
                self.settings = {**terms(), **settings}
                self._write(Entry(), new=True)
            if not known:
                self._lock.write_bytes(b"of a ledger\n")
                sync(self._lock)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all threads and processes; waits for others, and not for dead ones."""
        handle = lock(self._lock)
        try:
            remove_drafts(self.path)
            yield
        finally:
            unlock(handle)

    def replace(self, last: Entry, entry: Entry) -> bool:
        """Replace `last` by `entry`, unless another one has come meanwhile; whether it did.

        It is on the disk when this returns; if it raises, there is this one or the last.
        """
        # Where the lock's file was removed another process may be at it, too: the lock of the
        # ledger itself, which is another file from then on, lets one of them through.
        handle = lock(self.path, create=False)
        try:
            if not self.read().is_same(last):
                return False
            self._write(entry)
            return True
        finally:
            unlock(handle)

    def _write(self, entry: Entry, *, new: bool = False) -> None:
        arrays = entry.arrays()
        facts = {k: v for k, v in entry._asdict().items() if k not in arrays}
        facts |= {"settings": self.settings, "arrays": list(arrays)}
        write_archive(self.path, facts, arrays, durable=True, private=True, new=new)
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
            facts, arrays = read_archive(self.path, ["point"])
            settings, names = facts.pop("settings"), facts.pop("arrays", ["point"])
            entry = Entry(**facts, **dict(zip(names, arrays, strict=True)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path must hold a client's ledger: {self.path}: {error}") from None
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise ValueError(
                    f"path holds a ledger with {name} = {settings.get(name)!r}, got {value!r}: "
                    f"{self.path}"
                )
        if self.features is not None and len(entry.point) not in (0, self.features):
            raise ValueError(
                f"path holds a ledger of {len(entry.point)} coordinates, not {self.features}: "
                f"{self.path}"
            )
        if entry.uploads < self._made:
            raise ValueError(
                f"path holds a ledger of the past, of {entry.uploads} uploads after {self._made}: "
                f"{self.path}"
            )
        self._made, self.settings = entry.uploads, settings
        return entry
