"""Writing files so that a crash leaves the old one, or none, and never half of one."""

from __future__ import annotations

import csv
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Errors of the system of a disk that is full, or fails.
_OF_DISKS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


def is_failure_of_disk(error: BaseException) -> bool:
    """Whether it says that there is no room left to write in, or that a disk fails."""
    return isinstance(error, OSError) and error.errno in _OF_DISKS


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    durable: bool = False,
    private: bool = False,
    new: bool = False,
) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends without error.

    With `durable`, what was written is on the disk, and under its name, when this returns: it
    survives a loss of power. With `private`, no other user can read it, at any time. With `new`,
    nothing is replaced.

    Raises
    ------
    OSError
        Naming `path`. Before the block: a folder, or one in a folder that does not exist or
        cannot be written to. After it: a full disk; with `new`, that there is such a file.
    """
    path = Path(path)
    reason = _missing(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write to")
    _refuse_device(path)
    if reason is not None:
        raise FileNotFoundError(f"{path} cannot be written: {reason}")
    try:
        temporary, handle = _draft(path)
    except OSError as error:
        if is_failure_of_disk(error):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise type(error)(f"{path} cannot be written: {error.strerror or error}") from None
    moved = False
    try:
        with naming(path):
            yield temporary
            if not private:  # as mkstemp makes it
                mask = os.umask(0)
                os.umask(mask)
                temporary.chmod(0o666 & ~mask)
            if durable:
                sync(temporary)
            if new:
                _move_to_free_name(temporary, path)
            else:
                temporary.replace(path)
            moved = True  # and the next draft may have its name
            if durable:
                sync(path.parent)
    finally:
        if not moved:
            temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def _draft(path: Path) -> tuple[Path, int | None]:
    """An empty file beside `path`, and a handle that holds its lock.

    It has always the same name, so that one which a killed process left is taken for the next. Of
    several at a time, and where there are no locks, others have a name of their own, and no handle.
    """
    draft = path.parent / f".{path.name}.draft"
    with suppress(OSError, RuntimeError):
        if not draft.is_symlink() and (not draft.exists() or draft.is_file()):
            handle = lock(draft, wait=False)
            try:
                os.truncate(handle, 0)
                os.fchmod(handle, 0o600)
                return draft, handle
            except BaseException:
                os.close(handle)
                raise
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    return Path(name), None


def _refuse_device(path: Path) -> None:
    """Refuse what is there and no file: a file would take the place of a device, as /dev/null."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(f"{path} is a device or a pipe, not a file to write to")


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Sequence[Any]]) -> None:
    """Replace `path` by a table as CSV, numbers to the last bit and None as nothing."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _move_to_free_name(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # unlike a rename, never over another
        temporary.unlink()
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(path)


class naming:
    """A context in which an error of the system that does not say of which file it is names it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            error.filename = str(self.path)


def remove_drafts(path: Path) -> None:
    """Remove what `replacing` left beside `path` in a process that was killed.

    Only for who is alone with it, under a lock: the draft of a living process is one, too.
    """
    draft = re.compile(rf"\.{re.escape(path.name)}\.(draft|[a-z0-9_]{{8}})")
    for entry in path.parent.iterdir():
        if draft.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def lock(path: str | os.PathLike[str], *, wait: bool = True, create: bool = True) -> int:
    """A handle that holds the lock of `path`, which is made if need be, until it is closed.

    The lock is the system's: one of a process that died is free. It is shared with forked
    processes, as the handle is; `unlock` ends it for all.

    Raises
    ------
    BlockingIOError
        Without `wait`, if it is another's.
    FileNotFoundError
        Without `create`, if there is no such file.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # pragma: no cover
        raise RuntimeError(f"{path} needs the file locks of a POSIX system (fcntl)") from None
    while True:
        handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # While this one waited, the file may have been removed, or replaced by another.
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def unlock(handle: int) -> None:
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _is_at(handle: int, path: str | os.PathLike[str]) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable_folder(name: str, folder: str | os.PathLike[str]) -> Path:
    """Create `folder`, but none above it, if need be and prove that a file can be written there.

    Raises
    ------
    ValueError
        Naming the argument `name`, if it cannot.
    OSError
        Naming the path, if the disk is full.
    """
    folder = Path(folder)

    def prove() -> None:
        folder.mkdir(exist_ok=True)
        _write_in(folder)

    return _check(name, "folder", folder, prove)


def check_writable_file(name: str, file: str | os.PathLike[str]) -> Path:
    """Prove that `file` can be written; its folder must exist.

    Raises
    ------
    ValueError
        Naming the argument `name`, if it cannot.
    OSError
        Naming the path, if the disk is full.
    """
    file = Path(file)

    def prove() -> None:
        if file.is_dir():
            raise OSError("that is a folder")
        _refuse_device(file)
        _write_in(file.parent)

    return _check(name, "file", file, prove)


def _check(name: str, kind: str, path: Path, prove: Callable[[], None]) -> Path:
    reason = _missing(path)
    if reason is None:
        try:
            prove()
        except OSError as error:
            if is_failure_of_disk(error):
                raise OSError(error.errno, error.strerror, str(path)) from None
            reason = error.strerror or str(error)
    if reason is not None:
        from .validation import ArgumentValueError

        raise ArgumentValueError(name, f"must be a {kind} to write to, got {path}: {reason}")
    return path


def _missing(path: Path) -> str | None:
    """That the folder around `path` is missing, in words; None if it is there."""
    folder = path.parent
    return None if folder.is_dir() else f"there is no folder {folder}"


def _write_in(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass
