"""Operations on explicit vectors, for use in kernels and device functions.

Vectors come from `load` (or `splat`, `iota`) and hold 64 bytes: 8 lanes of float64,
int64 or uint64, 16 of float32, int32 or uint32. ``+ - *``, unary ``-`` and comparisons
work on all of them, ``/`` on floats, ``& | ^ ~ << >>`` on integers; ``& | ^ ~`` on
masks. In an operation with a vector a scalar is converted to the vector's element, so
``0.5 * v`` stays float32 when ``v`` is. Comparisons give a mask; as in Python they are
False for NaN, except ``!=``.

`fma`, `minimum`, `maximum`, `absolute`, `sqrt`, `copysign`, `select`, `round_even`,
`to_bits` and `from_bits` take scalars too, so that one source can serve both.

With ``NUMBA_DISABLE_JIT=1`` every name is its NumPy twin of `_python`.
"""

from __future__ import annotations

from ._arithmetic import (
    absolute,
    copysign,
    fma,
    from_bits,
    maximum,
    minimum,
    multiply_high,
    narrow,
    reinterpret,
    round_even,
    scale_by_power,
    sqrt,
    to_bits,
    to_float,
    widen,
)
from ._lanes import (
    add_where,
    all_true,
    any_true,
    count_true,
    count_where,
    counts_from,
    horizontal_sum,
    interleave,
    load_transposed,
    nan_where,
    select,
)
from ._memory import (
    align_stack,
    first_lanes,
    flat_view,
    gather,
    iota,
    lane,
    lanes,
    load,
    load_as,
    load_each,
    load_partial,
    prefetch,
    prefetch_second,
    splat,
    store,
    store_aligned,
    store_as,
    store_partial,
    with_lane,
)
from ._pieces import load_pieces, piece, pieces, store_pieces, with_piece
from ._registers import (
    hold,
    keep,
    load_register,
    load_register_each,
    register_lanes,
    splat_register,
    store_register,
)

__all__ = [
    "absolute",
    "add_where",
    "align_stack",
    "all_true",
    "any_true",
    "copysign",
    "count_true",
    "count_where",
    "counts_from",
    "first_lanes",
    "flat_view",
    "fma",
    "from_bits",
    "gather",
    "hold",
    "horizontal_sum",
    "interleave",
    "iota",
    "keep",
    "lane",
    "lanes",
    "load",
    "load_as",
    "load_each",
    "load_partial",
    "load_pieces",
    "load_register",
    "load_register_each",
    "load_transposed",
    "maximum",
    "minimum",
    "multiply_high",
    "nan_where",
    "narrow",
    "piece",
    "pieces",
    "prefetch",
    "prefetch_second",
    "register_lanes",
    "reinterpret",
    "round_even",
    "scale_by_power",
    "select",
    "splat",
    "splat_register",
    "sqrt",
    "store",
    "store_aligned",
    "store_as",
    "store_partial",
    "store_pieces",
    "store_register",
    "to_bits",
    "to_float",
    "widen",
    "with_lane",
    "with_piece",
]
