"""Numba's passes over a function, without those, and those parts, that end in nothing here.

Functions of the package have no closures, generators, contexts or array expressions, and are typed
by their arguments alone. Functions of a user's go through all of Numba's passes.
"""

from __future__ import annotations

import math
from types import BuiltinFunctionType
from typing import Any, ClassVar

import numpy as np
from numba.core import typed_passes, types, untyped_passes
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.rewrites import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.transforms import canonicalize_cfg

from ._extremes import EXTREMES
from ._sources import is_ours
from ._uncounted import UncountedLowering, counts_references

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
    "NoPythonSupportedFeatureValidation",
)
_IDLE_PASSES = {
    getattr(module, name, None) for module in (untyped_passes, typed_passes) for name in _IDLE
}


# Types ------------------------------------------------------------------------------------


class _Typing:
    """Numba's typing context, which remembers what operators and functions make of which types."""

    _known: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any, ours: bool) -> None:
        self._context, self._ours = context, ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_value_type(self, value: Any) -> Any:
        """As Numba does it, which takes a function for one that others may extend."""
        if not (self._ours and isinstance(value, BuiltinFunctionType)):
            return self._context.resolve_value_type(value)
        return self._once("resolve_value_type", EXTREMES.get(value, value))

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(func, types.Function):
            return self._context.resolve_function_type(func, args, kws)
        return self._once("resolve_function_type", func, tuple(args), kws=kws)

    def resolve_getattr(self, kind: Any, attribute: Any) -> Any:
        if isinstance(kind, types.Module) and kind.pymod not in (math, np):
            # What a name in a module of a user's stands for may change: it is reloaded, say.
            return self._context.resolve_getattr(kind, attribute)
        return self._once("resolve_getattr", kind, attribute)

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        return self._once("resolve_setitem", target, index, value)

    def resolve_static_getitem(self, value: Any, index: Any) -> Any:
        if not isinstance(index, int):
            return self._context.resolve_static_getitem(value, index)
        return self._once("resolve_static_getitem", value, index)

    def _once(self, name: str, *asked: Any, **none: Any) -> Any:
        words = name, *asked
        found = self._known.get(words)
        if found is None:
            found = getattr(self._context, name)(*asked, **none)
            if found is not None:
                self._known[words] = found
        return found


@register_pass(mutates_CFG=True, analysis_only=False)
class InferTypes(typed_passes.NopythonTypeInference):
    """Type inference that asks once what it would ask hundreds of times."""

    _name = "fedepm_fast_infer_types"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Typing(context, is_ours(state.func_id.func))
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


# Numba's intermediate code ----------------------------------------------------------------
#
# After each of these Numba computes which variables live where. Generators need that, and `del`
# statements, where references are counted.


@register_pass(mutates_CFG=True, analysis_only=False)
class _Canonical(untyped_passes.IRProcessing):
    """Loops with one way back each."""

    _name = "fedepm_fast_canonical"

    def run_pass(self, state: Any) -> bool:
        state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Rewrite(untyped_passes.GenericRewrites):
    """Numba's rewriting of constant indices and errors, block by block, until nothing changes."""

    _name = "fedepm_fast_rewrite"

    def run_pass(self, state: Any) -> bool:
        ir = state.func_ir
        for kind in rewrite_registry.rewrites["before-inference"]:
            rewrite = kind(state)
            for label, block in tuple(ir.blocks.items()):
                while rewrite.match(ir, block, state.typemap, state.calltypes):
                    ir.blocks[label] = block = rewrite.apply()
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _OneAssignment(untyped_passes.ReconstructSSA):
    """A variable for each assignment."""

    _name = "fedepm_fast_one_assignment"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _StripPhis(typed_passes.PreLowerStripPhis):
    """Assignments where blocks end, in place of those where they meet."""

    _name = "fedepm_fast_strip_phis"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=True)
class _Legalize(typed_passes.IRLegalization):
    """`del` statements, where anything is to be done about the end of a variable."""

    _name = "fedepm_fast_legalize"

    def run_pass(self, state: Any) -> bool:
        if counts_references(state.targetctx, state.func_ir, state.typemap, state.return_type):
            return bool(super().run_pass(state))
        state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)
        return True


#: What is run in place of which pass, for any function and for those of the package.
REPLACED: dict[Any, Any] = {
    typed_passes.NopythonTypeInference: InferTypes,
    typed_passes.NativeLowering: UncountedLowering,
}
REPLACED_HERE: dict[Any, Any] = {
    untyped_passes.IRProcessing: _Canonical,
    untyped_passes.GenericRewrites: _Rewrite,
    untyped_passes.ReconstructSSA: _OneAssignment,
    typed_passes.PreLowerStripPhis: _StripPhis,
    typed_passes.IRLegalization: _Legalize,
}


class Passes(PassManager):
    """Some passes, one after the other: without clocks, events and dumps for each."""

    def _runPass(self, index: int, pass_: Any, state: Any) -> None:
        pass_.analysis = self._analysis
        pass_.run_initialization(state)
        pass_.run_pass(state)
        pass_.run_finalizer(state)


def thrifty(pipeline: PassManager) -> Passes:
    """A pipeline of Numba's, for functions of the package."""
    found = Passes(pipeline.pipeline_name)
    found.passes = [
        (REPLACED_HERE.get(kind, kind), words)
        for kind, words in pipeline.passes
        if kind not in _IDLE_PASSES
    ]
    found.finalize()
    return found
