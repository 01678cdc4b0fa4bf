"""Philox4x64-10 (Salmon et al. 2011): random words as a function of key and counter.

The words of a counter are those of ``numpy.random.Philox``, which steps its counter before
the first block: its first four words for ``counter=c`` are those of ``c + 1`` here.

Inside other compiled code call `philox_block`, on vectors of eight counters or on scalars,
`philox_pair`, on two vectors, or ``fill_words(key0, key1, purpose, tau, client, out)``, which
fills a uint64 array of any length. Integers are uint64.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._jit import JIT_DISABLED, device, kernel, warms
from ._simd import interleave, iota, lanes, load, multiply_high, splat, store, store_partial

MULTIPLIER0, MULTIPLIER1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL0, WEYL1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10
TOP = 2**64 - 1

_A0, _A1 = np.uint64(MULTIPLIER0), np.uint64(MULTIPLIER1)
_W0, _W1 = np.uint64(WEYL0), np.uint64(WEYL1)


@device
def philox_round(c0, c1, c2, c3, key0, key1):
    """One round, of uint64 vectors or scalars; keys are scalars."""
    high0, high1 = multiply_high(c0, _A0), multiply_high(c2, _A1)
    return high1 ^ c1 ^ key0, c2 * _A1, high0 ^ c3 ^ key1, c0 * _A0


@device
def philox_block(c0, c1, c2, c3, key0, key1):
    """The four words of each counter; counters are uint64 vectors or scalars, keys scalars."""
    for _ in range(ROUNDS):
        c0, c1, c2, c3 = philox_round(c0, c1, c2, c3, key0, key1)
        key0 = np.uint64(key0 + _W0)
        key1 = np.uint64(key1 + _W1)
    return c0, c1, c2, c3


@device
def _round_pair(a, b, key0, key1):
    """One round of two blocks, and the next keys."""
    a = philox_round(a[0], a[1], a[2], a[3], key0, key1)
    b = philox_round(b[0], b[1], b[2], b[3], key0, key1)
    return a, b, np.uint64(key0 + _W0), np.uint64(key1 + _W1)


@device
def _two_rounds(a, b, key0, key1):
    a, b, key0, key1 = _round_pair(a, b, key0, key1)
    return _round_pair(a, b, key0, key1)


@device
def philox_pair(a0, a1, b0, b1, c2, c3, key0, key1):
    """Two blocks side by side, alike in their upper words.

    One alone waits most of the time for its own multiplications.
    """
    a, b = (a0, a1, c2, c3), (b0, b1, c2, c3)
    for _ in range(ROUNDS):
        a, b, key0, key1 = _round_pair(a, b, key0, key1)
    return a, b


@device
def philox_pair_quick(a0, a1, b0, b1, c2, c3, key0, key1):
    """The same, written out: a tenth quicker for five times the code."""
    a, b = (a0, a1, c2, c3), (b0, b1, c2, c3)
    a, b, key0, key1 = _two_rounds(a, b, key0, key1)
    a, b, key0, key1 = _two_rounds(a, b, key0, key1)
    a, b, key0, key1 = _two_rounds(a, b, key0, key1)
    a, b, key0, key1 = _two_rounds(a, b, key0, key1)
    a, b, _, _ = _two_rounds(a, b, key0, key1)
    return a, b


@device
def in_order(v0, v1, v2, v3):
    """Four vectors of what became of words 0, 1, 2, 3 of eight blocks, block by block."""
    even, odd = interleave(v0, v2), interleave(v1, v3)
    return interleave(even[0], odd[0]) + interleave(even[1], odd[1])


@device
def _store_some(out, k, value):
    left = out.size - k
    if left >= lanes(out):
        store(out, k, value)
    elif left > 0:
        store_partial(out, k, value, left)


@kernel
def fill_words(key0, key1, purpose, tau, client, out):
    """Write the first words of a client and round to a uint64 array."""
    width = lanes(out)
    client, tau, purpose = splat(out, client), splat(out, tau), splat(out, purpose)
    for k in range(0, out.size, 8 * width):
        a0 = iota(out) + np.uint64(k // 4)
        b0 = a0 + np.uint64(width)
        a, b = philox_pair(a0, client, b0, client, tau, purpose, key0, key1)
        words = in_order(a[0], a[1], a[2], a[3]) + in_order(b[0], b[1], b[2], b[3])
        for r in range(len(words)):
            _store_some(out, k + r * width, words[r])


@kernel
def _philox(counters, key0, key1, out):
    """Words of counters (4, N), N a multiple of the lanes."""
    n = counters.shape[1]
    width = lanes(counters)
    for j in range(0, n, width):
        words = philox_block(
            load(counters, j), load(counters, n + j), load(counters, 2 * n + j),
            load(counters, 3 * n + j), key0, key1,
        )  # fmt: skip
        for r in range(4):
            store(out, r * n + j, words[r])


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
        raise TypeError(f"counter must be integers, got dtype {array.dtype}")
    if array.size and array.min() < 0:
        raise ValueError(f"counter must be at least 0, got {array.min()}")
    if array.ndim == 0 or array.shape[-1] != 4:
        raise ValueError(f"counter must have shape (..., 4), got {array.shape}")
    if len(key) != 2:
        raise ValueError(f"key must be two integers, got {key!r}")
    flat = array.reshape(-1, 4)
    columns = np.zeros((4, -(-len(flat) // 8) * 8), np.uint64)
    columns[:, : len(flat)] = flat.T
    out = np.empty_like(columns)
    with wrapping():
        _philox(columns, word("key[0]", key[0]), word("key[1]", key[1]), out)
    return np.ascontiguousarray(out[:, : len(flat)].T).reshape(array.shape)


@warms
def _warm(dtypes: Any) -> None:
    words(0, 0, 0, 0, 0, 4)
    philox4x64(np.zeros((1, 4), np.uint64), (0, 0))
