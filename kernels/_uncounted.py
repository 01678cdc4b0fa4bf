"""Compilation without counting references, where arrays are only borrowed.

Numba counts the references to an array at every call and every name, with atomic operations that
it seldom gets rid of. Nearly all functions here take arrays and give numbers: what they are given
outlives them, and there is nothing to count. It would cost the kernels of small clients a tenth of
their time, and LLVM as much.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.core.compiler_machinery import register_pass
from numba.core.ir import UNDEFINED, Arg, Assign, Del, Expr, StaticSetItem
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import _IntrinsicTemplate

from ._shorter import ShortLower

#: Expressions that name what there is, or a part of it.
_NAMES = "build_tuple", "cast", "exhaust_iter", "getiter", "null", "pair_first", "phi"
#: Indices that take a view of an array; others copy what they choose.
_OF_VIEWS = types.Integer, types.SliceType, types.EllipsisType, types.NoneType
#: Intrinsics whose arrays are new ones.
_making: set[Any] = set()
#: Helpers that Numba compiles for itself within such functions, apart from all others.
_internal: dict[Any, Any] = {}
#: Signatures of operators and the types that they are given.
_resolved: dict[Any, Any] = {}


def makes_arrays(intrinsic: Any) -> Any:
    """Register an intrinsic whose arrays are new ones: where it is called, references count."""
    _making.add(intrinsic)
    return intrinsic


class _Uncounted(NRTContext):
    """What emits nothing where references would be counted."""

    def incref(self, *args: Any) -> None:
        pass

    def decref(self, *args: Any) -> None:
        pass

    def meminfo_alloc_aligned(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("an intrinsic that makes arrays is not registered by makes_arrays")


class _Lower(ShortLower):
    """Numba's lowering, where no reference is to be counted."""

    def lower(self) -> None:
        context = self.context
        before = context.nrt, context.cached_internal_func
        context.nrt, context.cached_internal_func = _Uncounted(context, True), _internal
        try:
            super().lower()
        finally:
            context.nrt, context.cached_internal_func = before

    def delvar(self, name: str) -> None:
        """Nothing: what a variable holds is not looked at again."""

    def lower_inst(self, inst: Any) -> None:
        """As Numba does it, which writes each statement as text as well."""
        if isinstance(inst, Assign) and not isinstance(inst.value, Arg):
            name = inst.target.name
            self.storevar(self.lower_assign(self.typeof(name), inst), name)
        elif isinstance(inst, StaticSetItem) and isinstance(
            self.typeof(inst.target.name), types.Array
        ):
            signature = self.fndesc.calltypes[inst]
            self.lower_setitem(inst.target, inst.index_var, inst.value, signature)
        elif not isinstance(inst, Del):
            super().lower_inst(inst)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        if not (expr.static_lhs is expr.static_rhs is UNDEFINED):
            return super().lower_binop(resty, expr, op)
        found = self._call(op, signature, expr.lhs, expr.rhs)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        found = self.item(signature, value, index)
        if found is None:
            found = self._call(operator.getitem, signature, value, index)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_setitem(self, target: Any, index: Any, value: Any, signature: Any) -> None:
        if not self.set_item(signature, target, index, value):
            self._call(operator.setitem, signature, target, index, value)

    def _call(self, operation: Any, signature: Any, *variables: Any) -> Any:
        """An operator's value, whose function was looked for when the types were inferred."""
        context = self.context
        typing = context.typing_context
        function = typing.resolve_value_type(operation)
        asked = function, signature.args
        if asked not in _resolved:
            _resolved[asked] = function.get_call_type(typing, signature.args, {})
        values = (
            context.cast(self.builder, self.loadvar(of.name), self.typeof(of.name), kind)
            for of, kind in zip(variables, signature.args, strict=True)
        )
        return context.get_function(function, _resolved[asked])(self.builder, tuple(values))


def counts_references(context: Any, ir: Any, typemap: Any, returned: types.Type) -> bool:
    """Whether arrays are returned, come from what may have made them, or lie in what may
    change hands: a list that is given one holds it longer than its caller does."""
    kinds = {name: kind for name, kind in typemap.items() if _is_counted(context, kind)}
    return (
        _is_counted(context, returned)
        or any(not _is_borrowed(kind) for kind in kinds.values())
        or any(
            assignment.target.name in kinds and not _borrows(typemap, assignment.value)
            for block in ir.blocks.values()
            for assignment in block.find_insts(Assign)
        )
    )


_counted: dict[types.Type, bool] = {}


def _is_counted(context: Any, kind: types.Type) -> bool:
    """Whether such values hold references."""
    if kind not in _counted:
        _counted[kind] = bool(context.data_model_manager[kind].contains_nrt_meminfo())
    return _counted[kind]


def _borrows(typemap: Any, value: Any) -> bool:
    """Whether a value that holds references is one that there was before."""
    if not isinstance(value, Expr) or value.op in _NAMES:
        return True
    if value.op == "getattr":
        owner = typemap[value.value.name]
        lends = isinstance(owner, types.BaseTuple) or getattr(owner, "lends", False)
        return bool(lends) or value.attr == "T"
    if value.op in ("getitem", "static_getitem"):
        index = value.index if value.op == "getitem" else value.index_var
        if index is None:
            return isinstance(value.index, int | slice)
        return _is_view(typemap[index.name])
    if value.op != "call":
        return False
    function = typemap[value.func.name]
    return isinstance(function, types.Function) and all(
        issubclass(template, _IntrinsicTemplate) and getattr(template, "key", None) not in _making
        for template in function.templates
    )


def _is_borrowed(kind: types.Type) -> bool:
    """Whether values of a type hold arrays and nothing that could be given others."""
    if isinstance(kind, types.BaseTuple):
        return all(_is_borrowed(of) for of in kind)  # type: ignore[attr-defined]
    return isinstance(kind, types.Array | types.ArrayIterator)


def _is_view(index: types.Type) -> bool:
    if isinstance(index, types.BaseTuple):
        return all(_is_view(of) for of in index)  # type: ignore[attr-defined]
    return isinstance(index, _OF_VIEWS)


@register_pass(mutates_CFG=True, analysis_only=False)
class UncountedLowering(NativeLowering):
    """Numba's lowering, without what counts references that are only borrowed."""

    _name = "native_lowering_uncounted"

    counts = True

    def run_pass(self, state: Any) -> bool:
        self.counts = counts_references(
            state.targetctx, state.func_ir, state.typemap, state.return_type
        )
        return bool(super().run_pass(state))

    @property
    def lowering_class(self) -> Callable[..., Lower]:
        return Lower if self.counts else _Lower
