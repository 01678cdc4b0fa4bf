"""Compilation without counting references, where arrays are only borrowed.

Numba counts the references to an array at every call and every name, with atomic operations that
it seldom gets rid of. Nearly all functions here take arrays and give numbers: what they are given
outlives them, and there is nothing to count. It would cost the kernels of small clients a tenth of
their time, and LLVM as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.core.compiler_machinery import register_pass
from numba.core.ir import Assign, Expr
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import _IntrinsicTemplate

#: Expressions that name what there is, or a part of it.
_NAMES = "build_tuple", "cast", "exhaust_iter", "getiter", "null", "pair_first", "phi"
#: Indices that take a view of an array; others copy what they choose.
_OF_VIEWS = types.Integer, types.SliceType, types.EllipsisType, types.NoneType
#: Intrinsics whose arrays are new ones.
_making: set[Any] = set()
#: Helpers that Numba compiles for itself within such functions, apart from all others.
_internal: dict[Any, Any] = {}


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


class _Lower(Lower):
    def lower(self) -> None:
        context = self.context
        if self._makes_arrays():
            super().lower()
            return
        before = context.nrt, context.cached_internal_func
        context.nrt, context.cached_internal_func = _Uncounted(context, True), _internal
        try:
            super().lower()
        finally:
            context.nrt, context.cached_internal_func = before

    def _makes_arrays(self) -> bool:
        """Whether arrays are returned, come from what may have made them, or lie in what may
        change hands: a list that is given one holds it longer than its caller does."""
        typemap = self.fndesc.typemap
        return (
            self._is_counted(self.fndesc.restype)
            or any(self._is_counted(kind) and not _is_borrowed(kind) for kind in typemap.values())
            or any(
                self._is_counted(typemap[assignment.target.name])
                and not self._borrows(assignment.value)
                for block in self.blocks.values()
                for assignment in block.find_insts(Assign)
            )
        )

    def _is_counted(self, kind: types.Type) -> bool:
        """Whether such values hold references."""
        return bool(self.context.data_model_manager[kind].contains_nrt_meminfo())

    def _borrows(self, value: Any) -> bool:
        """Whether a value that holds references is one that there was before."""
        if not isinstance(value, Expr) or value.op in _NAMES:
            return True
        typemap = self.fndesc.typemap
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
            issubclass(template, _IntrinsicTemplate)
            and getattr(template, "key", None) not in _making
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

    @property
    def lowering_class(self) -> Callable[..., Lower]:
        return _Lower
