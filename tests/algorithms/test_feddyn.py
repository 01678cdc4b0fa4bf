"""FedDyn against the equations of its paper, its compiled stages, and where it converges."""

from __future__ import annotations

import numpy as np
import pytest
from curvature_problems import rows, with_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, small_data
from runs import assert_agree, both
from scipy import sparse
from scipy.special import expit

from fedepm_fast import DivergenceWarning, FederatedData, SFedAvg, make_problem, run
from fedepm_fast._common.rounding import at_most
from fedepm_fast.algorithms import FedDyn
from fedepm_fast.objectives import as_objective
from fedepm_fast.participation import clients_per_round, select
from fedepm_fast.randomness import CounterRandomness

#: First derivative of a loss in the margin, and a bound of the second.
SLOPES = {
    "logistic": (lambda t, b: expit(t) - b, 0.25),
    "least_squares": (lambda t, b: t - b, 1.0),
    "poisson": (lambda t, b: np.exp(t) - b, None),
}


def as_in_the_paper(data, name, beta, algorithm, *, rounds, seed, by_size=False):
    """Algorithm 1 of Acar et al., its minimiser by gradient steps: the server's points.

    Regulariser beta/2 |x|^2 divided by d_i, or with weights by size by d.
    """
    slope, bend = SLOPES[name]
    m, n, K = data.n_clients, data.n_features, algorithm.local_steps
    table = data.features.toarray() if data.is_sparse else data.features
    v = np.ones(data.n_samples) if data.sample_weight is None else data.sample_weight
    parts = np.split(np.arange(len(table)), np.cumsum(data.client_sizes)[:-1])
    weight = [m * v[part].sum() / v.sum() if by_size else 1.0 for part in parts]
    reg = [beta / (v if by_size else v[part]).sum() for part in parts]

    def gradient(i, w):
        A, b = table[parts[i]], data.labels[parts[i]]
        return weight[i] * (A.T @ (v[parts[i]] * slope(A @ w, b)) / v[parts[i]].sum() + reg[i] * w)

    def bound(i):
        A = table[parts[i]] * np.sqrt(v[parts[i]])[:, None]
        return weight[i] * (bend * np.linalg.eigvalsh(A.T @ A)[-1] / v[parts[i]].sum() + reg[i])

    alpha = algorithm.prox
    if alpha == "lipschitz":
        alpha = 0.3 * np.mean([bound(i) for i in range(m)])
    alpha = algorithm.prox_scale * alpha
    theta, h = np.zeros(n), np.zeros(n)
    last_gradient = np.zeros((m, n))
    points, m0 = [theta], clients_per_round(algorithm.participation, m)
    for tau in range(rounds):
        S = select(CounterRandomness(seed), tau, m, m0)
        found = []
        for i in S:
            rate = algorithm.learning_rate
            if rate == "lipschitz":
                rate = 1 / (bound(i) + alpha)
            w = theta
            for _ in range(K):
                w = w - rate * (gradient(i, w) - last_gradient[i] + alpha * (w - theta))
            last_gradient[i] = last_gradient[i] - alpha * (w - theta)
            found.append(w)
        h = h - alpha * (1 / m) * sum(w - theta for w in found)
        theta = sum(found) / len(S) - h / alpha
        points.append(theta)
    return np.array(points)


@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", SLOPES)
def test_rounds_are_those_of_the_paper(name, layout, participation, local_steps):
    data, objective = with_loss(name, layout=layout, beta=0.1)
    options = {"prox": 0.3, "learning_rate": 0.05} if name == "poisson" else {"prox_scale": 0.7}
    algorithm = FedDyn(local_steps=local_steps, participation=participation, **options)
    want = as_in_the_paper(data, name, 0.1, algorithm, rounds=9, seed=3)
    for engine in ("compiled", "reference"):
        found = run(algorithm, data, objective=objective, rounds=9, seed=3, engine=engine)
        np.testing.assert_allclose(found.history["x"], want, rtol=0, atol=1e-12 * abs(want).max())
        assert found.engine == engine


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("client_weight", ["size", "equal"])
def test_clients_weigh_by_their_rows_and_rows_have_weights(client_weight, weighted):
    A, b, sizes = rows([10, 200, 30, 1], 4, 0)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(b)) if weighted else None
    data = FederatedData(A, b, sizes, sample_weight=weights)
    algorithm = FedDyn(participation=0.5, local_steps=3)
    want = as_in_the_paper(
        data, "logistic", 1e-3, algorithm, rounds=12, seed=0, by_size=client_weight == "size"
    )
    found = run(algorithm, data, rounds=12, client_weight=client_weight)
    np.testing.assert_allclose(found.history["x"], want, rtol=0, atol=1e-12 * np.abs(want).max())


# Where it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("client_weight", ["equal", "size"])
@pytest.mark.parametrize("participation", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("name", LOSSES)
def test_it_ends_at_the_optimum_that_bfgs_finds(name, participation, client_weight):
    data, objective = with_loss(name, beta=3.0)
    options = {"local_steps": 10, "participation": participation}
    if objective.curvature is None:  # Poisson's, of which nothing bounds the curvature
        options |= {"prox": 3.0, "learning_rate": 0.03}
    result = run(
        FedDyn(**options), data, objective=objective, rounds=1500, client_weight=client_weight
    )
    best = make_problem(FedDyn(), data, objective, client_weight=client_weight).optimum().x
    np.testing.assert_allclose(result.x, best, rtol=0, atol=1e-8 * np.abs(best).max())


def test_few_steps_of_clients_that_differ_do_not_keep_it_from_the_optimum():
    rng = np.random.default_rng(0)
    sizes, truth = np.full(8, 30), 3 * rng.normal(size=(8, 4))  # each client has a model of its own
    table = rng.normal(size=(240, 4)) * np.linspace(0.5, 1.5, 8).repeat(30)[:, None]
    data = FederatedData(table, (table * truth.repeat(30, axis=0)).sum(axis=1), sizes)
    problem = make_problem(FedDyn(), data, "least_squares")
    best, far = problem.optimum().x, {}
    for cls, options in ((FedDyn, {"participation": 0.4}), (SFedAvg, {"participation": 1.0})):
        for local_steps in (1, 10):
            algorithm = cls(local_steps=local_steps, noise="none", **options)
            if cls is SFedAvg:
                algorithm = cls(local_steps=local_steps, noise="none", learning_rate=0.01)
            found = run(algorithm, data, objective="least_squares", rounds=600)
            far[cls, local_steps] = np.linalg.norm(found.x - best)
    assert far[FedDyn, 1] < 1e-8 and far[FedDyn, 10] < 1e-8 and far[SFedAvg, 10] > 1e-2


def test_the_optimum_is_where_it_rests():
    data, objective = with_loss("logistic", beta=1.0)
    algorithm = FedDyn(local_steps=3, participation=0.5)
    problem = make_problem(algorithm, data, objective)
    result = run(algorithm, data, objective=objective, rounds=1200)
    steps = np.abs(np.diff(result.history["x"], axis=0)).max(axis=1)
    assert steps[-1] < 1e-12 and np.abs(problem.total_gradient(result.x)).max() < 1e-12
    np.testing.assert_allclose(result.W, np.tile(result.x, (6, 1)), rtol=0, atol=1e-9)


# The same, however it is computed -----------------------------------------------------------


@pytest.mark.parametrize("noise", ["standardized", "laplace", "none"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_compiled_stages_are_the_hooks(name, layout, noise):
    data, objective = with_loss(name, layout=layout)
    algorithm = FedDyn(
        local_steps=5, prox=2.0, learning_rate=0.05, noise=noise, mu0=20.0, epsilon=5.0,
        participation=0.5, coverage_rounds=3,
    )  # fmt: skip
    got, want = both(algorithm, data, objective=objective, rounds=12, seed=5)
    assert (got.engine, got.rounds) == ("compiled", 12)
    assert_agree(got, want)


@settings(max_examples=30)
@given(
    m=st.integers(1, 7), n=st.integers(1, 6), seed=st.integers(0, 10_000),
    participation=st.floats(0.1, 1.0), beta=st.floats(0.01, 10.0), is_sparse=st.booleans(),
    local_steps=st.integers(1, 6), prox_scale=st.floats(0.3, 10.0), start=st.booleans(),
)  # fmt: skip
def test_engines_agree_on_any_problem(
    m, n, seed, participation, beta, is_sparse, local_steps, prox_scale, start
):
    data = small_data(m, n, seed)
    if is_sparse:
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    algorithm = FedDyn(local_steps=local_steps, prox_scale=prox_scale, participation=participation)
    objective = as_objective("logistic", beta=beta, regularizer="beta")
    where = np.random.default_rng(seed).normal(size=(m, n)) if start else None
    assert_agree(*both(algorithm, data, objective=objective, rounds=6, seed=seed, start=where))


# What it is told -----------------------------------------------------------------------------


def test_what_clients_tell_and_the_server_makes_of_it():
    data, objective = with_loss("logistic")
    problem = make_problem(FedDyn(), data, objective)
    bounds = problem.lipschitz()
    rate, prox = FedDyn(prox_scale=2.0).known(problem)
    np.testing.assert_allclose(prox, 0.6 * bounds.mean(), rtol=1e-15)
    np.testing.assert_allclose(rate, 1 / (bounds + 0.6 * bounds.mean()), rtol=1e-15)
    rate, prox = FedDyn(learning_rate=0.1).known(problem)
    assert (rate == 0.1).all() and np.ptp(prox) == 0
    rate, prox = FedDyn(prox=3.0).known(problem)
    assert (prox == 3.0).all()
    np.testing.assert_allclose(rate, 1 / (bounds + 3), rtol=1e-15)


def test_it_says_what_makes_it_stable():
    data, objective = with_loss("logistic", beta=0.1)
    problem = make_problem(FedDyn(), data, objective)
    most = 2 / (problem.lipschitz().max() + 3)
    with pytest.warns(DivergenceWarning, match=f"a learning_rate of {at_most(most)} or less makes"):
        run(FedDyn(learning_rate=5 * most, prox=3.0), data, objective=objective, rounds=60)
    assert "a larger prox_scale" in FedDyn(learning_rate=0.9 * most, prox=3.0).advice(problem)
    counts = make_problem(FedDyn(), *with_loss("poisson"))
    assert "a larger prox_scale" in FedDyn(learning_rate=5.0, prox=0.1).advice(counts)
    assert "a learning_rate below 20 is needed" in FedDyn(learning_rate=50.0, prox=0.1).advice(
        counts
    )


def test_what_it_needs_it_asks_for():
    data, objective = with_loss("poisson")
    for options, name in (({}, "learning_rate"), ({"learning_rate": 0.1}, "prox")):
        with pytest.raises(
            ValueError, match=f"{name} must be a number for the objective 'poisson'"
        ):
            run(FedDyn(**options), data, objective=objective)
    for options, said in (
        ({"prox": 0.0}, "prox must be a finite number"),
        ({"prox": "best"}, "prox must be a number or 'lipschitz', got 'best'"),
        ({"prox_scale": np.nan}, "prox_scale must be a finite number"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number"),
        ({"mechanism": object()}, "mechanism must be None for FedDyn"),
    ):
        with pytest.raises(ValueError, match=said):
            FedDyn(**options)
    assert FedDyn().describe()["noise"] == "none"
    data, objective = with_loss("logistic")
    large = FederatedData(data.features * 1e160, data.labels, data.client_sizes)
    for options, name in (({}, "learning_rate"), ({"learning_rate": 0.1}, "prox")):
        with pytest.raises(ValueError, match=f"features must be brought to scale: .* {name} "):
            run(FedDyn(**options), large, objective=objective)


def test_what_is_sent_and_computed():
    algorithm = FedDyn(local_steps=4)
    assert (algorithm.gradients_per_round(np.array([3, 5])) == 4).all()
    assert algorithm.numbers_sent(10, 3) == 2 + 10 + 3 * 10
    assert algorithm.numbers_received(10, 3) == 10 + 3 * (10 + 2)  # h is the server's own
