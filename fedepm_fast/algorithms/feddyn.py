"""FedDyn: clients' objectives with a dynamic regulariser, which makes their optima agree."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Around, number_or, param, real
from .._common.rounding import at_most
from ..objectives import Problem
from ._averaging import Constants, LocalSteps
from ._base import PrivacyPlan
from ._rates import LIPSCHITZ, own_bounds, own_rates
from ._views import Array, AtClients, AtServer

#: Of the mean bound of curvature: of 0.003 to 30 what needs few rounds on most problems tried.
SHARE = 0.3


@dataclass(frozen=True)
class FedDyn(LocalSteps):
    """FedDyn (Acar et al. 2021, Federated Learning Based on Dynamic Regularization, Algorithm 1).

    With g_i = 0 and h = 0 at first, and sums over the p clients of a round::

        clients:  w_i = argmin of f_i(w) - <g_i, w> + alpha/2 * |w - x|^2, nearly,
                  g_i <- g_i - alpha * (w_i - x)
        server:   h <- h - alpha/m * (sum of w_i - x),   x <- (sum of w_i)/p - h/alpha

    "Nearly" is `local_steps` gradient steps from x; after any number of them all rests at the
    optimum only, where ``g_i = grad f_i(x)`` and h, the mean of all g_i, is 0. Noise of uploads is
    in g_i and h, at client and server alike. A client keeps g_i, takes `local_steps` gradients a
    round and sends w_i; when it joins it tells its bound of curvature.

    Theory, of exact minimisers: O(1/T) for convex f and linear for strongly convex f, whoever takes
    part, for alpha some times the curvature; smaller ones are faster. Choose it where clients
    differ, few take part in a round, and each can keep a state.

    Parameters
    ----------
    local_steps : int
        Gradient steps of a client in a round.
    prox : float or "lipschitz"
        alpha; ``"lipschitz"`` is 0.3 times the mean of the bounds L_i of the clients' curvature.
    prox_scale : float
        Multiplies alpha.
    learning_rate : float or "lipschitz"
        Length of the gradient steps, 0.1 in the paper; ``"lipschitz"`` is ``1 / (L_i + alpha)``.
    noise : {"standardized", "laplace", "none"}
        Of the uploads; none by default.
    """

    prox: str | float = param(
        "lipschitz", check=number_or("lipschitz", low=0.0, open_low=True), symbol=r"$\alpha$",
        metavar="WEIGHT", help="Weight of the proximal term; lipschitz: by the clients' curvature",
    )  # fmt: skip
    prox_scale: float = param(
        1.0, check=real(low=0.0, open_low=True), search=Around(100.0, 100.0), symbol=r"$\alpha$",
        label="multiple of the proximal term", help="Multiplies the proximal term",
    )  # fmt: skip
    learning_rate: str | float = param(
        "lipschitz", check=number_or("lipschitz", low=0.0, open_low=True), metavar="RATE",
        help="Step of the local iterations; lipschitz: one over curvature and proximal weight",
    )  # fmt: skip
    noise: str | None = param("none", metavar="MODEL", help="standardized, laplace or none")

    name: ClassVar[str] = "feddyn"
    label: ClassVar[str] = "FedDyn"
    tuned: ClassVar[tuple[str, ...]] = ("prox_scale", "local_steps")
    keeps: ClassVar[tuple[str, ...]] = ("g_i",)
    shares: ClassVar[tuple[str, ...]] = ("h",)
    hides: ClassVar[tuple[str, ...]] = ("h",)
    tells: ClassVar[tuple[str, ...]] = ("rate", "prox")

    def told(self, problem: Problem) -> Array:
        """The rate, or one over L_i; and alpha, or its share of L_i."""
        rate = own_rates(self.learning_rate, problem)
        own = SHARE * own_bounds("prox", problem) if self.prox == LIPSCHITZ else float(self.prox)
        return np.stack([rate, np.full_like(rate, self.prox_scale * own)])

    def agreed(self, told: Array) -> Array:
        rate, alpha = told[0], np.full_like(told[1], told[1].mean())
        if self.learning_rate == LIPSCHITZ:
            rate = 1.0 / (1.0 / rate + alpha)
        return np.stack([rate, alpha])

    def numbers_received(self, n: int, taken_part: int) -> int:
        return super().numbers_received(n, taken_part) + 2 * taken_part  # of `agreed`

    def advice(self, problem: Problem) -> str:
        rate, alpha = self.known(problem)
        bound = alpha + (problem.lipschitz() if problem.has_lipschitz else 0.0)
        if (rate * bound).max() > 2.0:
            most = at_most(2 / bound.max())
            if not problem.has_lipschitz:
                return f"a learning_rate below {most} is needed, how far is not known"
            return f"a learning_rate of {most} or less makes the local steps stable"
        return "with a larger prox_scale, or a smaller learning_rate, rounds go less far"

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """``w <- w - eta_i * (grad f_i(w) - g_i + alpha * (w - x))``, from x."""
        w, own = clients.x, clients.kept["g_i"][row]
        eta, alpha = (clients.told[name][row] for name in self.tells)
        for q in range(self.local_steps):
            g = clients.gradient(row, w) if q else clients.G[row]
            w = w - eta * (g - own + alpha * (w - clients.x))
            yield w

    def upload(self, clients: AtClients, W: Array, noise: Array) -> Array:
        z = W + noise
        clients.kept["g_i"][:] -= clients.told["prox"][:, None] * (z - clients.x)
        return z

    def aggregate(self, server: AtServer) -> Array:
        if not len(server.uploaded):
            return server.x if server.tau else server.Z.mean(axis=0)
        h, Z, alpha = server.shared["h"], server.Z[server.uploaded], server.told["prox"][0]
        h -= alpha / len(server.Z) * (Z - server.x).sum(axis=0)
        return Z.mean(axis=0) - h / alpha

    def stages(self, client: Any) -> tuple[Any, Any]:
        return _stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return Constants(self.c, self.alpha, prox=0.0, inner_steps=1)


@functools.cache
def _stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round`, given one client's objective."""
    from ..kernels._jit import stage
    from ..kernels.engine import reader
    from ..kernels.gradient_steps import gradient_step, squared_distance

    read = reader(Constants)

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        (m, n), x, h, alpha = state.Z.shape, state.x, state.shared[0], problem.told[1, 0]
        # The first uploads are where clients begin, and change nothing else.
        count, weight = (m, 0.0) if tau == 0 else (state.n_uploaded[0], alpha)
        change = np.zeros(n)
        for r in range(count):
            i = r if tau == 0 else state.uploaded[r]
            for j in range(n):
                by = state.Z[i, j] - x[j]
                change[j] += by
                state.kept[0, i, j] -= weight * by
        for j in range(n):
            h[j] -= weight / m * change[j]
            x[j] += change[j] / count - h[j] / alpha
        return True

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, k0, x, finite = read(settings.constants), settings.local_steps, state.x, True
        mu_at_x = settings.mu0 * math.pow(k.alpha, float((tau + 1) * k0))
        gradient, centre = np.empty_like(x), np.empty_like(x)
        for i in state.selected[: state.n_selected[0]]:
            w, gap, eta, alpha = state.W[i], 0.0, problem.told[0, i], problem.told[1, i]
            for j in range(x.size):  # about this point the regulariser's two parts are one
                centre[j] = x[j] + state.kept[0, i, j] / alpha
            gradient_step(x, centre, state.G[i], eta, alpha, w)
            for q in range(1, k0):
                gap = squared_distance(w, x) if q == k0 - 1 else 0.0
                client(rows, i, w, problem.reg[i], True, gradient, state.work)
                gradient_step(w, centre, gradient, eta, alpha, w)
            state.mu[i] = mu_at_x * (1.0 + k.c * gap)
            finite &= squared_distance(w, x) < np.inf
        return finite

    return aggregate, local_round
