"""FedNL against the equations of its paper, where it ends, and where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from curvature_problems import loss, rows, with_loss, zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, small_data
from runs import assert_agree, both
from scipy import sparse
from scipy.special import expit

from fedepm_fast import DivergenceWarning, FedEPM, FederatedData, make_problem, run, run_callables
from fedepm_fast.algorithms import FedNL
from fedepm_fast.participation import clients_per_round, select
from fedepm_fast.randomness import CounterRandomness

ZOO = zoo()
#: First and second derivative of a loss in the margin.
SLOPES = {
    "logistic": (lambda t, b: expit(t) - b, lambda t, b: expit(t) * expit(-t)),
    "least_squares": (lambda t, b: t - b, lambda t, b: np.ones_like(t)),
    "poisson": (lambda t, b: np.exp(t) - b, lambda t, b: np.exp(t)),
}


def as_in_the_paper(data, name, beta, *, participation, rounds, seed, by_size=False):
    """Algorithm 2 of Safaryan et al., its compressor the identity and alpha = 1: the points.

    Regulariser beta/2 |x|^2 divided by d_i, or with weights by size by d; the sum over devices is
    kept up to date by differences, as their server does.
    """
    first, second = SLOPES[name]
    m, n, sizes = data.n_clients, data.n_features, data.client_sizes
    table = data.features.toarray() if data.is_sparse else data.features
    weights = np.ones(data.n_samples) if data.sample_weight is None else data.sample_weight
    parts = np.split(np.arange(len(table)), np.cumsum(sizes)[:-1])
    total = weights.sum()

    def derivatives(i, x):
        A, b, v = table[parts[i]], data.labels[parts[i]], weights[parts[i]]
        c = m * v.sum() / total if by_size else 1.0
        reg = beta / total if by_size else beta / v.sum()
        gradient = A.T @ (v * first(A @ x, b)) / v.sum() + reg * x
        hessian = A.T @ np.diag(v * second(A @ x, b)) @ A / v.sum() + reg * np.eye(n)
        return c * gradient, c * hessian

    x = np.zeros(n)
    H, shift, g = np.zeros((m, n, n)), np.zeros(m), np.zeros((m, n))
    for i in range(m):
        gradient, H[i] = derivatives(i, x)
        g[i] = H[i] @ x - gradient
    H_mean, shift_mean, g_mean = H.mean(axis=0), shift.mean(), g.mean(axis=0)
    points, m0 = [x], clients_per_round(participation, m)
    for tau in range(1, rounds + 1):
        x = np.linalg.solve(H_mean + shift_mean * np.eye(n), g_mean)
        points.append(x)
        for i in select(CounterRandomness(seed), tau, m, m0):
            gradient, hessian = derivatives(i, x)
            learnt = H[i] + (hessian - H[i])
            own_shift = np.linalg.norm(learnt - hessian)
            own_g = (learnt + own_shift * np.eye(n)) @ x - gradient
            H_mean = H_mean + (learnt - H[i]) / m
            shift_mean = shift_mean + (own_shift - shift[i]) / m
            g_mean = g_mean + (own_g - g[i]) / m
            H[i], shift[i], g[i] = learnt, own_shift, own_g
    return np.array(points)


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", SLOPES)
def test_rounds_are_those_of_the_paper(name, layout, participation):
    data, objective = with_loss(name, layout=layout, beta=0.1)
    want = as_in_the_paper(data, name, 0.1, participation=participation, rounds=9, seed=3)
    for engine in ("compiled", "reference"):
        algorithm = FedNL(participation=participation)
        found = run(algorithm, data, objective=objective, rounds=9, seed=3, engine=engine)
        np.testing.assert_allclose(found.history["x"], want, rtol=0, atol=1e-12 * abs(want).max())
        assert found.engine == engine


@pytest.mark.parametrize("client_weight", ["size", "equal"])
def test_clients_weigh_by_their_rows_and_rows_have_weights(client_weight):
    A, b, sizes = rows([10, 200, 30, 1], 4, 0)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(b))
    data = FederatedData(A, b, sizes, sample_weight=weights)
    want = as_in_the_paper(
        data, "logistic", 1e-3, participation=0.5, rounds=12, seed=0,
        by_size=client_weight == "size",
    )  # fmt: skip
    found = run(FedNL(participation=0.5), data, rounds=12, client_weight=client_weight)
    np.testing.assert_allclose(found.history["x"], want, rtol=0, atol=1e-12 * np.abs(want).max())


def test_where_all_take_part_it_is_newtons_method():
    data, objective = with_loss("poisson", beta=0.1)
    problem = make_problem(FedNL(), data, objective)
    x = np.zeros(5)
    for point in run(FedNL(), data, objective=objective, rounds=5).history["x"]:
        np.testing.assert_allclose(point, x, rtol=0, atol=1e-13)
        x = x - np.linalg.solve(problem.total_hessian(x), problem.total_gradient(x))


# Where it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("name", [name for name in ZOO if name != "shifted counts"])
def test_it_ends_at_the_optimum_that_bfgs_finds_or_has_diverged(name, participation):
    data, objective = ZOO[name]
    algorithm = FedNL(participation=participation)
    if name == "scales, huber" and participation == 1.0:  # no row of some bends at the start
        with pytest.warns(DivergenceWarning, match="the run diverged after round 3"):
            run(algorithm, data, objective=objective, engine="reference")
        return
    result = run(algorithm, data, objective=objective, engine="reference")
    assert result.reasons == ("converged",) and result.warning == ""
    problem = make_problem(algorithm, data, objective)
    best = problem.optimum()
    assert abs(result.history["objective"][-1] - best.value) <= 1e-8 * result.start_objective
    if name.endswith((", dense", ", sparse")):  # those that are strongly convex, of one scale
        np.testing.assert_allclose(result.x, best.x, rtol=0, atol=1e-8 * np.abs(best.x).max())


def test_it_converges_superlinearly_near_the_optimum():
    data, objective = with_loss("logistic", beta=0.1)
    algorithm = FedNL(participation=0.5, coverage_rounds=2)
    best = make_problem(algorithm, data, objective).optimum().x
    found = run(algorithm, data, objective=objective, rounds=13).history["x"]
    error = np.linalg.norm(found - best, axis=1)[1:12:2]  # after every client took part once more
    shrinks = error[1:] / error[:-1]
    assert (np.diff(shrinks[:4]) < 0).all() and shrinks[3] < 0.1


def test_it_does_not_hide_that_whole_steps_diverge():
    data, objective = ZOO["shifted counts"]
    with pytest.warns(
        DivergenceWarning, match=r"a larger penalty \(beta\); or try CurvatureFedEPM"
    ):
        result = run(FedNL(), data, objective=objective)
    assert result.reasons == ("diverged",) and result.rounds == 1
    near = make_problem(FedNL(), data, objective).optimum().x
    again = run(FedNL(), data, objective=objective, start=near + 1e-3)
    assert again.reasons == ("converged",)
    np.testing.assert_allclose(again.x, near, rtol=0, atol=1e-8 * np.abs(near).max())


def test_where_nothing_bends_it_has_diverged():
    data, objective = with_loss("logistic", beta=0.0)
    far = FederatedData(np.abs(data.features), np.ones(180), data.client_sizes)
    with pytest.warns(DivergenceWarning, match="the run diverged after round 0"):
        result = run(FedNL(), far, objective=objective, start=np.full(5, -1e4))
    assert (result.x == -1e4).all()


# The same, however it is computed -----------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_engines_agree(name, layout):
    data, objective = with_loss(name, layout=layout, beta=0.1)
    for participation, rounds in ((1.0, 3), (0.5, 6)):
        algorithm = FedNL(participation=participation)
        assert_agree(*both(algorithm, data, objective=objective, rounds=rounds, seed=1))


@settings(max_examples=25)
@given(
    m=st.integers(1, 7), n=st.integers(1, 6), seed=st.integers(0, 10_000),
    participation=st.floats(0.1, 1.0), beta=st.floats(0.1, 10.0), is_sparse=st.booleans(),
)  # fmt: skip
def test_engines_agree_on_any_problem(m, n, seed, participation, beta, is_sparse):
    data = small_data(m, n, seed)
    if is_sparse:
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedNL(participation=participation)
    # A penalty for each client, for a row alone has no curvature in most directions.
    objective = loss("logistic", beta, regularizer="beta")
    assert_agree(*both(algorithm, data, objective=objective, rounds=5, seed=seed))


# What it has not -----------------------------------------------------------------------------


def test_parameters():
    from fedepm_fast.privacy import LaplaceMechanism

    for name in ("local_steps", "epsilon", "mu0", "noise", "coordinates", "renew_every", "lam"):
        with pytest.raises(TypeError, match=name):
            FedNL(**{name: 1})
    described = FedNL(participation=0.5).describe()
    assert set(described) == {
        "name", "participation", "coverage_rounds", "mechanism", "tol", "noise",
    }  # fmt: skip
    assert (described["noise"], described["coverage_rounds"]) == ("none", None)
    with pytest.raises(ValueError, match="mechanism must be None for FedNL"):
        FedNL(mechanism=LaplaceMechanism(total_epsilon=1.0))
    with pytest.raises(ValueError, match="only CurvatureFedEPM and FedNL know when they have"):
        run(FedEPM(), with_loss("logistic")[0], stopping="converged")
    with pytest.raises(ValueError, match="another than FedNL, which takes Hessians"):
        run_callables(FedNL(), [lambda x: (x @ x / 2, x)], np.zeros(2))
    assert "coordinates :" not in FedNL.__doc__ and "mu0" not in FedNL.__doc__


def test_what_is_sent_and_printed():
    n, hessian = 10, 55
    assert FedNL().numbers_sent(n, 3) == hessian + 11 * 4 + 3 * hessian
    assert (FedNL().gradients_per_round(np.array([3, 5])) == 1).all()
    result = run(FedNL(), with_loss("logistic")[0], rounds=2)
    assert "Hessians of all clients at the server, participation 1" in str(result)
