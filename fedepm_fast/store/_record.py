"""What came of a run, on its way to the store and in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..guarantees import SHARED_SEED
from . import _history

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Record:
    """What a store holds of one run.

    Attributes
    ----------
    run_id : str
        SHA-256, in hexadecimal, of everything that determines the result.
    parameters : dict
        Of algorithm, data, objective and stopping, resolved, as one flat mapping.
    seed, trial : int
    error : str or None
        Why the run failed; None for a result.
    measures : dict
        As in `Result.summary`, the reasons joined by ``+``; empty if the run failed.
    versions : dict
    machine : str
    created : str
        UTC, ISO 8601.
    """

    run_id: str
    parameters: Mapping[str, Any]
    seed: int
    trial: int
    error: str | None
    measures: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: str
    packed: bytes | None = field(repr=False)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def history(self) -> dict[str, Array]:
        """Per-round arrays, as in `Result.history`; empty if the run failed.

        Raises
        ------
        ValueError
            If they are damaged.
        """
        return {} if self.packed is None else decoded(self.packed)


def decoded(packed: bytes) -> dict[str, Array]:
    """The history of a stored run. What a private one spends has no bound, see `SHARED_SEED`;
    stores of earlier versions have a number there."""
    history = _history.decode(packed)
    for name in history.keys() & {"epsilon", "epsilon_clients"}:
        history[name] = np.where(history[name] > 0, np.inf, 0.0)
    return history


def guarantee_of(stored: str | None) -> str | None:
    """What holds of a stored run of which its store says that: the same, unless an earlier version
    wrote it."""
    return stored if stored is None or stored.startswith("none") else SHARED_SEED
