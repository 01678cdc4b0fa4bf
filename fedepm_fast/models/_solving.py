"""The numerical part of a fit: a problem, and its minimum."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import CurvatureFedEPM
from ..callbacks import RoundInfo
from ..participation import clients_per_round
from ..result import DivergenceWarning
from ..runner import run
from ._diagnosis import unbounded

if TYPE_CHECKING:
    from ..objectives import Problem

Array = NDArray[np.float64]


#: Rounds after which it is asked, again and again, whether there is a minimum to go to.
_ASKED = 15


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a fit ended.

    Attributes
    ----------
    w : ndarray of shape (n,)
    gradient_norm : float
        Of f/m at `w`.
    converged : bool
    rounds : int
        Communication rounds.
    sent : int
        Numbers that a client sent in them, on average.
    """

    w: Array
    gradient_norm: float
    converged: bool
    rounds: int
    sent: int


def solve(
    problem: Problem,
    *,
    start: Array | None = None,
    participation: float = 1.0,
    seed: int = 0,
    max_rounds: int = 500,
    tol: float = 1e-14,
    callback: Callable[[Any], Any] | None = None,
) -> Solution:
    """Minimise f by FedEPM with eta the curvature, or find that there is no minimum.

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
        Share of f at the start below which what a further round is expected to gain ends it.
    callback : callable, optional
        Of `fedepm_fast.run`.
    """

    def watch(info: RoundInfo) -> bool:
        wanted = callback is not None and bool(callback(info))
        late = info.tau > 0 and info.tau % _ASKED == 0
        return wanted or (late and bool(unbounded(problem, info.x)))

    algorithm = CurvatureFedEPM(participation=participation, tol=tol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # the solution says whether it converged
        result = run(
            algorithm, problem.data, objective=problem.objective,
            client_weight=problem.client_weight, engine="reference", max_rounds=max_rounds,
            seed=seed, start=start, callback=watch,
        )  # fmt: skip
    norm = float(np.linalg.norm(problem.total_gradient(result.x))) / problem.n_clients
    n, m = problem.n_parameters, problem.n_clients
    taken_part = round(clients_per_round(participation, m) * max(result.rounds - 1, 0) / m)
    sent = algorithm.resolve(problem).numbers_sent(n, taken_part)
    return Solution(result.x, norm, "converged" in result.reasons, result.rounds, sent)
