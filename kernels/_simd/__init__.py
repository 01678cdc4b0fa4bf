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
    has_limbs,
    maximum,
    minimum,
    multiply_wide,
    narrow,
    reinterpret,
    round_even,
    sqrt,
    to_bits,
    to_float,
    widen,
)
from ._bytes import (
    load_bytes,
    load_floats,
    subtract_bytes,
    transpose_bytes,
    transpose_floats,
)
from ._indexed import add_products_at, load_at, store_at
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
    minimum_where,
    nan_where,
    select,
)
from ._memory import (
    align_stack,
    flat_view,
    gather,
    load,
    load_as,
    load_each,
    load_partial,
    prefetch,
    prefetch_second,
    store,
    store_aligned,
    store_partial,
)
from ._powers import exp2_eighths, exponent, scale_by_power
from ._registers import (
    hold,
    hold_scalar,
    keep,
    load_pieces,
    piece,
    piece_lanes,
    pieces,
    store_pieces,
    with_piece,
)
from ._scalars import first_lanes, iota, lane, lanes, splat, with_lane

__all__ = [
    "absolute",
    "add_products_at",
    "add_where",
    "align_stack",
    "all_true",
    "any_true",
    "copysign",
    "count_true",
    "count_where",
    "counts_from",
    "exp2_eighths",
    "exponent",
    "first_lanes",
    "flat_view",
    "fma",
    "from_bits",
    "gather",
    "has_limbs",
    "hold",
    "hold_scalar",
    "horizontal_sum",
    "interleave",
    "iota",
    "keep",
    "lane",
    "lanes",
    "load",
    "load_as",
    "load_at",
    "load_bytes",
    "load_each",
    "load_floats",
    "load_partial",
    "load_pieces",
    "load_transposed",
    "maximum",
    "minimum",
    "minimum_where",
    "multiply_wide",
    "nan_where",
    "narrow",
    "piece",
    "piece_lanes",
    "pieces",
    "prefetch",
    "prefetch_second",
    "reinterpret",
    "round_even",
    "scale_by_power",
    "select",
    "splat",
    "sqrt",
    "store",
    "store_aligned",
    "store_at",
    "store_partial",
    "store_pieces",
    "subtract_bytes",
    "to_bits",
    "to_float",
    "transpose_bytes",
    "transpose_floats",
    "widen",
    "with_lane",
    "with_piece",
]
