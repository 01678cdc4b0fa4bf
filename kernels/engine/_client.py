"""A client's objective behind a pointer: compiled once for a loss and a layout of rows.

So no stage has to be compiled for these: `objective` is all that they know of them.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from .. import losses
from .._jit import JIT_DISABLED, stage
from ..losses._clients import client_kernels
from ._views import field, vector, view_of, whole


class Rows(NamedTuple):
    """What stages are given as the packed rows."""

    client: int
    """Address of the function compiled of `_entry`."""
    arrays: int
    """Address of the words of ``rows.arrays``."""


ROWS = view_of(Rows(0, 0))


@functools.cache
def _entry(layout: str, loss: losses.Loss) -> Any:
    """The objective of one client, of numbers alone: addresses, sizes, number and weight."""
    objective = client_kernels(layout, loss).objective

    @stage
    def client(rows, i, w, n, reg, want, gradient, work, size):
        at, to, spare = vector(w, n), vector(gradient, n), vector(work, size)
        return objective(whole(rows), i, at, reg, want, to, spare)

    return client


_NUMBERS = (
    types.int64, types.int64, types.int64, types.float64, types.boolean, types.int64,
    types.int64, types.int64,
)  # fmt: skip


_pointed: weakref.WeakKeyDictionary[losses.ClientRows, Any] = weakref.WeakKeyDictionary()


def pointed(rows: losses.ClientRows) -> tuple[Any, ...]:
    """The words that stages are given as rows, and what must live as long."""
    found = _pointed.get(rows)
    if found is None:
        arrays = rows.arrays
        kind = view_of(arrays, "rows")
        compiled = _entry(rows.layout, rows.loss).get_compile_result(types.float64(kind, *_NUMBERS))
        words = kind.packed(arrays)
        both = Rows(address_of(compiled), words.ctypes.data)
        found = _pointed[rows] = ROWS.packed(both), words, arrays, compiled
    return found


def address_of(compiled: Any) -> int:
    """Where the machine code is, as C calls it."""
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def objective_of(rows: losses.ClientRows) -> Any:
    """``value = f(rows, i, w, reg, want, gradient, work)`` for use in stages.

    As of `losses.client_kernel`, but of the rows that stages are given.
    """
    return losses.objective_device(rows) if JIT_DISABLED else objective


@intrinsic
def objective(
    typingctx: Any, rows: Any, i: Any, w: Any, reg: Any, want: Any, gradient: Any, work: Any
) -> Any:
    """See `objective_of`."""
    for name, kind in (("w", w), ("gradient", gradient), ("work", work)):
        if (getattr(kind, "dtype", None), getattr(kind, "ndim", 0)) != (types.float64, 1):
            raise TypingError(f"{name} must be an array of float64 with one dimension, got {kind}")
        if kind.layout != "C":
            raise TypingError(f"{name} must be C-contiguous, got {kind}")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, double = ir.IntType(64), ir.DoubleType()
        view, number, _, weight, wanted, *_ = args
        function, arrays = (field(context, builder, ROWS, view, k) for k in range(2))
        point, slope, spare = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (2, 5, 6)
        )
        at, to, scratch = (builder.ptrtoint(a.data, i64) for a in (point, slope, spare))
        kind = ir.FunctionType(double, [i64, i64, i64, i64, double, ir.IntType(8), *[i64] * 3])
        return builder.call(
            builder.inttoptr(function, kind.as_pointer()),
            [
                arrays, number, at, point.nitems, weight, builder.zext(wanted, ir.IntType(8)),
                to, scratch, spare.nitems,
            ],
        )  # fmt: skip

    return types.float64(
        rows, types.int64, w, types.float64, types.boolean, gradient, work
    ), codegen
