"""A compiler for helpers that are always inlined: they are optimised where they end up, once.

Numba optimises every function and makes machine code of it, also of those that nothing calls but
other compiled functions, and does so again, inlining and all, for each that calls them.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Codegen:
    """That of a library without machine code, and so without a place for an environment."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Nothing: only what can raise objects, print or call Python looks for one."""


class _Library(JITCodeLibrary):
    """Code to be linked into other libraries, as it was written."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class InlinedCompiler(Compiler):
    """Compiles as far as to what is inlined."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *arguments: Any) -> None:
        super().__init__(typingctx, targetctx, library, *arguments)
        if library is None:
            name = self.state.func_id.func_qualname if self.state.func_id else "device"
            self.state.library = _Library(targetctx.codegen(), name)
