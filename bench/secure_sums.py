"""Attacks on secure sums: how far one record moves the integers of its client, beside the bound.

    OPENBLAS_NUM_THREADS=1 python bench/secure_sums.py [--pairs 50000]
    OPENBLAS_NUM_THREADS=1 python bench/secure_sums.py --whole-clients

Neighbours are clients that differ in one of their rows: random rows of random sizes, and pairs that
are made to move the sums furthest. What is attacked is what runs do, from rows to integers. With
`--whole-clients`: what hiding all of a client costs with sums and without, on synthetic rows.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedepm_fast import FedEPM, FederatedData
from fedepm_fast.losses import Logistic, Multinomial, Objective
from fedepm_fast.mechanisms import client_moments
from fedepm_fast.objectives import Problem
from fedepm_fast.privacy import GaussianMechanism, plan
from fedepm_fast.privacy._sum_run import moves_of, sums_of_moments, sums_of_moves
from fedepm_fast.privacy.secure_sum import SecureSum
from fedepm_fast.private_runs import private_problem

#: Columns, rows of a client, and bounds on the sizes of rows in gradients and in moments.
P, ROWS, CLIP, RADIUS = 6, 3, 2.0, 3.0
#: How far the two rows of a pair are apart in the direction of the point, where all margins are
#: far from 0.
_TILT, _FAR = 0.02, 1e4


def _shares(sums: SecureSum, values: np.ndarray) -> np.ndarray:
    """How far each pair of neighbours is apart, in integers, over the bound."""
    whole = sums.encode(values)
    moved = np.linalg.norm((whole[0::2] - whole[1::2]).astype(np.float64), axis=1)
    return moved / (sums.sensitivity / sums.grid + np.sqrt(sums.n))


def gradients(pairs: int, seed: int, objective: Objective, bits: int) -> np.ndarray:
    """Of the sums of gradients, shape (pairs,); the second half is of pairs that are made."""
    rng, made = np.random.default_rng(seed), pairs // 2
    outputs = objective.n_outputs
    A = rng.normal(size=(pairs, 2, ROWS, P)) * 10 ** rng.uniform(-2, 2, (pairs, 1, ROWS, 1))
    b = rng.integers(0, max(outputs, 2), (pairs, 2, ROWS)).astype(np.float64)
    A[:, 1, 1:], b[:, 1, 1:] = A[:, 0, 1:], b[:, 0, 1:]  # neighbours differ in the first row
    along = rng.normal(size=(made, P))
    along[:, 0] = 0.0
    along /= np.linalg.norm(along, axis=1)[:, None]
    for side, sign in enumerate((1.0, -1.0)):
        A[-made:, side, 0] = 100 * along
        A[-made:, side, 0, 0] = 100 * sign * _TILT
        b[-made:, side, 0] = side
    x = np.zeros((outputs, P))
    x[0, 0] = _FAR
    if outputs > 1:
        x[:2, 0] = -_FAR, _FAR  # the first row is taken for class 1 and is of class 0
    sizes = np.full(2 * pairs, ROWS)
    data = FederatedData(A.reshape(-1, P), b.ravel(), sizes)
    mechanism = GaussianMechanism(total_epsilon=1.0, clip=CLIP)
    algorithm = FedEPM(mechanism=mechanism, lam=0.0, eta=0.5)
    problem = private_problem(mechanism, Problem(data, objective))
    plan = algorithm.plan(problem, np.ones(2 * pairs, np.int64))
    assert plan is not None
    # Of a sum of few clients, which has room for them whatever the number of pairs.
    few = plan._replace(change=plan.change[:10])
    sums = sums_of_moves(few, sizes[:10], x.size, 0.5, 1.0, clients=10, honest=1.0, bits=bits)
    return _shares(sums, moves_of(problem, plan, 0.5, np.arange(2 * pairs), x.ravel()) * ROWS)


def moments(pairs: int, seed: int, bits: int) -> np.ndarray:
    """Of the sums of second moments, alike."""
    rng, made = np.random.default_rng(seed), pairs // 2
    A = rng.normal(size=(pairs, 2, ROWS, P)) * 10 ** rng.uniform(-2, 2, (pairs, 1, ROWS, 1))
    A[:, 1, 1:] = A[:, 0, 1:]
    first, second = rng.normal(size=(2, made, P))
    square = (first**2).sum(axis=1)[:, None]
    second -= (first * second).sum(axis=1)[:, None] / square * first  # two directions, orthogonal
    A[-made:, 0, 0], A[-made:, 1, 0] = 100 * first, 100 * second
    values = np.array([client_moments(a, RADIUS, 2) for a in A.reshape(-1, ROWS, P)]) * ROWS
    sizes = np.full(10, ROWS)
    sums = sums_of_moments(RADIUS, sizes, P, 1.0, clients=10, honest=1.0, bits=bits)
    return _shares(sums, values)


def attacks(pairs: int, seed: int) -> dict[str, np.ndarray]:
    """All of it, on a fine and on a coarse grid."""
    classes = Multinomial(classes=3, beta=0.0)
    return {
        f"{name}, {bits} bits": attack(bits)
        for bits in (32, 14)
        for name, attack in (
            ("gradients, logistic", lambda bits: gradients(pairs, seed, Logistic(beta=0.0), bits)),
            ("gradients, 3 classes", lambda bits: gradients(pairs, seed, classes, bits)),
            ("second moments", lambda bits: moments(pairs, seed, bits)),
        )
    }


def whole_clients(runs: int = 20, epsilon: float = 1.0) -> None:
    """Print accuracy where all records of a client are hidden, median of so many runs."""
    for m in (100, 300, 1000):
        rng = np.random.default_rng(m)
        A, w = rng.normal(size=(100 * m, 10)), rng.normal(size=10) / 1.5
        A[:, -1] = 1
        labels = (rng.random(len(A)) < 1 / (1 + np.exp(-A @ w))).astype(np.float64)
        data = FederatedData(A, labels, np.full(m, 100))
        best = (labels == (A @ w > 0)).mean()
        for trust in ("secure-sum", "clients"):
            planned = plan(epsilon, data.client_sizes, 10, trust=trust, neighbours="client")
            found = [planned.run(data, seed=2**50 + k).accuracy for k in range(runs)]
            print(
                f"{m} clients of 100 rows, epsilon {epsilon:g}, {trust}: {np.median(found):.3f} "
                f"(lowest {min(found):.3f}; of the true coefficients {best:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole-clients", action="store_true")
    options = parser.parse_args()
    if options.whole_clients:
        whole_clients()
        raise SystemExit
    for name, found in attacks(options.pairs, options.seed).items():
        print(
            f"{name}: {len(found)} pairs of neighbours, furthest {found.max():.5f} of the bound, "
            f"{(found > 1).sum()} above it, {(found > 0.99).sum()} within 1 %",
            flush=True,
        )
