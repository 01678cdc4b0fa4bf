"""Noise kernels: the reference's numbers, the right laws, the same bits however drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from fedepm_fast import randomness
from fedepm_fast.kernels import _jit
from fedepm_fast.kernels import noise as module
from fedepm_fast.kernels.noise import (
    gaussian,
    laplace,
    laplace_row,
    standardize_row,
    uniform,
)

NOISE = randomness.NOISE
MANY = 40 if _jit.JIT_DISABLED else 2000


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130])
def test_equals_the_reference(n):
    r, clients = randomness.CounterRandomness(5, 6), np.array([3, 0, 1100])
    want = r.unit_noise(9, clients, n, standardize=False)
    np.testing.assert_allclose(laplace(5, 6, NOISE, 9, clients, n), want, rtol=1e-14)
    u = randomness.uniform(np.stack([r.words(NOISE, 9, c, n) for c in clients]))
    np.testing.assert_array_equal(uniform(5, 6, NOISE, 9, clients, n), u)
    np.testing.assert_allclose(gaussian(5, 6, NOISE, 9, clients, n), ndtri(u), rtol=1e-14)
    if n > 1:
        want = r.unit_noise(9, clients, n, standardize=True)
        got = laplace(5, 6, NOISE, 9, clients, n, standardize=True)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_laws():
    clients = np.arange(MANY)
    for draw, law in ((laplace, stats.laplace), (gaussian, stats.norm), (uniform, stats.uniform)):
        numbers = draw(42, 0, NOISE, 0, clients, 10)
        assert stats.kstest(numbers.ravel(), law.cdf).pvalue > 0.01
        if draw is not uniform:
            scaled = draw(42, 0, NOISE, 0, clients, 10, scale=np.arange(1.0, MANY + 1))
            np.testing.assert_allclose(scaled, numbers * np.arange(1.0, MANY + 1)[:, None])
    rows = laplace(42, 0, NOISE, 0, clients, 14, standardize=True, scale=3.0)
    np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(rows.std(axis=1, ddof=1), 3, rtol=1e-13)


def test_the_ends_of_the_unit_interval_stay_finite():
    """The quantiles at the first and the last cell."""
    for u in (2.0**-53, 1 - 2.0**-53, 0.5 - 2.0**-53, 0.5 + 2.0**-53):
        assert np.isfinite([randomness.laplace_quantile(np.array(u)), ndtri(u)]).all()


@pytest.mark.parametrize("draw", [laplace, gaussian, uniform])
def test_same_bits_however_drawn(draw, monkeypatch):
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    clients = np.arange(23)
    whole = draw(1, 2, 3, 4, clients, 77)
    np.testing.assert_array_equal(draw(1, 2, 3, 4, clients, 77, threads=2), whole)
    np.testing.assert_array_equal(draw(1, 2, 3, 4, clients[::-1], 77), whole[::-1])
    np.testing.assert_array_equal(draw(1, 2, 3, 4, [7], 77), whole[[7]])
    np.testing.assert_array_equal(draw(1, 2, 3, 4, clients, 20), whole[:, :20])
    out = np.empty((23, 77))
    assert draw(1, 2, 3, 4, clients, 77, out=out) is out
    np.testing.assert_array_equal(out, whole)
    single = draw(1, 2, 3, 4, clients, 77, dtype=np.float32)
    np.testing.assert_array_equal(single, whole.astype(np.float32))
    for other in ((2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5)):
        assert not np.intersect1d(draw(*other, clients, 77), whole).size
    assert draw(1, 2, 3, 4, [], 5).shape == (0, 5)


def test_raw_functions():
    row, number = np.empty(13), np.uint64
    with np.errstate(over="ignore"):
        laplace_row(number(1), number(2), number(3), number(4), number(5), 2.0, row)
    np.testing.assert_array_equal(row, laplace(1, 2, 3, 4, [5], 13, scale=2.0)[0])
    standardize_row(1.5, row)
    want = laplace(1, 2, 3, 4, [5], 13, standardize=True, scale=1.5)[0]
    np.testing.assert_allclose(row, want, rtol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be"),
        ({"purpose": 1.0}, TypeError, "purpose must be an integer"),
        ({"clients": [-1]}, ValueError, "clients must be at least 0"),
        ({"clients": [0.5]}, TypeError, "clients must be integers"),
        ({"n": -1}, ValueError, "n must be"),
        ({"n": 1, "standardize": True}, ValueError, "n must be an integer >= 2"),
        ({"scale": np.ones(2)}, ValueError, r"scale must have shape \(\) or \(1,\)"),
        ({"scale": np.nan}, ValueError, "scale must be finite"),
        ({"dtype": np.int64}, TypeError, "dtype must be float64 or float32"),
        ({"threads": 0}, ValueError, "threads must be"),
        ({"out": np.empty((2, 5))}, ValueError, "out must have shape"),
    ],
)
def test_bad_input(arguments, error, message):
    good = {"seed": 0, "trial": 0, "purpose": 0, "tau": 0, "clients": [0], "n": 5}
    with pytest.raises(error, match=message):
        laplace(**good | arguments)
