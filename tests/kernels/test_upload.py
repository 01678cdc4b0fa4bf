"""Uploads whose noise is a law behind a pointer."""

from __future__ import annotations

import numba
import pytest

from fedepm_fast import FedEPM, FederatedData, run
from fedepm_fast.kernels import engine
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels._pointers import address_of
from fedepm_fast.kernels.engine import _upload


@numba.njit
def _soon_broken(key0, key1, purpose, tau, clients, scale, deviations, out):
    if tau > 0:
        raise ValueError("no noise in round", tau)
    out[:] = 0.5


@pytest.mark.skipif(JIT_DISABLED, reason="nothing is called through a pointer")
def test_what_a_law_raises_is_raised(rng, monkeypatch):
    """And nothing is uploaded, least of all with the noise of the round before."""
    compiled = _soon_broken.get_compile_result(_upload.DRAWN)
    monkeypatch.setattr(engine, "draw_address", lambda law: address_of(compiled))
    features = rng.normal(size=(40, 3))
    data = FederatedData(features, features[:, 0] > 0, [20, 20])
    with pytest.raises(ValueError, match="no noise in round") as caught:
        run(FedEPM(mu0=500.0), data, rounds=4, seed=1)
    assert caught.value.args == ("no noise in round", 1)
