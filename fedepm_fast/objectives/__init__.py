"""Clients' objectives: a loss bound to federated data.

Every client's objective has one form::

    f_i(w) = c_i * ( (1 / d_i) * sum_t loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2 )

with a loss of `fedepm_fast.losses`; `Problem` says what the c_i and reg_i are, and what changes
where rows have weights.
"""

from __future__ import annotations

from ..losses import OBJECTIVES, REGULARIZERS, Objective, as_objective
from ..losses.huber import Huber
from ..losses.least_squares import LeastSquares
from ..losses.logistic import Logistic
from ..losses.multinomial import Multinomial
from ..losses.scalar import ScalarLoss
from ..losses.squared_hinge import SquaredHinge
from ._client import ClientProblem
from ._curvature import row_bounds
from ._optimum import Optimum
from ._problem import Problem
from ._weighed import CLIENT_WEIGHTS

__all__ = [
    "CLIENT_WEIGHTS",
    "OBJECTIVES",
    "REGULARIZERS",
    "ClientProblem",
    "Huber",
    "LeastSquares",
    "Logistic",
    "Multinomial",
    "Objective",
    "Optimum",
    "Problem",
    "ScalarLoss",
    "SquaredHinge",
    "as_objective",
    "row_bounds",
]

for _public in (ClientProblem, Optimum, Problem, row_bounds):
    _public.__module__ = __name__  # where documentation and pickles name them
