"""Vectors from and to the places of an array that an array of indices names; see `_simd`."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._memory import address_of, holds, vector_of
from ._types import VectorType, call_intrinsic, llvm_vector, operation, suffix

_I64 = ir.IntType(64)


def _numbers(indices):
    """Whether these are indices: a C-contiguous array of uint16 or uint32."""
    some = isinstance(indices, types.Array) and indices.layout == "C"
    return some and indices.dtype in (types.uint16, types.uint32)


def _places(context, builder, vector, sig, args):
    """The address of each lane's number, for arguments that begin ``array, indices, k``."""
    bits = sig.args[1].dtype.bitwidth
    lanes, each = vector.lanes, 64 // bits
    count = _I64(lanes)
    first = address_of(context, builder, sig.args[1], args[1], args[2], count)
    words = builder.bitcast(first, _I64.as_pointer())
    found = []
    for word in range(lanes // each):
        # As words of 64 bits: a load an index would be half of all that is loaded.
        some = builder.load(builder.gep(words, [_I64(word)]), align=bits // 8)
        for k in range(each):
            index = builder.lshr(some, _I64(bits * k)) if k else some
            index = builder.and_(index, _I64(2**bits - 1)) if k + 1 < each else index
            found.append(address_of(context, builder, sig.args[0], args[0], index, _I64(1)))
    return found


@operation
def load_at(typingctx, array, indices, index):
    """``load_at(array, indices, k)``: the numbers of `array` at as many indices, from the k-th on.

    `indices` are uint16 or uint32. Scalar loads, which are no slower than the gather instruction
    on most processors.
    """
    vector = vector_of(array)
    if vector is None or not _numbers(indices) or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        found: ir.Value = ir.Constant(llvm_vector(vector), ir.Undefined)
        for lane, place in enumerate(_places(context, builder, vector, sig, args)):
            found = builder.insert_element(found, builder.load(place), ir.IntType(32)(lane))
        return found

    return signature(vector, array, indices, types.intp), codegen


@operation
def store_at(typingctx, array, indices, index, value):
    """``store_at(array, indices, k, v)``: write the lanes of `v` there, one after the other."""
    if not holds(array, value) or not _numbers(indices) or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        for lane, place in enumerate(_places(context, builder, value, sig, args)):
            builder.store(builder.extract_element(args[3], ir.IntType(32)(lane)), place)
        return context.get_dummy_value()

    return signature(types.none, array, indices, types.intp, value), codegen


@operation
def add_products_at(typingctx, array, indices, index, a, b):
    """``add_products_at(array, indices, k, a, b)``: add the lanes of `a` times `b` there.

    One after the other, as `fma` does it, so that an index may occur more than once.
    """
    fits = holds(array, a) and a == b and isinstance(a, VectorType)
    if not fits or not _numbers(indices) or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        name = f"llvm.fmuladd.{suffix(a.element)}"
        for lane, place in enumerate(_places(context, builder, a, sig, args)):
            before = builder.load(place)
            terms = [builder.extract_element(v, ir.IntType(32)(lane)) for v in args[3:]]
            builder.store(call_intrinsic(builder, name, before.type, [*terms, before]), place)
        return context.get_dummy_value()

    return signature(types.none, array, indices, types.intp, a, b), codegen
