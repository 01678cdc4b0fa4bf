"""Adult where bounds of its columns are all that is public: with their means and variances
released first, as `privacy.plan` has it, without, and standardised by the truth.

``python bench/private_bounds.py [--delta 0]`` prints accuracies, the median and the worst of 6
seeds, of 100 clients. Columns are brought to [-2, 2] by their range.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedepm_fast import FederatedData, datasets
from fedepm_fast.privacy import plan

EPSILONS, SEEDS, CLIENTS = (0.5, 1.0, 2.0, 5.0), 6, 100


def accuracies(A, b, sizes, epsilon, delta, bounds):
    planned = plan(epsilon, sizes, A.shape[1], delta=delta, bounds=bounds)
    found = []
    for seed in range(SEEDS):
        order = np.random.default_rng(100 + seed).permutation(len(A))
        result = planned.run(
            FederatedData(A[order], b[order], sizes), seed=2**40 + seed, public_scaling=True,
            every_accuracy=False,
        )  # fmt: skip
        found.append(result.accuracy)
    return f"{np.median(found):.3f} ({min(found):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delta", type=float, default=1e-6)
    delta = parser.parse_args().delta
    X, b = datasets.load_adult()[:2]
    X, b = np.asarray(X, float), np.asarray(b, float)
    low, one = X.min(axis=0), np.ones((len(X), 1))
    bounded = np.hstack([4 * (X - low) / (X.max(axis=0) - low) - 2, one])
    true = np.hstack([(X - X.mean(axis=0)) / X.std(axis=0), one])
    bounds = np.array([[-2.0] * X.shape[1] + [1.0], [2.0] * X.shape[1] + [1.0]])
    sizes = [len(part) for part in np.array_split(b, CLIENTS)]
    for epsilon in EPSILONS:
        rows = (bounded, None), (bounded, bounds), (true, None)
        found = [accuracies(A, b, sizes, epsilon, delta, given) for A, given in rows]
        print(f"{epsilon:4g}  bounds {found[0]}  and released {found[1]}  truth {found[2]}")


if __name__ == "__main__":
    main()
