"""Vectors of the bytes that numbers are held in; see `_simd`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._memory import address_of
from ._types import (
    VECTOR_BYTES,
    VECTORS,
    call_intrinsic,
    is_float,
    is_x86,
    llvm_vector,
    operation,
    processor_features,
    vector_like,
)

_WORDS = VECTORS[types.uint64]
_BYTES = ir.VectorType(ir.IntType(8), 64)
_HALVES = ir.VectorType(ir.IntType(32), 16)


def _load(array: Any, index: Any, like: Any, held: ir.Type, size: int, converted: Any) -> Any:
    vector = vector_like(like)
    if not isinstance(array, types.Array) or (array.dtype, array.layout) != (types.int8, "C"):
        return None
    if not is_float(vector) or vector.element != types.float64:
        return None
    if not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        count = ir.Constant(ir.IntType(64), size * vector.lanes)
        address = address_of(context, builder, array, args[0], args[1], count)
        pointer = builder.bitcast(address, ir.VectorType(held, vector.lanes).as_pointer())
        return converted(context, builder, builder.load(pointer, align=1), llvm_vector(vector))

    return signature(vector, array, types.intp, like), codegen


def _from_integers(context, builder, value, floats):
    whole = floats.count * 64 == 8 * VECTOR_BYTES
    if not whole or not is_x86(context) or "+avx512dq" not in processor_features(context):
        return builder.sitofp(value, floats)
    # Left to itself LLVM converts by way of 32 bits, which moves numbers across lanes twice.
    wide = builder.sext(value, ir.VectorType(ir.IntType(64), floats.count))
    name, current = "llvm.x86.avx512.sitofp.round.v8f64.v8i64", ir.Constant(ir.IntType(32), 4)
    return call_intrinsic(builder, name, floats, [wide, current])


def _from_floats(context, builder, value, floats):
    return builder.fpext(value, floats)


@operation
def load_bytes(typingctx, array, index, like):
    """``load_bytes(array, i, like)``: int8 from flat index `i` on, as the float64 of `like`."""
    return _load(array, index, like, ir.IntType(8), 1, _from_integers)


@operation
def load_floats(typingctx, array, index, like):
    """``load_floats(array, i, like)``: float32 from byte `i` of int8 on, as the float64 of `like`.

    `like` is as for `load_as`.
    """
    return _load(array, index, like, ir.FloatType(), 4, _from_floats)


def _shuffled(v: Any, part: ir.Type, each: int) -> Any:
    """Of a vector of 8 words, each of `each` parts: first the first part of each, and so on."""
    if v != _WORDS:
        return None
    order = [row * each + k for k in range(each) for row in range(_WORDS.lanes)]

    def codegen(context, builder, sig, args):
        parts = builder.bitcast(args[0], part)
        places = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        moved = builder.shuffle_vector(parts, ir.Constant(part, ir.Undefined), places)
        return builder.bitcast(moved, llvm_vector(_WORDS))

    return signature(_WORDS, v), codegen


@operation
def transpose_bytes(typingctx, v):
    """``transpose_bytes(v)``: of a vector of uint64 the first bytes of all, the second ones, ..."""
    return _shuffled(v, _BYTES, 8)


@operation
def transpose_floats(typingctx, v):
    """``transpose_floats(v)``: of a vector of uint64 the first halves of all, then the second."""
    return _shuffled(v, _HALVES, 2)


@operation
def subtract_bytes(typingctx, a, b):
    """``subtract_bytes(a, b)``: the difference of vectors of uint64, byte by byte."""
    if (a, b) != (_WORDS, _WORDS):
        return None

    def codegen(context, builder, sig, args):
        bytes_of = [builder.bitcast(value, _BYTES) for value in args]
        return builder.bitcast(builder.sub(*bytes_of), llvm_vector(_WORDS))

    return signature(_WORDS, a, b), codegen
