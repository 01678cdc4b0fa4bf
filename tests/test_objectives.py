"""Losses, gradients, constants and the optimum."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from problems import data_for, small_data
from scipy import sparse

from fedepm_fast import (
    FederatedData,
    Huber,
    LeastSquares,
    Logistic,
    Multinomial,
    Poisson,
    Problem,
    SquaredHinge,
)
from fedepm_fast.objectives import OBJECTIVES, _curvature, as_objective

MARGINS = np.array([0.0, 1e-300, 1e-17, 1e-8, 0.5, 3.0, 36.0, 40.0, 745.0, 1e3, 1e5])
MARGINS = np.concatenate([-MARGINS[::-1], MARGINS])


@pytest.mark.parametrize("b", [0.0, 1.0])
def test_logistic_is_exact_at_any_margin(b):
    labels = np.full_like(MARGINS, b)
    with mpmath.workdps(60):
        for t, loss, slope in zip(
            MARGINS,
            Logistic().loss(MARGINS, labels),
            Logistic().derivative(MARGINS, labels),
            strict=True,
        ):
            sign = 1 - 2 * int(b)
            s = sign * mpmath.mpf(float(t))
            assert loss == pytest.approx(float(mpmath.log1p(mpmath.exp(s))), rel=4e-16, abs=1e-320)
            assert slope == pytest.approx(float(sign / (1 + mpmath.exp(-s))), rel=1e-15, abs=1e-320)


@pytest.mark.parametrize("b", [0, 1, 2])
def test_multinomial_is_exact_at_any_margin(b):
    largest = np.abs(MARGINS[len(MARGINS) // 2 :])
    t = np.zeros((2 * len(largest), 3))
    t[:, (b + 1) % 3] = np.concatenate([largest, -largest])
    t[:, (b + 2) % 3] = -t[:, (b + 1) % 3] / 2
    labels = np.full(len(t), float(b))
    loss, slope = Multinomial().loss(t, labels), Multinomial().derivative(t, labels)
    with mpmath.workdps(60):
        for row, value, derivative in zip(t, loss, slope, strict=True):
            e = [mpmath.exp(mpmath.mpf(float(v)) - float(row[b])) for v in row]
            others = mpmath.fsum(v for k, v in enumerate(e) if k != b)
            p = [v / mpmath.fsum(e) for v in e]
            p[b] = -others / mpmath.fsum(e)
            assert value == pytest.approx(float(mpmath.log1p(others)), rel=1e-15, abs=1e-320)
            np.testing.assert_allclose(derivative, [float(v) for v in p], rtol=1e-15, atol=1e-320)


def test_multinomial_of_two_classes_is_logistic(rng):
    t, b = rng.normal(size=(50, 2)) * 5, rng.integers(0, 2, 50).astype(float)
    difference = t[:, 1] - t[:, 0]
    np.testing.assert_allclose(Multinomial().loss(t, b), Logistic().loss(difference, b), rtol=1e-14)
    np.testing.assert_allclose(
        Multinomial().derivative(t, b)[:, 1], Logistic().derivative(difference, b), rtol=1e-13
    )
    hessian = Multinomial().second_derivative(t, b)
    curvature = Logistic().second_derivative(difference, b)
    np.testing.assert_allclose(hessian[:, 0, 0], curvature, rtol=1e-13)
    np.testing.assert_allclose(hessian[:, 0, 1], -curvature, rtol=1e-13)


def test_huber_is_least_squares_for_a_large_delta(rng):
    t, b = rng.normal(size=(2, 40)) * 3
    np.testing.assert_allclose(Huber(delta=1e3).loss(t, b), LeastSquares().loss(t, b), rtol=1e-14)
    np.testing.assert_array_equal(np.abs(Huber(delta=0.5).derivative(t, b)).max(), 0.5)
    assert Huber(delta=2.0).loss(np.array([12.0]), np.array([2.0])) == 2.0 * (10 - 1)


def test_squared_hinge_by_hand():
    t, b = np.array([0.0, 1.0, 3.0, -1.0, 0.5]), np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(SquaredHinge().loss(t, b), [1, 0, 0, 4, 2.25])
    np.testing.assert_array_equal(SquaredHinge().derivative(t, b), [-2, 0, 0, -4, 3])


def test_squared_hinge_with_a_slope_by_hand():
    # Linear where the margin is short by more than half the slope.
    loss = SquaredHinge(slope=3.0)
    t, b = np.array([0.0, 1, 2, -1, -4, 0.5]), np.array([1.0, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(loss.loss(t, b), [1, 0, 0, 3.75, 12.75, 2.25])
    np.testing.assert_array_equal(loss.derivative(t, b), [-2, 0, 0, -3, -3, 3])
    np.testing.assert_array_equal(loss.second_derivative(t, b), [2, 0, 0, 0, 0, 0])
    assert loss.curvature == 2.0 and loss.slope_in(1) == loss.slope_in(2) == 3.0


def test_poisson_with_a_slope_by_hand():
    # Counts and means beyond 4 count as 4.
    loss = Poisson(slope=4.0)
    t, b = np.log([0.5, 2.0, 4.0, 8.0, 8.0]), np.array([7.0, 1, 3, 2, 9])
    want = [0.5, 2, 4, 4 + 4 * np.log(2), 4 + 4 * np.log(2)] - np.array([4.0, 1, 3, 2, 4]) * t
    np.testing.assert_allclose(loss.loss(t, b), want, rtol=1e-15)
    np.testing.assert_allclose(loss.derivative(t, b), [-3.5, 1, 1, 2, 0], atol=1e-15)
    np.testing.assert_allclose(loss.second_derivative(t[[0, 1, 3]], b[:3]), [0.5, 2, 0], rtol=1e-15)
    assert loss.curvature == 4.0 and loss.at_zero == 1.0 and Poisson(slope=0.5).at_zero is None
    assert Poisson().curvature is None and Poisson().slope is None
    with np.errstate(over="raise", invalid="raise"):  # far away, too
        np.testing.assert_array_equal(loss.derivative(np.array([-1e4, 1e4]), b[:2]), [-4, 3])


@pytest.mark.parametrize("kind", [SquaredHinge, Poisson])
def test_a_slope_is_above_zero_and_finite(kind):
    for slope in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match=r"slope must be a finite number in \(0, inf\)"):
            kind(slope=slope)
    assert "slope" not in kind().describe() and kind(slope=2.0).describe()["slope"] == 2.0


def test_totals_are_sums_over_clients(any_problem, rng):
    problem = any_problem
    w = rng.normal(size=problem.n_parameters)
    values = [problem.value(i, w) for i in range(problem.n_clients)]
    np.testing.assert_allclose(problem.values(w), values, rtol=1e-13)
    assert problem.total_value(w) == pytest.approx(sum(values), rel=1e-13)
    np.testing.assert_allclose(
        problem.total_gradient(w), problem.gradients(w).sum(axis=0), rtol=1e-12
    )
    W = rng.normal(size=(problem.n_clients, problem.n_parameters))
    np.testing.assert_allclose(
        problem.values(W), [problem.value(i, v) for i, v in enumerate(W)], rtol=1e-13
    )
    h = 1e-6
    numeric = [
        (problem.total_gradient(w + h * e) - problem.total_gradient(w - h * e)) / (2 * h)
        for e in np.eye(problem.n_parameters)
    ]
    np.testing.assert_allclose(problem.total_hessian(w), numeric, rtol=1e-6, atol=1e-7)


def test_lipschitz_constants_bound_the_gradients(any_problem, rng):
    problem = any_problem
    if not problem.has_lipschitz:
        with pytest.raises(ValueError, match="nothing bounds its second derivative"):
            problem.lipschitz()
        return
    r = problem.lipschitz()
    for _ in range(20):
        w, v = rng.normal(size=(2, problem.n_parameters))
        change = np.linalg.norm(problem.gradients(w) - problem.gradients(v), axis=1)
        assert (change <= r * np.linalg.norm(w - v) * (1 + 1e-12)).all()
    if problem.objective.name == "multinomial":
        # Attained where two classes share all the probability.
        p = np.array([0.5, 0.5, 0.0])
        assert np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] == problem.objective.curvature
    for i in range(problem.n_clients):
        a, _ = problem.data.client(i)
        hessian = problem.objective.curvature * a.T @ a / len(a)
        assert r[i] == pytest.approx(np.linalg.eigvalsh(hessian)[-1] + problem.reg[i], rel=1e-10)


def test_regularizer():
    data = small_data()
    np.testing.assert_array_equal(
        Problem(data, Logistic(0.5, "beta/d")).reg, 0.5 / data.client_sizes
    )
    np.testing.assert_array_equal(Problem(data, Logistic(0.5, "beta")).reg, np.full(6, 0.5))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_of_the_regularizer(name, rng):
    objective = as_objective(name, beta=0.3, regularizer="beta", weights=[0, 1, 2.5, 1, 4])
    data = data_for(objective)
    problem = Problem(data, objective)
    plain = Problem(data, as_objective(name, beta=0.0))
    w = rng.normal(size=problem.n_parameters)
    weights = np.tile(objective.weights, objective.fit_to(data).n_outputs)
    penalty = 0.15 * (weights * w * w).sum()
    np.testing.assert_allclose(problem.values(w), plain.values(w) + penalty, rtol=1e-13)
    np.testing.assert_allclose(
        problem.gradients(w), plain.gradients(w) + 0.3 * weights * w, rtol=1e-12
    )
    np.testing.assert_allclose(
        problem.total_hessian(w), plain.total_hessian(w) + 6 * 0.3 * np.diag(weights), rtol=1e-12
    )
    if problem.has_lipschitz:
        np.testing.assert_allclose(problem.lipschitz(), plain.lipschitz() + 0.3 * 4, rtol=1e-12)
    assert problem.describe()["weights"] == [0, 1, 2.5, 1, 4]
    # Sharing the data, other weights are packed anew.
    assert problem.rows is problem.rows and problem.rows is not plain.rows


def test_optimum_has_no_gradient(any_problem):
    problem = any_problem
    best = problem.optimum()
    assert best.gradient_norm < 1e-10
    assert best.value == pytest.approx(problem.total_value(best.x))
    if problem.objective.name == "least_squares":
        weights = np.sqrt(np.repeat(1 / problem.data.client_sizes, problem.data.client_sizes))
        a = np.vstack(
            [
                problem.data.features * weights[:, None],
                np.sqrt(problem.reg.sum()) * np.eye(problem.n_parameters),
            ]
        )
        b = np.concatenate([problem.data.labels * weights, np.zeros(problem.n_parameters)])
        np.testing.assert_allclose(best.x, np.linalg.lstsq(a, b)[0], rtol=1e-9)


def test_newton_finds_the_same_optimum_from_anywhere(any_problem, rng):
    problem = any_problem
    best = problem.optimum()
    # Anywhere, but for exponentials that would be no numbers there.
    far = np.full(problem.n_parameters, 50.0 if problem.has_lipschitz else 1.5)
    for start in (None, rng.normal(size=problem.n_parameters), far):
        found = problem.optimum(start, method="newton")
        assert found.gradient_norm < 1e-9
        np.testing.assert_allclose(found.x, best.x, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="method must be one of 'bfgs', 'newton'"):
        problem.optimum(method="adam")


def test_accuracy():
    data = small_data()
    problem = Problem(data, Logistic())
    x = np.ones(data.n_features)
    assert problem.accuracy(x) == np.mean((data.features.sum(axis=1) > 0) == data.labels)
    regression = Problem(small_data(task="regression"), LeastSquares())
    assert regression.accuracy(x) is None


def test_accuracy_of_classes(rng):
    data = small_data(task="multiclass")
    problem = Problem(data, "multinomial")
    assert problem.objective.classes == 3 and problem.n_parameters == 15
    points = rng.normal(size=(4, 15))
    points[0] = 0  # every class alike: the first one
    share = [
        np.mean((data.features @ x.reshape(3, 5).T).argmax(axis=1) == data.labels) for x in points
    ]
    assert [problem.accuracy(x) for x in points] == pytest.approx(share)
    np.testing.assert_allclose(problem.accuracies(points), share, rtol=1e-15)


def test_bad_input():
    with pytest.raises(ValueError, match="beta must be"):
        Logistic(beta=-1)
    with pytest.raises(ValueError, match="regularizer must be one of"):
        Logistic(regularizer="none")
    with pytest.raises(ValueError, match="objective must be one of 'huber'"):
        Problem(small_data(), "hinge")
    for name in ("logistic", "squared_hinge"):
        with pytest.raises(ValueError, match="labels must be 0 or 1"):
            Problem(small_data(task="regression"), name)
    with pytest.raises(ValueError, match="labels must be whole numbers from 0"):
        Problem(small_data(task="regression"), "multinomial")
    with pytest.raises(ValueError, match="labels must be below classes = 2, got 2"):
        Problem(small_data(task="multiclass"), Multinomial(classes=2))
    with pytest.raises(ValueError, match=r"delta must be .* in \(0, inf\), got 0"):
        Huber(delta=0)
    with pytest.raises(ValueError, match="classes must be an integer >= 2, got 1"):
        Multinomial(classes=1)
    with pytest.raises(ValueError, match="weights must be at least 0, got -1"):
        Logistic(weights=[1, -1])
    with pytest.raises(ValueError, match="weights must be one per feature, 5, got 2"):
        Problem(small_data(), Logistic(weights=[1, 1]))
    with pytest.raises(ValueError, match="delta is not a parameter of the objective 'logistic'"):
        as_objective("logistic", delta=1.0)


def test_products_of_more_rows_than_are_weighted_at_a_time():
    rng = np.random.default_rng(3)
    a, w = rng.normal(size=(30_001, 40)), rng.uniform(size=30_001)
    assert a.size > _curvature._BLOCK_NUMBERS
    np.testing.assert_allclose(
        _curvature.weighted_gram(a, -w), -(a.T @ (a * w[:, None])), 1e-12, atol=1e-9
    )
    found = _curvature.weighted_gram(a, w)
    np.testing.assert_allclose(found, a.T @ (a * w[:, None]), 1e-12, atol=1e-9)
    assert (found == found.T).all()


@pytest.mark.parametrize("layout", ["wide", "tall", "sparse", "zeros"])
def test_lipschitz_constants_of_many_columns(layout, rng):
    sizes = [150, 1, 139]
    rows = rng.normal(size=(290, 400 if layout == "wide" else 135)) * rng.random()
    if layout == "sparse":
        rows[rng.random(rows.shape) < 0.95] = 0.0
    if layout == "zeros":
        rows[:151] = 0.0
    labels, v = np.arange(290.0) % 2, rng.random(290) + 0.1
    given = rows if layout in ("wide", "tall") else sparse.csr_array(rows)
    for weights in (None, v):
        data = FederatedData(given, labels, sizes, sample_weight=weights)
        problem = Problem(data, Logistic(beta=0.5), "size")
        root = np.sqrt(np.ones(290) if weights is None else weights)[:, None]
        ends = np.cumsum(sizes)
        tops = [
            np.linalg.svd((root * rows)[end - d : end], compute_uv=False)[0] ** 2
            for d, end in zip(sizes, ends, strict=True)
        ]
        want = problem.client_weights * 0.25 * np.array(tops) / data.weight_sums + problem.reg
        np.testing.assert_allclose(problem.lipschitz(), want, rtol=1e-10)


@pytest.mark.parametrize(
    "ask", ["value", "gradient", "values", "gradients", "total_value", "total_gradient",
            "total_value_and_gradient", "accuracy"],
)  # fmt: skip
def test_points_may_be_lists_and_have_their_length(ask):
    problem = Problem(small_data(), Logistic())
    method = getattr(problem, ask)
    asked = (0,) if ask in ("value", "gradient") else ()
    point = [0.5, -1, 0, 2, 1]
    mine, theirs = method(*asked, point), method(*asked, np.array(point))
    if ask == "total_value_and_gradient":
        mine, theirs = np.append(*mine), np.append(*theirs)
    assert np.array_equal(mine, theirs)
    for wrong in ([0.5, -1], 1.0, np.zeros((2, 5))):
        with pytest.raises(ValueError, match=r"^[wx] must have shape \(\d*,? ?5,?\), got"):
            method(*asked, wrong)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("scale", [1e200, 1e307])
def test_an_optimum_where_sums_overflow_is_refused(name, scale):
    objective = as_objective(name)
    data = data_for(objective)
    large = FederatedData(data.features * scale, data.labels, data.client_sizes)
    for method in ("bfgs", "newton"):
        with pytest.raises(ValueError, match="data must be brought to scale: f"):
            Problem(large, objective).optimum(method=method)
    problem = Problem(data, objective)
    with pytest.raises(ValueError, match="start must be brought to scale: f"):
        problem.optimum(np.full(problem.n_parameters, 1e200))
