"""The functions of a loss as the kernels call them, compiled into the kernels with their options.

Functions of numbers that are made of arithmetic and what `_vector_math` has work on whole vectors,
others on one lane after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import NumbaError

from .._identity import own_identity
from .._jit import JIT_DISABLED, device, kernel
from .._simd import (
    lane,
    lanes,
    load,
    maximum,
    minimum,
    select,
    splat,
    store,
    with_lane,
)
from .._simd._types import VECTORS
from . import _vector_math  # noqa: F401  vectors for math.exp and the like
from ._loss import Loss

#: Factors, each at most 2, that a running product takes before its logarithm.
SETTLED = 64


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
    def mapped(t, y, out):
        for i in range(out.size):
            out[i] = function(t[i], y[i])

    return mapped


@functools.cache
def steps_of(loss: Loss) -> Any:
    """The device functions `step`, `settle` and `outputs` of a loss, for the factories of kernels.

    The margins of as many rows as a vector has lanes stand in an array `work`, the k-th margins at
    ``at + k * stride``. ``total, product = step(work, at, stride, outputs, target, parameter,
    total, product)`` replaces them by the derivatives of the loss and adds the losses to the sums;
    ``total = settle(total, product)`` moves what `product` holds into `total`, after which
    `product` starts at zero; ``outputs(constants)`` is the number of margins of a row.
    """
    pairs = zip(loss.functions, loss.identities, strict=True)
    functions = [own_device(function, identity) for function, identity in pairs]
    if loss.scalar:
        return _of_numbers(*map(_of_vectors, functions)), _keep, _one
    step, settle = functions if len(functions) == 2 else (*functions, _keep)
    return (step, settle, _classes) if loss.labels == "classes" else (_single(step), settle, _one)


@device
def hide(work, at, stride, outputs, held, no_margin):
    """Replace the margins outside the mask `held` by such as add nothing."""
    store(work, at, select(held, load(work, at), no_margin))
    for k in range(1, outputs):
        j = at + k * stride
        store(work, j, select(held, load(work, j), -np.inf))


@device
def _keep(total, product):
    return total


@device
def _one(constants):
    return 1


@device
def _classes(constants):
    return int(constants[0])


def _single(function):
    """The step of ``residual, total, product = function(margin, target, parameter, ...)``."""

    @device
    def step(work, at, stride, outputs, target, parameter, total, product):
        margin = load(work, at)
        residual, total, product = function(margin, target, parameter, total, product)
        store(work, at, residual)
        return total, product

    return step


def _of_numbers(value, gradient):
    """The step of functions of vectors that know no row where there is none."""

    @device
    def step(work, at, stride, outputs, target, parameter, total, product):
        # Where there is no row the label is NaN: the first row, which there always is, stands
        # in, for the functions may not be defined elsewhere.
        held, zero = target == target, splat(work, 0.0)
        margin = select(held, load(work, at), splat(work, work[at]))
        label = select(held, target, splat(work, lane(target, 0)))
        slope = select(held, gradient(work, margin, label), zero)
        clipped = maximum(-parameter, minimum(parameter, slope))
        # Without a bound NaN stays: inf - inf.
        store(work, at, select(slope == slope, clipped, parameter - parameter))
        return total + select(held, value(work, margin, label), zero), product

    return step


def _of_vectors(function):
    """``f(work, margins, labels)`` of vectors, of a function of numbers."""
    if _takes_vectors(function):

        @device
        def whole(work, margin, label):
            return function(margin, label)

        return whole

    @device
    def by_lanes(work, margin, label):
        found = margin
        for r in range(lanes(work)):
            number = work.dtype.type(function(lane(margin, r), lane(label, r)))
            found = with_lane(found, r, number)
        return found

    return by_lanes


def _takes_vectors(function):
    if JIT_DISABLED:
        return False
    vector = VECTORS[types.float64]
    try:
        function.compile((vector, vector))
        found = function.overloads[vector, vector].signature.return_type
    except NumbaError:
        return False
    return found == vector or isinstance(found, (types.Float, types.Integer))
