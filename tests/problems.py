"""Small federated problems."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from fedepm_fast import FederatedData, Problem, ScalarLoss
from fedepm_fast.kernels import losses
from fedepm_fast.objectives import OBJECTIVES, as_objective


def table(d: int = 40, n: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random rows and labels of two classes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(d, n)), (rng.random(d) < 0.4).astype(float)


def small_data(
    m: int = 6, n: int = 5, seed: int = 0, *, task: str = "classification", largest: int = 30
) -> FederatedData:
    """Random clients of 1 to `largest` rows; `task` may be "counts", which are regression too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, m)
    features = rng.normal(size=(sizes.sum(), n))
    margin = features @ rng.normal(size=n)
    if task == "classification":
        labels = (margin + rng.logistic(size=len(margin)) > 0).astype(float)
        labels[:2] = (0, 1)[: len(labels)]
    elif task == "multiclass":
        labels = (features @ rng.normal(size=(n, 3)) + rng.gumbel(size=(len(features), 3))).argmax(
            1
        )
        labels[:3] = (0, 1, 2)[: len(labels)]
    elif task == "counts":
        labels = rng.poisson(np.exp(margin.clip(-3, 3)))
    else:
        labels = margin + 0.1 * rng.normal(size=len(margin))
    return FederatedData(features, labels, sizes)


def data_for(objective, **options) -> FederatedData:
    """Such data with labels that a loss takes."""
    counts = objective.labels == "counts"
    return small_data(task="counts" if counts else objective.task, **options)


def softplus(t, y):
    """The logistic loss, as users write it."""
    s = (1 - 2 * y) * t
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def sigmoid(t, y):
    """Its derivative."""
    sign = 1 - 2 * y
    return sign / (1 + math.exp(-sign * t))


def own_logistic(**options) -> ScalarLoss:
    """The logistic loss as one of the user's."""
    options = {"curvature": 0.25, "slope": 1.0, "task": "classification", **options}
    return ScalarLoss(value=softplus, gradient=sigmoid, name="own_logistic", **options)


#: Every loss there is, by name.
LOSSES = (*OBJECTIVES, "own_logistic")


def a_problem(name: str, *, is_sparse: bool = False) -> Problem:
    """Six clients with a loss of `LOSSES`, dense or CSR."""
    objective = own_logistic(beta=0.01) if name == "own_logistic" else as_objective(name, beta=0.01)
    data = data_for(objective)
    if is_sparse:
        features = sparse.csr_array(np.where(np.abs(data.features) < 0.5, 0, data.features))
        data = FederatedData(features, data.labels, data.client_sizes)
    return Problem(data, objective)


def by_kernels(problem: Problem, i: int, w) -> tuple[float, np.ndarray]:
    """Value and gradient of client i, compiled; what runs compile anyway."""
    rows, gradient = problem.rows, np.empty(len(w))
    if problem.objective.name in OBJECTIVES:
        f, g = losses.values_and_gradients(rows, w, clients=[i], reg=problem.reg)
        return f[0], g[0]
    client, work = losses.client_kernel(rows), losses.workspace(rows)
    value = client(rows.arrays, i, w, problem.reg[i], True, gradient, work)
    return value, gradient


class Told:
    """A client's objective as a callable, with what its user takes for a Lipschitz constant."""

    def __init__(self, problem, i, lipschitz):
        self.problem, self.i, self.lipschitz = problem, i, lipschitz

    def __call__(self, x):
        return self.problem.value(self.i, x), self.problem.gradient(self.i, x)

    def batch_gradient(self, x, rows):
        return self.problem.batch_gradient(self.i, x, rows)
