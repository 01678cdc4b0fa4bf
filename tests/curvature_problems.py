"""Small federated problems that are hard in one way each, for methods that should mind none."""

from __future__ import annotations

import numpy as np
from problems import LOSSES, own_logistic
from scipy import sparse

from fedepm_fast import FederatedData
from fedepm_fast.objectives import Objective, as_objective


def rows(sizes, n, seed, task="classification", *, shift=0.0, scales=1.0):
    """Gaussian rows with a column of ones, labels of a linear model; clients' means differ."""
    rng = np.random.default_rng(seed)
    d = sum(sizes)
    A = rng.normal(size=(d, n))
    A += shift * np.repeat(rng.normal(size=(len(sizes), n)), sizes, axis=0)
    A[:, -1] = 1
    t = A @ rng.normal(size=n)
    if task == "classification":
        b = (t + rng.logistic(size=d) > 0).astype(float)
        b[:2] = (0, 1)[:d]
    elif task == "multiclass":
        b = (A @ rng.normal(size=(n, 3)) + rng.gumbel(size=(d, 3))).argmax(axis=1).astype(float)
        b[:3] = 0, 1, 2
    elif task == "counts":
        b = rng.poisson(np.exp(t.clip(-3, 3))).astype(float)
    else:
        b = t + rng.standard_t(2, size=d)
    return A * scales, b, np.array(sizes)


def loss(name: str, beta: float = 1e-3, **options) -> Objective:
    """A loss of `LOSSES` by name."""
    if name == "own_logistic":
        return own_logistic(beta=beta, **options)
    return as_objective(name, beta=beta, **options)


def with_loss(name: str, *, layout: str = "dense", **options) -> tuple[FederatedData, Objective]:
    """Six clients of thirty rows."""
    objective = loss(name, **options)
    task = "counts" if objective.labels == "counts" else objective.task
    A, b, sizes = rows([30] * 6, 5, 1, task)
    if layout == "sparse":
        A = sparse.csr_array(np.where(np.abs(A) < 0.6, 0, A))
    return FederatedData(A, b, sizes), objective


def zoo() -> dict[str, tuple[FederatedData, Objective]]:
    """The problems by name."""
    found = {f"{name}, {kind}": with_loss(name, layout=kind)
             for name in LOSSES for kind in ("dense", "sparse")}  # fmt: skip
    found["own_logistic without a bound"] = with_loss("own_logistic", curvature=None)

    def add(name, table, objective):
        found[name] = FederatedData(*table), objective

    logistic, scales = loss("logistic"), 10.0 ** np.array([6, -3, 0, 3, 0])
    add("one client", rows([180], 5, 1), loss("logistic", 0.0))
    add("one column", rows([50] * 4, 1, 6), loss("logistic", 0.0))
    add("clients of a row", rows([1, 50, 2, 3, 60], 4, 2), loss("logistic", 1e-2))
    A, b, sizes = rows([40] * 5, 4, 3, shift=2.0)
    b[:40], b[80:120] = 1, 0
    add("clients of a class", (A, b, sizes), logistic)
    add("sizes 1 to 100", rows([10, 1000, 30, 300, 100], 6, 4, shift=1.0), loss("logistic", 0.0))
    for name, task in (("logistic", "classification"), ("least_squares", ""), ("huber", "")):
        add(f"scales, {name}", rows([60] * 4, 5, 5, task, scales=scales), loss(name, 0.0))
    add("scales, poisson", rows([60] * 4, 5, 5, "counts", scales=scales), loss("poisson", 0.0))
    A, b, sizes = rows([50] * 4, 5, 6)
    A[:, 1], A[:, 3] = A[:, 0], 0
    add("collinear, and a column of zeros", (A, b, sizes), loss("logistic", 0.0))
    add("separable", (A, (A @ np.ones(5) > 0) * 1.0, sizes), logistic)
    add("shifted", rows([50] * 20, 8, 7, shift=1.5), logistic)
    add("a hundred clients", rows([12] * 100, 6, 8), logistic)
    add("shifted counts", rows([50] * 10, 10, 9, "counts", shift=1.0), loss("poisson", 0.0))
    add("more columns than rows", rows([6] * 8, 20, 9), loss("logistic", 1e-2))
    return found
