"""What a loss's step on lanes is written with; see `lane_loss`.

Vectors hold a number of each of 8 rows (float32: 16). ``+ - * /`` and comparisons work on them, and
with numbers.
"""

from __future__ import annotations

from .._simd import absolute, fma, load, maximum, minimum, select, splat, sqrt, store
from ..vecmath import vector_exp as exp
from ..vecmath import vector_exp_negative as exp_negative
from ..vecmath import vector_log as log
from ..vecmath import vector_log1p as log1p
from ._loss import lane_loss

__all__ = [
    "absolute",
    "exp",
    "exp_negative",
    "fma",
    "lane_loss",
    "load",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "select",
    "splat",
    "sqrt",
    "store",
]
