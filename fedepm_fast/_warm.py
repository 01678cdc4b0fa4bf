"""Every run that there are kernels for, on next to no data, so that all of them are compiled.

But for batches: of each loss and layout their gradients are compiled where they are first used.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from scipy import sparse

from .algorithms import ALGORITHMS, FedEPM
from .data import FederatedData
from .losses import OBJECTIVES
from .mechanisms import MECHANISMS
from .result import DivergenceWarning
from .runner import run


def warm_runs() -> None:
    """Run every algorithm with every loss in every layout of rows, and private ones."""
    # A server of models calls kernels of gradients, which `kernels.warmup` compiles.
    staged = [cls for cls in ALGORITHMS.values() if not cls.keeps_models]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        for algorithm, (name, loss) in itertools.product(staged, OBJECTIVES.items()):
            # Some algorithms refuse losses without a bound of their curvature.
            refused: list[type[Exception]] = [ValueError] if loss().curvature is None else []
            for data in _data(loss.task):
                with suppress(*refused):
                    run(algorithm(), data, objective=name, rounds=1)
        data = next(_data("classification"))
        for mechanism in filter(lambda m: m.is_checked(), MECHANISMS.values()):
            private: Any = mechanism(total_epsilon=1.0, clip=1.0)
            for aggregation in ("equal", "inverse_variance"):
                run(FedEPM(mechanism=private, aggregation=aggregation), data, rounds=1)


def _data(task: str) -> Iterator[FederatedData]:
    """One client of four rows, dense, dense and wide, and sparse."""
    # So small that no loss overflows at the first noise, however steep it is.
    rows = 1e-3 * np.random.default_rng(0).normal(size=(4, 200))
    labels = np.arange(4.0) % 2
    for features in (rows[:, :3].copy(), rows, sparse.csr_array(rows[:, :3])):
        yield FederatedData(features, labels, np.array([4]))
