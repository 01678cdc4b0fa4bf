"""Accuracy on Adult beside what "closed" says: of docs/privacy.md, "How well it works".

The larger class, the optimum of the paper's setting, that without its regulariser, private runs
without it, and an ordinary logistic regression (scikit-learn's). Medians over splits and noise.

    python bench/closed.py --trials 20
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedepm_fast import FedEPM, Logistic, datasets, make_problem, run
from fedepm_fast.privacy import LaplaceMechanism
from fedepm_fast.privacy.defaults import private_settings
from fedepm_fast.result import DivergenceWarning

CLIENTS = 100


def private(epsilon: float, seed: int) -> float:
    """Accuracy of a private run without regulariser, in the paper's columns."""
    settings = private_settings(epsilon)
    rounds = settings.pop("rounds")
    mechanism = LaplaceMechanism(total_epsilon=epsilon, public_scaling=True)
    result = run(
        FedEPM(mechanism=mechanism, **settings), datasets.adult(clients=CLIENTS, seed=seed),
        objective=Logistic(beta=0.0), rounds=rounds, seed=seed, every_accuracy=False,
    )  # fmt: skip
    assert result.accuracy is not None
    return result.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    warnings.simplefilter("ignore", DivergenceWarning)
    table = datasets.load_adult(scaled=False)
    ones = float(table.labels.mean())
    print(f"larger class {max(ones, 1 - ones):.4f}")
    for beta in (1e-3, 0.0):
        data = datasets.adult(clients=CLIENTS, seed=0)
        problem = make_problem(FedEPM(), data, objective=Logistic(beta=beta))
        accuracy = problem.accuracy(problem.optimum(method="newton").x)
        print(f"optimum, unit norm, no intercept, beta {beta:g}: {accuracy:.4f}")
    for epsilon in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0):
        found = [private(epsilon, seed) for seed in range(trials)]
        low, high = np.quantile(found, (0.25, 0.75))
        print(
            f"private, beta 0, epsilon {epsilon:g}: {statistics.median(found):.4f} "
            f"(quartiles {low:.4f} to {high:.4f}, best {max(found):.4f})"
        )
    columns = StandardScaler().fit_transform(table.features)
    ordinary = LogisticRegression(max_iter=500).fit(columns, table.labels)
    print(f"logistic regression, standardised: {ordinary.score(columns, table.labels):.4f}")


if __name__ == "__main__":
    main()
