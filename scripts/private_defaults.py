"""Derive the settings of private runs from synthetic data, for `fedepm_fast.privacy.defaults`.

The tables are made here, from no one's data: columns of codes and counts with skewed values, as
questionnaires have, scaled to unit norm and split into clients by random cuts. Of a grid of
settings the one is taken, for each total epsilon, that closes most of the way from w = 0 to the
optimum in the median over tables, splits and noise.

    python scripts/private_defaults.py [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import numpy as np

from fedepm_fast import FedEPM, FederatedData, Problem, make_problem
from fedepm_fast.data.partition import RandomCuts
from fedepm_fast.engine import simulate
from fedepm_fast.kernels import losses
from fedepm_fast.privacy import LaplaceMechanism
from fedepm_fast.private_runs import private_problem
from fedepm_fast.randomness import CounterRandomness
from fedepm_fast.stopping import NoRule

EPSILONS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
CLIENTS, ROWS, FEATURES = 100, 40_000, 15

GRID: dict[str, list[Any]] = {
    "rounds": [2, 3, 4, 6, 8, 12, 20],
    "local_steps": [1, 2, 4, 8, 16],
    "mu0": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5],
    "start": ["released", "broadcast"],
    "participation": [0.5, 1.0],
    "aggregation": ["equal", "uploaded", "inverse_variance"],
}


def table(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A questionnaire: skewed codes and counts, and a binary answer that follows from them."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, FEATURES))
    hidden = 0.5 * common + rng.normal(size=(ROWS, FEATURES))
    levels = rng.integers(2, 40, FEATURES)
    shape = rng.uniform(0.5, 2.0, FEATURES)
    shares = 1 / (1 + np.exp(-hidden)) ** shape
    features = np.floor(levels * shares)
    margin = (features / levels) @ rng.normal(size=FEATURES) * 2
    margin += rng.uniform(-1.5, 0.0) - np.median(margin)
    labels = (rng.random(ROWS) < 1 / (1 + np.exp(-margin))).astype(float)
    return features, labels


def problems(seed: int) -> tuple[Problem, Problem, float]:
    """A split table, the same with rows clipped, and its optimum."""
    features, labels = table(seed)
    data = FederatedData.split(features, labels, RandomCuts(CLIENTS), scale="unit-norm", seed=seed)
    problem = make_problem(FedEPM(), data)
    mechanism = LaplaceMechanism(total_epsilon=1.0).resolve(data.n_samples, data.n_features)
    return problem, private_problem(mechanism, problem), problem.optimum(method="newton").value


def closed(case: tuple[Problem, Problem, float], epsilon: float, seed: int, **given: Any) -> float:
    """Share of the way from w = 0 to the optimum that a run closes."""
    problem, clipped, optimum = case
    rounds = given.pop("rounds")
    algorithm = FedEPM(mechanism=LaplaceMechanism(total_epsilon=epsilon), **given).resolve(clipped)
    with np.errstate(all="ignore"):
        outcome = simulate(
            algorithm, clipped, CounterRandomness(seed), NoRule(), max_rounds=rounds,
            every_accuracy=False,
        )  # fmt: skip
    start = CLIENTS * math.log(2)
    value = losses.values(problem.rows, outcome.x, reg=problem.reg).sum()
    return float((start - value) / (start - optimum))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    arguments = parser.parse_args()
    quick = arguments.quick
    cases = [problems(seed) for seed in range(2 if quick else 12)]
    settings = [
        dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())
    ]
    for epsilon in arguments.epsilons:
        found = []
        for given in settings:
            shares = [closed(case, epsilon, k, **given) for k, case in enumerate(cases)]
            found.append((np.median(shares), given))
        found.sort(key=lambda pair: -pair[0])
        # The best of a noisy grid is in part luck: the best ones again, with more runs.
        again = []
        for _, given in found[:60]:
            shares = [
                closed(case, epsilon, 1000 * k + trial, **given)
                for k, case in enumerate(cases)
                for trial in range(8)
            ]
            again.append((float(np.median(shares)), float(np.quantile(shares, 0.1)), given))
        again.sort(key=lambda row: (-row[0], -row[1]))
        for median, low, given in again[:3]:
            print(f"{epsilon:>6} {100 * median:6.2f} {100 * low:6.2f} {given}", flush=True)


if __name__ == "__main__":
    main()
