"""Rows of numbers that a law makes of random words, which are made beside them.

A row is cut in pieces, the numbers of one vector each, which eight words become, or two blocks of
Philox; of the last one of a row a part may do. Processors multiply scalars and vectors side by
side. So one pass of the loop takes a block of scalars through all its rounds, eight blocks in
vectors one round further, and two or three vectors of numbers a step further each: what waits for
a product leaves the others to be computed. Where no instruction multiplies words in vectors,
another block of scalars takes their place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._jit import device
from ._parts import scratch
from ._simd import (
    gather,
    has_limbs,
    hold_scalar,
    interleave,
    iota,
    lanes,
    load,
    load_each,
    minimum,
    multiply_wide,
    reinterpret,
    splat,
    store,
    store_partial,
)

MULTIPLIER0, MULTIPLIER1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL0, WEYL1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10

_A0, _A1 = np.uint64(MULTIPLIER0), np.uint64(MULTIPLIER1)
_W0, _W1 = np.uint64(WEYL0), np.uint64(WEYL1)
_ONE, _TWO, _EIGHT, _SIXTEEN, _SIXTY = map(np.uint64, (1, 2, 8, 16, 60))

#: Passes between a look at where there are words to make: the rounds after the first two.
_PASSES = 8
#: Words that are made in these passes, while as many become numbers.
_HALF = np.uint64(64)


class Law(NamedTuple):
    """How words become numbers, in two or three steps that wait for each other as little as so many
    vectors do."""

    begin: Any
    """``begin(bits, held)``."""
    middle: Any
    """``middle(begun, held)``, or None for two steps."""
    complete: Any
    """``complete(continued, held, factor)``: the numbers times a vector of factors."""
    hold: Any
    """``hold()``: the constants that all take, made once for many numbers."""


@device
def unchanged(given, held):
    """A step in which nothing happens."""
    return given


@device
def nothing():
    """No constants."""
    return ()


# ---------------------------------------------------------------------------------
# Rounds of Philox, of uint64 vectors or scalars; keys and multipliers are scalars
# ---------------------------------------------------------------------------------


@device
def multipliers():
    """Those of Philox; as constants they would be loaded anew for every product."""
    return hold_scalar(_A0), hold_scalar(_A1)


@device
def philox_round(c0, c1, c2, c3, key0, key1, by):
    """One round; `by` are the multipliers."""
    high0, low0 = multiply_wide(c0, by[0])
    high1, low1 = multiply_wide(c2, by[1])
    return high1 ^ (c1 ^ key0), low1, high0 ^ (c3 ^ key1), low0


@device
def _common(purpose, tau, key0, key1, by):
    """What the first two rounds of all blocks have in common."""
    high, low = multiply_wide(tau, by[1])
    key2, key3 = np.uint64(key0 + _W0), np.uint64(key1 + _W1)
    return high ^ key0, low ^ key2, purpose ^ key1, key3


@device
def _of_client(client, common, by):
    """What they have in common for a client, or a vector of clients."""
    high, low = multiply_wide(client ^ common[0], by[0])
    return high ^ common[3], low


@device
def _begun(counter, mine, common, by):
    """Blocks after their first two rounds."""
    high0, low0 = multiply_wide(counter, by[0])
    high1, low1 = multiply_wide(high0 ^ common[2], by[1])
    return high1 ^ common[1], low1, low0 ^ mine[0], mine[1]


# ---------------------------------------------------------------------------------
# Blocks one by one, and by lanes
# ---------------------------------------------------------------------------------


@device
def _start(clients, piece, pieces, common, by):
    """Row, counter, and what is the client's, of the first block of a piece."""
    row = min(piece // pieces, clients.size - 1)
    return row, np.uint64(2 * (piece % pieces)), _of_client(clients[row], common, by)


@device
def _block(counter, mine, common, key0, key1, by):
    """The four words of a counter."""
    c = _begun(counter, mine, common, by)
    key0, key1 = np.uint64(key0 + _W0 + _W0), np.uint64(key1 + _W1 + _W1)
    for _ in range(ROUNDS - 2):
        c = philox_round(c[0], c[1], c[2], c[3], key0, key1, by)
        key0, key1 = np.uint64(key0 + _W0), np.uint64(key1 + _W1)
    return c


@device
def _two_blocks(counter, mine, common, key0, key1, by):
    """The words of a counter, which is even, and of the next one, side by side."""
    a = _begun(counter, mine, common, by)
    b = _begun(np.uint64(counter | _ONE), mine, common, by)
    key0, key1 = np.uint64(key0 + _W0 + _W0), np.uint64(key1 + _W1 + _W1)
    for _ in range(ROUNDS - 2):
        a = philox_round(a[0], a[1], a[2], a[3], key0, key1, by)
        b = philox_round(b[0], b[1], b[2], b[3], key0, key1, by)
        key0, key1 = np.uint64(key0 + _W0), np.uint64(key1 + _W1)
    return a, b


@device
def _onward(at, clients, count, blocks, common, by):
    """So many blocks further, which are in the same row; the last row is repeated."""
    row, counter, mine = at
    counter = np.uint64(counter + count)
    if counter == blocks:
        row, counter = min(row + 1, clients.size - 1), np.uint64(0)
        mine = _of_client(clients[row], common, by)
    return row, counter, mine


@device
def _lanes(clients, piece, pieces):
    """Counter and client of eight blocks, from a piece on; lanes beyond the last row repeat it."""
    lane = iota(clients)
    row, piece, last = piece // pieces, piece % pieces, clients.size - 1
    p = (lane >> _ONE) + np.uint64(piece)
    # The quotient p // pieces, exact as long as p * pieces < 2**60.
    down = (p * np.uint64((1 << 60) // pieces + 1)) >> _SIXTY
    p = p - down * np.uint64(pieces)
    client = gather(clients, minimum(down + np.uint64(row), splat(down, np.uint64(last))))
    return (p << _ONE) + (lane & _ONE), client


@device
def _eight(together, at, clients, piece, last, pieces, common, by):
    """Eight blocks after their first two rounds, from a piece on.

    If they are in one row `together` with the eight before, that is where these begin.
    """
    if together:
        counter = iota(clients) + np.uint64(at[1] + _EIGHT)
        mine = splat(clients, at[2][0]), splat(clients, at[2][1])
    elif piece < last:
        counter, client = _lanes(clients, piece, pieces)
        mine = _of_client(client, common, by)
    else:  # nobody waits for them
        counter = iota(clients)
        mine = counter, counter
    return _begun(counter, mine, common, by)


@device
def _store_block(words, half, k, c):
    """Write the k-th block of a half."""
    for j in range(4):
        words[half + np.uint64(4 * k + j)] = c[j]


@device
def in_order(v0, v1, v2, v3):
    """Four vectors of what became of words 0, 1, 2, 3 of eight blocks, block by block."""
    even, odd = interleave(v0, v2), interleave(v1, v3)
    return interleave(even[0], odd[0]) + interleave(even[1], odd[1])


# ---------------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------------


def from_words(law: Law) -> Any:
    """The function that writes pieces `first` to ``last - 1``, counted through all rows.

    Rows of `n` numbers, one for each of `clients`, follow each other in `out`; they are multiplied
    by their `scale`.
    """
    begin, middle, complete, hold = law
    late = 2 if middle else 1  # passes from words to numbers
    middle = middle or unchanged

    @device
    def fill(key0, key1, purpose, tau, clients, scale, first, last, n, out):
        width = lanes(out)
        pieces = (n + width - 1) // width
        held, by = hold(), multipliers()
        common = _common(purpose, tau, key0, key1, by)
        keys, words = scratch(clients), scratch(clients)
        key2, key3 = np.uint64(key0 + _W0 + _W0), np.uint64(key1 + _W1 + _W1)
        for r in range(_PASSES):
            keys[2 * r], keys[2 * r + 1] = key2, key3
            key2, key3 = np.uint64(key2 + _W0), np.uint64(key3 + _W1)

        # First words that are few are made by scalars alone, in as many passes as they need.
        passes = min((2 if has_limbs() else 1) * (last - first), _PASSES)

        # Numbers go to the flat indices from k on, in a row that ends at `end`.
        first_row, last_row = first // pieces, (last - 1) // pieces
        begins = first_row * n + first % pieces * width
        ends = last_row * n + min(((last - 1) % pieces + 1) * width, n)
        row, k, end = first_row - passes - late, 0, 0
        factor = splat(out, scale[first_row])
        begun = begin(reinterpret(out, load(words, 0)), held)  # of nothing yet
        continued = middle(begun, held)

        blocks = np.uint64(2 * pieces)
        half = np.uint64(0)  # of the words' room: that which is written to
        at = _start(clients, first, pieces, common, by)
        while row <= last_row:
            together = at[1] + _SIXTEEN <= blocks  # in one row, as most are
            v = _eight(together, at, clients, first + _PASSES // 2, last, pieces, common, by)
            for r in range(passes):
                if has_limbs():
                    key2, key3 = load_each(keys, 2 * r), load_each(keys, 2 * r + 1)
                    v = philox_round(v[0], v[1], v[2], v[3], key2, key3, by)
                    c = _block(at[1], at[2], common, key0, key1, by)
                    _store_block(words, half, r, c)
                    at = _onward(at, clients, _ONE, blocks, common, by)
                else:
                    c, d = _two_blocks(at[1], at[2], common, key0, key1, by)
                    _store_block(words, half, 2 * r, c)
                    _store_block(words, half, 2 * r + 1, d)
                    at = _onward(at, clients, _TWO, blocks, common, by)
                if late == 1:
                    continued = middle(begun, held)
                numbers = complete(continued, held, factor)
                if late == 2:
                    continued = middle(begun, held)
                begun = begin(
                    reinterpret(out, load(words, (half ^ _HALF) + np.uint64(8 * r))), held
                )
                if end - k > width:
                    store(out, k, numbers)
                    k += width
                else:  # the last piece of a row, or none at all
                    store_partial(out, k, numbers, end - k)
                    row, k = row + 1, end
                    if row > last_row:
                        break
                    if row >= first_row:
                        k, end = max(row * n, begins), min((row + 1) * n, ends)
                        factor = splat(out, scale[row])
            if has_limbs():
                v = in_order(v[0], v[1], v[2], v[3])
                for r in range(4):
                    store(words, half + np.uint64(32 + 8 * r), v[r])
            half ^= _HALF
            first += _PASSES
            passes = _PASSES
            if has_limbs():
                if together:
                    at = _onward(at, clients, _EIGHT, blocks, common, by)
                else:
                    at = _start(clients, first, pieces, common, by)

    return fill
