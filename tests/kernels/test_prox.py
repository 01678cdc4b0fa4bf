"""Proximal operators against the reference, and against what defines them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedepm_fast import reference
from fedepm_fast.kernels import prox
from fedepm_fast.kernels._jit import JIT_DISABLED, kernel

FLOATS = (np.float64, np.float32)
finite = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 33, 100])
def test_soft_threshold_is_the_reference(rng, dtype, size):
    t = rng.normal(size=size).astype(dtype)
    got = prox.soft_threshold(t, 0.5)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, reference.soft_threshold(t, dtype(0.5)))


def test_thresholds_are_broadcast(rng):
    t, a = rng.normal(size=(5, 7)), rng.uniform(0, 1, 7)
    np.testing.assert_array_equal(prox.soft_threshold(t, a), reference.soft_threshold(t, a))
    np.testing.assert_array_equal(
        prox.soft_threshold(t, np.array([0.3])), reference.soft_threshold(t, 0.3)
    )


def test_special_values():
    t = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.25, -0.25])
    got = prox.soft_threshold(t, 1.0)
    np.testing.assert_array_equal(got, [np.nan, np.inf, -np.inf, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(np.signbit(got[3:]), np.signbit(t[3:]))
    np.testing.assert_array_equal(prox.soft_threshold(t, 0.0), t)


def test_scalars_and_integers():
    assert prox.soft_threshold(3, 1) == 2.0
    assert np.ndim(prox.soft_threshold(-3.0, 1)) == 0
    assert prox.soft_threshold(np.float32(2), 1).dtype == np.float32
    assert prox.prox_elastic_net(3.0, 1.0, 1.0) == 1.0


@settings(deadline=None, max_examples=30)
@given(t=arrays(np.float64, 5, elements=finite), a=st.floats(0, 1e3))
def test_moreau_decomposition(t, a):
    """What soft thresholding takes away is the projection onto [-a, a]."""
    np.testing.assert_allclose(
        t - prox.soft_threshold(t, a), np.clip(t, -a, a), rtol=0, atol=1e-15 * np.abs(t).max()
    )


@settings(deadline=None, max_examples=30)
@given(
    t=arrays(np.float64, 9, elements=finite),
    lam=st.floats(0, 1e3),
    eta=st.floats(0, 1e3),
    step=st.floats(1e-3, 1e3),
)
def test_prox_satisfies_the_optimality_condition(t, lam, eta, step):
    """0 is in v - t + step*(lam*sign(v) + eta*v)."""
    v = prox.prox_elastic_net(t, lam, eta, step)
    slope = (t - v - step * eta * v) / 1.0
    scale = 1e-13 * (1 + np.abs(t) + step * lam)
    zero = v == 0
    assert (np.abs(slope[zero]) <= step * lam + scale[zero]).all()
    assert (np.abs(slope - step * lam * np.sign(v))[~zero] <= scale[~zero]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_out_may_be_the_input(rng, dtype):
    t = rng.normal(size=(4, 9)).astype(dtype)
    want = prox.prox_elastic_net(t, 0.5, 2.0, 0.25)
    assert prox.prox_elastic_net(t, 0.5, 2.0, 0.25, out=t) is t
    np.testing.assert_array_equal(t, want)


@pytest.mark.skipif(JIT_DISABLED, reason="large")
@pytest.mark.parametrize("dtype", FLOATS)
def test_threads_do_not_change_a_bit(rng, dtype):
    t = rng.normal(size=prox.PARALLEL_FROM + 13).astype(dtype)
    a = np.abs(rng.normal(size=t.size)).astype(dtype)
    for thresholds in (0.5, a):
        one = prox.soft_threshold(t, thresholds)
        np.testing.assert_array_equal(prox.soft_threshold(t, thresholds, threads=2), one)
        np.testing.assert_array_equal(one, reference.soft_threshold(t, dtype(thresholds)))


def test_shrink_serves_scalars_in_compiled_code():
    @kernel
    def call(t, a):
        return prox.shrink(t, a)

    assert [call(t, 1.0) for t in (3.0, -3.0, 0.5)] == [2.0, -2.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([1.0], -1.0), ValueError, "a must be a finite number >= 0"),
        (([1.0], np.nan), ValueError, "a must be"),
        (([1.0], [-1.0]), ValueError, "a must be >= 0, got -1"),
        (([1.0], [np.inf]), ValueError, "a must be finite"),
        (([1.0, 2.0], [1.0, 2.0, 3.0]), ValueError, "a must broadcast"),
        ((["x"], 1.0), TypeError, "t must be"),
        (([1j], 1.0), TypeError, "t must be float64 or float32"),
        (([1.0], 1.0, [0.0]), TypeError, "out must be an array"),
        (([1.0], 1.0, np.zeros(2)), ValueError, "out must have shape"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        prox.soft_threshold(*arguments)


def test_overlaps_are_refused():
    memory = np.zeros(9)
    with pytest.raises(ValueError, match="out must be t or not overlap"):
        prox.soft_threshold(memory[:8], 1.0, out=memory[1:])
    with pytest.raises(ValueError, match="out must not overlap a"):
        prox.soft_threshold(np.ones(9), memory, out=memory)


@pytest.mark.parametrize("name", ["lam", "eta", "step"])
def test_bad_parameters_are_named(name):
    parameters = {"lam": 1.0, "eta": 1.0, "step": 1.0, name: -1.0}
    with pytest.raises(ValueError, match=f"{name} must be"):
        prox.prox_elastic_net([1.0], **parameters)
