"""A server's folder: what it was told outlives it, and what is damaged is refused.

======================  =========================================================================
``lock``                whose folder it is, while that process lives
``state.npz``           round, members, scales, and the checksums of their uploads, as the last
                        round ended; replaced whole
``uploads.npy``         every client's last upload, shape (m, n): reserved in full, memory-mapped
``journal-<round>``     what has come since, in order: who joined and left, the point of the open
                        round, its uploads
======================  =========================================================================

An entry of the journal is with the system before anything else happens, and so outlives the
process; `Folder.append` waits for the disk where asked to. The array takes a round's uploads only
once the journal that holds them is on the disk, so that every row is whole in one or the other.
Only the owner can read the files: they hold every client's upload.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_archive, read_without_digest, write_archive
from .._common.files import check_writable_folder, lock, naming, remove_drafts, sync, unlock
from ._journal import BLOCK_BYTES, Journal, write

Array = NDArray[Any]


class Event(IntEnum):
    """What can happen to a server."""

    JOIN = 1
    LEAVE = 2
    OPEN = 3
    """A round is opened at the row, its point."""
    RECEIVE = 4


class Entry(NamedTuple):
    """Of a journal."""

    event: Event
    client: int
    """-1 if of none."""
    scale: float
    """Of the upload's noise."""
    row: Array
    """Shape (n,); zeros if there is none."""


class Folder:
    """The folder of one server, which is locked until `close`, or the end of the process.

    Parameters
    ----------
    path : path-like
        Made if need be.
    settings : mapping
        What the server's results depend on, JSON-able: a state of others is refused.
    shape : (int, int)
        Clients m, and features n.
    dtype : dtype
        Of uploads.

    Raises
    ------
    ValueError
        If `path` holds anything else, or a state that is damaged.
    RuntimeError
        If it is another server's.
    OSError
        Naming the file, if there is no space for it.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], shape: tuple[int, int],
        dtype: np.dtype[Any],
    ) -> None:  # fmt: skip
        self._settings, self._shape, self._dtype = dict(settings), shape, dtype
        new = not os.path.lexists(path)
        try:
            self._open(path)
        except BaseException:
            if new:
                with contextlib.suppress(OSError):  # by now others may have put something there
                    os.rmdir(path)
            raise

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
                for name in ("state.npz", "journal-0", "uploads.npy", "lock"):
                    if name not in had:
                        (self.path / name).unlink(missing_ok=True)
            self.close()
            raise

    def close(self) -> None:
        """Give the folder free."""
        self._release()

    # What is kept -----------------------------------------------------------------------

    def append(
        self, event: Event, client: int, scale: float, row: Array | None, *, durable: bool
    ) -> None:
        """Write an entry down; nothing has changed if this raises.

        It outlives the process, and a loss of power as well with `durable`.
        """
        self._check_mine()
        total = self._journal.append(event, client, scale, row, durable)
        if event is Event.JOIN:
            self._sums[client] = total

    def entries(self) -> Iterator[Entry]:
        """What has happened since the last round ended, and what is in the array by then.

        Raises
        ------
        ValueError
            At the end of it, if the array is damaged.
        """
        in_journal = np.zeros(self._shape[0], bool)
        for block in self._journal.blocks():
            for entry in block:
                event, client = Event(entry["event"]), int(entry["client"])
                if event in (Event.JOIN, Event.RECEIVE):
                    in_journal[client] = True
                if event is Event.JOIN:
                    self._sums[client] = entry["sum"]
                yield Entry(event, client, float(entry["scale"]), entry["row"])
        for i in np.flatnonzero(self.members & ~in_journal).tolist():
            if zlib.crc32(self.Z[i]) != self._sums[i]:
                raise ValueError(
                    f"path holds damaged uploads: {self.path / 'uploads.npy'}: that of client {i} "
                    "is not what was written"
                )

    def end_round(
        self, members: NDArray[np.bool_], scales: Array, accepted: NDArray[np.intp]
    ) -> None:
        """Take the uploads of `accepted` from the journal, and begin another; all on the disk.

        If this raises, the round goes on, and may be ended again.
        """
        self._check_mine()
        self._journal.sync()
        taken = np.zeros(self._shape[0], bool)
        taken[accepted] = True
        sums = self._sums.copy()
        for block in self._journal.blocks():
            new = block[(block["event"] == Event.RECEIVE) & taken[block["client"]]]
            self.Z[new["client"]] = new["row"]
            sums[new["client"]] = new["sum"]
        with naming(self.path / "uploads.npy"):
            self.Z.flush()
        self._begin(self.tau + 1, members, scales, sums)

    # On disk ----------------------------------------------------------------------------

    def _begin(
        self, tau: int, members: NDArray[np.bool_], scales: Array, sums: NDArray[np.uint32]
    ) -> None:
        """Make what is in the array the state, with an empty journal."""
        journal = Journal.new(self._journal_path(tau), self._shape[1], self._dtype)
        try:
            write_archive(
                self.path / "state.npz",
                {"settings": self._settings, "tau": tau},
                {"members": members, "scales": scales, "sums": sums},
                durable=True,
                private=True,
            )
        except BaseException:
            os.close(journal.handle)
            raise
        self._use(journal)
        self.tau, self.members, self.scales, self._sums = tau, members.copy(), scales.copy(), sums
        self._tidy()

    def _restore(self) -> None:
        state, uploads = self.path / "state.npz", self.path / "uploads.npy"
        if state.exists():
            self._load(state)
        elif uploads.exists():
            raise ValueError(f"path holds uploads.npy without its state.npz: {self.path}")
        else:
            m = self._shape[0]
            self._begin(0, np.zeros(m, bool), np.full(m, np.nan), np.zeros(m, np.uint32))
        # Without members no one's uploads are at stake, and a kill may have come before the file.
        if not self.members.any() and not self._journal.count:
            _reserve(uploads, self._shape, self._dtype)
        self.Z = self._map(uploads, self._shape)
        if self._inbox is not None:
            self._convert(self._inbox)
        self._tidy()

    def _load(self, state: Path) -> None:
        try:
            header, arrays = read_archive(state, ["members", "scales", "sums"])
        except ValueError as error:
            old = _before_journals(state, self._shape[0])
            if old is None:
                raise ValueError(f"path must hold a server's state: {state}: {error}") from None
            header, arrays, self._inbox = old
        found = header["settings"]
        for name, value in self._settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"path holds a run with {name} = {found.get(name)!r}, got {value!r}: {state}"
                )
        self.tau, (self.members, self.scales, self._sums) = int(header["tau"]), arrays
        path = self._journal_path(self.tau)
        if self._inbox is None:
            self._use(Journal(path, self._shape[1], self._dtype))
        else:
            self._use(Journal.new(path, self._shape[1], self._dtype))

    #: Slots and clients of uploads that a state from before there were journals is still to take.
    _inbox: NDArray[np.int64] | None = None

    def _convert(self, inbox: NDArray[np.int64]) -> None:
        """From before there were journals: a round's uploads lay in a second array."""
        if len(inbox):
            slots, clients = inbox.T
            self.Z[clients] = self._map(self.path / "inbox.npy", (None, self._shape[1]))[slots]
            self.Z.flush()
        for i in np.flatnonzero(self.members).tolist():
            self._sums[i] = zlib.crc32(self.Z[i])
        self._begin(self.tau, self.members, self.scales, self._sums)

    def _map(self, path: Path, shape: tuple[int | None, int]) -> np.memmap[Any, Any]:
        try:
            # For reading first: to be written, a file cut short would be filled up with zeros.
            array = np.lib.format.open_memmap(path, "r")
            if path.stat().st_size != array.offset + array.nbytes:
                raise ValueError(f"it has {path.stat().st_size} bytes")
        except Exception as error:  # whatever a damaged file makes its reader say
            raise ValueError(f"path must hold {path.name} beside its state: {error}") from None
        shape = (array.shape[0] if shape[0] is None else shape[0], shape[1])
        if array.shape != shape or array.dtype != self._dtype or not array.flags.c_contiguous:
            raise ValueError(f"{path} must be {self._dtype}{shape}, got {array.dtype}{array.shape}")
        with contextlib.suppress(PermissionError):  # earlier versions let others read it
            path.chmod(0o600)
        return np.lib.format.open_memmap(path, "r+")

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
        remove_drafts(self.path / "uploads.npy")
        for path in [*self.path.glob("journal-*"), self.path / "inbox.npy"]:
            if path != self._journal.path:
                path.unlink(missing_ok=True)

    def _check_mine(self) -> None:
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


def _reserve(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Make an array of zeros, and have the space: a full disk under a map kills the process."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with naming(path):
            write(handle, head.getvalue(), 0)
            _fill(handle, len(head.getvalue()), shape[0] * shape[1] * dtype.itemsize)
            os.fsync(handle)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(handle)
    sync(path.parent)


def _fill(handle: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, start, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    zeros = bytes(min(size, BLOCK_BYTES))
    for offset in range(0, size, len(zeros)):
        write(handle, zeros[: size - offset], start + offset)


def _before_journals(
    state: Path, clients: int
) -> tuple[dict[str, Any], list[Array], NDArray[np.int64]] | None:
    """A state without a journal in today's form, and what its array is still to take."""
    saved = read_without_digest(state)
    if not {"settings", "tau", "members", "inbox"} <= saved.keys():
        return None
    header = {"settings": json.loads(str(saved["settings"])), "tau": int(saved["tau"])}
    # The first states are of runs that do not use scales.
    scales = saved.get("scales", np.full(clients, np.nan))
    return header, [saved["members"], scales, np.zeros(clients, np.uint32)], saved["inbox"]
