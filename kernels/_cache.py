"""A cache of compiled kernels that never serves stale machine code.

Numba keys its on-disk cache by the file that defines a function, so a change in a
callee, a constant or an option that lives in another file is silently missed. The
cache here is keyed by the contents of all the sources that a kernel can reach and,
entry by entry, by the signature, the processor, the bytecode, the closure and the
options in force. Each entry is one file that carries its whole key and a checksum and
is replaced atomically: there is no shared index, so processes that compile at the same
time cannot lose or exchange each other's work, and what a disk has damaged is compiled
again, with a line on standard error, rather than loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import logging
import os
import pickle
import shutil
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from numba.core import compiler, extending
from numba.core import config as _numba_config
from numba.core.caching import _Cache
from numba.core.serialize import dumps

from ._identity import StaleCode, own_identity, plain, value_identity
from ._sources import PACKAGE, sources
from ._uninterrupted import uninterrupted

config: Any = _numba_config  # its attributes come from the environment

#: The variable that names a folder of somebody's `NUMBA_CACHE_DIR`, which is read and not written.
_SHARED = "FEDEPM_FAST_KERNELS"
_BESIDE_SOURCES = PACKAGE / "__pycache__" / "fedepm_fast"
_FOLDERS_KEPT = 6
_FOLDER_IN_USE_SECONDS = 3600.0
_CHECKSUM_BYTES = 16
_OURS = __name__.removesuffix("_cache")

_log = logging.getLogger("fedepm_fast.kernels")


def _writable(folder: Path, *, private: bool) -> bool:
    """Whether files can be made in `folder`, and, if `private`, by nobody else."""
    try:
        folder.mkdir(mode=_mode(private), parents=True, exist_ok=True)
        # Entries are pickles: in a shared place, trust only a folder that is our own.
        if private and hasattr(os, "getuid"):
            status = folder.lstat()
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return False
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _mode(private: bool) -> int:
    """What others may do in a folder: what is beside the package serves all who can run it."""
    return 0o700 if private else 0o755


def _candidates() -> Iterator[tuple[Path, bool]]:
    """Where entries may be kept, best first, and whether that place must be our own."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / "fedepm_fast", False
        return
    yield _BESIDE_SOURCES, False
    with contextlib.suppress(RuntimeError):  # no home directory
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        elif sys.platform == "darwin":
            base = "~/Library/Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        yield Path(base).expanduser() / "fedepm_fast", True
    user = os.getuid() if hasattr(os, "getuid") else "user"
    with contextlib.suppress(OSError):  # no temporary directory
        yield Path(tempfile.gettempdir()) / f"fedepm_fast-{user}", True


class _Store:
    """Where this process keeps its entries, found once."""

    def __init__(self) -> None:
        self.sources = sources()
        self.roots: list[Path] = []
        self.writable = False
        self._mode = _mode(True)
        self._announced = False
        if self.sources is None:
            return
        for root, private in _candidates():
            if _writable(root, private=private):
                self.roots.append(root)
                self.writable, self._mode = True, _mode(private)
                break
        # What was compiled when the package was installed serves, even read-only.
        if not config.CACHE_DIR and _BESIDE_SOURCES not in self.roots:
            self.roots.append(_BESIDE_SOURCES)
        # Made for others, as an image of a container or the disk of a cluster has it.
        shared = os.environ.get(_SHARED)
        if shared:
            self.roots.append(Path(os.path.expanduser(shared)) / "fedepm_fast")
            if not os.access(self.roots[-1], os.R_OK | os.X_OK):
                _log.warning("%s names no compiled kernels that can be read: %s", _SHARED, shared)

    def read(self, folder: str, name: str) -> memoryview | None:
        for root in self.roots:
            path = root / folder
            try:
                data = (path / name).read_bytes()
            except OSError:
                continue
            entry = memoryview(data)[_CHECKSUM_BYTES:]
            if data[:_CHECKSUM_BYTES] != _checksum(entry):
                # Logged, not warned of: where warnings are errors it would stay as it is.
                _log.warning("a compiled kernel is damaged on disk: %s", path / name)
                continue
            if self.writable and root is self.roots[0]:
                with contextlib.suppress(OSError):
                    os.utime(path)  # in use, for _prune
            return entry
        return None

    def write(self, folder: str, name: str, data: bytes) -> None:
        if not self.writable:
            self.say_uncached("no folder for their cache can be written")
            return
        path = self.roots[0] / folder
        fresh = not path.exists()
        temporary = path / f"{name}.{uuid.uuid4().hex[:12]}.tmp"
        try:
            path.mkdir(mode=self._mode, parents=True, exist_ok=True)
            temporary.write_bytes(_checksum(data) + data)
            os.replace(temporary, path / name)
        except OSError as error:  # a full disk, or a file that another process has open
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            self.say_uncached(error)
        if fresh:
            _prune(path)

    def say_uncached(self, reason: object) -> None:
        if not self._announced:
            self._announced = True
            # No line of a program is at fault, as a warning would have it.
            _log.warning(
                "compiled kernels are not kept for the next process: %s; "
                "NUMBA_CACHE_DIR can name a writable folder",
                reason,
            )


def _checksum(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def _prune(newest: Path) -> None:
    """Delete the folders of the module's former sources, except the latest few."""
    module = newest.name.rpartition("-")[0]
    with contextlib.suppress(OSError):
        others = [p for p in newest.parent.glob(f"{module}-*") if p != newest]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for folder in others[_FOLDERS_KEPT - 1 :]:
            if time.time() - folder.stat().st_mtime > _FOLDER_IN_USE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _identity(value: Any) -> Any:
    """What stands for a closure variable in a key, equal in every process."""
    own = getattr(value, "_own_identity", None)
    if own is not None:  # a function of a loss, as it was when the loss was made
        return own
    if inspect.isfunction(plain(value)) and not _is_ours(plain(value)):
        return value_identity(value)
    if extending.is_jitted(value):
        options = tuple(sorted((k, repr(v)) for k, v in value.targetoptions.items()))
        return (_function_identity(value.py_func), options)
    if inspect.isfunction(value):
        return _function_identity(value)
    if isinstance(value, extending._Intrinsic):
        return _function_identity(value._defn)
    if isinstance(value, tuple):
        return tuple(_identity(item) for item in value)
    return hashlib.sha256(dumps(value)).hexdigest()


def _is_ours(function: Any) -> bool:
    """Whether a function is the package's, whose sources are in the key of what calls it."""
    return str(function.__module__).startswith(_OURS)


def _code_identity(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(
        _code_identity(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts
    )
    bytecode = hashlib.sha256(code.co_code).hexdigest()
    return (code.co_firstlineno, code.co_names, code.co_freevars, constants, bytecode)


def _function_identity(function: Any) -> tuple[Any, ...]:
    cells = tuple(_identity(c.cell_contents) for c in function.__closure__ or ())
    return (
        function.__module__,
        function.__qualname__,
        _code_identity(function.__code__),
        _identity(function.__defaults__ or ()),
        cells,
    )


def _options_in_force() -> tuple[Any, ...]:
    return (
        config.OPT,
        config.BOUNDSCHECK,
        config.LOOP_VECTORIZE,
        config.SLP_VECTORIZE,
        config.DEBUGINFO_DEFAULT,
    )


class KernelCache(_Cache):
    """Numba's cache interface for one function, over `_Store`."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        on_miss: Callable[[Any], None],
    ) -> None:
        self._function = function
        self._on_miss = on_miss
        self._options = tuple(sorted(options.items()))
        self._enabled = True
        self._own_file: str | None = None
        self._store = _store()
        path = Path(inspect.getfile(function)).resolve()
        self._module = path.name
        if PACKAGE in path.parents:
            self._module = path.relative_to(PACKAGE).as_posix()
        else:  # a kernel outside the package answers for its own file and all it reads as well
            try:
                self._own_file = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:  # typed at a prompt
                self._enabled = False
        if self._store.sources is None:
            self._enabled = False
            self._folder = ""
        else:
            stem = self._module.removesuffix(".py").replace("/", ".")
            self._folder = f"{stem}-{self._store.sources.digest(self._module)}"

    @property
    def cache_path(self) -> str | None:
        if not self._enabled or not self._store.roots:
            return None
        return str(self._store.roots[0] / self._folder)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        for root in self._store.roots[: self._store.writable]:
            for path in (root / self._folder).glob(f"{self._stem()}-*.jit"):
                path.unlink(missing_ok=True)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        result = self._load(sig, target_context) if self._trustworthy() else None
        if result is None:
            self._on_miss(self._function)
        return result

    def _trustworthy(self) -> bool:
        sources = self._store.sources
        return self._enabled and sources is not None and sources.unchanged(self._module)

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            key = self._key(sig, target_context.codegen())
        except StaleCode as error:
            raise StaleCode(f"{self._function.__qualname__} {error}") from None
        except TypeError:  # `save_overload` says so
            return None
        data = self._store.read(self._folder, self._name(key))
        if data is None:
            return None
        try:
            found, payload = pickle.loads(data)
            if found != key:
                return None
            with uninterrupted():
                return compiler.CompileResult._rebuild(target_context, *pickle.loads(payload))
        except Exception:  # written by something else: compile and replace it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if not self._trustworthy():
            return
        name = self._function.__qualname__
        if data.library.has_dynamic_globals or data.lifted:
            warnings.warn(f"{name} cannot be cached: it captures an address", stacklevel=2)
            return
        try:
            key = self._key(sig, data.library.codegen)
        except TypeError as error:
            warnings.warn(f"{name} cannot be cached: it {error}", stacklevel=2)
            return
        entry = dumps((key, dumps(data._reduce())))
        self._store.write(self._folder, self._name(key), entry)

    def _stem(self) -> str:
        plain = "".join(c for c in self._function.__qualname__ if c.isalnum() or c in "._")
        return plain[-80:]

    def _name(self, key: tuple[Any, ...]) -> str:
        return f"{self._stem()}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.jit"

    def _identity(self) -> Any:
        if self._own_file is None:
            return _function_identity(self._function)
        # When it is compiled and not before: globals may be set after its definition.
        return self._function.__module__, self._own_file, own_identity(self._function)

    def _key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (
            sig,
            codegen.magic_tuple(),
            self._identity(),
            self._options,
            _options_in_force(),
        )


@functools.cache
def _store() -> _Store:
    return _Store()


if not config.DISABLE_JIT:
    _store()  # read the sources before any kernel module is imported
