"""The numerical part of a fit: a problem, and its minimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..objectives import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a fit ended.

    Attributes
    ----------
    w : ndarray of shape (n,)
    gradient_norm : float
        Of f/m at `w`.
    converged : bool
        Whether that is at most the tolerance.
    rounds : int or None
        Communication rounds.
    sent : int or None
        Numbers that a client sent in them, on average.
    """

    w: Array
    gradient_norm: float
    converged: bool
    rounds: int | None = None
    sent: int | None = None


def solve(
    problem: Problem,
    *,
    start: Array | None = None,
    participation: float = 1.0,
    seed: int = 0,
    max_rounds: int = 500,
    tol: float = 1e-9,
) -> Solution:
    """Minimise f.

    Parameters
    ----------
    problem : Problem
    start : ndarray of shape (n,), optional
    participation : float
        Share of the clients that take part in a round.
    seed : int
        Of the selections.
    max_rounds : int
    tol : float
        Largest norm of the gradient of f/m at the end.
    """
    found = problem.optimum(start, method="newton")
    norm = found.gradient_norm / problem.n_clients
    return Solution(found.x, norm, norm <= tol)
