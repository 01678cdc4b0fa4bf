"""Kernels side by side with their peers, one group each.

python -m pytest bench/pytest --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fedepm_fast import datasets
from fedepm_fast.kernels import losses
from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.local_steps import fedepm_local_steps
from fedepm_fast.kernels.noise import laplace
from fedepm_fast.kernels.prox import soft_threshold
from fedepm_fast.reference import ens as reference_ens
from fedepm_fast.reference import soft_threshold as reference_soft_threshold

SHAPES = [(10, 100_000), (100, 20_000), (1000, 2_000)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(
    "who",
    [
        pytest.param(lambda Z: ens(Z, 1e3), id="ens"),
        pytest.param(lambda Z: Z.mean(axis=0), id="np.mean"),
        pytest.param(lambda Z: np.median(Z, axis=0), id="np.median"),
        pytest.param(lambda Z: np.sort(Z, axis=0), id="np.sort"),
        pytest.param(lambda Z: reference_ens(Z, 1e3), id="reference"),
    ],
)
def test_aggregate(benchmark, shape, who):
    benchmark.group = f"aggregate {shape[0]} x {shape[1]}"
    Z = np.random.default_rng(0).normal(size=shape)
    benchmark(who, Z)


@pytest.mark.parametrize("who", ["kernel", "numpy"])
def test_logistic_gradient_on_adult(benchmark, who):
    benchmark.group = "logistic gradient, Adult, 100 clients"
    data = datasets.adult(clients=100, seed=0)
    x = np.random.default_rng(0).normal(size=14)
    rows = losses.pack(data.features, data.labels, data.client_sizes)

    def numpy():
        residual = (expit(data.features @ x) - data.labels)[:, None] * data.features
        sums = np.add.reduceat(residual, data.offsets[:-1], axis=0)
        return sums / data.client_sizes[:, None]

    work = numpy if who == "numpy" else lambda: losses.gradients(rows, x)
    np.testing.assert_allclose(benchmark(work), numpy(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("who", ["kernel", "numpy"])
def test_soft_threshold(benchmark, who):
    benchmark.group = "soft threshold, a million"
    t = np.random.default_rng(0).normal(size=1_000_000)
    work = {"kernel": soft_threshold, "numpy": reference_soft_threshold}[who]
    benchmark(work, t, 0.5)


@pytest.mark.parametrize("who", ["kernel", "numpy"])
def test_laplace(benchmark, who):
    benchmark.group = "Laplace noise 100 x 10,000"
    rng, clients = np.random.default_rng(0), np.arange(100)
    if who == "kernel":
        benchmark(laplace, 0, 0, 0, 0, clients, 10_000)
    else:
        benchmark(rng.laplace, size=(100, 10_000))


@pytest.mark.parametrize("n", [14, 20_000])
def test_local_steps(benchmark, n):
    benchmark.group = f"local steps 100 x {n}"
    W, G = np.random.default_rng(0).normal(size=(2, 100, n))
    benchmark(
        fedepm_local_steps, W, W[0], G, np.ones(100), lam=0.1, eta=0.2, mu0=0.5, c=1e-8,
        alpha=1.001, local_steps=12, first_iteration=0,
    )  # fmt: skip
