"""Least squares under local privacy: clipped gradients, as `privacy.plan` has them, beside one
release of the sufficient statistics.

``python bench/private_least_squares.py [--delta 0]`` prints the share of the labels' variance that
is lost beside least squares on all rows; medians of 5 seeds. Columns and labels are brought to a
deviation of about 1 by their own numbers, which are taken as public. The sufficient statistics
are the second moments of rows (a, b/s) clipped in a to the norm of ones, labels within bounds of
four of their deviations and s such that they take a fourth of the radius' square; solved with the
eigenvalues of A'A raised to the edge of its noise, or with that added to them, whichever is better.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_diabetes

from fedepm_fast import FederatedData
from fedepm_fast.mechanisms import LaplaceMechanism, mean_moments, simulate_moments
from fedepm_fast.privacy import GaussianMechanism, plan
from fedepm_fast.randomness import CounterRandomness

SEEDS, BOUND = 5, 4.0


def tables():
    """Name, columns and labels: alike columns, ones of three factors, skew and heavy tails."""
    rng = np.random.default_rng(0)
    for rows in (2_000, 20_000):
        A = rng.normal(size=(rows, 10))
        yield f"normal {rows}", A, A @ rng.normal(size=10) + 2 * rng.normal(size=rows)
        A = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 14)) + 0.3 * rng.normal(
            size=(rows, 14)
        )
        t = A @ rng.normal(size=14)
        yield f"factors {rows}", A, t + t.std() * rng.normal(size=rows)
        A = np.exp(0.8 * rng.normal(size=(rows, 8)))
        t = np.log(A) @ rng.normal(size=8)
        yield f"skew {rows}", A, t + 0.7 * t.std() * rng.standard_t(3, size=rows)
    found = load_diabetes()
    yield "diabetes", found.data, found.target


def sums(data: FederatedData, mechanism, seed: int):
    """The best of two solutions of the released sums, in the mean squared error on all rows."""
    p, order = data.n_features, mechanism.order
    most = np.sqrt(p) if order == 2 else p
    factor = np.minimum(1, most / np.linalg.norm(data.features, ord=order, axis=1))
    label = np.sqrt(p / 3) if order == 2 else p / 3  # of BOUND
    rows = np.column_stack([data.features, data.labels * label / BOUND]) * factor[:, None]
    whole = FederatedData(rows, data.labels, data.client_sizes)
    radius = np.sqrt(most**2 + label**2) if order == 2 else most + label
    each = mechanism.noise_multipliers(np.ones(data.n_clients, np.int64))
    values, scales = simulate_moments(whole, mechanism, radius, each, CounterRandomness(seed))
    moments, edge = mean_moments(values, scales, 1 / scales, order)
    w, V = np.linalg.eigh(moments[:p, :p])
    b = V.T @ moments[:p, p] * BOUND / label
    found = V @ (b / np.maximum(w, edge)), V @ (b / (np.maximum(w, 0) + edge))
    return min(found, key=lambda x: error(data, x))


def error(data: FederatedData, x) -> float:
    return float(np.mean((data.features @ x - data.labels) ** 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delta", type=float, default=1e-6)
    delta = parser.parse_args().delta
    print("table            R2     m  eps   sums  gradients  rounds  delta of Huber")
    for name, A, b in tables():
        A = np.column_stack([(A - A.mean(0)) / A.std(0), np.ones(len(A))])
        b = np.clip((b - b.mean()) / b.std(), -BOUND, BOUND)
        for m in (5, 100) if len(A) > 1_000 else (5,):
            sizes = np.bincount(np.arange(len(A)) % m)
            data = FederatedData(A, b, sizes)
            best = error(data, np.linalg.lstsq(A, b, rcond=None)[0])
            for epsilon in (0.5, 1.0, 2.0, 5.0, 10.0):
                planned = plan(epsilon, sizes, A.shape[1], delta=delta, objective="least_squares")
                law = GaussianMechanism if delta else LaplaceMechanism
                given = {"delta": delta} if delta else {}
                mechanism = law(total_epsilon=epsilon, **given)
                lost = [
                    (error(data, sums(data, mechanism, 2**40 + s)), error(
                        data, planned.run(data, seed=2**40 + s, public_scaling=True).x
                    ))
                    for s in range(SEEDS)
                ]  # fmt: skip
                one, other = (np.median(lost, axis=0) - best) / b.var()
                print(
                    f"{name:15} {1 - best / b.var():.2f} {m:5} {epsilon:4g} {one:6.3f} "
                    f"{other:10.3f} {planned.rounds:7} {planned.objective.delta:7.2f}", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
