"""Losses of clipped rows: the margins of the rows before, and a weight for each."""

from __future__ import annotations

import numpy as np
import pytest

from fedepm_fast import FederatedData, Logistic, Multinomial, Problem
from fedepm_fast.kernels.losses import values_and_gradients
from fedepm_fast.losses._base import LEAST_FACTOR

CASES = [Logistic(beta=0.0), Multinomial(classes=4, beta=0.0)]


def problems(objective, d=203, p=5, seed=0):
    """Of clipped rows, and what it stands for: rows, labels, factors."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, p)) * rng.choice([0.1, 1.0, 30.0], (d, 1))
    b = rng.integers(0, objective.n_outputs if objective.n_outputs > 1 else 2, d).astype(float)
    f = np.minimum(1.0, np.maximum(2.0 / np.linalg.norm(A, axis=1), LEAST_FACTOR))
    loss, labels = objective.of_clipped(b, f)
    return Problem(FederatedData(A * f[:, None], labels, [d]), loss), A, b, f, rng


@pytest.mark.parametrize("objective", CASES)
def test_records_weigh_by_their_factors_at_margins_of_their_own(objective):
    problem, A, b, f, rng = problems(objective)
    K, p = objective.n_outputs, A.shape[1]
    for size in (0.0, 0.3, 30.0):
        w = rng.normal(size=K * p) * size
        t = A @ w if K == 1 else A @ w.reshape(K, p).T
        value = (f * objective.loss(t, b)).mean()
        slope = objective.derivative(t, b)
        g = ((f * slope.T) @ A / len(b)).ravel()
        np.testing.assert_allclose(problem.value(0, w), value, rtol=1e-12)
        np.testing.assert_allclose(problem.gradient(0, w), g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", CASES)
@pytest.mark.parametrize("sparse", [False, True])
def test_kernels_agree(objective, sparse):
    from scipy.sparse import csr_array

    problem, *_, rng = problems(objective)
    data = problem.data
    if sparse:
        data = FederatedData(csr_array(data.features), data.labels, data.client_sizes)
        problem = Problem(data, problem.objective)
    rows = data.packed(**problem.objective.packing)
    for size in (0.0, 0.3, 300.0):
        w = rng.normal(size=problem.n_parameters) * size
        value, gradient = values_and_gradients(rows, w)
        np.testing.assert_allclose(value[0], problem.value(0, w), rtol=1e-12)
        np.testing.assert_allclose(gradient[0], problem.gradient(0, w), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("objective", CASES)
def test_derivatives_are_within_the_slope(objective):
    problem, *_, rng = problems(objective)
    b = problem.data.labels
    shape = (len(b),) if objective.n_outputs == 1 else (len(b), 4)
    slopes = problem.objective.derivative(rng.normal(size=shape) * 1e3, b)
    norms = np.abs(slopes) if slopes.ndim == 1 else np.linalg.norm(slopes, axis=1)
    assert norms.max() <= objective.slope_in(2)
