"""The problems of the comparison: seven tables, dealt to 10 or 100 clients, in two coordinates.

A seed draws the split, and what is generated too. Every client counts alike (f is the sum of the
clients' f_i). "raw" columns are the paper's on Adult (unit norm; its regulariser, beta/d_i), of
mean 0 and standard deviation 1 on breast cancer, those of the pixels on digits (16, the means of
blocks of 2 x 2), and as drawn elsewhere; all but Adult have a column of ones and beta = 1e-3.
"whitened" columns have second moments that are the identity; the regulariser is then that of the
whitened coefficients, so that the optimum is another one: each run is measured against its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from battery_rivals import whitened
from scipy import sparse
from scipy.special import expit
from sklearn import datasets as tables

from fedepm_fast import FederatedData, datasets, synthetic
from fedepm_fast.data.partition import EqualParts
from fedepm_fast.losses import Logistic, Multinomial
from fedepm_fast.objectives import Problem

COORDINATES = ("raw", "whitened")
Make = Callable[[int, int], Problem]
#: Rows and columns of what is generated; a column of ones comes to them.
_ROWS, _COLUMNS = 2000, 10


class Posed(NamedTuple):
    """A problem, and how far there is to go."""

    problem: Problem
    start: float
    """f/m where all is zero, which is where runs start."""
    best: float
    """f/m at the optimum, by BFGS and Newton steps over all rows."""

    def below(self, share: float) -> float:
        """f/m where no more than that share of the way is left."""
        return self.best + share * (self.start - self.best)


def posed(name: str, clients: int, coordinates: str, seed: int) -> Posed:
    """The problem of that name, a pure function of the arguments."""
    problem = PROBLEMS[name](clients, seed)
    if coordinates == "whitened":
        data = problem.data
        if data.is_sparse:
            problem = Problem(replace(data, features=data.features.toarray()), problem.objective)
        problem = Problem(whitened(problem)[0].data, problem.objective)
    m, zero = problem.n_clients, np.zeros(problem.n_parameters)
    best = problem.optimum(method="newton").value
    return Posed(problem, problem.total_value(zero) / m, best / m)


def _dealt(features: Any, labels: Any, clients: int, seed: int, objective: Any) -> Problem:
    """Equal parts of the shuffled rows."""
    data = FederatedData.split(
        _with_ones(features), labels, EqualParts(clients), task=objective.task, seed=seed
    )
    return Problem(data, objective)


def _with_ones(features: Any) -> Any:
    return np.hstack([features, np.ones((len(features), 1))])


def _adult(clients: int, seed: int) -> Problem:
    return Problem(datasets.adult(clients=clients, seed=seed), Logistic(1e-3))


def _logistic() -> Logistic:
    return Logistic(1e-3, regularizer="beta")


@cache
def _breast_cancer_rows() -> tuple[Any, Any]:
    X, y = tables.load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


@cache
def _digits_rows() -> tuple[Any, Any]:
    X, y = tables.load_digits(return_X_y=True)
    return X.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16, y


def _breast_cancer(clients: int, seed: int) -> Problem:
    return _dealt(*_breast_cancer_rows(), clients, seed, _logistic())


def _digits(clients: int, seed: int) -> Problem:
    objective = Multinomial(1e-3, classes=10, regularizer="beta")
    return _dealt(*_digits_rows(), clients, seed, objective)


def _drawn(rng: np.random.Generator, rows: int, shift: Any = 0.0) -> tuple[Any, Any]:
    """Gaussian rows about `shift`, (rows, columns), and the labels of a logistic model."""
    X = rng.normal(size=(rows, _COLUMNS)) + shift
    truth = np.cos(np.arange(_COLUMNS)) * 2 / np.sqrt(_COLUMNS)  # the same for all
    return X, (rng.random(rows) < expit(X @ truth + 0.3)).astype(np.float64)


def _clients(parts: list[tuple[Any, Any]]) -> Problem:
    return Problem(FederatedData.from_clients([(_with_ones(X), y) for X, y in parts]), _logistic())


def _label_skew(concentration: float) -> Make:
    """Each client's shares of the two labels follow a Dirichlet law, as many rows each."""

    def make(clients: int, seed: int) -> Problem:
        rng, each = np.random.default_rng([seed, clients]), _ROWS // clients
        X, y = _drawn(rng, 5 * _ROWS)
        pools = [list(np.flatnonzero(y == label)) for label in (0, 1)]
        parts = []
        for share in rng.dirichlet([concentration] * 2, size=clients)[:, 0]:
            ones = rng.binomial(each, share)
            rows = [pools[label].pop() for label, count in ((1, ones), (0, each - ones))
                    for _ in range(count)]  # fmt: skip
            parts.append((X[rows], y[rows]))
        return _clients(parts)

    return make


def _covariate_shift(clients: int, seed: int) -> Problem:
    """Each client's columns have means of its own, one law says the label of a row."""
    rng = np.random.default_rng([seed, clients, 1])
    shifts = rng.normal(size=(clients, _COLUMNS))
    return _clients([_drawn(rng, _ROWS // clients, shift) for shift in shifts])


def _sparse(clients: int, seed: int) -> Problem:
    data = synthetic.make_federated(
        "logistic", clients=clients, samples=_ROWS, features=60, density=0.05, seed=seed
    )
    ones = np.ones((data.n_samples, 1))
    features = sparse.csr_array(sparse.hstack([data.features, ones]))
    return Problem(replace(data, features=features), _logistic())


#: By name, those that take longest first.
PROBLEMS: dict[str, Make] = {
    "Adult": _adult,
    "digits": _digits,
    "sparse CSR": _sparse,
    "breast cancer": _breast_cancer,
    "label skew 0.1": _label_skew(0.1),
    "label skew 1": _label_skew(1.0),
    "covariate shift": _covariate_shift,
}
