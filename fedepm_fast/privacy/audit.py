"""Trying to break the privacy of uploads: a lower bound on epsilon that holds statistically.

One client holds one record, and it is one of two: the pair that moves the gradient furthest. An
observer, who sees every upload and knows everything else, decides which record it was by the
likelihood of what it saw. How often it is right and wrong, over thousands of runs of the compiled
engine, bounds epsilon from below (Clopper and Pearson 1934), whatever the mechanism claims.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import MAX_SEED, check_int, check_real
from ..algorithms import FedEPM
from ..data import FederatedData
from ..objectives import Logistic, Problem
from ..randomness import CounterRandomness
from ..reference import fedepm_iterates
from ..stopping import REASONS, NoRule

Array = NDArray[np.float64]

#: How far out the run starts, in margins: there the derivative of the logistic loss is 0 or 1.
_MARGIN = 40.0


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    lower_bound : float
        The mechanism is not epsilon-private (at `delta`) for any epsilon below this, with this
        confidence. At most about ``log(runs / 4)``, for so many runs show no more.
    stated : float
        The epsilon that the run states, or for the paper's noise, that the paper prints.
    delta, confidence : float
    runs : int
        Of each of the two datasets.
    true_positive_rate, false_positive_rate : float
        Of the observer, on the runs that its threshold was not chosen by.
    """

    lower_bound: float
    stated: float
    delta: float
    confidence: float
    runs: int
    true_positive_rate: float
    false_positive_rate: float

    @property
    def broken(self) -> bool:
        """Whether the stated epsilon is refuted."""
        return self.lower_bound > self.stated

    def __str__(self) -> str:
        verdict = "REFUTED" if self.broken else "not refuted"
        return (
            f"epsilon >= {self.lower_bound:.3g} with confidence {self.confidence:g} from "
            f"{self.runs} runs of each dataset; stated {self.stated:.3g}: {verdict}"
        )


def audit(
    algorithm: FedEPM,
    *,
    rounds: int = 1,
    runs: int = 4000,
    confidence: float = 0.95,
    features: int = 2,
    seed: int = 0,
) -> Audit:
    """Attack the uploads of `algorithm` on the worst pair of neighbouring datasets.

    Parameters
    ----------
    algorithm : FedEPM
        With a mechanism, or with the noise of one of the paper's presets.
    rounds : int
        Uploads that the observer sees, at least 1.
    runs : int
        Of each dataset, at least 10; half of them choose the observer's threshold.
    confidence : float
        Of the lower bound, in (0, 1).
    features : int
        At least 2.
    seed : int
        In ``[0, 2**64)``; the runs of the second dataset have the seed after it.

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
    if algorithm.noise_model.name == "none":
        raise ValueError("noise must not be none: without noise there is nothing to audit")
    rounds = check_int("rounds", rounds, low=1)
    runs = check_int("runs", runs, low=10)
    features = check_int("features", features, low=2)
    seed = check_int("seed", seed, high=MAX_SEED)
    level = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    mechanism = algorithm.mechanism
    size = 1.0
    if mechanism is not None:
        size = mechanism.resolve(1, features).clip or size
    algorithm = dataclasses.replace(algorithm, participation=1.0, coverage_rounds=None)
    problems = [_problem(algorithm, which, size, features) for which in range(2)]
    resolved = [algorithm.resolve(problem) for problem in problems]
    start = np.zeros(features)
    start[:2] = _MARGIN / size, -_MARGIN / size
    scores = []
    for which in range(2):
        seen = _runs(resolved[which], problems[which], start, rounds, runs, (seed + which) % 2**64)
        first, second = (
            _log_likelihood(a, p, start, seen) for a, p in zip(resolved, problems, strict=True)
        )
        scores.append(first - second)
    stated, delta = algorithm.epsilon * rounds, 0.0
    if mechanism is not None:
        counts = np.array([rounds])
        stated = float(mechanism.spent(mechanism.noise_multipliers(counts), counts)[0])
        delta = getattr(mechanism, "delta", 0.0)
    bound, rates = _lower_bound(scores[0], scores[1], delta, level)
    return Audit(bound, stated, delta, level, runs, *rates)


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
        points = outcome.history["x"]
        if len(points) <= rounds:
            raise ValueError(
                f"algorithm must make {rounds} uploads, run {trial} ended after "
                f"{len(points) - 1} ({'; '.join(REASONS[name] for name in outcome.reasons)})"
            )
        seen[:, trial] = points
    return seen


def _log_likelihood(algorithm: FedEPM, problem: Problem, start: Array, seen: Array) -> Array:
    """Of the uploads of every run, under this dataset and all that was sent before, shape (runs,).

    A client's hidden parameter follows from its dataset and what it was sent.
    """
    runs = seen.shape[1]
    a, b = problem.data.client(0)
    counts = np.array([len(seen) - 1])
    plan = algorithm.plan(problem, counts)
    step = np.broadcast_to(algorithm.steps(problem), runs)
    W = np.broadcast_to(start, seen.shape[1:])
    total = np.zeros(runs)
    everyone = np.zeros(runs, dtype=np.intp)
    for tau in range(len(seen) - 1):
        x, z = seen[tau], seen[tau + 1]
        slope = problem.objective.derivative(x @ a.T, b)
        G = slope @ a / len(b) + problem.reg[0] * x
        begin = algorithm.round_start(W, x, x)
        *_, (W, mu) = fedepm_iterates(algorithm, begin, x, G, step, tau)
        scale = algorithm.noise_scale(problem, everyone, begin - x, G, mu, tau, plan)[:, None]
        total += _density(algorithm, (z - W) / scale, scale)
    return total


def _density(algorithm: FedEPM, unit: Array, scale: Array) -> Array:
    """Logarithm of the density of noise ``unit * scale``, up to a constant."""
    n = unit.shape[1]
    law = algorithm.noise_model.name if algorithm.mechanism is None else algorithm.mechanism.name
    with np.errstate(divide="ignore"):
        spread = n * np.log(scale[:, 0])
    if law == "gaussian":
        return -0.5 * (unit**2).sum(axis=1) - spread
    if law == "laplace":
        return -np.abs(unit).sum(axis=1) - spread
    # Standardised noise has no density: it has mean 0 and deviation 1 to rounding, or is not it.
    off = np.abs(unit.mean(axis=1)) + np.abs(unit.std(axis=1, ddof=1) - 1)
    return -np.log(1e-12 + off)


def _lower_bound(
    first: Array, second: Array, delta: float, confidence: float
) -> tuple[float, tuple[float, float]]:
    """A lower bound on epsilon from scores that are high for the first dataset."""
    half = len(first) // 2
    best, choice = -math.inf, (first, second, 0.0)
    for positive, negative in ((first, second), (-second, -first)):
        for threshold in np.quantile(positive[:half], np.linspace(0, 0.99, 100)):
            found = _bound(positive[:half], negative[:half], threshold, delta, confidence)
            if found > best:
                best, choice = found, (positive, negative, float(threshold))
    positive, negative, threshold = choice
    bound = _bound(positive[half:], negative[half:], threshold, delta, confidence)
    rates = (positive[half:] >= threshold).mean(), (negative[half:] >= threshold).mean()
    return max(bound, 0.0), (float(rates[0]), float(rates[1]))


def _bound(
    positive: Array, negative: Array, threshold: float, delta: float, confidence: float
) -> float:
    from scipy.stats import beta

    # Each of the two rates may be wrong with half of what may be wrong.
    each = (1 - confidence) / 2
    hits, count = int((positive >= threshold).sum()), len(positive)
    alarms, of = int((negative >= threshold).sum()), len(negative)
    low = 0.0 if hits == 0 else float(beta.ppf(each, hits, count - hits + 1))
    high = 1.0 if alarms == of else float(beta.ppf(1 - each, alarms + 1, of - alarms))
    return math.log((low - delta) / high) if low > delta else -math.inf


def standard(runs: int = 4000, seed: int = 0, progress: Any = None) -> dict[str, Audit]:
    """Audits of the paper's two presets and of private uploads at two budgets a round."""
    from .mechanisms import LaplaceMechanism

    cases = {
        "released": FedEPM(),
        "text": FedEPM(preset="text"),
        "private, epsilon 0.5 a round": FedEPM(
            mechanism=LaplaceMechanism(epsilon_per_round=0.5, clip=1.0)
        ),
        "private, epsilon 2 a round": FedEPM(
            mechanism=LaplaceMechanism(epsilon_per_round=2.0, clip=1.0)
        ),
    }
    found = {}
    for name, algorithm in cases.items():
        if progress is not None:
            progress(name)
        found[name] = audit(algorithm, runs=runs, seed=seed)
    return found
