"""Noise kernels: the reference's numbers, the right laws, the same bits however drawn."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from fedepm_fast import randomness
from fedepm_fast.kernels import _jit
from fedepm_fast.kernels import noise as module
from fedepm_fast.kernels._from_words import unchanged
from fedepm_fast.kernels._jit import kernel
from fedepm_fast.kernels._simd import lanes, load, reinterpret, splat, store
from fedepm_fast.kernels.noise import _laws as laws
from fedepm_fast.kernels.noise import (
    gaussian,
    laplace,
    laplace_rows,
    laplace_rows_single,
    uniform,
)
from fedepm_fast.kernels.philox import wrapping

NOISE = randomness.NOISE
MANY = 40 if _jit.JIT_DISABLED else 2000
SHAPES = [(7, 99)] if _jit.JIT_DISABLED else [(1, 50_001), (7, 9_999), (5_000, 14), (3, 20_000)]


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


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 64, 65, 130, 300])
def test_float32_takes_half_a_word_a_number(n):
    r, clients = randomness.CounterRandomness(5, 6), [3, 0, 1100]
    words = np.stack([r.words(NOISE, 9, c, (n + 1) // 2) for c in clients])
    u = randomness.uniform_halves(words)[:, :n]
    np.testing.assert_array_equal(np.floor(u * 2.0**32), words.view("<u4")[:, :n])
    quantiles = {
        uniform: (u, 2),
        laplace: (randomness.laplace_quantile(u), 4),
        gaussian: (ndtri(u), 8),
    }
    for draw, (want, units) in quantiles.items():
        got = draw(5, 6, NOISE, 9, clients, n, dtype=np.float32)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=units * 2.0**-24)
    if n > 1:
        want = quantiles[laplace][0]
        want = (want - want.mean(axis=1)[:, None]) / want.std(axis=1, ddof=1)[:, None] * 2.5
        got = laplace(5, 6, NOISE, 9, clients, n, standardize=True, scale=2.5, dtype=np.float32)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_laws():
    clients = np.arange(MANY)
    for draw, law in ((laplace, stats.laplace), (gaussian, stats.norm), (uniform, stats.uniform)):
        single = draw(42, 0, NOISE, 0, clients, 10, dtype=np.float32)
        assert stats.kstest(single.ravel(), law.cdf).pvalue > 0.01
        numbers = draw(42, 0, NOISE, 0, clients, 10)
        assert stats.kstest(numbers.ravel(), law.cdf).pvalue > 0.01
        if draw is not uniform:
            scaled = draw(42, 0, NOISE, 0, clients, 10, scale=np.arange(1.0, MANY + 1))
            np.testing.assert_allclose(scaled, numbers * np.arange(1.0, MANY + 1)[:, None])
    rows = laplace(42, 0, NOISE, 0, clients, 14, standardize=True, scale=3.0)
    np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(rows.std(axis=1, ddof=1), 3, rtol=1e-13)


def _applied(law, words, dtype):
    """What a law makes of words; as many numbers as go into them."""
    begin, middle, complete, hold = law
    middle = middle or unchanged

    @kernel
    def apply(words, out):
        held, one = hold(), splat(out, 1.0)
        for i in range(0, words.size, 8):
            begun = begin(reinterpret(out, load(words, i)), held)
            store(out, i * lanes(out) // 8, complete(middle(begun, held), held, one))

    out = np.empty(words.nbytes // np.dtype(dtype).itemsize, dtype)
    apply(words, out)
    return out


@pytest.mark.parametrize("name", ["uniform", "laplace", "gaussian"])
def test_the_ends_and_the_middle_of_the_unit_interval(name):
    """Words of the first and last cells, of those beside 1/2, and of tails of every size."""

    def words_of(bits, dropped):
        middle, most = 1 << (bits - 1), (1 << bits) - 1
        words = [0, 1 << dropped, most, most - (1 << dropped), middle, middle - 1]
        for k in range(dropped, bits - 1):
            words += [middle + (1 << k), middle - (1 << k) - 1, 1 << k, most - (1 << k)]
        return np.resize(np.array(words, f"<u{bits // 8}"), 512)

    quantile = {"uniform": np.array, "laplace": randomness.laplace_quantile, "gaussian": ndtri}[
        name
    ]
    law, single_law = getattr(laws, name.upper())
    words, halves = words_of(64, 12), words_of(32, 0).view(np.uint64)
    got, single = _applied(law, words, np.float64), _applied(single_law, halves, np.float32)
    np.testing.assert_allclose(got, quantile(randomness.uniform(words)), rtol=2e-15)
    np.testing.assert_allclose(single, quantile(randomness.uniform_halves(halves)), rtol=1e-6)
    if name == "uniform":
        assert 0 < got.min() < got.max() < 1
        assert 0 < single.min() < single.max() < 1
    else:
        assert (got != 0).all()
        assert (single != 0).all()
    if name == "laplace":
        assert np.abs(single).max() == np.float32(32 * np.log(2))


@pytest.mark.parametrize("draw", [laplace, gaussian, uniform])
def test_same_bits_however_drawn(draw, monkeypatch):
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    clients = np.arange(23)
    for dtype in (np.float64, np.float32):
        alone = functools.partial(draw, dtype=dtype)
        whole = alone(1, 2, 3, 4, clients, 77)
        np.testing.assert_array_equal(alone(1, 2, 3, 4, clients, 77, threads=2), whole)
        np.testing.assert_array_equal(alone(1, 2, 3, 4, clients[::-1], 77), whole[::-1])
        np.testing.assert_array_equal(alone(1, 2, 3, 4, [7], 77), whole[[7]])
        for n in (1, 13, 20, 76):
            np.testing.assert_array_equal(alone(1, 2, 3, 4, clients, n), whole[:, :n])
        out = np.empty((23, 77), dtype)
        assert alone(1, 2, 3, 4, clients, 77, out=out) is out
        np.testing.assert_array_equal(out, whole)
    whole = draw(1, 2, 3, 4, clients, 77)
    for other in ((2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5)):
        assert not np.intersect1d(draw(*other, clients, 77), whole).size
    assert draw(1, 2, 3, 4, [], 5).shape == (0, 5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("rows", "n"), SHAPES)
def test_same_bits_in_blocks(dtype, rows, n, monkeypatch):
    """Blocks that end inside a row, at the end of one, and after many."""
    clients = np.arange(rows)[::-1] * 3
    for standardize in (False, True):
        draw = functools.partial(laplace, 1, 2, 3, 4, n=n, standardize=standardize, dtype=dtype)
        whole = draw(clients=clients)
        for i in {0, rows // 2, rows - 1}:
            np.testing.assert_array_equal(whole[[i]], draw(clients=clients[[i]]))
        monkeypatch.setattr(module, "PARALLEL_FROM", 0)
        np.testing.assert_array_equal(draw(clients=clients, threads=2), whole)


OTHER = """
import sys, numpy as np
from fedepm_fast.kernels.noise import uniform
np.save(sys.argv[1], uniform(1, 2, 3, 4, np.arange(23), 77))
"""


@pytest.mark.skipif(_jit.JIT_DISABLED, reason="there is no machine code")
def test_same_bits_where_words_are_multiplied_one_by_one(tmp_path):
    """On processors without instructions that multiply words in vectors, blocks are all scalars."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic"}
    subprocess.run([sys.executable, "-c", OTHER, tmp_path / "u.npy"], env=environment, check=True)
    got = np.load(tmp_path / "u.npy")
    np.testing.assert_array_equal(got, uniform(1, 2, 3, 4, np.arange(23), 77))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_raw_functions(dtype):
    raw = laplace_rows if dtype is np.float64 else laplace_rows_single
    counter, clients = [np.uint64(i) for i in (1, 2, 3, 4)], np.array([5, 9], np.uint64)
    factors, none, out = np.array([2.0, 0.5], dtype), np.empty(0, dtype), np.full((2, 13), 7, dtype)
    with wrapping():
        raw(*counter, clients, factors, none, out)
        want = laplace(1, 2, 3, 4, [5, 9], 13, scale=[2.0, 0.5], dtype=dtype)
        np.testing.assert_array_equal(out, want)
        raw(*counter, clients, np.ones(2, dtype), factors, out)
        want = laplace(1, 2, 3, 4, [5, 9], 13, scale=[2.0, 0.5], standardize=True, dtype=dtype)
        np.testing.assert_array_equal(out, want)
        raw(*counter, clients, factors, none, np.empty((2, 0), dtype))
        raw(*counter, clients[:0], factors[:0], none, np.empty((0, 3), dtype))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be"),
        ({"purpose": 1.0}, TypeError, "purpose must be an integer"),
        ({"clients": [-1]}, ValueError, "clients must be at least 0"),
        ({"clients": [0.5]}, TypeError, "clients must be integers"),
        ({"n": -1}, ValueError, "n must be"),
        ({"tau": -1}, ValueError, "tau must be an integer from 0 to"),
        ({"out": np.empty((1, 5), np.float32)}, TypeError, "out must be an array of dtype"),
        ({"n": 1, "standardize": True}, ValueError, "n must be an integer from 2 to 4294967295"),
        ({"scale": np.ones(2)}, ValueError, r"scale must have shape \(\) or \(1,\)"),
        ({"scale": 1e38, "dtype": np.float32}, ValueError, "scale must be at most"),
        ({"scale": np.nan}, ValueError, "scale must be finite"),
        ({"scale": -1.0}, ValueError, "scale must be at least 0, got -1"),
        ({"scale": [-1e-300]}, ValueError, "scale must be at least 0, got -1e-300"),
        ({"dtype": np.int64}, TypeError, "dtype must be float64 or float32"),
        ({"threads": 0}, ValueError, "threads must be"),
        ({"out": np.empty((2, 5))}, ValueError, "out must have shape"),
    ],
)
def test_bad_input(arguments, error, message):
    good = {"seed": 0, "trial": 0, "purpose": 0, "tau": 0, "clients": [0], "n": 5}
    with pytest.raises(error, match=message):
        laplace(**good | arguments)
