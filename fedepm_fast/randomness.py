"""Where a run's random numbers come from.

Every number is a pure function of (seed, trial, purpose, round, client, coordinate): the key
of a Philox4x64-10 generator is (seed, trial), its counter is (block, client, round, purpose),
and coordinates count through the blocks' words. So clients, rounds and whole runs can be drawn
in any order, by any number of threads, or alone, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ._common.validation import MAX_SEED, check_array, check_choice, check_int

if TYPE_CHECKING:
    from .kernels import _engine_state as arrays

Words = NDArray[np.uint64]
Array = NDArray[np.float64]
Quantile = Callable[[Array], Array]

# Purposes: the last word of the counter.
SELECT, COVER, INITIAL_NOISE, NOISE, SPLIT, SHUFFLE, BATCHES, MOMENTS = 1, 2, 3, 4, 5, 6, 7, 8
#: Noise of secure sums: in place of the round stands the number of the sum.
PARTS = 9

_MASK32 = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def _multiply_high_low(a: np.uint64, b: Words) -> tuple[Words, Words]:
    """The upper and lower 64 bits of the products a*b."""
    shift = np.uint64(32)
    a_high, a_low = a >> shift, a & _MASK32
    b_high, b_low = b >> shift, b & _MASK32
    cross = a_high * b_low + ((a_low * b_low) >> shift)
    middle = a_low * b_high + (cross & _MASK32)
    return a_high * b_high + (cross >> shift) + (middle >> shift), a * b


def philox4x64(counter: ArrayLike, key: tuple[int, int]) -> Words:
    """Philox4x64-10 (Salmon et al. 2011): the words of each counter.

    Parameters
    ----------
    counter : array_like of uint64, shape (..., 4)
        Counters, least significant word first.
    key : tuple of two ints
        The key, each in ``[0, 2**64)``.

    Returns
    -------
    ndarray of uint64, shape (..., 4)
        ``numpy.random.Philox(key=key, counter=c)`` steps its counter before the first block,
        so its first four words are those of ``c + 1`` here.
    """
    counter = np.asarray(counter, dtype=np.uint64)
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply_high_low(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply_high_low(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), low1, high0 ^ c3 ^ np.uint64(k1), low0
        k0, k1 = (k0 + _WEYL[0]) % 2**64, (k1 + _WEYL[1]) % 2**64
    return np.stack([c0, c1, c2, c3], axis=-1)


def uniform(words: Words) -> Array:
    """Uniform numbers in the open interval (0, 1): the midpoints of 2^52 equal cells."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def uniform_halves(words: Words) -> Array:
    """Two uniform numbers a word, that of the lower half first: the midpoints of 2^32 equal cells.

    Those that noise in float32 is made of (`kernels.noise`), in float64.
    """
    halves = np.stack([words & _MASK32, words >> np.uint64(32)], axis=-1)
    return (halves.reshape(*words.shape[:-1], -1).astype(np.float64) + 0.5) * 2.0**-32


def laplace_quantile(u: Array) -> Array:
    """Standard Laplace numbers from uniform ones: the law of log(U1/U2), from one U."""
    return np.copysign(-np.log(2 * np.minimum(u, 1 - u)), u - 0.5)


#: From uniform numbers to those of a law of mean 0 and scale 1.
QUANTILES: dict[str, Quantile] = {"laplace": laplace_quantile, "gaussian": ndtri}


def bounded(word: int, bound: int) -> int:
    """An integer in ``[0, bound)`` from a 64-bit word, the bias at most ``bound / 2**64``."""
    return (word * bound) >> 64


def split_seed(seed: int, trial: int) -> int:
    """The seed of the split of a trial whose data are dealt anew, as a sweep's are.

    The first word of Philox4x64-10 with the key (seed, trial) and the counter
    (0, 0, 0, ``SPLIT``): trials have unrelated splits, and runs of different algorithms with
    the same (seed, trial) have the same one.

    Parameters
    ----------
    seed, trial : int
        In ``[0, 2**64)``.

    Returns
    -------
    int
        In ``[0, 2**64)``.
    """
    k0, k1 = (check_int(name, k, high=MAX_SEED) for name, k in (("seed", seed), ("trial", trial)))
    c0, c1, c2, c3 = 0, 0, 0, SPLIT
    # As `philox4x64`, whose arrays take as long as a round of a run.
    for _ in range(10):
        product0, product1 = int(_MULTIPLIERS[0]) * c0, int(_MULTIPLIERS[1]) * c2
        c0, c1 = (product1 >> 64) ^ c1 ^ k0, product1 & MAX_SEED
        c2, c3 = (product0 >> 64) ^ c3 ^ k1, product0 & MAX_SEED
        k0, k1 = (k0 + _WEYL[0]) & MAX_SEED, (k1 + _WEYL[1]) & MAX_SEED
    return c0


class Randomness(Protocol):
    """What a run draws."""

    def select(self, tau: int, m: int, m0: int) -> NDArray[np.intp] | None:
        """The selection of round `tau` if it is given from outside; None to draw it."""

    def words(self, purpose: int, tau: int, client: int, count: int) -> Words:
        """`count` 64-bit words for a purpose, a round and a client."""

    def unit_noise(
        self,
        tau: int,
        clients: NDArray[np.intp],
        n: int,
        *,
        standardize: bool = False,
        law: str | Quantile = "laplace",
    ) -> Array:
        """Unit noise of the `clients` in round `tau` (-1: the first upload), shape (len, n)."""


class CounterRandomness:
    """Randomness of a run, from a seed.

    Parameters
    ----------
    seed : int
        In ``[0, 2**64)``.
    trial : int
        Distinguishes runs that share a seed, in ``[0, 2**64)``.
    """

    def __init__(self, seed: int = 0, trial: int = 0) -> None:
        self.seed = check_int("seed", seed, high=MAX_SEED)
        self.trial = check_int("trial", trial, high=MAX_SEED)

    def select(self, tau: int, m: int, m0: int) -> None:
        return None

    def blocks(self, purpose: int, tau: int, clients: NDArray[np.intp], count: int) -> Words:
        """The first `count` words of each client, shape (len(clients), count)."""
        blocks = -(-count // 4)
        words = self.words_at(purpose, tau, np.asarray(clients)[:, None], np.arange(blocks))
        return words.reshape(len(clients), 4 * blocks)[:, :count]

    def words_at(self, purpose: int, tau: int, clients: ArrayLike, block: ArrayLike) -> Words:
        """The four words of each `block` of each of `clients`, arrays of int that broadcast to a
        shape (...); shape (..., 4)."""
        block, clients = np.broadcast_arrays(block, clients)
        counter = np.empty((*block.shape, 4), dtype=np.uint64)
        counter[..., 0], counter[..., 1] = block, clients
        counter[..., 2], counter[..., 3] = tau, purpose
        return philox4x64(counter, (self.seed, self.trial))

    def words(self, purpose: int, tau: int, client: int, count: int) -> Words:
        return self.blocks(purpose, tau, np.array([client], dtype=np.intp), count)[0]

    def unit_noise(
        self,
        tau: int,
        clients: NDArray[np.intp],
        n: int,
        *,
        standardize: bool = False,
        law: str | Quantile = "laplace",
    ) -> Array:
        """Standard Laplace numbers, standardised per client if asked for, or normal ones, or
        those of a law whose quantile function is given."""
        purpose, tau = (INITIAL_NOISE, 0) if tau < 0 else (NOISE, tau)
        quantile = law if callable(law) else QUANTILES[check_choice("law", law, QUANTILES)]
        noise = quantile(uniform(self.blocks(purpose, tau, clients, n)))
        if standardize:
            noise -= noise.mean(axis=1, keepdims=True)
            noise /= noise.std(axis=1, ddof=1, keepdims=True)
        return noise


class GivenRandomness:
    """Randomness given from outside, to replay a recorded run.

    Parameters
    ----------
    selected : sequence of int arrays
        Clients of every round, zero-based, for example of shape (rounds, m0).
    unit_noise_init : array_like of shape (m, n), optional
        Unit noise of the first uploads. A run without noise needs none.
    unit_noise : array_like of shape (rounds, m, n), optional
        Unit noise of every round; only the rows of the selected clients are used.

    Examples
    --------
    >>> from fedepm_fast import GivenRandomness, datasets, run
    >>> from fedepm_fast.algorithms import FedADMM
    >>> recorded = GivenRandomness([[0, 3], [1, 2], [0, 1]])
    >>> data = datasets.adult(clients=4, seed=1)
    >>> run(FedADMM(r0=0.5), data, randomness=recorded, rounds=2).rounds
    2
    """

    def __init__(
        self,
        selected: Sequence[ArrayLike],
        unit_noise_init: ArrayLike | None = None,
        unit_noise: ArrayLike | None = None,
    ) -> None:
        self.selected = [np.sort(np.atleast_1d(np.asarray(s)).astype(np.intp)) for s in selected]
        self.without_noise = unit_noise_init is None and unit_noise is None
        if self.without_noise:
            unit_noise_init, unit_noise = np.empty((0, 1)), np.empty((0, 0, 1))
        self.unit_noise_init = check_array("unit_noise_init", unit_noise_init, ndim=2)
        self.per_round = check_array(
            "unit_noise", unit_noise, shape=(None, *self.unit_noise_init.shape)
        )
        self._check_selected(MAX_SEED if self.without_noise else len(self.unit_noise_init))

    def _check_selected(self, m: int) -> None:
        for tau, chosen in enumerate(self.selected):
            if len(chosen) == 0 or chosen[0] < 0 or chosen[-1] >= m:
                raise ValueError(
                    f"selected[{tau}] must hold clients from 0 to {m - 1}, got {chosen.tolist()}"
                )
            if (np.diff(chosen) == 0).any():
                raise ValueError(f"selected[{tau}] names a client twice: {chosen.tolist()}")

    def check(self, m: int, n: int, last: int = 0, *, noisy: bool = True) -> None:
        """Raise ValueError unless this is for m clients of n coordinates, up to round `last`.

        Without noise, that of the rounds is not asked for.
        """
        if self.without_noise:
            self._check_selected(m)
            if noisy:
                raise ValueError(
                    "unit_noise_init and unit_noise must be given for an algorithm with noise"
                )
        elif self.unit_noise_init.shape != (m, n):
            raise ValueError(
                f"unit_noise_init must have shape ({m}, {n}) for these data, "
                f"got {self.unit_noise_init.shape}"
            )
        for name, given, needed in (
            ("selected", len(self.selected), last + 1),
            ("unit_noise", len(self.per_round), last if noisy else 0),
        ):
            if given < needed:
                raise ValueError(
                    f"{name} must cover {needed} rounds for a run to round {last}, got {given}"
                )

    def select(self, tau: int, m: int, m0: int) -> NDArray[np.intp]:
        self.check_round("selected", tau, len(self.selected))
        return self.selected[tau]

    def words(self, purpose: int, tau: int, client: int, count: int) -> Words:
        raise ValueError("given randomness has selections and unit noise only, no raw words")

    def unit_noise(
        self,
        tau: int,
        clients: NDArray[np.intp],
        n: int,
        *,
        standardize: bool = False,
        law: str | Quantile = "laplace",
    ) -> Array:
        if tau < 0:
            return self.unit_noise_init[clients]
        self.check_round("unit_noise", tau, len(self.per_round))
        return self.per_round[tau][clients]

    @staticmethod
    def check_round(name: str, tau: int, rounds: int) -> None:
        """Raise ValueError where round `tau` is beyond the rounds given."""
        if tau >= rounds:
            raise ValueError(f"{name} covers {rounds} rounds, but round {tau} was reached")


_PURPOSES = tuple(np.uint64(p) for p in (SELECT, COVER, INITIAL_NOISE, NOISE, BATCHES))


def for_stages(
    randomness: CounterRandomness | GivenRandomness,
) -> tuple[arrays.Key, arrays.Given, Array]:
    """What the stages of a run draw from: key, what is given, and unit noise of first uploads."""
    from .kernels import _engine_state as arrays

    purposes = _PURPOSES
    if isinstance(randomness, CounterRandomness):
        key = arrays.Key(np.uint64(randomness.seed), np.uint64(randomness.trial), *purposes)
        return key, *_nothing()
    chosen, noise = randomness.selected, randomness.per_round
    counts = np.array([len(clients) for clients in chosen], dtype=np.int64)
    selected = np.zeros((len(counts), max(counts, default=0)), dtype=np.int64)
    for row, clients in zip(selected, chosen, strict=True):
        row[: len(clients)] = clients
    given = arrays.Given(counts, selected, noise)
    return arrays.Key(np.uint64(0), np.uint64(0), *purposes), given, randomness.unit_noise_init


@cache
def _nothing() -> tuple[arrays.Given, Array]:
    """What is given, and the unit noise of first uploads, where all is drawn."""
    from .kernels import _engine_state as arrays

    none = np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0, 1))
    return arrays.Given(*none), np.empty((0, 0))
