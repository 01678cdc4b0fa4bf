"""Noise from OpenDP."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, release, release_scale


@pytest.mark.parametrize("law, cdf", [("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)])
def test_noise_has_the_law_and_the_scale(law, cdf):
    # Cannot be seeded by design: fails once in ten thousand million honest runs.
    w = np.linspace(-3, 3, 2000)
    noise = (release(w, 0.25, law) - w) / 0.25
    assert stats.kstest(noise, cdf).pvalue > 1e-10
    assert not np.array_equal(release(w, 0.25, law), release(w, 0.25, law))


@given(
    st.floats(1e-100, 1e100),
    st.floats(1e-6, 1e6),
    st.integers(1, 10**6),
    st.sampled_from(["laplace", "per round", "gaussian"]),
)
@settings(max_examples=50)
def test_all_uploads_spend_no_more_than_the_budget_by_opendps_account(s, budget, uploads, law):
    """In exact arithmetic: floats are rationals."""
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if law == "gaussian":
        z = float(GaussianMechanism(total_epsilon=budget).noise_multipliers(np.array([uploads]))[0])
        scale = release_scale(s, z, law)
        rho = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale).map(s)
        assert 2 * Fraction(rho) * Fraction(z) ** 2 <= 1
    else:
        given = {"total_epsilon" if law == "laplace" else "epsilon_per_round": budget}
        z = float(LaplaceMechanism(**given).noise_multipliers(np.array([uploads]))[0])
        scale = release_scale(s, z)
        each = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale).map(s)
        assert Fraction(each) * (uploads if law == "laplace" else 1) <= Fraction(budget)
    assert s * z <= scale <= s * z * (1 + 1e-14)


def test_every_float_lies_on_the_grid():
    # Noise far below the last place of w leaves it as it is, and that of 0 is seen.
    w = np.array([1 / 3, -1e100, 0.0, 5e-324])
    found = release(w, 1e-140)
    np.testing.assert_array_equal(found[:2], w[:2])
    assert (np.abs(found[2:]) < 1e-138).all() and found[2] != 0


@pytest.mark.parametrize("call, message", [
    (lambda: release([1.0], 1e-160), "scale must be"),
    (lambda: release([1.0], 1e160), "scale must be"),
    (lambda: release([-1e151], 1.0), r"w must be below 1e\+150 in absolute value, got 1e\+151"),
    (lambda: release_scale(0.0, 1.0), "sensitivity must be"),
    (lambda: release_scale(1.0, np.inf), "noise_multiplier must be"),
    (lambda: release_scale(1e100, 1e100), "scale must be"),
    (lambda: release_scale(1.0, 1.0, "uniform"), "law must be one of"),
    (lambda: release([1.0], 0.0), "scale must be"),
    (lambda: release([1.0], -1.0), "scale must be"),
    (lambda: release([np.nan], 1.0), "w must be finite"),
    (lambda: release([[1.0]], 1.0), "w must have"),
    (lambda: release([1.0], 1.0, "uniform"), "law must be one of"),
])  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
