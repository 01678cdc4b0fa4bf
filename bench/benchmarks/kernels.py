"""Kernels by shape, dtype, regime and threads.

Data are made once a process, and microsecond kernels loop inside: asv calls ``setup`` before
every timed call.
"""

from __future__ import annotations

import functools

import numpy as np

from fedepm_fast import datasets
from fedepm_fast.kernels import losses
from fedepm_fast.kernels.ens import ens
from fedepm_fast.kernels.ens_blocks import ens_blocks
from fedepm_fast.kernels.local_steps import fedepm_local_steps
from fedepm_fast.kernels.noise import gaussian, laplace
from fedepm_fast.kernels.philox import words
from fedepm_fast.kernels.prox import soft_threshold
from fedepm_fast.kernels.vecmath import exp, log

DTYPES = ["float64", "float32"]
LAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "ties": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
}


@functools.cache
def uploads(shape: tuple[int, int], law: str, dtype: str) -> np.ndarray:
    """Uploads of clients, the same in every process."""
    return LAWS[law](np.random.default_rng(0), shape).astype(dtype)


@functools.cache
def adult(dtype: str, loss: str = "logistic"):
    """Adult, packed, and a point."""
    data = datasets.adult(clients=100, seed=0)
    classes = {"classes": 10} if loss == "multinomial" else {}
    rows = losses.pack(
        data.features.astype(dtype), data.labels, data.client_sizes, loss=loss, **classes
    )
    return data, rows, np.random.default_rng(0).normal(size=rows.n_parameters).astype(dtype)


class Timed:
    """Long enough samples, after everything is compiled."""

    warmup_time = 0.3
    rounds = 4
    repeat = (5, 20, 2.0)
    timeout = 300


class Ens(Timed):
    """The elastic-net solver; c against a spread of about one."""

    params = (
        [(10, 1_000_000), (100, 200_000), (1000, 20_000)], DTYPES, [1e-3, 0.5, 1e3], [1, 2],
    )  # fmt: skip
    param_names = ("shape", "dtype", "c", "threads")

    def setup(self, shape, dtype, c, threads):
        self.Z = uploads(shape, "normal", dtype)
        self.out = np.empty(shape[1], dtype)
        ens(self.Z, c, out=self.out, threads=threads)

    def time_ens(self, shape, dtype, c, threads):
        ens(self.Z, c, out=self.out, threads=threads)


class EnsHard(Timed):
    """Heavy tails and ties, c far above the spread."""

    params = (["cauchy", "ties"], DTYPES)
    param_names = ("law", "dtype")

    def setup(self, law, dtype):
        self.Z = uploads((100, 100_000), law, dtype)
        ens(self.Z, 1e3)

    def time_ens(self, law, dtype):
        ens(self.Z, 1e3)


class EnsOther(Timed):
    """The other layout, weights, blocks of rows, and a model of 14 parameters."""

    def setup(self):
        self.Z = uploads((100, 100_000), "normal", "float64")
        self.by_coordinate = np.ascontiguousarray(self.Z.T)
        self.weights = np.arange(1.0, 101.0)
        self.small = np.ascontiguousarray(self.Z[:, :14])
        for work in (self.time_transposed, self.time_weighted, self.time_blocks, self.time_small):
            work()

    def time_transposed(self):
        ens(self.by_coordinate, 0.5, axis=1)

    def time_weighted(self):
        ens(self.Z, 0.5, weights=self.weights)

    def time_blocks(self):
        ens_blocks(self.Z, 0.5, block_rows=25)

    def time_small(self):
        for _ in range(1000):
            ens(self.small, 0.5)


class Losses(Timed):
    """Values and gradients on Adult, 100 clients; the multinomial loss with ten classes."""

    params = (["logistic", "least_squares", "huber", "squared_hinge", "multinomial"], DTYPES)
    param_names = ("loss", "dtype")

    def setup(self, loss, dtype):
        self.data, self.rows, self.x = adult(dtype, loss)
        losses.values_and_gradients(self.rows, self.x)

    def time_values_and_gradients(self, loss, dtype):
        for _ in range(20):
            losses.values_and_gradients(self.rows, self.x)


class Pack(Timed):
    """Adult, arranged for the kernels."""

    params = (DTYPES,)
    param_names = ("dtype",)

    def setup(self, dtype):
        data, _, _ = adult(dtype)
        self.table = (data.features.astype(dtype), data.labels, data.client_sizes)

    def time_pack(self, dtype):
        losses.pack(*self.table)


class LocalSteps(Timed):
    """FedEPM's twelve local steps."""

    params = ([(100, 14), (100, 20_000)], DTYPES)
    param_names = ("shape", "dtype")

    def setup(self, shape, dtype):
        self.W = uploads(shape, "normal", dtype)
        self.arguments = (self.W[0], self.W[::-1].copy(), np.ones(shape[0], dtype))
        self.times = 200 if shape[1] < 100 else 1
        self.time_local_steps(shape, dtype)

    def time_local_steps(self, shape, dtype):
        for _ in range(self.times):
            fedepm_local_steps(
                self.W, *self.arguments, lam=0.1, eta=0.2, mu0=0.5, c=1e-8, alpha=1.001,
                local_steps=12, first_iteration=0,
            )  # fmt: skip


class Elementwise(Timed):
    """Random numbers, soft-thresholding, exponentials and logarithms of a million numbers."""

    def setup(self):
        self.t = uploads((100, 10_000), "normal", "float64")
        self.positive = np.abs(self.t)
        self.clients = np.arange(100)
        for name in dir(self):
            if name.startswith("time_"):
                getattr(self, name)()

    def time_words(self):
        words(0, 0, 0, 0, 0, 1_000_000)

    def time_laplace(self):
        laplace(0, 0, 0, 0, self.clients, 10_000)

    def time_standardized(self):
        laplace(0, 0, 0, 0, self.clients, 10_000, standardize=True)

    def time_gaussian(self):
        gaussian(0, 0, 0, 0, self.clients, 10_000)

    def time_soft_threshold(self):
        soft_threshold(self.t, 0.5)

    def time_exp(self):
        exp(self.t)

    def time_log(self):
        log(self.positive)
