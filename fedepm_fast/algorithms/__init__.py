"""The algorithms: frozen, validated parameter objects, and what each does in a round.

Each is one file of this package, named after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._base import ALGORITHMS, PRESETS, STEPS, Algorithm, Preset
from ._base import PrivacyPlan as PrivacyPlan  # at home in `mechanisms`
from ._views import AtClients, AtServer, Size

if TYPE_CHECKING:
    from .curvature import CurvatureFedEPM
    from .fedadmm import FedADMM
    from .fedavg import FedAvg
    from .feddyn import FedDyn
    from .fedepm import AGGREGATIONS, STARTS, FedEPM
    from .fednl import FedNL
    from .fedpd import FedPD
    from .fedprox import FedProx
    from .scaffold import Scaffold
    from .sfedavg import SFedAvg
    from .sfedprox import SFedProx

__all__ = [
    "AGGREGATIONS",
    "ALGORITHMS",
    "PRESETS",
    "STARTS",
    "STEPS",
    "Algorithm",
    "AtClients",
    "AtServer",
    "CurvatureFedEPM",
    "FedADMM",
    "FedAvg",
    "FedDyn",
    "FedEPM",
    "FedNL",
    "FedPD",
    "FedProx",
    "Preset",
    "SFedAvg",
    "SFedProx",
    "Scaffold",
    "Size",
]


def __getattr__(name: str) -> Any:
    """A class of one of the files, by its own name."""
    if name in ("AGGREGATIONS", "STARTS"):
        from . import fedepm

        return getattr(fedepm, name)
    if name == "CurvatureFedEPM":
        return ALGORITHMS["curvature"]
    if not name.startswith("__") and name.lower() in ALGORITHMS:
        found = ALGORITHMS[name.lower()]
        if found.__name__ == name:  # no other spelling of it
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def label_of(name: str) -> str:
    """An algorithm's name for people; one that is not registered is called by its name."""
    return ALGORITHMS[name].label if name in ALGORITHMS else name
