"""The l1 part of the server's ENS, in scales of the noise: what it is, and what it is best."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import small_data
from scipy.special import ndtri

from fedepm_fast import FedEPM, FederatedData, run
from fedepm_fast.algorithms import AtServer
from fedepm_fast.algorithms._operators import ens
from fedepm_fast.algorithms.fedepm import AGGREGATIONS
from fedepm_fast.kernels.ens import ens as kernel_ens
from fedepm_fast.mechanisms import GaussianMechanism, LaplaceMechanism
from fedepm_fast.privacy import ens_variance, noise_l1_for, noise_left
from fedepm_fast.privacy._location import MINIMAX

LAPLACE = LaplaceMechanism(total_epsilon=20.0, clip=1.0, public_scaling=True)
GAUSSIAN = GaussianMechanism(total_epsilon=20.0, clip=1.0, public_scaling=True)
ALGORITHM = FedEPM(lam=1e-3, eta=0.5, start="broadcast", mechanism=LAPLACE)


def point(algorithm, Z, scale):
    nobody = np.empty(0, np.intp)
    return algorithm.aggregate(AtServer(0, Z, nobody, nobody, nobody, np.asarray(scale), Z[0]))


@pytest.mark.parametrize("aggregation, weights", [
    ("equal", None),
    ("uploaded", [1.0, 1e-9, 1.0, 1.0]),
    ("inverse_variance", [1.0, 1e-9, 1 / 4, 1 / 16]),
    ("inverse_deviation", [1.0, 1e-9, 1 / 2, 1 / 4]),
])  # fmt: skip
def test_it_is_so_many_mean_scales_of_the_uploads_with_noise(aggregation, weights, rng):
    Z, scale = rng.normal(size=(4, 3)), np.array([1.0, np.nan, 2.0, 4.0])
    p = np.ones(4) if weights is None else np.array(weights)
    mean = (p[0] * 1 + p[2] * 2 + p[3] * 4) / (p[0] + p[2] + p[3])
    algorithm = dataclasses.replace(ALGORITHM, aggregation=aggregation, noise_l1=0.3)
    want = ens(Z, 1e-3 / 0.5 + 0.3 * mean, weights)
    np.testing.assert_allclose(point(algorithm, Z, scale), want, rtol=1e-14)


def test_points_without_noise_have_none(rng):
    Z, scale = rng.normal(size=(5, 3)), np.full(5, np.nan)
    for aggregation in AGGREGATIONS:
        plain = dataclasses.replace(ALGORITHM, aggregation=aggregation)
        other = dataclasses.replace(plain, noise_l1=7.0)
        np.testing.assert_array_equal(point(other, Z, scale), point(plain, Z, scale))


@given(st.floats(1e-100, 1e100), st.floats(0.0, 1e3), st.integers(0, 10**6))
def test_the_point_scales_with_uploads_and_noise(factor, noise_l1, seed):
    rng = np.random.default_rng(seed)
    Z, scale = rng.laplace(size=(7, 4)), rng.uniform(0.5, 2, size=7)
    algorithm = dataclasses.replace(ALGORITHM, lam=0.0, noise_l1=noise_l1)
    size = np.abs(Z).max() * factor
    found, want = point(algorithm, factor * Z, factor * scale), point(algorithm, Z, scale)
    np.testing.assert_allclose(found, factor * want, rtol=0, atol=1e-11 * size)


@pytest.mark.parametrize("claimed", [1e150, 1e308])
def test_a_huge_scale_gives_the_median(claimed):
    Z = np.array([[0.0], [1.0], [2.0], [5.0], [9.0]])
    algorithm = dataclasses.replace(ALGORITHM, noise_l1=1e10)
    for solver in (algorithm, algorithm.with_kernels()):
        assert point(solver, Z, [1.0, 1.0, 1.0, 1.0, claimed]) == 2.0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("mechanism", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_engine_and_reference_agree(mechanism, aggregation):
    data = small_data(m=7)
    data = FederatedData(data.features / 40, data.labels, data.client_sizes)
    points = []
    for noise_l1 in (0.0, 2.5, 40.0):
        algorithm = dataclasses.replace(
            ALGORITHM, mechanism=mechanism, aggregation=aggregation, noise_l1=noise_l1
        )
        compiled = run(algorithm, data, rounds=4, seed=3)
        equations = run(algorithm, data, rounds=4, seed=3, engine="reference")
        for key in ("x", "Z", "W"):
            want = getattr(equations, key)
            atol = 1e-12 * np.abs(want).max()
            np.testing.assert_allclose(getattr(compiled, key), want, rtol=1e-12, atol=atol)
        points.append(compiled.x)
    assert not np.allclose(points[0], points[1], rtol=1e-3)
    assert not np.allclose(points[1], points[2], rtol=1e-3)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, "2"])
def test_bad_input_is_named(value):
    with pytest.raises((ValueError, TypeError), match="noise_l1 must be"):
        FedEPM(mechanism=LAPLACE, noise_l1=value)
    with pytest.raises(ValueError, match="noise_l1 must be 0 without a mechanism, got 2"):
        FedEPM(noise_l1=2.0)


def test_descriptions_have_it_where_something_depends_on_it():
    assert "noise_l1" not in FedEPM().describe()
    assert dataclasses.replace(ALGORITHM, noise_l1=2.0).describe()["noise_l1"] == 2.0


# Which c the noise asks for --------------------------------------------------------------


def test_the_variance_in_closed_form():
    # The mean, the median of Laplace noise (Huber's 1/(4 f^2)), and its limits.
    assert ens_variance(0.0) == pytest.approx(2.0)
    np.testing.assert_allclose(ens_variance(0.0, [0.5, 2.0]), [2.25, 6.0])
    np.testing.assert_allclose(ens_variance([0.0, 1.0, 3.0]), [2.0, 1.25, 1 + 1 / 16])
    assert ens_variance(1e9) == pytest.approx(1.0)
    assert ens_variance(0.0, order=2) == pytest.approx(1.0)
    assert ens_variance(1e9, order=2) == pytest.approx(np.pi / 2)
    assert ens_variance(1e9, 1.0, order=2) == pytest.approx(np.pi)
    # Without noise to speak of it is that of the spread.
    assert ens_variance(0.5, 1e9) == pytest.approx(1e18)
    with pytest.raises(ValueError, match="noise_l1 must be at least 0"):
        ens_variance([1.0, -1.0])
    with pytest.raises(ValueError, match="spread must be at least 0"):
        ens_variance(1.0, np.nan)
    with pytest.raises(ValueError, match="order must be 1 or 2, got 3"):
        ens_variance(1.0, order=3)


@pytest.mark.parametrize("spread", [0.1, 0.7, 4.0])
def test_the_variance_is_that_of_its_score(spread):
    """``E psi^2 / (E psi')^2`` by quadrature over the clients' quantiles."""
    g = spread * ndtri((np.arange(200_000) + 0.5) / 200_000)
    for c in (0.0, 1.0, 2.5):
        # Given the client's place g: of Laplace noise E|t| = |g| + exp(-|g|), E t^2 = g^2 + 2.
        square = (g**2 + 2 + 2 * c * (np.abs(g) + np.exp(-np.abs(g))) + c * c).mean()
        slope = 1 + 2 * c * (np.exp(-np.abs(g)) / 2).mean()
        assert ens_variance(c, spread) == pytest.approx(square / slope**2, rel=1e-4)


def test_the_rule_is_minimax_for_many_clients():
    spread = np.geomspace(1e-3, 1e3, 2001)
    best = ens_variance(np.geomspace(1e-7, 1e4, 3001)[:, None], spread).min(axis=0)
    worst = {c: (ens_variance(c, spread) / best).max() for c in (0.0, 1.0, 2.3, MINIMAX, 2.7, 10.0)}
    assert worst[MINIMAX] == pytest.approx(1.0816, abs=2e-3)
    assert all(worst[MINIMAX] < worst[c] for c in worst if c != MINIMAX)
    assert worst[0.0] == pytest.approx(2.0, abs=1e-2)


@pytest.mark.parametrize("m", [3, 5, 20, 100])
def test_at_any_number_of_clients_it_is_near_the_best_and_leaves_what_is_said(m):
    rng = np.random.default_rng(m)
    L = rng.laplace(size=(m, 600_000 // m))
    G = rng.normal(size=L.shape)
    rule = noise_l1_for(LAPLACE, np.ones(m))
    for variance in (0.0, 0.1, 1.0, 4.0):
        Z = L + np.sqrt(variance) * G
        best = min((kernel_ens(Z, c) ** 2).mean() for c in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 1e3))
        found = (kernel_ens(Z, rule) ** 2).mean()
        assert found < 1.085 * best
        if variance == 0.0:
            left = noise_left(LAPLACE, np.ones(m), np.ones(m))
            assert found == pytest.approx(left**2 * 2 / m, rel=0.05)


def test_what_it_says_at_its_edges():
    for m in (1, 2):
        assert noise_l1_for(LAPLACE, np.ones(m)) == 0.0
        assert noise_left(LAPLACE, np.ones(m), np.ones(m)) == 1.0
    assert noise_l1_for(LAPLACE, np.ones(10)) == pytest.approx(2.0)
    # One client that outweighs all is alone.
    assert noise_l1_for(LAPLACE, [1e9, 1.0, 1.0]) == 0.0
    assert noise_l1_for(LAPLACE, [1e300, 1e300]) == 0.0
    assert noise_l1_for(LAPLACE, 7 * np.arange(1, 9)) == noise_l1_for(LAPLACE, np.arange(1, 9))
    assert noise_l1_for(GAUSSIAN, np.ones(50)) == 0.0
    assert noise_left(GAUSSIAN, np.ones(50), np.ones(50)) == 1.0
    for bad in ([], [0.0, 1.0], [-1.0]):
        with pytest.raises(ValueError, match="weights must be positive"):
            noise_l1_for(LAPLACE, bad)
    for bad in ([[1.0]], [np.nan]):
        with pytest.raises(ValueError, match="weights must"):
            noise_left(LAPLACE, bad, bad)
    for bad in ([0.0, 1.0], [1.0], [np.inf, 1.0]):
        with pytest.raises(ValueError, match="scales must"):
            noise_left(LAPLACE, [1.0, 1.0], bad)


def test_scales_that_differ_ask_for_their_inverse_as_weights():
    """With these the noise left is least, among powers, and it is what is said."""
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(size=200))
    Z = scale[:, None] * rng.laplace(size=(200, 5000))
    found = {}
    for power in (0.0, 1.0, 2.0):
        p = scale**-power
        c = noise_l1_for(LAPLACE, p) * np.average(scale, weights=p)
        ours, means = kernel_ens(Z, c, weights=p), np.average(Z, axis=0, weights=p)
        found[power] = (ours**2).mean()
        if power == 1.0:
            left = noise_left(LAPLACE, p, scale)
            assert np.sqrt(found[power]) == pytest.approx(left * means.std(), rel=0.08)
    assert found[1.0] < 0.9 * min(found[0.0], found[2.0])


@pytest.mark.parametrize("size", [0.2, 1.0, 5.0])
def test_clients_that_are_spread_unevenly_move_it_by_no_more_than_is_said(size):
    rng = np.random.default_rng(0)
    m, draws = 60, 20_000
    places = size * np.sort(rng.exponential(size=m) ** 2)
    c = noise_l1_for(LAPLACE, np.ones(m))
    x = kernel_ens(places[:, None] + rng.laplace(size=(m, draws)), c)
    bias = abs(x.mean() - places.mean())
    bound = c / (1 + c) * ((places - x.mean()) ** 2).mean() / 2
    assert 0.02 * size**2 < bias < min(c, bound)
