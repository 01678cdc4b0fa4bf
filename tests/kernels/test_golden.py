"""Recorded runs of the authors' program, replayed with the kernels in place of the reference."""

from __future__ import annotations

import golden
import numpy as np
import pytest

from fedepm_fast import make_problem
from fedepm_fast.kernels import _jit, losses
from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.local_steps import fedepm_local_steps

FILES = golden.files()[: 1 if _jit.JIT_DISABLED else None]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_replay(path):
    want = golden.load(path)
    algorithm, data, randomness = golden.setup(want)
    problem = make_problem(algorithm, data)
    algorithm = algorithm.resolve(problem)
    lam, eta = algorithm.weights
    rows = losses.pack(data.features, data.labels, data.client_sizes)
    step, k0 = algorithm.steps(problem.data.client_sizes), algorithm.local_steps
    W = np.zeros((data.n_clients, data.n_features))
    Z = randomness.unit_noise_init / algorithm.mu0
    last = len(want["objective"]) - 1
    for tau in range(last + 1):
        x = ens(Z, lam / eta)
        values, gradients = losses.values_and_gradients(rows, x, reg=problem.reg)
        mean = gradients.mean(axis=0)
        assert golden.relative(x, want["x"][tau]) <= 1e-12
        assert values.sum() == pytest.approx(want["objective"][tau], rel=1e-12)
        assert mean @ mean == pytest.approx(want["grad_mean_sq"][tau], rel=1e-12)
        if tau == last:
            break
        S = randomness.select(tau, 0, 0)
        W[S], mu = fedepm_local_steps(
            W[S], x, gradients[S], step[S], lam=lam, eta=eta, mu0=algorithm.mu0, c=algorithm.c,
            alpha=algorithm.alpha, local_steps=k0, first_iteration=tau * k0,
        )  # fmt: skip
        scale = algorithm.noise_model.scale(gradients[S], algorithm.epsilon, mu)
        Z[S] = W[S] + scale[:, None] * randomness.per_round[tau][S]
    assert golden.relative(W, want["W"]) <= 1e-12
    assert golden.relative(Z, want["Z"]) <= 1e-12
