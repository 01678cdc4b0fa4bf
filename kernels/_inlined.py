"""How kernels are compiled: without work that ends in nothing.

Numba optimises every function for itself and makes machine code of it, and once more of each
function around it. For a helper that is always inlined nearly all of that is thrown away. Here its
code is kept as it was written, linked once into each kernel that needs it, directly or not, and
optimised there. And passes over what no kernel has, such as array expressions, are left out.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass

from ._uncounted import UncountedLowering

_OURS = __name__.partition(".")[0]

#: Passes for what no function of the package has: closures and contexts, functions that are
#: inlined before their types are known, array expressions, literals that types depend on.
_IDLE = (
    "WithLifting",
    "InlineClosureLikes",
    "MakeFunctionToJitFunction",
    "InlineInlinables",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "InlineOverloads",
    "NopythonRewrites",
)
_IDLE_PASSES = {
    getattr(module, name, None) for module in (untyped_passes, typed_passes) for name in _IDLE
}


# What is linked ---------------------------------------------------------------------------


class _Library(JITCodeLibrary):
    """Code of a kernel, into which every helper is linked once."""

    def add_linking_library(self, library: Any) -> None:
        if not isinstance(library, _Linked):
            super().add_linking_library(library)
            return
        for part in library.parts:
            if part not in self._linking_libraries:
                self._linking_libraries.append(part)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes = self._codegen._module_pass_manager()
        if isinstance(passes, tuple):  # with the builder that Numba's newer passes run by
            passes[0].run(self._final_module, passes[1])
        else:
            passes.run(self._final_module)


class _Optimised(_Library):
    """Code of one helper, of which no machine code is made."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Linked(_Optimised):
    """The same, as it is written: optimised with the kernel alone."""

    _parts: tuple[Any, ...] = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """What to link for it: callers first, for LLVM leaves out what nobody calls yet."""
        if not self._parts:
            for function in self._final_module.functions:
                if not function.is_declaration:
                    function.linkage = "linkonce_odr"
            self._parts = _Part(self), *self._linking_libraries
        return self._parts

    def _optimize_final_module(self) -> None:
        pass


class _Part:
    """The code of one helper, without that of the helpers that it calls."""

    def __init__(self, library: _Linked) -> None:
        self._module = library._final_module
        self._reload_init: Any = getattr(library, "_reload_init", ())  # Numba 0.61 has none

    def _get_module_for_linking(self) -> Any:
        return self._module


# How it is compiled -----------------------------------------------------------------------


class _Typing:
    """Numba's typing context, which remembers what operators and functions make of which types."""

    _known: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(func, types.Function):
            return self._context.resolve_function_type(func, args, kws)
        call = func, tuple(args)
        found = self._known.get(call)
        if found is None:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                self._known[call] = found
        return found


@register_pass(mutates_CFG=True, analysis_only=False)
class _InferTypes(typed_passes.NopythonTypeInference):
    """Type inference that asks once what it would ask hundreds of times."""

    _name = "fedepm_fast_infer_types"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Typing(context)
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerHelper(UncountedLowering):
    """Lowering without machine code: the function can be called from compiled code alone."""

    _name = "fedepm_fast_lower_helper"

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        described = lowered.fndesc
        entry = _dynfunc.make_function(
            described.lookup_module(), described.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(entry, described, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


_sizes: dict[Any, int] = {}


def _size(context: Any, kind: Any) -> int:
    """Bytes of an LLVM type, for which Numba has LLVM read a module, variable by variable."""
    if kind not in _sizes:
        _sizes[kind] = kind.get_abi_size(context.target_data)
    return _sizes[kind]


class KernelCompiler(Compiler):
    """Numba's compiler, for kernels."""

    library: type[JITCodeLibrary] = _Library
    passes: ClassVar[dict[Any, Any]] = {
        typed_passes.NopythonTypeInference: _InferTypes,
        typed_passes.NativeLowering: UncountedLowering,
    }
    """What is run in place of which pass."""

    def compile_extra(self, func: Any) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = self.library(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        self.state.targetctx.get_abi_sizeof = functools.partial(_size, self.state.targetctx)
        return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        ours = str(self.state.func_id.modname).startswith(_OURS)
        for pipeline in pipelines:
            pipeline.passes = [
                (self.passes.get(kind, kind), words)
                for kind, words in pipeline.passes
                if not (ours and kind in _IDLE_PASSES)
            ]
        return pipelines


class InlinedCompiler(KernelCompiler):
    """The same, for helpers."""

    library: type[JITCodeLibrary] = _Linked
    passes: ClassVar[dict[Any, Any]] = {
        **KernelCompiler.passes,
        typed_passes.NativeLowering: _LowerHelper,
    }


class OptimisedCompiler(InlinedCompiler):
    """The same, for helpers so large that they keep more in registers if optimised alone first."""

    library = _Optimised
