"""The paper's theory as functions: stationarity, the exact penalty, the descent lemma.

The problem is ``min f(w) = sum_i f_i(w)``; the penalty model is
``F(x, W) = sum_i [ f_i(w_i) + phi(w_i - x) ]`` with ``phi(v) = lam*|v|_1 + eta/2*|v|^2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._common.validation import check_array, check_int, check_real
from .algorithms import FedEPM
from .data import FederatedData
from .objectives import Objective, Problem
from .participation import (
    client_coverage_probability,
    clients_per_round,
    coverage_probability,
    select,
)
from .randomness import CounterRandomness
from .reference import fedepm_iterates, penalty
from .runner import make_problem

__all__ = [
    "DescentTrace",
    "PenaltyCoverage",
    "client_coverage_probability",
    "consensus_residual",
    "coverage_probability",
    "descent_lemma",
    "exact_penalty",
    "lam_star",
    "penalty_objective",
    "penalty_residual",
]

Array = NDArray[np.float64]


def penalty_objective(
    problem: Problem, x: ArrayLike, W: ArrayLike, lam: float, eta: float
) -> float:
    """F(x, W), the objective of the penalty model.

    Parameters
    ----------
    problem : Problem
    x : array_like of shape (n,)
    W : array_like of shape (m, n)
    lam, eta : float
        Weights of the elastic net.
    """
    x, W = _points(problem, x, W)
    return float(problem.values(W).sum() + penalty(W - x, lam, eta).sum())


def consensus_residual(problem: Problem, x: ArrayLike, W: ArrayLike | None = None) -> float:
    """How far (x, W) is from a stationary point of ``min f`` in its consensus form.

    The largest of ``|sum_i grad f_i(w_i)|_inf`` and ``|w_i - x|_inf``; zero exactly at the
    paper's stationary points. `W` defaults to every client at x.
    """
    x, W = _points(problem, x, W)
    total = np.abs(problem.gradients(W).sum(axis=0)).max()
    return float(max(total, np.abs(W - x).max()))


def penalty_residual(
    problem: Problem, x: ArrayLike, W: ArrayLike | None = None, *, lam: float, eta: float
) -> float:
    """How far (x, W) is from a stationary point of the penalty model F.

    The largest violation of its two conditions: ``-grad f_i(w_i) - eta*(w_i - x)`` must lie in
    lam times the subdifferential of ``|w_i - x|_1`` (distance to it, in the maximum norm), and
    those subgradients must cancel in the sum over the clients, which then says
    ``sum_i grad f_i(w_i) = 0``.

    Parameters
    ----------
    problem : Problem
    x : array_like of shape (n,)
    W : array_like of shape (m, n), optional
        Every client at x by default.
    lam, eta : float
        Weights of the elastic net.
    """
    lam, eta = check_real("lam", lam, low=0.0), check_real("eta", eta, low=0.0, open_low=True)
    x, W = _points(problem, x, W)
    gap, gradients = W - x, problem.gradients(W)
    subgradient = -(gradients + eta * gap)
    violation = np.where(
        gap == 0,
        np.maximum(np.abs(subgradient) - lam, 0),
        np.abs(subgradient - lam * np.sign(gap)),
    )
    return float(max(violation.max(), np.abs(gradients.sum(axis=0)).max()))


def lam_star(problem: Problem, x: ArrayLike) -> float:
    """``max_ij |grad f_i(x)_j|``, the threshold of the exact penalty theorem at x."""
    x, _ = _points(problem, x, None)
    return float(np.abs(problem.gradients(x)).max())


class PenaltyCoverage(NamedTuple):
    """Whether the exact penalty theorem covers a solution."""

    covered: bool
    """Whether ``lam >= lam_star``."""
    lam: float
    lam_star: float
    residual: float
    """`consensus_residual` of the solution: the theorem is about stationary points."""


def exact_penalty(problem: Problem, x: ArrayLike, lam: float) -> PenaltyCoverage:
    """Whether the exact penalty theorem covers x: ``lam >= lam_star(x)``.

    The theorem then says that x, if stationary for ``min f``, is stationary for the penalty
    model. In the paper's own experiments it is not covered: lam is about 1e-5 there and
    lam_star about 5e-3.
    """
    lam = check_real("lam", lam, low=0.0)
    threshold = lam_star(problem, x)
    return PenaltyCoverage(lam >= threshold, lam, threshold, consensus_residual(problem, x))


@dataclass(frozen=True, eq=False)
class DescentTrace:
    """Both sides of the descent lemma along a noise-free run, per local iteration k.

    Attributes
    ----------
    objective : ndarray of shape (iterations + 1,)
        ``F(x^tau(k), W^k)``; entry 0 is F at the start, where every w_i is x.
    left : ndarray of shape (iterations,)
        ``F(x^tau(k+1), W^(k+1)) - F(x^tau(k), W^k)``.
    right : ndarray of shape (iterations,)
        The lemma's bound.
    right_sharp : ndarray of shape (iterations,)
        The bound before the proof's last step, which replaces ``|w_i - x|^2 / mu`` by the much
        larger ``1 / (mu_i0 * c_i * alpha_i^(k+1))``; ``left <= right_sharp <= right``.
    """

    objective: Array
    left: Array
    right: Array
    right_sharp: Array


def descent_lemma(
    algorithm: FedEPM,
    data: FederatedData,
    *,
    objective: str | Objective = "logistic",
    rounds: int = 20,
    seed: int = 0,
) -> DescentTrace:
    """Both sides of the paper's descent lemma along a noise-free run of FedEPM.

    With ``nu_i = step_i * mu_i`` (the lemma's mu where ``step_i = 1``) and r_i the Lipschitz
    constants computed from the data, every iteration satisfies::

        left <= sum_i r_i^2 / (2*step_i*mu_i0*c_i*alpha_i^(k+1))
                - sum_i (nu_i + eta - r_i)/2 * |w_i^(k+1) - w_i^k|^2
                - m*eta/4 * |x^tau(k+1) - x^tau(k)|^2,

    where only the selected clients move. The noise terms of the lemma are zero.

    Parameters
    ----------
    algorithm : FedEPM
        Its noise is switched off.
    data : FederatedData
    objective : str or Objective
    rounds : int
        Rounds to run, each of ``local_steps`` iterations.
    seed : int
        Of the selections.

    Returns
    -------
    DescentTrace
    """
    if not isinstance(algorithm, FedEPM):
        raise TypeError(f"algorithm must be FedEPM(...), got {type(algorithm).__name__}")
    rounds = check_int("rounds", rounds, low=1)
    problem = make_problem(algorithm, data, objective)
    algorithm = replace(algorithm, noise="none").resolve(problem)
    r, step = problem.lipschitz(), algorithm.steps(problem.data.client_sizes)
    (lam, eta), m = algorithm.weights, problem.n_clients

    x = np.zeros(problem.n_parameters)
    W = np.zeros((m, problem.n_parameters))
    F = [penalty_objective(problem, x, W, lam, eta)]
    right, right_sharp = [], []
    for k, S, new_x, new_W, mu in _noise_free_iterations(algorithm, problem, rounds, seed):
        nu = step[S] * mu
        moved = (((nu + eta - r[S]) / 2) * ((new_W[S] - W[S]) ** 2).sum(axis=1)).sum()
        server = m * eta / 4 * ((new_x - x) ** 2).sum()
        drift = r[S] ** 2 / (2 * nu) * ((W[S] - new_x) ** 2).sum(axis=1)
        with np.errstate(divide="ignore"):
            worst = r**2 / (2 * step * algorithm.mu0 * algorithm.c * algorithm.alpha ** (k + 1))
        right.append(worst.sum() - moved - server)
        right_sharp.append(drift.sum() - moved - server)
        x, W = new_x, new_W
        F.append(penalty_objective(problem, x, W, lam, eta))
    return DescentTrace(np.array(F), np.diff(F), np.array(right), np.array(right_sharp))


def _noise_free_iterations(
    algorithm: FedEPM, problem: Problem, rounds: int, seed: int
) -> Iterator[tuple[int, NDArray[np.intp], Array, Array, Array]]:
    """Every local iteration of a noise-free run: k, S, x, W after it, and mu of S."""
    m, n = problem.n_clients, problem.n_parameters
    randomness = CounterRandomness(seed)
    m0 = clients_per_round(algorithm.participation, m)
    lam, eta = algorithm.weights
    W, step, k = np.zeros((m, n)), algorithm.steps(problem.data.client_sizes), 0
    for tau in range(rounds):
        S = select(randomness, tau, m, m0, algorithm.coverage_rounds)
        # Without noise, an upload is the parameter itself.
        x = algorithm.solve(W, lam / eta)
        G = np.stack([problem.gradient(i, x) for i in S])
        for w, mu in fedepm_iterates(algorithm, W[S], x, G, step[S], tau):
            W = W.copy()
            W[S] = w
            yield k, S, x, W, mu
            k += 1


def _points(problem: Problem, x: ArrayLike, W: ArrayLike | None) -> tuple[Array, Array]:
    shape = (problem.n_clients, problem.n_parameters)
    x = check_array("x", x, shape=shape[1:])
    if W is None:
        return x, np.broadcast_to(x, shape)
    return x, check_array("W", W, shape=shape)
