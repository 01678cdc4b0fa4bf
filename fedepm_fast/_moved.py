"""Modules by the paths that they had before they moved into folders.

Code, pickles and stored paths of earlier versions name them so. The old name is the module
itself, not a copy of it.
"""

from __future__ import annotations

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "fedepm_fast.aggregation": "fedepm_fast.federation.aggregation",
    "fedepm_fast.client": "fedepm_fast.federation.client",
    "fedepm_fast.loaders": "fedepm_fast.data.loaders",
    "fedepm_fast.own_losses": "fedepm_fast.losses.scalar",
    "fedepm_fast.partition": "fedepm_fast.data.partition",
    "fedepm_fast.privacy._client": "fedepm_fast.federation._private",
    "fedepm_fast.privacy._ledger": "fedepm_fast.federation._ledger",
    "fedepm_fast.privacy.mechanisms": "fedepm_fast.mechanisms",
    "fedepm_fast.privacy.released": "fedepm_fast.guarantees",
    "fedepm_fast.privacy.runs": "fedepm_fast.private_runs",
    "fedepm_fast.server": "fedepm_fast.federation.server",
    "fedepm_fast.sources": "fedepm_fast.data.sources",
    "fedepm_fast.synthetic": "fedepm_fast.data.synthetic",
}


def spec_of(name: str) -> ModuleSpec | None:
    """How to import a module by the name that it had; None if that is no such name."""
    return ModuleSpec(name, _Alias()) if name in MOVED else None


class _Alias(Loader):
    """Loads what is imported already; its own attributes stay those of the new name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(MOVED[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
