"""Selections and their coverage."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedepm_fast.kernels import sampling
from fedepm_fast.participation import (
    check_coverage,
    client_coverage_probability,
    clients_per_round,
    coverage_probability,
    select,
)
from fedepm_fast.randomness import CounterRandomness, GivenRandomness


@pytest.mark.parametrize(
    ("rho", "m", "m0"),
    [
        (0.55, 100, 55), (0.07, 100, 7), (0.1 + 0.2, 10, 3), (1 / 3, 3, 1), (2 / 3, 3, 2),
        (0.2, 128, 26), (1.0, 50, 50), (1e-9, 50, 1), (0.501, 1000, 501), (1e-13, 10, 1),
    ],
)  # fmt: skip
def test_clients_per_round_is_the_exact_ceiling(rho, m, m0):
    assert clients_per_round(rho, m) == m0


@given(st.integers(1, 40), st.data(), st.integers(0, 2**64 - 1), st.integers(0, 1000))
@settings(max_examples=100)
def test_selection_is_a_sorted_set(m, data, seed, tau):
    m0 = data.draw(st.integers(1, m))
    chosen = select(CounterRandomness(seed), tau, m, m0)
    assert len(chosen) == m0
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] >= 0 and chosen[-1] < m


def test_every_subset_is_equally_likely():
    subsets = {s: 0 for s in combinations(range(5), 2)}
    for tau in range(5000):
        subsets[tuple(select(CounterRandomness(1), tau, 5, 2).tolist())] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > 0.01


@given(st.integers(1, 30), st.integers(1, 6), st.data(), st.integers(0, 99))
@settings(max_examples=100)
def test_covering_scheme_reaches_everyone_in_each_group(m, s0, data, seed):
    m0 = data.draw(st.integers(-(-m // s0), m))
    randomness = CounterRandomness(seed)
    for group in range(3):
        rounds = [select(randomness, group * s0 + q, m, m0, s0) for q in range(s0)]
        assert all(len(set(r.tolist())) == m0 for r in rounds)
        assert set(np.concatenate(rounds).tolist()) == set(range(m))


@pytest.mark.parametrize("s0", [None, 1, 2, 5, 9])
@pytest.mark.parametrize("m", [1, 2, 5, 50])
def test_where_all_take_part_nothing_is_drawn(m, s0):
    class Undrawn(CounterRandomness):
        def words(self, *arguments):
            raise AssertionError("words are drawn of which nothing depends")

    for tau in (0, 3, 10**6):
        chosen = select(Undrawn(7), tau, m, m, s0)
        assert chosen.dtype == np.intp
        np.testing.assert_array_equal(chosen, np.arange(m))
        np.testing.assert_array_equal(sampling.select(7, 0, tau, m, m, s0), chosen)


def test_a_given_selection_goes_before_everyone():
    given = GivenRandomness([[2, 0]])
    np.testing.assert_array_equal(select(given, 0, 3, 3, 2), [0, 2])


def test_too_small_a_cover_is_refused():
    with pytest.raises(ValueError, match="coverage_rounds must be at least 4 to reach all 10"):
        check_coverage(3, 10, 3)


def test_client_coverage_probability():
    assert client_coverage_probability(0.5, 100, 10) == pytest.approx(1 - 0.5**10, rel=1e-14)
    assert client_coverage_probability(1.0, 7, 1) == 1.0
    assert client_coverage_probability(0.5, 4, 0) == 0.0


@pytest.mark.parametrize(("m", "m0", "rounds"), [(6, 2, 3), (6, 2, 5), (10, 5, 4), (5, 5, 1)])
def test_coverage_probability_by_inclusion_and_exclusion(m, m0, rounds):
    want = sum(
        (-1) ** j * comb(m, j) * (comb(m - j, m0) / comb(m, m0)) ** rounds for j in range(m + 1)
    )
    assert coverage_probability(m0 / m, m, rounds) == pytest.approx(want, rel=1e-10)


def test_coverage_probability_of_many_clients():
    # Inclusion and exclusion would cancel here; the union bound is sharp.
    got = coverage_probability(0.5, 400, 20)
    assert got == pytest.approx(1 - 400 * 0.5**20, rel=1e-6)
    assert coverage_probability(0.5, 10, 1) == 0.0
