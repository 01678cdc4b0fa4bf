"""Noise as a pure function of (seed, trial, purpose, round, client, coordinate).

Coordinate j of a client and round takes word j of the client's Philox stream (`philox`), so
clients and coordinates can be drawn in any order, by any number of threads, or alone, with the
same bits. With U the midpoint of one of 2^52 equal cells of (0, 1), chosen by the word::

    uniform    U
    laplace    the quantile of U, log(2U) or -log(2(1 - U))
    gaussian   the normal quantile of U (Wichura 1988, algorithm AS 241)

In float32 a number takes half a word, number j the lower half of word j // 2 if j is even, and U is
the midpoint of one of 2^32 cells: other numbers than in float64, in half the time. Their tails are
coarse: no Laplace number is beyond 32 log 2, or 22.2, and those beyond 10 are 1e-5 apart or more.
So no private mechanism may use them, and none does: runs, clients and mechanisms draw in float64.

Inside other compiled code call ``laplace_rows(key0, key1, purpose, tau, clients, scale,
deviations, out)``, or ``uniform_rows``, ``gaussian_rows`` with the same arguments. They write
one row of `out` (s, n) for each of `clients` (s,) times `scale` (s,); if `deviations` is not
empty but (s,) too, rows are then shifted to mean 0 and scaled to these standard deviations.
They allocate nothing and need no Python. Keys, `purpose`, `tau` and `clients` are uint64;
`scale`, `deviations` and `out` float64, or float32 for ``laplace_rows_single`` and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _boundary as boundary
from .._jit import threads as thread_count
from .._jit import warms
from ..philox import word, wrapping
from ._rows import GAUSSIAN, LAPLACE, UNIFORM, Kernels

#: Numbers below which threads cost more than they bring.
PARALLEL_FROM = 200_000

uniform_rows, uniform_rows_single = (k.rows for k in UNIFORM)
laplace_rows, laplace_rows_single = (k.rows for k in LAPLACE)
gaussian_rows, gaussian_rows_single = (k.rows for k in GAUSSIAN)


def laplace(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    standardize: bool = False,
    scale: ArrayLike | None = None,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Laplace noise of clients in a round.

    Parameters
    ----------
    seed, trial : int
        The key of the run, each in ``[0, 2**64)``.
    purpose, tau : int
        What the noise is for, and the round, each in ``[0, 2**64)``.
    clients : array_like of int, shape (s,)
        In any order, each at least 0.
    n : int
        Coordinates, at least 0.
    standardize : bool
        Shift and scale every row to mean 0 and standard deviation 1 (ddof 1); n must be at
        least 2. Such a row has no density; it is what the authors' program adds.
    scale : array_like, shape () or (s,), optional
        Factor of every row, at least 0; 1 by default.
    dtype : float64 or float32
        float32 noise has numbers of its own, in half the time, and coarser tails; see `noise`.
    out : ndarray of shape (s, n) and of this dtype, optional
        Where to write.
    threads : int, optional
        1 by default; the same bits for any number.

    Returns
    -------
    ndarray of shape (s, n)

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    return _noise(
        LAPLACE, seed, trial, purpose, tau, clients, n, standardize, scale, dtype, out, threads
    )


def gaussian(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    scale: ArrayLike | None = None,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Standard normal noise of clients in a round; arguments as for `laplace`."""
    return _noise(
        GAUSSIAN, seed, trial, purpose, tau, clients, n, False, scale, dtype, out, threads
    )


def uniform(
    seed: int,
    trial: int,
    purpose: int,
    tau: int,
    clients: ArrayLike,
    n: int,
    *,
    dtype: Any = np.float64,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Uniform numbers in (0, 1), without the ends, of clients in a round.

    Arguments as for `laplace`. float32 numbers are rounded, but below 1.
    """
    return _noise(UNIFORM, seed, trial, purpose, tau, clients, n, False, None, dtype, out, threads)


def _noise(
    kernels: tuple[Kernels, Kernels], seed: Any, trial: Any, purpose: Any, tau: Any,
    clients: Any, n: Any, standardize: bool, scale: Any, dtype: Any, out: Any, threads: Any,
) -> NDArray[Any]:  # fmt: skip
    names = ("seed", "trial", "purpose", "tau")
    counter = map(word, names, (seed, trial, purpose, tau))
    who = boundary.as_integers("clients", clients)
    if who.size and who.min() < 0:
        raise boundary.ArgumentValueError("clients", f"must be at least 0, got {who.min()}")
    who = who.view(np.uint64)
    shape = (who.size, boundary.integer("n", n, low=2 if standardize else 0, high=2**32 - 1))
    dtype = np.dtype(dtype)
    if dtype not in boundary.FLOATS:
        raise boundary.ArgumentTypeError("dtype", f"must be float64 or float32, got {dtype}")
    scales = np.ones(who.size, dtype) if scale is None else _scales(scale, who.size, dtype)
    none = np.empty(0, dtype)
    factors, deviations = (np.ones(who.size, dtype), scales) if standardize else (scales, none)
    count = boundary.thread_count(threads)
    out = boundary.output("out", out, shape, dtype, who)
    rows, parallel = kernels[dtype == np.float32]
    with wrapping():
        if count > 1 and out.size >= PARALLEL_FROM:
            with thread_count(count):
                parallel(*counter, who, factors, deviations, out)
        else:
            rows(*counter, who, factors, deviations, out)
    return out


def _scales(scale: Any, size: int, dtype: Any) -> NDArray[Any]:
    """Factors of all rows, such that their products with the largest numbers stay finite."""
    given = boundary.as_floats("scale", scale).astype(np.float64, copy=False)
    if given.shape not in ((), (size,)):
        raise boundary.ArgumentValueError(
            "scale", f"must have shape () or ({size},), got {given.shape}"
        )
    boundary.check_finite("scale", given)
    most = float(np.finfo(dtype).max) / 64
    if given.size and given.min() < 0.0:
        raise boundary.ArgumentValueError("scale", f"must be at least 0, got {given.min():g}")
    if given.size and given.max() > most:
        raise boundary.ArgumentValueError(
            "scale", f"must be at most {most:.3g} in {dtype}, got {given.max():g}"
        )
    return np.ascontiguousarray(np.broadcast_to(given, size), dtype)


@warms
def _warm(dtypes: Any) -> None:
    for dtype in dtypes:
        for law in (uniform, laplace, gaussian):
            law(0, 0, 0, 0, [0], 2, dtype=dtype)
