"""A folder of one server, with a journal: what all kinds of servers keep has these.

======================  =========================================================================
``lock``                whose folder it is, while that process lives
``state.npz``           the state as the last round ended; replaced whole
``journal-<round>``     what has come since, in order: who joined and left, the point of the open
                        round, its answers
======================  =========================================================================

An entry of the journal is with the system before anything else happens, and so outlives the
process; `Folder.append` waits for the disk where asked to. Only the owner can read the files.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_archive, write_archive
from .._common.files import check_writable_folder, lock, remove_drafts, unlock
from ._journal import Journal

Array = NDArray[Any]


class Event(IntEnum):
    """What can happen to a server."""

    JOIN = 1
    LEAVE = 2
    OPEN = 3
    """A round is opened at the row, its point."""
    RECEIVE = 4
    TELL = 5
    """A client that is about to join tells the scale, the next of its numbers."""
    SHARE = 6
    """A round that is about to be opened shares the row; the "client" is its place."""


class Entry(NamedTuple):
    """Of a journal."""

    event: Event
    client: int
    """-1 if of none."""
    scale: float
    """A number beside the row, of an upload the scale of its noise."""
    row: Array
    """Zeros if there is none."""


class Folder:
    """The folder of one server, which is locked until `close`, or the end of the process.

    Parameters
    ----------
    path : path-like
        Made if need be.
    settings : mapping
        What the server's results depend on, JSON-able: a state of others is refused.
    width : int
        Numbers of an entry of the journal.
    dtype : dtype
        Of these.

    Raises
    ------
    ValueError
        If `path` holds anything else, or a state that is damaged.
    RuntimeError
        If it is another server's.
    OSError
        Naming the file, if there is no space for it.
    """

    #: What a server that is not made must not leave behind, in this order.
    _made: ClassVar[tuple[str, ...]] = ("state.npz", "journal-0", "lock")
    _journal: Journal
    #: Rounds that have ended.
    tau: int

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], width: int,
        dtype: np.dtype[Any],
    ) -> None:  # fmt: skip
        self._settings, self._width, self._dtype = dict(settings), width, dtype
        new = not os.path.lexists(path)
        try:
            self._open(path)
        except BaseException:
            if new:
                with contextlib.suppress(OSError):  # by now others may have put something there
                    os.rmdir(path)
            raise

    def _restore(self) -> None:
        """Read what there is, or begin."""
        raise NotImplementedError

    def _open(self, path: str | os.PathLike[str]) -> None:
        self.path = check_writable_folder("path", path).resolve()
        self._lock_path = str(self.path / "lock")
        had = {entry.name for entry in self.path.iterdir()}
        try:
            handle = lock(self._lock_path, wait=False)
        except BlockingIOError:
            holder = Path(self._lock_path).read_text(errors="replace").strip() or "unknown"
            raise RuntimeError(
                f"path is in use by another server, of process {holder}: {path}; close that one, "
                "or end its process"
            ) from None
        self._handles = [handle]
        made = os.fstat(handle)
        self._lock_id = made.st_dev, made.st_ino
        self._release = weakref.finalize(self, _release, self._handles, os.getpid())
        _open.add(self)
        with contextlib.suppress(OSError):  # it is for the message above
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        had |= {entry.name for entry in self.path.iterdir()} - {"lock"}
        try:
            self._restore()
        except BaseException:
            if "state.npz" not in had:
                # Under the lock, and first what the others must not be missing beside.
                for name in self._made:
                    if name not in had:
                        (self.path / name).unlink(missing_ok=True)
            self.close()
            raise

    def close(self) -> None:
        """Give the folder free."""
        self._release()

    def append(
        self, event: Event, client: int, scale: float, row: Array | None, *, durable: bool
    ) -> int:
        """Write an entry down; nothing has changed if this raises.

        It outlives the process, and a loss of power as well with `durable`. Gives the checksum of
        its row.
        """
        self.check_mine()
        return self._journal.append(event, client, scale, row, durable)

    def entries(self) -> Iterator[Entry]:
        """What has happened since the last round ended.

        Raises
        ------
        ValueError
            If the journal is damaged.
        """
        for block in self._journal.blocks():
            for entry in block:
                row, scale = entry["row"], float(entry["scale"])
                yield Entry(Event(entry["event"]), int(entry["client"]), scale, row)

    # On disk ----------------------------------------------------------------------------

    def _write(self, tau: int, arrays: Mapping[str, Array]) -> None:
        """Make these the state, with an empty journal."""
        journal = Journal.new(self._journal_path(tau), self._width, self._dtype)
        try:
            header = {"settings": self._settings, "tau": tau, "arrays": list(arrays)}
            write_archive(self.path / "state.npz", header, arrays, durable=True, private=True)
        except BaseException:
            os.close(journal.handle)
            raise
        self._use(journal)
        self.tau = tau

    def _read(self, names: Sequence[str] = ()) -> dict[str, Array]:
        """The arrays of the state; of `names` those of one that does not say which it has.

        Raises
        ------
        ValueError
            If it is damaged, or of another run.
        """
        state = self.path / "state.npz"
        try:
            header, arrays = read_archive(state, names)
        except ValueError as error:
            raise ValueError(f"path must hold a server's state: {state}: {error}") from None
        self._check_settings(header["settings"])
        self.tau = int(header["tau"])
        return dict(zip(header.get("arrays", names), arrays, strict=True))

    def _check_settings(self, found: Mapping[str, Any]) -> None:
        for name, value in self._settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"path holds a run with {name} = {found.get(name)!r}, got {value!r}: "
                    f"{self.path / 'state.npz'}"
                )

    def _journal_path(self, tau: int) -> Path:
        return self.path / f"journal-{tau}"

    def _use(self, journal: Journal) -> None:
        for handle in self._handles[1:]:
            os.close(handle)
        self._handles[1:] = [journal.handle]
        self._journal = journal

    def _tidy(self) -> None:
        """Remove what a kill may have left, and what the state has taken."""
        remove_drafts(self.path / "state.npz")
        for path in self.path.glob("journal-*"):
            if path != self._journal.path:
                path.unlink(missing_ok=True)

    def check_mine(self) -> None:
        """Raise RuntimeError if the folder is closed, another process's, or taken away."""
        if not self._release.alive:
            raise RuntimeError(
                f"the server is closed, or is that of the process that this one was forked from: "
                f"{self.path}"
            )
        try:
            found = os.stat(self._lock_path)
            mine = (found.st_dev, found.st_ino) == self._lock_id
        except FileNotFoundError:
            mine = False
        if not mine:
            raise RuntimeError(
                f"the server's folder is no longer its own: {self._lock_path} was removed"
            )


#: Those of this process.
_open: weakref.WeakSet[Folder] = weakref.WeakSet()


def _release(handles: list[int], owner: int) -> None:
    # A child must not end the lock of its parent; nor shall it keep it when that dies.
    (unlock if os.getpid() == owner else os.close)(handles[0])
    for handle in handles[1:]:
        os.close(handle)


def _close_in_child() -> None:
    for folder in list(_open):
        folder.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
