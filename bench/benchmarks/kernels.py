"""Kernels where shape, dtype, data and threads have told commits apart."""

from __future__ import annotations

import functools

import numpy as np

from fedepm_fast import datasets

from . import Timed, at, units

LACKS = None
try:
    from scipy import sparse

    from fedepm_fast.kernels import losses
    from fedepm_fast.kernels.ens import ens
    from fedepm_fast.kernels.ens_blocks import ens_blocks
    from fedepm_fast.kernels.local_steps import fedepm_local_steps
    from fedepm_fast.kernels.noise import gaussian, laplace
    from fedepm_fast.kernels.philox import words
    from fedepm_fast.kernels.vecmath import exp, log
    from fedepm_fast.reference import ens as reference_ens
except ImportError as error:
    LACKS = error

LAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "ties": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
}


@functools.cache
def uploads(shape, law="normal", dtype="float64"):
    """Uploads of clients, the same in every process."""
    return LAWS[law](np.random.default_rng(0), shape).astype(dtype)


@functools.cache
def adult(loss="logistic", dtype="float64"):
    """Adult, packed, and a point."""
    data = datasets.adult(clients=100, seed=0)
    classes = {"classes": 10} if loss == "multinomial" else {}
    rows = losses.pack(
        data.features.astype(dtype), data.labels, data.client_sizes, loss=loss, **classes
    )
    return rows, np.random.default_rng(0).normal(size=rows.n_parameters).astype(dtype)


@functools.cache
def table(layout):
    """Rows that are wide, and rows that are sparse, of one client."""
    rng = np.random.default_rng(1)
    if layout == "wide":
        A = rng.normal(size=(20_000, 300))
    else:
        A = sparse.random_array((100_000, 5_000), density=0.005, rng=rng, format="csr")
    rows = losses.pack(A, rng.integers(0, 2, A.shape[0]), np.array([A.shape[0]]))
    return rows, rng.normal(size=A.shape[1]) / 17


class Ens(Timed):
    """The elastic-net solver: clients, coordinates, dtype, c against a spread of about one."""

    params = (
        [
            "10 1000000 float64 0.5 1 normal",
            "100 200000 float64 0.001 1 normal",
            "100 200000 float64 1000 1 normal",
            "100 200000 float64 0.5 2 normal",
            "100 200000 float32 1000 1 normal",
            "1000 20000 float64 1000 1 normal",
            "100 100000 float64 1000 1 cauchy",
            "100 100000 float64 1000 1 ties",
        ],
    )
    param_names = ("clients, coordinates, dtype, c, threads, law",)

    def time_ens(self, case):
        at(LACKS)
        m, n, dtype, c, threads, law = case.split()
        ens(uploads((int(m), int(n)), law, dtype), float(c), threads=int(threads))


class EnsOther(Timed):
    """The other layout, weights, blocks of rows, a model of 14 parameters, and the error."""

    def time_transposed(self):
        at(LACKS)
        ens(transposed(), 0.5, axis=1)

    def time_weighted(self):
        at(LACKS)
        ens(uploads((100, 100_000)), 0.5, weights=np.arange(1.0, 101.0))

    def time_blocks(self):
        at(LACKS)
        ens_blocks(uploads((100, 100_000)), 0.5, block_rows=25)

    def time_small(self):
        at(LACKS)
        ens(uploads((100, 14)), 0.5)

    def track_relative_error(self):
        at(LACKS)
        Z = uploads((100, 20_000))
        return float(max(np.abs(ens(Z, c) - reference_ens(Z, c)).max() for c in (1e-3, 1e3)))

    track_relative_error = units(track_relative_error, "of a deviation")


@functools.cache
def transposed():
    """Uploads, coordinate by coordinate."""
    return np.ascontiguousarray(uploads((100, 100_000)).T)


class Losses(Timed):
    """Values and gradients on Adult, 100 clients; the multinomial loss with ten classes."""

    params = (
        [
            "logistic float64",
            "logistic float32",
            "huber float64",
            "multinomial float64",
            "logistic wide",
            "logistic CSR",
        ],
    )
    param_names = ("loss and dtype, or layout",)

    def time_values_and_gradients(self, case):
        at(LACKS)
        loss, kind = case.split()
        losses.values_and_gradients(*(adult(loss, kind) if kind[0] == "f" else table(kind)))


class Other(Timed):
    """Local steps, random numbers, exponentials and logarithms of a million numbers."""

    params = (["local steps", "words", "laplace", "laplace float32", "gaussian", "exp", "log"],)
    param_names = ("of",)

    def time_kernel(self, name):
        at(LACKS)
        t, clients = uploads((100, 10_000)), np.arange(100)
        if name == "local steps":
            fedepm_local_steps(
                t, t[0], t, np.ones(100), lam=0.1, eta=0.2, mu0=0.5, c=1e-8, alpha=1.001,
                local_steps=12, first_iteration=0,
            )  # fmt: skip
        elif name == "words":
            words(0, 0, 0, 0, 0, 1_000_000)
        elif name.startswith("laplace"):
            laplace(0, 0, 0, 0, clients, 10_000, dtype=np.dtype(name[8:] or "float64"))
        elif name == "gaussian":
            gaussian(0, 0, 0, 0, clients, 10_000)
        else:
            (exp if name == "exp" else log)(positive())


@functools.cache
def positive():
    """A million positive numbers."""
    return np.abs(uploads((100, 10_000)))
