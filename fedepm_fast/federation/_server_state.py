"""The folder of a server of uploads: what it was told outlives it, what is damaged is refused.

Beside what every `Folder` has there is ``uploads.npy``, every client's last upload, shape (m, n):
reserved in full, and memory-mapped. ``state.npz`` has the members, the scales of their noise,
checksums of the uploads, and what a `Memory` remembers. The array takes a round's uploads only once
the journal that holds them is on the disk, so that every row is whole in one or the other.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.archives import read_without_digest
from .._common.files import naming, remove_drafts, sync
from ._folder import Entry, Event, Folder
from ._journal import BLOCK_BYTES, Journal, write

Array = NDArray[Any]

#: Arrays of every state.
_OF_UPLOADS = ("members", "scales", "sums")


class Uploads(Folder):
    """The folder of a server that keeps every client's last upload.

    Parameters
    ----------
    path, settings, dtype
        As of `Folder`.
    shape : (int, int)
        Clients m, and features n.
    """

    _made = ("state.npz", "journal-0", "uploads.npy", "lock")
    #: What else there is in the state; nothing before a round has ended.
    memory: Mapping[str, Array] = MappingProxyType({})

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], shape: tuple[int, int],
        dtype: np.dtype[Any],
    ) -> None:  # fmt: skip
        self._shape = shape
        super().__init__(path, settings, shape[1], dtype)

    # What is kept -----------------------------------------------------------------------

    def append(
        self, event: Event, client: int, scale: float, row: Array | None, *, durable: bool
    ) -> int:
        total = super().append(event, client, scale, row, durable=durable)
        if event is Event.JOIN:
            self._sums[client] = total
        return total

    def entries(self) -> Iterator[Entry]:
        """What has happened since the last round ended, and what is in the array by then.

        Raises
        ------
        ValueError
            At the end of it, if the array is damaged.
        """
        in_journal = np.zeros(self._shape[0], bool)
        for entry in super().entries():
            if entry.event in (Event.JOIN, Event.RECEIVE):
                in_journal[entry.client] = True
            if entry.event is Event.JOIN:
                self._sums[entry.client] = zlib.crc32(entry.row.data)
            yield entry
        for i in np.flatnonzero(self.members & ~in_journal).tolist():
            if zlib.crc32(self.Z[i]) != self._sums[i]:
                raise ValueError(
                    f"path holds damaged uploads: {self.path / 'uploads.npy'}: that of client {i} "
                    "is not what was written"
                )

    def end_round(
        self,
        members: NDArray[np.bool_],
        scales: Array,
        accepted: NDArray[np.intp],
        memory: Mapping[str, Array],
    ) -> None:
        """Take the uploads of `accepted` from the journal, and begin another; all on the disk.

        If this raises, the round goes on, and may be ended again.
        """
        self.check_mine()
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
        self._begin(self.tau + 1, members, scales, sums, memory)

    # On disk ----------------------------------------------------------------------------

    def _begin(
        self,
        tau: int,
        members: NDArray[np.bool_],
        scales: Array,
        sums: NDArray[np.uint32],
        memory: Mapping[str, Array],
    ) -> None:
        """Make what is in the array the state, with an empty journal."""
        self._write(tau, {"members": members, "scales": scales, "sums": sums, **memory})
        self.members, self.scales, self._sums = members.copy(), scales.copy(), sums
        self._tidy()

    def _restore(self) -> None:
        state, uploads = self.path / "state.npz", self.path / "uploads.npy"
        if state.exists():
            self._load(state)
        elif uploads.exists():
            raise ValueError(f"path holds uploads.npy without its state.npz: {self.path}")
        else:
            m = self._shape[0]
            self._begin(0, np.zeros(m, bool), np.full(m, np.nan), np.zeros(m, np.uint32), {})
        # Without members no one's uploads are at stake, and a kill may have come before the file.
        if not self.members.any() and not self._journal.count:
            _reserve(uploads, self._shape, self._dtype)
        self.Z = self._map(uploads, self._shape)
        if self._inbox is not None:
            self._convert(self._inbox)
        self._tidy()

    def _load(self, state: Path) -> None:
        old = _before_journals(state, self._shape[0])
        if old is None:
            arrays = self._read(_OF_UPLOADS)
        else:
            header, arrays, self._inbox = old
            self._check_settings(header["settings"])
            self.tau = int(header["tau"])
        self.members, self.scales, self._sums = map(arrays.pop, _OF_UPLOADS)
        self.memory = arrays
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
        self._begin(self.tau, self.members, self.scales, self._sums, {})

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

    def _tidy(self) -> None:
        super()._tidy()
        remove_drafts(self.path / "uploads.npy")
        (self.path / "inbox.npy").unlink(missing_ok=True)


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
) -> tuple[dict[str, Any], dict[str, Array], NDArray[np.int64]] | None:
    """A state without a journal in today's form, and what its array is still to take."""
    saved = read_without_digest(state)
    if not {"settings", "tau", "members", "inbox"} <= saved.keys():
        return None
    header = {"settings": json.loads(str(saved["settings"])), "tau": int(saved["tau"])}
    # The first states are of runs that do not use scales.
    scales = saved.get("scales", np.full(clients, np.nan))
    arrays = (saved["members"], scales, np.zeros(clients, np.uint32))
    return header, dict(zip(_OF_UPLOADS, arrays, strict=True)), saved["inbox"]
