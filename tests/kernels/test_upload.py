"""Uploads whose noise is a law behind a pointer."""

from __future__ import annotations

import numba
import pytest

from fedepm_fast import DivergenceWarning, FedEPM, FederatedData, run
from fedepm_fast.kernels import engine
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.engine import _upload


@numba.njit
def _soon_broken(key0, key1, purpose, tau, clients, scale, deviations, out):
    if tau > 0:
        raise ValueError("no noise")
    out[:] = 0.5


@pytest.mark.skipif(JIT_DISABLED, reason="nothing is called through a pointer")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_law_that_raises_uploads_nothing(rng, monkeypatch):
    """Least of all with the noise of the round before, which would tell what it hides."""
    compiled = _soon_broken.get_compile_result(_upload._DRAWN)
    monkeypatch.setattr(engine, "draw_address", lambda law: engine.address_of(compiled))
    features = rng.normal(size=(40, 3))
    data = FederatedData(features, features[:, 0] > 0, [20, 20])
    with pytest.warns(DivergenceWarning):
        assert run(FedEPM(mu0=500.0), data, rounds=4, seed=1).rounds == 1
