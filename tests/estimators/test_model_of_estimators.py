"""What an estimator was fitted to, as a `Model`: the same numbers by their names."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError

from fedepm_fast import Model, evaluate, fit
from fedepm_fast.sklearn import FedEPMClassifier, FedEPMRegressor

COLUMNS = ["mean radius", "mean texture", "mean smoothness"]


@pytest.fixture(scope="module")
def cancer():
    """Three columns as a frame, labels and hospitals."""
    found = load_breast_cancer(as_frame=True)
    return found.data[COLUMNS], found.target, np.arange(len(found.target)) % 4


def test_it_is_the_model_that_fit_gives(cancer):
    X, y, hospital = cancer
    estimator = FedEPMClassifier(beta=0, random_state=0).fit(X, y, clients=hospital)
    found = estimator.model_
    want = fit({**X, "target": y, "hospital": hospital}, "target", "hospital")
    assert found.feature_names == (*COLUMNS, "(intercept)") and found.label == "target"
    np.testing.assert_allclose(found.coef, want.coef, rtol=1e-6)
    np.testing.assert_allclose(found.coef[0, :-1], estimator.coef_[0], rtol=1e-12)
    assert found.intercept == pytest.approx(estimator.intercept_[0], rel=1e-12)
    for kind in ("wald", "robust", "clustered"):
        np.testing.assert_allclose(found.covariance(kind), want.covariance(kind), rtol=1e-5)
    assert found.inference.aic == pytest.approx(want.inference.aic, rel=1e-9)
    assert found.null == pytest.approx(want.null, rel=1e-12)
    told = [(each["name"], each["rows"]) for each in found.clients]
    assert told == [(each["name"], each["rows"]) for each in want.clients]
    measures = evaluate(found, X, label=y).overall
    assert measures == pytest.approx(evaluate(want, X, label=y).overall, rel=1e-5, abs=1e-6)


def test_predictions_and_classes_are_those_of_the_estimator(cancer, tmp_path):
    X, y, _ = cancer
    words = np.where(y == 1, "benign", "malignant")
    estimator = FedEPMClassifier(n_clients=3, random_state=0).fit(X, words)
    estimator.model_.save(tmp_path / "model.json")
    for found in (estimator.model_, Model.load(tmp_path / "model.json")):
        assert found.classes == ("benign", "malignant") and found.label == "y"
        assert (found.predict(X) == estimator.predict(X)).all()
        np.testing.assert_allclose(found.predict_proba(X), estimator.predict_proba(X), rtol=1e-9)
        assert found.score(X, label=words) == pytest.approx(estimator.score(X, words), rel=1e-12)
    assert pickle.loads(pickle.dumps(estimator)).model_.coef.tolist() == found.coef.tolist()
    assert "penalty beta 0.001 on raw columns" in str(found)
    assert "sent by a client" not in str(found)


def test_several_classes_and_columns_without_names():
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([X, np.full(len(X), 7.0)])
    estimator = FedEPMClassifier(n_clients=5, random_state=0).fit(X, y)
    found = estimator.model_
    assert found.feature_names == ("x1", "x2", "x3", "x4", "(intercept)")
    assert found.prepared.dropped == (("x5", "constant, 7 in every row"),)
    assert found.classes == (0, 1, 2)
    np.testing.assert_allclose(found.predict_proba(X), estimator.predict_proba(X), rtol=1e-9)
    against = estimator.coef_[1:, :4] - estimator.coef_[0, :4]
    np.testing.assert_allclose(found.told[:, :-1], against, rtol=1e-9)
    again = Model.from_dict(json.loads(json.dumps(found.to_dict())))
    np.testing.assert_array_equal(again.coef, found.coef)
    np.testing.assert_array_equal(again.covariance(), found.covariance())


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_regression(fit_intercept):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    hospital = np.arange(len(y)) % 3
    estimator = FedEPMRegressor(beta=0, fit_intercept=fit_intercept).fit(X, y, clients=hospital)
    found = estimator.model_
    np.testing.assert_allclose(found.predict(X), estimator.predict(X), rtol=1e-9)
    assert found.score(X, label=y) == pytest.approx(estimator.score(X, y), rel=1e-12)
    columns = np.column_stack([X, np.ones(len(y))]) if fit_intercept else np.asarray(X)
    r = y - estimator.predict(X)
    variance = r @ r / (len(y) - columns.shape[1])
    want = variance * np.linalg.inv(columns.T @ columns)
    np.testing.assert_allclose(found.covariance(), want, rtol=1e-6, atol=1e-6 * want.max())
    assert found.has_intercept == fit_intercept
    assert found.label == "target" and found.objective.name == "least_squares"


@pytest.mark.parametrize("value", [1.0, 0.1, -7.3e5])
def test_a_constant_column_of_many_rows_has_no_coefficient(value):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200_000), np.full(200_000, value)])
    found = FedEPMRegressor(beta=0.0, random_state=0).fit(X, 3 * X[:, 0] + 2)
    assert found.coef_[1] == 0
    np.testing.assert_allclose([found.coef_[0], found.intercept_], [3, 2], rtol=1e-12)
    assert found.model_.prepared.dropped == (("x2", f"constant, {value:.6g} in every row"),)


def test_huber_regression_is_in_the_units_of_y():
    X, y = load_diabetes(return_X_y=True)
    estimator = FedEPMRegressor(loss="huber", delta=50.0, beta=0, n_clients=4).fit(X, y)
    table = {f"x{j + 1}": column for j, column in enumerate(X.T)}
    want = fit({**table, "y": y}, "y", objective=estimator.model_.objective)
    assert estimator.model_.objective.delta == 50.0
    np.testing.assert_allclose(estimator.model_.coef, want.coef, rtol=1e-5)
    np.testing.assert_allclose(
        estimator.model_.covariance("robust"), want.covariance("robust"), rtol=1e-4,
        atol=1e-6 * want.covariance("robust").max(),
    )  # fmt: skip
    np.testing.assert_allclose(estimator.model_.predict(X), estimator.predict(X), rtol=1e-9)


def test_sparse_rows_have_the_errors_of_dense_ones(cancer):
    X, y, _ = cancer
    dense, thin = (
        FedEPMClassifier(random_state=0).fit(held, y).model_
        for held in (X.to_numpy(), sparse.csr_array(X.to_numpy()))
    )
    np.testing.assert_allclose(thin.coef, dense.coef, rtol=1e-5)
    for kind in ("wald", "robust", "clustered"):
        np.testing.assert_allclose(thin.covariance(kind), dense.covariance(kind), rtol=1e-4)
    assert thin.prepared.columns[0].deviation == pytest.approx(X["mean radius"].std(ddof=0))


def test_wide_rows_have_a_model_without_errors(rng):
    X = sparse.random_array((60, 3000), density=0.01, rng=rng).tocsr()
    y = np.arange(60) % 2
    estimator = FedEPMClassifier(beta=0.1, n_clients=3, random_state=0).fit(X, y)
    found = Model.from_dict(estimator.model_.to_dict())
    p = estimator.predict_proba(X)
    np.testing.assert_allclose(found.predict_proba(X.toarray()), p, rtol=1e-9)
    with pytest.raises(ValueError, match="up to 500 parameters"):
        found.standard_errors()


def test_weights_of_rows_and_classes(cancer):
    X, y, hospital = cancer
    weights = 1.0 + np.arange(len(y)) % 3
    weights[:9] = 0
    options = {"clients": hospital, "sample_weight": weights}
    table = {**X, "y": y, "h": hospital, "w": weights}
    found = FedEPMClassifier(beta=0).fit(X, y, **options).model_
    want = fit(table, "y", "h", sample_weight="w")
    np.testing.assert_allclose(found.covariance(), want.covariance(), rtol=1e-5)
    assert sum(each["rows"] for each in found.clients) == len(y) - 9
    found = FedEPMClassifier(beta=0, class_weight={0: 2.0, 1: 1.0}).fit(X, y, **options).model_
    want = fit(table, "y", "h", sample_weight="w", class_weight={0: 2.0, 1: 1.0})
    np.testing.assert_allclose(found.coef, want.coef, rtol=1e-5)
    np.testing.assert_allclose(found.covariance("robust"), want.covariance("robust"), rtol=1e-5)
    with pytest.raises(ValueError, match="with class_weight it is no likelihood"):
        found.covariance("wald")
    json.dumps(found.to_dict())


def test_rows_in_parts_have_a_model_without_errors(cancer):
    X, y, _ = cancer
    estimator = FedEPMClassifier(random_state=0, n_clients=2)
    for rows in np.array_split(np.arange(len(y)), 3):
        estimator.partial_fit(X.iloc[rows], y.iloc[rows], classes=[0, 1])
    found = estimator.model_
    np.testing.assert_allclose(found.predict_proba(X), estimator.predict_proba(X), rtol=1e-9)
    assert sum(each["rows"] for each in found.clients) == len(y)
    assert found.null == pytest.approx(np.log(y.mean() / (1 - y.mean())))
    assert not found.training["converged"] and "no standard errors" in str(found)
    Model.from_dict(found.to_dict())


def test_what_there_is_no_model_of():
    with pytest.raises(NotFittedError):
        _ = FedEPMClassifier().model_
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    separated = FedEPMClassifier(beta=0, n_clients=2).fit(X, [0, 0, 1, 1])
    assert separated.model_.training["unbounded"] == ["x1"]
    assert "no best coefficients" in separated.model_.notes[0]
    far = FedEPMRegressor(n_clients=2).fit(np.arange(8.0)[:, None], 1e148 * np.arange(8.0) ** 2)
    with pytest.raises(ValueError, match="squares of the labels are no numbers"):
        far.model_.standard_errors()
    json.dumps(far.model_.to_dict(), allow_nan=False)
