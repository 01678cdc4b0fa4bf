"""Local gradient steps, fused: all steps of a round in one call, for any loss."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import losses  # noqa: F401 - cached gradient steps must answer for its sources as well
from ._jit import device, kernel
from ._simd import fma, horizontal_sum, lanes, load_partial, splat, store_partial


@functools.cache
def gradient_steps_kernel(client: Any) -> Any:
    """The compiled local steps of SFedAvg and SFedProx, given one client's objective.

    Parameters
    ----------
    client : compiled function
        As `losses.client_kernel` gives it: ``client(arrays, i, w, reg, want, gradient, work)``.

    Returns
    -------
    compiled function
        ``finite = f(arrays, reg, clients, x, G, gamma, prox, mu0, c, alpha, local_steps,
        inner_steps, first_iteration, work, out, mu)``. From v = x, each of the `clients` i,
        distinct numbers, takes `local_steps` times `inner_steps` steps
        ``v <- v - gamma[i] * (grad f_i(v) + prox*(v - x))``; ``out[i]`` is the last v and
        ``mu[i] = mu0 * (1 + c*|v - x|^2) * alpha^(k+1)`` with the last iteration's number k and
        the v before it. `G` holds the gradients at x. SFedAvg has ``prox = 0`` and one inner
        step. Of G, out (m, n), reg, gamma and mu (m,) the other rows are not touched: several
        threads can share the clients, each with its own `work` of `losses.workspace`. All
        arrays are C-contiguous and of one dtype; nothing is checked.
    """

    @kernel
    def gradient_steps(
        arrays, reg, clients, x, G, gamma, prox, mu0, c, alpha,
        local_steps, inner_steps, first_iteration, work, out, mu,
    ):  # fmt: skip
        mu_at_x = mu0 * math.pow(alpha, float(first_iteration + local_steps))
        gradient = np.empty_like(x)
        finite = True
        for i in clients:
            v, gap = out[i], 0.0
            gradient_step(x, x, G[i], gamma[i], prox, v)
            for t in range(1, local_steps * inner_steps):
                if t == (local_steps - 1) * inner_steps:
                    gap = squared_distance(v, x)
                client(arrays, i, v, reg[i], True, gradient, work)
                gradient_step(v, x, gradient, gamma[i], prox, v)
            mu[i] = mu_at_x * (1.0 + c * gap)
            finite &= abs(squared_distance(v, x)) < np.inf
        return finite

    return gradient_steps


@device
def gradient_step(v, x, gradient, gamma, prox, out):
    """``out = v - gamma * (gradient + prox*(v - x))``; `out` may be v."""
    n, width = x.size, lanes(x)
    for j in range(0, n, width):
        w = load_partial(v, j, n - j, 0.0)
        slope = load_partial(gradient, j, n - j, 0.0)
        slope = fma(splat(x, prox), w - load_partial(x, j, n - j, 0.0), slope)
        store_partial(out, j, w - gamma * slope, n - j)


@device
def squared_distance(v, x):
    """``|v - x|^2``."""
    n, width = x.size, lanes(x)
    total = splat(x, 0.0)
    for j in range(0, n, width):
        d = load_partial(v, j, n - j, 0.0) - load_partial(x, j, n - j, 0.0)
        total = fma(d, d, total)
    return horizontal_sum(total)
