"""A server's journal: entries that are with the system before anything else happens."""

from __future__ import annotations

import functools
import io
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.files import naming, sync

Array = NDArray[Any]

log = logging.getLogger(__name__)

#: Bytes that are read or written at a time.
BLOCK_BYTES = 1 << 22


class Journal:
    """A file of entries, each with checksums, behind a head that says how many there are.

    In the boot of the system that wrote them they are all there, or the file is damaged. After a
    loss of power those may be missing for which nobody waited.
    """

    #: Boot of the system, entries, and how many of them are on the disk.
    HEAD = struct.Struct("<36sqq")
    #: Number, event, client, scale, checksum of the row.
    FIELDS = struct.Struct("<qqqdI")
    CHECK = struct.Struct("<I")

    def __init__(self, path: Path, n: int, dtype: np.dtype[Any]) -> None:
        """That of `path`."""
        self.path = path
        self._dtype = np.dtype(
            [("number", "<i8"), ("event", "<i8"), ("client", "<i8"), ("scale", "<f8"),
             ("sum", "<u4"), ("check", "<u4"), ("row", dtype, (n,))]
        )  # fmt: skip
        self._nothing = bytes(n * dtype.itemsize)
        self._start, self._size = self.HEAD.size + self.CHECK.size, self._dtype.itemsize
        try:
            self.handle = os.open(path, os.O_RDWR)
        except OSError as error:
            raise ValueError(f"path must hold {path.name} beside its state: {error}") from None
        try:
            self._read_head()
        except BaseException:
            os.close(self.handle)
            raise

    @classmethod
    def new(cls, path: Path, n: int, dtype: np.dtype[Any]) -> Journal:
        """An empty one, on the disk."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with naming(path):
                write(handle, _sealed(cls.HEAD.pack(_boot(), 0, 0)), 0)
                os.fsync(handle)
        finally:
            os.close(handle)
        sync(path.parent)
        return cls(path, n, dtype)

    def append(
        self, event: int, client: int, scale: float, row: Array | None, durable: bool
    ) -> int:
        """Write an entry, and with `durable` have it on the disk; the checksum of its row."""
        data = self._nothing if row is None else row.tobytes()
        total, count = zlib.crc32(data), self.count
        fields = self.FIELDS.pack(count, event, client, scale, total)
        with naming(self.path):
            write(self.handle, _sealed(fields) + data, self._start + count * self._size)
            if durable:
                os.fsync(self.handle)
            self._write_head(count + 1, count + 1 if durable else self._synced)
        return total

    def sync(self) -> None:
        with naming(self.path):
            os.fsync(self.handle)
            self._write_head(self.count, self.count)

    def blocks(self) -> Iterator[Array]:
        """All entries, as many at a time as fit into `BLOCK_BYTES`."""
        step = max(1, BLOCK_BYTES // self._size)
        for start in range(0, self.count, step):
            size = min(step, self.count - start) * self._size
            data = self._pread(size, self._offset(start))
            intact = self._intact(data, start)
            if len(data) < size or not intact.all():
                raise self._damaged(f"entry {start + np.argmin(intact)} is not what was written")
            yield np.frombuffer(data, self._dtype)

    def _read_head(self) -> None:
        data = self._pread(self._start, 0)
        if not _is_sealed(data):
            raise self._damaged("its head is not what was written")
        boot, count, synced = self.HEAD.unpack(data[: self.HEAD.size])
        if boot != _boot() or not boot.strip(b"\0"):
            # The head, too, may be older than the entries.
            written, count = count, synced
            while self._intact(self._pread(self._size, self._offset(count)), count).any():
                count += 1
            if count < written:
                log.warning("%s: lost %d entries with the power", self.path, written - count)
        if os.fstat(self.handle).st_size < self._offset(count):
            raise self._damaged("it was cut short")
        # An entry that was being written is no one's.
        os.ftruncate(self.handle, self._offset(count))
        self._write_head(count, synced)

    def _write_head(self, count: int, synced: int) -> None:
        write(self.handle, _sealed(self.HEAD.pack(_boot(), count, synced)), 0)
        self.count, self._synced = count, synced

    def _offset(self, number: int) -> int:
        return self._start + number * self._size

    def _intact(self, data: memoryview, start: int) -> NDArray[np.bool_]:
        """Which of these entries, from number `start` on, are as they were written."""
        count, fields = len(data) // self._size, self.FIELDS.size
        entries = np.frombuffer(data[: count * self._size], self._dtype)
        places = range(0, count * self._size, self._size)
        checks = [zlib.crc32(data[i : i + fields]) for i in places]
        sums = [zlib.crc32(data[i + fields + self.CHECK.size : i + self._size]) for i in places]
        return (
            (entries["check"] == checks)
            & (entries["sum"] == sums)
            & (entries["number"] == np.arange(start, start + count))
        )

    def _pread(self, size: int, offset: int) -> memoryview:
        file = io.FileIO(self.handle, closefd=False)
        file.seek(offset)
        data = bytearray(size)
        got = 0
        while got < size and (more := file.readinto(memoryview(data)[got:])):
            got += more
        return memoryview(data)[:got]

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"path holds a damaged journal: {self.path}: {why}")


@functools.cache
def _boot() -> bytes:
    """Which start of the system this is; nothing where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36, b"\0")
    except OSError:
        return bytes(36)


def _sealed(data: bytes) -> bytes:
    return data + Journal.CHECK.pack(zlib.crc32(data))


def _is_sealed(data: memoryview) -> bool:
    size = len(data) - Journal.CHECK.size
    return size > 0 and Journal.CHECK.unpack(data[size:])[0] == zlib.crc32(data[:size])


def write(handle: int, data: bytes, offset: int) -> None:
    while (count := os.pwrite(handle, data, offset)) < len(data):  # a disk may be full within
        data, offset = data[count:], offset + count
