"""What SFedAvg and SFedProx share: gradient steps at the clients, an average at the server."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._parameters import Around, param, real
from ..objectives import Problem
from ._base import Algorithm, Array, Clients
from ._operators import penalty_parameter

# Where the compiled stages find their constants.
C, ALPHA, PROX, INNER_STEPS = range(4)


@dataclass(frozen=True)
class Averaging(Algorithm, abstract=True):
    """What the baselines share: the server averages the newly selected clients' uploads.

    Parameters
    ----------
    learning_rate : float
        The step is ``learning_rate * d_i / sqrt(2*k0 + tau)``.
    """

    learning_rate: float = param(
        2.0, check=real(low=0.0, open_low=True), search=Around(30.0, 30.0), symbol=r"$\gamma$",
        help="scale of the gradient steps",
    )  # fmt: skip

    tuned: ClassVar[tuple[str, ...]] = ("learning_rate", "local_steps")

    def advice(self, problem: Problem) -> str:
        if not problem.has_lipschitz:
            return "a smaller learning_rate makes the local steps stable"
        # Gradient steps are stable up to 2/r_i.
        scaled = problem.lipschitz() * problem.data.client_sizes
        most = 2 * (2 * self.local_steps) ** 0.5 / scaled.max()
        if self.learning_rate <= most:
            return "the local steps are stable with this learning_rate"
        return f"a learning_rate of {most:.2g} or less makes the local steps stable"

    def steps(self, problem: Problem) -> Array:
        """``learning_rate * d_i`` of every client, shape (m,)."""
        return self.learning_rate * problem.data.client_sizes.astype(np.float64)

    def aggregate(self, Z: Array, S: Clients, scale: Array) -> Array:
        return Z[S].mean(axis=0)

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        """The local iterates of client i, starting from `x`, where its gradient is `g`."""
        raise NotImplementedError

    def rate(self, problem: Problem, i: int, tau: int) -> float:
        """``gamma_i`` of round `tau`."""
        size = problem.data.client_sizes[i]
        return learning_rate(self.learning_rate, size, self.local_steps, tau)

    def local_round(
        self, problem: Problem, S: Clients, x: Array, W: Array, G: Array, tau: int
    ) -> tuple[Array, Array]:
        new, gap = np.empty_like(W), np.empty_like(W)
        for row, i in enumerate(S):
            # Iteration k's mu takes the gap before that step, hence the last two iterates.
            *before, new[row] = deque(self.iterates(problem, i, x, G[row], tau), maxlen=2)
            gap[row] = before[0] - x if before else 0.0
        last = (tau + 1) * self.local_steps - 1
        return new, penalty_parameter(gap, last, self.mu0, self.c, self.alpha)


def learning_rate(scale: float, size: float, local_steps: int, tau: int) -> float:
    """``gamma_i = scale * d_i / sqrt(2*k0 + k//k0)``, constant within a round."""
    return scale * size / math.sqrt(2 * local_steps + tau)


@functools.cache
def gradient_stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round` of SFedAvg and SFedProx, given one client's objective."""
    from ..kernels._jit import stage
    from ..kernels.engine import average_selected
    from ..kernels.local_steps import gradient_steps_kernel

    gradient_steps = gradient_steps_kernel(client)

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k = settings.constants
        S, k0 = state.selected[: state.n_selected[0]], settings.local_steps
        for i in S:
            state.rate[i] = problem.step[i] / math.sqrt(2.0 * k0 + tau)
        return gradient_steps(
            rows, problem.reg, S, state.x, state.G, state.rate, k[PROX], settings.mu0,
            k[C], k[ALPHA], k0, int(k[INNER_STEPS]), tau * k0, state.work, state.W,
            state.mu,
        )  # fmt: skip

    return average_selected, local_round
