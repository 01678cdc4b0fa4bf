"""Coefficients and standard errors are those of the pooled rows, as statsmodels has them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from hospitals import LABELS, columns_for, hospitals

from fedepm_fast import fit


def design(table):
    """The columns of the coefficients in a model's order, from a table without missing cells."""
    ones = np.ones(len(table["age"]))
    return np.column_stack([table["age"], table["sex"] == "m", table["dose"], ones])


def peer(table, loss, **options):
    y = table[LABELS[loss]]
    X = design(table)
    if loss == "logistic":
        return sm.GLM((y == "died").astype(float), X, sm.families.Binomial(), **options)
    if loss == "poisson":
        return sm.GLM(y, X, sm.families.Poisson(), **options)
    if loss == "multinomial":
        return sm.MNLogit(np.unique(y, return_inverse=True)[1], X)
    return sm.OLS(y, X)


def fitted(model, **options):
    exact = {
        "GLM": {"tol": 1e-14, "maxiter": 100},
        "MNLogit": {"disp": 0, "method": "newton", "tol": 1e-12, "maxiter": 100},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(**exact.get(type(model).__name__, {}), **options)


@pytest.fixture(scope="module")
def table():
    return hospitals(500, 7, seed=3, missing=0.0)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "least_squares", "multinomial"])
def test_as_statsmodels_of_the_pooled_rows(table, loss):
    model = fit(columns_for(table, loss), LABELS[loss], "hospital", objective=loss)
    theirs = fitted(peer(table, loss))
    told = model.statistics()
    shape = (-1, 4)
    for name, of in (("coefficient", "params"), ("standard_error", "bse"), ("p_value", "pvalues")):
        want = np.asarray(getattr(theirs, of)).reshape(4, -1).T
        np.testing.assert_allclose(told[name].reshape(shape), want, rtol=1e-6, atol=1e-15)
    ends = np.stack([told["low"], told["high"]], axis=1)
    want = np.asarray(theirs.conf_int()).reshape(-1, 2)
    np.testing.assert_allclose(ends, want, rtol=1e-6, atol=1e-12)
    known = model.inference
    np.testing.assert_allclose(known.log_likelihood, theirs.llf, rtol=1e-10)
    np.testing.assert_allclose(known.aic, theirs.aic, rtol=1e-10)
    null = theirs.llnull if loss in ("multinomial", "logistic") else None
    if null is not None:
        np.testing.assert_allclose(known.null_deviance, -2 * null, rtol=1e-6)
    if loss == "poisson":
        np.testing.assert_allclose(known.deviance, theirs.deviance, rtol=1e-10)
        np.testing.assert_allclose(known.null_deviance, theirs.null_deviance, rtol=1e-10)
    if loss == "least_squares":
        np.testing.assert_allclose(known.deviance, theirs.ssr, rtol=1e-10)
        np.testing.assert_allclose(known.null_deviance, theirs.centered_tss, rtol=1e-10)
        np.testing.assert_allclose(known.dispersion, theirs.scale, rtol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "least_squares", "multinomial"])
def test_errors_clustered_by_client_as_statsmodels(table, loss):
    model = fit(columns_for(table, loss), LABELS[loss], "hospital", objective=loss)
    groups = np.unique(table["hospital"], return_inverse=True)[1]
    options = {"cov_type": "cluster", "cov_kwds": {"groups": groups}}
    if loss != "multinomial":
        options["use_t"] = True
    theirs = fitted(peer(table, loss), **options)
    told = model.statistics("clustered")
    want = np.asarray(theirs.bse).reshape(4, -1).T.ravel()
    np.testing.assert_allclose(told["standard_error"], want, rtol=1e-6)
    if loss != "multinomial":
        np.testing.assert_allclose(told["p_value"], theirs.pvalues, rtol=1e-6)
        np.testing.assert_allclose(
            np.stack([told["low"], told["high"]], axis=1), theirs.conf_int(), rtol=1e-6
        )


@pytest.mark.parametrize("loss", ["logistic", "poisson", "least_squares", "multinomial"])
def test_robust_errors_as_statsmodels(table, loss):
    model = fit(columns_for(table, loss), LABELS[loss], "hospital", objective=loss)
    theirs = fitted(peer(table, loss), cov_type="HC0")
    d, k = 500, 4 * (2 if loss == "multinomial" else 1)
    want = np.asarray(theirs.bse).reshape(4, -1).T.ravel() * np.sqrt(d / (d - k))
    np.testing.assert_allclose(model.statistics("robust")["standard_error"], want, rtol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "least_squares"])
def test_a_weight_of_two_is_two_equal_rows_to_the_likelihood(table, loss):
    weights = np.random.default_rng(1).integers(1, 4, 500)
    columns = columns_for(table, loss)
    again = {name: np.repeat(column, weights) for name, column in columns.items()}
    options = {"label": LABELS[loss], "client": "hospital", "objective": loss}
    ours = fit({**columns, "w": weights}, sample_weight="w", **options)
    rows = fit(again, **options)
    np.testing.assert_allclose(ours.coef, rows.coef, rtol=1e-8)
    np.testing.assert_allclose(ours.covariance("wald"), rows.covariance("wald"), rtol=1e-6)
    for name in ("deviance", "null_deviance", "log_likelihood", "aic"):
        np.testing.assert_allclose(
            getattr(ours.inference, name), getattr(rows.inference, name), rtol=1e-9
        )


def test_clustered_errors_of_weighted_rows_as_statsmodels(table):
    weights = np.random.default_rng(1).integers(1, 4, 500).astype(float)
    columns = columns_for(table, "logistic")
    model = fit({**columns, "w": weights}, "outcome", "hospital", sample_weight="w")
    groups = np.unique(table["hospital"], return_inverse=True)[1]
    theirs = fitted(
        peer(table, "logistic", freq_weights=weights), cov_type="cluster",
        cov_kwds={"groups": groups},
    )  # fmt: skip
    np.testing.assert_allclose(
        model.statistics("clustered")["standard_error"], theirs.bse, rtol=1e-6
    )


def test_clients_that_weigh_alike_are_rows_that_weigh_by_the_size_of_their_client(table):
    columns = columns_for(table, "logistic")
    names, codes, sizes = np.unique(table["hospital"], return_inverse=True, return_counts=True)
    weights = (500 / (len(names) * sizes))[codes]
    equal = fit(columns, "outcome", "hospital", client_weight="equal")
    rows = fit({**columns, "w": weights}, "outcome", "hospital", sample_weight="w")
    np.testing.assert_allclose(equal.coef, rows.coef, rtol=1e-7)
    for kind in ("robust", "clustered"):
        np.testing.assert_allclose(
            equal.covariance(kind), rows.covariance(kind), rtol=1e-6, atol=1e-12
        )
    # The likelihood of the rows is not what is maximised: its Hessian alone is no covariance.
    X, p = design(table), None
    p = 1 / (1 + np.exp(-X @ equal.coef[0]))
    h = p * (1 - p)
    bread = np.linalg.inv(X.T @ (X * (weights * h)[:, None]))
    meat = X.T @ (X * (weights**2 * h)[:, None])
    np.testing.assert_allclose(equal.covariance("wald"), bread @ meat @ bread, rtol=1e-6)
    assert equal.inference.aic is None and rows.inference.aic is not None


def test_errors_of_penalised_coefficients_are_of_their_own_estimate(table):
    columns = columns_for(table, "least_squares")
    model = fit(columns, "stay", "hospital", beta=0.1)
    X = design(table)
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    Z[:, -1] = 1
    A = Z.T @ Z + 500 * 0.1 * np.diag([1, 1, 1, 0])
    w = np.linalg.solve(A, Z.T @ table["stay"])
    np.testing.assert_allclose(model.w[0], w, rtol=1e-8)
    sigma = np.sum((table["stay"] - Z @ w) ** 2) / 496
    inverse = np.linalg.inv(A)
    units = model.prepared.units
    want = sigma * units @ inverse @ Z.T @ Z @ inverse @ units.T
    np.testing.assert_allclose(model.covariance(), want, rtol=1e-6, atol=1e-12)
    assert "the penalty draws coefficients to zero" in str(model)


def test_losses_that_are_no_likelihood_have_no_errors_unless_asked_for(table):
    model = fit(columns_for(table, "huber"), "stay", "hospital", objective="huber")
    with pytest.raises(ValueError, match=r"kind must be given .* huber is no likelihood"):
        model.standard_errors()
    with pytest.raises(ValueError, match=r"kind 'wald' cannot be had: .* is no likelihood"):
        model.standard_errors("wald")
    found = model.standard_errors("robust")
    assert list(found) == ["age", "sex=m", "dose", "(intercept)"]
    X = design(table)
    r = X @ model.coef[0] - table["stay"]
    bread = np.linalg.inv(X[np.abs(r) < 1].T @ X[np.abs(r) < 1])
    meat = X.T @ (X * np.clip(r, -1, 1)[:, None] ** 2)
    want = np.sqrt(np.diag(bread @ meat @ bread) * 500 / 496)
    np.testing.assert_allclose(list(found.values()), want, rtol=1e-8)
    text = " ".join(str(model).split())
    assert "no standard errors: the loss huber is no likelihood" in text
    assert "std.err" not in text


def test_kinds_that_cannot_be_had_say_why(table):
    one = fit(columns_for(table, "logistic"), "outcome")  # the hospital is a feature then
    with pytest.raises(ValueError, match="kind 'clustered' cannot be had: there is one client"):
        one.standard_errors("clustered")
    with pytest.raises(ValueError, match="kind must be one of 'wald'"):
        one.standard_errors("HC3")
    with pytest.raises(ValueError, match=r"level must be .* in \(0, 1\), got 95"):
        one.confidence_intervals(95)
    weighted = fit(columns_for(table, "logistic"), "outcome", "hospital", class_weight="balanced")
    assert weighted.inference.default == "robust"
    assert "not Wald's, because with class_weight" in " ".join(str(weighted).split())
