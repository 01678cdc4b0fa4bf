"""Private runs with eta the curvature, and uploads weighed by their deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepm_fast import FedEPM, FederatedData, Huber, Logistic, Problem, run
from fedepm_fast.losses import LeastSquares, Multinomial
from fedepm_fast.mechanisms import upload_sensitivity
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, gaussian_noise_multiplier
from fedepm_fast.privacy.curvature import BEST, curvature_settings
from fedepm_fast.privacy.defaults import private_settings

SECRET = 987654321987
SIZES = np.array([3000, 900, 300, 1800])
LAWS = pytest.mark.parametrize("law", [LaplaceMechanism, GaussianMechanism])


def table(seed=0, sizes=SIZES, columns=6):
    """Standardised columns with an intercept, whose clients differ in their rows."""
    rng = np.random.default_rng(seed)
    clients = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(sizes.sum(), columns)) + 0.5 * rng.normal(size=(len(sizes), 1))[clients]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    margins = X @ rng.normal(size=columns) / 2 - 0.5 + 0.3 * (clients % 2)
    labels = (rng.random(len(X)) < 1 / (1 + np.exp(-margins))).astype(float)
    return FederatedData(np.column_stack([X, np.ones(len(X))]), labels, sizes)


def private(data, mechanism, seed=SECRET, engine="reference", **options):
    found = curvature_settings(mechanism, data.client_sizes, data.n_features, **options)
    objective = Logistic(beta=0.0)
    result = run(
        found.algorithm, data, objective=objective, rounds=found.rounds, seed=seed, engine=engine
    )
    return found, result


# Weights by deviation ---------------------------------------------------------------------


@LAWS
def test_engines_agree_on_weights_by_deviation(law):
    algorithm = FedEPM(
        mechanism=law(total_epsilon=3.0, clip=2.0, public_scaling=True), participation=0.5,
        lam=1e-3, eta=0.5, mu0=0.05, aggregation="inverse_deviation",
    )  # fmt: skip
    data = table()
    compiled, reference = (
        run(algorithm, data, rounds=4, seed=3, engine=e) for e in ("compiled", "reference")
    )
    np.testing.assert_allclose(compiled.Z, reference.Z, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(compiled.x, reference.x, rtol=1e-10, atol=1e-12)


def test_weights_by_deviation_need_a_mechanism():
    with pytest.raises(ValueError, match="aggregation must be"):
        FedEPM(aggregation="inverse_deviation")


@pytest.mark.parametrize("client_weight", ["size", "equal"])
def test_with_next_to_no_noise_the_optimum_is_that_of_the_weights(client_weight):
    data = table()
    mechanism = GaussianMechanism(total_epsilon=1e9, clip=1e3)
    found = curvature_settings(mechanism, data.client_sizes, 7, client_weight=client_weight)
    loss = Logistic(beta=0.0)
    result = run(found.algorithm, data, objective=loss, rounds=150, seed=SECRET, engine="reference")
    problem = Problem(data, Logistic(beta=0.0), client_weight)
    best = problem.optimum(method="newton").x
    other = Problem(data, Logistic(beta=0.0), {"size": "equal", "equal": "size"}[client_weight])
    away = other.optimum(method="newton").x
    assert np.abs(result.x - best).max() < 0.01 < 0.02 < np.abs(result.x - away).max()
    assert found.rounds == BEST[2][0][1]


# Settings -----------------------------------------------------------------------------------


@LAWS
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_what_the_noise_is_is_known_before(law, epsilon):
    # Rows of zeros have no gradient, and what a point is is noise.
    n, sizes = 400, np.array([50, 200, 100])
    data = FederatedData(np.zeros((350, n)), np.arange(350.0) % 2, sizes)
    found, result = private(data, law(total_epsilon=epsilon))
    assert result.rounds == found.rounds
    first, last = result.history["x"][1], result.history["x"][-1]
    left = 1 - 0.6 / (4 * found.algorithm.eta)  # of a round's noise after another one
    k = math.sqrt(sum(left ** (2 * t) for t in range(found.rounds)))
    assert first.std() == pytest.approx(found.deviation / k, rel=0.12)
    # Without curvature all noise stays.
    assert last.std() == pytest.approx(found.deviation / k * math.sqrt(found.rounds), rel=0.12)


@LAWS
def test_an_upload_moves_by_the_change_of_the_gradient_over_eta(law):
    found = curvature_settings(law(total_epsilon=1.0), SIZES, 7)
    algorithm, clip = found.algorithm, found.algorithm.mechanism.clip
    moves = upload_sensitivity(2 * clip / SIZES, np.full((1, 4), algorithm.mu0), algorithm.eta)
    np.testing.assert_allclose(moves, 2 * clip / SIZES / algorithm.eta, rtol=1e-8)


def test_the_level_is_the_noise_beside_the_gradients():
    n, d, m = 9, 5000, 10
    sizes = np.full(m, d // m)
    found = curvature_settings(GaussianMechanism(total_epsilon=1.0), sizes, n)
    multiplier = gaussian_noise_multiplier(1.0, 1e-6)
    # One upload: 2 * sqrt(n) / d_i times the multiplier, in n coordinates, over sqrt(m).
    level = multiplier * 2 * math.sqrt(n) * m / d * math.sqrt(n) / math.sqrt(m)
    assert found.level == pytest.approx(level, rel=1e-12)
    rounds, theta, kappa = next(row[1:] for row in BEST[2] if level <= row[0])
    assert (found.rounds, found.algorithm.eta) == (rounds, theta / 4)
    assert found.algorithm.mechanism.clip == kappa * math.sqrt(n)
    assert found.algorithm.mechanism.public_scaling and found.algorithm.lam == 0
    laplace = curvature_settings(LaplaceMechanism(total_epsilon=1.0), sizes, n)
    level = math.sqrt(2) * 2 * n * m / d * math.sqrt(n) / math.sqrt(m)
    assert laplace.level == pytest.approx(level, rel=1e-12)
    # The same rows at fewer clients, or more rows, are less noise.
    few = curvature_settings(GaussianMechanism(total_epsilon=1.0), [d], n)
    assert few.level == pytest.approx(found.level / math.sqrt(m), rel=1e-12)


def test_equal_clients_that_are_small_make_more_noise():
    sizes = np.array([10, 1000])
    mechanism = GaussianMechanism(total_epsilon=1.0)
    by_size, equal = (
        curvature_settings(mechanism, sizes, 3, client_weight=w).level for w in ("size", "equal")
    )
    expected = math.sqrt((1 / sizes**2).sum()) / 2 / (math.sqrt(2) / sizes.sum())
    assert equal / by_size == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_more_noise_is_fewer_rounds_and_smaller_steps(order):
    levels, rounds, thetas, kappas = zip(*BEST[order], strict=True)
    assert list(levels) == sorted(levels) and math.isinf(levels[-1])
    assert list(rounds) == sorted(rounds, reverse=True) and rounds[-1] == 1
    assert kappas[0] == max(kappas) and thetas[-1] == max(thetas)


@LAWS
def test_an_own_clip_is_kept(law):
    found = curvature_settings(law(total_epsilon=1.0, clip=0.5), SIZES, 7)
    free = curvature_settings(law(total_epsilon=1.0), SIZES, 7)
    assert found.algorithm.mechanism.clip == 0.5
    ratio = 0.5 / free.algorithm.mechanism.clip
    assert found.deviation == pytest.approx(free.deviation * ratio, rel=1e-12)


def test_a_strong_penalty_does_not_make_a_run_diverge():
    data, loss = table(), Logistic(beta=20.0, regularizer="beta")
    mechanism = GaussianMechanism(total_epsilon=1e6)
    found = curvature_settings(mechanism, data.client_sizes, 7, objective=loss)
    result = run(
        found.algorithm, data, objective=loss, rounds=found.rounds, seed=SECRET, engine="reference"
    )
    best = Problem(data, loss, "size").optimum(method="newton").x
    np.testing.assert_allclose(result.x, best, atol=1e-3)


@LAWS
def test_several_classes(law):
    rng = np.random.default_rng(1)
    d, classes = 12_000, 3
    X = np.column_stack([rng.normal(size=(d, 4)), np.ones(d)])
    margins = X @ rng.normal(size=(5, classes))
    labels = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1).astype(float)
    data = FederatedData(X, labels, np.full(4, d // 4))
    loss = Multinomial(beta=0.0, classes=classes)
    found = curvature_settings(law(total_epsilon=2.0), data.client_sizes, 5, objective=loss)
    result = run(found.algorithm, data, objective=loss, rounds=found.rounds, seed=SECRET)
    best = Problem(data, loss).optimum(method="newton").x
    problem = Problem(data, loss)
    start = problem.total_value(np.zeros(15))
    share = (start - problem.total_value(result.x)) / (start - problem.total_value(best))
    assert share > 0.85


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@LAWS
def test_standardised_columns_are_fitted_better_than_with_the_settings_of_unit_norm(law, epsilon):
    sizes = np.full(20, 1000)
    data = table(seed=5, sizes=sizes, columns=8)
    problem = Problem(data, Logistic(beta=0.0))
    start, best = 20 * math.log(2), problem.optimum(method="newton").value

    def closed(x):
        return (start - problem.total_value(x)) / (start - best)

    scale = math.sqrt(len(data.labels))
    scaled = FederatedData(data.features / scale, data.labels, sizes)
    settings = private_settings(epsilon)
    rounds = settings.pop("rounds")
    new, old = [], []
    for seed in range(3):
        mechanism = law(total_epsilon=epsilon, public_scaling=True)
        new.append(closed(private(data, mechanism, SECRET + seed)[1].x))
        x = run(
            FedEPM(mechanism=mechanism, **settings), scaled, objective=Logistic(beta=0.0),
            rounds=rounds, seed=SECRET + seed, engine="reference",
        ).x  # fmt: skip
        old.append(closed(x / scale))
    assert np.median(new) > max(np.median(old), 0.85)


@pytest.mark.parametrize("arguments, message", [
    ((None, SIZES, 3), "mechanism must be a mechanism with a total_epsilon, got None"),
    ((LaplaceMechanism(epsilon_per_round=1.0), SIZES, 3), "mechanism must be a mechanism with"),
    ((LaplaceMechanism(total_epsilon=1.0), SIZES, 0), "n_features must be"),
    ((LaplaceMechanism(total_epsilon=1.0), SIZES, 2.5), "n_features must be"),
    ((LaplaceMechanism(total_epsilon=1.0), [[1]], 2), "client_sizes must"),
    ((LaplaceMechanism(total_epsilon=1.0), [10, 0], 2), "client_sizes must be at least 1"),
    ((LaplaceMechanism(total_epsilon=1.0), [], 2), "client_sizes must"),
])  # fmt: skip
def test_refusals(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        curvature_settings(*arguments)


def test_losses_without_a_bound_are_refused_by_name():
    mechanism = LaplaceMechanism(total_epsilon=1.0)
    with pytest.raises(ValueError, match="'least_squares' has no bound on a record's gradient"):
        curvature_settings(mechanism, SIZES, 3, objective=LeastSquares())
    assert curvature_settings(mechanism, SIZES, 3, objective=Huber(delta=1.0)).rounds >= 1
    with pytest.raises(ValueError, match="client_weight must be"):
        curvature_settings(mechanism, SIZES, 3, client_weight="rows")
