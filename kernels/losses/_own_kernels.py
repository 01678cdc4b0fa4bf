"""Functions of the user's as the kernels call them.

They are compiled anew with the options of the kernels, into them. Where they are made of arithmetic
and what `_vector_math` has, they work on whole vectors, and otherwise on one lane after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import NumbaError

from .._jit import JIT_DISABLED, device, kernel
from .._simd import (
    _vector_math,  # noqa: F401  vectors for math.exp and the like
    lane,
    lanes,
    load,
    select,
    splat,
    store,
    with_lane,
)
from .._simd._types import VECTORS
from ._own_identity import own_identity
from ._own_loss import OwnLoss
from ._pointwise import Pointwise, _keep, _one


def own_device(function: Any, identity: str) -> Any:
    """`function`, compiled into what calls it."""
    if own_identity(function) != identity:
        raise ValueError(
            f"{function.__name__} refers to a global that has changed since: make a new loss"
        )
    found = device(function)
    if not JIT_DISABLED:
        found._own_identity = identity
    return found


@dataclass(frozen=True)
class _Hashed:
    """A function, for which its hash stands."""

    function: Any = field(compare=False)
    identity: str


def own_map(function: Callable[[float, float], float], identity: str) -> Any:
    """The compiled ``mapped(t, y, out)`` of a function with this hash, over vectors."""
    return _own_map(_Hashed(function, identity))


@functools.cache
def _own_map(hashed: _Hashed) -> Any:
    function = own_device(hashed.function, hashed.identity)

    @kernel
    def mapped(t: Any, y: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = function(t[i], y[i])

    return mapped


@functools.cache
def pointwise_of(loss: OwnLoss) -> Pointwise:
    """The loss, for the factories of kernels."""
    functions = zip((loss.value, loss.gradient), loss.identities, strict=True)
    value, gradient = (_of_vectors(own_device(f, identity)) for f, identity in functions)

    @device
    def step(
        work: Any,
        at: Any,
        stride: Any,
        outputs: Any,
        target: Any,
        parameter: Any,
        total: Any,
        product: Any,
    ) -> Any:
        # Where there is no row the label is NaN: the first row, which there always is, stands
        # in, for the functions may not be defined elsewhere.
        held, zero = target == target, splat(work, 0.0)
        margin = select(held, load(work, at), splat(work, work[at]))
        label = select(held, target, splat(work, lane(target, 0)))
        store(work, at, select(held, gradient(work, margin, label), zero))
        return total + select(held, value(work, margin, label), zero), product

    return Pointwise(step, _keep, _one, no_target=np.nan, labels=loss.labels)


def _of_vectors(function: Any) -> Any:
    """``f(work, margins, labels)`` of vectors, of a function of numbers."""
    if _takes_vectors(function):

        @device
        def whole(work: Any, margin: Any, label: Any) -> Any:
            return function(margin, label)

        return whole

    @device
    def by_lanes(work: Any, margin: Any, label: Any) -> Any:
        found = margin
        for r in range(lanes(work)):
            number = work.dtype.type(function(lane(margin, r), lane(label, r)))
            found = with_lane(found, r, number)
        return found

    return by_lanes


def _takes_vectors(function: Any) -> bool:
    if JIT_DISABLED:
        return False
    vector = VECTORS[types.float64]
    try:
        function.compile((vector, vector))
        found = function.overloads[vector, vector].signature.return_type
    except NumbaError:
        return False
    return found == vector or isinstance(found, (types.Float, types.Integer))
