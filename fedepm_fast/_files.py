"""Writing files so that a crash leaves the old one, or none, and never half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends without error.

    With `durable`, what was written is on the disk, and under its name, when this returns: it
    survives a loss of power.

    Raises
    ------
    OSError
        Naming `path`, before the block: a folder, or one in a folder that does not exist or
        cannot be written to.
    """
    path = Path(path)
    reason = _missing(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write to")
    if reason is not None:
        raise FileNotFoundError(f"{path} cannot be written: {reason}")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes a private file; a result is an ordinary one.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        if durable:
            sync(temporary)
        temporary.replace(path)
        if durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
    """
    file = Path(file)

    def prove() -> None:
        if file.is_dir():
            raise OSError("that is a folder")
        _write_in(file.parent)

    return _check(name, "file", file, prove)


def _check(name: str, kind: str, path: Path, prove: Callable[[], None]) -> Path:
    reason = _missing(path)
    if reason is None:
        try:
            prove()
        except OSError as error:
            reason = error.strerror or str(error)
    if reason is not None:
        raise ValueError(f"{name} must be a {kind} to write to, got {path}: {reason}")
    return path


def _missing(path: Path) -> str | None:
    """That the folder around `path` is missing, in words; None if it is there."""
    folder = path.parent
    return None if folder.is_dir() else f"there is no folder {folder}"


def _write_in(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass
