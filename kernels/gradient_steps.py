"""The local steps of the baselines, SFedAvg and SFedProx: gradient steps, fused.

From v = x, client i takes `local_steps` times `inner_steps` steps

    v <- v - gamma_i * (grad f_i(v) + prox*(v - x)),

SFedAvg with prox = 0 and one inner step. A client's result does not depend on which others
take part.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ._jit import device, kernel, warms
from ._simd import fma, horizontal_sum, lanes, load_partial, splat, store_partial
from .losses import ClientRows, client_kernel, pack, workspace


def gradient_steps_kernel(rows: ClientRows) -> Any:
    """The compiled local steps on the objectives of `rows`, for use in compiled code.

    Parameters
    ----------
    rows : ClientRows
        From `losses.pack`. Rows of the same layout and loss share a function.

    Returns
    -------
    callable
        ``finite = f(arrays, reg, clients, x, G, gamma, prox, mu0, c, alpha, local_steps,
        inner_steps, first_iteration, work, out, mu)`` takes the steps of the `clients`, an
        array of distinct numbers. `arrays` is ``rows.arrays``, G (m, n) holds the gradients at
        x (n,), reg and gamma are (m,), `work` is from `losses.workspace`. It writes the last v
        to ``out[i]`` and, to ``mu[i]``, ``mu0 * (1 + c*|v - x|^2) * alpha^(k+1)`` with the
        number k of the last local step and the v before it; other rows stay. Several threads
        can share the clients, each with its own `work`. Floating-point arrays are
        C-contiguous and of the dtype of `rows`. Nothing is checked; the result is whether
        every ``|v - x|^2`` is finite, which no NaN or infinity in v escapes.
    """
    return _gradient_steps(client_kernel(rows))


@functools.cache
def _gradient_steps(client: Any) -> Any:
    @kernel
    def gradient_steps(
        arrays: Any,
        reg: Any,
        clients: Any,
        x: Any,
        G: Any,
        gamma: Any,
        prox: Any,
        mu0: Any,
        c: Any,
        alpha: Any,
        local_steps: Any,
        inner_steps: Any,
        first_iteration: Any,
        work: Any,
        out: Any,
        mu: Any,
    ) -> Any:
        growth = mu0 * math.pow(alpha, float(first_iteration + local_steps))
        gradient = np.empty_like(x)
        finite = True
        for i in clients:
            v, gap = out[i], 0.0
            _gradient_step(x, x, G[i], gamma[i], prox, v)
            for t in range(1, local_steps * inner_steps):
                if t == (local_steps - 1) * inner_steps:
                    gap = _squared_distance(v, x)
                client(arrays, i, v, reg[i], True, gradient, work)
                _gradient_step(v, x, gradient, gamma[i], prox, v)
            mu[i] = growth * (1.0 + c * gap)
            finite &= abs(_squared_distance(v, x)) < np.inf
        return finite

    return gradient_steps


@device
def _gradient_step(v: Any, x: Any, gradient: Any, gamma: Any, prox: Any, out: Any) -> None:
    """``out = v - gamma * (gradient + prox*(v - x))``; `out` may be v."""
    n, width = x.size, lanes(x)
    for j in range(0, n, width):
        w = load_partial(v, j, n - j, 0.0)
        slope = load_partial(gradient, j, n - j, 0.0)
        slope = fma(splat(x, prox), w - load_partial(x, j, n - j, 0.0), slope)
        store_partial(out, j, w - gamma * slope, n - j)


@device
def _squared_distance(v: Any, x: Any) -> Any:
    """|v - x|^2."""
    n, width = x.size, lanes(x)
    total = splat(x, 0.0)
    for j in range(0, n, width):
        d = load_partial(v, j, n - j, 0.0) - load_partial(x, j, n - j, 0.0)
        total = fma(d, d, total)
    return horizontal_sum(total)


@kernel
def _positive(step):
    """Whether all are positive and finite: two NumPy reductions take as long as the steps."""
    wrong = 0
    for value in step:
        if not 0.0 < value < np.inf:
            wrong += 1
    return wrong == 0


@warms
def _warm() -> None:
    for dtype in (np.float32, np.float64):
        rows = pack(np.ones((1, 1), dtype), np.zeros(1), [1])
        one, square = np.ones(1, dtype), np.ones((1, 1), dtype)
        gradient_steps_kernel(rows)(
            rows.arrays, one, np.zeros(1, np.intp), one, square, one, 0.0, 1.0, 1.0, 1.0,
            1, 1, 0, workspace(rows), square, one.copy(),
        )  # fmt: skip
