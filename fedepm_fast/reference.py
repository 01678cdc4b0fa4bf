"""The reference: FedEPM and its baselines in NumPy, equation by equation.

Written to be read beside the paper (Zhou and Li, "Exact Penalty Method for Federated
Learning"), and the yardstick of every compiled kernel. Notation: m clients, n coordinates;
W and Z are (m, n), row i is client i's parameter w_i and last upload z_i; x is the server's
point; k counts local iterations and tau = k // local_steps rounds, both from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._validation import check_array, check_real
from .kernels.engine import _loop as loop
from .objectives import Problem
from .participation import clients_per_round, select
from .randomness import Randomness

if TYPE_CHECKING:
    from .algorithms import Algorithm, FedEPM, PrivacyPlan, SFedAvg, SFedProx

Array = NDArray[np.float64]

#: The weight in ENS of a client that never uploaded, to the largest one, where uploads are weighed.
NO_WEIGHT = 1e-9

# Operators ------------------------------------------------------------------------------


def soft_threshold(t: ArrayLike, a: ArrayLike) -> Array:
    """soft(t, a), the minimiser of ``(x - t)^2 / 2 + a*|x|``, elementwise."""
    t = np.asarray(t)
    return np.sign(t) * np.maximum(np.abs(t) - a, 0)


def penalty(v: Array, lam: float, eta: float) -> Array:
    """The elastic net ``phi(v) = lam*|v|_1 + eta/2*|v|^2`` along the last axis."""
    return lam * np.abs(v).sum(axis=-1) + eta / 2 * (v * v).sum(axis=-1)


def ens(Z: ArrayLike, c: float, weights: ArrayLike | None = None) -> NDArray[Any]:
    """The elastic-net solver: the minimiser of ``sum_i p_i * phi(z_i - w)``, per coordinate.

    With z(1) >= ... >= z(m) in a coordinate, S_s the weight of the s largest, P = S_m and
    ``u_s = mean + c*(2*S_s/P - 1)``, the solution is ``max(u_s*, z(s*+1))`` where s* is the
    number of s with ``z(s) > u_s`` (and z(m+1) = -inf): the median of the 2m+1 numbers
    z_1..z_m, u_0..u_m (Li and Osher 2009). With equal weights S_s/P = s/m, the quantities of
    the paper's lemma on the elastic-net problem. The predicate holds for a leading run of s
    because z(s) falls and u_s rises.

    Parameters
    ----------
    Z : array_like of shape (m, n), or (m,)
        One row per client, float32 or float64.
    c : float
        ``lam / eta``, at least 0. 0 gives the mean; a large c gives a median.
    weights : array_like of shape (m,), optional
        Positive weights p_i of the clients; equal by default.

    Returns
    -------
    ndarray of shape (n,), or scalar array
        Of the dtype of `Z`.
    """
    Z = np.asarray(Z)
    dtype = Z.dtype if Z.dtype == np.float32 else np.dtype(np.float64)
    Z = check_array("Z", Z, dtype=dtype)
    if Z.ndim == 0 or len(Z) == 0:
        raise ValueError(f"Z must hold at least one client's row, got shape {Z.shape}")
    c = check_real("c", c, low=0.0)
    m = len(Z)
    columns = Z.reshape(m, -1).astype(np.float64)
    if weights is None:
        # The mean in extended precision, and within the data: m equal numbers have that mean.
        mean = columns.mean(axis=0, dtype=np.longdouble).astype(np.float64)
        shares = np.broadcast_to((np.arange(m + 1) / m)[:, None], (m + 1, columns.shape[1]))
    else:
        p = check_array("weights", weights, shape=(m,))
        if not (p > 0).all():
            raise ValueError(f"weights must be positive, got {p.min()}")
        p = np.ldexp(p, -np.frexp(p.max())[1])  # ratios count, and now no sum overflows
        mean = (p[:, None] * columns).sum(axis=0, dtype=np.longdouble) / p.sum(dtype=np.longdouble)
        mean = mean.astype(np.float64)
        order = np.argsort(-columns, axis=0, kind="stable")
        cumulative = np.cumsum(p[order], axis=0)
        shares = np.vstack([np.zeros(columns.shape[1]), cumulative / cumulative[-1]])
    z = -np.sort(-columns, axis=0)
    mean = np.clip(mean, z[-1], z[0])
    u = mean + c * (2 * shares - 1)
    s = (z > u[1:]).sum(axis=0)
    column = np.arange(columns.shape[1])
    below = np.vstack([z, np.full(columns.shape[1], -np.inf)])[s, column]
    w = np.maximum(u[s, column], below) + 0.0  # of zeros of either sign +0.0
    return w.astype(dtype).reshape(Z.shape[1:])


def ens_algorithm1(Z: ArrayLike, lam: float, eta: float) -> Array:
    """The paper's Algorithm 1 to the letter, O(m^2) in the worst case: a cross-check of `ens`."""
    Z = check_array("Z", Z, ndim=2)
    m, n = Z.shape
    w = np.empty(n)
    for j in range(n):
        z = np.sort(Z[:, j])[::-1]
        for s in range(1, m + 1):
            candidate = z.mean() + lam / eta * (2 * s / m - 1)
            if s < m and z[s - 1] > candidate > z[s]:
                w[j] = candidate
                break
        else:
            h = [(lam * np.abs(v - z) + eta / 2 * (v - z) ** 2).sum() for v in z]
            w[j] = z[int(np.argmin(h))]
    return w


# Local steps ----------------------------------------------------------------------------


def penalty_parameter(gap: Array, iteration: int, mu0: float, c: float, alpha: float) -> Array:
    """``mu = mu0 * (1 + c*|gap|^2) * alpha^(k+1)`` of iteration k, for gaps (..., n)."""
    # A NumPy power overflows to inf, which a run notices; Python's raises.
    growth = np.power(alpha, iteration + 1.0)
    return mu0 * (1 + c * (gap * gap).sum(axis=-1)) * growth


def fedepm_iterates(
    algorithm: FedEPM, W: Array, x: Array, G: Array, step: Array, tau: int
) -> Iterator[tuple[Array, Array]]:
    """FedEPM's local steps of round `tau`: ``(W, mu)`` after each.

    ``w_i <- x + soft(step_i*mu*(w_i - x) - g_i, lam) / (eta + step_i*mu)``

    Parameters
    ----------
    algorithm : FedEPM
        Resolved parameters.
    W, G : ndarray of shape (s, n)
        Parameters of the selected clients, and their gradients at `x`.
    x : ndarray of shape (n,)
        The server's point.
    step : ndarray of shape (s,)
        ``step_i`` of the selected clients.
    tau : int
        The round.
    """
    k0 = algorithm.local_steps
    lam, eta = algorithm.weights
    start = W - x
    for k in range(tau * k0, (tau + 1) * k0):
        # With a mechanism mu must be public: it keeps to the gap at the start of the round.
        gap = start if algorithm.mechanism is not None else W - x
        mu = penalty_parameter(gap, k, algorithm.mu0, algorithm.c, algorithm.alpha)
        nu = (step * mu)[:, None]
        W = x + soft_threshold(nu * (W - x) - G, lam) / (eta + nu)
        yield W, mu


def learning_rate(scale: float, size: float, local_steps: int, tau: int) -> float:
    """``gamma_i = scale * d_i / sqrt(2*k0 + k//k0)``, constant within a round."""
    return scale * size / math.sqrt(2 * local_steps + tau)


def sfedavg_iterates(
    algorithm: SFedAvg, problem: Problem, i: int, x: Array, g: Array, tau: int
) -> Iterator[Array]:
    """SFedAvg's local steps of client i: ``w <- w - gamma * grad f_i(w)``, from x."""
    gamma = learning_rate(
        algorithm.learning_rate, problem.data.client_sizes[i], algorithm.local_steps, tau
    )
    w = x
    for q in range(algorithm.local_steps):
        w = w - gamma * (g if q == 0 else problem.gradient(i, w))
        yield w


def sfedprox_iterates(
    algorithm: SFedProx, problem: Problem, i: int, x: Array, g: Array, tau: int
) -> Iterator[Array]:
    """SFedProx's local steps of client i: each takes `inner_steps` gradient steps on
    ``f_i(v) + prox/2*|v - x|^2``, from x."""
    gamma = learning_rate(
        algorithm.learning_rate, problem.data.client_sizes[i], algorithm.local_steps, tau
    )
    v = x
    for q in range(algorithm.local_steps):
        for inner in range(algorithm.inner_steps):
            gradient = g if q == inner == 0 else problem.gradient(i, v)
            v = v - gamma * (gradient + algorithm.prox * (v - x))
        yield v


# A whole run ----------------------------------------------------------------------------


def privacy_plan(
    algorithm: Algorithm, problem: Problem, randomness: Randomness, rounds: int
) -> PrivacyPlan | None:
    """The plan of a run of so many rounds; None unless the algorithm has a mechanism.

    Selections depend on no data, so how often each client will take part is known before.
    """
    if algorithm.mechanism is None:
        return None
    return algorithm.plan(problem, participations(algorithm, problem, randomness, rounds))


def participations(
    algorithm: Algorithm, problem: Problem, randomness: Randomness, rounds: int
) -> NDArray[np.int64]:
    """How often each client uploads in the first `rounds` rounds, shape (m,)."""
    *_, counts = uploads(algorithm, problem, randomness, rounds)
    return counts


def uploads(
    algorithm: Algorithm, problem: Problem, randomness: Randomness, rounds: int
) -> Iterator[NDArray[np.int64]]:
    """How often each client has uploaded before round 0, 1, ..., `rounds`, each shape (m,)."""
    m = problem.n_clients
    m0 = clients_per_round(algorithm.participation, m)
    counts = np.zeros(m, dtype=np.int64)
    yield counts
    for tau in range(rounds):
        counts = counts.copy()
        counts[select(randomness, tau, m, m0, algorithm.coverage_rounds)] += 1
        yield counts


class Reference:
    """The stages of a run in NumPy, client by client: see `fedepm_fast.kernels.engine._loop`."""

    spoils = False
    clients: Any = None
    workspace: Any = None
    constants = np.empty(0)

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        randomness: Randomness,
        plan: PrivacyPlan | None,
    ) -> None:
        self.algorithm, self.problem, self.plan = algorithm, problem, plan
        self.randomness, self.noise_model = randomness, algorithm.noise_model
        m = problem.n_clients
        self._everyone = np.arange(m, dtype=np.intp)
        self._per_round = clients_per_round(algorithm.participation, m)

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Nothing is compiled."""

    def value_at_start(self, start: Array | None) -> float:
        n = self.problem.n_parameters
        x = np.zeros(n) if start is None else start.reshape(-1, n).mean(axis=0)
        return self.problem.total_value(x)

    def accuracies(self, points: Array) -> Array | None:
        found = [self.problem.accuracy(x) for x in points]
        return None if None in found else np.array(found, np.float64)

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        n = state.W.shape[1]
        unit = self.noise_model.unit(self.randomness, -1, self._everyone, n)
        state.Z[:] = state.W + unit / self.algorithm.mu0
        state.x[:] = state.W[0]
        state.snr[:] = state.noise_scale[:] = np.nan
        for array in (state.own, state.recent, state.totals, state.seconds, state.n_selected):
            array[:] = 0

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        if tau == 0 and not np.isfinite(state.Z).all():
            return -1, loop.OVERFLOW
        return loop.rounds(  # type: ignore[no-any-return]
            self.select, self.aggregate, self.evaluate, self.local_round, self.upload,
            None, problem, settings, key, given, state, history, tau, last,
        )  # fmt: skip

    # The stages, each of the arguments (rows, problem, settings, key, given, state, tau).

    def select(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S = select(
            self.randomness, tau, len(state.Z), self._per_round, self.algorithm.coverage_rounds
        )
        state.n_selected[0] = len(S)
        state.selected[: len(S)] = S
        return True

    def aggregate(self, *arguments: Any) -> bool:
        state = arguments[-2]
        state.x[:] = self.algorithm.aggregate(state.Z, self._chosen(state), state.noise_scale)
        return True

    def evaluate(self, *arguments: Any) -> bool:
        state, problem = arguments[-2], self.problem
        S, x = self._chosen(state), state.x.copy()
        began = perf_counter()
        for i in S:
            state.G[i] = problem.gradient(i, x)
        state.seconds[0] = perf_counter() - began
        # f and the mean gradient are the experimenter's measures, no client's work.
        for i in np.setdiff1d(self._everyone, S, assume_unique=True):
            state.G[i] = problem.gradient(i, x)
        g_mean = state.G.mean(axis=0)
        state.totals[:2] = problem.total_value(x), g_mean @ g_mean
        return True

    def local_round(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        algorithm, problem, plan, S = self.algorithm, self.problem, self.plan, self._chosen(state)
        x, G = state.x.copy(), state.G[S]
        begin = algorithm.round_start(state.W[S], state.Z[S], x)
        gap = begin - x
        if plan is not None and not algorithm.may_upload(problem, S, gap, x, tau, plan):
            return False
        w, mu = algorithm.local_round(problem, S, x, begin, G, tau)
        self._scale = algorithm.noise_scale(problem, S, gap, G, mu, tau, plan)
        self._w = w
        return bool(np.isfinite(w).all())

    def upload(self, *arguments: Any) -> bool:
        state, tau = arguments[-2:]
        S, n, scale = self._chosen(state), len(state.x), self._scale
        if self.plan is None or self.algorithm.mechanism is None:
            unit = self.noise_model.unit(self.randomness, tau, S, n)
        else:
            unit = self.randomness.unit_noise(tau, S, n, law=self.algorithm.mechanism.name)
        noise = scale[:, None] * unit
        if not np.isfinite(noise).all():
            return False
        state.W[S], state.Z[S] = self._w, self._w + noise
        state.noise_scale[S] = scale
        size = np.linalg.norm(noise, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            state.snr[S] = np.where(size == 0, np.inf, np.linalg.norm(self._w, axis=1) / size)
        return True

    @staticmethod
    def _chosen(state: Any) -> NDArray[np.intp]:
        return np.asarray(state.selected[: state.n_selected[0]], np.intp)
