"""Attacks on sensitivities: how far one record moves moments and gradients, beside the bounds.

    OPENBLAS_NUM_THREADS=1 python bench/sensitivities.py [--pairs 50000]

Neighbours are clients that differ in one of their rows. Half of the pairs are random, of all sizes
and in random coordinates; the others are climbers, which change at random and keep what moves more.
What is attacked is what runs and clients do with rows, from the coordinates to the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from fedepm_fast import FederatedData, ScalarLoss
from fedepm_fast.losses import Huber, Logistic, Multinomial, Objective, Poisson, SquaredHinge
from fedepm_fast.mechanisms import client_moments, moments_change, privacy_plan
from fedepm_fast.objectives import Problem
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.private_runs import private_problem, problem_in

#: Columns, bounds on the sizes of rows in gradients and in moments, and how often climbers move.
P, CLIP, RADIUS, MOVES = 4, 2.0, 3.0, 400
#: Climbers at a time, at one point and in the same coordinates.
LEAST, MOST = 4, 25

LOSSES = {
    "logistic": Logistic(beta=0.0),
    "3 classes": Multinomial(classes=3, beta=0.0),
    "Huber": Huber(beta=0.0, delta=0.7),
    "squared hinge": SquaredHinge(beta=0.0, slope=1.5),
    "Poisson": Poisson(beta=0.0, slope=0.6),
    "two numbers": ScalarLoss(  # whose gradient exceeds the slope that it is clipped to
        0.0,
        value=lambda t, y: 0.5 * (t - y) ** 2,
        gradient=lambda t, y: t - y,
        slope=40.0,
        curvature=1.0,
    ),
}

#: Of rows (pairs, 2, d, P) and labels (pairs, 2, d), how far apart over the bound.
Attack = Callable[[np.ndarray, np.ndarray], np.ndarray]


def random_pairs(rng: np.random.Generator, pairs: int, classes: int) -> tuple[np.ndarray, ...]:
    """Rows and labels of pairs that differ in their first row; some rows are along few axes."""
    d = int(rng.integers(1, 6))
    rows = rng.normal(size=(pairs, 2, d, P)) * 10 ** rng.uniform(-2, 3, (pairs, 2, d, 1))
    rows[(rng.random(rows.shape) < 0.5) & (rng.random((pairs, 1, d, 1)) < 0.5)] = 0.0
    labels = rng.integers(0, classes, (pairs, 2, d)).astype(np.float64)
    rows[:, 1, 1:], labels[:, 1, 1:] = rows[:, 0, 1:], labels[:, 0, 1:]
    return rows, labels


def climbed(
    attack: Attack, rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator, classes: int
) -> Iterator[np.ndarray]:
    """How far all are apart that pairs become, which keep what is further."""
    best, width = attack(rows, labels), np.ones(len(rows))
    for _ in range(MOVES):
        size = np.linalg.norm(rows[:, :, 0], axis=-1, keepdims=True) + 1e-3
        tried, other = rows.copy(), labels.copy()
        step = rng.normal(size=(*size.shape[:-1], P)) * (rng.random((len(rows), 1, P)) < 0.5)
        tried[:, :, 0] += width[:, None, None] * size * step
        flipped = rng.random((len(rows), 2)) < 0.1
        other[:, :, 0] = np.where(flipped, rng.integers(0, classes, flipped.shape), other[:, :, 0])
        found = attack(tried, other)
        better = found > best
        rows[better], labels[better], best[better] = tried[better], other[better], found[better]
        width *= np.where(better, 1.5, 0.93)
        yield found


def moments(order: int) -> Attack:
    """The attack on second moments in L1 or L2."""

    def attack(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        sent = [client_moments(a, RADIUS, order) for a in rows.reshape(-1, *rows.shape[2:])]
        moved = np.linalg.norm(np.subtract(sent[0::2], sent[1::2]), ord=order, axis=1)
        return moved / moments_change(RADIUS, [rows.shape[2]], order, P)[0]

    return attack


def gradients(order: int, objective: Objective, rng: np.random.Generator) -> Attack:
    """The attack on gradients in L1 or L2, at a point and in coordinates of its own."""
    law = LaplaceMechanism if order == 1 else GaussianMechanism
    mechanism = law(total_epsilon=1.0, clip=CLIP)
    x = rng.normal(size=objective.n_outputs * P) * 10 ** rng.uniform(0, 6)
    matrix = np.eye(P) if rng.random() < 0.5 else rng.normal(size=(P, P))

    def attack(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        sizes = np.full(2 * len(rows), rows.shape[2])
        problem = Problem(FederatedData(rows.reshape(-1, P), labels.ravel(), sizes), objective)
        problem = private_problem(mechanism, problem_in(problem, matrix))
        plan = privacy_plan(mechanism, problem, np.ones(len(sizes), np.int64))
        found = problem.gradients(x)
        return np.linalg.norm(found[0::2] - found[1::2], ord=order, axis=1) / plan.change[0::2]

    return attack


def attacked(
    make: Callable[[np.random.Generator], Attack], pairs: int, seed: int, classes: int = 2
) -> np.ndarray:
    """How far apart at least so many pairs are over the bound, half of them climbers."""
    rng, found, made = np.random.default_rng(seed), list[np.ndarray](), 0
    while made < pairs:
        climbers = min(max(pairs // 4 // MOVES, LEAST), MOST)
        attack = make(rng)
        found.append(attack(*random_pairs(rng, climbers * MOVES, classes)))
        found.extend(climbed(attack, *random_pairs(rng, climbers, classes), rng, classes))
        made = sum(map(len, found))
    return np.concatenate(found)


def attacks(pairs: int, seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """All of them, by name."""
    for order in (1, 2):
        yield f"moments, L{order}", attacked(lambda _, o=order: moments(o), pairs, seed)
        for name, loss in LOSSES.items():

            def make(rng: np.random.Generator, o: int = order, f: Objective = loss) -> Attack:
                return gradients(o, f, rng)

            found = attacked(make, pairs, seed, max(loss.n_outputs, 2))
            yield f"gradients of {name}, L{order}", found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, found in attacks(options.pairs, options.seed):
        print(
            f"{name}: {len(found)} pairs of neighbours, furthest {found.max():.5f} of the bound, "
            f"{(found > 1).sum()} above it, {(found > 0.99).sum()} within 1 %",
            flush=True,
        )
