"""The elastic-net solver of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize_scalar

from fedepm_fast.reference import ens, ens_algorithm1

numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
# Few distinct values make ties and clusters, which random floats never do.
tied = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 3.0])


def objective(w, z, c, p=1.0):
    """The penalty over eta: sum_i p_i * (c*|w - z_i| + (w - z_i)^2 / 2)."""
    return (p * (c * np.abs(w - z) + 0.5 * (w - z) ** 2)).sum()


def optimality_gap(w, z, c, p=None):
    """Distance of 0 to the subdifferential at w, over the total weight."""
    p = np.ones(len(z)) if p is None else p
    centre = (p * ((w - z) + c * np.sign(w - z))).sum() / p.sum()
    slack = c * p[w == z].sum() / p.sum()
    return max(abs(centre) - slack, 0.0)


@given(arrays(float, st.integers(1, 12), elements=numbers), st.floats(0, 1e4))
@settings(max_examples=200)
def test_is_stationary(z, c):
    w = ens(z, c)
    assert optimality_gap(w, z, c) <= 1e-12 * (np.abs(z).max() + c)
    assert z.min() <= w <= z.max()


@given(arrays(float, st.integers(1, 12), elements=tied), st.floats(0, 10))
@settings(max_examples=200)
def test_minimises_on_ties(z, c):
    w = float(ens(z, c))
    found = minimize_scalar(
        lambda v: objective(v, z, c),
        bounds=(z.min() - 1, z.max() + 1),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert objective(w, z, c) <= found.fun + 1e-12
    assert w == pytest.approx(found.x, abs=1e-4)


@given(
    arrays(float, st.tuples(st.integers(1, 9), st.just(3)), elements=st.one_of(tied, numbers)),
    st.sampled_from([1e-6, 0.1, 0.5, 2.0, 1e3]),
)
@settings(max_examples=200)
def test_agrees_with_the_literal_algorithm(Z, c):
    got, want = ens(Z, c), ens_algorithm1(Z, c, 1.0)
    # The literal second branch compares values of h, so it may settle on an equally good
    # neighbour; what must agree is the point, or else h to rounding.
    for j in range(Z.shape[1]):
        z = Z[:, j]
        scale = (np.abs(z).max() + c + 1) ** 2 * len(z)
        close = abs(got[j] - want[j]) <= 1e-12 * (np.abs(z).max() + c)
        h = objective(got[j], z, c), objective(want[j], z, c)
        assert close or (h[0] <= h[1] + 1e-14 * scale)


@pytest.mark.parametrize("m", [1, 2, 3, 7, 100, 1001])
@pytest.mark.parametrize("value", [0.1, -1 / 3, 1e300, 5e-324])
@pytest.mark.parametrize("c", [0.0, 1e-20, 0.5, 1e6])
def test_equal_uploads_are_returned_exactly(m, value, c):
    assert ens(np.full(m, value), c) == value


def test_limits_in_c(rng):
    Z = rng.normal(size=(101, 40))
    np.testing.assert_allclose(ens(Z, 0.0), Z.mean(axis=0), rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(ens(Z, 1e9), np.median(Z, axis=0))
    # An even number of clients: the quadratic part picks the point of the median interval
    # nearest to the mean.
    even = Z[:100]
    low, high = np.sort(even, axis=0)[49:51]
    np.testing.assert_allclose(
        ens(even, 1e9), np.clip(even.mean(axis=0), low, high), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("c", [0.0, 0.3, 5.0])
def test_weights_count_clients(c, rng):
    Z = np.round(rng.normal(size=(7, 30)), 1)
    counts = rng.integers(1, 5, 7)
    np.testing.assert_allclose(
        ens(Z, c, counts), ens(np.repeat(Z, counts, axis=0), c), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(ens(Z, c, np.full(7, 2.5)), ens(Z, c), rtol=1e-12, atol=1e-14)


@given(
    arrays(float, 6, elements=st.one_of(tied, numbers)),
    arrays(float, 6, elements=st.floats(1e-3, 1e3)),
    st.floats(0, 1e3),
)
@settings(max_examples=200)
def test_weighted_is_stationary(z, p, c):
    w = ens(z, c, p)
    assert optimality_gap(w, z, c, p) <= 1e-11 * (np.abs(z).max() + c)


def test_permutation_and_shift(rng):
    Z = rng.normal(size=(31, 20))
    w = ens(Z, 0.4)
    np.testing.assert_allclose(ens(Z[::-1], 0.4), w, rtol=1e-13)
    np.testing.assert_allclose(ens(Z + 8.0, 0.4), w + 8.0, rtol=1e-13)
    np.testing.assert_allclose(ens(-Z, 0.4), -w, rtol=1e-13)


def test_float32_stays_float32(rng):
    Z = rng.normal(size=(50, 8)).astype(np.float32)
    w = ens(Z, 0.2)
    assert w.dtype == np.float32
    np.testing.assert_allclose(w, ens(Z.astype(float), 0.2), rtol=1e-6)


@pytest.mark.parametrize(
    ("Z", "c", "weights", "message"),
    [
        ([[1.0, np.nan]], 1.0, None, "Z must be finite"),
        (np.empty((0, 3)), 1.0, None, "Z must hold at least one"),
        ([[1.0]], -1.0, None, "c must be"),
        ([[1.0], [2.0]], 1.0, [1.0], "weights must have shape"),
        ([[1.0], [2.0]], 1.0, [1.0, 0.0], "weights must be positive"),
    ],
)
def test_bad_input(Z, c, weights, message):
    with pytest.raises(ValueError, match=message):
        ens(Z, c, weights)
