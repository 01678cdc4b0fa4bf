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
    is_float,
    is_floating,
    is_int,
    llvm_type,
    llvm_vector,
    operation,
    pick_lanes,
    suffix,
)

_I32 = ir.IntType(32)


def _same_floats(*kinds: Any) -> bool:
    return is_floating(kinds[0]) and all(kind == kinds[0] for kind in kinds)


def _floating(name: str, count: int) -> Callable[..., Any]:
    """The typer of LLVM's intrinsic `name` of `count` equal floating-point operands."""

    def typer(*kinds: Any) -> Any:
        if len(kinds) != count or not _same_floats(*kinds):
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return call_intrinsic(
                builder, f"llvm.{name}.{suffix(kinds[0])}", args[0].type, list(args)
            )

        return signature(kinds[0], *kinds), codegen

    return typer


@operation
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``fma(a, b, c)``: a * b + c, rounded once where the processor has the instruction.

    Elsewhere rounded twice, not emulated in software.
    """
    return _floating("fmuladd", 3)(a, b, c)


@operation
def absolute(typingctx: Any, a: Any) -> Any:
    """``absolute(a)``: the sign bit cleared, of zeros and NaN too."""
    return _floating("fabs", 1)(a)


@operation
def sqrt(typingctx: Any, a: Any) -> Any:
    """``sqrt(a)``: correctly rounded; NaN below zero, -0.0 for -0.0."""
    return _floating("sqrt", 1)(a)


@operation
def copysign(typingctx: Any, a: Any, b: Any) -> Any:
    """``copysign(a, b)``: `a` with the sign bit of `b`."""
    return _floating("copysign", 2)(a, b)


def _extremum(symbol: str, a: Any, b: Any) -> Any:
    numeric = isinstance(a, (VectorType, types.Integer, types.Float))
    if a != b or not numeric:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(compare(builder, a, symbol, *args), *args)

    return signature(a, a, b), codegen


@operation
def minimum(typingctx: Any, a: Any, b: Any) -> Any:
    """``minimum(a, b)``: `a` if a < b else `b`, one instruction on x86.

    So `b` is returned if either operand is NaN, and if both are zeros of any sign.
    """
    return _extremum("<", a, b)


@operation
def maximum(typingctx: Any, a: Any, b: Any) -> Any:
    """``maximum(a, b)``: `a` if a > b else `b`; see `minimum`."""
    return _extremum(">", a, b)


def _features(context: Any) -> list[str]:
    """The processor features that code is generated for."""
    return (context.codegen().magic_tuple()[2] or "").split(",")


def _has_rounding(context: Any) -> bool:
    """Whether rounding is an instruction: before SSE4.1 it would be a library call a lane."""
    is_x86 = context.codegen().magic_tuple()[0].startswith(("x86_64", "i686", "i386"))
    return not is_x86 or "+sse4.1" in _features(context)


def _round_by_adding(builder: Any, kind: Any, value: Any) -> Any:
    """Round to even by adding a number whose last bit counts ones, and taking it off."""
    width = getattr(kind, "element", kind).bitwidth
    bits = 52 if width == 64 else 23
    llvm = suffix(kind)
    size = call_intrinsic(builder, f"llvm.fabs.{llvm}", value.type, [value])
    shift = constant(kind, float(2**bits))
    rounded = builder.fsub(builder.fadd(size, shift), shift)
    rounded = call_intrinsic(builder, f"llvm.copysign.{llvm}", value.type, [rounded, value])
    return builder.select(builder.fcmp_ordered("<", size, shift), rounded, value)


def _round_even(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if _has_rounding(context):
        return call_intrinsic(builder, f"llvm.rint.{suffix(kind)}", value.type, [value])
    return _round_by_adding(builder, kind, value)


@operation
def round_even(typingctx: Any, a: Any) -> Any:
    """``round_even(a)``: the nearest integer, ties to even; zeros, inf and NaN as they are."""
    if not is_floating(a):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _round_even(context, builder, a, args[0])

    return signature(a, a), codegen


@operation
def floor(typingctx: Any, a: Any) -> Any:
    """``floor(a)``: the largest integer not above; zeros, inf and NaN as they are."""
    if not is_floating(a):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _has_rounding(context):
            return call_intrinsic(builder, f"llvm.floor.{suffix(a)}", args[0].type, list(args))
        near = _round_by_adding(builder, a, args[0])
        below = builder.fsub(near, constant(a, 1.0))
        return builder.select(builder.fcmp_ordered(">", near, args[0]), below, near)

    return signature(a, a), codegen


def _power_of_two(builder: Any, kind: Any, exponent: Any) -> Any:
    """2 to a whole floating-point exponent, shifted into place from a fixed-point sum."""
    width, bits, bias = (64, 52, 1023) if kind.element.bitwidth == 64 else (32, 23, 127)
    whole = ir.VectorType(ir.IntType(width), kind.lanes)
    fixed = builder.fadd(exponent, constant(kind, 1.5 * 2.0**bits))
    shifted = builder.shl(builder.bitcast(fixed, whole), ir.Constant(whole, [bits] * kind.lanes))
    biased = builder.add(shifted, ir.Constant(whole, [bias << bits] * kind.lanes))
    return builder.bitcast(biased, llvm_vector(kind))


@operation
def scale_by_power(typingctx: Any, a: Any, exponent: Any) -> Any:
    """``scale_by_power(a, n)``: a * 2**n, rounded once, for whole floats `n`.

    For 0.5 <= abs(a) <= 2 or NaN and abs(n) <= 2000 (float32: 250); otherwise unspecified.
    """
    if not is_float(a) or exponent != a:
        return None
    wide = a.element.bitwidth == 64

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, n = args
        if "+avx512f" in _features(context):
            name = f"llvm.x86.avx512.mask.scalef.{'pd' if wide else 'ps'}.512"
            every = ir.Constant(ir.IntType(a.lanes), -1)
            current_rounding = ir.Constant(_I32, 4)
            operands = [value, n, value, every, current_rounding]
            return call_intrinsic(builder, name, value.type, operands)
        # Two steps, the first of them exact, because 2**n itself may not be a number.
        shift = constant(a, 1.5 * 2.0 ** (52 if wide else 23))
        half = builder.fmul(n, constant(a, 0.5))
        half = builder.fsub(builder.fadd(half, shift), shift)
        for part in (half, builder.fsub(n, half)):
            value = builder.fmul(value, _power_of_two(builder, a, part))
        return value

    return signature(a, a, exponent), codegen


# ---------------------------------------------------------------------------------
# Bits and conversions
# ---------------------------------------------------------------------------------


def _with_element(kind: Any, element: Any) -> Any:
    return VECTORS[element] if isinstance(kind, VectorType) else element


def _reinterpret(source: Any, target: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], llvm_type(target))

    return signature(target, source), codegen


@operation
def to_bits(typingctx: Any, a: Any) -> Any:
    """``to_bits(a)``: the bits of floats as signed integers of the same width."""
    if not is_floating(a):
        return None
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.int64 if width == 64 else types.int32))


@operation
def from_bits(typingctx: Any, a: Any) -> Any:
    """``from_bits(a)``: the floats with the bits of integers of the same width."""
    if not (is_int(a) or isinstance(a, types.Integer)):
        return None
    a = types.unliteral(a)
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.float64 if width == 64 else types.float32))


@operation
def to_float(typingctx: Any, a: Any) -> Any:
    """``to_float(a)``: integer lanes converted to floats of the same width."""
    if not is_int(a):
        return None
    target = VECTORS[types.float64 if a.element.bitwidth == 64 else types.float32]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        convert = builder.sitofp if a.element.signed else builder.uitofp
        return convert(args[0], llvm_vector(target))

    return signature(target, a), codegen


@operation
def to_int(typingctx: Any, a: Any) -> Any:
    """``to_int(a)``: truncated to signed integers of the same width, saturating; NaN gives 0."""
    if not is_float(a):
        return None
    target = VECTORS[types.int64 if a.element.bitwidth == 64 else types.int32]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = f"llvm.fptosi.sat.{suffix(target)}.{suffix(a)}"
        return call_intrinsic(builder, name, llvm_vector(target), list(args))

    return signature(target, a), codegen


@operation
def widen(typingctx: Any, a: Any) -> Any:
    """``low, high = widen(a)``: the 16 lanes of float32 as two vectors of float64."""
    if a != VECTORS[types.float32]:
        return None
    wide = VECTORS[types.float64]
    pair = types.UniTuple(wide, 2)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        halves = [
            builder.fpext(pick_lanes(builder, args[0], start, 8), llvm_vector(wide))
            for start in (0, 8)
        ]
        return context.make_tuple(builder, pair, halves)

    return signature(pair, a), codegen


@operation
def narrow(typingctx: Any, low: Any, high: Any) -> Any:
    """``narrow(low, high)``: two vectors of float64 rounded to one of float32."""
    if low != VECTORS[types.float64] or high != low:
        return None
    target = VECTORS[types.float32]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        half = ir.VectorType(ir.FloatType(), 8)
        picks = ir.Constant(ir.VectorType(_I32, 16), list(range(16)))
        return builder.shuffle_vector(*(builder.fptrunc(v, half) for v in args), picks)

    return signature(target, low, high), codegen
