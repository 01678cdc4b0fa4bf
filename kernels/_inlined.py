"""How helpers are compiled that exist only within the kernels that call them.

Numba optimises every function for itself and makes machine code of it, and once more of each
function around it. For a helper that is always inlined nearly all of that is thrown away. Here its
code is only linked, and optimised where it ends.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Optimised(JITCodeLibrary):
    """Code of one helper, of which no machine code is made."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        # What Numba fills in, the environment of Python objects, must have an address.
        names = (str(v) for v in self._final_module.global_variables if "NumbaEnv" in v.name)
        self._codegen._add_module(binding.parse_assembly("\n".join(names)))
        self._codegen._engine.finalize_object()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class _Linked(_Optimised):
    """The same, as it is written: optimised with the kernel alone."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass


class InlinedCompiler(Compiler):
    """Numba's compiler, for helpers."""

    library: type[JITCodeLibrary] = _Linked

    def compile_extra(self, func: Any) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = self.library(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class OptimisedCompiler(InlinedCompiler):
    """The same, for helpers so large that they keep more in registers if optimised alone first."""

    library = _Optimised
