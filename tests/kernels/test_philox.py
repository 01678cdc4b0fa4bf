"""Random words against NumPy and the reference; samples against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import participation, randomness
from fedepm_fast.kernels import _jit
from fedepm_fast.kernels.philox import philox4x64, words
from fedepm_fast.kernels.sampling import sample, select

TOP = 2**64 - 1
word = st.one_of(st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, TOP - 2]), st.integers(0, TOP - 2))
FEW = _jit.JIT_DISABLED


@given(st.tuples(word, word), st.tuples(word, word, word, word))
@settings(max_examples=20 if FEW else 300)
def test_equals_numpy(key, counter):
    generator = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))
    blocks = np.array([[counter[0] + 1 + b, *counter[1:]] for b in range(2)], np.uint64)
    np.testing.assert_array_equal(philox4x64(blocks, key).ravel(), generator.random_raw(8))


def test_equals_the_reference(rng):
    counters = rng.integers(0, TOP, (3, 37, 4), dtype=np.uint64)
    key = (TOP, 0x0123456789ABCDEF)
    np.testing.assert_array_equal(philox4x64(counters, key), randomness.philox4x64(counters, key))
    r = randomness.CounterRandomness(7, 9)
    for count in (0, 1, 4, 5, 31, 32, 33, 63, 64, 65, 100):
        np.testing.assert_array_equal(words(7, 9, 3, 11, 13, count), r.words(3, 11, 13, count))


@given(st.integers(1, 300), st.data(), word, word, st.integers(0, 10**6))
@settings(max_examples=10 if FEW else 150)
def test_samples_equal_the_reference(m, data, seed, trial, tau):
    count = data.draw(st.integers(0, m))
    r = randomness.CounterRandomness(seed, trial)
    want = participation.sample(r, randomness.SELECT, tau, np.arange(m), count)
    got = sample(seed, trial, randomness.SELECT, tau, m, count)
    np.testing.assert_array_equal(got, want)
    everyone = sample(seed, trial, randomness.SELECT, tau, m, m)  # in a random order
    np.testing.assert_array_equal(everyone[:count], want)
    assert sorted(everyone.tolist()) == list(range(m))
    pool = np.arange(m)[::-1] * 3
    want = participation.sample(r, randomness.COVER, tau, pool, count)
    np.testing.assert_array_equal(sample(seed, trial, randomness.COVER, tau, pool, count), want)


@given(st.integers(1, 200), st.data(), word, word, st.integers(0, 10**6))
@settings(max_examples=10 if FEW else 200)
def test_selections_equal_the_reference(m, data, seed, trial, tau):
    m0 = data.draw(st.integers(1, m))
    fewest = -(-m // m0)
    s0 = data.draw(st.none() | st.integers(fewest, fewest + m + 3))
    r = randomness.CounterRandomness(seed, trial)
    want = participation.select(r, tau, m, m0, s0)
    np.testing.assert_array_equal(select(seed, trial, tau, m, m0, s0), want)


def test_coverage_reaches_everyone():
    rounds = [select(3, 0, 14 + position, 50, 8, 7) for position in range(7)]
    assert all((np.diff(chosen) > 0).all() and chosen.shape == (8,) for chosen in rounds)
    np.testing.assert_array_equal(np.unique(np.concatenate(rounds)), np.arange(50))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: words(-1, 0, 0, 0, 0, 1), ValueError, "seed must be an integer from 0 to"),
        (lambda: words(0, TOP + 1, 0, 0, 0, 1), ValueError, "trial must be an integer"),
        (lambda: words(0, 0, 0, 1.5, 0, 1), TypeError, "tau must be an integer"),
        (lambda: words(0, 0, 0, 0, 0, -1), ValueError, "count must be an integer"),
        (lambda: philox4x64([1, 2, 3], (0, 0)), ValueError, "counter must have shape"),
        (lambda: philox4x64([-1, 2, 3, 4], (0, 0)), ValueError, "counter must be at least 0"),
        (lambda: philox4x64([0.5, 2, 3, 4], (0, 0)), TypeError, "counter must be integers"),
        (lambda: philox4x64([1, 2, 3, 4], (0, 0, 0)), ValueError, "key must be two integers"),
        (lambda: philox4x64([1, 2, 3, 4], (0, -1)), ValueError, r"key\[1\] must be an integer"),
        (lambda: select(0, 0, 0, 3, 4), ValueError, "m0 must be an integer from 1 to 3"),
        (lambda: select(0, 0, 0, 0, 1), ValueError, "m must be an integer from 1 to"),
        (
            lambda: select(0, 0, 0, 9, 4, 2),
            ValueError,
            "coverage_rounds must be .* from 3 to",
        ),
        (lambda: sample(0, 0, 0, 0, 3, 4), ValueError, "count must be an integer from 0 to 3"),
        (lambda: sample(0, 0, 0, 0, [0.5], 1), TypeError, "pool must be integers"),
        (lambda: sample(0, 0, 0, 0, -1, 0), ValueError, "pool must be an integer"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
