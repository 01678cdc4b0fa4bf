"""What there is by name: losses, algorithms, mechanisms, datasets, and a user's own beside them.

A built-in thing is one file of its package, named after it; that the file is there is its
registration. A user's own registers itself where it is defined. Names are known without
importing anything.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """The things of one kind by name, built-in ones first; each file is imported when asked for.

    Parameters
    ----------
    kind : str
        What they are, in the singular, for error messages.
    package : str
        The package whose modules without underscore define one each, and register it under the
        module's name.
    without : tuple of str, optional
        Modules of it that are no such thing.
    """

    def __init__(self, kind: str, package: str, without: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self._package = package
        self._without = without
        self._found: dict[str, T] = {}
        self._files: tuple[str, ...] | None = None

    def add(self, name: str, thing: T) -> None:
        """Register `thing`. A name is one thing's; the same definition, run again, replaces it."""
        before = self._found.get(name)
        if before is None and name in self.built_in():
            module = f"{self._package}.{name}"
            if getattr(thing, "__module__", module) != module:
                before = self[name]
        if before is not None and _origin(before) != _origin(thing):
            raise ValueError(f"{name!r} names another {self.kind}, of {_origin(before)[0]}")
        self._found[name] = thing

    def built_in(self) -> tuple[str, ...]:
        """Names of the built-in ones, in alphabetical order."""
        if self._files is None:
            spec = find_spec(self._package)
            folders = spec.submodule_search_locations if spec else None
            names = (module.name for module in pkgutil.iter_modules(folders))
            self._files = tuple(
                sorted(name for name in names if name[0] != "_" and name not in self._without)
            )
        return self._files

    def __getitem__(self, name: str) -> T:
        if name not in self._found and name in self.built_in():
            importlib.import_module(f"{self._package}.{name}")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys((*self.built_in(), *self._found))

    def __len__(self) -> int:
        return sum(1 for _ in self)  # a list of it would ask for its length

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self.built_in()


def _origin(thing: Any) -> tuple[str, str]:
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))


LOSSES: Registry[Any] = Registry("objective", "fedepm_fast.losses", without=("scalar",))
