"""Noise from OpenDP."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedepm_fast.privacy import release


@pytest.mark.parametrize("law, cdf", [("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)])
def test_noise_has_the_law_and_the_scale(law, cdf):
    # Not reproducible by design: a p-value that fails once in a million honest runs.
    w = np.linspace(-3, 3, 2000)
    noise = (release(w, 0.25, law) - w) / 0.25
    assert stats.kstest(noise, cdf).pvalue > 1e-6
    assert not np.array_equal(release(w, 0.25, law), release(w, 0.25, law))


@pytest.mark.parametrize("call, message", [
    (lambda: release([1.0], 0.0), "scale must be"),
    (lambda: release([1.0], -1.0), "scale must be"),
    (lambda: release([np.nan], 1.0), "w must be finite"),
    (lambda: release([[1.0]], 1.0), "w must have"),
    (lambda: release([1.0], 1.0, "uniform"), "law must be one of"),
])  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
