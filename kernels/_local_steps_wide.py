"""FedEPM's local steps of one client with many coordinates, which are the lanes of vectors."""

from __future__ import annotations

import numpy as np

from ._jit import device
from ._simd import fma, horizontal_sum, lane, lanes, load, load_partial, splat, store, store_partial
from .prox import shrink


@device
def advance(p, g, nu, lam, r):
    """``soft(nu*p - g, lam) / (eta + nu)``, given ``r = 1 / (eta + nu)``."""
    return r * shrink(fma(nu, p, -g), lam)


@device
def _sweep(x, G, at, nu, r, lam, backward, final, out):
    """One step of the client whose row begins at flat index `at`: |p|^2.

    `out` holds p, and in the end x + p.
    """
    n, width = x.size, lanes(x)
    full = n - n % width
    total = splat(x, 0.0)
    # There and back: a sweep finds in the cache what the one before touched last.
    j, stride = (full - width, -width) if backward else (0, width)
    for _ in range(full // width):
        p = advance(load(out, at + j), load(G, at + j), nu, lam, r)
        total = fma(p, p, total)
        if final:
            p += load(x, j)
        store(out, at + j, p)
        j += stride
    rest = n - full
    if rest:
        p = load_partial(out, at + full, rest, 0.0)
        p = advance(p, load_partial(G, at + full, rest, 0.0), nu, lam, r)
        total = fma(p, p, total)
        if final:
            p += load_partial(x, full, rest, 0.0)
        store_partial(out, at + full, p, rest)
    return horizontal_sum(total)


@device
def wide(W, x, G, own_step, lam, eta, c, mu_at_x, row, out, mu):
    """One client; `out` holds p between the steps."""
    n, width = x.size, lanes(x)
    at, full = row * n, n - n % width
    total = splat(x, 0.0)
    for j in range(0, full, width):
        p = load(W, at + j) - load(x, j)
        store(out, at + j, p)
        total = fma(p, p, total)
    rest = n - full
    if rest:
        p = load_partial(W, at + full, rest, 0.0) - load_partial(x, full, rest, 0.0)
        store_partial(out, at + full, p, rest)
        total = fma(p, p, total)
    size = horizontal_sum(total)
    one, m = splat(x, 1.0), splat(x, 0.0)
    last = mu_at_x.size - 1
    for k in range(mu_at_x.size):
        m = mu_at_x[k] * fma(splat(x, c), splat(x, size), one)
        nu = own_step * m
        r = one / (nu + eta)
        size = _sweep(x, G, at, nu, r, splat(x, lam), k % 2 == 0, k == last, out)
    mu[row] = lane(m, 0)
    return abs(size) < np.inf
