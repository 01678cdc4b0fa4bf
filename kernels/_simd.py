"""Operations on explicit vectors, for use in kernels and device functions.

Vectors come from `load` (or `splat`, `iota`) and hold 64 bytes: 8 lanes of float64,
int64 or uint64, 16 of float32, int32 or uint32. ``+ - *``, unary ``-`` and comparisons
work on all of them, ``/`` on floats, ``& | ^ ~ << >>`` on integers; ``& | ^ ~`` on
masks. In an operation with a vector a scalar is converted to the vector's element, so
``0.5 * v`` stays float32 when ``v`` is. Comparisons give a mask; as in Python they are
False for NaN, except ``!=``.

`fma`, `minimum`, `maximum`, `absolute`, `sqrt`, `copysign`, `select`, `round_even`,
`floor`, `to_bits` and `from_bits` take scalars too, so that one source can serve both.

With ``NUMBA_DISABLE_JIT=1`` every name is its NumPy twin of `_simd_python`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.extending import intrinsic

from . import _simd_python
from ._jit import JIT_DISABLED
from ._simd_types import (
    VECTORS,
    MaskType,
    VectorType,
    call_intrinsic,
    is_float,
    is_int,
    llvm_vector,
    splat as _splat,
    suffix,
)

_I32 = ir.IntType(32)


def _operation(typer: Callable[..., Any]) -> Any:
    """The intrinsic, or without compilation its NumPy twin of the same name."""
    if JIT_DISABLED:
        return getattr(_simd_python, typer.__name__)
    return intrinsic(typer)


def _is_floating(kind: Any) -> bool:
    return is_float(kind) or isinstance(kind, types.Float)


def _same_floats(*kinds: Any) -> bool:
    return _is_floating(kinds[0]) and all(kind == kinds[0] for kind in kinds)


def _llvm(kind: Any) -> ir.Type:
    if isinstance(kind, (VectorType, MaskType)):
        return llvm_vector(kind)
    if kind == types.boolean:
        return ir.IntType(1)
    if isinstance(kind, types.Float):
        return ir.DoubleType() if kind.bitwidth == 64 else ir.FloatType()
    return ir.IntType(kind.bitwidth)


def _constant(kind: Any, value: Any) -> ir.Constant:
    if isinstance(kind, VectorType):
        return ir.Constant(llvm_vector(kind), [value] * kind.lanes)
    return ir.Constant(_llvm(kind), value)


# ---------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------


def _vector_of(array: Any, *, writable: bool = False) -> VectorType | None:
    if not isinstance(array, types.Array) or array.layout != "C" or array.dtype not in VECTORS:
        return None
    return None if writable and not array.mutable else VECTORS[array.dtype]


def _address(
    context: Any, builder: Any, kind: Any, array: Any, index: Any, count: Any = None
) -> Any:
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


def _lanes_constant(kind: VectorType) -> ir.Constant:
    return ir.Constant(ir.IntType(64), kind.lanes)


def _load(typingctx: Any, array: Any, index: Any, align: int) -> Any:
    vector = _vector_of(array)
    if vector is None or not isinstance(index, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, *args, _lanes_constant(vector))
        pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
        return builder.load(pointer, align=align or vector.element.bitwidth // 8)

    return signature(vector, array, types.intp), codegen


def _store(typingctx: Any, array: Any, index: Any, value: Any, align: int) -> Any:
    vector = _vector_of(array, writable=True)
    if vector is None or value != vector or not isinstance(index, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, *args[:2], _lanes_constant(vector))
        pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
        builder.store(args[2], pointer, align=align or vector.element.bitwidth // 8)
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, vector), codegen


@_operation
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """``load(array, i)``: the vector at flat index `i` of a C-contiguous array."""
    return _load(typingctx, array, index, 0)


@_operation
def load_aligned(typingctx: Any, array: Any, index: Any) -> Any:
    """Like `load` from an address that is a multiple of 64 (else undefined)."""
    return _load(typingctx, array, index, 64)


@_operation
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``store(array, i, v)``: write `v` at flat index `i` of a C-contiguous array."""
    return _store(typingctx, array, index, value, 0)


@_operation
def store_aligned(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Like `store` to an address that is a multiple of 64 (else undefined)."""
    return _store(typingctx, array, index, value, 64)


def _masked_load(builder: Any, vector: Any, address: Any, mask: Any, fill: Any) -> Any:
    result = llvm_vector(vector)
    pointer = builder.bitcast(address, result.as_pointer())
    align = ir.Constant(_I32, vector.element.bitwidth // 8)
    name = f"llvm.masked.load.{suffix(vector)}.p0"
    return call_intrinsic(builder, name, result, [pointer, align, mask, fill])


def _masked_store(builder: Any, vector: Any, address: Any, mask: Any, value: Any) -> None:
    pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
    align = ir.Constant(_I32, vector.element.bitwidth // 8)
    name = f"llvm.masked.store.{suffix(vector)}.p0"
    call_intrinsic(builder, name, ir.VoidType(), [value, pointer, align, mask])


def _first_lanes(builder: Any, vector: Any, count: Any) -> Any:
    """The mask of the lanes below `count`, a 64-bit integer."""
    narrow = ir.VectorType(_I32, vector.lanes)
    numbers = ir.Constant(narrow, list(range(vector.lanes)))
    limit = ir.Constant(count.type, vector.lanes)
    count = builder.select(builder.icmp_signed("<", count, limit), count, limit)
    zero = ir.Constant(count.type, 0)
    count = builder.select(builder.icmp_signed(">", count, zero), count, zero)
    few = builder.trunc(count, _I32)
    one = builder.insert_element(ir.Constant(narrow, ir.Undefined), few, ir.Constant(_I32, 0))
    every = builder.shuffle_vector(
        one, ir.Constant(narrow, ir.Undefined), ir.Constant(narrow, None)
    )
    return builder.icmp_signed("<", numbers, every)


@_operation
def load_partial(typingctx: Any, array: Any, index: Any, count: Any, fill: Any) -> Any:
    """``load_partial(array, i, count, fill)``: `load` of the first `count` lanes.

    Memory beyond them is not touched; the other lanes hold the scalar `fill`.
    """
    vector = _vector_of(array)
    if vector is None or not isinstance(fill, (types.Integer, types.Float)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, args[0], args[1], args[2])
        mask = _first_lanes(builder, vector, args[2])
        return _masked_load(builder, vector, address, mask, _splat(builder, args[3], vector))

    return signature(vector, array, types.intp, types.intp, vector.element), codegen


@_operation
def store_partial(typingctx: Any, array: Any, index: Any, value: Any, count: Any) -> Any:
    """``store_partial(array, i, v, count)``: `store` of the first `count` lanes."""
    vector = _vector_of(array, writable=True)
    if vector is None or value != vector:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, args[0], args[1], args[3])
        mask = _first_lanes(builder, vector, args[3])
        _masked_store(builder, vector, address, mask, args[2])
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, vector, types.intp), codegen


@_operation
def load_masked(typingctx: Any, array: Any, index: Any, mask: Any, fill: Any) -> Any:
    """``load_masked(array, i, mask, fill)``: `load` of the masked lanes, else scalar `fill`."""
    vector = _vector_of(array)
    if vector is None or mask != MaskType(vector.lanes):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, args[0], args[1])
        return _masked_load(builder, vector, address, args[2], _splat(builder, args[3], vector))

    return signature(vector, array, types.intp, mask, vector.element), codegen


@_operation
def store_masked(typingctx: Any, array: Any, index: Any, value: Any, mask: Any) -> Any:
    """``store_masked(array, i, v, mask)``: `store` of the masked lanes; others stay."""
    vector = _vector_of(array, writable=True)
    if vector is None or value != vector or mask != MaskType(vector.lanes):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, array, args[0], args[1])
        _masked_store(builder, vector, address, args[3], args[2])
        return context.get_dummy_value()

    return signature(types.none, array, types.intp, vector, mask), codegen


@_operation
def gather(typingctx: Any, array: Any, index: Any) -> Any:
    """``gather(array, indices)``: elements at the flat indices in an integer vector.

    Scalar loads, which are no slower than the gather instruction on most processors;
    `indices` must have the lanes of the result (int64 for float64, int32 for float32).
    """
    vector = _vector_of(array)
    if vector is None or not is_int(index) or index.lanes != vector.lanes:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        result: ir.Value = ir.Constant(llvm_vector(vector), ir.Undefined)
        extend = builder.sext if index.element.signed else builder.zext
        for lane in range(vector.lanes):
            number = ir.Constant(_I32, lane)
            where = builder.extract_element(args[1], number)
            if index.element.bitwidth < 64:
                where = extend(where, ir.IntType(64))
            one = ir.Constant(ir.IntType(64), 1)
            address = _address(context, builder, array, args[0], where, one)
            result = builder.insert_element(result, builder.load(address), number)
        return result

    return signature(vector, array, index), codegen


@_operation
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, i)``: ask for the cache line of flat index `i`, in or out of bounds."""
    if _vector_of(array) is None:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = builder.bitcast(
            _address(context, builder, array, *args), ir.IntType(8).as_pointer()
        )
        hints = [ir.Constant(_I32, hint) for hint in (0, 3, 1)]  # read, keep close, data
        call_intrinsic(builder, "llvm.prefetch.p0", ir.VoidType(), [address, *hints])
        return context.get_dummy_value()

    return signature(types.none, array, types.intp), codegen


# ---------------------------------------------------------------------------------
# Making vectors, and reaching their lanes
# ---------------------------------------------------------------------------------


def _vector_like(like: Any) -> VectorType | None:
    if isinstance(like, VectorType):
        return like
    if isinstance(like, types.Array):
        return VECTORS.get(like.dtype)
    return VECTORS.get(types.unliteral(like))


@_operation
def splat(typingctx: Any, like: Any, value: Any) -> Any:
    """``splat(like, x)``: the scalar `x` in each lane, converted to the element of `like`.

    `like` is a vector, an array or a scalar; only its type counts.
    """
    vector = _vector_like(like)
    if vector is None or not isinstance(value, (types.Integer, types.Float, types.Boolean)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _splat(builder, args[1], vector)

    return signature(vector, like, vector.element), codegen


@_operation
def lanes(typingctx: Any, like: Any) -> Any:
    """``lanes(like)``: 8 or 16, a constant; `like` as for `splat`."""
    vector = _vector_like(like)
    if vector is None:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.intp, vector.lanes)

    return signature(types.intp, like), codegen


@_operation
def iota(typingctx: Any, like: Any) -> Any:
    """``iota(like)``: 0, 1, 2, ... in the lanes; `like` as for `splat`."""
    vector = _vector_like(like)
    if vector is None:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(llvm_vector(vector), list(range(vector.lanes)))

    return signature(vector, like), codegen


@_operation
def lane(typingctx: Any, value: Any, index: Any) -> Any:
    """``lane(v, i)``: the value in lane `i`."""
    if not isinstance(value, VectorType):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], _I32))

    return signature(value.element, value, types.intp), codegen


@_operation
def with_lane(typingctx: Any, value: Any, index: Any, scalar: Any) -> Any:
    """``with_lane(v, i, x)``: `v` with lane `i` replaced by `x`."""
    if not isinstance(value, VectorType):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.insert_element(args[0], args[2], builder.trunc(args[1], _I32))

    return signature(value, value, types.intp, value.element), codegen


@_operation
def first_lanes(typingctx: Any, like: Any, count: Any) -> Any:
    """``first_lanes(like, count)``: the mask of the lanes below `count`."""
    vector = _vector_like(like)
    if vector is None or not isinstance(count, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _first_lanes(builder, vector, args[1])

    return signature(MaskType(vector.lanes), like, types.intp), codegen


# ---------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------


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


@_operation
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``fma(a, b, c)``: a * b + c, rounded once where the processor has the instruction.

    Elsewhere rounded twice, not emulated in software.
    """
    return _floating("fmuladd", 3)(a, b, c)


@_operation
def absolute(typingctx: Any, a: Any) -> Any:
    """``absolute(a)``: the sign bit cleared, of zeros and NaN too."""
    return _floating("fabs", 1)(a)


@_operation
def sqrt(typingctx: Any, a: Any) -> Any:
    """``sqrt(a)``: correctly rounded; NaN below zero, -0.0 for -0.0."""
    return _floating("sqrt", 1)(a)


@_operation
def copysign(typingctx: Any, a: Any, b: Any) -> Any:
    """``copysign(a, b)``: `a` with the sign bit of `b`."""
    return _floating("copysign", 2)(a, b)


def _extremum(symbol: str, a: Any, b: Any) -> Any:
    numeric = isinstance(a, (VectorType, types.Integer, types.Float))
    if a != b or not numeric:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _is_floating(a):
            first = builder.fcmp_ordered(symbol, *args)
        elif getattr(a, "element", a).signed:
            first = builder.icmp_signed(symbol, *args)
        else:
            first = builder.icmp_unsigned(symbol, *args)
        return builder.select(first, *args)

    return signature(a, a, b), codegen


@_operation
def minimum(typingctx: Any, a: Any, b: Any) -> Any:
    """``minimum(a, b)``: `a` if a < b else `b`, one instruction on x86.

    So `b` is returned if either operand is NaN, and if both are zeros of any sign.
    """
    return _extremum("<", a, b)


@_operation
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
    shift = _constant(kind, float(2**bits))
    rounded = builder.fsub(builder.fadd(size, shift), shift)
    rounded = call_intrinsic(builder, f"llvm.copysign.{llvm}", value.type, [rounded, value])
    return builder.select(builder.fcmp_ordered("<", size, shift), rounded, value)


def _round_even(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if _has_rounding(context):
        return call_intrinsic(builder, f"llvm.rint.{suffix(kind)}", value.type, [value])
    return _round_by_adding(builder, kind, value)


@_operation
def round_even(typingctx: Any, a: Any) -> Any:
    """``round_even(a)``: the nearest integer, ties to even; zeros, inf and NaN as they are."""
    if not _is_floating(a):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _round_even(context, builder, a, args[0])

    return signature(a, a), codegen


@_operation
def floor(typingctx: Any, a: Any) -> Any:
    """``floor(a)``: the largest integer not above; zeros, inf and NaN as they are."""
    if not _is_floating(a):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _has_rounding(context):
            return call_intrinsic(builder, f"llvm.floor.{suffix(a)}", args[0].type, list(args))
        near = _round_by_adding(builder, a, args[0])
        below = builder.fsub(near, _constant(a, 1.0))
        return builder.select(builder.fcmp_ordered(">", near, args[0]), below, near)

    return signature(a, a), codegen


def _power_of_two(builder: Any, kind: Any, exponent: Any) -> Any:
    """2 to a whole floating-point exponent, shifted into place from a fixed-point sum."""
    width, bits, bias = (64, 52, 1023) if kind.element.bitwidth == 64 else (32, 23, 127)
    whole = ir.VectorType(ir.IntType(width), kind.lanes)
    fixed = builder.fadd(exponent, _constant(kind, 1.5 * 2.0**bits))
    shifted = builder.shl(
        builder.bitcast(fixed, whole), ir.Constant(whole, [bits] * kind.lanes)
    )
    biased = builder.add(shifted, ir.Constant(whole, [bias << bits] * kind.lanes))
    return builder.bitcast(biased, llvm_vector(kind))


@_operation
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
        shift = _constant(a, 1.5 * 2.0 ** (52 if wide else 23))
        half = builder.fmul(n, _constant(a, 0.5))
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
        return builder.bitcast(args[0], _llvm(target))

    return signature(target, source), codegen


@_operation
def to_bits(typingctx: Any, a: Any) -> Any:
    """``to_bits(a)``: the bits of floats as signed integers of the same width."""
    if not _is_floating(a):
        return None
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.int64 if width == 64 else types.int32))


@_operation
def from_bits(typingctx: Any, a: Any) -> Any:
    """``from_bits(a)``: the floats with the bits of integers of the same width."""
    if not (is_int(a) or isinstance(a, types.Integer)):
        return None
    a = types.unliteral(a)
    width = getattr(a, "element", a).bitwidth
    return _reinterpret(a, _with_element(a, types.float64 if width == 64 else types.float32))


@_operation
def to_float(typingctx: Any, a: Any) -> Any:
    """``to_float(a)``: integer lanes converted to floats of the same width."""
    if not is_int(a):
        return None
    target = VECTORS[types.float64 if a.element.bitwidth == 64 else types.float32]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        convert = builder.sitofp if a.element.signed else builder.uitofp
        return convert(args[0], llvm_vector(target))

    return signature(target, a), codegen


@_operation
def to_int(typingctx: Any, a: Any) -> Any:
    """``to_int(a)``: truncated to signed integers of the same width, saturating; NaN gives 0."""
    if not is_float(a):
        return None
    target = VECTORS[types.int64 if a.element.bitwidth == 64 else types.int32]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = f"llvm.fptosi.sat.{suffix(target)}.{suffix(a)}"
        return call_intrinsic(builder, name, llvm_vector(target), list(args))

    return signature(target, a), codegen


def _half(builder: Any, value: Any, start: int, count: int) -> Any:
    picks = ir.Constant(ir.VectorType(_I32, count), list(range(start, start + count)))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), picks)


@_operation
def widen(typingctx: Any, a: Any) -> Any:
    """``low, high = widen(a)``: the 16 lanes of float32 as two vectors of float64."""
    if a != VECTORS[types.float32]:
        return None
    wide = VECTORS[types.float64]
    pair = types.UniTuple(wide, 2)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        halves = [
            builder.fpext(_half(builder, args[0], start, 8), llvm_vector(wide)) for start in (0, 8)
        ]
        return context.make_tuple(builder, pair, halves)

    return signature(pair, a), codegen


@_operation
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


# ---------------------------------------------------------------------------------
# Masks
# ---------------------------------------------------------------------------------


@_operation
def select(typingctx: Any, mask: Any, a: Any, b: Any) -> Any:
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

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        left, right = (
            value if kind == result else _splat(builder, value, result)
            for kind, value in zip(kinds, args[1:], strict=True)
        )
        return builder.select(args[0], left, right)

    return signature(result, mask, *kinds), codegen


def _bits(builder: Any, mask: Any, value: Any) -> Any:
    if not isinstance(mask, MaskType):
        return value
    return builder.bitcast(value, ir.IntType(mask.lanes))


@_operation
def mask_bits(typingctx: Any, mask: Any) -> Any:
    """``mask_bits(mask)``: an integer with bit i set where lane i holds."""
    if not isinstance(mask, MaskType):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(_bits(builder, mask, args[0]), ir.IntType(64))

    return signature(types.int64, mask), codegen


@_operation
def count_true(typingctx: Any, mask: Any) -> Any:
    """``count_true(mask)``: the number of lanes where the mask holds."""
    if not isinstance(mask, MaskType):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.zext(_bits(builder, mask, args[0]), ir.IntType(64))
        return call_intrinsic(builder, "llvm.ctpop.i64", ir.IntType(64), [bits])

    return signature(types.int64, mask), codegen


@_operation
def any_true(typingctx: Any, mask: Any) -> Any:
    """``any_true(mask)``: whether the mask holds in some lane; scalars as they are."""
    if not isinstance(mask, (MaskType, types.Boolean)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = _bits(builder, mask, args[0])
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return signature(types.boolean, mask), codegen


@_operation
def all_true(typingctx: Any, mask: Any) -> Any:
    """``all_true(mask)``: whether the mask holds in every lane; scalars as they are."""
    if not isinstance(mask, (MaskType, types.Boolean)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = _bits(builder, mask, args[0])
        return builder.icmp_unsigned("==", bits, ir.Constant(bits.type, -1))

    return signature(types.boolean, mask), codegen


# ---------------------------------------------------------------------------------
# Across lanes
# ---------------------------------------------------------------------------------


def _reduce(kind: Any, combine: Callable[..., Any]) -> Any:
    if not isinstance(kind, VectorType):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, width = args[0], kind.lanes
        while width > 1:
            width //= 2
            value = combine(
                builder, _half(builder, value, 0, width), _half(builder, value, width, width)
            )
        return builder.extract_element(value, ir.Constant(_I32, 0))

    return signature(kind.element, kind), codegen


@_operation
def horizontal_sum(typingctx: Any, a: Any) -> Any:
    """``horizontal_sum(a)``: the sum of the lanes, the upper half onto the lower each time.

    The order is the same on every machine.
    """

    def add(builder: Any, left: Any, right: Any) -> Any:
        return (builder.fadd if is_float(a) else builder.add)(left, right)

    return _reduce(a, add)


def _reduce_extremum(symbol: str, a: Any) -> Any:
    def pick(builder: Any, left: Any, right: Any) -> Any:
        if is_float(a):
            first = builder.fcmp_ordered(symbol, left, right)
        elif a.element.signed:
            first = builder.icmp_signed(symbol, left, right)
        else:
            first = builder.icmp_unsigned(symbol, left, right)
        return builder.select(first, left, right)

    return _reduce(a, pick)


@_operation
def horizontal_min(typingctx: Any, a: Any) -> Any:
    """``horizontal_min(a)``: by `minimum` of halves; unspecified if a lane is NaN."""
    return _reduce_extremum("<", a)


@_operation
def horizontal_max(typingctx: Any, a: Any) -> Any:
    """``horizontal_max(a)``: by `maximum` of halves; unspecified if a lane is NaN."""
    return _reduce_extremum(">", a)


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


@_operation
def transpose(typingctx: Any, rows: Any) -> Any:
    """``transpose(rows)``: a tuple of as many vectors as lanes, transposed."""
    if not isinstance(rows, types.UniTuple) or not isinstance(rows.dtype, VectorType):
        return None
    if rows.count != rows.dtype.lanes:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        columns = _transpose(builder, cgutils.unpack_tuple(builder, args[0]))
        return context.make_tuple(builder, rows, columns)

    return signature(rows, rows), codegen


@_operation
def load_transposed(typingctx: Any, array: Any, index: Any, stride: Any) -> Any:
    """``load_transposed(array, i, stride)``: a square block of an array, column by column.

    Row r of the block starts at flat index ``i + r * stride``; the result is a tuple
    whose element c holds column c of all rows (8 x 8 in float64, 16 x 16 in float32).
    """
    vector = _vector_of(array)
    if vector is None:
        return None
    columns = types.UniTuple(vector, vector.lanes)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where, rows = args[1], []
        for _ in range(vector.lanes):
            address = _address(context, builder, array, args[0], where, _lanes_constant(vector))
            pointer = builder.bitcast(address, llvm_vector(vector).as_pointer())
            rows.append(builder.load(pointer, align=vector.element.bitwidth // 8))
            where = builder.add(where, args[2])
        return context.make_tuple(builder, columns, _transpose(builder, rows))

    return signature(columns, array, types.intp, types.intp), codegen
