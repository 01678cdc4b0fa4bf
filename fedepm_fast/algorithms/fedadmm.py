"""FedADMM: an inexact alternating direction method of multipliers."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Around, choice, integer, param, real
from .._common.rounding import at_least
from ..objectives import Problem
from ._base import PRESETS, Algorithm, PrivacyPlan
from ._operators import penalty_parameter
from ._views import Array, AtClients, AtServer, Size, Sized

#: The tolerance of a client's subproblem shrinks by this factor in each local iteration.
DECAY = 0.95


@dataclass(frozen=True)
class FedADMM(Algorithm):
    """FedADMM (Zhou and Li, "Federated Learning via Inexact ADMM", Algorithm 2), as its program.

    With F = f/divisor and G_i = grad f_i/divisor a client repeats `local_steps` times, from v = x::

        v <- (h_i*v + p - G_i(v)) / (h_i + sigma_i),   p = sigma_i*x - pi_i

    until ``|p - sigma_i*v - G_i|^2 < n * k0^2 * 0.95^k`` with the gradient of that step, k its
    local iterations so far, or `inner_steps` times; then w_i = v, pi_i <- sigma_i*v - p. It keeps
    w_i and pi_i and sends ``z_i = sigma_i*w_i + pi_i``; the server's point is the sum of all
    clients' last z_i over that of their sigma_i, of which each tells its own when it joins. At a
    fixed point pi_i = -G_i(x), whose sum is 0: that is the optimum. A round takes one gradient of a
    client, and up to ``inner_steps - 1`` more in each local iteration once the tolerance is small.
    Theory: for sigma_i large enough any limit is a stationary point, at a rate of O(1/k).
    Choose it where clients differ and can keep a state; small r0 are fast and may oscillate.

    Parameters
    ----------
    r0 : float, optional
        Penalty sigma_i = r0*h_i. By default 0.05 for classification, 0.06 with 1,000 rows or more
        for each parameter, and ``0.5 / log10(9 + k0)`` for regression, as in the program.
    curvature_share : float, optional
        h_i is the bound of the curvature of f_i/divisor, its loss's part times this: 0.8 for the
        logistic loss, whose bound of 1/4 the program takes for 1/5, and 1 for others.
    inner_steps : int
        Steps of a local iteration, at most.
    divisor : float, optional
        f is divided by it: the number of clients by default, as in the program. Penalties, pi_i and
        uploads are in this unit; the points are the same but for the tolerance of inner steps.
    """

    r0: float | None = param(
        None, check=real(low=0.0, open_low=True), search=Around(30.0, 30.0), symbol="$r_0$",
        label="penalty over curvature $r_0$", shown="from the loss",
        help="Penalty parameter as a share of the client's curvature",
    )  # fmt: skip
    curvature_share: float | None = param(
        None, check=real(low=0.0, open_low=True), shown="0.8; 1 but for the logistic loss",
        help="Factor on the bound of the loss's curvature",
    )  # fmt: skip
    inner_steps: int = param(3, check=integer(low=1), help="Gradient steps in a local step")
    divisor: float | None = param(
        None, check=real(low=0.0, open_low=True), shown="the number of clients",
        help="What the objective is divided by",
    )  # fmt: skip
    preset: str = param("fedadmm", check=choice(PRESETS), help="fedadmm: its authors' program")

    name: ClassVar[str] = "fedadmm"
    label: ClassVar[str] = "FedADMM"
    tuned: ClassVar[tuple[str, ...]] = ("r0", "local_steps")
    keeps: ClassVar[tuple[str, ...]] = ("pi", "iterations", "gradients")
    tells: ClassVar[tuple[str, ...]] = ("sigma", "h")

    def resolve(self, problem: Sized) -> Self:
        found = dataclasses.replace(
            super().resolve(problem), divisor=self.divisor or float(problem.n_clients)
        )
        if isinstance(problem, Size):  # a server's, whose clients know more
            return found
        if not getattr(problem, "has_lipschitz", False):
            raise ValueError(
                f"objective must have a bound of its curvature for {self.label}, whose penalties "
                "are shares of it (callables: an attribute lipschitz)"
            )
        loss: Any = getattr(problem, "objective", None)
        logistic = loss is not None and loss.name == "logistic"
        share = self.curvature_share or (0.8 if logistic else 1.0)
        return dataclasses.replace(found, r0=self.r0 or self._r0(problem), curvature_share=share)

    def _r0(self, problem: Any) -> float:
        """The authors' choice."""
        loss = getattr(problem, "objective", None)
        if loss is not None and loss.task == "regression":
            return 0.5 / math.log10(9 + self.local_steps)
        if not isinstance(problem, Problem):  # callables, or a client by itself
            raise ValueError(
                f"r0 must be given for {self.label} where the loss and the rows of all clients are "
                "not known, on which its default depends"
            )
        return 0.06 if problem.n_samples >= 1000 * problem.n_parameters else 0.05

    def told(self, problem: Any) -> Array:
        """``sigma_i = r0*h_i`` and ``h_i``, the bound of the curvature of f_i over `divisor`."""
        own = self.resolve(problem)
        r0, share, divisor = (float(v or 0) for v in (own.r0, own.curvature_share, own.divisor))
        reg = getattr(problem, "reg_curvature", 0.0)
        h = (share * (problem.lipschitz() - reg) + reg) / divisor
        if not np.isfinite(h).all():
            raise ValueError("features must be brought to scale: sums of their squares overflow")
        h = np.maximum(h, 1e-290)  # a client whose rows are all zero says nothing
        return np.array([r0 * h, h])

    def gradients_per_round(self, sizes: NDArray[np.int64]) -> Array:
        """At most: what each client took is counted in ``gradients`` of what it keeps."""
        return np.full(len(sizes), 1.0 + self.local_steps * (self.inner_steps - 1))

    def steps(self, sizes: NDArray[np.int64]) -> Array:
        return np.ones(len(sizes))

    def advice(self, problem: Any) -> str:
        if not hasattr(problem, "mean_curvature"):
            return "a larger r0 makes smaller steps"
        sigma, h = self.told(problem)
        # With exact local work the server takes gradient steps of m/sum_i(sigma_i), which may be
        # up to 2/curvature.
        divisor = self.divisor or problem.n_clients
        enough = 0.75 * problem.mean_curvature() / (divisor * h.mean())
        least = at_least(enough)
        if sigma[0] / h[0] >= float(least):
            return "the server's step is stable with this r0"
        return f"r0={least} makes the server's step stable"

    def aggregate(self, server: AtServer) -> Array:
        sigma = server.told["sigma"]
        # Of clients that took no part yet there is w_i, whose pi_i is 0.
        factor = np.where(np.isnan(server.scale), sigma, 1.0)
        return np.asarray((factor[:, None] * server.Z).sum(axis=0) / sigma.sum())

    def local_round(self, clients: AtClients) -> tuple[Array, Array]:
        k0, W = self.local_steps, np.array(clients.W)
        gap = np.empty_like(W)
        for row in range(len(W)):
            for _ in range(k0):
                gap[row] = W[row] - clients.x
                W[row] = self._iteration(clients, row)
        mu = penalty_parameter(gap, (clients.tau + 1) * k0 - 1, self.mu0, self.c, self.alpha)
        return W, mu

    def _iteration(self, clients: AtClients, row: int) -> Array:
        """A local iteration of the client in a row: its w_i."""
        kept, x, v = clients.kept, clients.x, clients.x
        sigma, h = clients.told["sigma"][row], clients.told["h"][row]
        kept["gradients"][row] += kept["iterations"][row] % self.local_steps == 0
        kept["iterations"][row] += 1
        eps = self.local_steps**2 * DECAY ** kept["iterations"][row, 0]
        p, divisor = sigma * x - kept["pi"][row], self.divisor or 1.0
        g = clients.G[row] / divisor
        for inner in range(self.inner_steps):
            if inner:
                g = clients.gradient(row, v) / divisor
                kept["gradients"][row] += 1
            v = (h * v + p - g) / (h + sigma)
            left = p - sigma * v - g
            if left @ left < eps * len(x):
                break
        kept["pi"][row] = sigma * v - p
        return v

    def upload(self, clients: AtClients, W: Array, noise: Array) -> Array:
        return clients.told["sigma"][:, None] * (W + noise) + clients.kept["pi"]

    def stages(self, client: Any) -> tuple[Any, Any]:
        return _stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return Constants(self.c, self.alpha, float(self.inner_steps), float(self.divisor or 1))


class Constants(NamedTuple):
    """What the compiled stages need to know."""

    c: float
    alpha: float
    inner_steps: float
    divisor: float


@functools.cache
def _stages(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round`, given one client's objective."""
    from ..kernels._jit import device, stage
    from ..kernels._simd import fma, horizontal_sum, lanes, load_partial, splat, store_partial
    from ..kernels.engine import reader

    read, decay = reader(Constants), DECAY

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        (m, n), x, total = state.Z.shape, state.x, 0.0
        for i in state.uploaded[: state.n_uploaded[0]]:
            for j in range(n):
                state.Z[i, j] = problem.told[0, i] * state.Z[i, j] + state.kept[0, i, j]
        for j in range(n):
            x[j] = 0.0
        for i in range(m):
            sigma, scale = problem.told[0, i], state.noise_scale[i]
            factor = 1.0 if scale == scale else sigma  # NaN of those that took no part yet
            total += sigma
            for j in range(n):
                x[j] += factor * state.Z[i, j]
        for j in range(n):
            x[j] /= total
        return True

    @device
    def step(x, pi, gradient, sigma, h, unit, v, out):
        """An inner step from v: the squared residual."""
        n, width, inverse = x.size, lanes(x), 1.0 / (h + sigma)
        left = splat(x, 0.0)
        for j in range(0, n, width):
            p = sigma * load_partial(x, j, n - j, 0.0) - load_partial(pi, j, n - j, 0.0)
            p = p - unit * load_partial(gradient, j, n - j, 0.0)
            w = inverse * (h * load_partial(v, j, n - j, 0.0) + p)
            r = p - sigma * w
            left = fma(r, r, left)
            store_partial(out, j, w, n - j)
        return horizontal_sum(left)

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k, k0, x = read(settings.constants), settings.local_steps, state.x
        mu_at_x = settings.mu0 * math.pow(k.alpha, float((tau + 1) * k0))
        gradient, finite, inner_steps = np.empty_like(x), True, int(k.inner_steps)
        unit = 1.0 / k.divisor
        for i in state.selected[: state.n_selected[0]]:
            sigma, h = problem.told[0, i], problem.told[1, i]
            w, pi, gap, taken = state.W[i], state.kept[0, i], 0.0, 1.0
            done = state.kept[1, i, 0]
            for q in range(k0):
                eps = k0 * k0 * math.pow(decay, done + q + 1.0) * x.size
                if q == k0 - 1:
                    for j in range(x.size):
                        gap += (w[j] - x[j]) ** 2
                left = step(x, pi, state.G[i], sigma, h, unit, x, w)
                for _ in range(1, inner_steps):
                    if left < eps:
                        break
                    client(rows, i, w, problem.reg[i], True, gradient, state.work)
                    left = step(x, pi, gradient, sigma, h, unit, w, w)
                    taken += 1.0
                for j in range(x.size):
                    pi[j] += sigma * (w[j] - x[j])
            state.mu[i] = mu_at_x * (1.0 + k.c * gap)
            for j in range(x.size):
                state.kept[1, i, j] += k0
                state.kept[2, i, j] += taken
                finite &= abs(w[j]) < np.inf
        return finite

    return aggregate, local_round
