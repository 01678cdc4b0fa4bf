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
from ..losses._batches import batch_objective, buffer_of
from ..losses._clients import client_kernels
from ._views import field, integers, vector, view_of, whole


class Rows(NamedTuple):
    """What stages are given as the packed rows."""

    client: int
    """Address of the function compiled of `_entry`."""
    arrays: int
    """Address of the words of ``rows.arrays``."""
    batch: int = 0
    """Address of the function compiled of `_batch_entry`; 0 for stages that take no batches."""
    buffer: int = 0
    """Address of the words of the arrays of `buffer_of`."""


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


@functools.cache
def _batch_entry(layout: str, loss: losses.Loss) -> Any:
    """The same of some of its rows, whose numbers are at an address."""
    objective = batch_objective(layout, loss)

    @stage
    def batch(rows, buffer, i, order, first, last, w, n, reg, gradient, work, size):
        chosen, at = integers(order, last), vector(w, n)
        to, spare, memory = vector(gradient, n), vector(work, size), whole(buffer)
        return objective(whole(rows), memory, i, chosen, first, last, at, reg, to, spare)

    return batch


_I64, _F64 = types.int64, types.float64
_NUMBERS = _I64, _I64, _I64, _F64, types.boolean, _I64, _I64, _I64
_BATCH_NUMBERS = _I64, _I64, _I64, _I64, _I64, _I64, _F64, _I64, _I64, _I64


_pointed: weakref.WeakKeyDictionary[losses.ClientRows, Any] = weakref.WeakKeyDictionary()


def pointed(rows: losses.ClientRows, *, batches: bool = False) -> tuple[Any, ...]:
    """The words that stages are given as rows, and what must live as long.

    With `batches` they are for one engine alone, which has a buffer of its own.
    """
    found = _pointed.get(rows)
    if found is None:
        arrays = rows.arrays
        kind = view_of(arrays, "rows")
        compiled = _entry(rows.layout, rows.loss).get_compile_result(types.float64(kind, *_NUMBERS))
        words = kind.packed(arrays)
        both = Rows(address_of(compiled), words.ctypes.data)
        found = _pointed[rows] = ROWS.packed(both), words, arrays, compiled
    if not batches:
        return found
    buffer = buffer_of(rows)
    kinds = view_of(rows.arrays, "rows"), view_of(buffer, "buffer")
    entry = _batch_entry(rows.layout, rows.loss)
    compiled = entry.get_compile_result(types.float64(*kinds, *_BATCH_NUMBERS))
    words = kinds[1].packed(buffer)
    client, arrays = found[0][:2].tolist()
    every = Rows(client, arrays, address_of(compiled), words.ctypes.data)
    return ROWS.packed(every), words, buffer, compiled, found


def address_of(compiled: Any) -> int:
    """Where the machine code is, as C calls it."""
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


class _Plain:
    """A client's objective, and that of its batches, without compilation."""

    def __init__(self, rows: losses.ClientRows) -> None:
        self._whole = losses.objective_device(rows)
        self._some = batch_objective(rows.layout, rows.loss)
        self._buffer = buffer_of(rows)

    def __call__(self, *arguments: Any) -> Any:
        return self._whole(*arguments)

    def batch(self, rows: Any, *arguments: Any) -> Any:
        return self._some(rows, self._buffer, *arguments)


def objective_of(rows: losses.ClientRows) -> Any:
    """``value = f(rows, i, w, reg, want, gradient, work)`` for use in stages.

    As of `losses.client_kernel`, but of the rows that stages are given.
    """
    return _Plain(rows) if JIT_DISABLED else objective


def batches_of(client: Any) -> Any:
    """``value = f(rows, i, order, first, last, w, reg, gradient, work)`` for use in stages.

    `client` is of `objective_of`. The objective and the gradient at w of the rows
    ``order[first:last]`` of client i, numbered from its first one: their mean loss, and its
    regulariser. `order` is an array of int64, all else as of `objective_of`. The `Engine` must be
    told that there are `batches`.
    """
    return client.batch if JIT_DISABLED else batch


def _check_vectors(**kinds: Any) -> None:
    """TypingError unless these are types of C-contiguous arrays of one dimension."""
    for name, kind in kinds.items():
        dtype = types.int64 if name == "order" else types.float64
        if (getattr(kind, "dtype", None), getattr(kind, "ndim", 0)) != (dtype, 1):
            raise TypingError(f"{name} must be an array of {dtype} with one dimension, got {kind}")
        if kind.layout != "C":
            raise TypingError(f"{name} must be C-contiguous, got {kind}")


@intrinsic
def objective(
    typingctx: Any, rows: Any, i: Any, w: Any, reg: Any, want: Any, gradient: Any, work: Any
) -> Any:
    """See `objective_of`."""
    _check_vectors(w=w, gradient=gradient, work=work)

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


@intrinsic
def batch(
    typingctx: Any, rows: Any, i: Any, order: Any, first: Any, last: Any, w: Any, reg: Any,
    gradient: Any, work: Any,
) -> Any:  # fmt: skip
    """See `batches_of`."""
    _check_vectors(order=order, w=w, gradient=gradient, work=work)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, double = ir.IntType(64), ir.DoubleType()
        view, number, _, begin, end, _, weight, *_ = args
        arrays, function, buffer = (field(context, builder, ROWS, view, k) for k in (1, 2, 3))
        numbers, point, slope, spare = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (2, 5, 7, 8)
        )
        of, at, to, scratch = (
            builder.ptrtoint(a.data, i64) for a in (numbers, point, slope, spare)
        )
        kind = ir.FunctionType(double, [*[i64] * 8, double, *[i64] * 3])
        return builder.call(
            builder.inttoptr(function, kind.as_pointer()),
            [
                arrays, buffer, number, of, begin, end, at, point.nitems, weight, to, scratch,
                spare.nitems,
            ],
        )  # fmt: skip

    return types.float64(rows, _I64, order, _I64, _I64, w, _F64, gradient, work), codegen
