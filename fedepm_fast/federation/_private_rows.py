"""A private client's rows, and all that is made of them before it is written and sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm, AtClients
from ..mechanisms import client_moments, moments_change, release, release_scale
from ..objectives import Problem
from ..private_runs import private_problem, problem_in

Array = NDArray[Any]

#: The number of the only client, in a problem of its own.
ALONE = np.zeros(1, np.intp)


class Upload(NamedTuple):
    """What a private client sends."""

    values: Array
    """Shape (n,), of the dtype of the server's point; second moments (p*(p+1)/2,), packed."""
    scale: float | None
    """Of its noise; None for a first upload, which has none."""


class PrivateRows:
    """The rows as they are, and in the coordinates of the last round.

    Parameters
    ----------
    algorithm : FedEPM
        Resolved, with a mechanism.
    problem : Problem
        Of the rows.
    uploads : int
        Of the budget, second moments included.
    """

    def __init__(self, algorithm: Algorithm, problem: Problem, uploads: int) -> None:
        assert algorithm.mechanism is not None
        self.algorithm, self.mechanism = algorithm, algorithm.mechanism
        self.raw, self._coordinates = problem, np.empty(0)  # none
        self.problem = private_problem(self.mechanism, problem)
        plan = algorithm.plan(self.problem, np.array([uploads]))
        assert plan is not None
        self.plan = plan

    @property
    def multiplier(self) -> float:
        """Scale of the noise of an upload over its sensitivity."""
        return float(self.plan.multipliers[0])

    @multiplier.setter
    def multiplier(self, z: float) -> None:
        self.plan = self.plan._replace(multipliers=np.array([z]))

    def move_to(self, coordinates: Array | None) -> None:
        """Have the rows, and the penalty, in these coordinates, which are public."""
        asked = np.empty(0) if coordinates is None else coordinates
        if np.array_equal(asked, self._coordinates):
            return
        moved = self.raw if coordinates is None else problem_in(self.raw, coordinates)
        self.problem = private_problem(self.mechanism, moved)
        self.plan = self.plan._replace(pull=self.problem.reg_curvature)
        self._coordinates = asked

    def moments(self, radius: float) -> tuple[Array, float]:
        """The second moments for sending, and the scale of their noise."""
        mechanism, data = self.mechanism, self.raw.data
        (moves,) = moments_change(
            radius, mechanism.units(data.client_sizes), mechanism.order, data.n_features
        )
        multiplier = mechanism.one_release(self.multiplier, mechanism.moments)
        scale = release_scale(float(moves), multiplier, mechanism.name)
        clean = client_moments(data.features, radius, mechanism.order)
        return release(clean, scale, mechanism.name), scale

    def upload(self, start: Array, x: Array, tau: int) -> tuple[Array, float] | None:
        """The upload of a round for sending, and the scale of its noise; None if that would not
        hide the rounding of points so large.

        Everything before the gradient depends on what is public only.
        """
        algorithm, problem, plan = self.algorithm, self.problem, self.plan
        begin = algorithm.round_start(start[None], start[None], x)
        with np.errstate(over="ignore", invalid="ignore"):
            if not algorithm.may_upload(problem, ALONE, begin - x, x, tau, plan):
                return None
            moves = algorithm.sensitivity(problem, ALONE, begin - x, tau, plan)
        scale = release_scale(float(moves[0]), self.multiplier, self.mechanism.name)
        sizes = problem.data.client_sizes
        with np.errstate(all="ignore"):  # what is not finite is clipped
            g = problem.gradient(0, x)[None]
            w, _ = algorithm.local_round(AtClients(tau, x, begin, g, sizes, problem.gradient))
        return release(w[0], scale, self.mechanism.name), scale
