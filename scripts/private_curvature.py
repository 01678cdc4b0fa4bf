"""Derive the settings of `fedepm_fast.privacy.curvature` from synthetic tables.

The tables are made here, from no one's data: independent and correlated columns, skewed amounts
with indicators, and questionnaires, all standardised, with an intercept; labels from a model of
some of the columns, a third of them with one positive in twenty. Of a grid of settings the ones are
printed, for each level of noise, that close most of the way from w = 0 to the optimum in the mean
over tables; one that ends beyond half of the way above the start counts as that. Uploads of
many clients are computed as what they add up to: the mean gradient, with noise.

    python scripts/private_curvature.py [--seeds 3]
"""

from __future__ import annotations

import argparse
import itertools
import math

import numpy as np
from scipy.special import expit

from fedepm_fast import FederatedData, Logistic, Problem

Array = np.ndarray

ROWS = 3000
FEATURES = (4, 14, 40)
ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40)
THETAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
KAPPAS = {2: (0.5, 0.75, 1.0, 1.4), 1: (0.4, 0.6, 0.8, 1.0)}
LEVELS = tuple(10.0 ** np.arange(-2.75, 0.51, 0.25))
#: The curvature bound of the logistic loss.
CURVATURE = 0.25


def columns(kind: str, p: int, rng: np.random.Generator) -> Array:
    """A table of `p` columns, not yet standardised."""
    noise = rng.normal(size=(ROWS, p))
    if kind == "questionnaire":
        hidden = 0.5 * rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, p)) + noise
        return np.floor(rng.integers(2, 40, p) * expit(hidden) ** rng.uniform(0.5, 2, p))
    if kind == "correlated":
        return rng.normal(size=(ROWS, 1)) * rng.uniform(0.3, 1.2, p) + noise
    if kind == "skewed":
        amounts = rng.exponential(size=(ROWS, p)) ** 1.5
        return np.where(
            np.arange(p) % 2, rng.random((ROWS, p)) < rng.uniform(0.05, 0.5, p), amounts
        )
    return noise


def table(kind: str, p: int, rare: bool, seed: int) -> tuple[Array, Array]:
    """Standardised columns with an intercept, and labels."""
    rng = np.random.default_rng(seed)
    X = columns(kind, p, rng)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    margin = X @ (rng.normal(size=p) * (np.arange(p) < max(2, 0.6 * p)))
    margin *= rng.uniform(0.4, 1.8) / margin.std()
    share, low, high = 0.05 if rare else rng.uniform(0.1, 0.5), -30.0, 30.0
    for _ in range(60):  # the intercept of that share of positives
        middle = (low + high) / 2
        low, high = (middle, high) if expit(margin + middle).mean() < share else (low, middle)
    labels = rng.random(ROWS) < expit(margin + low)
    return np.column_stack([X, np.ones(ROWS)]), labels.astype(float)


def descend(B: Array, y: Array, T: Array, eta: Array, deviation: Array, seed: int) -> Array:
    """Last points (n, R) of runs on clipped rows, each of T rounds with noise in the gradient."""
    rng, x = np.random.default_rng(seed), np.zeros((B.shape[1], len(T)), np.float32)
    for t in range(int(T.max())):
        on = t < T
        g = B.T @ (expit(B @ x[:, on]) - y[:, None]) / len(y)
        x[:, on] -= (g + deviation[on] * rng.normal(size=g.shape)) / eta[on]
    return x


def closed(A: Array, y: Array, order: int, seed: int) -> Array:
    """Share of the way closed: shape (kappas, rounds, thetas, levels)."""
    n = A.shape[1]
    problem = Problem(FederatedData(A, y, [len(y)]), Logistic(beta=0.0))
    best, start = problem.optimum(method="newton").value, math.log(2)
    A32, y32 = A.astype(np.float32), y.astype(np.float32)
    axes = np.meshgrid(ROUNDS, THETAS, LEVELS, indexing="ij")
    T, theta, level = (axis.ravel() for axis in axes)
    norms = np.linalg.norm(A, order, axis=1)
    found = []
    for kappa in KAPPAS[order]:
        clip = kappa * (n if order == 1 else math.sqrt(n))
        B = (A * np.minimum(1, clip / norms)[:, None]).astype(np.float32)
        deviation = level / math.sqrt(n) * kappa * (np.sqrt(T) if order == 2 else T)
        values = []
        for at in np.array_split(np.arange(len(T)), len(T) // 200 + 1):
            x = descend(B, y32, T[at], theta[at] * CURVATURE, deviation[at], seed)
            margins = A32 @ x
            values.append((np.logaddexp(0, margins) - y32[:, None] * margins).mean(axis=0))
        found.append(((start - np.concatenate(values)) / (start - best)).reshape(axes[0].shape))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="tables of a kind; each third is rare")
    seeds = parser.parse_args().seeds
    kinds = ("questionnaire", "correlated", "skewed", "independent")
    for order in (2, 1):
        cases = itertools.product(kinds, FEATURES, range(seeds))
        shares = np.array([
            closed(*table(kind, p, seed % 3 == 2, 100 * k), order, k)
            for k, (kind, p, seed) in enumerate(cases)
        ])  # fmt: skip
        mean = np.maximum(shares, -0.5).mean(axis=0)
        print(f"L{order}: level, best mean share with rounds, theta, kappa; its worst tenth")
        for q, level in enumerate(LEVELS):
            top = np.argsort(-mean[..., q].ravel())[:6]
            for place in top:
                k, t, h = np.unravel_index(place, mean.shape[:-1])
                low = np.quantile(shares[:, k, t, h, q], 0.1)
                print(
                    f"{level:9.4f} {100 * mean[k, t, h, q]:6.1f} % {ROUNDS[t]:4d} {THETAS[h]:4.1f} "
                    f"{KAPPAS[order][k]:5.2f} {100 * low:7.1f} %", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
