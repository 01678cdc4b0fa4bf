"""Vectors from and to arrays; see `_simd`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from ._types import (
    VECTORS,
    VectorType,
    call_intrinsic,
    is_int,
    llvm_vector,
    operation,
    suffix,
    vector_like,
)
from ._types import splat as splat_value

_I32 = ir.IntType(32)


def vector_of(array: Any, *, writable: bool = False) -> VectorType | None:
    """The vector type that a C-contiguous array holds, if there is one."""
    if not isinstance(array, types.Array) or array.layout != "C" or array.dtype not in VECTORS:
        return None
    return None if writable and not array.mutable else VECTORS[array.dtype]


def address_of(context, builder, kind, array, index, count=None):
    """The address of element `index`, counted flat, of a C-contiguous array.

    With bounds checking on, `count` elements from there must lie within the array.
    """
    view = context.make_array(kind)(context, builder, array)
    if context.enable_boundscheck and count is not None:
        end = builder.add(index, count)
        inside = builder.and_(
            builder.icmp_signed(">=", index, ir.Constant(index.type, 0)),
            builder.icmp_signed("<=", end, view.nitems),
        )
        with builder.if_then(builder.not_(inside), likely=False):
            context.call_conv.return_user_exc(
                builder, IndexError, ("vector access beyond the array",)
            )
    return builder.gep(view.data, [index])


def lanes_constant(kind: VectorType) -> ir.Constant:
    """The number of lanes as a 64-bit integer."""
    return ir.Constant(ir.IntType(64), kind.lanes)


def _load(array, index, vector):
    if vector is None or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        count = lanes_constant(vector)
        address = address_of(context, builder, array, args[0], args[1], count)
        pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
        return builder.load(pointer, align=vector.element.bitwidth // 8)

    return signature(vector, array, types.intp), codegen


def holds(array, value):
    """Whether a vector, or a part of one, can be written to an array as it is."""
    vector = vector_of(array, writable=True)
    return vector and isinstance(value, VectorType) and value.element == vector.element


def _store(array, index, value, align=0):
    if not holds(array, value) or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        count = lanes_constant(value)
        address = address_of(context, builder, array, args[0], args[1], count)
        pointer = builder.bitcast(address, llvm_vector(value).as_pointer())
        builder.store(args[2], pointer, align=align or value.element.bitwidth // 8)
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, value), codegen


@operation
def load(typingctx, array, index):
    """``load(array, i)``: the vector at flat index `i` of a C-contiguous array."""
    return _load(array, index, vector_of(array))


@operation
def load_each(typingctx, array, index):
    """``load_each(array, i)``: the number at flat index `i` in every lane.

    For ``splat(array, array[i])`` Numba would first ask whether `i` is negative.
    """
    vector = vector_of(array)
    if vector is None or not isinstance(index, types.Integer):
        return None

    def codegen(context, builder, sig, args):
        one = ir.Constant(ir.IntType(64), 1)
        address = address_of(context, builder, array, args[0], args[1], one)
        return splat_value(builder, builder.load(address), vector)

    return signature(vector, array, types.intp), codegen


@operation
def load_as(typingctx, array, index, like):
    """``load_as(array, i, like)``: as many numbers as a vector of the array `like` holds.

    They are converted to it: float64 from float32, which is exact, or either from itself. `like`
    may be a vector too, or a part of one.
    """
    given, vector = vector_of(array), vector_like(like)
    if given is None or vector is None or not isinstance(index, types.Integer):
        return None
    if given.element == vector.element:
        same = _load(array, index, vector)
        return signature(vector, array, types.intp, like), same[1]
    if given.element != types.float32 or vector.element != types.float64:
        return None

    def codegen(context, builder, sig, args):
        count = lanes_constant(vector)
        address = address_of(context, builder, array, args[0], args[1], count)
        half = ir.VectorType(ir.FloatType(), vector.lanes)
        numbers = builder.load(builder.bitcast(address, half.as_pointer()), align=4)
        return builder.fpext(numbers, llvm_vector(vector))

    return signature(vector, array, types.intp, like), codegen


@operation
def store(typingctx, array, index, value):
    """``store(array, i, v)``: write `v` at flat index `i` of a C-contiguous array."""
    return _store(array, index, value)


@operation
def store_aligned(typingctx, array, index, value):
    """Like `store` to an address that is a multiple of 64 (else undefined)."""
    return _store(array, index, value, 64)


def _masked_load(builder, vector, address, mask, fill):
    result = llvm_vector(vector)
    pointer = builder.bitcast(address, result.as_pointer())
    align = ir.Constant(_I32, vector.element.bitwidth // 8)
    name = f"llvm.masked.load.{suffix(vector)}.p0"
    return call_intrinsic(builder, name, result, [pointer, align, mask, fill])


def _masked_store(builder, vector, address, mask, value):
    pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
    align = ir.Constant(_I32, vector.element.bitwidth // 8)
    name = f"llvm.masked.store.{suffix(vector)}.p0"
    call_intrinsic(builder, name, ir.VoidType(), [value, pointer, align, mask])


def _clamped(builder, vector, count):
    """`count`, at least 0 and at most the number of lanes."""
    limit = ir.Constant(count.type, vector.lanes)
    count = builder.select(builder.icmp_signed("<", count, limit), count, limit)
    zero = ir.Constant(count.type, 0)
    return builder.select(builder.icmp_signed(">", count, zero), count, zero)


def lanes_below(builder, vector, count):
    """The mask of the lanes below `count`, a 64-bit integer."""
    narrow = ir.VectorType(_I32, vector.lanes)
    numbers = ir.Constant(narrow, list(range(vector.lanes)))
    few = builder.trunc(_clamped(builder, vector, count), _I32)
    one = builder.insert_element(ir.Constant(narrow, ir.Undefined), few, ir.Constant(_I32, 0))
    every = builder.shuffle_vector(
        one, ir.Constant(narrow, ir.Undefined), ir.Constant(narrow, None)
    )
    return builder.icmp_signed("<", numbers, every)


@operation
def load_partial(typingctx, array, index, count, fill):
    """``load_partial(array, i, count, fill)``: `load` of the first `count` lanes.

    Memory beyond them is not touched; the other lanes hold the scalar `fill`.
    """
    vector = vector_of(array)
    if vector is None or not isinstance(fill, (types.Integer, types.Float)):
        return None

    def codegen(context, builder, sig, args):
        some = _clamped(builder, vector, args[2])
        address = address_of(context, builder, array, args[0], args[1], some)
        mask = lanes_below(builder, vector, args[2])
        return _masked_load(builder, vector, address, mask, splat_value(builder, args[3], vector))

    return signature(vector, array, types.intp, types.intp, vector.element), codegen


@operation
def store_partial(typingctx, array, index, value, count):
    """``store_partial(array, i, v, count)``: `store` of the first `count` lanes."""
    if not holds(array, value):
        return None

    def codegen(context, builder, sig, args):
        some = _clamped(builder, value, args[3])
        address = address_of(context, builder, array, args[0], args[1], some)
        mask = lanes_below(builder, value, args[3])
        _masked_store(builder, value, address, mask, args[2])
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, value, types.intp), codegen


@operation
def gather(typingctx, array, index):
    """``gather(array, indices)``: elements at the flat indices in an integer vector.

    Scalar loads, which are no slower than the gather instruction on most processors;
    `indices` must have the lanes of the result (int64 for float64, int32 for float32).
    """
    vector = vector_of(array)
    if vector is None or not is_int(index) or index.lanes != vector.lanes:
        return None

    def codegen(context, builder, sig, args):
        result: ir.Value = ir.Constant(llvm_vector(vector), ir.Undefined)
        extend = builder.sext if index.element.signed else builder.zext
        for lane in range(vector.lanes):
            number = ir.Constant(_I32, lane)
            where = builder.extract_element(args[1], number)
            if index.element.bitwidth < 64:
                where = extend(where, ir.IntType(64))
            one = ir.Constant(ir.IntType(64), 1)
            address = address_of(context, builder, array, args[0], where, one)
            result = builder.insert_element(result, builder.load(address), number)
        return result

    return signature(vector, array, index), codegen


def _prefetch(array, closeness):
    if not isinstance(array, types.Array) or array.layout != "C":
        return None

    def codegen(context, builder, sig, args):
        address = builder.bitcast(
            address_of(context, builder, array, *args), ir.IntType(8).as_pointer()
        )
        hints = [ir.Constant(_I32, hint) for hint in (0, closeness, 1)]  # read, ..., data
        call_intrinsic(builder, "llvm.prefetch.p0", ir.VoidType(), [address, *hints])
        return context.get_dummy_value()

    return signature(types.none, array, types.intp), codegen


@operation
def prefetch(typingctx, array, index):
    """``prefetch(array, i)``: ask for the cache line of flat index `i`, in or out of bounds."""
    return _prefetch(array, 3)


@operation
def prefetch_second(typingctx, array, index):
    """Like `prefetch`, but no closer than the second-level cache: for what is needed later."""
    return _prefetch(array, 2)


@operation
def flat_view(typingctx, array):
    """``flat_view(a)``: a C-contiguous array in one dimension, read-only, which `a` must outlive.

    So arrays of several types can be one variable, and none is counted as used.
    """
    if not isinstance(array, types.Array) or array.layout != "C":
        return None
    view = types.Array(array.dtype, 1, "C", readonly=True)

    def codegen(context, builder, sig, args):
        given = context.make_array(array)(context, builder, args[0])
        out = context.make_array(view)(context, builder)
        context.populate_array(
            out,
            data=given.data,
            shape=[given.nitems],
            strides=[given.itemsize],
            itemsize=given.itemsize,
            meminfo=None,
            parent=None,
        )
        return out._getvalue()

    return signature(view, array), codegen


@operation
def align_stack(typingctx):
    """``align_stack()``: in a kernel, has vectors that registers cannot hold kept aligned.

    LLVM decides too late that it would like to: each of them would straddle two cache lines.
    """

    def codegen(context, builder, sig, args):
        builder.function.attributes.add("uwtable")  # llvmlite writes none without one by name
        builder.function.attributes.alignstack = 64
        return context.get_dummy_value()

    return signature(types.none), codegen
