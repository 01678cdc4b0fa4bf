"""Vectors from scalars, and single lanes of vectors; see `_simd`."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._memory import lanes_below
from ._types import MaskType, VectorType, llvm_vector, operation, vector_like
from ._types import splat as splat_value

_I32 = ir.IntType(32)


@operation
def splat(typingctx, like, value):
    """``splat(like, x)``: the scalar `x` in each lane, converted to the element of `like`.

    `like` is a vector, an array or a scalar; only its type counts.
    """
    vector = vector_like(like)
    if vector is None or not isinstance(value, (types.Integer, types.Float, types.Boolean)):
        return None

    def codegen(context, builder, sig, args):
        return splat_value(builder, args[1], vector)

    return signature(vector, like, vector.element), codegen


@operation
def lanes(typingctx, like):
    """``lanes(like)``: 8 or 16, a constant; `like` as for `splat`."""
    vector = vector_like(like)
    if vector is None:
        return None

    def codegen(context, builder, sig, args):
        return context.get_constant(types.intp, vector.lanes)

    return signature(types.intp, like), codegen


@operation
def iota(typingctx, like):
    """``iota(like)``: 0, 1, 2, ... in the lanes; `like` as for `splat`."""
    vector = vector_like(like)
    if vector is None:
        return None

    def codegen(context, builder, sig, args):
        return ir.Constant(llvm_vector(vector), list(range(vector.lanes)))

    return signature(vector, like), codegen


@operation
def lane(typingctx, value, index):
    """``lane(v, i)``: the value in lane `i`."""
    if not isinstance(value, VectorType):
        return None

    def codegen(context, builder, sig, args):
        return builder.extract_element(args[0], builder.trunc(args[1], _I32))

    return signature(value.element, value, types.intp), codegen


@operation
def with_lane(typingctx, value, index, scalar):
    """``with_lane(v, i, x)``: `v` with lane `i` replaced by `x`."""
    if not isinstance(value, VectorType):
        return None

    def codegen(context, builder, sig, args):
        return builder.insert_element(args[0], args[2], builder.trunc(args[1], _I32))

    return signature(value, value, types.intp, value.element), codegen


@operation
def first_lanes(typingctx, like, count):
    """``first_lanes(like, count)``: the mask of the lanes below `count`."""
    vector = vector_like(like)
    if vector is None or not isinstance(count, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        return lanes_below(builder, vector, args[1])

    return signature(MaskType(vector.lanes), like, types.intp), codegen
