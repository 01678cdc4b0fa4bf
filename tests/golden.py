"""Recorded runs of the authors' program, with its randomness.

One small run is part of the tests. The larger ones are used from the folder named by the
environment variable FEDEPM_GOLDEN, or ``shared/golden`` beside the clone, where present.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fedepm_fast import FedEPM, FederatedData, GivenRandomness, datasets

HERE = Path(__file__).parent
_ELSEWHERE = os.environ.get("FEDEPM_GOLDEN", HERE.parents[1] / "shared" / "golden")


def files() -> list[Path]:
    """Every recorded run at hand, by name, the tests' own copy first."""
    found: dict[str, Path] = {}
    for folder in (HERE / "data", Path(_ELSEWHERE)):
        for path in sorted(folder.glob("*.npz")):
            found.setdefault(path.name, path)
    return list(found.values())


def load(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def setup(golden: dict[str, Any]) -> tuple[FedEPM, FederatedData, GivenRandomness]:
    """The algorithm, data and randomness of a recorded run."""
    features, labels = datasets.load_adult()[:2]
    rows = golden["rows"]
    data = FederatedData(features[rows], labels[rows], golden["client_sizes"])
    algorithm = FedEPM(
        local_steps=int(golden["k0"]),
        participation=float(golden["rho"]),
        epsilon=float(golden["epsilon"]),
    )
    randomness = GivenRandomness(
        golden["selected"], golden["unit_noise_init"], golden["unit_noise"]
    )
    return algorithm, data, randomness


def relative(got: Any, want: Any) -> float:
    """Largest error relative to the largest magnitude of `want`."""
    got, want = np.asarray(got, dtype=float), np.asarray(want, dtype=float)
    assert got.shape == want.shape
    return float(np.abs(got - want).max() / np.abs(want).max())
