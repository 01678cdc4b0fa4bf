"""Powers of two, and exponents, of vectors; see `_simd`."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils
from numba.core.typing import signature

from ._python import EIGHTHS
from ._types import (
    call_intrinsic,
    concatenate,
    constant,
    is_float,
    operation,
    pick_lanes,
    processor_features,
)

_I32 = ir.IntType(32)


@operation
def scale_by_power(typingctx, a, exponent):
    """``scale_by_power(a, n)``: a * 2**n, rounded once, for whole floats `n`.

    For 0.5 <= abs(a) <= 2 or NaN and abs(n) <= 2000 (float32: 250); otherwise unspecified.
    """
    if not is_float(a) or exponent != a:
        return None
    wide = a.element.bitwidth == 64

    def codegen(context, builder, sig, args):
        value, n = args
        if "+avx512f" in processor_features(context):
            name = f"llvm.x86.avx512.mask.scalef.{'pd' if wide else 'ps'}.512"
            every = ir.Constant(ir.IntType(a.lanes), -1)
            current_rounding = ir.Constant(_I32, 4)
            operands = [value, n, value, every, current_rounding]
            return call_intrinsic(builder, name, value.type, operands)
        # Two steps, the first of them exact, because 2**n itself may not be a number. Whole numbers
        # are the last bits of their sums with `shift`.
        width, bits, bias = (64, 52, 1023) if wide else (32, 23, 127)
        whole = ir.VectorType(ir.IntType(width), a.lanes)
        shift = constant(a, 1.5 * 2.0**bits)
        half, every = (
            builder.bitcast(builder.fadd(number, shift), whole)
            for number in (builder.fmul(n, constant(a, 0.5)), n)
        )
        for part in (half, builder.sub(every, half)):
            power = builder.shl(part, ir.Constant(whole, [bits] * a.lanes))
            power = builder.add(power, ir.Constant(whole, [bias << bits] * a.lanes))
            value = builder.fmul(value, builder.bitcast(power, value.type))
        return value

    return signature(a, a, exponent), codegen


@operation
def exponent(typingctx, a):
    """``exponent(a)``: the whole float k with ``2**k <= a < 2**(k + 1)``.

    For positive normal numbers; otherwise unspecified.
    """
    if not is_float(a):
        return None
    wide = a.element.bitwidth == 64

    def codegen(context, builder, sig, args):
        (value,) = args
        if "+avx512f" in processor_features(context):
            name = f"llvm.x86.avx512.mask.getexp.{'pd' if wide else 'ps'}.512"
            every = ir.Constant(ir.IntType(a.lanes), -1)
            current_rounding = ir.Constant(_I32, 4)
            operands = [value, value, every, current_rounding]
            return call_intrinsic(builder, name, value.type, operands)
        # The exponent's bits as those of a whole number, which begin where 2**fraction has a 1.
        width, fraction, bias = (64, 52, 1023) if wide else (32, 23, 127)
        whole = ir.VectorType(ir.IntType(width), a.lanes)
        shifted = builder.lshr(
            builder.bitcast(value, whole), ir.Constant(whole, [fraction] * a.lanes)
        )
        one = ir.Constant(whole, [(bias + fraction) << fraction] * a.lanes)
        number = builder.bitcast(builder.or_(shifted, one), value.type)
        return builder.fsub(number, constant(a, 2.0**fraction + bias))

    return signature(a, a), codegen


@operation
def exp2_eighths(typingctx, a):
    """``exp2_eighths(a)``: 2**(n/8), rounded, for a = n + 1.5 * 2**52 (float32: 2**23), n whole.

    For n from -8184 to 8191 (float32: -1016 to 1023); otherwise, and of NaN, unspecified. Below
    -8176 (-1008), where the power is no normal number, something between 0 and the least of those;
    0 for -8184 (-1016). The last bits of `a` are those of n: three of them choose from a table, the
    others are added to the exponent.
    """
    if not is_float(a):
        return None

    def codegen(context, builder, sig, args):
        width, fraction = (64, 52) if a.element.bitwidth == 64 else (32, 23)
        whole = ir.VectorType(ir.IntType(width), a.lanes)
        bits = builder.bitcast(args[0], whole)
        table = EIGHTHS[width].tolist()
        eighth = ir.Constant(whole, [fraction - 3] * a.lanes)
        power = builder.add(_choose(context, builder, table, bits), builder.shl(bits, eighth))
        return builder.bitcast(power, args[0].type)

    return signature(a, a), codegen


def _choose(context, builder, table, bits):
    """Of a table of eight integers those that the last three bits of each lane name."""
    kind, width, lanes = bits.type, bits.type.element.width, bits.type.count
    features = processor_features(context)
    if "+avx512f" in features:
        # Instructions look at as many bits as it takes to name one of their lanes.
        name = f"llvm.x86.avx512.permvar.{'di' if width == 64 else 'si'}.512"
        return call_intrinsic(builder, name, kind, [ir.Constant(kind, table * (lanes // 8)), bits])
    if "+avx2" in features:
        each = 256 // width
        parts = [pick_lanes(builder, bits, k, each) for k in range(0, lanes, each)]
        choose = _choose_words if width == 64 else _permute
        return concatenate(builder, [choose(builder, table, part) for part in parts])
    memory = cgutils.global_constant(
        builder, "eighths", ir.Constant(ir.ArrayType(kind.element, 8), table)
    )
    found = ir.Constant(kind, ir.Undefined)
    for lane in map(_I32, range(lanes)):
        index = builder.and_(builder.extract_element(bits, lane), kind.element(7))
        value = builder.load(builder.gep(memory, [kind.element(0), index]))
        found = builder.insert_element(found, value, lane)
    return found


def _permute(builder, table, bits):
    """That of AVX2, which has it for halves of words alone."""
    kind = ir.VectorType(_I32, 8)
    return call_intrinsic(builder, "llvm.x86.avx2.permd", kind, [ir.Constant(kind, table), bits])


def _choose_words(builder, table, bits):
    kind = ir.VectorType(_I32, 8)
    lower = builder.bitcast(bits, kind)
    both = builder.shuffle_vector(lower, lower, ir.Constant(kind, [0, 0, 2, 2, 4, 4, 6, 6]))
    low = _permute(builder, [v & 0xFFFFFFFF for v in table], both)
    high = _permute(builder, [v >> 32 for v in table], both)
    words = builder.shuffle_vector(low, high, ir.Constant(kind, [0, 9, 2, 11, 4, 13, 6, 15]))
    return builder.bitcast(words, bits.type)
