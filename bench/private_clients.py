"""Whole clients hidden, by how many they are: the table of docs/privacy_why.md.

Tables of the first four kinds of ``scripts/synthetic_tables.py``, other draws than those that the
settings were made from, of 14 columns and an intercept, dealt to clients of 20 rows. For every
number of clients, epsilon and whom they trust: the share of the way from w = 0 to the optimum that
planned runs close and their accuracy, beside the optimum's and the larger class; medians over
tables and seeds, and the worst.

    python bench/private_clients.py [--trials 2] [--clients 100 1000 10000]
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

from fedepm_fast import FederatedData, Logistic, Problem
from fedepm_fast.privacy import plan

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from synthetic_tables import KINDS, table

FEATURES, ROWS = 14, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2, help="tables of each of four kinds")
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 5.0])
    asked = parser.parse_args()
    for m in asked.clients:
        tables = []
        for k in range(4 * asked.trials):
            A, y = table(KINDS[k % 4], m * ROWS, FEATURES, False, 10_000 + k)
            data = FederatedData(A, y, np.full(m, ROWS))
            problem = Problem(data, Logistic(beta=0.0))
            best = problem.optimum(method="newton")
            larger = max(y.mean(), 1 - y.mean())
            tables.append((data, best.value / m, problem.accuracy(best.x), larger))
        print(
            f"{m} clients: optimum {np.median([t[2] for t in tables]):.4f}, "
            f"larger class {np.median([t[3] for t in tables]):.4f}"
        )
        for trust, delta in (("clients", 0.0), ("clients", 1e-6), ("secure-sum", 1e-6)):
            for epsilon in asked.epsilons:
                closed, accuracy = [], []
                for seed, (data, best, *_) in enumerate(tables):
                    planned = plan(
                        epsilon, data.client_sizes, FEATURES + 1, delta=delta, trust=trust,
                        neighbours="client",
                    )  # fmt: skip
                    found = planned.run(
                        data, seed=2**40 + seed, public_scaling=True, every_accuracy=False
                    ).history
                    start = math.log(2)
                    closed.append((start - found["objective"][-1] / m) / (start - best))
                    accuracy.append(found["accuracy"][-1])
                print(
                    f"  {trust:10} delta {delta:5g} epsilon {epsilon:4g}: closed "
                    f"{np.median(closed):6.1%} (worst {min(closed):6.1%}), accuracy "
                    f"{np.median(accuracy):.4f} (worst {min(accuracy):.4f}), planned rise "
                    f"{planned.rise:.3f}", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
