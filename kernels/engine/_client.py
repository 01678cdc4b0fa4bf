"""A client's objective behind a pointer: compiled once for a loss and a layout of rows.

So no stage has to be compiled for these: `objective` is all that they know of them.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numpy.typing import NDArray

from .. import losses
from .._jit import JIT_DISABLED, device, stage
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
    weights: int = 0
    """Address of the clients' weights; 0 where all are 1."""


ROWS = view_of(Rows(0, 0))


@functools.cache
def _entry(layout: str, loss: losses.Loss) -> Any:
    """The objective of one client, of numbers alone: addresses, sizes, number and weight."""
    objective = client_kernels(layout, loss).objective

    @stage
    def client(rows, i, w, n, reg, want, gradient, work, size, weights):
        at, to, spare = vector(w, n), vector(gradient, n), vector(work, size)
        own = _own_weight(weights, i)
        value = objective(whole(rows), i, at, reg / own, want, to, spare)
        return _weighed(own, value, want, to)

    return client


@device
def _own_weight(weights, i):
    return 1.0 if weights == 0 else vector(weights, i + 1)[i]


@device
def _weighed(own, value, want, gradient):
    """A client's value, times its weight, and in place its gradient."""
    if own != 1.0 and want:
        for j in range(gradient.size):
            gradient[j] *= own
    return own * value


@functools.cache
def _batch_entry(layout: str, loss: losses.Loss) -> Any:
    """The same of some of its rows, whose numbers are at an address."""
    objective = batch_objective(layout, loss)

    @stage
    def batch(rows, buffer, i, order, first, last, w, n, reg, gradient, work, size, weights):
        chosen, at = integers(order, last), vector(w, n)
        to, spare, memory = vector(gradient, n), vector(work, size), whole(buffer)
        own, all_rows = _own_weight(weights, i), whole(rows)
        value = objective(all_rows, memory, i, chosen, first, last, at, reg / own, to, spare)
        return _weighed(own, value, True, to)

    return batch


_I64, _F64 = types.int64, types.float64
_NUMBERS = _I64, _I64, _I64, _F64, types.boolean, _I64, _I64, _I64, _I64
_BATCH_NUMBERS = _I64, _I64, _I64, _I64, _I64, _I64, _F64, _I64, _I64, _I64, _I64


_pointed: weakref.WeakKeyDictionary[losses.ClientRows, Any] = weakref.WeakKeyDictionary()


def pointed(
    rows: losses.ClientRows, *, batches: bool = False, weights: NDArray[np.float64] | None = None
) -> tuple[Any, ...]:
    """The words that stages are given as rows, and what must live as long.

    With `batches` they are for one engine alone, which has a buffer of its own. `weights` are the
    clients', all 1 by default.
    """
    found = _pointed.get(rows)
    if found is None:
        arrays = rows.arrays
        kind = view_of(arrays, "rows")
        compiled, address = _compiled_entry(rows.layout, rows.loss, kind)
        words = kind.packed(arrays)
        both = Rows(address, words.ctypes.data)
        found = _pointed[rows] = ROWS.packed(both), words, arrays, compiled
    every, held = Rows(*found[0].tolist()), [found]
    if batches:
        buffer = buffer_of(rows)
        kinds = view_of(rows.arrays, "rows"), view_of(buffer, "buffer")
        entry = _batch_entry(rows.layout, rows.loss)
        compiled = entry.get_compile_result(types.float64(*kinds, *_BATCH_NUMBERS))
        words = kinds[1].packed(buffer)
        every = every._replace(batch=address_of(compiled), buffer=words.ctypes.data)
        held += [words, buffer, compiled]
    if weights is not None:
        every = every._replace(weights=weights.ctypes.data)
        held.append(weights)
    return found if every.batch == every.weights == 0 else (ROWS.packed(every), *held)


@functools.cache
def _compiled_entry(layout: str, loss: losses.Loss, kind: Any) -> tuple[Any, int]:
    """The compiled `_entry` for rows of a type, and its address."""
    compiled = _entry(layout, loss).get_compile_result(types.float64(kind, *_NUMBERS))
    return compiled, address_of(compiled)


def address_of(compiled: Any) -> int:
    """Where the machine code is, as C calls it."""
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


class _Plain:
    """A client's objective, and that of its batches, without compilation."""

    def __init__(self, rows: losses.ClientRows, weights: NDArray[np.float64] | None) -> None:
        self._whole = losses.objective_device(rows)
        self._some = batch_objective(rows.layout, rows.loss)
        self._buffer = buffer_of(rows)
        self._weights = np.ones(rows.n_clients) if weights is None else weights

    def __call__(self, rows: Any, i: Any, w: Any, reg: Any, want: Any, *to: Any) -> Any:
        own = self._weights[i]
        return _weighed(own, self._whole(rows, i, w, reg / own, want, *to), want, to[0])

    def batch(
        self, rows: Any, i: Any, order: Any, first: Any, last: Any, w: Any, reg: Any, *to: Any
    ) -> Any:
        own = self._weights[i]
        value = self._some(rows, self._buffer, i, order, first, last, w, reg / own, *to)
        return _weighed(own, value, True, to[0])


def objective_of(rows: losses.ClientRows, weights: NDArray[np.float64] | None = None) -> Any:
    """``value = f(rows, i, w, reg, want, gradient, work)`` for use in stages.

    As of `losses.client_kernel`, but of the rows that stages are given, and times the client's
    weight, which `reg` has in it.
    """
    return _Plain(rows, weights) if JIT_DISABLED else objective


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
        function, arrays, own = (field(context, builder, ROWS, view, k) for k in (0, 1, 4))
        point, slope, spare = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (2, 5, 6)
        )
        at, to, scratch = (builder.ptrtoint(a.data, i64) for a in (point, slope, spare))
        kind = ir.FunctionType(double, [i64, i64, i64, i64, double, ir.IntType(8), *[i64] * 4])
        return builder.call(
            builder.inttoptr(function, kind.as_pointer()),
            [
                arrays, number, at, point.nitems, weight, builder.zext(wanted, ir.IntType(8)),
                to, scratch, spare.nitems, own,
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
        arrays, function, buffer, own = (
            field(context, builder, ROWS, view, k) for k in range(1, 5)
        )
        numbers, point, slope, spare = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (2, 5, 7, 8)
        )
        of, at, to, scratch = (
            builder.ptrtoint(a.data, i64) for a in (numbers, point, slope, spare)
        )
        kind = ir.FunctionType(double, [*[i64] * 8, double, *[i64] * 4])
        return builder.call(
            builder.inttoptr(function, kind.as_pointer()),
            [
                arrays, buffer, number, of, begin, end, at, point.nitems, weight, to, scratch,
                spare.nitems, own,
            ],
        )  # fmt: skip

    return types.float64(rows, _I64, order, _I64, _I64, w, _F64, gradient, work), codegen
