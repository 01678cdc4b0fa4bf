"""Gradients of some of a client's rows, and the orders that batches are taken from."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data
from scipy import sparse

from fedepm_fast import FederatedData, Problem
from fedepm_fast.kernels import losses
from fedepm_fast.kernels._jit import kernel
from fedepm_fast.kernels.losses._batches import batch_objective, buffer_of
from fedepm_fast.kernels.philox import wrapping
from fedepm_fast.kernels.sampling import order_into
from fedepm_fast.objectives import as_objective
from fedepm_fast.participation import order_of_rows
from fedepm_fast.randomness import BATCHES, CounterRandomness

LAYOUTS = {"blocks": 5, "dense": 150, "csr": 5}


def rows_of(layout: str, dtype):
    """Three clients, one of them larger than any buffer, packed and as a problem."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(333, LAYOUTS[layout])).astype(dtype)
    if layout == "csr":
        features[np.abs(features) < 0.5] = 0
        features = sparse.csr_array(features)
    labels = rng.integers(0, 2, 333)
    sizes = [301, 31, 1]
    objective = as_objective("logistic", beta=0.1)
    data = FederatedData(features.astype(np.float64), labels, sizes)
    rows = losses.pack(features, labels.astype(dtype), sizes, loss="logistic", dtype=dtype)
    assert rows.layout == layout
    return rows, Problem(data, objective)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_objective_of_some_rows(layout, dtype):
    rows, problem = rows_of(layout, dtype)
    some = batch_objective(rows.layout, rows.loss)

    @kernel
    def evaluate(arrays, buffer, i, order, first, last, w, reg, gradient, work):
        return some(arrays, buffer, i, order, first, last, w, reg, gradient, work)

    rng = np.random.default_rng(2)
    w, buffer, work = rng.normal(size=LAYOUTS[layout]), buffer_of(rows), losses.workspace(rows)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    for i, d in enumerate(problem.data.client_sizes):
        order = rng.permutation(d)
        for first, last in {(0, d), (0, 1), (d // 3, d // 3 + d // 2 + 1), (max(0, d - 9), d)}:
            gradient, picked = np.empty(len(w), dtype), order[first:last]
            value = evaluate(
                rows.arrays, buffer, i, order, first, last, w.astype(dtype), dtype(problem.reg[i]),
                gradient, work,
            )  # fmt: skip
            a, b = problem.data.client(i)
            mean = problem.objective.loss(problem.margins(a, w)[picked], b[picked]).mean()
            assert value == pytest.approx(mean + problem.reg[i] / 2 * w @ w, rel=tolerance)
            want = problem.batch_gradient(i, w, picked)
            assert np.abs(gradient - want).max() <= tolerance * np.abs(want).max()
            assert gradient.dtype == dtype


def test_batches_of_an_epoch_make_up_the_whole():
    data = small_data(task="multiclass")
    problem = Problem(data, as_objective("multinomial", beta=0.1), "size")
    w = np.random.default_rng(0).normal(size=problem.n_parameters)
    for i, d in enumerate(data.client_sizes):
        parts = np.array_split(np.random.default_rng(i).permutation(d), min(d, 3))
        mean = sum(len(part) * problem.batch_gradient(i, w, part) for part in parts) / d
        np.testing.assert_allclose(mean, problem.gradient(i, w), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [1, 2, 37, 1000])
def test_orders_are_those_of_the_reference(count):
    seed, trial, tau, client = 2**63 + 5, 3, 11, 7
    found = {}
    for epoch in (0, 1, 2**31):
        order, words = np.empty(count, np.int64), np.empty(count, np.uint64)
        purpose = np.uint64(BATCHES + (epoch << 32))
        key = np.uint64(seed), np.uint64(trial)
        with wrapping():
            order_into(*key, purpose, np.uint64(tau), np.uint64(client), order, words)
        want = order_of_rows(CounterRandomness(seed, trial), tau, client, count, epoch)
        assert order.tolist() == want.tolist() and sorted(order) == list(range(count))
        found[epoch] = order.tolist()
    if count > 2:
        assert found[0] != found[1] != found[2**31] != found[0]


def test_orders_are_uniform():
    """Of three rows: six orders, each as often as chance has it (chi-squared, 5 degrees)."""
    counts: dict[tuple[int, ...], int] = {}
    for tau in range(3000):
        order = tuple(order_of_rows(CounterRandomness(1), tau, 0, 3, 0).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 20.5  # p = 0.001
