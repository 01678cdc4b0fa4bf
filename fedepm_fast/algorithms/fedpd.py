"""FedPD: local steps on augmented Lagrangians, and multipliers at the clients."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ._averaging import Constants
from ._views import Array, AtClients, AtServer
from .feddyn import FedDyn


@dataclass(frozen=True)
class FedPD(FedDyn):
    """FedPD (Zhang et al. 2021, Federated Learning with Adaptivity to Non-IID Data, Algorithm 1).

    With pi_i = 0 at first, and its eta as ``1/alpha``::

        clients:  w_i = argmin of f_i(w) + <pi_i, w - x> + alpha/2 * |w - x|^2, nearly,
                  pi_i <- pi_i + alpha * (w_i - x)
        server:   x <- mean over all clients of the last w_i + pi_i/alpha

    "Nearly" is `local_steps` full gradient steps from where w_i was, the paper's Oracle I. Clients
    talk to the server after each of these: of the paper's rounds without it, whose share p is 0
    here, the optimum is no fixed point unless clients are alike. In the paper all take part; where
    some do not, their last uploads stand. At a fixed point ``pi_i = -grad f_i(x)``, whose sum is 0:
    the optimum. Where all take part and minimise exactly, points are those of `FedDyn`.

    A client keeps w_i and pi_i and sends ``w_i + pi_i/alpha``, n numbers a round; it takes
    `local_steps` gradients, and says its bound of curvature when it joins. Noise is on the upload.
    Theory: ``|grad f|^2`` of O(1/T), of non-convex f too, for alpha some times the curvature and
    inner steps that are accurate enough. Choose it where clients differ, can keep a state, and
    mostly take part.
    """

    name: ClassVar[str] = "fedpd"
    label: ClassVar[str] = "FedPD"
    keeps: ClassVar[tuple[str, ...]] = ("pi",)
    shares: ClassVar[tuple[str, ...]] = ()
    hides: ClassVar[tuple[str, ...]] = ()

    def round_start(self, W: Array, Z: Array, x: Array) -> Array:
        return W

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """``w <- w - eta_i * (grad f_i(w) + pi_i + alpha * (w - x))``, from w_i."""
        w, pi = clients.W[row], clients.kept["pi"][row]
        eta, alpha = (clients.told[name][row] for name in self.tells)
        for _ in range(self.local_steps):
            w = w - eta * (clients.gradient(row, w) + pi + alpha * (w - clients.x))
            yield w

    def upload(self, clients: AtClients, W: Array, noise: Array) -> Array:
        pi, alpha = clients.kept["pi"], clients.told["prox"][:, None]
        pi += alpha * (W - clients.x)
        return W + pi / alpha + noise

    def aggregate(self, server: AtServer) -> Array:
        return server.Z.mean(axis=0)

    def stages(self, client: Any) -> tuple[Any, Any]:
        return _stages(client)


@functools.cache
def _stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round`, given one client's objective."""
    from ..kernels._jit import stage
    from ..kernels.engine import reader
    from ..kernels.gradient_steps import gradient_step, squared_distance

    read = reader(Constants)

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        (m, n), x = state.Z.shape, state.x
        for i in state.uploaded[: state.n_uploaded[0]]:
            for j in range(n):
                state.Z[i, j] += state.kept[0, i, j] / problem.told[1, i]
        for j in range(n):
            x[j] = 0.0
        for i in range(m):
            for j in range(n):
                x[j] += state.Z[i, j] / m
        return True

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, k0, x, finite = read(settings.constants), settings.local_steps, state.x, True
        mu_at_x = settings.mu0 * math.pow(k.alpha, float((tau + 1) * k0))
        gradient, centre = np.empty_like(x), np.empty_like(x)
        for i in state.selected[: state.n_selected[0]]:
            w, pi, gap = state.W[i], state.kept[0, i], 0.0
            eta, alpha = problem.told[0, i], problem.told[1, i]
            for j in range(x.size):  # about this point pi_i and the penalty are one
                centre[j] = x[j] - pi[j] / alpha
            for q in range(k0):
                # Of several steps, where w_i was before the last: what noise is scaled by.
                gap = squared_distance(w, x) if q == k0 - 1 and q > 0 else 0.0
                client(rows, i, w, problem.reg[i], True, gradient, state.work)
                gradient_step(w, centre, gradient, eta, alpha, w)
            for j in range(x.size):
                pi[j] += alpha * (w[j] - x[j])
            state.mu[i] = mu_at_x * (1.0 + k.c * gap)
            finite &= squared_distance(w, x) < np.inf
        return finite

    return aggregate, local_round
