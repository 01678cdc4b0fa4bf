"""How kernels are compiled: without work that ends in nothing.

Numba optimises every function for itself and makes machine code of it, and once more of each
function around it. For a helper that is always inlined nearly all of that is thrown away. Here its
code is kept as it was written, linked once into each kernel that needs it, directly or not, and
optimised there. What there is to do before, `_passes` has.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from llvmlite import binding
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import config as _config
from numba.core import typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.environment import lookup_environment

from ._passes import REPLACED, Passes, thrifty
from ._sources import is_ours
from ._uncounted import UncountedLowering

config: Any = _config  # its attributes come from the environment


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


class _Brief(_Library):
    """Code of a kernel that calls what takes time, and whose own loops are not unrolled."""

    def _optimize_final_module(self) -> None:
        options = binding.create_pipeline_tuning_options(speed_level=min(1, int(config.OPT)))
        options.loop_unrolling = False
        builder = binding.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)


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


@functools.cache
def _knowing(kind: Any) -> Any:
    """A kind of Numba's contexts, for which what it would look for again and again is known."""

    class Context(kind):  # type: ignore[misc]
        def get_abi_sizeof(self, of: Any) -> int:
            """Bytes of an LLVM type, for which Numba has LLVM read a module."""
            if of not in _sizes:
                _sizes[of] = of.get_abi_size(self.target_data)
            return _sizes[of]

        def get_function(self, function: Any, signature: Any, _firstcall: bool = True) -> Any:
            # What no array has is looked for in all that was registered since, once for each.
            again = _firstcall and function != "__array__"
            return super().get_function(function, signature, again)

    return Context


def _set_environments(library: Any) -> None:
    """Give the machine code of a kernel the environments of the helpers in it.

    Numbers that are raised become Python's by them. Numba does it for what is called from Python,
    and for what comes from a cache.
    """
    for variable in library._final_module.global_variables:
        environment = lookup_environment(variable.name)
        if environment is not None:
            library.codegen.set_env(variable.name, environment)


class KernelCompiler(Compiler):
    """Numba's compiler, for kernels."""

    library: type[JITCodeLibrary] = _Library
    passes: ClassVar[dict[Any, Any]] = REPLACED
    _ours: ClassVar[Passes | None] = None

    def compile_extra(self, func: Any) -> Any:
        context = self.state.targetctx
        kind: Any = type(context)
        codegen = context.codegen()
        self.state.library = self.library(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        context.__class__ = _knowing(kind)
        found = super().compile_extra(func)
        if not issubclass(self.library, _Optimised):
            _set_environments(found.library)
        return found

    def define_pipelines(self) -> Any:
        ours = is_ours(self.state.func_id.func)
        kind = type(self)
        if ours and kind._ours is not None:
            return [kind._ours]
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(self.passes.get(k, k), words) for k, words in pipeline.passes]
        if ours:
            kind._ours = thrifty(pipelines[0])
            return [kind._ours]
        return pipelines


class BriefCompiler(KernelCompiler):
    """The same, for kernels around what takes time: compiled in two thirds of the time."""

    library = _Brief


class InlinedCompiler(KernelCompiler):
    """The same, for helpers."""

    library: type[JITCodeLibrary] = _Linked
    _ours: ClassVar[Passes | None] = None
    passes: ClassVar[dict[Any, Any]] = {
        **REPLACED,
        typed_passes.NativeLowering: _LowerHelper,
    }


class OptimisedCompiler(InlinedCompiler):
    """The same, for helpers so large that they keep more in registers if optimised alone first."""

    library = _Optimised
    _ours: ClassVar[Passes | None] = None
