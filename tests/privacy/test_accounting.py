"""Budgets: by hand, in closed form, and against dp-accounting."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedepm_fast.privacy import (
    GaussianMechanism,
    LaplaceMechanism,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
)
from fedepm_fast.privacy.accounting import laplace_epsilon


def accountant(event, count):
    made = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    return made.compose(event, count)


@pytest.mark.parametrize("z, eps, count", [(1.0, 1.0, 1), (2.0, 0.5, 4), (5.0, 3.0, 100)])
def test_gaussian_delta_is_the_privacy_curve(z, eps, count):
    mu = math.sqrt(count) / z
    want = norm.cdf(-eps / mu + mu / 2) - math.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    assert gaussian_delta(z, eps, count) == pytest.approx(want, rel=1e-9)
    assert gaussian_delta(z, 400.0) > 0.0  # rounded up
    assert gaussian_delta(z, eps, 0) == 0.0


@settings(max_examples=60)
@given(st.floats(-2, 14), st.floats(0, 30), st.booleans())
def test_gaussian_delta_is_never_below_the_curve(magnitude, tail, at_zero):
    # Where its terms cancel, in 200 digits.
    z = 10.0**magnitude
    eps = 0.0 if at_zero else tail / z + 0.5 / z**2
    with mpmath.workdps(200):
        mu, e = 1 / mpmath.mpf(z), mpmath.mpf(eps)
        beyond = [mpmath.erfc((e / mu + sign * mu / 2) / mpmath.sqrt(2)) / 2 for sign in (-1, 1)]
        want = beyond[0] - mpmath.exp(e) * beyond[1]
    assert want <= gaussian_delta(z, eps) <= want * (1 + mpmath.mpf(10) ** -9)


def test_extreme_budgets():
    assert gaussian_noise_multiplier(1e-300, 1e-20) == pytest.approx(
        1e20 / math.sqrt(2 * math.pi), rel=1e-9
    )
    assert laplace_epsilon(1000.0, 10, 1e-6) == 1e4
    assert laplace_epsilon(90.0, 10, 1e-6) <= 900.0
    with pytest.raises(ValueError, match="noise_multiplier must leave epsilon below"):
        gaussian_epsilon(1e-200, 1e-6)


@pytest.mark.parametrize("eps", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
@pytest.mark.parametrize("count", [1, 6, 50])
def test_inverse(eps, delta, count):
    z = gaussian_noise_multiplier(eps, delta, count)
    assert gaussian_delta(z, eps, count) <= delta * (1 + 1e-9)
    assert gaussian_delta(z * (1 - 1e-6), eps, count) > delta
    assert gaussian_epsilon(z, delta, count) == pytest.approx(eps, rel=1e-9)


# An event's multiplier is relative to what adding or removing a record changes, ours to what
# replacing one does, which is twice as much.


@pytest.mark.parametrize("z, count", [(1.0, 1), (3.0, 6), (10.0, 50)])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_gaussian_agrees_with_dp_accounting(z, count, delta):
    want = accountant(dp_accounting.GaussianDpEvent(2 * z), count).get_epsilon(delta)
    assert gaussian_epsilon(z, delta, count) == pytest.approx(want, abs=1e-6)


def test_laplace_adds_up_by_hand():
    mechanism = LaplaceMechanism(total_epsilon=2.0)
    uploads = np.array([0, 1, 3, 5])
    multipliers = mechanism.noise_multipliers(uploads)
    np.testing.assert_allclose(multipliers, [0.5, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(mechanism.spent(multipliers, uploads), [0, 2, 2, 2])
    np.testing.assert_allclose(mechanism.spent(multipliers, np.minimum(uploads, 1)),
                               [0, 2, 2 / 3, 0.4])  # fmt: skip
    each = LaplaceMechanism(epsilon_per_round=0.25)
    multipliers = each.noise_multipliers(uploads)
    np.testing.assert_allclose(multipliers, 4.0)
    np.testing.assert_allclose(each.spent(multipliers, uploads), 0.25 * uploads)
    assert laplace_epsilon(0.25, 8) == 2.0


@pytest.mark.parametrize("eps, count, delta", [(0.1, 50, 1e-5), (0.5, 6, 1e-4)])
def test_laplace_with_a_delta_agrees_with_dp_accounting(eps, count, delta):
    got = laplace_epsilon(eps, count, delta)
    assert got < eps * count
    # It knows Laplace events under this relation only; the multiplier is to its sensitivity.
    made = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    want = made.compose(dp_accounting.LaplaceDpEvent(1 / eps), count).get_epsilon(delta)
    assert got == pytest.approx(want, abs=1e-6)


def test_gaussian_budget_is_split_over_participations():
    mechanism = GaussianMechanism(total_epsilon=1.5, delta=1e-6)
    uploads = np.array([1, 4, 9])
    multipliers = mechanism.noise_multipliers(uploads)
    np.testing.assert_allclose(multipliers / multipliers[0], [1, 2, 3])
    np.testing.assert_allclose(mechanism.spent(multipliers, uploads), 1.5, rtol=1e-9)
    assert (mechanism.spent(multipliers, uploads - 1) < 1.5).all()
    assert (mechanism.spent(multipliers, uploads) <= 1.5).all()
    assert mechanism.spent(multipliers, uploads * 0)[0] == 0.0


@pytest.mark.parametrize("call", [
    lambda: gaussian_delta(0.0, 1.0), lambda: gaussian_delta(1.0, -1.0),
    lambda: gaussian_epsilon(1.0, 0.0), lambda: gaussian_epsilon(1.0, 1.0),
    lambda: gaussian_noise_multiplier(0.0, 1e-5), lambda: laplace_epsilon(0.0, 1),
    lambda: laplace_epsilon(1.0, 1, 1.0),
])  # fmt: skip
def test_bad_input(call):
    with pytest.raises(ValueError, match=r"must be"):
        call()
