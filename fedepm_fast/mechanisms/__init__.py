"""Mechanisms: how the noise of an upload follows from what one record can change.

One file each, with its law and its account; `MECHANISMS` has them by name.
"""

from __future__ import annotations

from typing import Any

from .._common.parameters import parameters
from .._common.validation import check_choice, check_parameters
from ._account import Account
from ._base import MECHANISMS, Law, Mechanism, at_least
from ._columns import Columns
from ._composition import Spending
from ._coordinates import check_coordinates, coordinates, in_coordinates, mean_moments
from ._moments import (
    client_moments,
    moments_change,
    pack,
    packed_size,
    simulate_moments,
    unpack,
)
from ._paper import PaperNoise
from ._release import release, release_scale
from ._releases import recorded
from ._sensitivity import (
    FOR_ROUNDING,
    LARGEST,
    NOISE_SHARE,
    SMALLEST_FACTOR,
    PrivacyPlan,
    clip_moves,
    clip_rows,
    clipped_data,
    drift,
    gradient_rounding,
    hides_rounding,
    privacy_plan,
    rounding_share,
    upload_sensitivity,
)
from .gaussian import GaussianMechanism
from .laplace import LaplaceMechanism


def as_mechanism(mechanism: str | None = None, **options: Any) -> Mechanism:
    """The mechanism of that name with these parameters; by default Gaussian noise with a `delta`,
    else Laplace.

    Raises
    ------
    ValueError, TypeError
        Naming the parameter.
    """
    if mechanism is None:
        mechanism = "gaussian" if "delta" in options else "laplace"
    cls = MECHANISMS[check_choice("mechanism", mechanism, MECHANISMS)]
    check_parameters(f"mechanism {mechanism!r}", options, list(parameters(cls)))
    return cls(**options)


__all__ = [
    "FOR_ROUNDING",
    "LARGEST",
    "MECHANISMS",
    "NOISE_SHARE",
    "SMALLEST_FACTOR",
    "Account",
    "Columns",
    "GaussianMechanism",
    "LaplaceMechanism",
    "Law",
    "Mechanism",
    "PaperNoise",
    "PrivacyPlan",
    "Spending",
    "as_mechanism",
    "at_least",
    "check_coordinates",
    "client_moments",
    "clip_moves",
    "clip_rows",
    "clipped_data",
    "coordinates",
    "drift",
    "gradient_rounding",
    "hides_rounding",
    "in_coordinates",
    "mean_moments",
    "moments_change",
    "pack",
    "packed_size",
    "privacy_plan",
    "recorded",
    "release",
    "release_scale",
    "rounding_share",
    "simulate_moments",
    "unpack",
    "upload_sensitivity",
]
