"""Writing files so that a crash leaves the old one, or none, and never half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends without error."""
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes a private file; a result is an ordinary one.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable_folder(name: str, folder: str | os.PathLike[str]) -> Path:
    """Create `folder` if need be and prove that a file can be written there.

    Raises
    ------
    ValueError
        Naming the argument `name`, if it cannot.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{name} must be a folder to write to, got {folder}: {reason}") from None
    return folder
