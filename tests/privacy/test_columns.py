"""Means and variances of columns within public bounds: what a record changes, and the account."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from fedepm_fast import FederatedData
from fedepm_fast.federation.private_server import PrivateServer
from fedepm_fast.mechanisms import Account, Columns, GaussianMechanism, LaplaceMechanism
from fedepm_fast.privacy import plan
from fedepm_fast.privacy._private_run import coordinates_of
from fedepm_fast.privacy._settings import Settings
from fedepm_fast.randomness import CounterRandomness

LAWS = [LaplaceMechanism(total_epsilon=1.0), GaussianMechanism(total_epsilon=1.0)]
SEED = 2**40
#: Two columns within bounds, one of which more is known, and an intercept.
BOUNDS = np.array([[-1.0, 0.0, -np.inf, 1.0], [3.0, 100.0, np.inf, 1.0]])
SIZES = np.array([400, 100, 900, 600])


def table(seed: int = 0) -> FederatedData:
    rng, d = np.random.default_rng(seed), int(SIZES.sum())
    A = np.column_stack(
        [rng.uniform(-2, 2, d), 5 * rng.exponential(size=d) ** 2, rng.normal(size=d), np.ones(d)]
    )
    return FederatedData(A, (A[:, 2] > rng.normal(size=d)).astype(float), SIZES)


def scaled(A: np.ndarray) -> np.ndarray:
    return np.column_stack([np.clip(A[:, 0], -1, 3) / 2 - 0.5, np.clip(A[:, 1], 0, 100) / 50 - 1])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_means_are_those_of_clipped_columns(is_sparse):
    A = table().features
    u = scaled(A)
    found = Columns(BOUNDS).means(sparse.csr_array(A) if is_sparse else A)
    np.testing.assert_allclose(found, [*u.mean(axis=0), *(u * u).mean(axis=0)], rtol=1e-12)


@settings(max_examples=100)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 2]), st.integers(1, 6), st.integers(1, 5),
    st.sampled_from([0.5, 1.0, 2.0, 1e300]),
)  # fmt: skip
def test_a_record_moves_them_no_further_than_the_bound(seed, order, p, d, far):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=p) * 10.0 ** rng.integers(-3, 4, p)
    high = low + 10.0 ** rng.integers(-3, 4, p)
    rows = low + (high - low) * (0.5 + far * rng.uniform(-1, 1, (d, p)))
    other = rows.copy()
    other[-1] = low + (high - low) * (0.5 + far * rng.uniform(-1, 1, p))
    columns = Columns([low, high])
    moved = columns.means(rows) - columns.means(other)
    assert np.linalg.norm(moved, order) <= columns.change([d], order)[0]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [1, 7])
def test_the_bound_is_attained_and_no_pair_of_a_grid_is_beyond(order, d):
    columns = Columns([[-1.0] * 5, [1.0] * 5])
    change = columns.change([d], order)[0]
    assert change == pytest.approx((2 * math.sqrt(5) if order == 2 else 45 / 4) / d, rel=2e-5)
    rows = np.zeros((d, 5))
    other = rows.copy()
    rows[0], other[0] = 1.0, -0.5 if order == 1 else -1.0
    moved = np.linalg.norm(columns.means(rows) - columns.means(other), order)
    assert 1 - 2e-5 < moved / change <= 1
    u, v = np.meshgrid(*[np.linspace(-1, 1, 401)] * 2)
    moves = np.abs(u - v) ** order + np.abs(u**2 - v**2) ** order
    assert moves.max() == pytest.approx(4 if order == 2 else 9 / 4, rel=1e-12)


def test_a_client_that_is_replaced_moves_them_no_further():
    rng, columns = np.random.default_rng(1), Columns([[-1.0] * 3, [1.0] * 3])
    for order in (1, 2):
        bound = columns.change([1], order)[0]
        for _ in range(200):
            one, other = (rng.choice([-1, -0.5, 0.5, 1], (n, 3)) for n in rng.integers(1, 5, 2))
            moved = columns.means(one) - columns.means(other)
            assert np.linalg.norm(moved, order) <= bound


@pytest.mark.parametrize("mechanism", LAWS, ids=["laplace", "gaussian"])
def test_the_simulated_noise_has_its_law_and_is_of_the_client(mechanism):
    rng, m = np.random.default_rng(0), 400
    data = FederatedData(rng.uniform(-1, 1, (2 * m, 4)), np.zeros(2 * m), [2] * m)
    columns = Columns([[-1.0] * 4, [1.0] * 4])
    values, scales = columns.simulate(data, mechanism, np.full(m, 1.5), CounterRandomness(7))
    np.testing.assert_array_equal(scales, columns.change([2] * m, mechanism.order) * 1.5)
    clean = np.array([columns.means(data.client(i)[0]) for i in range(m)])
    law = stats.laplace if mechanism.order == 1 else stats.norm
    assert stats.kstest(((values - clean) / scales[:, None]).ravel(), law.cdf).pvalue > 1e-3
    part = FederatedData(data.features[:6], data.labels[:6], [2] * 3)
    again, _ = columns.simulate(part, mechanism, np.full(3, 1.5), CounterRandomness(7))
    np.testing.assert_array_equal(values[:3], again)


def test_columns_are_standardised_and_others_left_alone():
    A = np.clip(table().features, [-1, 0, -9, 1], [3, 100, 9, 1])
    columns = Columns(BOUNDS)
    B = A @ columns.standardising(columns.means(A), 0.0)
    np.testing.assert_allclose(B[:, :2].mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(B[:, :2].std(axis=0), 1, rtol=1e-10)
    np.testing.assert_array_equal(B[:, 2:], A[:, 2:])
    # Without an intercept nothing can be shifted.
    alone = Columns(BOUNDS[:, :2])
    u = alone.standardising(alone.means(A[:, :2]), 0.0)
    assert np.count_nonzero(u - np.diag(np.diag(u))) == 0
    # A variance below its noise is taken as that: in [-1, 1] for a deviation of 0.02, 0.04.
    constant = Columns([[0.0, 1.0], [4.0, 1.0]])
    back = constant.standardising([0.5, 0.25], 0.02)
    np.testing.assert_allclose(back, [[1 / 0.4, 0], [-3 / 0.4, 1]], rtol=1e-12)


@pytest.mark.parametrize(
    ("delta", "trust"), [(1e-6, "clients"), (0.0, "clients"), (1e-6, "secure-sum")]
)
@pytest.mark.parametrize("moments", [0, 2])
def test_all_that_is_released_spends_the_budget_together(moments, delta, trust, monkeypatch):
    planned = plan(
        20.0, SIZES, 4, delta=delta, settings=Settings(moments, 4, 2, 1.5, 0.9, 0.8, 0.3),
        bounds=BOUNDS, trust=trust, honest=1.0,
    )  # fmt: skip
    columns, order = planned.columns, planned.mechanism.order
    assert columns is not None and planned.mechanism.moments == moments + 1
    seen, right = [], type(planned).standardising

    def watched(self, values, scales):
        seen.append(scales)
        return right(self, values, scales)

    monkeypatch.setattr(type(planned), "standardising", watched)
    result = planned.run(table(), seed=SEED, public_scaling=True)
    assert result.guarantee.startswith("each client: epsilon <= 20")
    z = np.array(result.settings["privacy"]["multipliers"])
    assert result.settings["privacy"]["uploads"] == [moments + 1 + 4] * 4
    change = columns.change(SIZES, order)
    if trust == "clients":
        np.testing.assert_allclose(seen[0], change * z, rtol=1e-12)
    else:  # and the rounding to integers
        assert 1 <= seen[0][0] / ((change * SIZES).max() * z[0] / SIZES.sum()) < 1.01
    assert z[0] == pytest.approx(planned.mechanism.noise_multiplier(20.0, moments + 5), rel=1e-9)
    spent = Account.of_run(result, 0)
    assert spent.epsilon(delta) == pytest.approx(20.0, rel=1e-6)
    told = " ".join(str(planned).split())
    assert ("second moments" in told) == (moments > 0)
    assert "means and variances of columns once, for as much as an upload" in told


def test_both_engines_give_the_same_and_the_seed_decides():
    planned = plan(20.0, SIZES, 4, bounds=BOUNDS)
    one, other, next_one = (
        planned.run(table(), seed=SEED + k, public_scaling=True, engine=engine)
        for k, engine in ((0, "reference"), (0, "compiled"), (1, "compiled"))
    )
    np.testing.assert_allclose(one.x, other.x, rtol=1e-9)
    assert not np.allclose(one.x, next_one.x, rtol=1e-3)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_with_next_to_no_noise_the_coordinates_are_those_of_the_truth(delta):
    planned = plan(
        1e9, SIZES, 4, delta=delta, settings=Settings(0, 4, 2, 1.5, 9.0, 9.0, 0.3), bounds=BOUNDS
    )
    back = coordinates_of(planned, table(), SEED)
    u = scaled(table().features)
    np.testing.assert_allclose(1 / np.diag(back)[:2], u.std(axis=0) * [2, 50], rtol=1e-4)
    centers = [1 + 2 * u[:, 0].mean(), 50 + 50 * u[:, 1].mean()]
    np.testing.assert_allclose(-back[-1, :2] / np.diag(back)[:2], centers, rtol=1e-4)


def test_it_is_asked_for_only_where_it_is_worth_it():
    assert plan(1.0, [5000] * 100, 4, bounds=BOUNDS).columns is not None
    assert plan(1.0, [5000] * 100, 4).columns is None
    assert plan(0.01, SIZES, 4, bounds=BOUNDS).columns is None  # noise beyond any column
    known = np.array([[-np.inf] * 3 + [1.0], [np.inf] * 3 + [1.0]])
    assert plan(1.0, [5000] * 100, 4, bounds=known).columns is None
    loose = LaplaceMechanism(total_epsilon=1.0, delta=1e-6)
    assert plan(None, [5000] * 100, 4, mechanism=loose, bounds=BOUNDS).columns is None
    assert plan(5.0, [1] * 5000, 4, neighbours="client", bounds=BOUNDS).columns is None


def test_bad_bounds_and_servers_of_clients_are_refused():
    for wrong in ([[2.0], [1.0]], [[np.nan], [1.0]], [[0.0], [np.inf]], [[3.0], [3.0]]):
        with pytest.raises(ValueError, match="bounds must be a lower and a higher number"):
            plan(1.0, SIZES, 1, bounds=wrong)
        with pytest.raises(ValueError, match="bounds must be a lower"):
            plan(1.0, SIZES, 1, bounds=wrong, neighbours="client")  # where they are not used, too
    with pytest.raises(ValueError, match=r"bounds must have shape \(2, 4\)"):
        plan(1.0, SIZES, 4, bounds=[0.0, 1.0])
    with pytest.raises(ValueError, match="plan must be without bounds"):
        PrivateServer(plan(20.0, SIZES, 4, bounds=BOUNDS))
