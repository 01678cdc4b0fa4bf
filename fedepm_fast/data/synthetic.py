"""Synthetic clients of any number and size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit

from .._common.validation import (
    MAX_SEED,
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
    check_real,
)
from ._federated import FederatedData
from ._holding import frozen
from ._scaling import column_norms, divide_columns

Array = NDArray[np.float64]

TASKS = {
    "logistic": "classification",
    "multinomial": "multiclass",
    "least_squares": "regression",
}
BY_TASK = {kind: task for task, kind in TASKS.items()}


class Truth(NamedTuple):
    """The parameters behind the labels, for features before any scaling."""

    common: Array
    """w, shape (n,), or (K, n) for the multinomial task."""
    clients: Array
    """w + h*v_i / sqrt(n), shape (m, n) or (m, K, n)."""


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
    n_classes: int = 3,
    scale: str | None = None,
    dtype: Any = np.float64,
    seed: int = 0,
) -> FederatedData:
    """Random federated data with a knob for heterogeneity.

    With h the heterogeneity, client i's rows are ``a = h*s_i + e``, its true parameter is
    ``w + h*v_i``, with s_i, v_i, w and e standard normal (w and v_i divided by sqrt(n), so that
    margins ``a.(w + h*v_i)`` have variance about ``(1 + h^2)^2`` at any n). h = 0 gives
    identically distributed clients; at h = 1 they differ as much from each other as a client's
    rows do. Labels are Bernoulli with the logistic function of ``margin / noise`` (`logistic`),
    the margin plus normal noise of deviation `noise` (`least_squares`), or drawn by the softmax of
    K margins over `noise` (`multinomial`, whose w and v_i are (K, n)). With a `density`
    below 1 every entry is kept with that probability and divided by its square root, which
    leaves the variance of the margins as it is.

    Parameters
    ----------
    task : {"logistic", "multinomial", "least_squares"}
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
        logarithm; 0 gives sizes that differ by at most one.
    noise : float
        Above 0 for `logistic` and `multinomial`, at least 0 for `least_squares`.
    density : float, optional
        Expected share of the entries that are not zero, in (0, 1]; the features are CSR then.
    n_classes : int
        K, for `multinomial`.
    scale : {"unit-norm"}, optional
        Divide every column by its norm at the end, as the paper does with its data: the
        algorithms' default parameters are made for that scale.
    dtype : float64 or float32
        Of the features.
    seed : int
        Every client has its own stream, a child of ``SeedSequence(seed)``, so client i does not
        depend on how many there are.

    Returns
    -------
    FederatedData
        `true_parameters` gives w and the clients' own.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    check_choice("task", task, TASKS)
    m = check_int("clients", clients, low=1)
    n = check_int("features", features, low=1)
    h = check_real("heterogeneity", heterogeneity, low=0.0)
    spread = check_real("imbalance", imbalance, low=0.0)
    noise = check_real("noise", noise, low=0.0, open_low=task != "least_squares")
    if density is not None:
        density = check_real("density", density, low=0.0, high=1.0, open_low=True)
    if scale is not None:
        check_choice("scale", scale, ("unit-norm",))
    dtype = _check_dtype(dtype)
    seed = check_int("seed", seed, high=MAX_SEED)
    n_classes = check_int("n_classes", n_classes, low=2)
    w, common = _common(seed, (n_classes, n) if task == "multinomial" else (n,))
    sizes = _sizes(samples, m, spread, common)

    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = np.empty(offsets[-1])
    table: Any = None if density is not None else np.empty((offsets[-1], n), dtype=dtype)
    blocks = []
    for i in range(m):
        shift, own, rng = _client(seed, i, w, h)
        rows = slice(offsets[i], offsets[i + 1])
        if density is None:
            margin = _fill(rng, table[rows], shift, own)
        else:
            blocks.append(_sparse_rows(rng, int(sizes[i]), n, density, shift, dtype))
            margin = blocks[-1] @ own.T.astype(dtype)
        labels[rows] = _labels(task, margin, noise, rng)
    if density is not None:
        table = sparse.vstack(blocks, format="csr")
        del blocks
    if scale is not None:
        divide_columns(table, column_norms(table))
    return FederatedData(
        frozen(table),  # so that it is held without a copy
        labels,
        sizes,
        description={
            "source": f"synthetic {task}",
            "task": TASKS[task],
            "heterogeneity": h,
            "imbalance": spread,
            "noise": noise,
            "density": density,
            **({"n_classes": n_classes} if task == "multinomial" else {}),
            "scale": scale,
            "seed": seed,
        },
    )


def true_parameters(data: FederatedData) -> Truth:
    """The parameters behind the labels of `make_federated`, from the data's description.

    Raises
    ------
    ValueError
        If the data are not synthetic.
    """
    note = data.description
    if not str(note.get("source")).startswith("synthetic "):
        raise ArgumentValueError("data", f"must come from make_federated, got {data.summary()}")
    shape: tuple[int, ...] = (data.n_features,)
    if note["task"] == TASKS["multinomial"]:
        shape = (note["n_classes"], *shape)
    w, _ = _common(note["seed"], shape)
    h = note["heterogeneity"]
    own = [_client(note["seed"], i, w, h)[1] for i in range(data.n_clients)]
    return Truth(w, np.stack(own))


def _common(seed: int, shape: tuple[int, ...]) -> tuple[Array, np.random.Generator]:
    """The common parameter, and the stream that it came from."""
    rng = _stream(seed, 0)
    return rng.normal(size=shape) / np.sqrt(shape[-1]), rng


def _client(seed: int, i: int, w: Array, h: float) -> tuple[Array, Array, np.random.Generator]:
    """Shift of client i's rows, its parameter, and the stream of its rows."""
    rng = _stream(seed, 1, i)
    n = w.shape[-1]
    shift = h * rng.normal(size=(n,))
    return shift, w + h * rng.normal(size=w.shape) / np.sqrt(n), rng


def _stream(seed: int, *key: int) -> np.random.Generator:
    """The descendant of SeedSequence(seed) that `key` leads to, as its method spawn makes them."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentTypeError("dtype", f"must be float64 or float32, got {dtype!r}") from None
    if found not in (np.float32, np.float64):
        raise ArgumentTypeError("dtype", f"must be float64 or float32, got {found}")
    return found


def _sizes(samples: Any, m: int, spread: float, rng: np.random.Generator) -> NDArray[np.int64]:
    if np.ndim(samples) > 0:
        if spread:
            raise ArgumentValueError(
                "imbalance", "is for samples in all, got the samples of each client too"
            )
        sizes = check_array("samples", samples, shape=(m,), dtype=np.int64)
        if sizes.min() < 1:
            raise ArgumentValueError(
                "samples", f"must be at least 1 for every client, got {sizes.min()}"
            )
        return sizes
    d = check_int("samples", samples, low=m)
    weights = np.exp(spread * rng.normal(size=m)) if spread else np.ones(m)
    # One row each, the others by weight, remainders to the largest fractions.
    share = (d - m) * weights / weights.sum()
    sizes = np.floor(share).astype(np.int64)
    left = d - m - int(sizes.sum())
    sizes[np.argsort(sizes - share, kind="stable")[:left]] += 1
    return sizes + 1


def _fill(rng: np.random.Generator, rows: Any, shift: Array, own: Array) -> Any:
    """Fill a client's rows and return their margins."""
    rng.standard_normal(out=rows, dtype=rows.dtype)
    rows += shift.astype(rows.dtype)
    # Not BLAS, whose last bits depend on its threads.
    return np.einsum("tj,j->t" if own.ndim == 1 else "tj,kj->tk", rows, own.astype(rows.dtype))


def _labels(task: str, margin: Any, noise: float, rng: np.random.Generator) -> Any:
    """Random labels of rows with these margins."""
    if task == "logistic":
        return rng.random(len(margin)) < expit(margin / noise)
    if task == "multinomial":
        return (margin / noise + rng.gumbel(size=margin.shape)).argmax(axis=1)
    return margin + noise * rng.normal(size=len(margin))


def _sparse_rows(
    rng: np.random.Generator, d: int, n: int, density: float, shift: Array, dtype: Any
) -> Any:
    # Entries kept independently: the gaps between them, row after row, are geometric.
    total = d * n
    kept = np.empty(0, dtype=np.int64)
    last = -1
    while last < total:
        expected = (total - last) * density
        gaps = rng.geometric(density, size=int(expected + 4 * np.sqrt(expected)) + 16)
        # A tiny density has gaps beyond the table, whose sum must not overflow.
        more = last + np.cumsum(np.minimum(gaps, total + 1))
        kept = np.concatenate([kept, more[more < total]])
        last = int(more[-1])
    columns = kept % n
    starts = np.searchsorted(kept, np.arange(d + 1) * n)
    # Scaled so that a margin's variance does not depend on the density.
    values = ((rng.normal(size=len(columns)) + shift[columns]) / np.sqrt(density)).astype(dtype)
    return sparse.csr_array((values, columns, starts), shape=(d, n))
