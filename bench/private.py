"""What privacy costs, by who is trusted: accuracies and mean losses of docs/privacy.md.

Four tables, each of columns that public numbers prepare, and an intercept:

* Adult, 45,222 rows, 100 clients: means and deviations declared public;
* breast cancer, 569 rows, 5 clients: alike; judged on a fifth of the rows that is held out;
* digits, 1,797 rows, 10 classes, 20 clients: pixels of 0 to 16 over 8; judged on a fifth, too;
* synthetic, 1,000,000 rows, 1,000 clients that differ in size and law: as drawn.

Every trial has noise of its own, and a split but where the clients are given. Each is a line of the
file of results, and what is there is not run again:

    python bench/private.py run results.jsonl --trials 20
    python bench/private.py run results.jsonl --trials 20 --how central   # needs diffprivlib
    python bench/private.py show results.jsonl --figure docs/images/privacy.png

diffprivlib 0.6.6 needs an environment of its own: with scikit-learn 1.6.1, for it fails with 1.9.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedepm_fast import FederatedData, Logistic, Multinomial, Problem, datasets
from fedepm_fast.data import standardised
from fedepm_fast.data.synthetic import make_federated
from fedepm_fast.privacy import PrivatePlan, plan

DELTA = 1e-6
LOGISTIC = Logistic(beta=0.0)


@dataclass(frozen=True)
class Trial:
    """What one trial learns from and is judged on: prepared columns, the last an intercept."""

    data: FederatedData
    test: FederatedData
    loss: Any


def dealt(table: FederatedData, m: int, seed: int, loss: Any, held: float = 0.0) -> Trial:
    """Rows in random order: the first are held out, the others dealt to m equal clients."""
    A, y = table.features, table.labels
    order = np.random.default_rng(seed).permutation(len(y))
    out = round(held * len(y))
    test, rows = order[:out], order[out:]
    sizes = np.diff(np.linspace(0, len(rows), m + 1).round().astype(int))
    data = FederatedData(A[rows], y[rows], sizes)
    judged = FederatedData(A[test], y[test], [out]) if out else data
    return Trial(data, judged, loss)


def adult(seed: int) -> Trial:
    return dealt(standardised(datasets.adult(clients=1)), 100, seed, LOGISTIC)


def breast_cancer(seed: int) -> Trial:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return dealt(standardised(FederatedData(X, y, [len(y)])), 5, seed, LOGISTIC, 0.2)


def digits(seed: int) -> Trial:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    A = np.column_stack([X / 8, np.ones(len(X))])
    loss = Multinomial(beta=0.0, classes=10)
    return dealt(FederatedData(A, y, [len(y)]), 20, seed, loss, 0.2)


@functools.cache
def million() -> Trial:
    """Clients that differ in size and law: there is no other split of their rows."""
    made = make_federated(
        clients=1000, samples=1_000_000, features=30, heterogeneity=0.3, imbalance=0.5,
        noise=0.5,
    )  # fmt: skip
    A = np.column_stack([made.features, np.ones(made.n_samples)])
    data = FederatedData(A, made.labels, made.client_sizes)
    return Trial(data, data, LOGISTIC)


def synthetic(seed: int) -> Trial:
    return million()


@dataclass(frozen=True)
class Table:
    make: Callable[[int], Trial]
    words: str
    trials: int = 10_000
    """At most so many."""


TABLES = {
    "adult": Table(adult, "Adult, 100 clients"),
    "breast cancer": Table(breast_cancer, "breast cancer, 5 clients"),
    "digits": Table(digits, "digits, 20 clients"),
    "synthetic": Table(synthetic, "1,000,000 x 30, 1,000 clients", 5),
}


def majority(trial: Trial, epsilon: float, seed: int) -> dict[str, float]:
    """The commonest class, and the loss of the classes' shares."""
    learned, judged = (
        np.unique(data.labels, return_counts=True) for data in (trial.data, trial.test)
    )
    shares = dict(zip(learned[0], learned[1] / learned[1].sum(), strict=True))
    best = max(shares, key=shares.__getitem__)
    counts = dict(zip(*judged, strict=True))
    total = sum(counts.values())
    loss = -sum(n * math.log(shares[label]) for label, n in counts.items()) / total
    return {"accuracy": counts[best] / total, "loss": loss}


def optimum(trial: Trial, epsilon: float, seed: int) -> dict[str, float]:
    """Without privacy: the pooled rows' optimum, with scikit-learn's default regulariser."""
    d = trial.data.n_samples
    pooled = FederatedData(trial.data.features, trial.data.labels, [d])
    loss = trial.loss.changed(beta=1 / d, regularizer="beta")
    return judged(trial, Problem(pooled, loss).optimum(method="newton").x)


def judged(trial: Trial, x: np.ndarray) -> dict[str, float]:
    """Accuracy and mean loss of a point."""
    test = trial.test
    problem = Problem(FederatedData(test.features, test.labels, [test.n_samples]), trial.loss)
    return {"accuracy": problem.accuracy(x), "loss": problem.total_value(x)}


def planned(trial: Trial, epsilon: float, how: dict[str, Any]) -> PrivatePlan:
    """The plan of a private run, from public numbers."""
    data = trial.data
    return plan(epsilon, data.client_sizes, data.n_features, objective=trial.loss, **how)


def private(trial: Trial, made: PrivatePlan, seed: int) -> dict[str, float]:
    """A private run by its plan, and its processor time."""
    started = time.process_time()
    x = made.run(trial.data, seed=2**40 + seed, public_scaling=True, every_accuracy=False).x
    return judged(trial, x) | {"seconds": time.process_time() - started}


def mean(trial: Trial, epsilon: float, seed: int) -> dict[str, float]:
    """Laplace noise, and at the server the mean instead of ENS."""
    made = planned(trial, epsilon, {"delta": 0.0})
    algorithm = dataclasses.replace(made.algorithm, noise_l1=0.0)
    return private(trial, dataclasses.replace(made, algorithm=algorithm), seed)


def central(trial: Trial, epsilon: float, seed: int) -> Iterator[dict[str, float]]:
    """diffprivlib's logistic regression by a curator who has all rows (pure epsilon), with each of
    nine settings, of which `show` takes the best, in its favour; of a million rows, with one."""
    from diffprivlib.models import LogisticRegression

    X, y, columns = trial.data.features[:, :-1], trial.data.labels, trial.data.n_features - 1
    few = len(y) < 100_000
    for norm, C in itertools.product((0.7, 1.0, 1.4), (0.01, 0.1, 1.0)) if few else [(1.0, 1.0)]:
        model = LogisticRegression(
            epsilon=epsilon, data_norm=norm * math.sqrt(columns), C=C, max_iter=500,
            random_state=seed,
        ).fit(X, y)  # fmt: skip
        accuracy = float(model.score(trial.test.features[:, :-1], trial.test.labels))
        yield {"accuracy": accuracy, "norm": norm, "C": C}


@dataclass(frozen=True)
class How:
    words: str
    row: str
    """Who is trusted, what is protected, and how, as of the page's table."""
    how: dict[str, Any] | Callable[[Trial, float, int], Any]
    """Arguments of `plan`, or what there is instead of one."""
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
    tables: tuple[str, ...] = tuple(TABLES)

    def run(self, trial: Trial, epsilon: float, seed: int) -> Any:
        if isinstance(self.how, dict):
            return private(trial, planned(trial, epsilon, self.how), seed)
        return self.how(trial, epsilon, seed)


PURE = (0.25, 0.5, 1.0, 2.0, 5.0)
NONE = (math.inf,)
SUMS = {"delta": DELTA, "trust": "secure-sum"}
WHOLE = {"neighbours": "client"}
HOW = {
    "gaussian": How("nobody, Gaussian", "nobody | a record | `plan(1.0, ...)`", {"delta": DELTA}),
    "laplace": How("nobody, Laplace", "nobody | a record, pure | `delta=0`", {"delta": 0.0}, PURE),
    "mean": How("Laplace, and the mean", "", mean, (0.25, 0.5), ("adult",)),
    "client": How(
        "nobody, whole clients",
        'nobody | all of a client | `neighbours="client"`',
        {"delta": DELTA, **WHOLE},
    ),
    "sums": How("sums", 'a server of sums | a record | `trust="secure-sum"`', SUMS),
    "client sums": How(
        "sums, whole clients", "a server of sums | all of a client | both", SUMS | WHOLE
    ),
    "central": How(
        "a curator (diffprivlib)", "a curator | a record, pure | diffprivlib", central, PURE
    ),
    "optimum": How("no privacy", "everybody | nothing | the optimum", optimum, NONE),
    "majority": How("the commonest class", "| | the commonest class", majority, NONE),
}


def run(path: Path, tables: list[str], ways: list[str], trials: int) -> None:
    """What is not in the file yet, a line a trial."""
    lines = path.read_text().splitlines() if path.exists() else []
    done = {tuple(json.loads(line)["key"]) for line in lines}
    with path.open("a") as file:
        for name in tables:
            for seed in range(min(trials, TABLES[name].trials)):
                todo = [
                    (way, epsilon)
                    for way in ways
                    if name in HOW[way].tables
                    for epsilon in HOW[way].epsilons
                    if (name, way, epsilon, seed) not in done
                ]
                if not todo:
                    continue
                trial = TABLES[name].make(seed)
                for way, epsilon in todo:
                    found = HOW[way].run(trial, epsilon, seed)
                    found = [found] if isinstance(found, dict) else list(found)
                    key = [name, way, epsilon, seed]
                    file.write(json.dumps({"key": key, "found": found}) + "\n")
                    file.flush()
                    best = max(one["accuracy"] for one in found)
                    print(f"{name} {seed}: {way} {epsilon:g}: {best:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("results", type=Path)
    running.add_argument("--trials", type=int, default=20)
    running.add_argument("--tables", choices=TABLES, nargs="+", default=[*TABLES])
    running.add_argument(
        "--how", choices=HOW, nargs="+", default=[way for way in HOW if way != "central"]
    )
    showing = commands.add_parser("show")
    showing.add_argument("results", type=Path)
    showing.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        warnings.simplefilter("ignore")
        run(arguments.results, arguments.tables, arguments.how, arguments.trials)
    else:
        import private_report

        private_report.show(arguments.results, arguments.figure)


if __name__ == "__main__":
    main()
