"""Differential privacy of FedEPM's uploads, at the level of records.

The noise of the paper protects nobody: its bound ``2*|g_i|_1`` is computed from the data, and
its guarantee takes the client's parameter w_i as public, which depends on the data through every
local step before. The mechanisms here hold, because FedEPM takes one gradient a round, at a
public point: started from something released, with a public penalty sequence, the local steps
change by at most a known multiple of what the gradient changes by.

Two datasets are neighbours if they differ in one record of one client; the number of records of
each client is public. With a mechanism's ``neighbours="client"`` they differ in all records of one
client, and in their number. An observer of everything that is ever sent learns about a record, or
a client, no more than the guarantee says.
"""

from __future__ import annotations

from .. import mechanisms as mechanisms
from ..guarantees import ReleasedRun
from ..mechanisms import (
    MECHANISMS,
    Account,
    GaussianMechanism,
    LaplaceMechanism,
    Mechanism,
    PaperNoise,
    Spending,
    clip_rows,
    upload_sensitivity,
)
from ._location import ens_variance, noise_l1_for, noise_left
from .accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    laplace_epsilon,
)
from .planning import plan
from .private_plan import PrivatePlan
from .release import release, release_scale

__all__ = [
    "MECHANISMS",
    "Account",
    "GaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "PaperNoise",
    "PrivatePlan",
    "ReleasedRun",
    "Spending",
    "clip_rows",
    "ens_variance",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "laplace_epsilon",
    "noise_l1_for",
    "noise_left",
    "plan",
    "release",
    "release_scale",
    "upload_sensitivity",
]

for _public in (ens_variance, noise_l1_for, noise_left):
    _public.__module__ = __name__  # where documentation names them
