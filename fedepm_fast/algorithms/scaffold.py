"""SCAFFOLD: federated averaging whose local steps are corrected by control variates."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._common.parameters import Around, number_or, param, real
from ..objectives import Problem
from ._base import PrivacyPlan
from ._rates import LIPSCHITZ, CommonRate
from ._views import Array, AtClients, AtServer


@dataclass(frozen=True)
class Scaffold(CommonRate):
    """SCAFFOLD with control variates of option II (Karimireddy et al. 2020).

    Clients that differ drift apart in their local steps; ``c - c_i``, the gradient that the server
    knows of all clients less the one that it knows of client i, corrects each step. Steps are full
    gradient steps. From an upload z_i follows ``c_i``, at the client and at the server alike: noise
    of uploads is in both, and one vector is sent a round.

    Parameters
    ----------
    learning_rate : float or "lipschitz"
        The step gamma_i is ``learning_rate * d_i / sqrt(2*k0 + tau)``, that of the paper on FedEPM;
        or, the same for all clients, one over the largest bound of their curvature.
    server_rate : float
        The server's step ``x <- x + server_rate * (mean of z_i - x)``, above 0.
    """

    learning_rate: str | float = param(
        2.0, check=number_or("lipschitz", low=0.0, open_low=True), search=Around(30.0, 30.0),
        symbol=r"$\gamma$", metavar="RATE", help="Scale of the gradient steps, a number or "
        "lipschitz: steps of one over the largest bound of the clients' curvature",
    )  # fmt: skip
    server_rate: float = param(
        1.0, check=real(low=0.0, open_low=True), symbol=r"$\eta_g$", label=r"server's step",
        help="step of SCAFFOLD's server towards the mean of the uploads",
    )  # fmt: skip

    name: ClassVar[str] = "scaffold"
    label: ClassVar[str] = "SCAFFOLD"
    keeps: ClassVar[tuple[str, ...]] = ("c_i",)
    shares: ClassVar[tuple[str, ...]] = ("c",)

    def told(self, problem: Problem) -> Array:
        if self.learning_rate == LIPSCHITZ:
            return super().told(problem)
        sizes = problem.data.client_sizes.astype(np.float64)
        return (self.rate_scale * (float(self.learning_rate) * sizes))[None]

    def agreed(self, told: Array) -> Array:
        return super().agreed(told) if self.learning_rate == LIPSCHITZ else told

    def divisor(self, tau: int) -> float:
        return 1.0 if self.learning_rate == LIPSCHITZ else math.sqrt(2 * self.local_steps + tau)

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """``w <- w - gamma_i * (grad f_i(w) - c_i + c)``, from x."""
        w, gamma = clients.x, self.rate(clients, row)
        for q in range(self.local_steps):
            g = clients.gradient(row, w) if q else clients.G[row]
            w = w - gamma * (g - clients.kept["c_i"][row] + clients.shared["c"])
            yield w

    def change(self, c: Array, x: Array, Z: Array, rates: Array, tau: int) -> Array:
        """``(x - z_i) / (k0 * gamma_i) - c`` of uploads of round `tau`, by which c_i changes."""
        gamma = rates / self.divisor(tau)
        return (x - Z) / (self.local_steps * gamma)[:, None] - c

    def upload(self, clients: AtClients, W: Array, noise: Array) -> Array:
        c, z = clients.shared["c"], W + noise
        clients.kept["c_i"][:] += self.change(c, clients.x, z, clients.told["rate"], clients.tau)
        return z

    def aggregate(self, server: AtServer) -> Array:
        if not len(server.uploaded):  # at first, or where nobody has answered
            return server.x if server.tau else server.Z.mean(axis=0)
        c, x, Z = server.shared["c"], server.x, server.Z[server.uploaded]
        change = self.change(c, x, Z, server.told["rate"][server.uploaded], server.tau - 1)
        c += change.sum(axis=0) / len(server.Z)
        return x + self.server_rate * (Z.mean(axis=0) - x)

    def stages(self, client: Any) -> tuple[Any, Any]:
        return _stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        decays = float(self.learning_rate != LIPSCHITZ)
        return Constants(self.c, self.alpha, self.server_rate, decays)


class Constants(NamedTuple):
    """What the compiled stages need to know."""

    c: float
    alpha: float
    server_rate: float
    decays: float


@functools.cache
def _stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round`, given one client's objective."""
    from ..kernels._jit import stage
    from ..kernels.engine import reader

    read = reader(Constants)

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        (m, n), x, c, k0 = state.Z.shape, state.x, state.shared[0], settings.local_steps
        k, count = read(settings.constants), state.n_uploaded[0]
        divisor = math.sqrt(2.0 * k0 + tau - 1) if k.decays else 1.0
        total, change = np.zeros(n), np.zeros(n)
        if count == 0:
            for i in range(m):
                for j in range(n):
                    total[j] += state.Z[i, j]
            for j in range(n):
                x[j] = total[j] / m
            return True
        for i in state.uploaded[:count]:
            z, own = state.Z[i], state.kept[0, i]
            step = k0 * (problem.told[0, i] / divisor)
            for j in range(n):
                by = (x[j] - z[j]) / step - c[j]
                own[j] += by
                change[j] += by
                total[j] += z[j]
        for j in range(n):
            c[j] += change[j] / m
            x[j] += k.server_rate * (total[j] / count - x[j])
        return True

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, k0, x, c = read(settings.constants), settings.local_steps, state.x, state.shared[0]
        mu_at_x = settings.mu0 * math.pow(k.alpha, float((tau + 1) * k0))
        divisor = math.sqrt(2.0 * k0 + tau) if k.decays else 1.0
        gradient, finite = np.empty_like(x), True
        for i in state.selected[: state.n_selected[0]]:
            w, g, own, gap = state.W[i], state.G[i], state.kept[0, i], 0.0
            gamma = problem.told[0, i] / divisor
            for j in range(x.size):
                w[j] = x[j] - gamma * (g[j] - own[j] + c[j])
            for q in range(1, k0):
                if q == k0 - 1:
                    for j in range(x.size):
                        gap += (w[j] - x[j]) ** 2
                client(rows, i, w, problem.reg[i], True, gradient, state.work)
                for j in range(x.size):
                    w[j] -= gamma * (gradient[j] - own[j] + c[j])
            state.mu[i] = mu_at_x * (1.0 + k.c * gap)
            for j in range(x.size):
                finite &= abs(w[j]) < np.inf
        return finite

    return aggregate, local_round
