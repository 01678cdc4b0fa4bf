"""Functions of `math`, NumPy and Python for explicit vectors, beside those for numbers.

So one source, written for numbers, compiles for vectors too, where it has no branches.
"""

from __future__ import annotations

import math
import operator

import numpy as np
from numba.core import types
from numba.core.extending import overload

from .._simd import absolute, maximum, minimum, select, splat, sqrt
from .._simd._types import MaskType, VectorType
from ..vecmath import vector_exp, vector_log, vector_log1p

_SCALARS = (types.Float, types.Integer)


def _of_one(function, *names):
    def typed(x):
        return (lambda x: function(x)) if isinstance(x, VectorType) else None

    for name in names:
        overload(name)(typed)


def _of_two(function, *names):
    # Either of them gives its second operand where one is NaN: NaN must not get lost.
    def typed(a, b):
        if isinstance(a, VectorType) and isinstance(b, VectorType):
            return lambda a, b: select(a != a, a, function(a, b))
        if isinstance(b, VectorType) and isinstance(a, _SCALARS):
            return lambda a, b: function(splat(b, a), b)
        if isinstance(a, VectorType) and isinstance(b, _SCALARS):
            return lambda a, b: function(splat(a, b), a)
        return None

    for name in names:
        overload(name)(typed)


_of_one(vector_exp, math.exp, np.exp)
_of_one(vector_log, math.log, np.log)
_of_one(vector_log1p, math.log1p, np.log1p)
_of_one(sqrt, math.sqrt, np.sqrt)
_of_one(absolute, abs, math.fabs, np.abs)
_of_two(maximum, max, np.maximum)
_of_two(minimum, min, np.minimum)


@overload(np.where)
def _where(condition, x, y):
    if not isinstance(condition, MaskType):
        return None
    if isinstance(x, VectorType) or isinstance(y, VectorType):
        return lambda condition, x, y: select(condition, x, y)
    element = np.float64(0) if condition.lanes == 8 else np.float32(0)
    return lambda condition, x, y: select(condition, splat(element, x), y)


@overload(operator.pow)
def _power(x, k):
    if isinstance(x, VectorType) and isinstance(k, types.IntegerLiteral) and k.literal_value == 2:
        return lambda x, k: x * x
    return None
