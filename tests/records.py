"""Records of runs, as tests of the store make them."""

from __future__ import annotations

import numpy as np

from fedepm_fast._common.measures import OF_RUN
from fedepm_fast.store import _history
from fedepm_fast.store._record import Record

MEASURED = (0.1 + 0.2, 7, 84, 0.012, 1e-3, -0.5, 0.75, 1e-9, False, "objective_variance", "none")


def record(i: int, *, error: str | None = None, seed: int = 0, **parameters) -> Record:
    """Run number `i`, finished or failed."""
    return Record(
        run_id=f"{i:064x}",
        parameters={"algorithm": "fedepm", "local_steps": 4, "lam": 1e-6, **parameters},
        seed=seed,
        trial=i,
        error=error,
        measures={} if error else dict(zip(OF_RUN, MEASURED, strict=True)),
        versions={"fedepm_fast": "0"},
        machine="here",
        packed=None if error else _history.encode({"objective": np.arange(3.0) / max(i, 1)}),
    )
