"""What SFedAvg and SFedProx share: gradient steps at the clients, an average at the server."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Around, param, real
from .._common.rounding import at_most
from ..objectives import Problem
from ._base import Algorithm
from ._operators import penalty_parameter
from ._views import Array, AtClients, AtServer


class Constants(NamedTuple):
    """What the compiled stages need to know."""

    c: float
    alpha: float
    prox: float
    inner_steps: float


@dataclass(frozen=True)
class LocalSteps(Algorithm, abstract=True):
    """Algorithms whose clients take local steps that start at the server's point."""

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        return np.broadcast_to(x, W.shape)

    def steps(self, sizes: NDArray[np.int64]) -> Array:
        return np.ones(len(sizes))

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """The local iterates of the client in a row, starting from x."""
        raise NotImplementedError

    def local_round(self, clients: AtClients) -> tuple[Array, Array]:
        new, gap = np.empty(clients.W.shape), np.empty(clients.W.shape)
        for row in range(len(new)):
            # Iteration k's mu takes the gap before that step, hence the last two iterates.
            *before, new[row] = deque(self.iterates(clients, row), maxlen=2)
            gap[row] = before[0] - clients.x if before else 0.0
        last = (clients.tau + 1) * self.local_steps - 1
        return new, penalty_parameter(gap, last, self.mu0, self.c, self.alpha)


@dataclass(frozen=True)
class Averaging(LocalSteps, abstract=True):
    """What the paper's baselines share: the server averages the newly selected clients' uploads.

    Parameters
    ----------
    learning_rate : float
        The step is ``learning_rate * d_i / sqrt(2*k0 + tau)``.
    """

    learning_rate: float = param(
        2.0, check=real(low=0.0, open_low=True), search=Around(30.0, 30.0), symbol=r"$\gamma$",
        help="Scale of the gradient steps",
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
        return f"a learning_rate of {at_most(most)} or less makes the local steps stable"

    def steps(self, sizes: NDArray[np.int64]) -> Array:
        """``learning_rate * d_i`` of every client, shape (s,)."""
        return self.learning_rate * sizes.astype(np.float64)

    def rate(self, clients: AtClients, row: int) -> float:
        """``gamma_i`` of the client in a row."""
        size = clients.sizes[row]
        return float(learning_rate(self.learning_rate, size, self.local_steps, clients.tau))

    def aggregate(self, server: AtServer) -> Array:
        return server.Z[server.selected].mean(axis=0)


def learning_rate(scale: float, size: Any, local_steps: int, tau: int) -> Any:
    """``gamma_i = scale * d_i / sqrt(2*k0 + k//k0)``, constant within a round."""
    return scale * size / math.sqrt(2 * local_steps + tau)


@functools.cache
def gradient_stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round` of SFedAvg and SFedProx, given one client's objective."""
    from ..kernels._jit import stage
    from ..kernels._parts import part
    from ..kernels.engine import average_selected, reader
    from ..kernels.local_steps import gradient_steps_kernel

    gradient_steps, read = gradient_steps_kernel(client), reader(Constants)

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, k0 = read(settings.constants), settings.local_steps
        S = part(state.selected, 0, state.n_selected[0])
        for i in S:
            state.rate[i] = problem.step[i] / math.sqrt(2.0 * k0 + tau)
        return gradient_steps(
            rows, problem.reg, S, state.x, state.G, state.rate, k.prox, settings.mu0, k.c,
            k.alpha, k0, int(k.inner_steps), tau * k0, state.work, state.W, state.mu,
        )  # fmt: skip

    return average_selected, local_round
