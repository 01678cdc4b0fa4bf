"""Philox4x64-10 (Salmon et al. 2011): random words as a function of key and counter.

The words of a counter are those of ``numpy.random.Philox``, which steps its counter before
the first block: its first four words for ``counter=c`` are those of ``c + 1`` here.

Inside other compiled code call ``fill_words(key0, key1, purpose, tau, client, out)``, which fills a
uint64 array of any length, its integers uint64. `_from_words` makes the words.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._from_words import ROUNDS, WEYL0, WEYL1, in_order, multipliers, philox_round
from ._jit import JIT_DISABLED, device, kernel, warms
from ._simd import has_limbs, iota, splat, store

TOP = 2**64 - 1

_W0, _W1 = np.uint64(WEYL0), np.uint64(WEYL1)
_EIGHT = np.uint64(8)
_EIGHT_BLOCKS = 32


@device
def _block(c0, c1, c2, c3, key0, key1, by):
    """The four words of a counter."""
    for _ in range(ROUNDS):
        c0, c1, c2, c3 = philox_round(c0, c1, c2, c3, key0, key1, by)
        key0, key1 = np.uint64(key0 + _W0), np.uint64(key1 + _W1)
    return c0, c1, c2, c3


@device
def _words_from(first, key0, key1, purpose, tau, client, by, out):
    """Write those from index `first` on, a multiple of 4."""
    for k in range(first, out.size, 4):
        words = _block(np.uint64(k // 4), client, tau, purpose, key0, key1, by)
        for j in range(min(4, out.size - k)):
            out[k + j] = words[j]


@kernel
def fill_words(key0, key1, purpose, tau, client, out):
    """Write the first words of a client and round to a uint64 array."""
    _words_from(0, key0, key1, purpose, tau, client, multipliers(), out)


@device
def many_words(key0, key1, purpose, tau, client, out):
    """As `fill_words`, in less time where vectors can multiply words, but longer to compile.

    Scalars and vectors take their steps side by side: eight blocks of the ones, and of the others.
    """
    by, first = multipliers(), 0
    while has_limbs() and first + 2 * _EIGHT_BLOCKS <= out.size:
        counter = np.uint64(first // 4)
        c0, c1 = iota(out) + np.uint64(counter + _EIGHT), splat(out, client)
        c2, c3 = splat(out, tau), splat(out, purpose)
        of0, of1 = key0, key1
        for r in range(ROUNDS):
            if r < 8:
                words = _block(np.uint64(counter + r), client, tau, purpose, key0, key1, by)
                for j in range(4):
                    out[first + 4 * r + j] = words[j]
            of_round = splat(out, of0), splat(out, of1)
            c0, c1, c2, c3 = philox_round(c0, c1, c2, c3, of_round[0], of_round[1], by)
            of0, of1 = np.uint64(of0 + _W0), np.uint64(of1 + _W1)
        first += _EIGHT_BLOCKS
        vectors = in_order(c0, c1, c2, c3)
        for r in range(4):
            store(out, first + 8 * r, vectors[r])
        first += _EIGHT_BLOCKS
    _words_from(first, key0, key1, purpose, tau, client, by, out)


@kernel
def _philox(counters, key0, key1, out):
    """Words of counters, an array of shape (N, 4)."""
    by = multipliers()
    for i in range(len(counters)):
        words = _block(
            counters[i, 0], counters[i, 1], counters[i, 2], counters[i, 3], key0, key1, by
        )
        for j in range(4):
            out[i, j] = words[j]


# ---------------------------------------------------------------------------------
# For Python
# ---------------------------------------------------------------------------------


def wrapping() -> Any:
    """A context in which sums and products of uint64 wrap around without a warning.

    Compiled code never warns; without compilation NumPy's scalars do.
    """
    return np.errstate(over="ignore") if JIT_DISABLED else contextlib.nullcontext()


def word(name: str, value: Any) -> np.uint64:
    """`value`, an integer from 0 to 2**64 - 1, as a word of a key or counter."""
    return np.uint64(boundary.integer(name, value, high=TOP))


def words(
    seed: int, trial: int, purpose: int, tau: int, client: int, count: int
) -> NDArray[np.uint64]:
    """`count` 64-bit words for a purpose, a round and a client.

    Parameters
    ----------
    seed, trial : int
        The key, each in ``[0, 2**64)``.
    purpose, tau, client : int
        The upper three words of the counter; the lowest one counts blocks of four words from 0.
    count : int
        At least 0.

    Returns
    -------
    ndarray of uint64, shape (count,)

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    names = ("seed", "trial", "purpose", "tau", "client")
    numbers = map(word, names, (seed, trial, purpose, tau, client))
    out = np.empty(boundary.integer("count", count), np.uint64)
    with wrapping():
        fill_words(*numbers, out)
    return out


def philox4x64(counter: ArrayLike, key: tuple[int, int]) -> NDArray[np.uint64]:
    """The words of any counters.

    Parameters
    ----------
    counter : array_like of uint64, shape (..., 4)
        Least significant word first.
    key : tuple of two ints
        Each in ``[0, 2**64)``.

    Returns
    -------
    ndarray of uint64, shape (..., 4)

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    array = boundary.view("counter", counter)
    if array.size and array.dtype.kind not in "ui":
        raise boundary.ArgumentTypeError("counter", f"must be integers, got dtype {array.dtype}")
    if array.size and array.min() < 0:
        raise boundary.ArgumentValueError("counter", f"must be at least 0, got {array.min()}")
    if array.ndim == 0 or array.shape[-1] != 4:
        raise boundary.ArgumentValueError("counter", f"must have shape (..., 4), got {array.shape}")
    if len(key) != 2:
        raise boundary.ArgumentValueError("key", f"must be two integers, got {key!r}")
    counters = np.ascontiguousarray(array.reshape(-1, 4), np.uint64)
    out = np.empty_like(counters)
    with wrapping():
        _philox(counters, word("key[0]", key[0]), word("key[1]", key[1]), out)
    return out.reshape(array.shape)


@warms
def _warm(dtypes: Any) -> None:
    words(0, 0, 0, 0, 0, 4)
    philox4x64(np.zeros((1, 4), np.uint64), (0, 0))
