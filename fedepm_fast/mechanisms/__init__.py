"""Mechanisms: how the noise of an upload follows from what one record can change.

One file each, with its law and its account; `MECHANISMS` has them by name.
"""

from __future__ import annotations

from ._base import MECHANISMS, Law, Mechanism, at_least
from ._paper import PaperNoise
from ._release import release, release_scale
from ._sensitivity import (
    FOR_ROUNDING,
    LARGEST,
    NOISE_SHARE,
    clip_rows,
    clipped_data,
    drift,
    gradient_rounding,
    hides_rounding,
    rounding_share,
    upload_sensitivity,
)
from .gaussian import GaussianMechanism
from .laplace import LaplaceMechanism

__all__ = [
    "FOR_ROUNDING",
    "LARGEST",
    "MECHANISMS",
    "NOISE_SHARE",
    "GaussianMechanism",
    "LaplaceMechanism",
    "Law",
    "Mechanism",
    "PaperNoise",
    "at_least",
    "clip_rows",
    "clipped_data",
    "drift",
    "gradient_rounding",
    "hides_rounding",
    "release",
    "release_scale",
    "rounding_share",
    "upload_sensitivity",
]
