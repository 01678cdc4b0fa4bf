"""Local steps against the reference, alone and among other clients."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data

from fedepm_fast import FedEPM, Problem, SFedAvg, SFedProx
from fedepm_fast.algorithms import AtClients
from fedepm_fast.kernels import _jit, local_steps, losses
from fedepm_fast.kernels.local_steps import (
    fedepm_local_steps,
    fedepm_local_steps_raw,
    gradient_steps_kernel,
)
from fedepm_fast.reference import fedepm_iterates, learning_rate

FEW = _jit.JIT_DISABLED
PARAMETERS = {"lam": 0.3, "eta": 0.2, "mu0": 0.7, "c": 0.05, "alpha": 1.01, "local_steps": 5}


def problem(rng, s, n, dtype=np.float64):
    """W, x, G, step."""
    W, G = (2 * rng.normal(size=(2, s, n))).astype(dtype)
    return W, rng.normal(size=n).astype(dtype), G, (0.5 + rng.random(s)).astype(dtype)


def reference(W, x, G, step, tau, **changes):
    algorithm = FedEPM(**PARAMETERS | changes)
    wide = [a.astype(float) for a in (W, x, G, step)]
    for w, mu in fedepm_iterates(algorithm, wide[0], *wide[1:], tau):
        last = w, mu
    return last


@pytest.mark.parametrize("n", [*range(1, 20), 31, 32, 33, 40, 64, 70, 257])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_reference(n, dtype, rng):
    bound = 1e-12 if dtype == np.float64 else 1e-5
    for s in (1, 7, 16, 20) if not FEW else (3,):
        arrays = problem(rng, s, n, dtype)
        for tau in (0, 3):
            got, mu = fedepm_local_steps(*arrays, first_iteration=5 * tau, **PARAMETERS)
            want, want_mu = reference(*arrays, tau)
            assert got.dtype == mu.dtype == dtype
            assert np.abs(got - want).max() <= bound * np.abs(want).max()
            np.testing.assert_allclose(mu, want_mu, rtol=bound)


@pytest.mark.parametrize("local", [1, 2, 12])
@pytest.mark.parametrize("n", [5, 200])
def test_number_of_steps(local, n, rng):
    arrays = problem(rng, 4, n)
    parameters = PARAMETERS | {"local_steps": local}
    got, _ = fedepm_local_steps(*arrays, first_iteration=2 * local, **parameters)
    want, _ = reference(*arrays, 2, local_steps=local)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [14, 200])
def test_a_client_depends_on_nothing_but_itself(n, rng, monkeypatch):
    monkeypatch.setattr(local_steps, "PARALLEL_FROM", 0)
    W, x, G, step = problem(rng, 23, n)
    whole, mu = fedepm_local_steps(W, x, G, step, first_iteration=0, **PARAMETERS)
    again, _ = fedepm_local_steps(W, x, G, step, first_iteration=0, threads=2, **PARAMETERS)
    np.testing.assert_array_equal(again, whole)
    for S in ([4], [22, 3, 9], list(range(0, 23, 2))):
        part, part_mu = fedepm_local_steps(W[S], x, G[S], step[S], first_iteration=0, **PARAMETERS)
        np.testing.assert_array_equal(part, whole[S])
        np.testing.assert_array_equal(part_mu, mu[S])
    # In place, and some rows only.
    rows, in_place, some_mu = np.array([2, 17, 5]), W.copy(), np.zeros(23)
    values = (PARAMETERS[k] for k in ("lam", "eta", "mu0", "c", "alpha", "local_steps"))
    assert fedepm_local_steps_raw(in_place, x, G, step, rows, *values, 0, in_place, some_mu)
    np.testing.assert_array_equal(in_place[rows], whole[rows])
    others = np.setdiff1d(np.arange(23), rows)
    np.testing.assert_array_equal(in_place[others], W[others])
    np.testing.assert_array_equal(some_mu[rows], mu[rows])
    assert fedepm_local_steps(W, x, G, step, first_iteration=0, out=W, **PARAMETERS)[0] is W
    np.testing.assert_array_equal(W, whole)


@pytest.mark.parametrize("algorithm", [
    SFedAvg(local_steps=3, learning_rate=0.05), SFedAvg(local_steps=1, learning_rate=0.05),
    SFedProx(local_steps=2, learning_rate=0.05, prox=0.3),
])  # fmt: skip
@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_gradient_steps_are_the_baselines(algorithm, loss, rng):
    data = small_data(task="classification" if loss == "logistic" else "regression")
    bound = Problem(data, loss)
    m, n, k0, tau = bound.n_clients, bound.n_parameters, algorithm.local_steps, 2
    rows = losses.pack(data.features, data.labels, data.client_sizes, loss=loss)
    x, S = rng.normal(size=n), np.array([4, 1, 2])
    G = bound.gradients(x)
    clients = AtClients(
        tau, x, np.zeros((3, n)), G[S], data.client_sizes[S],
        lambda row, w: bound.gradient(S[row], w),
    )  # fmt: skip
    want, want_mu = algorithm.local_round(clients)
    gamma = np.array(
        [learning_rate(algorithm.learning_rate, d, k0, tau) for d in data.client_sizes]
    )
    steps = gradient_steps_kernel(losses.client_kernel(rows))
    out, mu = np.zeros((m, n)), np.zeros(m)
    prox, inner = getattr(algorithm, "prox", 0.0), getattr(algorithm, "inner_steps", 1)
    assert steps(
        rows.arrays, bound.reg, S, x, G, gamma, prox, algorithm.mu0, algorithm.c,
        algorithm.alpha, k0, inner, tau * k0, losses.workspace(rows), out, mu,
    )  # fmt: skip
    np.testing.assert_allclose(out[S], want, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(mu[S], want_mu, rtol=1e-13)
    assert not out[[0, 3, 5]].any()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"W": np.ones(3)}, ValueError, "W must have 2 dimension"),
        ({"G": np.ones((2, 4))}, ValueError, r"G must have shape \(2, 3\)"),
        ({"G": np.ones((2, 3), np.float32)}, TypeError, "G must be float64 like"),
        ({"x": np.ones(4)}, ValueError, r"x must have shape \(3,\)"),
        ({"step": np.zeros(2)}, ValueError, "step must be positive"),
        ({"step": [1.0, np.nan]}, ValueError, "step must be finite"),
        ({"lam": -1.0}, ValueError, "lam must be"),
        ({"eta": -1.0}, ValueError, "eta must be"),
        ({"mu0": 0.0}, ValueError, "mu0 must be"),
        ({"c": -1.0}, ValueError, "c must be"),
        ({"alpha": 0.0}, ValueError, "alpha must be"),
        ({"local_steps": 0}, ValueError, "local_steps must be"),
        ({"first_iteration": -1}, ValueError, "first_iteration must be"),
        ({"threads": 0}, ValueError, "threads must be"),
        ({"out": np.empty((3, 3))}, ValueError, "out must have shape"),
        ({"W": np.full((2, 3), np.nan)}, ValueError, "W must be finite"),
        ({"G": np.full((2, 3), np.inf)}, ValueError, "G must be finite"),
        ({"x": np.full(3, np.nan)}, ValueError, "x must be finite"),
    ],
)
def test_bad_input(changes, error, message):
    arguments = {
        "W": np.ones((2, 3)), "x": np.ones(3), "G": np.ones((2, 3)), "step": np.ones(2),
        "first_iteration": 0, **PARAMETERS,
    }  # fmt: skip
    with pytest.raises(error, match=message):
        fedepm_local_steps(**arguments | changes)
