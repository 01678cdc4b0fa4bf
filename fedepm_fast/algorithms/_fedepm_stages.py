"""FedEPM's server and local work, compiled, and what they need to know."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ..mechanisms import LARGEST, NOISE_SHARE, SMALLEST_FACTOR

#: The weight in ENS of a client that never uploaded, to the largest one, where uploads are weighed.
NO_WEIGHT = 1e-9

#: Where a client's local steps of a round start: at its own hidden parameter w_i, at its last
#: upload z_i, or at the server's point x.
STARTS = ("own", "released", "broadcast")


class Constants(NamedTuple):
    """What the compiled stages need to know; from `clip` on with a mechanism only."""

    lam: float
    eta: float
    c: float
    alpha: float
    start: float
    by_noise: float
    noise_l1: float
    no_weight: float = NO_WEIGHT
    clip: float = 0.0
    rounding: float = 0.0
    noise_share: float = NOISE_SHARE
    drift: float = 0.0
    largest: float = LARGEST
    order: float = 0.0
    whole: float = 0.0
    smallest: float = SMALLEST_FACTOR


@functools.cache
def fedepm_stages(weighted: bool, private: bool) -> tuple[Any, Any]:
    """`aggregate` and `local_round` of FedEPM."""
    from ..kernels._jit import device, stage
    from ..kernels._parts import part
    from ..kernels.engine import copy_into, reader
    from ..kernels.ens import LARGEST_C, ens_inlined
    from ..kernels.local_steps import fedepm_local_steps_raw

    largest_c = LARGEST_C[8]
    own, released, _ = range(len(STARTS))
    read = reader(Constants)

    @device
    def weigh(scale, by_noise, no_weight, weights):
        """Weights of the uploads, the largest 1: their sum and the smallest.

        `by_noise` is the power of its inverse scale, 0 where they weigh alike."""
        least = np.inf
        for value in scale:
            if value == value:
                least = min(least, value)
        total, smallest = 0.0, np.inf
        for i in range(scale.size):
            weights[i] = 1.0
            if least < np.inf:
                precision = 1.0 if scale[i] == scale[i] else 0.0
                if by_noise == 2.0:
                    precision = (least / scale[i]) ** 2
                elif by_noise == 1.0:
                    precision = least / scale[i]
                weights[i] = precision if precision > no_weight else no_weight
            total += weights[i]
            smallest = min(smallest, weights[i])
        return total, smallest

    @device
    def mean_scale(scale, weights):
        """Mean scale of the noise of the uploads that have some, by weight; 0 without noise."""
        total, weight = 0.0, 0.0
        for i in range(scale.size):
            if scale[i] == scale[i]:
                p = weights[i] if weighted else 1.0
                total, weight = total + p * scale[i], weight + p
        return total / weight if weight > 0.0 else 0.0

    @stage
    def aggregate(rows, problem, settings, key, given, state, tau):
        Z, k = state.Z, read(settings.constants)
        p, c = state.weights, k.lam / k.eta
        if weighted:
            total, smallest = weigh(state.noise_scale, k.by_noise, k.no_weight, p)
        if private and k.noise_l1 > 0.0:
            c += min(k.noise_l1 * mean_scale(state.noise_scale, p), k.largest)
        c = min(c, largest_c)
        if weighted:
            ens_inlined(Z, c, p, total, smallest, False, state.x, state.ens_memory)
        else:
            ens_inlined(Z, c, None, float(Z.shape[0]), 1.0, False, state.x, state.ens_memory)
        return True

    @device
    def fix_penalties(problem, settings, state, S, first_iteration):
        """Steps with the public factor ``1 + c*|w_i - x|^2`` of the start of the round, and how
        far neighbours' uploads can be apart: see `PrivacyPlan.sensitivity`.

        Whether the noise hides rounding too: see `mechanisms.hides_rounding`."""
        n, safe, constants = state.x.size, True, read(settings.constants)
        clip, eta = constants.clip, constants.eta
        for i in S:
            w, gap, far, reach = state.W[i], 0.0, 0.0, 0.0
            for j in range(n):
                apart = w[j] - state.x[j]
                gap += apart**2
                far, reach = max(far, abs(state.x[j])), max(reach, abs(apart))
            state.rate[i] = problem.step[i] * (1.0 + constants.c * gap)
            s, furthest = problem.change[i], reach + clip
            steps = 0 if constants.whole else settings.local_steps
            if steps:
                s, furthest = 0.0, reach
            gradient = clip + problem.pull[i] * far
            for k in range(steps):
                power = math.pow(constants.alpha, float(first_iteration + k + 1))
                nu = state.rate[i] * (settings.mu0 * power)
                s = (nu * s + problem.change[i]) / (eta + nu)
                reach = (nu * reach + gradient) / (eta + nu)
                # Written so that NaN stays.
                furthest = furthest if reach <= furthest else reach
            state.sensitivity[i] = s
            size = far + furthest
            noise = s * problem.multiplier[i]
            safe &= size * (1.0 + clip) < constants.largest and noise < constants.largest
            safe &= min(s, noise) > 1.0 / constants.largest
            safe &= constants.drift * far <= problem.change[i]
            safe &= s >= constants.rounding * size and noise >= constants.noise_share * size
        return safe

    @device
    def move_within(w, start, k):
        """See `mechanisms.clip_moves`."""
        largest, total, factor, finite = 0.0, 0.0, 0.0, True
        for j in range(w.size):
            apart = abs(w[j] - start[j])
            finite &= apart < np.inf
            largest = max(largest, apart)
        if finite and largest > 0.0:
            for j in range(w.size):
                share = (w[j] - start[j]) / largest
                total += abs(share) if k.order == 1.0 else share * share
            norm = total if k.order == 1.0 else math.sqrt(total)
            factor = min(1.0, k.clip / largest / norm)
        for j in range(w.size):
            move = factor * (w[j] - start[j]) if factor >= k.smallest else 0.0
            w[j] = start[j] + move

    @stage
    def local_round(rows, problem, settings, key, given, state, tau):
        k = read(settings.constants)
        S, k0 = part(state.selected, 0, state.n_selected[0]), settings.local_steps
        step, c = problem.step, k.c
        if k.start != own:
            for i in S:
                copy_into(state.W[i], state.Z[i] if k.start == released else state.x)
        if private:
            if not fix_penalties(problem, settings, state, S, tau * k0):
                return False
            step, c = state.rate, 0.0
        finite = fedepm_local_steps_raw(
            state.W, state.x, state.G, step, S, k.lam, k.eta, settings.mu0, c, k.alpha,
            k0, tau * k0, state.W, state.mu,
        )  # fmt: skip
        if private and k.whole:
            for i in S:
                move_within(state.W[i], state.Z[i] if k.start == released else state.x, k)
            return True
        return finite

    return aggregate, local_round
