"""Derive the settings of `fedepm_fast.privacy` for two classes from synthetic tables.

For each level of noise the settings are printed that close most of the way from w = 0 to the
optimum, in the mean over tables, with what is left in the mean and in the worst tenth; a run that
ends beyond half of the way above the start counts as that. `BEST` of ``privacy/_settings.py``
follows them, evened out between levels, with steps that stay stable where the curvature is its
bound; what is left with its settings, `LEFT`, is printed last. A run is that of many alike clients,
computed as what their uploads add up to: the mean gradient of rows that are clipped and weigh less
in proportion, and noise.

With `--bounds` tables are only brought to [-2, 2] by the range of their columns, and the settings
of the package compared by how many uploads are spent on the columns' means and variances before.

    python scripts/private_settings.py --order 2 [--seeds 3] [--columns 15] [--bounds]
"""

from __future__ import annotations

import argparse
import itertools
import math

import numpy as np
from scipy.special import expit
from synthetic_tables import KINDS, Array, bounded, table

from fedepm_fast import FederatedData, Logistic, Problem
from fedepm_fast.mechanisms import Columns
from fedepm_fast.privacy._settings import Settings, settings_for

ROWS = 3000
LEVELS = {2: 10.0 ** np.arange(-2.5, 0.01, 0.25), 1: 0.74 * 10.0 ** np.arange(-2.75, 0.01, 0.25)}
#: What moments spend, and rounds.
BUDGETS = {
    2: ((0, 1), (0, 2), (0, 4), (0, 8), (1, 4), (2, 6), (2, 8), (4, 12), (8, 24)),
    1: ((0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 6), (3, 8), (4, 12)),
}
THETAS = (0.65, 0.75, 1.0, 1.5)
CLIPS = (0.3, 0.45, 0.6, 0.8, 1.1)
FLOORS = (0.3, 1.0)
#: The curvature bound of the logistic loss.
CURVATURE = 0.25
#: The part of the L1 norm in a row's size in second moments, see `mechanisms`.
_Q = math.sqrt(0.5)


def grid(order: int) -> list[Settings]:
    """Every combination, points of the last three quarters of the rounds averaged."""
    found = []
    for (u, T), theta, clip in itertools.product(BUDGETS[order], THETAS, CLIPS):
        kept = T - min(max(1, T // 4), T - 1)
        radius = (0.8 if clip < 0.7 else 1.2) if order == 2 else (0.6 if clip < 0.7 else 0.8)
        for floor in FLOORS[: 2 if u else 1]:
            found.append(Settings(u, T, kept, theta, clip, radius, floor))
    return found


def clipped(A: Array, bound: float, size: Array) -> tuple[Array, Array]:
    factor = np.minimum(1.0, bound / size)
    return A * factor[:, None], factor


def standardised(
    A: Array, s: Settings, order: int, level: float, rng: np.random.Generator, spent: int
) -> Array:
    """The columns by means and variances under noise, for which so many uploads are spent."""
    n, spends = A.shape[1], (s.rounds + s.moments + spent) / spent
    ends = np.array([[-2.0] * (n - 1) + [1.0], [2.0] * (n - 1) + [1.0]])
    columns = Columns(ends)
    deviation = level / (2 * n) * math.sqrt(spends) * columns.move(2)
    if order == 1:
        deviation = level / (2 * n**1.5) * spends * columns.move(1)
    noise = rng.normal(size=columns.size) * deviation
    return A @ columns.standardising(columns.means(A) + noise, deviation)


def coordinates(
    A: Array, s: Settings, order: int, level: float, rng: np.random.Generator, spent: int = 0
) -> Array:
    """From second moments under noise, as a mean over clients of the level has it."""
    n, spends = A.shape[1], (s.rounds + s.moments + spent) / s.moments
    if order == 2:
        size, most = np.linalg.norm(A, axis=1), s.radius * math.sqrt(n)
        deviation = level / (2 * n) * math.sqrt(2 * spends) * most**2
    else:
        one, two = np.abs(A).sum(axis=1), (A * A).sum(axis=1)
        size, most = (
            np.sqrt((1 - _Q) * two + _Q * one**2),
            s.radius * math.hypot(math.sqrt(1 - _Q) * math.sqrt(n), math.sqrt(_Q) * n),
        )
        deviation = level / n**1.5 * spends * most**2
    B, _ = clipped(A, most, size)
    E = rng.normal(size=(n, n)) * deviation / math.sqrt(2)
    E = np.triu(E, 1) + np.triu(E, 1).T + np.diag(rng.normal(size=n) * deviation)
    w, V = np.linalg.eigh(B.T @ B / len(A) + E)
    w = np.maximum(w, s.floor * deviation * math.sqrt(2 * n))
    return (V / np.sqrt(w)) @ V.T


def model(
    A: Array, y: Array, s: Settings, order: int, level: float, seed: int, spent: int = 0
) -> Array:
    """Margins of the mean of the last points of a run."""
    rng, n = np.random.default_rng(seed), A.shape[1]
    A = standardised(A, s, order, level, rng, spent) if spent else A
    back = coordinates(A, s, order, level, rng, spent) if s.moments else np.eye(n)
    B = A @ back
    releases = s.rounds + s.moments + spent
    whole, power = (n, releases) if order == 1 else (math.sqrt(n), math.sqrt(releases))
    B, factor = clipped(B, s.clip * whole, np.linalg.norm(B, order, axis=1))
    factor = np.maximum(factor, 2.0**-5)
    noise = rng.normal(size=(s.rounds, n)) * level / math.sqrt(n) * s.clip * power
    v, points = np.zeros(n), []
    for each in noise:
        g = B.T @ (expit(B @ v / factor) - y) / len(y) + each
        v = v - g / (s.theta * CURVATURE)
        points.append(v)
    return A @ (back @ np.mean(points[-s.kept :], axis=0))


def left(
    A: Array, y: Array, asked: list[list[Settings]], order: int, seed: int, spent: int = 0
) -> Array:
    """Share of the way that is left by the settings of each level, (levels, settings)."""
    best = Problem(FederatedData(A, y, [len(y)]), Logistic(beta=0.0)).optimum(method="newton").value
    found = []
    for q, (level, each) in enumerate(zip(LEVELS[order], asked, strict=True)):
        margins = np.column_stack(
            [model(A, y, s, order, level, 1000 * seed + q, spent) for s in each]
        )
        values = (np.logaddexp(0, margins) - y[:, None] * margins).mean(axis=0)
        found.append((values - best) / (math.log(2) - best))
    return np.minimum(found, 1.5)


def compare_columns(
    tables: list[tuple[Array, Array]], chosen: list[list[Settings]], order: int
) -> None:
    """Print what is left by uploads spent on means and variances, where there are moments."""
    uploads = (0, 1, 2, 4)
    print(f"L{order}: level, share left (worst tenth) by uploads spent on columns: {uploads}")
    shares = np.array(
        [[left(*t, chosen, order, k, u) for k, t in enumerate(tables)] for u in uploads]
    )[..., 0]
    for q, level in enumerate(LEVELS[order]):
        of = shares[:, :, q]
        found = zip(of.mean(axis=1), np.quantile(of, 0.9, axis=1), strict=True)
        print(f"{level:9.4f} ", *(f"{mean:.3f} ({worst:.3f})" for mean, worst in found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, choices=(1, 2), default=2, help="norm of the noise")
    parser.add_argument("--seeds", type=int, default=3, help="tables of a kind; each third is rare")
    parser.add_argument("--columns", type=int, default=15, help="the intercept among them")
    parser.add_argument("--bounds", action="store_true", help="of which bounds alone are known")
    given = parser.parse_args()
    order, levels = given.order, LEVELS[given.order]
    tables = [
        table(kind, ROWS, given.columns - 1, seed % 3 == 2, 100 * seed + k)
        for k, kind in enumerate(KINDS) for seed in range(given.seeds)
    ]  # fmt: skip
    chosen = [[settings_for(order, level)] for level in levels]
    if given.bounds:
        compare_columns([(bounded(A), y) for A, y in tables], chosen, order)
        return
    tried = grid(order)
    shares = np.array([left(*t, [tried] * len(levels), order, k) for k, t in enumerate(tables)])
    print(f"L{order}, {given.columns} columns: level, share left (worst tenth) by the best")
    for q, level in enumerate(levels):
        for k in np.argsort(shares[:, q].mean(axis=0))[:4]:
            mean, worst = shares[:, q, k].mean(), np.quantile(shares[:, q, k], 0.9)
            print(f"{level:9.4f} {mean:7.3f} ({worst:.3f})  {tuple(tried[k])}")
    shares = np.array([left(*t, chosen, order, k) for k, t in enumerate(tables)])[:, :, 0]
    print("by the settings of the package")
    for q, level in enumerate(levels):
        mean, worst = shares[:, q].mean(), np.quantile(shares[:, q], 0.9)
        print(f"{level:9.4f} {mean:7.3f} ({worst:.3f})  {tuple(*chosen[q])}")


if __name__ == "__main__":
    main()
