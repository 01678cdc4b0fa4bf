"""Every loss's gradient against PyTorch's autograd, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import LOSSES, a_problem, by_kernels

F = torch.nn.functional


def mean_loss(name, objective, t, b):
    """The loss by PyTorch, of margins (d,) or (d, K)."""
    if name in ("logistic", "own_logistic"):
        return F.binary_cross_entropy_with_logits(t, b)
    if name == "squared_hinge":
        return ((1 - (2 * b - 1) * t).clamp(min=0) ** 2).mean()
    if name == "least_squares":
        return F.mse_loss(t, b) / 2
    if name == "huber":
        return F.huber_loss(t, b, delta=objective.delta)
    return F.cross_entropy(t, b.long())


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_match_autograd(name, is_sparse, rng):
    problem = a_problem(name, is_sparse=is_sparse)
    objective, w = problem.objective, rng.normal(size=problem.n_parameters)
    for i in range(problem.n_clients):
        a, b = problem.data.client(i)
        a = torch.tensor(a.toarray() if is_sparse else a)
        x = torch.tensor(w, requires_grad=True)
        t = a @ x if objective.n_outputs == 1 else a @ x.reshape(objective.n_outputs, -1).T
        value = mean_loss(name, objective, t, torch.tensor(b)) + problem.reg[i] / 2 * (x * x).sum()
        value.backward()
        for found, gradient in (
            (problem.value(i, w), problem.gradient(i, w)),
            by_kernels(problem, i, w),
        ):
            assert found == pytest.approx(value.item(), rel=1e-13)
            np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-11, atol=1e-14)
