"""Losses, gradients, constants and the optimum."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from problems import small_data

from fedepm_fast import LeastSquares, Logistic, Problem

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


def test_gradients_match_central_differences(problem, rng):
    w, h = rng.normal(size=problem.n_parameters), 1e-6
    for i in range(problem.n_clients):
        numeric = [
            (problem.value(i, w + h * e) - problem.value(i, w - h * e)) / (2 * h)
            for e in np.eye(problem.n_parameters)
        ]
        np.testing.assert_allclose(problem.gradient(i, w), numeric, rtol=1e-6, atol=1e-8)


def test_totals_are_sums_over_clients(problem, rng):
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


def test_lipschitz_constants_bound_the_gradients(problem, rng):
    r = problem.lipschitz()
    for _ in range(20):
        w, v = rng.normal(size=(2, problem.n_parameters))
        change = np.linalg.norm(problem.gradients(w) - problem.gradients(v), axis=1)
        assert (change <= r * np.linalg.norm(w - v) * (1 + 1e-12)).all()
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


def test_optimum_has_no_gradient(problem):
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


def test_newton_finds_the_same_optimum_from_anywhere(problem, rng):
    best = problem.optimum()
    for start in (None, rng.normal(size=problem.n_parameters), np.full(problem.n_parameters, 50.0)):
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


def test_bad_input():
    with pytest.raises(ValueError, match="beta must be"):
        Logistic(beta=-1)
    with pytest.raises(ValueError, match="regularizer must be one of"):
        Logistic(regularizer="none")
    with pytest.raises(ValueError, match="objective must be one of 'logistic'"):
        Problem(small_data(), "hinge")
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        Problem(small_data(task="regression"), "logistic")
