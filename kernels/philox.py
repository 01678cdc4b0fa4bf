"""Philox4x64-10 (Salmon et al. 2011): random words as a function of key and counter.

The words of a counter are those of ``numpy.random.Philox``, which steps its counter before
the first block: its first four words for ``counter=c`` are those of ``c + 1`` here.

`philox_block` works on vectors of eight counters and on scalars alike, in any compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._jit import device, kernel, warms
from ._simd import interleave, iota, lanes, load, splat, store

MULTIPLIER0, MULTIPLIER1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL0, WEYL1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_A0, _A1 = np.uint64(MULTIPLIER0), np.uint64(MULTIPLIER1)
_A0_HIGH, _A0_LOW = np.uint64(MULTIPLIER0 >> 32), np.uint64(MULTIPLIER0 & 0xFFFFFFFF)
_A1_HIGH, _A1_LOW = np.uint64(MULTIPLIER1 >> 32), np.uint64(MULTIPLIER1 & 0xFFFFFFFF)
_W0, _W1 = np.uint64(WEYL0), np.uint64(WEYL1)
ROUNDS = 10


@device
def _multiply(high, low, whole, b):
    """Upper and lower 64 bits of a constant, given as halves and whole, times b."""
    b_low = b & _LOW
    b_high = b >> _HALF
    cross = b_low * high + ((b_low * low) >> _HALF)
    middle = b_high * low + (cross & _LOW)
    return b_high * high + (cross >> _HALF) + (middle >> _HALF), b * whole


@device
def philox_block(c0, c1, c2, c3, key0, key1):
    """The four words of each counter; counters are uint64 vectors, the key uint64 scalars."""
    for _ in range(ROUNDS):
        high0, low0 = _multiply(_A0_HIGH, _A0_LOW, _A0, c0)
        high1, low1 = _multiply(_A1_HIGH, _A1_LOW, _A1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0 = np.uint64(key0 + _W0)
        key1 = np.uint64(key1 + _W1)
    return c0, c1, c2, c3


@device
def philox_pair(a0, a1, a2, a3, b0, b1, b2, b3, key0, key1):
    """Two blocks side by side: one alone waits for its own multiplications."""
    for _ in range(ROUNDS):
        high0, low0 = _multiply(_A0_HIGH, _A0_LOW, _A0, a0)
        high1, low1 = _multiply(_A1_HIGH, _A1_LOW, _A1, a2)
        high2, low2 = _multiply(_A0_HIGH, _A0_LOW, _A0, b0)
        high3, low3 = _multiply(_A1_HIGH, _A1_LOW, _A1, b2)
        a0, a1, a2, a3 = high1 ^ a1 ^ key0, low1, high0 ^ a3 ^ key1, low0
        b0, b1, b2, b3 = high3 ^ b1 ^ key0, low3, high2 ^ b3 ^ key1, low2
        key0 = np.uint64(key0 + _W0)
        key1 = np.uint64(key1 + _W1)
    return (a0, a1, a2, a3), (b0, b1, b2, b3)


@device
def philox_pair_vectors(like, block, client, tau, purpose, key0, key1):
    """Words of sixteen consecutive blocks of one client and round, in two halves."""
    a0 = iota(like) + np.uint64(block)
    b0 = a0 + np.uint64(lanes(like))
    c1 = splat(like, np.uint64(client))
    c2 = splat(like, np.uint64(tau))
    c3 = splat(like, np.uint64(purpose))
    return philox_pair(a0, c1, c2, c3, b0, c1, c2, c3, key0, key1)


@device
def philox_vectors(like, block, client, tau, purpose, key0, key1):
    """Words of eight consecutive blocks of one client and round; `like` is a uint64 array."""
    c0 = iota(like) + np.uint64(block)
    c1 = splat(like, np.uint64(client))
    c2 = splat(like, np.uint64(tau))
    c3 = splat(like, np.uint64(purpose))
    return philox_block(c0, c1, c2, c3, key0, key1)


@kernel
def fill_words(key0, key1, purpose, tau, client, out):
    """Write the words of a client and round to a uint64 array whose length is a multiple of 32."""
    width = lanes(out)
    block = 0
    for k in range(0, out.size, 4 * width):
        w0, w1, w2, w3 = philox_vectors(out, block, client, tau, purpose, key0, key1)
        even, odd = interleave(w0, w2), interleave(w1, w3)
        low, high = interleave(even[0], odd[0]), interleave(even[1], odd[1])
        store(out, k, low[0])
        store(out, k + width, low[1])
        store(out, k + 2 * width, high[0])
        store(out, k + 3 * width, high[1])
        block += width


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

    Returns
    -------
    ndarray of uint64, shape (count,)
    """
    key = check_key(seed, trial)
    count = boundary.integer("count", count)
    out = np.empty(-(-count // 32) * 32, np.uint64)
    counter = (
        np.uint64(boundary.integer(name, value, high=2**64 - 1))
        for name, value in (("purpose", purpose), ("tau", tau), ("client", client))
    )
    with np.errstate(over="ignore"):
        fill_words(*key, *counter, out)
    return out[:count]


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
    """
    counter = np.asarray(counter, dtype=np.uint64)
    if counter.ndim == 0 or counter.shape[-1] != 4:
        raise ValueError(f"counter must have shape (..., 4), got {counter.shape}")
    flat = counter.reshape(-1, 4)
    columns = np.zeros((4, -(-len(flat) // 8) * 8), np.uint64)
    columns[:, : len(flat)] = flat.T
    out = np.empty_like(columns)
    with np.errstate(over="ignore"):
        _philox(columns, *check_key(*key), out)
    return np.ascontiguousarray(out[:, : len(flat)].T).reshape(counter.shape)


def check_key(seed: Any, trial: Any) -> tuple[np.uint64, np.uint64]:
    """The key of a run, checked."""
    high = 2**64 - 1
    return (
        np.uint64(boundary.integer("seed", seed, high=high)),
        np.uint64(boundary.integer("trial", trial, high=high)),
    )


@warms
def _warm() -> None:
    words(0, 0, 0, 0, 0, 4)
    philox4x64(np.zeros((1, 4), np.uint64), (0, 0))
