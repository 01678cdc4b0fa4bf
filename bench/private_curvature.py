"""Private runs of `private_settings` and of `curvature_settings` beside each other: of
docs/privacy.md, "How well it works".

Tables: Adult, and synthetic ones that `scripts/private_curvature.py` did not see. Columns: of unit
norm without an intercept, as the paper has them, or standardised by public numbers, with one. No
regulariser. Medians over splits and noise of the share of the way from w = 0 to the optimum in
these columns, and of the accuracy on all rows.

    python bench/private_curvature.py --trials 10
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fedepm_fast import FedEPM, FederatedData, Logistic, Problem, datasets, run
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.privacy.curvature import curvature_settings
from fedepm_fast.privacy.defaults import private_settings
from fedepm_fast.result import DivergenceWarning

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import private_curvature as synthetic

COLUMNS = ("standardised", "unit-norm")
EPSILONS = (0.5, 1.0, 2.0, 5.0)
MECHANISMS = {"laplace": LaplaceMechanism, "gaussian": GaussianMechanism}


def coordinates(X: np.ndarray, kind: str) -> np.ndarray:
    """Columns of root mean square 1: standardised with an intercept, or as they are, without."""
    if kind == COLUMNS[0]:
        return np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    return X / np.sqrt((X**2).mean(axis=0))


def split(A: np.ndarray, y: np.ndarray, m: int, seed: int, skewed: bool) -> FederatedData:
    """Rows dealt to m clients, of equal sizes or of sizes up to 1:30."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    parts = np.exp(rng.uniform(0, np.log(30), m)) if skewed else np.ones(m)
    ends = np.round(np.cumsum(parts) / parts.sum() * len(y)).astype(int)
    return FederatedData(A[order], y[order], np.diff(ends, prepend=0))


def private(data: FederatedData, mechanism: Any, curvature: bool, seed: int) -> np.ndarray:
    """The last point of a run."""
    d, n = data.features.shape
    if curvature:
        found = curvature_settings(mechanism, data.client_sizes, n)
        return run(
            found.algorithm, data, objective=Logistic(beta=0.0), rounds=found.rounds, seed=seed,
            every_accuracy=False, engine="reference",
        ).x  # fmt: skip
    # Of unit norm, as these settings want them.
    scaled = FederatedData(data.features / np.sqrt(d), data.labels, data.client_sizes)
    settings = private_settings(mechanism.total_epsilon)
    rounds = settings.pop("rounds")
    x = run(
        FedEPM(mechanism=mechanism, **settings), scaled, objective=Logistic(beta=0.0),
        rounds=rounds, seed=seed, every_accuracy=False, engine="reference",
    ).x  # fmt: skip
    return x / np.sqrt(d)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--table", choices=["adult", "synthetic"], default="adult")
    parser.add_argument("--columns", choices=COLUMNS, nargs="+", default=COLUMNS)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 10], help="of Adult")
    parser.add_argument("--mechanisms", choices=MECHANISMS, nargs="+", default=[*MECHANISMS])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DivergenceWarning)
    cases: list[tuple[str, np.ndarray, np.ndarray, int, bool]] = []
    if arguments.table == "adult":
        table = datasets.load_adult(scaled=False)
        X, y = np.asarray(table.features, float), np.asarray(table.labels, float)
        cases = [("Adult", X, y, m, False) for m in arguments.clients]
    else:
        synthetic.ROWS = 20_000
        for kind in ("questionnaire", "correlated", "skewed"):
            for p, m, rare, skewed in (
                (6, 5, False, False),
                (12, 20, True, True),
                (20, 100, False, False),
            ):
                A, y = synthetic.table(kind, p, rare, 10_000)
                cases.append((f"{kind} {p} columns", A[:, :-1], y, m, skewed))
    for name, X, y, m, skewed in cases:
        for kind in arguments.columns:
            A = coordinates(X, kind)
            problem = Problem(FederatedData(A, y, [len(y)]), Logistic(beta=0.0))
            best, start = problem.optimum(method="newton"), np.log(2)
            print(
                f"{name}, {m} clients, {kind} columns: majority {max(y.mean(), 1 - y.mean()):.4f}, "
                f"optimum {problem.accuracy(best.x):.4f}"
            )
            for law in arguments.mechanisms:
                for epsilon in EPSILONS:
                    told = []
                    for curvature in (False, True):
                        shares, hits = [], []
                        for seed in range(arguments.trials):
                            data = split(A, y, m, seed, skewed)
                            mechanism = MECHANISMS[law](total_epsilon=epsilon, public_scaling=True)
                            x = private(data, mechanism, curvature, 2**40 + seed)
                            shares.append((start - problem.total_value(x)) / (start - best.value))
                            hits.append(problem.accuracy(x))
                        share, hit = statistics.median(shares), statistics.median(hits)
                        told.append(f"{100 * share:6.1f} % {hit:.4f}")
                    print(
                        f"  {law:8} epsilon {epsilon:3g}: private_settings {told[0]}, "
                        f"curvature {told[1]}", flush=True,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
