"""Recorded runs of the authors' program, with its randomness: see ``data/README.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedepm_fast import FedEPM, FederatedData, GivenRandomness, datasets

#: By name: what else lies in the folder, or beside the clone, decides nothing. A small one first.
NAMES = (
    "small_m8_k5_r50_e50",
    "m50_k12_r20_e10",
    "m50_k12_r100_e90",
    "m50_k4_r50_e10",
    "m100_k12_r50_e10",
    "m128_k20_r50_e10_laplace",
)


def files() -> list[Path]:
    """Every recorded run."""
    return [Path(__file__).parent / "recorded" / f"{name}.npz" for name in NAMES]


#: Of FedADMM's authors, see `algorithms/test_fedadmm.py`.
ADMM_NAMES = ("admm_linreg_m30_k8", "admm_m50_k10_r50")


def admm_files() -> list[Path]:
    """Every recorded run of FedADMM."""
    return [Path(__file__).parent / "recorded" / f"{name}.npz" for name in ADMM_NAMES]


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
