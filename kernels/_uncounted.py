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
from numba.core.ir import Expr
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import _IntrinsicTemplate

#: Expressions whose value may be a new array; others name a part of what there is.
_MAKERS = "call", "binop", "inplace_binop", "unary"
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
        """Whether arrays are returned, or come from what may have made them."""
        counted = self._is_counted
        return counted(self.fndesc.restype) or any(
            counted(called.return_type) and not self._borrows(expression)
            for expression, called in self.fndesc.calltypes.items()
            if isinstance(expression, Expr) and expression.op in _MAKERS
        )

    def _is_counted(self, kind: types.Type) -> bool:
        """Whether such values hold references."""
        return bool(self.context.data_model_manager[kind].contains_nrt_meminfo())

    def _borrows(self, expression: Expr) -> bool:
        if expression.op != "call":
            return False
        function = self.fndesc.typemap[expression.func.name]
        return isinstance(function, types.Function) and all(
            issubclass(template, _IntrinsicTemplate)
            and getattr(template, "key", None) not in _making
            for template in function.templates
        )


@register_pass(mutates_CFG=True, analysis_only=False)
class UncountedLowering(NativeLowering):
    """Numba's lowering, without what counts references that are only borrowed."""

    _name = "native_lowering_uncounted"

    @property
    def lowering_class(self) -> Callable[..., Lower]:
        return _Lower
