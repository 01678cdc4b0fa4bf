"""Counter-based randomness and the noise models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedepm_fast.noise import NOISE_MODELS
from fedepm_fast.randomness import (
    NOISE,
    SELECT,
    CounterRandomness,
    GivenRandomness,
    bounded,
    philox4x64,
    uniform,
)


@pytest.mark.parametrize("key", [(0, 0), (1, 2), (2**64 - 1, 2**63 + 5)])
@pytest.mark.parametrize("counter", [(0, 0, 0, 0), (2**64 - 3, 7, 2**33, 4), (5, 2**64 - 1, 0, 1)])
def test_philox_equals_numpy(key, counter):
    generator = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))
    want = generator.random_raw(8).reshape(2, 4)
    blocks = [[counter[0] + 1 + b, *counter[1:]] for b in range(2)]
    # NumPy carries from word to word; the cases stay below that.
    np.testing.assert_array_equal(philox4x64(np.array(blocks, np.uint64), key), want)


def test_uniform_is_open_and_exact():
    words = np.array([0, 2**64 - 1, 2**63], dtype=np.uint64)
    np.testing.assert_array_equal(uniform(words), [2.0**-53, 1 - 2.0**-53, 0.5 + 2.0**-53])


def test_bounded_covers_its_range():
    assert [bounded(w, 10) for w in (0, 2**64 - 1, 2**63)] == [0, 9, 5]


def test_numbers_depend_on_their_own_coordinates_only():
    r = CounterRandomness(3, 1)
    noise = r.unit_noise(5, np.arange(20), 7, standardize=False)
    np.testing.assert_array_equal(
        r.unit_noise(5, np.array([11, 4]), 7, standardize=False), noise[[11, 4]]
    )
    np.testing.assert_array_equal(
        r.unit_noise(5, np.arange(20), 4, standardize=False), noise[:, :4]
    )
    words = r.words(NOISE, 5, 11, 7)
    want = stats.laplace.ppf(uniform(words))
    np.testing.assert_allclose(noise[11], want, rtol=1e-14)
    for other in (CounterRandomness(3, 2), CounterRandomness(4, 1)):
        assert not np.intersect1d(other.words(NOISE, 5, 11, 7), words).size
    assert not np.intersect1d(r.words(SELECT, 5, 11, 7), words).size
    assert not np.intersect1d(r.words(NOISE, 6, 11, 7), words).size
    blocks = r.words_at(NOISE, 5, np.array([[11], [4]]), np.array([1, 0]))
    assert blocks.shape == (2, 2, 4)
    np.testing.assert_array_equal(np.append(blocks[0, 1], blocks[0, 0, :3]), words)
    np.testing.assert_array_equal(blocks[1, 1], r.words(NOISE, 5, 4, 4))


def test_laws():
    r = CounterRandomness(42)
    noise = NOISE_MODELS["laplace"].unit(r, 0, np.arange(2000), 10).ravel()
    assert stats.kstest(noise, stats.laplace.cdf).pvalue > 0.01
    initial = NOISE_MODELS["laplace"].unit(r, -1, np.arange(2000), 10).ravel()
    assert stats.kstest(initial, stats.laplace.cdf).pvalue > 0.01
    assert abs(np.corrcoef(noise, initial)[0, 1]) < 0.02
    standardized = NOISE_MODELS["standardized"].unit(r, 0, np.arange(50), 14)
    np.testing.assert_allclose(standardized.mean(axis=1), 0, atol=1e-15)
    np.testing.assert_allclose(standardized.std(axis=1, ddof=1), 1, rtol=1e-14)
    assert not NOISE_MODELS["none"].unit(r, 0, np.arange(3), 4).any()


def test_noise_scale():
    gradient, mu = np.array([[1.0, -2.0], [0.5, 0.0]]), np.array([0.1, 0.2])
    np.testing.assert_allclose(
        NOISE_MODELS["standardized"].scale(gradient, 0.5, mu), [2 * 3 / 0.05, 2 * 0.5 / 0.1]
    )
    np.testing.assert_allclose(
        NOISE_MODELS["laplace"].scale(gradient, 0.5, mu), [4 * 3 / 0.05, 4 * 0.5 / 0.1]
    )


def test_bad_input():
    with pytest.raises(ValueError, match="seed must be an integer from 0"):
        CounterRandomness(-1)
    with pytest.raises(TypeError, match="trial must be an integer"):
        CounterRandomness(0, 0.5)
    noise = np.zeros((2, 3, 4))
    with pytest.raises(ValueError, match=r"selected\[0\] must hold clients from 0 to 2"):
        GivenRandomness([[0, 3]], noise[0], noise)
    with pytest.raises(ValueError, match=r"selected\[1\] names a client twice"):
        GivenRandomness([[0], [1, 1]], noise[0], noise)
    with pytest.raises(ValueError, match="unit_noise must have shape"):
        GivenRandomness([[0]], noise[0], noise[:, :2])
    with pytest.raises(ValueError, match="unit_noise_init must be finite"):
        GivenRandomness([[0]], noise[0] * np.nan, noise)
    given = GivenRandomness([[0]], noise[0], noise)
    with pytest.raises(ValueError, match="selected covers 1 rounds, but round 1"):
        given.select(1, 3, 1)
    with pytest.raises(ValueError, match=r"unit_noise_init must have shape \(2, 4\)"):
        given.check(2, 4)
