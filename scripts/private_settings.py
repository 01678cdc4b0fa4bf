"""Derive the settings of `fedepm_fast.privacy` from synthetic tables.

For each level of noise the settings are printed that close most of the way from w = 0 to the
optimum, in the mean over tables, with what is left in the mean and in the worst tenth; a run that
ends beyond half of the way above the start counts as that. `BEST`, `OF_CLASSES` and `OF_RESIDUALS`
of ``privacy/_settings.py`` follow them, evened out between levels, with steps that stay stable
where the curvature is its bound; what is left with its settings, `LEFT` of two classes, is printed
last. A run is that of many alike clients, computed as what their uploads add up to: the mean
gradient of rows that are clipped and weigh less in proportion, and noise. Several classes have the
optimum with the penalty 1/d, for few rows tell them apart without an error; regressions, the Huber
loss with the plan's delta, are judged by the squared error.

    python scripts/private_settings.py --order 2 [--seeds 3] [--columns 15]
    python scripts/private_settings.py --order 2 --classes 3 10 --columns 15 65 --rows 1500
    python scripts/private_settings.py --order 2 --classes 1
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import NamedTuple

import numpy as np
from synthetic_tables import KINDS, Array, table

from fedepm_fast import FederatedData, Huber, LeastSquares, Logistic, Multinomial, Problem
from fedepm_fast.losses import Objective
from fedepm_fast.losses._base import LEAST_FACTOR
from fedepm_fast.privacy._settings import Settings, largest_residual, settings_for
from fedepm_fast.privacy.private_plan import curvature_of

#: The part of the L1 norm in a row's size in second moments, see `mechanisms`.
_Q = math.sqrt(0.5)


class Search(NamedTuple):
    """What is tried, by the order of the norm."""

    levels: dict[int, Array]
    budgets: dict[int, tuple[tuple[int, int], ...]]
    """What moments spend, and rounds."""
    thetas: tuple[float, ...]
    clips: tuple[float, ...]
    floors: tuple[float, ...]

    def grid(self, order: int) -> list[Settings]:
        """Every combination, points of the last three quarters of the rounds averaged."""
        found = []
        for (u, T), theta, clip in itertools.product(self.budgets[order], self.thetas, self.clips):
            kept = T - min(max(1, T // 4), T - 1)
            radius = (0.8 if clip < 0.7 else 1.2) if order == 2 else (0.6 if clip < 0.7 else 0.8)
            for floor in self.floors[: None if u else 1]:
                found.append(Settings(u, T, kept, theta, clip, radius, floor))
        return found


TWO = Search(
    {2: 10.0 ** np.arange(-2.5, 0.01, 0.25), 1: 0.74 * 10.0 ** np.arange(-2.75, 0.01, 0.25)},
    {
        2: ((0, 1), (0, 2), (0, 4), (0, 8), (1, 4), (2, 6), (2, 8), (4, 12), (8, 24)),
        1: ((0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 6), (3, 8), (4, 12)),
    },
    (0.65, 0.75, 1.0, 1.5), (0.3, 0.45, 0.6, 0.8, 1.1), (0.3, 1.0),
)  # fmt: skip
#: Of more classes.
MORE = Search(
    {2: 10.0 ** np.arange(-2, 1.51, 0.5), 1: 10.0 ** np.arange(-2, 2.01, 0.5)},
    {
        2: ((0, 1), (0, 4), (0, 12), (1, 4), (2, 4), (2, 8), (4, 12), (8, 24)),
        1: ((0, 1), (0, 3), (0, 8), (1, 2), (1, 4), (2, 6), (4, 12)),
    },
    (0.75, 1.5, 3.0, 6.0), (0.2, 0.3, 0.45, 0.7), (0.3, 1.0),
)  # fmt: skip
#: Of regressions, by the level of a derivative of at most 1.
REAL = Search(
    {2: 10.0 ** np.arange(-3, 0.01, 0.5), 1: 10.0 ** np.arange(-3.5, 0.01, 0.5)},
    {
        2: ((0, 1), (0, 2), (0, 4), (0, 8), (2, 8), (4, 8), (8, 24)),
        1: ((0, 1), (0, 2), (0, 3), (0, 6), (0, 12), (1, 3), (2, 6), (4, 12)),
    },
    (0.75, 1.0, 1.5), (0.3, 0.45, 0.75, 1.1, 1.6), (0.3, 1.0),
)  # fmt: skip


def search_of(classes: int) -> Search:
    return {1: REAL, 2: TWO}.get(classes, MORE)


def loss_of(classes: int, level: float) -> tuple[Objective, float]:
    """The loss of a plan, and the level that its settings go by."""
    if classes == 1:
        delta = largest_residual(level)
        return Huber(beta=0.0, delta=delta), delta * level
    return (Logistic(beta=0.0) if classes == 2 else Multinomial(beta=0.0, classes=classes)), level


def clipped(A: Array, bound: float, size: Array) -> tuple[Array, Array]:
    factor = np.minimum(1.0, bound / size)
    return A * factor[:, None], factor


def coordinates(A: Array, s: Settings, order: int, level: float, rng: np.random.Generator) -> Array:
    """From second moments under noise, as a mean over clients of the level has it."""
    n, spends = A.shape[1], (s.rounds + s.moments) / s.moments
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
    A: Array, y: Array, loss: Objective, s: Settings, order: int, level: float, seed: int
) -> Array:
    """The mean of the last points of a run, (n, K)."""
    rng, n, K = np.random.default_rng(seed), A.shape[1], loss.n_outputs
    curvature = curvature_of(loss)
    level = 4 * curvature * level  # that of the noise, for the plan's is beside the curvature
    alone = level / (loss.slope_in(order) * math.sqrt(K))  # of the two classes' one slope
    back = coordinates(A, s, order, alone, rng) if s.moments else np.eye(n)
    B = A @ back
    whole, power = n, s.rounds + s.moments
    if order == 2:
        whole, power = math.sqrt(n), math.sqrt(power)
    B, factor = clipped(B, s.clip * whole, np.linalg.norm(B, order, axis=1))
    loss, labels = loss.of_clipped(y, np.maximum(factor, LEAST_FACTOR))
    noise = rng.normal(size=(s.rounds, n, K)) * level / math.sqrt(n * K) * s.clip * power
    v, points = np.zeros((n, K)), []
    for each in noise:
        slopes = loss.derivative(margins(B, v), labels)
        v = v - (B.T @ slopes.reshape(len(y), K) / len(y) + each) / (s.theta * curvature)
        points.append(v)
    return back @ np.mean(points[-s.kept :], axis=0)


def margins(A: Array, w: Array) -> Array:
    """As losses have them: (d, K), or (d,) of one."""
    return (A @ w).reshape(len(A), *w.shape[1:][: w.shape[1] > 1])


def left(A: Array, y: Array, classes: int, asked: list[list[Settings]], order: int, seed: int):
    """Share of the way that is left by the settings of each level, (levels, settings)."""
    judge = LeastSquares(beta=0.0) if classes == 1 else loss_of(classes, 1.0)[0]
    pooled = FederatedData(A, y, [len(y)])
    penalty = {"beta": 1 / len(y) if classes > 2 else 0.0, "regularizer": "beta"}
    best = Problem(pooled, judge.changed(**penalty)).optimum(method="newton").x

    def value(w: Array) -> float:
        return float(judge.loss(margins(A, w), y).mean())

    shape = (A.shape[1], judge.n_outputs)
    least, start = value(best.reshape(shape[::-1]).T), value(np.zeros(shape))
    found = []
    for q, (level, each) in enumerate(zip(search_of(classes).levels[order], asked, strict=True)):
        loss, level = loss_of(classes, level)
        values = [value(model(A, y, loss, s, order, level, 1000 * seed + q)) for s in each]
        found.append((np.array(values) - least) / (start - least))
    return np.minimum(found, 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, choices=(1, 2), default=2, help="norm of the noise")
    parser.add_argument("--seeds", type=int, default=3, help="tables of a kind; each third is rare")
    parser.add_argument(
        "--columns", type=int, nargs="+", default=[15], help="the intercept among them"
    )
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[2],
        help="2 alone, several above 2, or 1 alone for a regression",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=3000)
    given = parser.parse_args()
    order, search = given.order, search_of(given.classes[0])
    if any(search_of(K) is not search for K in given.classes):
        parser.error("--classes must be 2 alone, several above 2, or 1 alone")
    tables = [
        (*table(kind, given.rows, n - 1, seed % 3 == 2, 100 * seed + k, K), K)
        for K in given.classes for n in given.columns
        for k, kind in enumerate(KINDS) for seed in range(given.seeds)
    ]  # fmt: skip
    levels, tried = search.levels[order], search.grid(order)
    shares = np.array([left(*t, [tried] * len(levels), order, k) for k, t in enumerate(tables)])
    asked = [loss_of(given.classes[0], level)[1] for level in levels]
    print(f"L{order}: level, share left (worst tenth) by the best")
    for q, level in enumerate(asked):
        for k in np.argsort(shares[:, q].mean(axis=0))[:4]:
            mean, worst = shares[:, q, k].mean(), np.quantile(shares[:, q, k], 0.9)
            print(f"{level:9.4f} {mean:7.3f} ({worst:.3f})  {tuple(tried[k])}")
    known = {"classes": given.classes[0], "of_residuals": given.classes[0] == 1}
    chosen = [[settings_for(order, level, **known)] for level in asked]
    shares = np.array([left(*t, chosen, order, k) for k, t in enumerate(tables)])[:, :, 0]
    print("by the settings of the package")
    for q, level in enumerate(asked):
        mean, worst = shares[:, q].mean(), np.quantile(shares[:, q], 0.9)
        print(f"{level:9.4f} {mean:7.3f} ({worst:.3f})  {tuple(*chosen[q])}")


if __name__ == "__main__":
    main()
