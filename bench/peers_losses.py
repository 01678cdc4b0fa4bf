"""Values and gradients of the clients' objectives beside their peers, and a whole round."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from peers_measure import Part, Row, Work, medians, often
from runs import round_to_sum
from scipy import sparse
from scipy.special import expit

from fedepm_fast import datasets
from fedepm_fast.kernels import losses

NAME = "logistic value+gradient, Adult, m = 100"


class Adult(NamedTuple):
    """The rows, a point, and the kernel's work on them."""

    A: np.ndarray
    b: np.ndarray
    sizes: np.ndarray
    x: np.ndarray
    ours: Work
    ours32: Work


@cache
def _adult() -> Adult:
    data = datasets.adult(clients=100, seed=0)
    A, b, sizes = data.features, data.labels, data.client_sizes
    x = np.random.default_rng(0).normal(size=14)

    def work(dtype: str) -> Work:
        rows, point = losses.pack(A.astype(dtype), b, sizes), x.astype(dtype)
        out = (np.empty(100, dtype), np.empty((100, 14), dtype))
        return lambda: losses.values_and_gradients(rows, point, out=out)

    return Adult(A, b, sizes, x, work("float64"), work("float32"))


def _to_sum() -> Iterator[Row]:
    A, *_, ours, _ = _adult()
    # Many times each in a row: a run reads the same rows every round, so they are in the cache.
    total, time = (t / 30 for t in medians([often(A.sum, 30), often(ours, 30)]))
    yield Row(NAME, "A.sum()", time / total, "<= 1.25", "0.95", f"{1e6 * time:.0f} us")


def _numpy() -> Iterator[Row]:
    A, b, sizes, x, ours, ours32 = _adult()
    starts = np.r_[0, np.cumsum(sizes)[:-1]]

    def by_numpy() -> np.ndarray:
        residual = (expit(A @ x) - b)[:, None] * A
        return np.add.reduceat(residual, starts, axis=0) / sizes[:, None]

    time, time32, theirs = medians([often(work, 30) for work in (ours, ours32, by_numpy)])
    yield Row(NAME, "NumPy gradient, times faster", theirs / time, ">= 7", "9")
    yield Row(f"{NAME}, float32", "its float64", time32 / time, "<= 0.65", "0.5")


def _scikit_learn() -> Iterator[Row]:
    try:
        from sklearn._loss import HalfBinomialLoss
        from sklearn.linear_model._linear_loss import LinearModelLoss
    except ModuleNotFoundError as error:
        if error.name != "sklearn":  # installed, and not as it was: that is a part that fails
            raise
        return
    A, b, _, x, ours, _ = _adult()
    whole = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=False)
    time, theirs = medians([ours, lambda: whole.loss_gradient(x, A, b, n_threads=1)])
    yield Row(NAME, "scikit-learn's one gradient, times faster", theirs / time, ">= 8", "9")


def _torch() -> Iterator[Row]:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    A, b, _, x, ours, _ = _adult()
    At, bt = torch.from_numpy(A.copy()), torch.from_numpy(b.copy())

    def by_torch() -> Any:
        xt = torch.from_numpy(x).requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(At @ xt, bt)
        return torch.autograd.grad(loss, xt)

    time, theirs = medians([ours, by_torch])
    yield Row(NAME, "torch's one gradient, times faster", theirs / time, ">= 5", "9")


def _wide() -> Iterator[Row]:
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(20_000, 300)), (rng.random(20_000) < 0.5).astype(float)
    x = rng.normal(size=300) / 17
    rows = losses.pack(A, b, np.array([20_000]))

    def by_numpy() -> Any:
        margin = A @ x
        return np.logaddexp(0, margin).sum() - b @ margin, A.T @ (expit(margin) - b)

    works = [lambda: losses.values_and_gradients(rows, x), by_numpy, A.sum]
    ours, theirs, total = medians([often(work, 3) for work in works])
    note = f"{ours / total:.2f} of A.sum()"
    yield Row("logistic 20,000 x 300", "NumPy, times faster", theirs / ours, ">= 2.2", "2.6", note)


def _csr() -> Iterator[Row]:
    rng = np.random.default_rng(1)
    S = sparse.random_array((100_000, 5_000), density=0.005, rng=rng, format="csr")
    b, x = (rng.random(100_000) < 0.5).astype(float), rng.normal(size=5_000)
    rows = losses.pack(S, b, np.array([100_000]))
    T = S.T.tocsr()  # what a SciPy user would keep: products with rows are its fast ones

    def by_scipy() -> Any:
        margin = S @ x
        return np.logaddexp(0, margin).sum() - b @ margin, T @ (expit(margin) - b)

    works = [lambda: losses.values_and_gradients(rows, x), by_scipy]
    ours, theirs = medians([often(work, 3) for work in works])
    name = "logistic CSR 100,000 x 5,000 (2.5 M)"
    yield Row(name, "SciPy, times faster", theirs / ours, ">= 2.8", "4", f"{ours / 3e-3:.1f} ms")


def _round() -> Iterator[Row]:
    yield Row("one FedEPM round in a run, Adult, m = 100", "A.sum()", round_to_sum(), "<= 1.3")


PARTS: dict[str, Part] = {
    "logistic beside the sum": _to_sum,
    "logistic beside NumPy": _numpy,
    "logistic beside scikit-learn": _scikit_learn,
    "logistic beside torch": _torch,
    "logistic, wide": _wide,
    "logistic, CSR": _csr,
    "a round": _round,
}
