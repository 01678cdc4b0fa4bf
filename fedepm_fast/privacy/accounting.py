"""How much privacy uploads spend, and how much noise a budget asks for."""

from __future__ import annotations

from ..mechanisms.gaussian import gaussian_delta, gaussian_epsilon, gaussian_noise_multiplier
from ..mechanisms.laplace import LAPLACE_SLACK, laplace_epsilon, laplace_noise_multiplier

__all__ = [
    "LAPLACE_SLACK",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "laplace_epsilon",
    "laplace_noise_multiplier",
]
