"""Small tunings."""

from __future__ import annotations

import dataclasses

from problems import small_data

from fedepm_fast import FedEPM, tune

SPACE = {"lam": (1e-6, 1e-2, "log"), "local_steps": [1, 2], "alpha": (1.0, 1.1)}
#: FedEPM that works on `small_data`, and does so without kernels.
ALGORITHM = FedEPM(mu0=20.0, lam=1e-3, eta=1e-2, noise="none", local_steps=2)


def small_tune(algorithm=ALGORITHM, data=None, **changed):
    """Tune with a small space, by the reference."""
    given = {"space": SPACE, "folds": 3, "trials": 5, "rounds": 3, "engine": "reference"}
    return tune(algorithm, data or small_data(), **{**given, "progress": False, **changed})


def timeless(result) -> list:
    """The trials, but for how long they took."""
    return [dataclasses.replace(trial, seconds=0.0) for trial in result.trials]
