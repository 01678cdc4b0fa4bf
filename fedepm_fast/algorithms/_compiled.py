"""The built-in algorithms' stages, compiled; see `fedepm_fast.kernels.engine`."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..kernels._jit import device, stage
from ..kernels.engine import average_selected, copy_into
from ..kernels.ens import LARGEST_C, ens_serial
from ..kernels.local_steps import fedepm_local_steps_raw, gradient_steps_kernel

# Where FedEPM's stages find its constants.
LAM, ETA, C, ALPHA, START, BY_VARIANCE, NO_WEIGHT = range(7)
CLIP, ROUNDING, NOISE_SHARE, DRIFT, LARGEST = range(7, 12)
#: Where its local steps of a round start.
OWN, RELEASED, BROADCAST = 0, 1, 2

# Where those of gradient steps find theirs.
RATE_C, RATE_ALPHA, PROX, INNER_STEPS = range(4)

_LARGEST_C = LARGEST_C[8]


@functools.cache
def fedepm(weighted: bool, private: bool) -> tuple[Any, Any]:
    """`aggregate` and `local_round` of FedEPM."""

    @device
    def weigh(scale, by_variance, no_weight, weights):
        """Weights of the uploads, the largest 1: their sum and the smallest."""
        least = np.inf
        for value in scale:
            if value == value:
                least = min(least, value)
        total, smallest = 0.0, np.inf
        for i in range(scale.size):
            weights[i] = 1.0
            if least < np.inf:
                precision = 1.0 if scale[i] == scale[i] else 0.0
                if by_variance:
                    precision = (least / scale[i]) ** 2
                weights[i] = precision if precision > no_weight else no_weight
            total += weights[i]
            smallest = min(smallest, weights[i])
        return total, smallest

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        Z, k = state.Z, settings.constants
        c = min(k[LAM] / k[ETA], _LARGEST_C)
        if weighted:
            p = state.weights
            total, smallest = weigh(state.noise_scale, k[BY_VARIANCE] != 0.0, k[NO_WEIGHT], p)
            ens_serial(Z, c, p, total, smallest, False, state.x, state.ens_memory)
        else:
            ens_serial(Z, c, None, float(Z.shape[0]), 1.0, False, state.x, state.ens_memory)
        return True

    @device
    def fix_penalties(problem, settings, state, S, first_iteration):
        """Steps with the public factor ``1 + c*|w_i - x|^2`` of the start of the round, and how
        far one record can move each upload: see `privacy.upload_sensitivity`.

        Whether the noise hides rounding too: see `privacy.mechanisms.hides_rounding`."""
        n, safe, k0 = state.x.size, True, settings.constants
        clip, eta = k0[CLIP], k0[ETA]
        for i in S:
            w, gap, far, reach = state.W[i], 0.0, 0.0, 0.0
            for j in range(n):
                apart = w[j] - state.x[j]
                gap += apart**2
                far, reach = max(far, abs(state.x[j])), max(reach, abs(apart))
            state.rate[i] = problem.step[i] * (1.0 + k0[C] * gap)
            s, furthest = 0.0, reach
            gradient = clip + problem.pull[i] * far
            for k in range(settings.local_steps):
                growth = math.pow(k0[ALPHA], float(first_iteration + k + 1))
                nu = state.rate[i] * (settings.mu0 * growth)
                s = (nu * s + problem.change[i]) / (eta + nu)
                reach = (nu * reach + gradient) / (eta + nu)
                # Written so that NaN stays.
                furthest = furthest if reach <= furthest else reach
            state.sensitivity[i] = s
            size = far + furthest
            noise = s * problem.multiplier[i]
            safe &= size * (1.0 + clip) < k0[LARGEST] and noise < k0[LARGEST]
            safe &= min(s, noise) > 1.0 / k0[LARGEST]
            safe &= k0[DRIFT] * far <= problem.change[i]
            safe &= s >= k0[ROUNDING] * size and noise >= k0[NOISE_SHARE] * size
        return safe

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k = settings.constants
        S, k0 = state.selected[: state.n_selected[0]], settings.local_steps
        step, c = problem.step, k[C]
        if k[START] != OWN:
            for i in S:
                copy_into(state.W[i], state.Z[i] if k[START] == RELEASED else state.x)
        if private:
            if not fix_penalties(problem, settings, state, S, tau * k0):
                return False
            step, c = state.rate, 0.0
        return fedepm_local_steps_raw(
            state.W, state.x, state.G, step, S, k[LAM], k[ETA], settings.mu0, c, k[ALPHA],
            k0, tau * k0, state.W, state.mu,
        )  # fmt: skip

    return aggregate, local_round


@functools.cache
def averaging(client: Any) -> tuple[Any, Any]:
    """`aggregate` and `local_round` of SFedAvg and SFedProx, given one client's objective."""
    gradient_steps = gradient_steps_kernel(client)

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k = settings.constants
        S, k0 = state.selected[: state.n_selected[0]], settings.local_steps
        for i in S:
            state.rate[i] = problem.step[i] / math.sqrt(2.0 * k0 + tau)
        return gradient_steps(
            rows, problem.reg, S, state.x, state.G, state.rate, k[PROX], settings.mu0,
            k[RATE_C], k[RATE_ALPHA], k0, int(k[INNER_STEPS]), tau * k0, state.work, state.W,
            state.mu,
        )  # fmt: skip

    return average_selected, local_round
