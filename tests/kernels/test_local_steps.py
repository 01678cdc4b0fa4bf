"""FedEPM's fused local steps against the reference, and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast.algorithms import FedEPM
from fedepm_fast.kernels import local_steps
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.reference import fedepm_iterates

FLOATS = (np.float64, np.float32)
TOLERANCE = {np.float64: 1e-13, np.float32: 1e-5}
PARAMETERS = dict(lam=1e-3, eta=2e-3, mu0=0.5, c=1e-3, alpha=1.001)


def clients(s, n, dtype=np.float64, seed=0):
    """W, x, G, step of which every branch of the soft threshold is taken."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    W = x + 0.5 * rng.normal(size=(s, n))
    G = 1e-2 * rng.normal(size=(s, n))
    step = 1 / rng.integers(50, 200, s)
    return tuple(a.astype(dtype) for a in (W, x, G, step))


def expected(W, x, G, step, tau=3, k0=12, **parameters):
    algorithm = FedEPM(local_steps=k0, **parameters)
    W, x, G, step = (a.astype(np.float64) for a in (W, x, G, step))
    *_, last = fedepm_iterates(algorithm, W, x, G, step, tau)
    return last


def run(W, x, G, step, tau=3, k0=12, **options):
    return local_steps.fedepm_local_steps(
        W, x, G, step, **{**PARAMETERS, "local_steps": k0, "first_iteration": tau * k0, **options}
    )


def agree(got, want, dtype):
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        scale = np.abs(theirs).max(initial=1e-300)
        assert np.abs(ours - theirs).max(initial=0) <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 14, 40] if JIT_DISABLED else [*range(1, 71), 1000])
def test_every_size_is_the_reference(n, dtype):
    for s in (1, 9) if JIT_DISABLED else range(1, 21):
        data = clients(s, n, dtype, seed=s)
        agree(run(*data), expected(*data, **PARAMETERS), dtype)


@pytest.mark.parametrize("n", [14, 45])
@pytest.mark.parametrize("k0", [1, 2, 5])
@pytest.mark.parametrize("tau", [0, 1000])
def test_numbers_of_steps(n, k0, tau):
    data = clients(5, n)
    want = expected(*data, tau=tau, k0=k0, **PARAMETERS)
    agree(run(*data, tau=tau, k0=k0), want, np.float64)


@settings(deadline=None, max_examples=20)
@given(
    lam=st.sampled_from([0.0, 1e-6, 0.1, 10.0]),
    eta=st.floats(1e-6, 10.0),
    mu0=st.floats(1e-4, 100.0),
    c=st.sampled_from([0.0, 1e-8, 1.0]),
    alpha=st.floats(1.0, 1.1),
    n=st.sampled_from([3, 14, 50]),
)
def test_parameters(lam, eta, mu0, c, alpha, n):
    parameters = dict(lam=lam, eta=eta, mu0=mu0, c=c, alpha=alpha)
    data = clients(3, n)
    got = run(*data, k0=3, **parameters)
    agree(got, expected(*data, k0=3, **parameters), np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 14, 20, 45])
def test_a_client_does_not_depend_on_the_others(n, dtype):
    s = 41
    W, x, G, step = clients(s, n, dtype)
    all_w, all_mu = run(W, x, G, step, k0=3)
    rng = np.random.default_rng(1)
    for size in (1, 8, 17, 40):
        rows = rng.permutation(s)[:size]
        w, mu = run(W[rows], x, G[rows], step[rows], k0=3)
        np.testing.assert_array_equal(w, all_w[rows])
        np.testing.assert_array_equal(mu, all_mu[rows])


@pytest.mark.parametrize("n", [1, 14, 45])
def test_raw_updates_the_chosen_rows_only(n):
    W, x, G, step = clients(30, n)
    want, want_mu = run(W, x, G, step)
    rows = np.array([4, 5, 6, 7, 8, 9, 10, 11, 29, 0, 2])
    others = np.setdiff1d(np.arange(30), rows)
    out, mu = W.copy(), np.full(30, -1.0)
    finite = local_steps.fedepm_local_steps_raw(
        out, x, G, step, rows, 1e-3, 2e-3, 0.5, 1e-3, 1.001, 12, 36, out, mu
    )
    assert finite
    np.testing.assert_array_equal(out[rows], want[rows])
    np.testing.assert_array_equal(mu[rows], want_mu[rows])
    np.testing.assert_array_equal(out[others], W[others])
    assert (mu[others] == -1).all()


@pytest.mark.parametrize("n", [1, 14, 45])
def test_out(n):
    W, x, G, step = clients(19, n)
    want, mu = run(W, x, G, step)
    out = np.empty_like(W)
    got, _ = run(W, x, G, step, out=out)
    assert got is out
    np.testing.assert_array_equal(out, want)
    got, in_place_mu = run(W, x, G, step, out=W)
    assert got is W
    np.testing.assert_array_equal(W, want)
    np.testing.assert_array_equal(in_place_mu, mu)


@pytest.mark.skipif(JIT_DISABLED, reason="large")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("s", "n"), [(20_001, 14), (7, 40_001)])
def test_threads_do_not_change_a_bit(s, n, dtype):
    data = clients(s, n, dtype)
    one, two = run(*data), run(*data, threads=2)
    assert s * n * 12 >= local_steps.PARALLEL_FROM
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    agree(one, expected(*data, **PARAMETERS), dtype)


def test_no_clients():
    w, mu = run(*clients(0, 14))
    assert w.shape == (0, 14) and mu.shape == (0,)


@pytest.mark.parametrize("n", [1, 14, 45])
@pytest.mark.parametrize("name", ["W", "x", "G"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(n, name, value):
    data = dict(zip(("W", "x", "G", "step"), clients(11, n), strict=True))
    data[name].flat[-1] = value
    with pytest.raises(ValueError, match=f"{name} must be finite"):
        run(**data, k0=1)


def test_overflow_is_an_error():
    W, x, G, step = clients(2, 3)
    W[1, 1] = 1e200
    with pytest.raises(ValueError, match="overflows"):
        run(W, x, G, step)
    with pytest.raises(ValueError, match="overflows"):
        run(W, x, G, step, out=W)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(W=np.zeros(3)), ValueError, "W must have 2 dimension"),
        (dict(G=np.zeros((2, 4))), ValueError, r"G must have shape \(2, 3\)"),
        (dict(G=np.zeros((2, 3), np.float32)), TypeError, "G must be float64"),
        (dict(x=np.zeros(4)), ValueError, r"x must have shape \(3,\)"),
        (dict(step=np.ones(3)), ValueError, r"step must have shape \(2,\)"),
        (dict(step=np.array([1.0, 0.0])), ValueError, "step must be positive, got 0"),
        (dict(step=np.array([1.0, np.nan])), ValueError, "step must be finite"),
        (dict(lam=-1.0), ValueError, "lam must be a finite number >= 0, got -1"),
        (dict(eta=-1.0), ValueError, "eta must be"),
        (dict(mu0=0.0), ValueError, "mu0 must be a finite number > 0"),
        (dict(c=np.nan), ValueError, "c must be"),
        (dict(alpha="x"), TypeError, "alpha must be"),
        (dict(k0=0), ValueError, "local_steps must be an integer >= 1, got 0"),
        (dict(first_iteration=-1), ValueError, "first_iteration must be"),
        (dict(threads=0), ValueError, "threads must be"),
        (dict(out=np.zeros((2, 4))), ValueError, "out must have shape"),
    ],
)
def test_bad_arguments_are_named(change, error, words):
    data = dict(zip(("W", "x", "G", "step"), clients(2, 3), strict=True))
    with pytest.raises(error, match=words):
        run(**{**data, **change})


def test_overlaps_are_refused():
    memory = np.zeros((3, 4))
    _, x, G, step = clients(2, 4)
    with pytest.raises(ValueError, match="out must be W or not overlap"):
        run(memory[:2], x, G, step, out=memory[1:])
    with pytest.raises(ValueError, match="out must not overlap"):
        run(memory[:2], x, G, step, out=G)
