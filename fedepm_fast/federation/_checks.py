"""What servers and clients agree on, and what is wrong with what one sends to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_finite, check_real
from ..algorithms import Algorithm, Size
from ..kernels import _boundary as boundary
from ..mechanisms._release import LARGEST_SCALE, LEAST_SCALE

Array = NDArray[Any]


def resolve(algorithm: Algorithm, clients: int, features: int) -> Algorithm:
    """`algorithm` with its defaults for so many clients and coordinates filled in.

    Server and clients must agree on them: those of FedEPM depend on the number of clients.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"algorithm must be FedEPM(...), got {type(algorithm).__name__}")
    if algorithm.keeps_models:
        raise ValueError(
            f"algorithm must be another one than {type(algorithm).__name__}: a CurvatureServer and "
            "a CurvatureClient have that"
        )
    if algorithm.mechanism is None:
        start = getattr(algorithm, "start", None)
        if start not in (None, "own"):
            raise ValueError(f"algorithm must have start 'own' without a mechanism, got {start!r}")
    elif algorithm.mechanism.clip is None:
        raise ValueError(
            "mechanism must have its clip given: the default depends on all clients' sizes"
        )
    return algorithm.resolve(Size(clients, features, 0))


def check_point(x: ArrayLike, features: int) -> Array:
    """The server's point as a finite array of shape (n,), as a client takes it.

    float64 or float32 in native byte order; integers and booleans become float64.
    """
    point = boundary.as_floats("x", x)
    boundary.check_shape("x", point, (features,))
    check_finite("x", point)
    return point


def check_shared(algorithm: Algorithm, shared: Any, x: Array) -> dict[str, Array]:
    """What the server shares, as finite arrays like the point `x`."""
    given, names = {} if shared is None else shared, algorithm.sent_along
    if not isinstance(given, Mapping):
        raise TypeError(f"shared must be a mapping of names to arrays, got {type(shared).__name__}")
    if set(given) != set(names):
        raise ValueError(f"shared must have {_listed(names)}, got {_listed(given)}")
    return {
        name: check_array(f"shared {name}", given[name], shape=x.shape, dtype=x.dtype)
        for name in names
    }


def upload_fault(upload: Any, n: int, dtype: np.dtype[Any], largest: float | None) -> str:
    """What is wrong with an upload, in words; nothing is converted or repaired."""
    if np.ma.isMaskedArray(upload) or not isinstance(upload, np.ndarray):
        return f"upload must be an array, got {type(upload).__name__}"
    if upload.dtype != dtype:
        return f"upload must have dtype {dtype}, got {upload.dtype}"
    if upload.shape != (n,):
        return f"upload must have shape ({n},), got {upload.shape}"
    try:
        check_finite("upload", upload)
    except ValueError as error:
        return str(error)
    if largest is not None:
        size = float(max(upload.max(), -upload.min()))
        if size > largest:
            return f"upload must be at most {largest:g} in absolute value, got {size:g}"
    return ""


def scale_fault(algorithm: Algorithm, scale: Any) -> str:
    """What is wrong with the scale of an upload's noise, in words."""
    if algorithm.mechanism is None:
        return "" if scale is None else f"scale must be None without a mechanism, got {scale!r}"
    try:
        check_real("scale", scale, low=LEAST_SCALE, high=LARGEST_SCALE)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def told_fault(algorithm: Algorithm, told: Any) -> str:
    """What is wrong with the numbers that a client tells when it joins, in words."""
    if not isinstance(told, Mapping | None):
        return f"told must be a mapping of names to numbers, got {type(told).__name__}"
    given, names = told or {}, algorithm.tells
    if set(given) != set(names):
        return f"told must have {_listed(names)}, got {_listed(given)}"
    try:
        for name in names:
            check_real(f"told {name}", given[name], low=0.0, open_low=True)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"


def is_int(value: Any) -> bool:
    """Whether it is an integer, and no boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
