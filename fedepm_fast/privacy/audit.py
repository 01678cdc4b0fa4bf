"""Trying to break the privacy of uploads: a lower bound on epsilon that holds statistically.

One client's record is one of two: the pair that moves the gradient furthest, both above the clip.
An observer, who sees every upload and knows everything else, decides which record it was by the
likelihood of what it saw. How often it is right and wrong bounds from below what the uploads spend
(Clopper and Pearson 1934).

With a mechanism the observer decides by each upload on its own. Its two rates tell how far apart
the two laws are in units of the noise, if that is of the mechanism's law, Laplace or Gaussian; so
noise that is a little too small shows in far fewer runs than its epsilon would. The paper's noise
has no law that the bound could use; for it the bound is
``log(hits / false alarms)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import MAX_SEED, check_choice, check_int, check_real
from ..algorithms import FedEPM
from ..data import FederatedData
from ..mechanisms import GaussianMechanism
from ..objectives import Logistic, Problem
from ..randomness import CounterRandomness
from ..reference import fedepm_iterates
from ..stopping import NoRule
from ._audit_bounds import Audit, lower_bound
from ._audit_plan import Plan, points_of
from ._audit_sums import seen_of_sums
from .secure_sum import TRUSTED

Array = NDArray[np.float64]

#: How far out the run starts, in margins: there the derivative of the logistic loss is 0 or 1.
_MARGIN = 40.0
#: Clients of a secure sum.
_CLIENTS = 10


def audit(
    algorithm: FedEPM,
    *,
    rounds: int = 1,
    runs: int = 4000,
    confidence: float = 0.95,
    features: int = 2,
    records: int = 2,
    client: bool = False,
    seed: int = 0,
    trust: str = "clients",
    honest: float = 0.5,
) -> Audit:
    """Attack the uploads of `algorithm` on the worst pair of neighbouring datasets.

    Parameters
    ----------
    algorithm : FedEPM
        With a mechanism and settings of your own, or with the noise of one of the paper's presets.
        Where the mechanism has `moments`, those are attacked, too.
    rounds : int
        Uploads that the observer sees, at least 1; the budget is split over them.
    runs : int
        Of each dataset, at least 10; half of them choose the observer's threshold.
    confidence : float
        Of the lower bound, in (0, 1).
    features : int
        At least 2.
    records : int
        Of the client, at least 1; one of them is attacked. With a mechanism only.
    client : bool
        Attack uploads of `PrivateClient` instead of those of `run`; `seed` is not used then, for
        its noise is the operating system's. It takes some milliseconds an upload.
    seed : int
        In ``[0, 2**64)``.
    trust : {"clients", "secure-sum"}
        With "secure-sum" the observer sees sums over ten clients, as of `plan`, and knows all of
        those that are not honest. Of `algorithm` the mechanism and eta count then.
    honest : float
        Their share that is, in (0, 1], with "secure-sum".

    Returns
    -------
    Audit

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    if not isinstance(algorithm, FedEPM):
        raise TypeError(f"algorithm must be FedEPM, got {type(algorithm).__name__}")
    if not algorithm.noise_model.noisy:
        raise ValueError("noise must not be none: without noise there is nothing to audit")
    rounds = check_int("rounds", rounds, low=1)
    runs = check_int("runs", runs, low=10)
    features = check_int("features", features, low=2)
    records = check_int("records", records, low=1)
    seed = check_int("seed", seed, high=MAX_SEED)
    level = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    honest = check_real("honest", honest, low=0.0, high=1.0, open_low=True)
    algorithm = dataclasses.replace(algorithm, participation=1.0, coverage_rounds=None)
    sums = check_choice("trust", trust, TRUSTED) != TRUSTED[0]
    if sums and (client or not isinstance(algorithm.mechanism, GaussianMechanism)):
        raise ValueError("trust must be 'clients' for a client, and for noise that is not Gaussian")
    if algorithm.mechanism is not None:
        plan = Plan(_by_sums(algorithm) if sums else algorithm, rounds, features, records)
        if sums:
            attacked = seen_of_sums(plan, runs, seed, _CLIENTS, honest)
        else:
            attacked = plan.sent(runs) if client else plan.simulated(runs, seed)
        return plan.verdict(*plan.scores(attacked), level, plan.moments_scores(attacked))
    if client:
        raise ValueError("client must be False for an algorithm without a mechanism")
    problems = [_problem(algorithm, which, 1.0, features) for which in range(2)]
    resolved = [algorithm.resolve(problem) for problem in problems]
    start = np.zeros(features)
    start[:2] = _MARGIN, -_MARGIN
    found = []
    for which in range(2):
        seen = _runs(resolved[which], problems[which], start, rounds, runs, (seed + which) % 2**64)
        first, second = (
            _log_likelihood(a, p, start, seen) for a, p in zip(resolved, problems, strict=True)
        )
        found.append(first - second)
    bound, rates = lower_bound(found[0], found[1], 0.0, level)
    return Audit(bound, algorithm.epsilon * rounds, 0.0, level, runs, *rates, rounds)


def _by_sums(algorithm: FedEPM) -> FedEPM:
    """`algorithm` with uploads ``x - g/eta``, as secure sums have them."""
    eta = algorithm.eta or 1.0
    return dataclasses.replace(
        algorithm, lam=0.0, eta=eta, mu0=1e-9 * eta, local_steps=1, start="broadcast"
    )


def _problem(algorithm: FedEPM, which: int, size: float, features: int) -> Problem:
    """One client with one record, whose gradient at the start is `size` along the first
    coordinate, or against the second one."""
    row = np.zeros((1, features))
    row[0, which] = size
    data = FederatedData(row, np.array([float(which)]), np.array([1]))
    return Problem(data, algorithm.objective(Logistic()))


def _runs(
    algorithm: FedEPM, problem: Problem, start: Array, rounds: int, runs: int, seed: int
) -> Array:
    """The server's points of all runs, shape (rounds + 1, runs, n).

    With one client they are its uploads.
    """
    from ..engine import simulate

    seen = np.empty((rounds + 1, runs, len(start)))
    for trial in range(runs):
        outcome = simulate(
            algorithm, problem, CounterRandomness(seed, trial), NoRule(), max_rounds=rounds,
            start=start, every_accuracy=False,
        )  # fmt: skip
        seen[:, trial] = points_of(outcome, rounds, rounds)
    return seen


def _log_likelihood(algorithm: FedEPM, problem: Problem, start: Array, seen: Array) -> Array:
    """Of the uploads of every run, under this dataset and all that was sent before, shape (runs,).

    A client's hidden parameter follows from its dataset and what it was sent.
    """
    runs = seen.shape[1]
    a, b = problem.data.client(0)
    step = np.broadcast_to(algorithm.steps(problem.data.client_sizes), runs)
    W = np.broadcast_to(start, seen.shape[1:])
    total = np.zeros(runs)
    everyone = np.zeros(runs, dtype=np.intp)
    for tau in range(len(seen) - 1):
        x, z = seen[tau], seen[tau + 1]
        slope = problem.objective.derivative(x @ a.T, b)
        G = slope @ a / len(b) + problem.reg[0] * x
        begin = algorithm.round_start(W, x, x)
        *_, (W, mu) = fedepm_iterates(algorithm, begin, x, G, step, tau)
        scale = algorithm.noise_scale(problem, everyone, begin - x, G, mu, tau, None)[:, None]
        total += _density(algorithm, (z - W) / scale, scale)
    return total


def _density(algorithm: FedEPM, unit: Array, scale: Array) -> Array:
    """Logarithm of the density of noise ``unit * scale``, up to a constant."""
    n = unit.shape[1]
    with np.errstate(divide="ignore"):
        spread = n * np.log(scale[:, 0])
    if not algorithm.noise_model.standardize:
        return algorithm.noise_model.law.log_density(unit) - spread
    # Standardised noise has no density: it has mean 0 and deviation 1 to rounding, or is not it.
    off = np.abs(unit.mean(axis=1)) + np.abs(unit.std(axis=1, ddof=1) - 1)
    return -np.log(1e-12 + off)


def standard(runs: int = 4000, seed: int = 0, progress: Any = None) -> dict[str, Audit]:
    """Audits of the paper's two presets, of private uploads under four plans, of secure sums."""
    from ..mechanisms import LaplaceMechanism

    def private(mechanism: Any) -> FedEPM:
        return FedEPM(mechanism=mechanism, local_steps=4)

    cases: dict[str, tuple[FedEPM, int]] = {
        "released": (FedEPM(), 1),
        "text": (FedEPM(preset="text"), 1),
        "private, Laplace, 1 upload": (private(LaplaceMechanism(total_epsilon=0.5, clip=1.0)), 1),
        "private, Laplace, 3 uploads": (private(LaplaceMechanism(total_epsilon=2.0, clip=1.0)), 3),
        "private, Gaussian, 3 uploads": (
            private(GaussianMechanism(total_epsilon=2.0, delta=1e-5, clip=1.0)), 3,
        ),
        "Gaussian, moments and 3 uploads": (
            private(GaussianMechanism(total_epsilon=2.0, delta=1e-5, clip=1.0, moments=2)), 3,
        ),
        "secure sums, moments and 3 rounds": (
            private(GaussianMechanism(total_epsilon=2.0, delta=1e-5, clip=1.0, moments=2)), 3,
        ),
    }  # fmt: skip
    found = {}
    for name, (algorithm, rounds) in cases.items():
        if progress is not None:
            progress(name)
        trust = TRUSTED[name.startswith("secure sums")]
        found[name] = audit(algorithm, runs=runs, rounds=rounds, seed=seed, trust=trust)
    return found
