"""Masks, and operations across the lanes of vectors; see `_simd`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._memory import address_of, lanes_constant, vector_of
from ._types import (
    VECTORS,
    MaskType,
    VectorType,
    call_intrinsic,
    is_float,
    llvm_vector,
    operation,
    pick_lanes,
    processor_features,
    splat,
    vector_like,
)

_I32 = ir.IntType(32)


# ---------------------------------------------------------------------------------
# Masks
# ---------------------------------------------------------------------------------


@operation
def select(typingctx, mask, a, b):
    """``select(mask, a, b)``: `a` where the mask holds, else `b`, bit for bit.

    For a vector, `a` or `b` may be a scalar, converted to the other's element.
    """
    if isinstance(mask, MaskType):
        vector = a if isinstance(a, VectorType) else b
        if not isinstance(vector, VectorType) or vector.lanes != mask.lanes:
            return None
        scalars = [k for k in (a, b) if k != vector]
        if not all(isinstance(k, (types.Integer, types.Float)) for k in scalars):
            return None
        kinds = [k if k == vector else vector.element for k in (a, b)]
        result: Any = vector
    elif mask == types.boolean and a == b:
        kinds, result = [a, b], a
    else:
        return None

    def codegen(context, builder, sig, args):
        left, right = (
            value if kind == result else splat(builder, value, result)
            for kind, value in zip(kinds, args[1:], strict=True)
        )
        return builder.select(args[0], left, right)

    return signature(result, mask, *kinds), codegen


@operation
def add_where(typingctx, mask, total, value):
    """``add_where(mask, total, x)``: `total` plus the scalar `x` where the mask holds.

    For floats that are not -0.0, whose sign would be lost where it does not hold.
    """
    if not isinstance(mask, MaskType) or not is_float(total) or total.lanes != mask.lanes:
        return None

    def codegen(context, builder, sig, args):
        value = splat(builder, args[2], total)
        if "+avx512f" in processor_features(context):
            return builder.select(args[0], builder.fadd(args[1], value), args[1])
        # Without masks of bits a choice takes longer than an addition of zero.
        zero = ir.Constant(llvm_vector(total), [0.0] * total.lanes)
        return builder.fadd(args[1], builder.select(args[0], value, zero))

    return signature(total, mask, total, total.element), codegen


@operation
def count_where(typingctx, mask, count):
    """``count_where(mask, n)``: `n` plus 1 where the mask holds; see `counts_from`."""
    if not isinstance(mask, MaskType) or not is_float(count) or count.lanes != mask.lanes:
        return None

    def codegen(context, builder, sig, args):
        if "+avx512f" in processor_features(context):
            one = ir.Constant(llvm_vector(count), [1.0] * count.lanes)
            return builder.select(args[0], builder.fadd(args[1], one), args[1])
        # The last bit of such a number is worth 1, and a mask is -1 as an integer.
        bits = ir.VectorType(ir.IntType(count.element.bitwidth), count.lanes)
        number = builder.bitcast(args[1], bits)
        return builder.bitcast(builder.sub(number, builder.sext(args[0], bits)), args[1].type)

    return signature(count, mask, count), codegen


@operation
def counts_from(typingctx, like):
    """``counts_from(like)``: the number from which `count_where` counts as many as it is.

    Take it off in the end. It is 2**52, in float32 2**23, or 0 where masks are of bits; `like` is
    as for `splat`.
    """
    vector = vector_like(like)
    if vector is None or not is_float(vector):
        return None

    def codegen(context, builder, sig, args):
        whole = 2.0 ** (52 if vector.element.bitwidth == 64 else 23)
        start = 0.0 if "+avx512f" in processor_features(context) else whole
        return ir.Constant(llvm_vector(vector), [start] * vector.lanes)

    return signature(vector, like), codegen


@operation
def nan_where(typingctx, mask, a):
    """``nan_where(mask, a)``: NaN where the mask holds, else the floats `a`.

    For `minimum` or `maximum`, which of NaN and a number give the second: where masks are not of
    bits, that is one instruction of the cheapest, as every bit of the NaN is set.
    """
    if not isinstance(mask, MaskType) or not is_float(a) or a.lanes != mask.lanes:
        return None

    def codegen(context, builder, sig, args):
        whole = ir.VectorType(ir.IntType(a.element.bitwidth), a.lanes)
        every = ir.Constant(whole, [-1] * a.lanes)
        if "+avx512f" in processor_features(context):
            nan = builder.bitcast(every, llvm_vector(a))
            return builder.select(args[0], nan, args[1])
        bits = builder.or_(builder.sext(args[0], whole), builder.bitcast(args[1], whole))
        return builder.bitcast(bits, llvm_vector(a))

    return signature(a, mask, a), codegen


@operation
def minimum_where(typingctx, mask, a, b):
    """``minimum_where(mask, a, b)``: the smaller where the mask holds, else `b`; see `minimum`."""
    if not isinstance(mask, MaskType) or not is_float(a) or a != b or a.lanes != mask.lanes:
        return None

    def codegen(context, builder, sig, args):
        chosen, left, right = args
        llvm = llvm_vector(a)
        if "+avx512f" in processor_features(context) and a == VECTORS[a.element]:
            # One instruction: of a minimum that it knows LLVM would make two comparisons.
            name = f"llvm.x86.avx512.min.{'pd' if a.element.bitwidth == 64 else 'ps'}.512"
            as_set = ir.Constant(_I32, 4)  # the rounding, of which there is none
            least = call_intrinsic(builder, name, llvm, [left, right, as_set])
            return builder.select(chosen, least, right)
        left = builder.select(chosen, left, ir.Constant(llvm, [math.inf] * a.lanes))
        return builder.select(builder.fcmp_ordered("<", left, right), left, right)

    return signature(a, mask, a, b), codegen


def _bits(builder, mask, value):
    if not isinstance(mask, MaskType):
        return value
    return builder.bitcast(value, ir.IntType(mask.lanes))


@operation
def count_true(typingctx, mask):
    """``count_true(mask)``: the number of lanes where the mask holds."""
    if not isinstance(mask, MaskType):
        return None

    def codegen(context, builder, sig, args):
        bits = builder.zext(_bits(builder, mask, args[0]), ir.IntType(64))
        return call_intrinsic(builder, "llvm.ctpop.i64", ir.IntType(64), [bits])

    return signature(types.int64, mask), codegen


@operation
def any_true(typingctx, mask):
    """``any_true(mask)``: whether the mask holds in some lane; scalars as they are."""
    if not isinstance(mask, (MaskType, types.Boolean)):
        return None

    def codegen(context, builder, sig, args):
        bits = _bits(builder, mask, args[0])
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return signature(types.boolean, mask), codegen


@operation
def all_true(typingctx, mask):
    """``all_true(mask)``: whether the mask holds in every lane; scalars as they are."""
    if not isinstance(mask, (MaskType, types.Boolean)):
        return None

    def codegen(context, builder, sig, args):
        bits = _bits(builder, mask, args[0])
        return builder.icmp_unsigned("==", bits, ir.Constant(bits.type, -1))

    return signature(types.boolean, mask), codegen


# ---------------------------------------------------------------------------------
# Across lanes
# ---------------------------------------------------------------------------------


def _reduce(kind: Any, combine: Callable[..., Any]) -> Any:
    if not isinstance(kind, VectorType):
        return None

    def codegen(context, builder, sig, args):
        value, width = args[0], kind.lanes
        while width > 1:
            width //= 2
            value = combine(
                builder,
                pick_lanes(builder, value, 0, width),
                pick_lanes(builder, value, width, width),
            )
        return builder.extract_element(value, ir.Constant(_I32, 0))

    return signature(kind.element, kind), codegen


@operation
def horizontal_sum(typingctx, a):
    """``horizontal_sum(a)``: the sum of the lanes, the upper half onto the lower each time.

    The order is the same on every machine.
    """

    def add(builder, left, right):
        return (builder.fadd if is_float(a) else builder.add)(left, right)

    return _reduce(a, add)


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """A square of vectors transposed: swap off-diagonal blocks of 1, 2, 4, ... lanes."""
    count = len(rows)
    block = 1
    while block < count:
        low = [i if not i & block else count + i - block for i in range(count)]
        high = [i + block if not i & block else count + i for i in range(count)]
        picks = [ir.Constant(ir.VectorType(_I32, count), p) for p in (low, high)]
        swapped = list(rows)
        for i in range(count):
            if not i & block:
                pair = rows[i], rows[i | block]
                swapped[i], swapped[i | block] = (
                    builder.shuffle_vector(*pair, pick) for pick in picks
                )
        rows = swapped
        block *= 2
    return rows


@operation
def interleave(typingctx, a, b):
    """``interleave(a, b)``: the lanes a0, b0, a1, b1, ... as two vectors."""
    if not isinstance(a, VectorType) or a != b:
        return None
    both = types.UniTuple(a, 2)

    def codegen(context, builder, sig, args):
        order = [lane + side * a.lanes for lane in range(a.lanes) for side in range(2)]
        halves = order[: a.lanes], order[a.lanes :]
        picks = (ir.Constant(ir.VectorType(_I32, a.lanes), half) for half in halves)
        mixed = [builder.shuffle_vector(*args, pick) for pick in picks]
        return context.make_tuple(builder, both, mixed)

    return signature(both, a, b), codegen


@operation
def load_transposed(typingctx, array, index, stride):
    """``load_transposed(array, i, stride)``: a square block of an array, column by column.

    Row r of the block starts at flat index ``i + r * stride``; the result is a tuple
    whose element c holds column c of all rows (8 x 8 in float64, 16 x 16 in float32).
    """
    vector = vector_of(array)
    if vector is None:
        return None
    columns = types.UniTuple(vector, vector.lanes)

    def codegen(context, builder, sig, args):
        where, rows = args[1], []
        for _ in range(vector.lanes):
            address = address_of(context, builder, array, args[0], where, lanes_constant(vector))
            pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
            rows.append(builder.load(pointer, align=vector.element.bitwidth // 8))
            where = builder.add(where, args[2])
        return context.make_tuple(builder, columns, _transpose(builder, rows))

    return signature(columns, array, types.intp, types.intp), codegen
