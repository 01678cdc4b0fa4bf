"""Sampling without replacement from the words of a run's Philox stream (Fisher-Yates).

Inside other compiled code call

``sample_into(key0, key1, purpose, tau, pool, count, words)``
    moves a uniform sample of `count` entries of the int64 array `pool` to its front, in random
    order;
``order_into(key0, key1, purpose, tau, client, order, words)``
    writes the numbers 0, ..., d - 1 to the int64 array `order` (d,), in random order: for client 0
    the one in which `sample_into` moves all of them to the front;
``select_into(key0, key1, select, cover, tau, count, coverage_rounds, pool, words, marks)``
    writes `count` of the numbers 0, ..., m - 1 to the front of the int64 array `pool` (m,), in
    increasing order; `select` and `cover` are purposes, and ``coverage_rounds=0`` is for none.

Working memory: `words` of at least `count` uint64 (m with coverage; d), `marks` of m booleans.
Nothing is allocated. Keys, purposes, `tau` and `client` are uint64, counts int64; there are fewer
than 2**32 entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _boundary as boundary
from ._jit import device, kernel, warms
from ._parts import fill, part
from .philox import fill_words, many_words, word, wrapping

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@device
def _bounded(word, bound):
    """``(word * bound) >> 64`` for a bound below 2**32: an integer in [0, bound)."""
    high = (word >> _HALF) * bound
    return (high + (((word & _LOW) * bound) >> _HALF)) >> _HALF


@device
def _to_the_front(pool, count, words):
    n = pool.size
    for i in range(count):
        j = i + np.int64(_bounded(words[i], np.uint64(n - i)))
        pool[i], pool[j] = pool[j], pool[i]


@kernel
def sample_into(key0, key1, purpose, tau, pool, count, words):
    """See the module."""
    fill_words(key0, key1, purpose, tau, np.uint64(0), part(words, 0, count))
    _to_the_front(pool, count, words)


@kernel
def order_into(key0, key1, purpose, tau, client, order, words):
    """See the module."""
    d = order.size
    for i in range(d):
        order[i] = i
    many_words(key0, key1, purpose, tau, client, part(words, 0, d))
    _to_the_front(order, d, words)


@device
def _write_where(marks, wanted, out):
    """Write the indices of the marks that are as wanted, in increasing order."""
    k = 0
    for i in range(marks.size):
        if marks[i] == wanted:
            out[k] = i
            k += 1


@kernel
def select_into(
    key0, key1, select, cover, tau, count, coverage_rounds,
    pool, words, marks,
) -> None:  # fmt: skip
    """See the module."""
    m, dealt = pool.size, 0
    fill(marks, False)
    for i in range(m):
        pool[i] = i
    if count == m:  # whatever would be drawn
        return
    if coverage_rounds > 0:
        # A random order of all is dealt to a group of rounds, the first ones getting one more
        # where the division leaves a rest; then the round is filled up from the others.
        s0 = np.uint64(coverage_rounds)
        sample_into(key0, key1, cover, tau // s0, pool, m, words)
        position, each, rest = np.int64(tau % s0), m // coverage_rounds, m % coverage_rounds
        first = position * each + min(position, rest)
        dealt = each + (1 if position < rest else 0)
        for i in range(first, first + dealt):
            marks[pool[i]] = True
        _write_where(marks, False, pool)
    sample_into(key0, key1, select, tau, part(pool, 0, m - dealt), count - dealt, words)
    for i in range(count - dealt):
        marks[pool[i]] = True
    _write_where(marks, True, pool)


# ---------------------------------------------------------------------------------
# For Python
# ---------------------------------------------------------------------------------

_MOST = 2**32 - 1


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

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    counter = map(word, ("seed", "trial", "purpose", "tau"), (seed, trial, purpose, tau))
    numbers = isinstance(pool, (int, np.integer))
    if numbers:
        drawn = np.empty(boundary.integer("pool", pool, high=_MOST), np.int64)
    else:
        drawn = boundary.as_integers("pool", pool).copy()
    count = boundary.integer("count", count, high=len(drawn))
    words = np.empty(count, np.uint64)
    with wrapping():
        if numbers and count == len(drawn):
            order_into(*counter, np.uint64(0), drawn, words)
        else:
            if numbers:
                drawn[:] = np.arange(len(drawn))
            sample_into(*counter, drawn, count, words)
    return drawn[:count]


def select(
    seed: int,
    trial: int,
    tau: int,
    m: int,
    m0: int,
    coverage_rounds: int | None = None,
    *,
    purposes: tuple[int, int] = (1, 2),
) -> NDArray[np.int64]:
    """The clients of round `tau`, in increasing order.

    Parameters
    ----------
    seed, trial : int
        The key of the run, each in ``[0, 2**64)``.
    tau : int
        The round, from 0.
    m, m0 : int
        Number of clients, and of those to select.
    coverage_rounds : int, optional
        s0 >= 1: every group of s0 rounds, the first from round 0, reaches every client at least
        once (Zhou and Li, Setup on S^tau). By default every round is drawn alone, uniformly.
    purposes : tuple of two ints
        Purposes of the uniform draws and of the random order that is dealt to a group.

    Returns
    -------
    ndarray of int64, shape (m0,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument; for too few `coverage_rounds` to reach all clients.
    """
    key0, key1, *ids = map(
        word, ("seed", "trial", "purposes[0]", "purposes[1]", "tau"), (seed, trial, *purposes, tau)
    )
    m = boundary.integer("m", m, low=1, high=_MOST)
    m0 = boundary.integer("m0", m0, low=1, high=m)
    s0 = 0
    if coverage_rounds is not None:
        # Rounds beyond m are dealt nothing.
        s0 = boundary.integer("coverage_rounds", coverage_rounds, low=-(-m // m0), high=2**62)
    pool, words = np.empty(m, np.int64), np.empty(m if s0 else m0, np.uint64)
    with wrapping():
        select_into(key0, key1, *ids, m0, s0, pool, words, np.empty(m, np.bool_))
    return pool[:m0].copy()


@warms
def _warm(dtypes: Any) -> None:
    sample(0, 0, 0, 0, 3, 2)
    sample(0, 0, 0, 0, 3, 3)
    select(0, 0, 0, 3, 2)
