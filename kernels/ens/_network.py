"""ENS of few clients: all their rows in registers, sorted by a network without a branch.

With z(1) >= ... >= z(m) and u_s = mean + c*(2*S_s/P - 1), the solution is

    w = max(u_0, max_s min(u_s, z(s))),

for min(u_s, z(s)) is u_s, rising, as long as z(s) > u_s, and z(s), falling, from there on.
The comparators of a network are known once m is, so they are emitted as straight-line code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing import signature
from numba.extending import intrinsic

from .._jit import JIT_DISABLED
from .._simd import load
from .._simd._registers import piece_of
from .._simd._types import VECTORS, call_intrinsic, concatenate, llvm_vector, suffix
from .._simd._types import splat as _splat

#: Largest number of clients that are sorted in registers.
LARGEST = 32
#: Registers of processors whose vectors take more than one.
REGISTERS = 16
#: Rows at a time, each with its own accumulators.
UNROLL = 4


def comparators(m: int) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, of Batcher's merge exchange, which sorts any m numbers."""
    pairs = []
    top = 1 << max(m - 1, 0).bit_length() >> 1
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while d > 0:
            pairs += [(i, i + d) for i in range(m - d) if i & p == r]
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return pairs


def _typer(typingctx: Any, z: Any, index: Any, stride: Any, rows: Any, unit: Any, mean: Any) -> Any:
    """``network_ens(z, index, stride, rows, unit, mean)``: ENS of ``len(rows)`` rows of a group.

    Row i is the vector at flat index ``index + i*stride`` of `z`; of the tuple `rows` only the
    length counts, which is part of its type. Every client has the same weight; `unit` is c/m,
    and `mean` is None or known.
    """
    if not isinstance(z, types.Array) or z.layout != "C" or z.dtype not in VECTORS:
        return None
    vector, m = VECTORS[z.dtype] if mean == types.none else mean, len(rows)
    if getattr(vector, "element", None) != z.dtype:
        return None

    part = piece_of(vector)
    # Piece after piece where rows of whole vectors are more than short registers hold.
    if mean != types.none or m * (vector.lanes // part.lanes) <= REGISTERS:
        part = vector

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        llvm = llvm_vector(part)

        def fill(value: float) -> Any:
            return ir.Constant(llvm, [value] * part.lanes)

        def least(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", a, b), a, b)

        def largest(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        view = context.make_array(z)(context, builder, args[0])
        unit = _splat(builder, args[4], part)

        def solution(where: Any) -> Any:
            column = []
            for _ in range(m):
                pointer = builder.bitcast(builder.gep(view.data, [where]), llvm.as_pointer())
                column.append(builder.load(pointer, align=part.element.bitwidth // 8))
                where = builder.add(where, args[2])
            center = args[5]
            if mean == types.none:
                # The order of sums, and of roundings, is that of `_passes.statistics`.
                sums = [fill(0.0)] * UNROLL
                for i, row in enumerate(column):
                    turn = i % UNROLL if i < m - m % UNROLL else 0
                    sums[turn] = builder.fadd(sums[turn], row)
                center = builder.fadd(builder.fadd(*sums[:2]), builder.fadd(*sums[2:]))
                center = builder.fdiv(center, fill(float(m)))
            for i, j in comparators(m):
                column[i], column[j] = largest(column[i], column[j]), least(column[i], column[j])

            def u(s: int) -> Any:
                name = f"llvm.fmuladd.{suffix(part)}"
                return call_intrinsic(builder, name, llvm, [fill(float(2 * s - m)), unit, center])

            w = u(0)
            for s in range(1, m + 1):
                w = largest(w, least(u(s), column[s - 1]))
            # No solution lies outside the data, wherever rounding puts the mean.
            w = largest(least(w, column[0]), column[-1])
            # A NaN or an infinity is in the sum for sure, and must be in the result.
            ordinary = builder.fcmp_ordered("==", builder.fsub(center, center), fill(0.0))
            # Of zeros of either sign +0.0, wherever they stand.
            return builder.fadd(builder.select(ordinary, w, center), fill(0.0))

        starts = [ir.Constant(args[1].type, k) for k in range(0, vector.lanes, part.lanes)]
        return concatenate(builder, [solution(builder.add(args[1], k)) for k in starts])

    return signature(vector, z, types.intp, types.intp, rows, vector.element, mean), codegen


def _python(z: Any, index: Any, stride: Any, rows: Any, unit: Any, mean: Any) -> Any:
    """The same on NumPy arrays, for runs without compilation."""
    flat, m, dtype = z.reshape(-1), len(rows), z.dtype.type
    width = 64 // z.itemsize if mean is None else mean.data.size
    column = np.stack([flat[index + i * stride : index + i * stride + width] for i in range(m)])
    sums = np.zeros((UNROLL, width), z.dtype)
    with np.errstate(all="ignore"):
        for i, row in enumerate(column):
            sums[i % UNROLL if i < m - m % UNROLL else 0] += row
        center = ((sums[0] + sums[1]) + (sums[2] + sums[3])) / dtype(m)
        if mean is not None:
            center = mean.data
        column = -np.sort(-column, axis=0)
        u = center + np.arange(-m, m + 1, 2).astype(z.dtype)[:, None] * dtype(unit)
        w = np.maximum(u[0], np.minimum(u[1:], column).max(axis=0))
        w = np.clip(w, column[-1], column[0])
    return type(load(flat, index))(np.where(np.isfinite(center), w, center) + dtype(0))


network_ens = _python if JIT_DISABLED else intrinsic(_typer)
