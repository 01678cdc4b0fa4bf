"""What a plan makes of public numbers, and uploads weighed by their deviation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedepm_fast import FedEPM, FederatedData, Huber, Logistic, Problem, run
from fedepm_fast.losses import LeastSquares, Multinomial
from fedepm_fast.mechanisms import upload_sensitivity
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism, gaussian_noise_multiplier, plan
from fedepm_fast.privacy._settings import BEST, OF_CLASSES, OF_RESIDUALS, settings_for

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


# Settings -----------------------------------------------------------------------------------


@LAWS
def test_an_upload_moves_by_the_change_of_the_gradient_over_eta(law):
    found = plan(mechanism=law(total_epsilon=1.0), client_sizes=SIZES, n_features=7)
    algorithm, clip = found.algorithm, found.algorithm.mechanism.clip
    moves = upload_sensitivity(2 * clip / SIZES, np.full((1, 4), algorithm.mu0), algorithm.eta)
    np.testing.assert_allclose(moves, 2 * clip / SIZES / algorithm.eta, rtol=1e-8)


def test_the_level_is_the_noise_beside_the_gradients():
    n, d, m = 9, 5000, 10
    sizes = np.full(m, d // m)
    found = plan(1.0, sizes, n)
    multiplier = gaussian_noise_multiplier(1.0, 1e-6)
    # One upload: 2 * sqrt(n) / d_i times the multiplier, in n coordinates, over sqrt(m).
    level = multiplier * 2 * math.sqrt(n) * m / d * math.sqrt(n) / math.sqrt(m)
    assert found.level == pytest.approx(level, rel=1e-12)
    chosen = settings_for(2, level)
    assert (found.settings, found.rounds) == (chosen, chosen.rounds)
    assert (found.algorithm.eta, found.algorithm.lam) == (chosen.theta / 4, 0.0)
    assert found.mechanism.clip == chosen.clip * math.sqrt(n)
    assert found.mechanism.moments == chosen.moments
    # The same rows at fewer clients, or more rows, are less noise.
    few = plan(1.0, [d], n)
    assert few.level == pytest.approx(found.level / math.sqrt(m), rel=1e-12)
    # In secure sums the honest half of ten hides a record among all.
    summed = plan(1.0, sizes, n, trust="secure-sum")
    assert summed.level == pytest.approx(found.level / math.sqrt(5), rel=1e-12)


def test_equal_clients_that_are_small_make_more_noise():
    sizes = np.array([10, 1000])
    by_size, equal = (plan(1.0, sizes, 3, client_weight=w).level for w in ("size", "equal"))
    assert equal > 1.5 * by_size


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("of, given", [
    (BEST, {}), (OF_CLASSES, {"classes": 3}), (OF_RESIDUALS, {"of_residuals": True})
])  # fmt: skip
def test_a_table_has_settings_for_any_noise(of, given, order):
    levels, rows = zip(*of[order], strict=True)
    assert list(levels) == sorted(levels) and math.isinf(levels[-1])
    assert all(1 <= row.kept <= row.rounds and row.moments >= 0 for row in rows)
    assert all(min(row.theta, row.clip, row.radius, row.floor) > 0 for row in rows)
    # Of less noise no less is spent on the way, and records count no less.
    for less, more in itertools.pairwise(rows):
        assert less.moments >= more.moments and less.clip >= more.clip
    assert settings_for(order, levels[0], **given) == rows[0] == settings_for(order, 0.0, **given)
    assert settings_for(order, 1e9, **given) == rows[-1]


@LAWS
def test_an_own_clip_is_kept(law):
    found, free = (
        plan(mechanism=law(total_epsilon=1.0, clip=clip), client_sizes=SIZES, n_features=7)
        for clip in (0.5, None)
    )
    assert found.algorithm.mechanism.clip == 0.5
    ratio = 0.5 / free.algorithm.mechanism.clip
    assert found.deviation == pytest.approx(free.deviation * ratio, rel=1e-12)


def test_a_strong_penalty_does_not_make_a_run_diverge():
    data, loss = table(), Logistic(beta=20.0, regularizer="beta")
    result = plan(1e6, SIZES, 7, objective=loss).run(data, seed=SECRET, public_scaling=True)
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
    made = plan(
        mechanism=law(total_epsilon=5.0), client_sizes=data.client_sizes, n_features=5,
        objective=loss,
    )  # fmt: skip
    result = made.run(data, seed=SECRET, public_scaling=True)
    best = Problem(data, loss).optimum(method="newton").x
    problem = Problem(data, loss)
    start = problem.total_value(np.zeros(15))
    share = (start - problem.total_value(result.x)) / (start - problem.total_value(best))
    assert share > 0.85


@pytest.mark.parametrize("arguments, message", [
    ((None, SIZES, 3), "total_epsilon must be"),
    ((3, SIZES, 3), "mechanism must be a mechanism with a total_epsilon, got 3"),
    ((LaplaceMechanism(epsilon_per_round=1.0), SIZES, 3), "mechanism must be a mechanism with"),
    ((LaplaceMechanism(total_epsilon=1.0), SIZES, 0), "n_features must be"),
    ((LaplaceMechanism(total_epsilon=1.0), SIZES, 2.5), "n_features must be"),
    ((LaplaceMechanism(total_epsilon=1.0), [[1]], 2), "client_sizes must"),
    ((LaplaceMechanism(total_epsilon=1.0), [10, 0], 2), "client_sizes must be at least 1"),
    ((LaplaceMechanism(total_epsilon=1.0), [], 2), "client_sizes must"),
])  # fmt: skip
def test_refusals(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mechanism, sizes, columns = arguments
        plan(mechanism=mechanism, client_sizes=sizes, n_features=columns)


def test_losses_without_a_bound_are_refused_by_name():
    with pytest.raises(ValueError, match="'poisson' has no bound on a record's gradient"):
        plan(1.0, SIZES, 3, objective="poisson")
    assert plan(1.0, SIZES, 3, objective=LeastSquares(beta=0.0)).objective.name == "huber"
    assert plan(1.0, SIZES, 3, objective=Huber(beta=0.0, delta=1.0)).rounds >= 1
    with pytest.raises(ValueError, match="client_weight must be"):
        plan(1.0, SIZES, 3, client_weight="rows")


def test_classes_share_coordinates_that_whitening_gives_them():
    """Five classes by five factors, in 20 columns whose means are no zeros, with much noise."""
    rng = np.random.default_rng(0)
    factors = np.abs(rng.normal(size=(8000, 5)))
    A = factors @ rng.random((5, 20)) / 2 - 0.7 + 0.2 * rng.normal(size=(8000, 20))
    A = np.column_stack([A, np.ones(len(A))])
    labels = (3 * (factors - factors.mean(0)) + rng.gumbel(size=(8000, 5))).argmax(1).astype(float)
    sizes = np.full(40, 200)
    data = FederatedData(A, labels, sizes)
    given = {"client_sizes": sizes, "n_features": 21, "objective": Multinomial(0.0, classes=5)}
    found = plan(5.0, **given)
    assert 0.1 < found.level < 0.5 and found.settings == settings_for(2, found.level, classes=5)
    problem = Problem(data, given["objective"])
    start = problem.total_value(np.zeros(5 * 21))
    own, two = (
        start - problem.total_value(plan(5.0, **given, settings=s).run(data, seed=SECRET).x)
        for s in (found.settings, settings_for(2, found.level))
    )
    assert own > 1.15 * two > 0
