"""A private client of small data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from problems import small_data

from fedepm_fast import FedEPM
from fedepm_fast.federation.client import PrivateClient
from fedepm_fast.privacy import LaplaceMechanism

ROOT = Path(__file__).parents[1]
M, N = 4, 3
DATA = small_data(M, N, seed=1)
LAPLACE = LaplaceMechanism(total_epsilon=1.0, clip=2.0)
ALGORITHM = FedEPM(local_steps=3, participation=1.0, mechanism=LAPLACE)


def client(path: Path, i: int = 0, **options: Any) -> PrivateClient:
    """Client `i` of these, with a ledger at `path`."""
    options = {"algorithm": ALGORITHM, "index": i, "clients": M, "uploads": 3, **options}
    features, labels = DATA.client(i)
    features, labels = options.pop("rows", features), options.pop("labels", labels)
    return PrivateClient(options.pop("algorithm"), features, labels, path=path, **options)
