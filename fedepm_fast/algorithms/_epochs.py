"""What FedAvg and FedProx share: epochs of gradient steps, of all of a client's rows or of few."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._common.parameters import Among, integer, param
from ..objectives import Problem
from ._base import PrivacyPlan
from ._rates import LIPSCHITZ, CommonRate
from ._views import Array, AtClients, AtServer


@dataclass(frozen=True)
class Epochs(CommonRate, abstract=True):
    """Epochs of gradient steps at the clients, and a weighted average of what they end at.

    Parameters
    ----------
    local_steps : int
        Local epochs E: how often a client goes through its rows in a round.
    batch_size : int, optional
        Rows of a step, B: an epoch is one step for each batch of a random order of the rows, the
        last one with what is left. By default, and where a client has no more, all rows.
    noise : {"standardized", "laplace", "none"}
        Of the uploads; none by default.
    """

    local_steps: int = param(
        5, check=integer(low=1), symbol="$E$", search=Among((1, 2, 5, 10, 20)),
        help="Local epochs between two communications, E",
    )  # fmt: skip
    batch_size: int | None = param(
        None, check=integer(low=1), symbol="$B$", shown="all rows of a client",
        help="Rows of a client's gradient step",
    )  # fmt: skip
    noise: str | None = param("none", metavar="MODEL", help="standardized, laplace or none")

    tells: ClassVar[tuple[str, ...]] = ("weight", "rate")

    @property
    def draws_batches(self) -> bool:
        return self.batch_size is not None

    def bounds(self, problem: Problem) -> Array:
        own = problem.lipschitz() / problem.client_weights
        if self.batch_size is not None and _has_rows(problem):
            own = _of_batches(problem, own, self.batch_size)
        return own

    def told(self, problem: Problem) -> Array:
        if self.draws_batches and self.learning_rate == LIPSCHITZ and not _has_rows(problem):
            raise ValueError(
                f"learning_rate must be a number for batches of callables, got {LIPSCHITZ!r}: it "
                "depends on single rows"
            )
        return np.concatenate([problem.client_weights[None], super().told(problem)])

    def aggregate(self, server: AtServer) -> Array:
        if not len(server.uploaded):  # at first, or where nobody has answered
            return server.x if server.tau else server.Z.mean(axis=0)
        weights = server.told["weight"][server.uploaded]
        return weights @ server.Z[server.uploaded] / weights.sum()

    def pull(self, clients: AtClients, row: int) -> float:
        """Weight of the proximal term ``pull/2 * |w - x|^2`` of the client in a row."""
        return 0.0

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """``w <- w - eta * (grad F_i(w; batch) + pull * (w - x))`` for each batch, from x."""
        w, eta, own = clients.x, self.rate(clients, row), clients.told["weight"][row]
        size, pull = int(clients.sizes[row]), self.pull(clients, row)
        step = min(self.batch_size or size, size)
        for epoch in range(self.local_steps):
            if step == size:
                g = clients.gradient(row, w) if epoch else clients.G[row]
                w = w - eta * (g / own + pull * (w - clients.x))
            else:
                order = clients.order(row, epoch)
                for first in range(0, size, step):
                    g = clients.batch_gradient(row, w, order[first : first + step])
                    w = w - eta * (g / own + pull * (w - clients.x))
            yield w

    def advice(self, problem: Problem) -> str:
        found = super().advice(problem)
        if not found.startswith("the local steps are stable"):
            return found
        if self.batch_size is not None:
            steps = -(-problem.data.client_sizes // self.batch_size)
            if steps.min() < steps.max():
                return (
                    f"clients take {steps.min()} to {steps.max()} steps in an epoch, and those "
                    "with more draw the point to them, whatever the rate: without batch_size all "
                    "take as many"
                )
            return "batches leave noise, which a smaller rate_scale lowers"
        return "clients that differ drift apart in many steps: a smaller rate_scale holds them"

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return Constants(self.c, self.alpha, 0.0, float(self.batch_size or 0))


def _has_rows(problem: Problem) -> bool:
    """Whether there are rows, and not only callables."""
    return hasattr(problem, "row_bounds")


def _of_batches(problem: Problem, whole: Array, size: int) -> Array:
    """Expected smoothness of a random batch's gradient, by that of all rows and of single ones.

    Proposition 3.8 of Gower et al. (SGD: General Analysis and Improved Rates, 2019).
    """
    d = problem.data.client_sizes.astype(np.float64)
    batch = np.minimum(size, d)
    single = problem.row_bounds() / problem.client_weights
    rest = np.where(d > 1, (d - batch) / (batch * np.maximum(d - 1, 1)), 0.0)
    return (1 - rest) * whole + rest * np.maximum(single, whole)


class Constants(NamedTuple):
    """What the compiled stages need to know."""

    c: float
    alpha: float
    pull: float
    """Weight of the proximal term as a multiple of the third number that clients tell."""
    batch_size: float
    """0 for all rows."""


@functools.cache
def epoch_stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round`, given one client's objective."""
    from ..kernels._jit import device, stage
    from ..kernels._parts import fill, part
    from ..kernels.engine import batches_of, copy_into, reader
    from ..kernels.gradient_steps import gradient_step, squared_distance
    from ..kernels.local_steps import gradient_steps_kernel
    from ..kernels.sampling import order_into

    batch, whole, read = batches_of(client), gradient_steps_kernel(client), reader(Constants)

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        x, count, total = state.x, state.n_uploaded[0], 0.0
        fill(x, 0.0)
        for r in range(count if count > 0 else state.Z.shape[0]):
            i, weight = r, 1.0
            if count > 0:
                i = state.uploaded[r]
                weight = problem.told[0, i]
            total += weight
            for j in range(x.size):
                x[j] += weight * state.Z[i, j]
        for j in range(x.size):
            x[j] /= total
        return True

    @device
    def walk(rows, problem, settings, key, state, tau, i, size, pull, order, words, g):
        """The epochs of client i in steps of batches, and ``|w - x|^2`` before the last epoch."""
        d, w, x, gap = order.size, state.W[i], state.x, 0.0
        copy_into(w, x)
        for epoch in range(settings.local_steps):
            if epoch == settings.local_steps - 1:
                gap = squared_distance(w, x)
            purpose = key.batches + (np.uint64(epoch) << np.uint64(32))
            order_into(key.seed, key.trial, purpose, np.uint64(tau), np.uint64(i), order, words)
            for first in range(0, d, size):
                last = min(first + size, d)
                batch(rows, i, order, first, last, w, problem.reg[i], g, state.work)
                gradient_step(w, x, g, state.rate[i], pull, w)
        return gap

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, epochs, x = read(settings.constants), settings.local_steps, state.x
        S, finite = part(state.selected, 0, state.n_selected[0]), True
        size, most = int(k.batch_size), 0
        mu_at_x = settings.mu0 * math.pow(k.alpha, float((tau + 1) * epochs))
        for i in S:
            if 0 < size < problem.sizes[i]:
                most = max(most, problem.sizes[i])
        order, words, g = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty_like(x)
        for r in range(S.size):
            i = S[r]
            d, weight = problem.sizes[i], problem.told[0, i]
            # F_i is f_i over the client's weight.
            state.rate[i] = problem.told[1, i] / weight
            pull = 0.0 if k.pull == 0.0 else weight * (k.pull * problem.told[2, i])
            if 0 < size < d:
                own, memory = part(order, 0, d), part(words, 0, d)
                gap = walk(rows, problem, settings, key, state, tau, i, size, pull, own, memory, g)
                state.mu[i] = mu_at_x * (1.0 + k.c * gap)
                finite &= abs(squared_distance(state.W[i], x)) < np.inf
            else:
                finite &= whole(
                    rows, problem.reg, part(S, r, r + 1), x, state.G, state.rate, pull,
                    settings.mu0, k.c, k.alpha, epochs, 1, tau * epochs, state.work, state.W,
                    state.mu,
                )  # fmt: skip
        return finite

    return aggregate, local_round
