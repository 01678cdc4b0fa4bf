"""Derive the settings of private runs that hide whole clients from synthetic tables.

The tables are standardised ones of ``synthetic_tables.py``, from no one's data, dealt to clients of
50 rows each. For each level of noise, the norm of its deviations in the mean upload of one round
beside the clip, the rounds, eta over the curvature of the loss, and the clip are printed that close
most of the way from w = 0 to the optimum in the mean over tables.

    python scripts/client_settings.py [--seeds 1]
"""

from __future__ import annotations

import argparse
import itertools
import math

import numpy as np
from scipy.special import expit
from synthetic_tables import KINDS, Array, table

from fedepm_fast import FederatedData, Logistic, Problem

ROWS, CLIENT = 6_000, 50
FEATURES = (5, 14)
ROUNDS = (1, 2, 3, 4, 8, 12)
THETAS = (2.0, 4.0, 8.0)
CLIPS = (0.06, 0.12, 0.25, 0.5, 1.0)
LEVELS = (0.03, 0.1, 0.2, 0.4, 0.8, 1.6)
CURVATURE = 0.25


def closed(A: Array, y: Array, order: int, seed: int) -> Array:
    """Share of the way closed, of shape (rounds, thetas, clips, levels)."""
    d, n = A.shape
    problem = Problem(FederatedData(A, y, [d]), Logistic(beta=0.0))
    best, start = problem.optimum(method="newton").value, math.log(2)
    B, labels = A.astype(np.float32), y.astype(np.float32)
    size = n**0.5 if order == 1 else 1.0
    shape = len(ROUNDS), len(THETAS), len(CLIPS), len(LEVELS)
    found = np.empty(shape)
    for place in np.ndindex(*shape):
        T, theta, clip, level = (
            of[k] for of, k in zip((ROUNDS, THETAS, CLIPS, LEVELS), place, strict=True)
        )
        rng, x, points = np.random.default_rng(seed), np.zeros(n, np.float32), []
        power = T if order == 1 else math.sqrt(T)
        noise = level / math.sqrt(n) * power * clip
        for _ in range(T):
            rows = B * (expit(B @ x) - labels)[:, None]
            moves = -rows.reshape(-1, CLIENT, n).mean(axis=1) / (theta * CURVATURE)
            norms = np.linalg.norm(moves, order, axis=1, keepdims=True)
            moves *= np.minimum(1, clip * size / np.maximum(norms, 1e-30))
            x = (x + moves.mean(axis=0) + noise * rng.normal(size=n)).astype(np.float32)
            points.append(x)
        margins = A @ np.mean(points[-max(1, T // 2) :], axis=0)
        value = (np.logaddexp(0, margins) - y * margins).mean()
        found[place] = (start - value) / (start - best)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    seeds = parser.parse_args().seeds
    for order in (2, 1):
        shares = []
        for k, (kind, p, seed) in enumerate(itertools.product(KINDS[:4], FEATURES, range(seeds))):
            A, y = table(kind, ROWS, p, k % 3 == 2, 300 + 100 * k + seed)
            shares.append(closed(A, y, order, k))
        mean = np.maximum(shares, -0.5).mean(axis=0)
        print(f"L{order}: level, mean share with rounds, theta, clip; its worst")
        for q, level in enumerate(LEVELS):
            for place in np.argsort(-mean[..., q].ravel())[:5]:
                t, h, c = at = np.unravel_index(place, mean.shape[:-1])
                worst = np.min(shares, axis=0)[(*at, q)]
                print(
                    f"{level:8.3f} {mean[(*at, q)]:6.1%} {ROUNDS[t]:3d} {THETAS[h]:4.1f} "
                    f"{CLIPS[c]:5.2f} {worst:7.1%}", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
