"""Noise for uploads that really leave a client."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.extras import require
from .._common.validation import check_array, check_choice, check_real
from ._base import MECHANISMS, Law
from ._sensitivity import LARGEST

#: Scales of noise that is drawn: far above the grid, and its tails far from an overflow.
LEAST_SCALE, LARGEST_SCALE = 1 / LARGEST, LARGEST

#: Units in the last place by which a scale may have to be rounded up; three have been seen.
_MOST_ROUNDING = 100


def release(w: ArrayLike, scale: float, law: str = "laplace") -> NDArray[np.float64]:
    """`w` with noise that stands up outside a simulation.

    The noise is OpenDP's: drawn from a cryptographic generator that the operating system seeds,
    so that nobody can draw it again, and added in exact arithmetic on the grid of 2**-1074, on
    which every float lies. Noise that is added in floating point, as in simulations, leaves
    traces of what it was added to in the last bits (Mironov 2012). It takes about 0.1 ms a
    coordinate.

    Parameters
    ----------
    w : array_like of shape (n,)
        What to release, finite and below 1e150 in absolute value.
    scale : float
        Of the Laplace noise, or standard deviation of the Gaussian noise, from 1e-150 to 1e150:
        as `release_scale` gives it, for the sensitivity of the upload, `upload_sensitivity`, and
        ``mechanism.noise_multipliers(...)``.
    law : {"laplace", "gaussian"}

    Returns
    -------
    ndarray of shape (n,) and float64

    Raises
    ------
    ImportError
        Without OpenDP, an optional dependency.
    ValueError, TypeError
        Naming the argument.

    Notes
    -----
    Laplace noise is the discrete Laplace law of that scale on the grid, which is as private as
    the continuous one. Gaussian noise is the discrete Gaussian (Canonne, Kamath and Steinke 2020),
    whose privacy curve differs from the continuous one, by which uploads are accounted, by less
    than the square of grid over scale: nothing, beside the parts in 1e11 by which delta is
    rounded up.
    """
    noise = _law(law)
    vector = check_array("w", w, ndim=1)
    size = float(np.abs(vector).max(initial=0.0))
    if size >= LARGEST:
        raise ValueError(f"w must be below {LARGEST:g} in absolute value, got {size:g}")
    measurement = _measurement(_check_scale(scale), noise)
    return np.array(measurement(vector.tolist()), dtype=np.float64)


def release_scale(sensitivity: float, noise_multiplier: float, law: str = "laplace") -> float:
    """The scale for `release` that spends no more than a noise multiplier stands for.

    Parameters
    ----------
    sensitivity : float
        How far a record can move the upload, above 0: in L1 for Laplace, L2 for Gaussian noise.
    noise_multiplier : float
        Scale over sensitivity, above 0.
    law : {"laplace", "gaussian"}

    Returns
    -------
    float
        The product of the two, rounded up until OpenDP's own account of the noise on its grid is
        at most ``1 / noise_multiplier`` for Laplace (epsilon), and ``1 / (2 *
        noise_multiplier**2)`` for Gaussian noise (zero-concentrated privacy, rho), without
        rounding.

    Raises
    ------
    ImportError
        Without OpenDP, an optional dependency.
    ValueError, TypeError
        Naming the argument.
    """
    noise = _law(law)
    sensitivity = check_real("sensitivity", sensitivity, low=0.0, open_low=True)
    multiplier = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    scale = _check_scale(sensitivity * multiplier)
    most = noise.most(Fraction(multiplier))
    for _ in range(_MOST_ROUNDING):
        spends = _measurement(scale, noise).map(sensitivity)
        if math.isfinite(spends) and Fraction(spends) <= most:
            return scale
        scale = math.nextafter(scale, math.inf)
    raise ValueError(
        f"sensitivity and noise_multiplier must be such that their privacy can be told to "
        f"rounding, got {sensitivity:g} and {multiplier:g}"
    )


def _law(name: str) -> Law:
    checked = {name: cls.law for name, cls in MECHANISMS.items() if cls.is_checked()}
    return checked[check_choice("law", name, checked)]


def _check_scale(scale: float) -> float:
    return check_real("scale", scale, low=LEAST_SCALE, high=LARGEST_SCALE)


def _measurement(scale: float, law: Law) -> Any:
    """OpenDP's mechanism for vectors of floats."""
    dp = require("opendp.prelude", "privacy", "privacy.release")
    dp.enable_features("contrib")
    # Without a grid given it is the finest, and nothing is rounded to it.
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    return law.measurement(dp, domain, scale)
