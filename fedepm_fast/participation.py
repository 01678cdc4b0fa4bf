"""Which clients take part in a round."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ._common.validation import check_int, check_real
from .randomness import BATCHES, COVER, SELECT, Randomness, bounded

Clients = NDArray[np.intp]


@lru_cache
def clients_per_round(participation: float, m: int) -> int:
    """m0 = ceil(rho * m), in exact arithmetic: 0.55 of 100 clients are 55.

    The float nearest to 0.55 lies above it, so that the product in floating point, or even
    the exact product of that float, would give 56; the simplest fraction within rounding of
    `participation` is what its author meant.
    """
    return max(1, math.ceil(Fraction(participation).limit_denominator(10**12) * m))


def sample(
    randomness: Randomness, purpose: int, tau: int, pool: Clients, count: int, client: int = 0
) -> Clients:
    """Draw `count` of `pool` without replacement, in random order (Fisher-Yates)."""
    drawn = pool.copy()
    words = randomness.words(purpose, tau, client, count).tolist()
    for i, word in enumerate(words):
        j = i + bounded(word, len(drawn) - i)
        drawn[i], drawn[j] = drawn[j], drawn[i]
    return drawn[:count]


def select(
    randomness: Randomness, tau: int, m: int, m0: int, coverage_rounds: int | None = None
) -> Clients:
    """The clients of round `tau`, in increasing order.

    Without `coverage_rounds`, `m0` of `m` clients uniformly without replacement. With
    ``coverage_rounds = s0``, every group of s0 rounds (0..s0-1, s0..2*s0-1, ...) reaches every
    client at least once (Zhou and Li, Setup on S^tau): a random order of the clients is dealt
    to the rounds of the group, and each round is filled up to m0 from the others.
    """
    given = randomness.select(tau, m, m0)
    if given is not None:
        return given
    everyone = np.arange(m, dtype=np.intp)
    if m0 == m:
        return everyone
    if coverage_rounds is None:
        return np.sort(sample(randomness, SELECT, tau, everyone, m0))
    group, position = divmod(tau, coverage_rounds)
    order = sample(randomness, COVER, group, everyone, m)
    dealt = np.array_split(order, coverage_rounds)[position]
    others = np.setdiff1d(everyone, dealt, assume_unique=True)
    filling = sample(randomness, SELECT, tau, others, m0 - len(dealt))
    return np.sort(np.concatenate([dealt, filling]))


def order_of_rows(
    randomness: Randomness, tau: int, client: int, count: int, epoch: int
) -> NDArray[np.intp]:
    """A random order of a client's rows, another one in each epoch of each round."""
    purpose = BATCHES + (epoch << 32)  # the upper half of that word is of no other use
    return sample(randomness, purpose, tau, np.arange(count, dtype=np.intp), count, client)


def check_coverage(coverage_rounds: int, m: int, m0: int) -> None:
    """Raise ValueError where s0 rounds of m0 clients cannot reach all m."""
    if coverage_rounds * m0 < m:
        raise ValueError(
            f"coverage_rounds must be at least {-(-m // m0)} to reach all {m} clients "
            f"with {m0} a round, got {coverage_rounds}"
        )


def client_coverage_probability(participation: float, m: int, rounds: int) -> float:
    """Probability that one given client is selected within `rounds` uniform rounds.

    ``1 - (1 - m0/m)^rounds``, with m0 = ceil(rho*m); the paper's remark on Setup S^tau.

    Parameters
    ----------
    participation : float
        rho, in (0, 1].
    m : int
        Number of clients.
    rounds : int
        Number of rounds, s0.
    """
    m, m0, rounds = _check_scheme(participation, m, rounds)
    return 1.0 if m0 == m and rounds > 0 else -math.expm1(rounds * math.log1p(-m0 / m))


def coverage_probability(participation: float, m: int, rounds: int) -> float:
    """Probability that every client is selected within `rounds` uniform rounds.

    The number of clients reached so far is a Markov chain with hypergeometric steps; its law
    is carried forward, which has no cancellation (inclusion and exclusion has).
    The covering scheme (``coverage_rounds``) makes this probability one.

    Parameters
    ----------
    participation : float
        rho, in (0, 1].
    m : int
        Number of clients.
    rounds : int
        Number of rounds, s0.
    """
    from scipy.stats import hypergeom  # takes as long to import as a run

    m, m0, rounds = _check_scheme(participation, m, rounds)
    law = np.zeros(m + 1)
    law[0] = 1.0
    for _ in range(rounds):
        new = np.zeros(m + 1)
        for reached in map(int, np.flatnonzero(law)):
            fresh = np.arange(0, min(m0, m - reached) + 1)
            new[reached + fresh] += law[reached] * hypergeom.pmf(fresh, m, m - reached, m0)
        law = new
    return float(min(law[m], 1.0))


def _check_scheme(participation: float, m: int, rounds: int) -> tuple[int, int, int]:
    rho = check_real("participation", participation, low=0.0, high=1.0, open_low=True)
    m = check_int("m", m, low=1)
    return m, clients_per_round(rho, m), check_int("rounds", rounds, low=0)
