"""Clients' uploads, with noise of a law behind a pointer: one stage for all laws."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from .._jit import JIT_DISABLED, brief_stage, device
from .._parts import part
from .._pointers import address_of, call_at
from .._simd import absolute, fma, horizontal_sum, lanes, load_partial, splat
from .._views import field
from ..losses._pointed import ROWS
from ..noise import gaussian_rows, laplace_rows

_LAWS = {"laplace": laplace_rows, "gaussian": gaussian_rows}
DRAWN = types.none(
    *[types.uint64] * 4,
    types.Array(types.uint64, 1, "C"),
    *[types.Array(types.float64, 1, "C")] * 2,
    types.Array(types.float64, 2, "C"),
)


def upload_of(law: Any) -> Any:
    """The stage for a law, "laplace", "gaussian" or a compiled function as of `noise`."""
    return _upload_kernel(_plain(law) if JIT_DISABLED else _draw)


@functools.cache
def draw_address(law: Any) -> int:
    """Where the machine code of a law is, for `Rows.draw`."""
    return address_of(_LAWS.get(law, law).get_compile_result(DRAWN))


@functools.cache
def _plain(law: Any) -> Any:
    draw = _LAWS.get(law, law)
    return lambda rows, *to: draw(*to)


@intrinsic
def _draw(
    typingctx: Any, rows: Any, key0: Any, key1: Any, purpose: Any, tau: Any, clients: Any,
    factors: Any, deviations: Any, out: Any,
) -> Any:  # fmt: skip
    """Rows of noise of the law that comes with the rows."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = field(context, builder, ROWS, args[0], ROWS.names.index("draw"))
        return call_at(context, builder, address, DRAWN, args[1:])

    return types.none(rows, *DRAWN.args), codegen


@device
def _norm_one(row):
    n, width = row.size, lanes(row)
    total = splat(row, 0.0)
    for j in range(0, n, width):
        total = total + absolute(load_partial(row, j, n - j, 0.0))
    return horizontal_sum(total)


@device
def _norm_squared(row):
    n, width = row.size, lanes(row)
    total = splat(row, 0.0)
    for j in range(0, n, width):
        v = load_partial(row, j, n - j, 0.0)
        total = fma(v, v, total)
    return horizontal_sum(total)


@functools.cache
def _upload_kernel(draw: Any) -> Any:
    """The stage ``z_i = w_i + noise_i``: `draw` takes the rows, and then what laws take."""

    @brief_stage
    def upload(rows, problem, settings, key, given, state, tau):
        n = state.x.size
        count = state.n_selected[0]
        scale, block = state.scale, state.noise.shape[0]
        private = settings.private
        noisy = private or settings.noise_factor > 0.0
        drawn = noisy and given.counts.size == 0
        for r in range(count):
            i = state.selected[r]
            state.clients[r] = np.uint64(i)
            scale[r] = 0.0
            if private:
                scale[r] = state.sensitivity[i] * problem.multiplier[i]
            elif noisy:
                bound = settings.noise_factor * _norm_one(state.G[i])
                scale[r] = bound / (settings.epsilon * state.mu[i])
            state.noise_scale[i] = scale[r]
            if not scale[r] < np.inf:
                return False
        for first in range(0, count, block):
            last = min(first + block, count)
            E = part(state.noise, 0, last - first)
            if drawn:
                factors, deviations = part(scale, first, last), part(scale, 0, 0)
                if settings.standardize:
                    factors, deviations = part(state.ones, first, last), part(scale, first, last)
                clients = part(state.clients, first, last)
                draw(
                    rows, key.seed, key.trial, key.noise, np.uint64(tau), clients, factors,
                    deviations, E,
                )  # fmt: skip
            for r in range(first, last):
                i = state.selected[r]
                e, w, z = E[r - first], state.W[i], state.Z[i]
                if not drawn:
                    # Without noise there may be none of it to read.
                    for j in range(n):
                        e[j] = scale[r] * given.noise[tau, i, j] if noisy else 0.0
                for j in range(n):
                    z[j] = w[j] + e[j]
                noise = math.sqrt(_norm_squared(e))
                state.snr[i] = math.sqrt(_norm_squared(w)) / noise if noise > 0.0 else np.inf
                if not abs(_norm_one(z)) < np.inf:
                    return False
        return True

    return upload
