"""What registers hold: pieces of vectors, and constants that stay there; see `_simd`.

A register has 64 bytes with AVX-512, 32 with AVX, 16 with SSE and NEON. Where a loop works on more
vectors than there are registers for, it takes one piece of them after the other: the lanes, and so
the results, are the same.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.core.typing import signature

from ._memory import address_of, holds, lanes_constant, vector_of
from ._types import (
    VECTOR_BYTES,
    VectorType,
    concatenate,
    is_x86,
    llvm_vector,
    operation,
    pick_lanes,
    processor_features,
    vector_like,
)
from ._types import splat as splat_value


def _register_bytes() -> int:
    """How long a vector register is on the processor that code is made for."""
    present = processor_features(cpu_target.target_context)
    return VECTOR_BYTES if "+avx512f" in present else 32 if "+avx" in present else 16


def _piece_bytes() -> int:
    """How long a piece is on the processor that code is made for: with 32 short registers, two."""
    both = 1 if is_x86(cpu_target.target_context) else 2
    return both * _register_bytes()


def piece_of(vector: VectorType) -> VectorType:
    whole = vector.lanes * vector.element.bitwidth // 8
    return VectorType(vector.element, min(whole, _piece_bytes()))


def _count(vector: VectorType) -> int:
    return vector.lanes // piece_of(vector).lanes


@operation
def pieces(typingctx: Any, like: Any) -> Any:
    """``pieces(like)``: how many pieces a vector has, a constant; `like` as for `splat`.

    Where the registers are many or long, a vector is its only piece.
    """
    vector = vector_like(like)
    if vector is None:
        return None

    def codegen(context, builder, sig, args):
        return context.get_constant(types.intp, _count(vector))

    return signature(types.intp, like), codegen


@operation
def piece_lanes(typingctx: Any, like: Any) -> Any:
    """``piece_lanes(like)``: how many lanes a piece has, a constant; `like` as for `splat`."""
    vector = vector_like(like)
    if vector is None:
        return None

    def codegen(context, builder, sig, args):
        return lanes_constant(piece_of(vector))

    return signature(types.intp, like), codegen


@operation
def piece(typingctx: Any, value: Any, index: Any) -> Any:
    """``piece(v, k)``: piece `k` of a vector, which holds fewer lanes."""
    if not isinstance(value, VectorType) or not isinstance(index, types.Integer):
        return None
    part = piece_of(value)

    def codegen(context, builder, sig, args):
        if part == value:
            return args[0]
        memory = _in_memory(builder, args[0])
        return builder.load(_pointer(builder, memory, part, args[1]))

    return signature(part, value, types.intp), codegen


@operation
def with_piece(typingctx: Any, value: Any, index: Any, part: Any) -> Any:
    """``with_piece(v, k, p)``: `v` with piece `k` replaced by `p`."""
    if not isinstance(value, VectorType) or part != piece_of(value):
        return None

    def codegen(context, builder, sig, args):
        if part == value:
            return args[2]
        memory = _in_memory(builder, args[0])
        builder.store(args[2], _pointer(builder, memory, part, args[1]))
        return builder.load(memory)

    return signature(value, value, types.intp, part), codegen


def _in_memory(builder: Any, value: Any) -> Any:
    """The address of a copy, which LLVM leaves out where it knows the index of the piece."""
    memory = cgutils.alloca_once(builder, value.type)
    builder.store(value, memory)
    return memory


def _pointer(builder: Any, memory: Any, part: Any, index: Any) -> Any:
    return builder.gep(builder.bitcast(memory, llvm_vector(part).as_pointer()), [index])


@operation
def load_pieces(typingctx: Any, array: Any, index: Any, apart: Any) -> Any:
    """``load_pieces(array, i, apart)``: a vector, piece k from flat index ``i + k*apart`` on."""
    vector = vector_of(array)
    if vector is None:
        return None

    def codegen(context, builder, sig, args):
        found = [
            builder.load(pointer, align=vector.element.bitwidth // 8)
            for pointer in _places(context, builder, array, vector, args)
        ]
        return concatenate(builder, found)

    return signature(vector, array, types.intp, types.intp), codegen


@operation
def store_pieces(typingctx: Any, array: Any, index: Any, apart: Any, value: Any) -> Any:
    """``store_pieces(array, i, apart, v)``: write piece k of `v` at flat index ``i + k*apart``.

    Their addresses are multiples of their lengths (else undefined).
    """
    if not holds(array, value) or value != vector_of(array):
        return None

    def codegen(context, builder, sig, args):
        lanes = piece_of(value).lanes
        places = _places(context, builder, array, value, args)
        for k, pointer in enumerate(places):
            part = pick_lanes(builder, args[3], k * lanes, lanes)
            builder.store(part, pointer, align=lanes * value.element.bitwidth // 8)
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, types.intp, value), codegen


def _places(context: Any, builder: Any, array: Any, vector: Any, args: Any) -> list[Any]:
    """Where the pieces of a vector lie, in an array of which the first three arguments tell."""
    part, where, places = piece_of(vector), args[1], []
    for _ in range(_count(vector)):
        address = address_of(context, builder, array, args[0], where, lanes_constant(part))
        places.append(builder.bitcast(address, llvm_vector(part).as_pointer()))
        where = builder.add(where, args[2])
    return places


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
        made = _held_value if _register_bytes() == VECTOR_BYTES else splat_value
        return made(builder, args[1], vector)

    return signature(vector, like, vector.element), codegen
