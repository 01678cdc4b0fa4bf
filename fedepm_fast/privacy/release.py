"""Noise for uploads that really leave a client."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._extras import require
from .._validation import check_array, check_choice, check_real


def release(w: ArrayLike, scale: float, law: str = "laplace") -> NDArray[np.float64]:
    """`w` with noise that stands up outside a simulation.

    The noise comes from OpenDP: from the operating system's entropy, so that nobody can draw it
    again, and as a discrete law on a grid that does not depend on `w`. Noise that is added in
    floating point, as in simulations, leaves traces of what it was added to in the last bits
    (Mironov 2012).

    Parameters
    ----------
    w : array_like of shape (n,)
        What to release, finite.
    scale : float
        Of the Laplace noise, or standard deviation of the Gaussian noise, above 0: the noise
        multiplier of the mechanism times the sensitivity of the upload,
        ``mechanism.noise_multipliers(...)`` times `upload_sensitivity`.
    law : {"laplace", "gaussian"}

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    ImportError
        Without OpenDP, an optional dependency.
    ValueError, TypeError
        Naming the argument.
    """
    check_choice("law", law, ("laplace", "gaussian"))
    vector = check_array("w", w, ndim=1)
    scale = check_real("scale", scale, low=0.0, open_low=True)
    dp = require("opendp.prelude", "privacy", "privacy.release")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if law == "laplace":
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    return np.array(measurement(vector.tolist()), dtype=np.float64)
