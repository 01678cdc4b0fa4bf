"""The kernels' sources as hashes: what machine code of a module depends on."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy
from numba.core import config as _numba_config

config: Any = _numba_config

PACKAGE = Path(__file__).resolve().parent
_OPTIONS_FILE = "_jit.py"  # every kernel depends on its decorators

_IMPORT = re.compile(r"^[ \t]*(?:from|import)\b(?:[^\n(#]*\([^)]*\)|[^\n]*)", re.MULTILINE)


def is_ours(function: Any) -> bool:
    """Whether a Python function is the package's."""
    return str(function.__module__).partition(".")[0] == __name__.partition(".")[0]


class Sources:
    """The kernel sources as they were when this process began to import them.

    A kernel answers for its own module and for every module of the package that it
    imports, directly or not: an edit elsewhere need not compile it again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stats = {name: self._stat(name) for name in self._names()}
        if not self._stats:  # an archive, or compiled files alone
            raise FileNotFoundError(f"no sources in {folder}")
        self._texts = {name: (folder / name).read_bytes() for name in self._stats}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._digests: dict[str, str] = {}

    def _names(self) -> list[str]:
        return sorted(p.relative_to(self._folder).as_posix() for p in self._folder.rglob("*.py"))

    def _stat(self, name: str) -> tuple[int, int]:
        status = (self._folder / name).stat()
        return status.st_mtime_ns, status.st_size

    def needs(self, name: str) -> tuple[str, ...]:
        """The files that machine code of module `name` depends on."""
        if name not in self._texts:  # defined elsewhere: it may import anything
            return tuple(self._texts)
        if name not in self._needs:
            by_word: dict[str, list[str]] = {}
            for file in self._texts:
                for part in file.removesuffix(".py").split("/"):
                    by_word.setdefault(part, []).append(file)
            found, pending = set(), [name, _OPTIONS_FILE]
            while pending:
                file = pending.pop()
                if file in found:
                    continue
                found.add(file)
                for statement in _IMPORT.findall(self._texts[file].decode()):
                    for word in re.findall(r"\w+", statement):
                        pending.extend(by_word.get(word, ()))
            self._needs[name] = tuple(sorted(found))
        return self._needs[name]

    def digest(self, name: str) -> str:
        """A hash of all of these, and of the versions that compile them."""
        if name not in self._digests:
            digest = hashlib.blake2b(digest_size=12)
            versions = numba.__version__, llvmlite.__version__, numpy.__version__
            for version in (sys.version, *versions):
                digest.update(version.encode() + b"\0")
            for file in self.needs(name):
                digest.update(file.encode() + b"\0" + self._texts[file] + b"\0")
            self._digests[name] = digest.hexdigest()
        return self._digests[name]

    def unchanged(self, name: str) -> bool:
        """Whether the files on disk are still those that were hashed.

        A process that an edit overtakes holds code that may match neither the old
        digest nor the new one; it must not read or write the cache.
        """
        try:
            return all(self._stat(file) == self._stats[file] for file in self.needs(name))
        except OSError:
            return False


@functools.cache
def sources() -> Sources | None:
    """The sources of this package; None where there are none, and so no key and no cache."""
    try:
        return Sources(PACKAGE)
    except OSError:
        return None


def source_digest(module: str) -> str:
    """A hash of all that the code of a module here depends on; empty without a cache to key."""
    found = None if config.DISABLE_JIT else sources()
    return "" if found is None else found.digest(module.replace(".", "/") + ".py")
