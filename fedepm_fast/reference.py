"""The reference: FedEPM and its baselines in NumPy, equation by equation.

Written to be read beside the paper (Zhou and Li, "Exact Penalty Method for Federated
Learning"), and the yardstick of every compiled kernel. Notation: m clients, n coordinates;
W and Z are (m, n), row i is client i's parameter w_i and last upload z_i; x is the server's
point; k counts local iterations and tau = k // local_steps rounds, both from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._validation import check_array, check_real
from .callbacks import Callback, RoundInfo
from .objectives import Problem
from .participation import clients_per_round, select
from .randomness import Randomness
from .stopping import CALLBACK, DIVERGED, MAX_ITERATIONS, MAX_ROUNDS, PRECISION, RISE, StoppingRule

if TYPE_CHECKING:
    from .algorithms import Algorithm, FedEPM, PrivacyPlan, SFedAvg, SFedProx

Array = NDArray[np.float64]

#: A run has diverged when f(x) exceeds this multiple of f at the start. Large noise alone can
#: raise f several thousand times before a run recovers, so the second, lower multiple counts only
#: where the stopping rule has ended the run because f and its gradient rise.
DIVERGENCE_FACTOR = 1e8
RISE_IS_DIVERGENCE_FACTOR = 10.0

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


@dataclass
class Outcome:
    """What an engine returns: the history and the final state of a run.

    Parameters
    ----------
    x, W, Z, reasons, history, snr_clients, total_time
        As of `Result`.
    """

    x: Array
    W: Array
    Z: Array
    reasons: tuple[str, ...]
    history: dict[str, list[Any]]
    snr_clients: Array
    total_time: float
    at_start: float
    """f at the start, before any noise."""


def has_diverged(growth: float, reasons: tuple[str, ...]) -> bool:
    """Whether f, `growth` times that of the start, is beyond recovery."""
    return growth > DIVERGENCE_FACTOR or (RISE in reasons and growth > RISE_IS_DIVERGENCE_FACTOR)


def signal_to_noise(signal: Array, noise: Array) -> Array:
    """``log10(|w_i| / |noise_i|)`` of each client's last upload; inf without noise.

    NaN stands for a client that has not taken part yet: its parameter is the start, and its
    noise the first upload's.
    """
    ratio = np.full(len(signal), np.nan)
    took_part = ~np.isnan(noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio[took_part] = np.where(
            noise[took_part] == 0,
            np.inf,
            np.log10(signal[took_part]) - np.log10(noise[took_part]),
        )
    return ratio


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


def simulate(
    algorithm: Algorithm,
    problem: Problem,
    randomness: Randomness,
    stopping: StoppingRule,
    *,
    max_rounds: int,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    start: Array | None = None,
    every_accuracy: bool = True,
    keep_x: bool = True,
) -> Outcome:
    """Run an algorithm, client by client, with NumPy.

    `algorithm` is resolved for the problem (see `Algorithm.resolve`); arguments are checked by
    `fedepm_fast.run`, which is what most callers want. Without `every_accuracy` the accuracy
    is that of the last round only, and NaN before; without `keep_x` the history has no points.
    """
    began = perf_counter()
    m, n, k0 = problem.n_clients, problem.n_parameters, algorithm.local_steps
    m0 = clients_per_round(algorithm.participation, m)
    algorithm.check_coverage(m)
    noise_model = algorithm.noise_model
    everyone = np.arange(m, dtype=np.intp)
    plan = privacy_plan(algorithm, problem, randomness, max_rounds)

    W = np.zeros((m, n)) if start is None else np.broadcast_to(start, (m, n)).copy()
    Z = W + noise_model.unit(randomness, -1, everyone, n) / algorithm.mu0
    x = W[0]
    G = np.empty((m, n))
    noise_norm, scales = np.full(m, np.nan), np.full(m, np.nan)
    history: dict[str, list[Any]] = {
        name: []
        for name in ("x", "objective", "grad_mean_sq", "accuracy", "elapsed", "local_time", "snr")
    }
    objective, grad_mean_sq = history["objective"], history["grad_mean_sq"]
    at_start = problem.total_value(W.mean(axis=0))
    reasons: tuple[str, ...] = () if np.isfinite(Z).all() else (DIVERGED,)

    tau = 0
    while not reasons:
        S = select(randomness, tau, m, m0, algorithm.coverage_rounds)
        previous, x = x, algorithm.aggregate(Z, S, scales)

        local_began = perf_counter()
        for i in S:
            G[i] = problem.gradient(i, x)
        local_time = perf_counter() - local_began

        # f and the mean gradient are the experimenter's measures, no client's work.
        for i in np.setdiff1d(everyone, S, assume_unique=True):
            G[i] = problem.gradient(i, x)
        f, g_mean = problem.total_value(x), G.mean(axis=0)
        err = float(g_mean @ g_mean)
        # f depends on the records, and with a mechanism nothing does that ends a run.
        if plan is None and not (math.isfinite(f) and math.isfinite(err)):
            reasons, x = (DIVERGED,), previous
            break
        snr = signal_to_noise(np.linalg.norm(W, axis=1), noise_norm)
        took_part = snr[~np.isnan(snr)]
        if keep_x:
            history["x"].append(x)
        objective.append(f)
        grad_mean_sq.append(err)
        history["accuracy"].append(problem.accuracy(x))
        history["elapsed"].append(perf_counter() - began)
        history["local_time"].append(0.0)
        history["snr"].append(float(took_part.min()) if len(took_part) else None)

        reasons = stopping.ask(n, m, objective, grad_mean_sq)
        if plan is None and has_diverged(f / (abs(at_start) or abs(objective[0]) or 1.0), reasons):
            reasons = (DIVERGED,)
        if callback is not None and callback(RoundInfo.of(x, m, history)):
            reasons = (*reasons, CALLBACK)
        if not reasons and tau >= max_rounds:
            reasons = (MAX_ROUNDS,)
        if not reasons and max_iterations is not None and (tau + 1) * k0 > max_iterations:
            reasons = (MAX_ITERATIONS,)
        if reasons:
            break

        local_began = perf_counter()
        begin = algorithm.round_start(W[S], Z[S], x)
        if plan is not None and not algorithm.may_upload(problem, S, begin - x, x, tau, plan):
            reasons = (PRECISION,)
            break
        w, mu = algorithm.local_round(problem, S, x, begin, G[S], tau)
        if plan is None or algorithm.mechanism is None:
            unit = noise_model.unit(randomness, tau, S, n)
        else:
            unit = randomness.unit_noise(tau, S, n, law=algorithm.mechanism.name)
        scale = algorithm.noise_scale(problem, S, begin - x, G[S], mu, tau, plan)
        noise = scale[:, None] * unit
        history["local_time"][-1] = local_time + perf_counter() - local_began
        if not (np.isfinite(w).all() and np.isfinite(noise).all()):
            reasons = (DIVERGED,)
            break
        W[S], Z[S] = w, w + noise
        noise_norm[S], scales[S] = np.linalg.norm(noise, axis=1), scale
        tau += 1

    if not every_accuracy and history["accuracy"] and history["accuracy"][0] is not None:
        history["accuracy"][:-1] = [math.nan] * (len(history["accuracy"]) - 1)
    return Outcome(
        x=x,
        W=W,
        Z=Z,
        reasons=reasons,
        history=history,
        snr_clients=signal_to_noise(np.linalg.norm(W, axis=1), noise_norm),
        total_time=perf_counter() - began,
        at_start=at_start,
    )
