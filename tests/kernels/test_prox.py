"""Proximal operators against the reference and their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast.kernels import prox as module
from fedepm_fast.kernels.prox import prox_elastic_net, soft_threshold
from fedepm_fast.reference import soft_threshold as reference

SIZES = [0, 1, 7, 8, 9, 15, 16, 17, 100]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_reference(size, dtype, rng):
    t = (3 * rng.normal(size=size)).astype(dtype)
    for a in (0.0, 0.5, 1e9):
        got = soft_threshold(t, a)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, reference(t, dtype(a)))
    thresholds = rng.random(size).astype(dtype)
    np.testing.assert_array_equal(soft_threshold(t, thresholds), reference(t, thresholds))
    want = reference(t, dtype(0.3 * 0.7)) / dtype(1 + 0.3 * 0.2)
    np.testing.assert_allclose(
        prox_elastic_net(t, 0.7, 0.2, 0.3), want, rtol=4 * np.finfo(dtype).eps
    )


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e6))
@settings(max_examples=100)
def test_is_nonexpansive(t, s, a):
    moved = abs(soft_threshold(t, a) - soft_threshold(s, a))
    assert moved <= abs(t - s) * (1 + 1e-15) + 1e-9


@given(st.floats(-1e3, 1e3), st.floats(0, 1e2), st.floats(0, 1e2), st.floats(1e-3, 1e2))
@settings(max_examples=100)
def test_is_stationary(t, lam, eta, step):
    v = float(prox_elastic_net(t, lam, eta, step))
    rest = (t - v) - step * eta * v  # must lie in step * lam * sign(v)
    slack = 1e-12 * (abs(t) + step * lam + 1) * (1 + step * eta)
    if v == 0:
        assert abs(rest) <= step * lam + slack
    else:
        assert rest == pytest.approx(step * lam * np.sign(v), abs=slack)


def test_special_numbers_threads_and_out(rng, monkeypatch):
    t = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5])
    got = soft_threshold(t, 1.0)
    np.testing.assert_array_equal(got, [np.nan, np.inf, -np.inf, 0, 0, 0])
    assert np.signbit(got[3]) and not np.signbit(got[4])
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    t = rng.normal(size=(300, 333))
    want = soft_threshold(t, 0.4)
    np.testing.assert_array_equal(soft_threshold(t, 0.4, threads=2), want)
    assert soft_threshold(t, 0.4, out=t) is t
    np.testing.assert_array_equal(t, want)
    assert soft_threshold(2.0, 0.5) == 1.5


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: soft_threshold([1.0], -1.0), ValueError, "a must be"),
        (lambda: soft_threshold([1.0], np.nan), ValueError, "a must be"),
        (lambda: soft_threshold([1.0, 2.0], [-1.0, 1.0]), ValueError, "a must be >= 0"),
        (lambda: soft_threshold(np.ones(3), np.ones(2)), ValueError, "a must broadcast"),
        (lambda: soft_threshold(["x"], 1.0), TypeError, "t must be float64 or float32"),
        (lambda: prox_elastic_net([1.0], -1.0, 1.0), ValueError, "lam must be"),
        (lambda: prox_elastic_net([1.0], 1.0, -1.0), ValueError, "eta must be"),
        (lambda: prox_elastic_net([1.0], 1.0, 1.0, 0.0), ValueError, "step must be"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
