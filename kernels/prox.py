"""Proximal operators of the l1 norm and of the elastic net, coordinate by coordinate.

`soft_threshold` and `prox_elastic_net` are for Python. Inside other compiled code use
`shrink` on scalars or vectors, or `soft_threshold_raw` on arrays: it takes C-contiguous
arrays of one dtype and any shape, and ``out`` may be ``t``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _boundary as boundary
from ._jit import device, kernel, parallel_kernel, warms
from ._jit import threads as thread_count
from ._simd import (
    copysign,
    lanes,
    load,
    load_partial,
    maximum,
    minimum,
    splat,
    store,
    store_partial,
)

#: Numbers below which threads cost more than they bring.
PARALLEL_FROM = 1_000_000
#: Numbers that one thread maps at a time.
BLOCK = 65_536


@device
def shrink(t, a):
    """soft(t, a) = argmin_v a*|v| + (v - t)^2 / 2 of vectors, or of scalars of one type, a >= 0.

    What is left of t beyond [-a, a]; NaN where t is NaN. It costs three operations, none
    of which needs the sign of t; the zeros are positive.
    """
    return t - maximum(-a, minimum(a, t))


@device
def _shrink_signed(t, a):
    """`shrink` whose zeros have the sign of t."""
    return copysign(shrink(t, a), t)


@device
def _map(t, a, factor, first, last, out):
    """Numbers first..last-1, by one threshold for all, or one for each."""
    width = lanes(t)
    whole = last - (last - first) % width
    scale, common, alike = splat(t, factor), splat(t, a[0]), a.size == 1
    for i in range(first, whole, width):
        store(out, i, scale * _shrink_signed(load(t, i), common if alike else load(a, i)))
    if whole < last:
        rest = last - whole
        own = common if alike else load_partial(a, whole, rest, 0.0)
        v = load_partial(t, whole, rest, 0.0)
        store_partial(out, whole, scale * _shrink_signed(v, own), rest)


@kernel
def soft_threshold_raw(t, a, factor, out):
    """``out = factor * soft(t, a)``, with `a` of the size of `t`, or of size 1."""
    _map(t, a, factor, 0, t.size, out)


@parallel_kernel
def _parallel(t, a, factor, out):
    for block in numba.prange((t.size + BLOCK - 1) // BLOCK):
        _map(t, a, factor, block * BLOCK, min(t.size, (block + 1) * BLOCK), out)


def _run(t: Any, a: Any, factor: float, out: Any, threads: int | None) -> Any:
    """The kernels on checked arrays; a scalar for a scalar."""
    count = boundary.thread_count(threads)
    target = boundary.output("out", out, t.shape, t.dtype)
    if np.may_share_memory(target, t) and target.ctypes.data != t.ctypes.data:
        raise boundary.ArgumentValueError("out", "must be t or not overlap it")
    if a.size > 1 and np.may_share_memory(target, a):
        raise boundary.ArgumentValueError("out", "must not overlap a")
    if t.size:
        if count > 1 and t.size >= PARALLEL_FROM:
            with thread_count(count):
                _parallel(t, a, factor, target)
        else:
            soft_threshold_raw(t, a, factor, target)
    return target[()] if out is None and t.ndim == 0 else target


def soft_threshold(
    t: ArrayLike, a: ArrayLike, out: NDArray[Any] | None = None, threads: int | None = None
) -> Any:
    """soft(t, a), the minimiser of ``a*|v| + (v - t)^2 / 2``: ``sign(t) * max(|t| - a, 0)``.

    Parameters
    ----------
    t : array_like of any shape
        float64 or float32 (integers become float64). Not copied where it is C-contiguous.
    a : float or array_like
        Threshold, at least 0; an array is broadcast to the shape of `t`.
    out : ndarray of the shape and dtype of `t`, optional
        Where to write; may be `t` itself.
    threads : int, optional
        1 by default. The result has the same bits for any number.

    Returns
    -------
    ndarray or scalar
        `out`, or a new array of the dtype of `t`; a scalar if `t` is one. NaN stays NaN,
        zeros have the sign of `t`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument; a negative, infinite or NaN `a` included.
    """
    t = boundary.as_floats("t", t)
    if isinstance(a, (int, float)):
        thresholds = _threshold(boundary.real("a", a, low=0.0), t.dtype)
    else:
        thresholds = boundary.as_floats("a", a)
        boundary.check_finite("a", thresholds)
        if thresholds.size and thresholds.min() < 0:
            raise boundary.ArgumentValueError("a", f"must be >= 0, got {thresholds.min()}")
        thresholds = _threshold(thresholds, t.dtype)
        if thresholds.size != 1:
            try:
                thresholds = np.ascontiguousarray(np.broadcast_to(thresholds, t.shape))
            except ValueError:
                raise boundary.ArgumentValueError(
                    "a", f"must broadcast to the shape {t.shape} of t, got {thresholds.shape}"
                ) from None
        thresholds = thresholds.reshape(-1)
    return _run(t, thresholds, 1.0, out, threads)


def _threshold(a: Any, dtype: Any) -> NDArray[Any]:
    """In this dtype, at most its largest number, which leaves nothing of any other."""
    return np.atleast_1d(np.minimum(a, float(np.finfo(dtype).max))).astype(dtype, copy=False)


def prox_elastic_net(
    t: ArrayLike,
    lam: float,
    eta: float,
    step: float = 1.0,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> Any:
    """The minimiser of ``step*(lam*|v|_1 + eta/2*|v|^2) + |v - t|^2 / 2``.

    It is ``soft(t, step*lam) / (1 + step*eta)``.

    Parameters
    ----------
    t : array_like of any shape
        float64 or float32 (integers become float64). Not copied where it is C-contiguous.
    lam, eta : float
        Weights of the l1 and of the quadratic part, at least 0.
    step : float
        Step size, above 0.
    out, threads
        As for `soft_threshold`.

    Returns
    -------
    ndarray or scalar
        As for `soft_threshold`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    t = boundary.as_floats("t", t)
    lam = boundary.real("lam", lam, low=0.0)
    eta = boundary.real("eta", eta, low=0.0)
    step = boundary.real("step", step, low=0.0, open_low=True)
    return _run(t, _threshold(step * lam, t.dtype), 1.0 / (1.0 + step * eta), out, threads)


@warms
def _warm(dtypes: Any) -> None:
    for dtype in dtypes:
        soft_threshold(np.ones(1, dtype), 0.5)
