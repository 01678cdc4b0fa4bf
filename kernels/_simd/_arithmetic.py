"""Arithmetic of vectors, and conversions of their bits; see `_simd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._types import (
    VECTORS,
    VectorType,
    call_intrinsic,
    compare,
    constant,
    is_floating,
    is_int,
    is_x86,
    llvm_type,
    llvm_vector,
    operation,
    pick_lanes,
    processor_features,
    splat,
    suffix,
)

_I32 = ir.IntType(32)


def _same_floats(*kinds):
    return is_floating(kinds[0]) and all(kind == kinds[0] for kind in kinds)


def _floating(name: str, count: int) -> Callable[..., Any]:
    """The typer of LLVM's intrinsic `name` of `count` equal floating-point operands."""

    def typer(*kinds):
        if len(kinds) != count or not _same_floats(*kinds):
            return None

        def codegen(context, builder, sig, args):
            return call_intrinsic(
                builder, f"llvm.{name}.{suffix(kinds[0])}", args[0].type, list(args)
            )

        return signature(kinds[0], *kinds), codegen

    return typer


@operation
def fma(typingctx, a, b, c):
    """``fma(a, b, c)``: a * b + c, rounded once where the processor has the instruction.

    Elsewhere rounded twice, not emulated in software.
    """
    return _floating("fmuladd", 3)(a, b, c)


@operation
def absolute(typingctx, a):
    """``absolute(a)``: the sign bit cleared, of zeros and NaN too."""
    return _floating("fabs", 1)(a)


@operation
def sqrt(typingctx, a):
    """``sqrt(a)``: correctly rounded; NaN below zero, -0.0 for -0.0."""
    return _floating("sqrt", 1)(a)


@operation
def copysign(typingctx, a, b):
    """``copysign(a, b)``: `a` with the sign bit of `b`."""
    return _floating("copysign", 2)(a, b)


def _extremum(symbol: str, a: Any, b: Any) -> Any:
    numeric = isinstance(a, (VectorType, types.Integer, types.Float))
    if a != b or not numeric:
        return None

    def codegen(context, builder, sig, args):
        return builder.select(compare(builder, a, symbol, *args), *args)

    return signature(a, a, b), codegen


@operation
def minimum(typingctx, a, b):
    """``minimum(a, b)``: `a` if a < b else `b`, one instruction on x86.

    So `b` is returned if either operand is NaN, and if both are zeros of any sign.
    """
    return _extremum("<", a, b)


@operation
def maximum(typingctx, a, b):
    """``maximum(a, b)``: `a` if a > b else `b`; see `minimum`."""
    return _extremum(">", a, b)


def _has_rounding(context):
    """Whether rounding is an instruction: before SSE4.1 it would be a library call a lane."""
    return not is_x86(context) or "+sse4.1" in processor_features(context)


def _round_by_adding(builder, kind, value):
    """Round to even by adding a number whose last bit counts ones, and taking it off."""
    width = getattr(kind, "element", kind).bitwidth
    bits = 52 if width == 64 else 23
    llvm = suffix(kind)
    size = call_intrinsic(builder, f"llvm.fabs.{llvm}", value.type, [value])
    shift = constant(kind, float(2**bits))
    rounded = builder.fsub(builder.fadd(size, shift), shift)
    rounded = call_intrinsic(builder, f"llvm.copysign.{llvm}", value.type, [rounded, value])
    return builder.select(builder.fcmp_ordered("<", size, shift), rounded, value)


def _round_even(context, builder, kind, value):
    if _has_rounding(context):
        return call_intrinsic(builder, f"llvm.rint.{suffix(kind)}", value.type, [value])
    return _round_by_adding(builder, kind, value)


@operation
def round_even(typingctx, a):
    """``round_even(a)``: the nearest integer, ties to even; zeros, inf and NaN as they are."""
    if not is_floating(a):
        return None

    def codegen(context, builder, sig, args):
        return _round_even(context, builder, a, args[0])

    return signature(a, a), codegen


_LIMB = 52
_HIGH_LIMB = 12


@operation
def has_limbs(typingctx):
    """``has_limbs()``: whether there are instructions for products of words in vectors; a constant.

    They multiply limbs of 52 bits, and add.
    """

    def codegen(context, builder, sig, args):
        found = "+avx512ifma" in processor_features(context)
        return context.get_constant(types.boolean, found)

    return signature(types.boolean), codegen


def _by_limbs(builder, a, b):
    kind = a.type

    def number(value):
        return ir.Constant(kind, [value] * kind.count)

    def add_product(half, to, x, y):
        name = f"llvm.x86.avx512.vpmadd52{half}.uq.512"
        return call_intrinsic(builder, name, kind, [to, x, y])

    a1, b1 = (builder.lshr(v, number(_LIMB)) for v in (a, b))
    # The sum of what has the weight of 2**52, in two parts: its own 52 bits, and above.
    low = add_product("h", number(0), a, b)
    high = add_product("l", number(0), a1, b1)
    for x, y in ((a, b1), (a1, b)):
        low, high = add_product("l", low, x, y), add_product("h", high, x, y)
    lower = add_product("l", builder.shl(low, number(_LIMB)), a, b)
    low = builder.lshr(low, number(_HIGH_LIMB))
    upper = builder.add(low, builder.shl(high, number(_LIMB - _HIGH_LIMB)))
    return upper, lower


@operation
def multiply_wide(typingctx, a, b):
    """``multiply_wide(a, b)``: upper and lower 64 bits of the products with a uint64 scalar `b`."""
    if b != types.uint64 or a not in (types.uint64, VECTORS[types.uint64]):
        return None
    both = types.UniTuple(a, 2)

    def codegen(context, builder, sig, args):
        x, y = args
        wide, half = ir.IntType(128), 64
        if isinstance(a, VectorType):
            y = splat(builder, y, a)
            if "+avx512ifma" in processor_features(context):
                parts = _by_limbs(builder, x, y)
                return context.make_tuple(builder, both, parts)
            wide, half = ir.VectorType(wide, a.lanes), [half] * a.lanes
        product = builder.mul(builder.zext(x, wide), builder.zext(y, wide))
        upper = builder.lshr(product, ir.Constant(wide, half))
        parts = (builder.trunc(part, x.type) for part in (upper, product))
        return context.make_tuple(builder, both, parts)

    return signature(both, a, b), codegen


# ---------------------------------------------------------------------------------
# Bits and conversions
# ---------------------------------------------------------------------------------


def _with_element(kind, element):
    if not isinstance(kind, VectorType):
        return element
    return VectorType(element, kind.lanes * element.bitwidth // 8)


def _reinterpret(source, target):
    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], llvm_type(target))

    return signature(target, source), codegen


@operation
def to_bits(typingctx, a):
    """``to_bits(a)``: the bits of floats as signed integers of the same width."""
    if not is_floating(a):
        return None
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.int64 if width == 64 else types.int32))


@operation
def from_bits(typingctx, a):
    """``from_bits(a)``: the floats with the bits of integers of the same width."""
    if not (is_int(a) or isinstance(a, types.Integer)):
        return None
    a = types.unliteral(a)
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.float64 if width == 64 else types.float32))


@operation
def reinterpret(typingctx, like, a):
    """``reinterpret(like, a)``: the 64 bytes of a vector as one of the element of `like`.

    Halves of wider lanes come lower ones first.
    """
    kind = getattr(like, "dtype", like)
    target = kind if isinstance(kind, VectorType) else VECTORS.get(types.unliteral(kind))
    if target is None or not isinstance(a, VectorType):
        return None

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[1], llvm_vector(target))

    return signature(target, like, a), codegen


@operation
def to_float(typingctx, a):
    """``to_float(a)``: 32-bit integers as float32, rounded."""
    if not is_int(a) or a.element.bitwidth != 32:
        return None
    target = VECTORS[types.float32]

    def codegen(context, builder, sig, args):
        convert = builder.sitofp if a.element.signed else builder.uitofp
        return convert(args[0], llvm_vector(target))

    return signature(target, a), codegen


@operation
def widen(typingctx, a):
    """``low, high = widen(a)``: the 16 lanes of float32 as two vectors of float64."""
    if a != VECTORS[types.float32]:
        return None
    wide = VECTORS[types.float64]
    pair = types.UniTuple(wide, 2)

    def codegen(context, builder, sig, args):
        halves = [
            builder.fpext(pick_lanes(builder, args[0], start, 8), llvm_vector(wide))
            for start in (0, 8)
        ]
        return context.make_tuple(builder, pair, halves)

    return signature(pair, a), codegen


@operation
def narrow(typingctx, low, high):
    """``narrow(low, high)``: two vectors of float64 rounded to one of float32."""
    if low != VECTORS[types.float64] or high != low:
        return None
    target = VECTORS[types.float32]

    def codegen(context, builder, sig, args):
        half = ir.VectorType(ir.FloatType(), 8)
        picks = ir.Constant(ir.VectorType(_I32, 16), list(range(16)))
        return builder.shuffle_vector(*(builder.fptrunc(v, half) for v in args), picks)

    return signature(target, low, high), codegen
