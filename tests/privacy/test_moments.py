"""Private second moments: what a record can change, their noise, and the server's coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data
from scipy import sparse, stats

from fedepm_fast import FederatedData, Logistic, Multinomial, Problem
from fedepm_fast.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    client_moments,
    coordinates,
    in_coordinates,
    mean_moments,
    moments_change,
    pack,
    simulate_moments,
    unpack,
)
from fedepm_fast.private_runs import problem_in
from fedepm_fast.randomness import CounterRandomness, GivenRandomness

LAWS = [LaplaceMechanism(total_epsilon=1.0), GaussianMechanism(total_epsilon=1.0)]


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_packing_keeps_norms_and_comes_back(p, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, p, p))
    a, b = a + a.T, b + b.T
    assert pack(a).shape == (p * (p + 1) // 2,)
    assert pack(a) @ pack(b) == pytest.approx(np.sum(a * b), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(unpack(pack(a), p), a, rtol=1e-15)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([1, 2]), st.floats(1e-3, 1e3), st.booleans())
def test_moments_are_those_of_rows_scaled_down_to_the_radius(seed, order, radius, is_sparse):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(9, 4)) * radius * 10.0 ** rng.integers(-2, 3, (9, 1))
    rows[rng.random(rows.shape) < 0.3] = 0
    given = sparse.csr_array(rows) if is_sparse else rows
    expected = np.zeros(10)
    for a in rows:
        one = pack(np.outer(a, a))
        expected += one * min(1.0, radius**2 / max(np.linalg.norm(one, order), 1e-300)) / 9
    np.testing.assert_allclose(
        client_moments(given, radius, order), expected, rtol=1e-9, atol=1e-12 * radius**2
    )


@settings(max_examples=60)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 2]), st.integers(1, 6), st.integers(1, 5),
    st.floats(1e-3, 1e3),
)  # fmt: skip
def test_a_record_moves_moments_no_further_than_the_bound(seed, order, p, d, radius):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(d, p)) * radius * 10.0 ** rng.integers(-2, 3, (d, 1))
    other = rows.copy()
    other[0] = rng.normal(size=p) * radius * 10.0 ** rng.integers(-2, 8)
    moved = client_moments(rows, radius, order) - client_moments(other, radius, order)
    assert np.linalg.norm(moved, order) <= moments_change(radius, [d], order, p)[0]


@pytest.mark.parametrize("order, factor", [(1, 2.0), (2, np.sqrt(2.0))])
def test_rows_along_two_axes_attain_it(order, factor):
    d, radius = 3, 1.7
    rows = np.zeros((d, 4))
    rows[0, 0] = 1e6
    other = np.zeros((d, 4))
    other[0, 2] = -50.0
    moved = client_moments(rows, radius, order) - client_moments(other, radius, order)
    bound = moments_change(radius, [d], order, 4)[0]
    assert np.linalg.norm(moved, order) == pytest.approx(factor * radius**2 / d, rel=1e-12)
    assert 0.9999 * bound < np.linalg.norm(moved, order) <= bound


@pytest.mark.parametrize("mechanism", LAWS, ids=lambda one: one.name)
def test_noise_is_of_the_seed_and_the_client_alone(mechanism):
    data = small_data(60, 5, seed=3)
    multipliers = np.linspace(1.0, 3.0, 60)
    values, scales = simulate_moments(data, mechanism, 2.0, multipliers, CounterRandomness(7))
    np.testing.assert_array_equal(
        scales, moments_change(2.0, data.client_sizes, mechanism.order, 5) * multipliers
    )
    clean = np.array([
        client_moments(data.client(i)[0], 2.0, mechanism.order) for i in range(60)
    ])  # fmt: skip
    unit = (values - clean) / scales[:, None]
    law = stats.laplace if mechanism.order == 1 else stats.norm
    assert stats.kstest(unit.ravel(), law.cdf).pvalue > 1e-3
    part = FederatedData.from_clients([data.client(i) for i in range(3)])
    again, _ = simulate_moments(part, mechanism, 2.0, multipliers[:3], CounterRandomness(7))
    np.testing.assert_array_equal(again, values[:3])
    other, _ = simulate_moments(data, mechanism, 2.0, multipliers, CounterRandomness(8))
    assert not np.isclose(other, values).any()
    rounds = CounterRandomness(7).unit_noise(0, np.arange(60), 15, law=mechanism.law.quantile)
    assert not np.isclose(unit, rounds).any()


def test_coordinates_whiten_the_mean_moments_without_noise():
    data, weights = small_data(4, 3, seed=1), np.array([1.0, 2.0, 3.0, 4.0])
    values, scales = simulate_moments(data, LAWS[1], 1e6, np.zeros(4), CounterRandomness(0))
    moments, edge = mean_moments(values, scales, weights, 2)
    expected = sum(
        w / 10 * data.client(i)[0].T @ data.client(i)[0] / data.client_sizes[i]
        for i, w in enumerate(weights)
    )
    np.testing.assert_allclose(moments, expected, rtol=1e-12)
    assert edge == 0.0
    back = coordinates(values, scales, weights, 2)
    np.testing.assert_allclose(back @ expected @ back, np.eye(3), atol=1e-10)
    np.testing.assert_array_equal(back, back.T)


@pytest.mark.parametrize("order", [1, 2])
def test_the_edge_is_the_norm_of_the_noise(order):
    rng, p = np.random.default_rng(0), 60
    draw = rng.laplace if order == 1 else rng.normal
    scales = np.linspace(0.5, 1.5, 8)
    values = draw(size=(8, p * (p + 1) // 2)) * scales[:, None]
    moments, edge = mean_moments(values, scales, np.ones(8), order)
    assert np.linalg.norm(moments, 2) == pytest.approx(edge, rel=0.1)
    # Where there is noise alone, all directions are alike.
    back = coordinates(values, scales, np.ones(8), order, floor=1.2)
    np.testing.assert_allclose(back, np.eye(p) / np.sqrt(1.2 * edge), atol=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_in_coordinates_are_moved_one_by_one(is_sparse):
    data, matrix = small_data(3, 4, seed=2), np.arange(16.0).reshape(4, 4) + 5 * np.eye(4)
    rows = data.features.copy()
    rows[0] = 1e308  # as far as rows go
    given = sparse.csr_array(rows) if is_sparse else rows
    moved = in_coordinates(FederatedData(given, data.labels, data.client_sizes), matrix)
    np.testing.assert_allclose(moved.features[1:], data.features[1:] @ matrix, rtol=1e-12)
    np.testing.assert_allclose(moved.features[0], (np.full(4, 0.5e100) @ matrix), rtol=1e-12)
    np.testing.assert_array_equal(moved.labels, data.labels)


@pytest.mark.parametrize("objective", [Logistic(beta=0.3), Multinomial(beta=0.3, classes=3)])
def test_a_problem_in_coordinates_has_the_gradients_of_the_chain_rule(objective):
    # A penalty of unequal weights, and coordinates that keep it diagonal.
    objective = objective.changed(weights=(1.0, 0.5, 0.0), regularizer="beta")
    data = small_data(3, 3, seed=4, task=objective.task)
    problem, matrix = Problem(data, objective), np.diag([2.0, 0.3, -1.5])
    moved = problem_in(problem, matrix)
    v = np.random.default_rng(0).normal(size=problem.n_parameters)
    w = (v.reshape(-1, 3) @ matrix.T).ravel()
    expected = (problem.gradients(w).reshape(3, -1, 3) @ matrix).reshape(3, -1)
    np.testing.assert_allclose(moved.gradients(v), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moved.values(v), problem.values(w), rtol=1e-12)


@pytest.mark.parametrize("call, message", [
    (lambda: client_moments(np.eye(2), 0.0, 2), "radius must be"),
    (lambda: client_moments([[np.nan, 0.0]], 1.0, 2), "features must be finite"),
    (lambda: moments_change(np.inf, [1], 2, 2), "radius must be"),
    (lambda: coordinates(np.ones((2, 4)), np.ones(2), np.ones(2), 2), "values must be packed"),
    (lambda: coordinates(np.ones((2, 3)), np.ones(3), np.ones(2), 2), "scales must have shape"),
    (lambda: coordinates(np.ones((2, 3)), np.ones(2), np.zeros(2), 2), "weights must be above 0"),
    (lambda: coordinates(np.ones((2, 3)), np.ones(2), np.ones(2), 2, 0.0), "floor must be"),
    (lambda: coordinates(np.zeros((2, 3)), np.zeros(2), np.ones(2), 2), "values must hold"),
    (lambda: simulate_moments(small_data(2, 2), LAWS[0], 1.0, np.ones(2),
                              GivenRandomness([[0]])), "randomness must be"),
])  # fmt: skip
def test_bad_arguments_are_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
