"""Parts of vectors as wide as a register, and constants that stay in one; see `_simd`.

A register has 64 bytes with AVX-512, 32 with AVX, 16 with SSE and NEON. Where more vectors are at
work than there are registers for, a loop takes one part of them after the other: the lanes, and
so the results, are the same.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target
from numba.core.typing import signature

from ._memory import address_of, lanes_constant, vector_like, vector_of
from ._types import VECTOR_BYTES, VECTORS, VectorType, llvm_vector, operation
from ._types import splat as splat_value


def register_bytes() -> int:
    """How long a vector register is on the processor that code is made for."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    present = (features or "").split(",")
    return VECTOR_BYTES if "+avx512f" in present else 32 if "+avx" in present else 16


@functools.cache
def _narrower(element: Any, size: int) -> VectorType:
    return VectorType(element, size)


def _register_of(array: Any) -> VectorType | None:
    """The type of what a register holds of an array's vectors."""
    vector, size = vector_of(array), register_bytes()
    return vector if vector is None or size == VECTOR_BYTES else _narrower(vector.element, size)


def _pointer(context, builder, array, args, numbers):
    """Where a vector of this LLVM type is in an array."""
    count = ir.Constant(ir.IntType(64), numbers.count)
    address = address_of(context, builder, array, args[0], args[1], count)
    return builder.bitcast(address, numbers.as_pointer())


@operation
def register_lanes(typingctx, like):
    """``register_lanes(array)``: how many lanes of its vectors a register holds, a constant."""
    register = _register_of(like)
    if register is None:
        return None

    def codegen(context, builder, sig, args):
        return lanes_constant(register)

    return signature(types.intp, like), codegen


def _held(builder: Any, value: ir.Value, bits: int) -> ir.Value:
    """A number of so many bits, which the compiler does not know to be a constant."""
    kind = ir.IntType(bits)
    unknown = ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=r,0")
    # Told that it reads no memory, the compiler moves it out of loops.
    same = builder.call(unknown, [builder.bitcast(value, kind)], attrs=("readnone", "nounwind"))
    return builder.bitcast(same, value.type)


def _held_value(builder: Any, value: ir.Value, vector: VectorType) -> ir.Value:
    """The same in every lane."""
    return splat_value(builder, _held(builder, value, vector.element.bitwidth), vector)


@operation
def hold_scalar(typingctx, value):
    """``hold_scalar(x)``: `hold` of a whole number of 64 bits, for scalars."""
    kind = types.unliteral(value)
    if not isinstance(kind, types.Integer) or kind.bitwidth != 64:
        return None

    def codegen(context, builder, sig, args):
        return _held(builder, args[0], 64)

    return signature(kind, kind), codegen


@operation
def hold(typingctx, like, value):
    """``hold(like, x)``: `splat` of a constant that stays in a register or on the stack.

    Within a loop the compiler would load it anew every time, from an address that takes an
    instruction and a register.
    """
    vector = vector_like(like)
    if vector is None or not isinstance(value, (types.Integer, types.Float)):
        return None

    def codegen(context, builder, sig, args):
        return _held_value(builder, args[1], vector)

    return signature(vector, like, vector.element), codegen


@operation
def keep(typingctx, like, value):
    """``keep(like, x)``: `hold` if a register has a whole vector, else `splat`.

    With AVX-512 there are 32 of them; where there are fewer, and a vector takes several, what is
    held would be on the stack.
    """
    vector = vector_like(like)
    if vector is None or not isinstance(value, (types.Integer, types.Float)):
        return None

    def codegen(context, builder, sig, args):
        made = _held_value if register_bytes() == VECTOR_BYTES else splat_value
        return made(builder, args[1], vector)

    return signature(vector, like, vector.element), codegen


@operation
def splat_register(typingctx, like, value):
    """``splat_register(array, x)``: `splat` for a register."""
    register = _register_of(like)
    if register is None or not isinstance(value, (types.Integer, types.Float)):
        return None

    def codegen(context, builder, sig, args):
        return splat_value(builder, args[1], register)

    return signature(register, like, register.element), codegen


@operation
def load_register_each(typingctx, array, index):
    """``load_register_each(array, i)``: `load_each` for a register."""
    register = _register_of(array)
    if register is None or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        one = ir.Constant(ir.IntType(64), 1)
        address = address_of(context, builder, array, args[0], args[1], one)
        return splat_value(builder, builder.load(address), register)

    return signature(register, array, types.intp), codegen


@operation
def load_register(typingctx, array, index, like):
    """``load_register(array, i, like)``: `load_as` for a register of the array `like`."""
    given, register = vector_of(array), _register_of(like)
    if given is None or register is None or not isinstance(index, types.Integer):
        return None
    wider = given == VECTORS[types.float32] and register.element == types.float64
    if given.element != register.element and not wider:
        return None

    def codegen(context, builder, sig, args):
        numbers = ir.VectorType(llvm_vector(given).element, register.lanes)
        pointer = _pointer(context, builder, array, args, numbers)
        found = builder.load(pointer, align=given.element.bitwidth // 8)
        return builder.fpext(found, llvm_vector(register)) if wider else found

    return signature(register, array, types.intp, like), codegen


@operation
def store_register(typingctx, array, index, value):
    """``store_register(array, i, v)``: `store` for a register."""
    if vector_of(array, writable=True) is None or value != _register_of(array):
        return None
    if not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        pointer = _pointer(context, builder, array, args, llvm_vector(value))
        builder.store(args[2], pointer, align=value.element.bitwidth // 8)
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, value), codegen
