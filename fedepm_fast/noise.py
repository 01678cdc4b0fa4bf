"""Noise models of the uploads.

None of these is a differentially private mechanism. The paper's bound
2*|g_i|_1 is computed from the data, its guarantee takes the client's hidden state as public,
and the standardised noise of the authors' program has no density at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .mechanisms import LaplaceMechanism, Law
from .randomness import Randomness

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoiseModel:
    """How unit noise becomes the noise of an upload.

    The noise of client i is ``factor * |g_i|_1 / (epsilon * mu_i)`` times unit noise, and the
    first upload's is unit noise over ``mu0``.

    Parameters
    ----------
    name : str
    factor : float
        0 is no noise.
    standardize : bool
        Whether unit noise is centred and scaled within each upload.
    min_features : int
        Parameters that a problem must have for it.
    """

    name: str
    factor: float
    standardize: bool
    min_features: int = 1

    #: Of the unit noise; and that no mechanism of `fedepm_fast.privacy` makes it.
    law: ClassVar[Law] = LaplaceMechanism.law
    private: ClassVar[bool] = False

    @property
    def noisy(self) -> bool:
        """Whether anything is added to the uploads."""
        return self.factor > 0

    def scale(self, gradient: Array, epsilon: float, mu: Array) -> Array:
        """Scale of the noise for gradients (s, n) and penalties `mu` (s,), shape (s,)."""
        return self.factor * np.abs(gradient).sum(axis=-1) / (epsilon * mu)

    def unit(self, randomness: Randomness, tau: int, clients: NDArray[np.intp], n: int) -> Array:
        """Unit noise of `clients` in round `tau`, shape (len(clients), n)."""
        if self.factor == 0:
            return np.zeros((len(clients), n))
        return randomness.unit_noise(tau, clients, n, standardize=self.standardize)


#: ``standardized``: the authors' program, Laplace numbers shifted and scaled to mean 0 and
#: standard deviation 1 within each upload. ``laplace``: i.i.d. Laplace numbers; the paper's
#: Lap(0, nu) has the exponent of an ordinary Laplace distribution of scale 2*nu.
NOISE_MODELS: dict[str, NoiseModel] = {
    model.name: model
    for model in (
        NoiseModel("standardized", 2.0, standardize=True, min_features=2),
        NoiseModel("laplace", 4.0, standardize=False),
        NoiseModel("none", 0.0, standardize=False),
    )
}
