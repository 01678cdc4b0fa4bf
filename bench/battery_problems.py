"""The problems of the battery: every loss, 1 to 100 clients, raw tables and hard ones.

A problem is as `fit` would pose it: an intercept column without penalty, the pooled objective
(``client_weight="size"``), no regulariser; where its name says "raw" columns are as the table has
them, otherwise with mean 0 and standard deviation 1. Adult "as in the paper" has the paper's
columns of unit norm, equal weights, beta 1e-3 and no intercept. All is drawn from fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn import datasets as tables

from fedepm_fast import FederatedData, ScalarLoss, datasets
from fedepm_fast.data.partition import DirichletLabelSkew, RandomCuts
from fedepm_fast.losses import Huber, LeastSquares, Logistic, Multinomial, Poisson, SquaredHinge
from fedepm_fast.objectives import Problem

Make = Callable[[np.random.Generator], Problem]
_TASKS = {"multinomial": "multiclass"}
#: Problems by name, in the order of the table.
PROBLEMS: dict[str, Make] = {}


def problem(name: str) -> Problem:
    """The problem of that name, always the same."""
    seed = list(PROBLEMS).index(name)
    return PROBLEMS[name](np.random.default_rng(seed))


def _pose(features: Any, labels: Any, clients: Any, objective: Any) -> Problem:
    """As `fit` would: with an intercept, and every row the same weight.

    `clients` is a number, a partitioner or the client of every row.
    """
    ones = np.ones((features.shape[0], 1))
    with_ones = (
        sparse.csr_array(sparse.hstack([features, ones]))
        if sparse.issparse(features)
        else np.hstack([features, ones])
    )
    loss = objective.changed(weights=(*np.ones(features.shape[1]), 0.0))
    how = RandomCuts(clients=clients) if isinstance(clients, int) else clients
    task = _TASKS.get(loss.name, loss.task)
    data = FederatedData.split(with_ones, labels, how, task=task, seed=1)
    return Problem(data, loss, "size")


def _even(features: Any) -> Any:
    """Columns of mean 0 and standard deviation 1."""
    spread = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


# Tables -----------------------------------------------------------------------------------


def _papers_adult(m: int) -> Make:
    return lambda rng: Problem(datasets.adult(clients=m, seed=0), Logistic(1e-3))


def _adult(m: int, even: Callable[[Any], Any] = _even) -> Make:
    def make(rng: np.random.Generator) -> Problem:
        table = datasets.adult(clients=1, seed=0)
        scale = rng.uniform(0.5, 2.0, table.n_features) * 10.0 ** rng.integers(0, 4, 14)
        return _pose(even(np.asarray(table.features) * scale), table.labels, m, Logistic(0.0))

    return make


def _table(
    name: str, clients: Any, objective: Any, *, raw: bool = False, as_csr: bool = False,
    labels: Callable[[Any], Any] = lambda y: y,
) -> Make:  # fmt: skip
    def make(rng: np.random.Generator) -> Problem:
        X, y = getattr(tables, f"load_{name}")(return_X_y=True)
        X = X if raw else _even(X)
        return _pose(sparse.csr_array(X) if as_csr else X, labels(y), clients, objective)

    return make


def _unit(y: Any) -> Any:
    return (y - y.mean()) / y.std()


# Synthetic --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Gaussian rows with logistic labels, and what a problem does with them."""

    d: int = 3000
    p: int = 6
    intercept: float = 0.5
    strength: float = 1.0

    def draw(self, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """Features, their margins, labels."""
        X = rng.normal(size=(self.d, self.p))
        t = X @ (self.strength * rng.normal(size=self.p)) + self.intercept
        return X, t, (rng.random(self.d) < expit(t)).astype(int)


def _hospitals(rng: np.random.Generator) -> Problem:
    X, _, y = _Rows().draw(rng)
    return _pose(X, y, rng.integers(0, 5, len(y)), Logistic(0.0))


def _shifted(rng: np.random.Generator) -> Problem:
    """Clients see other parts of the first column, and their columns have other means."""
    X, _, y = _Rows().draw(rng)
    client = np.argsort(np.argsort(X[:, 0] + 0.3 * rng.normal(size=len(y)))) * 10 // len(y)
    X = X + 2 * rng.normal(size=(10, X.shape[1]))[client]
    return _pose(X, y, client, Logistic(0.0))


def _label_skew(m: int, concentration: float) -> Make:
    def make(rng: np.random.Generator) -> Problem:
        X, _, y = _Rows().draw(rng)
        return _pose(X, y, DirichletLabelSkew(m, concentration), Logistic(0.0))

    return make


def _sizes(rng: np.random.Generator) -> Problem:
    """Ten clients, the largest with a hundred times the rows of the smallest."""
    X, _, y = _Rows(d=5000).draw(rng)
    share = np.geomspace(1, 100, 10)
    return _pose(X, y, rng.choice(10, len(y), p=share / share.sum()), Logistic(0.0))


def _rare(rng: np.random.Generator) -> Problem:
    X, _, y = _Rows(intercept=-5.5).draw(rng)
    return _pose(X, y, 5, Logistic(0.0))


def _one_class(rng: np.random.Generator) -> Problem:
    X, _, y = _Rows().draw(rng)
    clients = np.where(y == 1, rng.integers(0, 5, len(y)), rng.integers(0, 4, len(y)))
    return _pose(X, y, clients, Logistic(0.0))


def _collinear(rng: np.random.Generator) -> Problem:
    X, _, y = _Rows().draw(rng)
    return _pose(np.c_[X[:, :3], X[:, 0] + X[:, 1], X, np.ones(len(y))], y, 5, Logistic(0.0))


def _scales(rng: np.random.Generator) -> Problem:
    X, _, y = _Rows().draw(rng)
    return _pose(X * np.geomspace(1e-3, 1e3, 6), y, 5, Logistic(0.0))


def _far(rng: np.random.Generator) -> Problem:
    """Years and amounts: columns far from zero, to their spread."""
    X, _, y = _Rows().draw(rng)
    return _pose(X * [1, 1, 10, 1e3, 1e4, 1] + [2e3, 0, 1e3, 1e5, 3e4, 50], y, 3, Logistic(0.0))


def _heavy(rng: np.random.Generator) -> Problem:
    X = rng.lognormal(sigma=2.0, size=(3000, 6))
    t = np.log(X) @ rng.normal(size=6) / 2
    return _pose(X, (rng.random(len(t)) < expit(t)).astype(int), 5, Logistic(0.0))


def _separable(rng: np.random.Generator) -> Problem:
    X, t, _ = _Rows().draw(rng)
    return _pose(X, (t > 0).astype(int), 5, Logistic(0.0))


def _tiny_clients(rng: np.random.Generator) -> Problem:
    """A hundred clients with 8 rows each, fewer than columns."""
    X, _, y = _Rows(d=800, p=10, strength=0.5).draw(rng)
    return _pose(X, y, np.arange(800) % 100, Logistic(0.0))


def _categories(rng: np.random.Generator) -> Problem:
    """Two columns of categories, all levels beside the intercept; many clients lack some."""
    first, second = rng.zipf(1.6, 4000) % 30, rng.integers(0, 8, 4000)
    X = np.hstack([np.eye(30)[first], np.eye(8)[second], rng.normal(size=(4000, 3))])
    t = X @ rng.normal(size=X.shape[1]) - 1
    return _pose(X, (rng.random(4000) < expit(t)).astype(int), 20, Logistic(0.0))


def _counts(strength: float, intercept: float, m: int) -> Make:
    def make(rng: np.random.Generator) -> Problem:
        X = rng.normal(size=(3000, 6))
        t = X @ (strength * rng.normal(size=6)) + intercept
        return _pose(X, rng.poisson(np.exp(t)).astype(float), m, Poisson(0.0))

    return make


def _hard_least_squares(rng: np.random.Generator) -> Problem:
    X = rng.normal(size=(400, 30)) * np.geomspace(1e-2, 1e2, 30) @ rng.normal(size=(30, 30))
    return _pose(X, rng.normal(size=400), 5, LeastSquares(0.0))


def _outliers(rng: np.random.Generator) -> Problem:
    X = rng.normal(size=(2000, 8))
    y = X @ rng.normal(size=8) + rng.standard_t(1.5, size=2000)
    return _pose(X, y, 10, Huber(0.0, delta=1.0))


def _text(d: int, p: int, m: int, beta: float, objective: type = Logistic) -> Make:
    """Counts of words, most of them rare, as CSR; rows of unit length."""

    def make(rng: np.random.Generator) -> Problem:
        share = 1 / np.arange(1, p + 1)
        share /= share.sum()
        topic = rng.integers(0, 2, d)
        taste = np.exp(0.7 * rng.normal(size=(2, p))) * share
        taste /= taste.sum(axis=1, keepdims=True)
        rows = [rng.multinomial(rng.integers(20, 120), taste[k]) for k in topic]
        X = sparse.csr_array(np.log1p(np.array(rows, np.float64)))
        X = sparse.csr_array(X / np.sqrt(X.multiply(X).sum(axis=1))[:, None])
        y = np.where(rng.random(d) < 0.1, 1 - topic, topic)
        return _pose(X, y, m, objective(beta))

    return make


# Losses of one's own ----------------------------------------------------------------------


def _own(loss: ScalarLoss, m: int) -> Make:
    def make(rng: np.random.Generator) -> Problem:
        X = rng.normal(size=(1500, 5))
        t = X @ rng.normal(size=5) * 0.5 + 0.3
        if loss.task == "classification":
            return _pose(X, (rng.random(1500) < 0.5 * (1 + np.tanh(t))).astype(int), m, loss)
        y = rng.gamma(2.0, np.exp(t) / 2) if loss.curvature is None else t + rng.standard_t(2, 1500)
        return _pose(X, y, m, loss)

    return make


LOG_COSH = ScalarLoss(
    beta=0.0, name="log_cosh", curvature=1.0,
    value=lambda t, y: abs(t - y) + math.log1p(math.exp(-2 * abs(t - y))),
    gradient=lambda t, y: 2 / (1 + math.exp(-2 * (t - y))) - 1,
)  # fmt: skip
GAMMA = ScalarLoss(
    beta=0.0, name="gamma",
    value=lambda t, y: t + y * math.exp(-t), gradient=lambda t, y: 1 - y * math.exp(-t),
)  # fmt: skip

PROBLEMS |= {
    "Adult as in the paper, m 3": _papers_adult(3),
    "Adult as in the paper, m 10": _papers_adult(10),
    "Adult as in the paper, m 100": _papers_adult(100),
    "Adult, m 2": _adult(2),
    "Adult, m 20": _adult(20),
    "Adult, m 100": _adult(100),
    "Adult raw, m 5": _adult(5, lambda features: features),
    "breast cancer, m 1": _table("breast_cancer", 1, Logistic(0.0)),
    "breast cancer, m 3": _table("breast_cancer", 3, Logistic(0.0)),
    "breast cancer, m 10": _table("breast_cancer", 10, Logistic(0.0)),
    "breast cancer, beta 1, m 5": _table("breast_cancer", 5, Logistic(1.0)),
    "breast cancer raw, m 3": _table("breast_cancer", 3, Logistic(0.0), raw=True),
    "breast cancer squared hinge, m 5": _table("breast_cancer", 5, SquaredHinge(0.0)),
    "breast cancer squared hinge raw, m 2": _table("breast_cancer", 2, SquaredHinge(0.0), raw=True),
    "wine, m 5": _table("wine", 5, Multinomial(0.0, classes=3)),
    "wine raw, m 3": _table("wine", 3, Multinomial(0.0, classes=3), raw=True),
    "iris, label skew, m 3": _table(
        "iris", DirichletLabelSkew(3, 0.3), Multinomial(0.0, classes=3)
    ),
    "iris raw, m 2": _table("iris", 2, Multinomial(0.0, classes=3), raw=True),
    "digits, beta 1, m 5": _table("digits", 5, Multinomial(1.0, classes=10)),
    "digits raw, m 10": _table("digits", 10, Multinomial(0.0, classes=10), raw=True),
    "digits raw CSR, beta 1, m 10": _table(
        "digits", 10, Multinomial(1.0, classes=10), raw=True, as_csr=True
    ),
    "diabetes least squares, m 2": _table("diabetes", 2, LeastSquares(0.0), labels=_unit),
    "diabetes least squares raw, m 20": _table("diabetes", 20, LeastSquares(0.0), raw=True),
    "diabetes Huber, m 5": _table("diabetes", 5, Huber(0.0, delta=0.5), labels=_unit),
    "diabetes Huber raw, m 5": _table("diabetes", 5, Huber(0.0, delta=10.0), raw=True),
    "diabetes Poisson, m 3": _table("diabetes", 3, Poisson(0.0)),
    "hospitals, m 5": _hospitals,
    "covariate shift, m 10": _shifted,
    "label skew 0.2, m 20": _label_skew(20, 0.2),
    "label skew 0.5, m 100": _label_skew(100, 0.5),
    "sizes 1:100, m 10": _sizes,
    "rare class, m 5": _rare,
    "a client of one class, m 5": _one_class,
    "collinear, m 5": _collinear,
    "scales 1e6, m 5": _scales,
    "far from zero, m 3": _far,
    "heavy tails raw, m 5": _heavy,
    "separable, m 5": _separable,
    "8 rows a client, m 100": _tiny_clients,
    "categories, m 20": _categories,
    "counts, m 5": _counts(0.5, 0.0, 5),
    "large counts, m 20": _counts(0.4, 3.0, 20),
    "hard least squares, m 5": _hard_least_squares,
    "outliers Huber, m 10": _outliers,
    "log-cosh of one's own, m 5": _own(LOG_COSH, 5),
    "gamma of one's own, m 3": _own(GAMMA, 3),
    "text 3,000 x 2,500 CSR, beta 1, m 10": _text(3000, 2500, 10, 1.0),
    "text 2,000 x 5,000 CSR, beta 1, m 5": _text(2000, 5000, 5, 1.0),
    "text 6,000 x 1,200 CSR, m 20": _text(6000, 1200, 20, 0.0),
    "text squared hinge CSR, beta 1, m 2": _text(3000, 2000, 2, 1.0, SquaredHinge),
}
