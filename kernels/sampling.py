"""Sampling without replacement from the words of a run's Philox stream (Fisher-Yates).

``sample_into(key0, key1, purpose, tau, pool, count, words)`` moves a uniform sample of `count`
entries of the int64 array `pool` to its front, in random order; `words` is uint64 working memory
of at least `count` entries, a multiple of 32. It allocates nothing and needs no Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _boundary as boundary
from ._jit import device, kernel, warms
from .philox import check_key, fill_words

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@device
def _bounded(word, bound):
    """``(word * bound) >> 64`` for a bound below 2**32: an integer in [0, bound)."""
    high = (word >> _HALF) * bound
    return (high + (((word & _LOW) * bound) >> _HALF)) >> _HALF


@kernel
def sample_into(key0, key1, purpose, tau, pool, count, words):
    """See the module."""
    fill_words(key0, key1, purpose, tau, np.uint64(0), words)
    n = pool.size
    for i in range(count):
        j = i + np.int64(_bounded(words[i], np.uint64(n - i)))
        pool[i], pool[j] = pool[j], pool[i]


def sample(
    seed: int, trial: int, purpose: int, tau: int, pool: Any, count: int
) -> NDArray[np.int64]:
    """Draw `count` of `pool` without replacement, in random order.

    Parameters
    ----------
    seed, trial : int
        The key of the run, each in ``[0, 2**64)``.
    purpose, tau : int
        What the sample is for, and the round.
    pool : array_like of int, shape (p,), or int
        What to draw from; an integer p stands for ``range(p)``. Fewer than 2**32.
    count : int
        At most p.

    Returns
    -------
    ndarray of int64, shape (count,)
    """
    key = check_key(seed, trial)
    top = 2**64 - 1
    counter = (
        np.uint64(boundary.integer("purpose", purpose, high=top)),
        np.uint64(boundary.integer("tau", tau, high=top)),
    )
    if np.ndim(pool) == 0:
        drawn = np.arange(boundary.integer("pool", pool, high=2**32 - 1))
    else:
        drawn = boundary.as_integers("pool", pool).copy()
    count = boundary.integer("count", count, high=len(drawn))
    words = np.empty(-(-count // 32) * 32, np.uint64)
    with np.errstate(over="ignore"):
        sample_into(*key, *counter, drawn, count, words)
    return drawn[:count]


@warms
def _warm() -> None:
    sample(0, 0, 0, 0, 3, 2)
