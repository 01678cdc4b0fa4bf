"""Synthetic clients of any number and size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit

from ._validation import check_array, check_choice, check_int, check_real
from .data import FederatedData, unit_norm_columns

Array = NDArray[np.float64]

TASKS = {"logistic": "classification", "least_squares": "regression"}


def make_federated(
    task: str = "logistic",
    *,
    clients: int = 10,
    samples: int | ArrayLike = 1000,
    features: int = 20,
    heterogeneity: float = 0.0,
    imbalance: float = 0.0,
    noise: float = 1.0,
    density: float | None = None,
    scale: str | None = None,
    dtype: Any = np.float64,
    seed: int = 0,
) -> FederatedData:
    """Random federated data with a knob for heterogeneity.

    With h the heterogeneity, client i's rows are ``a = h*s_i + e``, its true parameter is
    ``w + h*v_i``, with s_i, v_i, w and e standard normal (w and v_i divided by sqrt(n), so that
    margins have variance about 1 at any n). h = 0 gives identically distributed clients; at
    h = 1 they differ as much from each other as a client's rows do. Labels are Bernoulli with
    the logistic function of ``margin / noise`` (`logistic`), or the margin plus normal noise
    (`least_squares`).

    Parameters
    ----------
    task : {"logistic", "least_squares"}
    clients : int
        m.
    samples : int or array_like of shape (m,)
        Rows in all, or of each client.
    features : int
        n.
    heterogeneity : float
        h, at least 0.
    imbalance : float
        With `samples` one number: sizes follow a lognormal law with this deviation of the
        logarithm; 0 gives equal sizes.
    noise : float
        Above 0 for `logistic`, at least 0 for `least_squares`.
    density : float, optional
        Share of the entries that are not zero, in (0, 1]; the features are CSR then.
    scale : {"unit-norm"}, optional
        Divide every column by its norm at the end, as the paper does with its data: the
        algorithms' default parameters are made for that scale.
    dtype : float64 or float32
        Of the features.
    seed : int
        Every client has its own stream, so client i does not depend on how many there are.

    Returns
    -------
    FederatedData
        ``description["true_parameter"]`` is w.
    """
    check_choice("task", task, TASKS)
    m = check_int("clients", clients, low=1)
    n = check_int("features", features, low=1)
    h = check_real("heterogeneity", heterogeneity, low=0.0)
    spread = check_real("imbalance", imbalance, low=0.0)
    noise = check_real("noise", noise, low=0.0, open_low=task == "logistic")
    if density is not None:
        density = check_real("density", density, low=0.0, high=1.0, open_low=True)
    if scale is not None:
        check_choice("scale", scale, ("unit-norm",))
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float64 or float32, got {dtype}")
    seed = check_int("seed", seed)
    common = np.random.default_rng([seed, 0])
    w = common.normal(size=n) / np.sqrt(n)
    sizes = _sizes(samples, m, spread, common)

    offsets = np.concatenate([[0], np.cumsum(sizes)])
    d = int(offsets[-1])
    labels = np.empty(d)
    dense = None if density is not None else np.empty((d, n), dtype=dtype)
    blocks = []
    for i in range(m):
        rng = np.random.default_rng([seed, 1, i])
        shift, own = h * rng.normal(size=n), w + h * rng.normal(size=n) / np.sqrt(n)
        rows = slice(offsets[i], offsets[i + 1])
        if dense is not None:
            a: Any = dense[rows]
            rng.standard_normal(out=a, dtype=dtype)
            a += shift.astype(dtype)
        else:
            a = _sparse_rows(rng, int(sizes[i]), n, density or 1.0, shift, dtype)
            blocks.append(a)
        margin = a @ own.astype(dtype)
        if task == "logistic":
            labels[rows] = rng.random(sizes[i]) < expit(margin / noise)
        else:
            labels[rows] = margin + noise * rng.normal(size=sizes[i])
    table: Any = dense if dense is not None else sparse.vstack(blocks, format="csr")
    if scale is not None:
        table, _ = unit_norm_columns(table)
    return FederatedData(
        table,
        labels,
        sizes,
        description={
            "source": f"synthetic {task}",
            "task": TASKS[task],
            "heterogeneity": h,
            "imbalance": spread,
            "noise": noise,
            "density": density,
            "scale": scale,
            "seed": seed,
            "true_parameter": w.tolist(),
        },
    )


def _sizes(samples: Any, m: int, spread: float, rng: np.random.Generator) -> NDArray[np.int64]:
    if np.ndim(samples) > 0:
        sizes = check_array("samples", samples, shape=(m,), dtype=np.int64)
        if sizes.min() < 1:
            raise ValueError(f"samples must be at least 1 for every client, got {sizes.min()}")
        return sizes
    d = check_int("samples", samples, low=m)
    weights = np.exp(spread * rng.normal(size=m)) if spread else np.ones(m)
    # One row each, the others by weight, remainders to the largest fractions.
    share = (d - m) * weights / weights.sum()
    sizes = np.floor(share).astype(np.int64)
    left = d - m - int(sizes.sum())
    sizes[np.argsort(sizes - share, kind="stable")[:left]] += 1
    return sizes + 1


def _sparse_rows(
    rng: np.random.Generator, d: int, n: int, density: float, shift: Array, dtype: Any
) -> Any:
    counts = rng.binomial(n, density, size=d)
    starts = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate(
        [np.sort(rng.choice(n, count, replace=False)) for count in counts] or [np.empty(0)]
    ).astype(np.int64)
    # Scaled so that a margin's variance does not depend on the density.
    values = ((rng.normal(size=len(columns)) + shift[columns]) / np.sqrt(density)).astype(dtype)
    return sparse.csr_array((values, columns, starts), shape=(d, n))
