"""Numba types for explicit vectors, lowered to LLVM's ``<n x T>``, and their operators.

A vector is 64 bytes: 8 lanes of a 64-bit element or 16 lanes of a 32-bit one. LLVM maps
it to one AVX-512 register, two AVX ones or four of SSE/NEON, so that the same source
gives the same lanes, and the same bits where no fma is contracted, on every machine.
A mask has one bit a lane. The operations that are not operators are in `_memory`, `_registers`,
`_arithmetic` and `_lanes`; kernels import them from `_simd`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel, register_default
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin

from .._jit import JIT_DISABLED
from . import _python as _simd_python

VECTOR_BYTES = 64


class VectorType(types.Type):
    """`lanes` values of a Numba number type, 64 bytes of them or those of a register."""

    def __init__(self, element: Any, size: int = VECTOR_BYTES) -> None:
        self.element = element
        self.lanes: int = size * 8 // element.bitwidth
        super().__init__(name=f"{element}x{self.lanes}")


class MaskType(types.Type):
    """`lanes` truth values."""

    def __init__(self, lanes: int) -> None:
        self.element: Any = types.boolean
        self.lanes = lanes
        super().__init__(name=f"mask{lanes}")


_ELEMENTS = (
    types.float64,
    types.float32,
    types.int64,
    types.int32,
    types.uint64,
    types.uint32,
)
VECTORS = {element: VectorType(element) for element in _ELEMENTS}


def vector_like(like):
    """The vector type that `splat` makes of the same argument."""
    if isinstance(like, VectorType):
        return like
    if isinstance(like, types.Array):
        return VECTORS.get(like.dtype)
    return VECTORS.get(types.unliteral(like))


def llvm_element(element):
    """The LLVM type of one lane."""
    if element == types.boolean:
        return ir.IntType(1)
    if element == types.float64:
        return ir.DoubleType()
    if element == types.float32:
        return ir.FloatType()
    return ir.IntType(element.bitwidth)


def llvm_vector(kind):
    """The LLVM type of a `VectorType` or `MaskType`."""
    return ir.VectorType(llvm_element(kind.element), kind.lanes)


@register_default(VectorType)
@register_default(MaskType)
class _VectorModel(PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, llvm_vector(fe_type))


def is_float(kind):
    """Whether `kind` is a vector of floating-point lanes."""
    return isinstance(kind, VectorType) and isinstance(kind.element, types.Float)


def is_int(kind):
    """Whether `kind` is a vector of integer lanes."""
    return isinstance(kind, VectorType) and isinstance(kind.element, types.Integer)


def splat(builder: Any, value: ir.Value, kind: Any) -> ir.Value:
    """A vector of type `kind` with the scalar `value` in each lane."""
    vector = llvm_vector(kind)
    one = builder.insert_element(
        ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    first = ir.Constant(ir.VectorType(ir.IntType(32), kind.lanes), None)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), first)


def is_floating(kind):
    """Whether `kind` is a floating-point vector or scalar."""
    return is_float(kind) or isinstance(kind, types.Float)


def llvm_type(kind):
    """The LLVM type of a vector, mask or scalar."""
    if isinstance(kind, (VectorType, MaskType)):
        return llvm_vector(kind)
    return llvm_element(kind)


def constant(kind, value):
    """`value` in every lane of a vector, or as a scalar."""
    if isinstance(kind, VectorType):
        return ir.Constant(llvm_vector(kind), [value] * kind.lanes)
    return ir.Constant(llvm_type(kind), value)


def compare(builder: Any, kind: Any, symbol: str, left: ir.Value, right: ir.Value) -> ir.Value:
    """Compare two vectors or scalars; as in Python, for NaN only ``!=`` holds."""
    if is_floating(kind):
        emit = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
    else:
        signed = getattr(kind, "element", kind).signed
        emit = builder.icmp_signed if signed else builder.icmp_unsigned
    return emit(symbol, left, right)


def pick_lanes(builder: Any, value: ir.Value, start: int, count: int) -> ir.Value:
    """`count` lanes of `value` from `start` on."""
    picks = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(start, start + count)))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), picks)


def concatenate(builder: Any, parts: list[ir.Value]) -> ir.Value:
    """One vector of the lanes of 1, 2, 4, ... of the same type."""
    while len(parts) > 1:
        lanes = 2 * parts[0].type.count
        order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(lanes)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.shuffle_vector(*pair, order) for pair in pairs]
    return parts[0]


def operation(typer: Callable[..., Any]) -> Any:
    """The intrinsic that `typer` describes, or without compilation its NumPy twin."""
    if JIT_DISABLED:
        return getattr(_simd_python, typer.__name__)
    return intrinsic(typer)


def processor_features(context: Any) -> list[str]:
    """What the processor that code is made for has, as LLVM spells it."""
    return (context.codegen().magic_tuple()[2] or "").split(",")


def is_x86(context: Any) -> bool:
    """Whether code is made for a processor of that family."""
    return bool(context.codegen().magic_tuple()[0].startswith(("x86_64", "i686", "i386")))


def call_intrinsic(builder: Any, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    """A call of the LLVM intrinsic of that full name."""
    declaration = ir.FunctionType(result, [a.type for a in arguments])
    function = cgutils.get_or_insert_function(builder.module, declaration, name)
    return builder.call(function, arguments)


def suffix(kind):
    """The name of a type within LLVM's intrinsics: ``v8f64``, ``f32``, ..."""
    element: Any = getattr(kind, "element", kind)
    lanes = f"v{kind.lanes}" if isinstance(kind, (VectorType, MaskType)) else ""
    if element == types.boolean:
        return f"{lanes}i1"
    return f"{lanes}{'f' if isinstance(element, types.Float) else 'i'}{element.bitwidth}"


# ---------------------------------------------------------------------------------
# Operators
# ---------------------------------------------------------------------------------


def _operands(args: tuple[Any, ...], accepted: Any) -> tuple[Any, Any] | None:
    """The types of a binary operation's operands; a scalar takes the vector's element."""
    if len(args) != 2:
        return None
    vector = args[0] if isinstance(args[0], VectorType) else args[1]
    if not isinstance(vector, VectorType) or not accepted(vector):
        return None
    for other in args:
        if other == vector:
            continue
        exact = types.Integer if is_int(vector) else (types.Integer, types.Float)
        if not isinstance(other, exact):
            return None
    return tuple(a if a == vector else vector.element for a in args)  # type: ignore[return-value]


def _register(op, accepted, result, emit):
    """Give `op` a meaning for two vectors, and for a vector and a scalar."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        operands = _operands(args, accepted)
        if operands is None or kws:
            return None
        vector = next(a for a in operands if isinstance(a, VectorType))
        return signature(result(vector), *operands)

    template = type(f"Vector_{op.__name__}", (AbstractTemplate,), {"generic": generic})
    infer_global(op)(template)

    def lower(context, builder, sig, args):
        vector = next(a for a in sig.args if isinstance(a, VectorType))
        left, right = (
            value if isinstance(kind, VectorType) else splat(builder, value, vector)
            for kind, value in zip(sig.args, args, strict=True)
        )
        return emit(builder, vector, left, right)

    lower_builtin(op, VectorType, VectorType)(lower)
    lower_builtin(op, VectorType, types.Number)(lower)
    lower_builtin(op, types.Number, VectorType)(lower)


def _either(float_name: str, int_name: str) -> Any:
    def emit(builder, kind, left, right):
        return getattr(builder, float_name if is_float(kind) else int_name)(left, right)

    return emit


def _shift_right(builder, kind, left, right):
    return (builder.ashr if kind.element.signed else builder.lshr)(left, right)


def _comparison(symbol: str) -> Any:
    return lambda builder, kind, left, right: compare(builder, kind, symbol, left, right)


def _same(kind):
    return kind


def _mask(kind):
    return MaskType(kind.lanes)


def _any_vector(kind):
    return True


for _op, _inplace, _accepted, _emit in (
    (operator.add, operator.iadd, _any_vector, _either("fadd", "add")),
    (operator.sub, operator.isub, _any_vector, _either("fsub", "sub")),
    (operator.mul, operator.imul, _any_vector, _either("fmul", "mul")),
    (operator.truediv, operator.itruediv, is_float, _either("fdiv", "fdiv")),
    (operator.and_, operator.iand, is_int, _either("and_", "and_")),
    (operator.or_, operator.ior, is_int, _either("or_", "or_")),
    (operator.xor, operator.ixor, is_int, _either("xor", "xor")),
    (operator.lshift, operator.ilshift, is_int, _either("shl", "shl")),
    (operator.rshift, operator.irshift, is_int, _shift_right),
):
    _register(_op, _accepted, _same, _emit)
    _register(_inplace, _accepted, _same, _emit)

for _op, _symbol in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _register(_op, _any_vector, _mask, _comparison(_symbol))


def _register_mask(op: Any, name: str) -> None:
    def generic(self: Any, args: Any, kws: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], MaskType) and args[0] == args[1]:
            return signature(args[0], *args)
        return None

    infer_global(op)(type(f"Mask_{name}", (AbstractTemplate,), {"generic": generic}))

    @lower_builtin(op, MaskType, MaskType)
    def lower(context, builder, sig, args):
        return getattr(builder, name)(*args)


for _op, _name in (
    (operator.and_, "and_"),
    (operator.iand, "and_"),
    (operator.or_, "or_"),
    (operator.ior, "or_"),
    (operator.xor, "xor"),
    (operator.ixor, "xor"),
):
    _register_mask(_op, _name)


def _register_unary(op, accepted, emit, kind):
    def generic(self: Any, args: Any, kws: Any) -> Any:
        return signature(args[0], args[0]) if len(args) == 1 and accepted(args[0]) else None

    infer_global(op)(type(f"Vector_{op.__name__}", (AbstractTemplate,), {"generic": generic}))

    @lower_builtin(op, kind)
    def lower(context, builder, sig, args):
        return emit(builder, sig.args[0], args[0])


def _negate(builder, kind, value):
    return builder.fneg(value) if is_float(kind) else builder.neg(value)


_register_unary(operator.neg, lambda k: isinstance(k, VectorType), _negate, VectorType)
_register_unary(operator.invert, is_int, lambda b, k, v: b.not_(v), VectorType)
_register_unary(
    operator.invert, lambda k: isinstance(k, MaskType), lambda b, k, v: b.not_(v), MaskType
)
