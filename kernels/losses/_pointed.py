"""Clients' objectives behind a pointer: compiled once for a loss and a layout of rows.

So nothing else has to be compiled for these: `objective` is all that stages know of them, and
`evaluate_clients` asks the same function for many clients at once.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numpy.typing import NDArray

from .._jit import JIT_DISABLED, device, kernel, stage
from .._pointers import address_of, call_at
from .._views import field, integers, single, vector, view_of, whole
from ._batches import batch_objective, buffer_of
from ._client_rows import ClientRows
from ._clients import client_kernels
from ._loss import Loss


class Rows(NamedTuple):
    """What stages are given as the packed rows, and what else they call."""

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
    draw: int = 0
    """Address of the law of the noise; 0 in runs that draw none."""


ROWS = view_of(Rows(0, 0))


@functools.cache
def _entry(layout: str, loss: Loss, dtype: Any) -> Any:
    """The objectives of some clients, of numbers alone: addresses, sizes and how many there are.

    Points are `apart` bytes from client to client, 0 where all have the same; gradients and values
    follow the order in which clients are asked for.
    """
    objective = client_kernels(layout, loss).objective
    floats = single if dtype == np.float32 else vector
    item = np.dtype(dtype).itemsize

    @stage
    def some(
        rows, clients, count, points, apart, n, reg, want, values, gradients, work, size, weights
    ):
        for k in range(count):
            i = integers(clients, count)[k]
            at, own = floats(points + apart * i, n), _own_weight(weights, i)
            weight = at.dtype.type(floats(reg, i + 1)[i] / own)
            to = floats(gradients + (k * n * item if want else 0), n)
            value = objective(whole(rows), i, at, weight, want, to, floats(work, size))
            floats(values, count)[k] = _weighed(own, value, want, to)

    return some


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
def _batch_entry(layout: str, loss: Loss) -> Any:
    """The same of some of its rows, whose numbers are at an address."""
    objective = batch_objective(layout, loss)

    @stage
    def batch(rows, buffer, i, order, first, last, w, n, reg, value, gradient, work, size, weights):
        chosen, at = integers(order, last), vector(w, n)
        to, spare, memory = vector(gradient, n), vector(work, size), whole(buffer)
        own, all_rows = _own_weight(weights, i), whole(rows)
        found = objective(all_rows, memory, i, chosen, first, last, at, reg / own, to, spare)
        vector(value, 1)[0] = _weighed(own, found, True, to)

    return batch


_I64, _F64 = types.int64, types.float64
_NUMBERS = *[_I64] * 6, types.boolean, *[_I64] * 5
_BATCH_NUMBERS = *[_I64] * 6, _F64, *[_I64] * 5
#: Of the functions of `_entry` and `_batch_entry` by their addresses: a view is one as well.
_SOME, _BATCH = types.none(_I64, *_NUMBERS), types.none(_I64, _I64, *_BATCH_NUMBERS)


_pointed: weakref.WeakKeyDictionary[ClientRows, Any] = weakref.WeakKeyDictionary()


def pointed(
    rows: ClientRows, *, batches: bool = False, weights: NDArray[np.float64] | None = None
) -> tuple[Any, ...]:
    """The words that stages are given as rows, and what must live as long.

    With `batches` they are for one engine alone, which has a buffer of its own. `weights` are the
    clients', all 1 by default.
    """
    found = _pointed.get(rows)
    if found is None:
        arrays = rows.arrays
        kind = view_of(arrays, "rows")
        compiled, address = _compiled_entry(rows.layout, rows.loss, rows.dtype, kind)
        words = kind.packed(arrays)
        both = Rows(address, words.ctypes.data)
        # Of two threads that come here the later takes what the first has made.
        found = _pointed.setdefault(rows, (ROWS.packed(both), words, arrays, compiled, both))
    if not batches and weights is None:
        return found
    every, held = found[4], [found]
    if batches:
        buffer = buffer_of(rows)
        kinds = view_of(rows.arrays, "rows"), view_of(buffer, "buffer")
        entry = _batch_entry(rows.layout, rows.loss)
        compiled = entry.get_compile_result(types.none(*kinds, *_BATCH_NUMBERS))
        words = kinds[1].packed(buffer)
        every = every._replace(batch=address_of(compiled), buffer=words.ctypes.data)
        held += [words, buffer, compiled]
    if weights is not None:
        every = every._replace(weights=weights.ctypes.data)
        held.append(weights)
    return ROWS.packed(every), *held


@functools.cache
def _compiled_entry(layout: str, loss: Loss, dtype: Any, kind: Any) -> tuple[Any, int]:
    """The compiled `_entry` for rows of a type, and its address."""
    compiled = _entry(layout, loss, dtype).get_compile_result(types.none(kind, *_NUMBERS))
    return compiled, address_of(compiled)


class _Plain:
    """A client's objective, and that of its batches, without compilation."""

    def __init__(self, rows: ClientRows, weights: NDArray[np.float64] | None) -> None:
        self._whole = client_kernels(rows.layout, rows.loss).objective
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


def objective_of(rows: ClientRows, weights: NDArray[np.float64] | None = None) -> Any:
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


def _check_vectors(*kinds: Any, **named: Any) -> None:
    """TypingError unless these are types of C-contiguous arrays of one dimension.

    Their numbers are of one of some kinds, the same for all.
    """
    for name, kind in named.items():
        dtype = getattr(kind, "dtype", None)
        if dtype not in kinds or getattr(kind, "ndim", 0) != 1:
            of = " or ".join(map(str, kinds))
            raise TypingError(f"{name} must be an array of {of} with one dimension, got {kind}")
        if kind.layout != "C":
            raise TypingError(f"{name} must be C-contiguous, got {kind}")
        kinds = (dtype,)


@intrinsic
def objective(
    typingctx: Any, rows: Any, i: Any, w: Any, reg: Any, want: Any, gradient: Any, work: Any
) -> Any:
    """See `objective_of`."""
    _check_vectors(_F64, w=w, gradient=gradient, work=work)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        view, number, _, weight, wanted, *_ = args
        function, arrays, own = (field(context, builder, ROWS, view, k) for k in (0, 1, 4))
        point, slope, spare = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (2, 5, 6)
        )
        at, to, scratch = (builder.ptrtoint(a.data, i64) for a in (point, slope, spare))
        numbers, weights, value = (
            cgutils.alloca_once(builder, kind) for kind in (i64, weight.type, weight.type)
        )
        builder.store(number, numbers)
        builder.store(weight, weights)
        clients, regs, values = (builder.ptrtoint(p, i64) for p in (numbers, weights, value))
        # The weight is looked for where the i-th is.
        regs = builder.sub(regs, builder.mul(number, i64(_F64.bitwidth // 8)))
        call_at(context, builder, function, _SOME, (
            arrays, clients, i64(1), at, i64(0), point.nitems, regs, wanted, values, to, scratch,
            spare.nitems, own,
        ))  # fmt: skip
        return builder.load(value)

    return types.float64(
        rows, types.int64, w, types.float64, types.boolean, gradient, work
    ), codegen


@intrinsic
def batch(
    typingctx: Any, rows: Any, i: Any, order: Any, first: Any, last: Any, w: Any, reg: Any,
    gradient: Any, work: Any,
) -> Any:  # fmt: skip
    """See `batches_of`."""
    _check_vectors(_I64, order=order)
    _check_vectors(_F64, w=w, gradient=gradient, work=work)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
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
        value = cgutils.alloca_once(builder, weight.type)
        call_at(context, builder, function, _BATCH, (
            arrays, buffer, number, of, begin, end, at, point.nitems, weight,
            builder.ptrtoint(value, i64), to, scratch, spare.nitems, own,
        ))  # fmt: skip
        return builder.load(value)

    return types.float64(rows, _I64, order, _I64, _I64, w, _F64, gradient, work), codegen


# Clients by their numbers -----------------------------------------------------------------


@intrinsic
def _some(
    typingctx: Any, address: Any, arrays: Any, weights: Any, clients: Any, points: Any, reg: Any,
    want: Any, values: Any, gradients: Any, work: Any,
) -> Any:  # fmt: skip
    """The values and gradients of some clients, by the function at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        array = {
            k: context.make_array(sig.args[k])(context, builder, args[k])
            for k in (3, 4, 5, 7, 8, 9)
        }
        at = {k: builder.ptrtoint(a.data, i64) for k, a in array.items()}
        many, n = (builder.extract_value(array[4].shape, k) for k in range(2))
        alone = builder.icmp_signed("<=", many, i64(1))
        row = builder.extract_value(array[4].strides, 0)
        call_at(context, builder, args[0], _SOME, (
            args[1], at[3], array[3].nitems, at[4], builder.select(alone, i64(0), row), n, at[5],
            args[6], at[7], at[8], at[9], array[9].nitems, args[2],
        ))  # fmt: skip
        return context.get_dummy_value()

    return types.none(
        _I64, _I64, _I64, clients, points, reg, types.boolean, values, gradients, work
    ), codegen


def _one_by_one(client: Any) -> Any:
    """`_some` without compilation, of one client's objective."""

    def some(rows, clients, points, reg, want, values, gradients, work):
        for k, i in enumerate(clients):
            w = points[i if len(points) > 1 else 0]
            gradient = gradients[k if want else 0]
            values[k] = client(rows, i, w, reg[i], want, gradient, work)

    return some


@kernel
def evaluate_at(address, arrays, weights, clients, points, reg, want, values, gradients, work):
    """`evaluate_clients` of what `Rows` has; of points that are not finite, too."""
    _some(address, arrays, weights, clients, points, reg, want, values, gradients, work)
    return _all_finite(points)


@device
def _all_finite(points):
    zero = points.dtype.type(0)
    total = zero
    for k in range(points.shape[0]):
        for j in range(points.shape[1]):
            total += zero * points[k, j]  # NaN, unless it is finite
    return total == zero


def evaluate_clients(
    rows: ClientRows, clients: NDArray[np.int64], points: NDArray[Any], *to: Any
) -> bool:
    """Objectives of clients, one after the other; returns whether the points are finite.

    `to` is the weights of all clients' regularisers, whether gradients are wanted, where values
    and gradients go, and a workspace: C-contiguous arrays.
    """
    if JIT_DISABLED:
        finite = bool(np.isfinite(points).all())
        if finite:
            _one_by_one(_Plain(rows, None))(rows.arrays, clients, points, *to)
        return finite
    held = pointed(rows)  # for as long as the call takes
    of = held[4]
    return bool(evaluate_at(of.client, of.arrays, of.weights, clients, points, *to))
