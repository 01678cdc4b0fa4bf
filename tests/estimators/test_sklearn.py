"""The scikit-learn estimators: scikit-learn's own checks, its solvers, and its tools."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedepm_fast import datasets
from fedepm_fast.algorithms import curvature
from fedepm_fast.losses import Huber
from fedepm_fast.sklearn import FedEPMClassifier, FedEPMRegressor

ESTIMATORS = [FedEPMClassifier(), FedEPMRegressor(), FedEPMRegressor(loss="huber")]


@parametrize_with_checks(ESTIMATORS)
def test_checks(estimator, check):
    check(estimator)


def test_checks_of_the_array_api():
    # scikit-learn passes over these unless SciPy is told of it before its import.
    code = """
from sklearn.utils.estimator_checks import estimator_checks_generator
from fedepm_fast.sklearn import FedEPMClassifier, FedEPMRegressor
for estimator in (FedEPMClassifier(), FedEPMRegressor()):
    for given, check in estimator_checks_generator(estimator):
        if "array_api" in check.func.__name__:
            check(given)
print("passed")
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "passed", done.stderr


# Against scikit-learn's solvers -----------------------------------------------------------


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:560], y[:560]


def table(name):
    """A table of a multiple of 20 rows."""
    if name == "adult":
        data = datasets.load_adult()
        X, y = np.asarray(data.features), np.asarray(data.labels)
    else:
        X, y = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    d = len(X) // 20 * 20
    return X[:d], y[:d]


def test_rows_as_they_come_converge():
    """Raw digits, dense and CSR alike; a ConvergenceWarning would be an error."""
    X, y = table("digits")
    theirs = LogisticRegression(C=1 / (1e-3 * len(X)), solver="newton-cg", tol=1e-10, max_iter=9999)
    theirs.fit(X, y)
    largest = np.abs(theirs.coef_).max()
    for given in (X, sparse.csr_array(X)):
        model = FedEPMClassifier(random_state=0).fit(given, y)
        assert model.n_iter_ <= 20
        np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5 * largest)
        np.testing.assert_allclose(model.predict_proba(given), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "C"), [("breast_cancer", 1.0), ("digits", 0.01), ("adult", 1.0), ("adult", 1e-3)]
)
def test_logistic_regression(name, C):
    X, y = table(name)
    d = len(X)
    model = FedEPMClassifier(n_clients=20, beta=1 / (C * d), random_state=0).fit(X, y)
    solver = "newton-cg" if name == "digits" else "newton-cholesky"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LogisticRegression(C=C, solver=solver, tol=1e-10, max_iter=1000).fit(X, y)
    best = log_loss(y, theirs.predict_proba(X))
    assert (model.n_clients_, model.coef_.shape) == (20, theirs.coef_.shape)
    assert log_loss(y, model.predict_proba(X)) == pytest.approx(best, rel=1e-6)
    largest = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-4 * largest)
    np.testing.assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=3e-3)
    assert (model.predict(X) == theirs.predict(X)).mean() > 0.999
    objective = model.history_["objective"]
    assert len(objective) == model.n_iter_ + 1 and model.n_iter_ <= 20
    assert objective[-1] == pytest.approx(objective.min(), rel=1e-12)
    assert model.history_["gradient_norm"][-1] < 1e-6


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge(fit_intercept):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:440] + 0.01, y[:440]
    model = FedEPMRegressor(beta=1e-4, fit_intercept=fit_intercept, n_clients=20).fit(X, y)
    theirs = Ridge(alpha=1e-4 * 440, fit_intercept=fit_intercept).fit(X, y)
    # A quadratic: the first step ends at the solution.
    assert model.n_iter_ <= 3
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-8)
    assert model.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8, abs=1e-8)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-8)


@pytest.mark.parametrize("delta", [0.5, 40.0])
def test_huber(delta):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:200, :4] * 20, y[:200]
    y[:5] += 3000
    model = FedEPMRegressor(loss="huber", delta=delta, beta=1e-3)
    model.fit(X, y)
    loss = Huber(delta=delta)

    def objective(v):
        value = loss.loss(X @ v[:4] + v[4], y).mean() + 5e-4 * v[:4] @ v[:4]
        slope = loss.derivative(X @ v[:4] + v[4], y) / 200
        return value, np.append(slope @ X + 1e-3 * v[:4], slope.sum())

    best = minimize(objective, np.append(model.coef_, model.intercept_), jac=True, tol=1e-12)
    value, gradient = objective(np.append(model.coef_, model.intercept_))
    assert value == pytest.approx(best.fun, rel=1e-10)
    assert np.abs(gradient).max() < 1e-5 * delta
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("client_weight", ["size", "equal"])
def test_how_clients_weigh(cancer, client_weight):
    X, y = cancer
    clients = np.repeat(["a", "b", "c", "d"], [10, 300, 50, 200])
    model = FedEPMClassifier(beta=1e-2, client_weight=client_weight).fit(X, y, clients=clients)
    np.testing.assert_array_equal(model.client_sizes_, [10, 300, 50, 200])
    alike = np.repeat(140 / model.client_sizes_, model.client_sizes_)
    theirs = LogisticRegression(C=1 / (1e-2 * 560), solver="newton-cholesky", tol=1e-10)
    theirs.fit(X, y, sample_weight=alike if client_weight == "equal" else None)
    largest = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5 * largest)


@pytest.mark.parametrize("participation", [0.5, 0.1])
def test_a_share_of_the_clients_finds_the_same_solution(cancer, participation):
    X, y = cancer
    options = {"n_clients": 20, "beta": 0.02, "random_state": 3}
    everyone = FedEPMClassifier(**options).fit(X, y)
    some = FedEPMClassifier(participation=participation, **options).fit(X, y)
    assert everyone.n_iter_ < some.n_iter_
    largest = np.abs(everyone.coef_).max()
    np.testing.assert_allclose(some.coef_, everyone.coef_, atol=1e-5 * largest)


# Weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sparse", [False, True])
def test_weights_of_rows(cancer, rng, is_sparse):
    X, y = cancer
    v = rng.integers(0, 4, len(y)) * 0.5
    given = sparse.csr_array(X) if is_sparse else X
    theirs = LogisticRegression(C=1 / (1e-2 * v.sum()), solver="newton-cholesky", tol=1e-10)
    theirs.fit(X, y, sample_weight=v)
    model = FedEPMClassifier(beta=1e-2, random_state=0).fit(given, y, sample_weight=v)
    assert model.client_sizes_.sum() == (v > 0).sum()
    largest = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5 * largest)
    # A row of weight 0 is none, and of a whole weight several, whoever holds them.
    often = np.repeat(np.arange(len(y)), (2 * v).astype(int))
    again = FedEPMClassifier(beta=1e-2, random_state=1).fit(given[often], y[often])
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-7 * largest)
    for loss in ("least_squares", "huber"):
        fits = [
            FedEPMRegressor(loss=loss, random_state=0).fit(X, 3.0 * X[:, 0] + y, sample_weight=v),
            FedEPMRegressor(loss=loss, random_state=1).fit(X[often], (3.0 * X[:, 0] + y)[often]),
        ]
        np.testing.assert_allclose(fits[0].predict(X), fits[1].predict(X), rtol=1e-7, atol=1e-7)
    clients = np.arange(len(y)) % 5
    held = FedEPMClassifier().fit(X, y, clients=clients, sample_weight=v)
    np.testing.assert_array_equal(held.client_sizes_, np.bincount(clients[v > 0]))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 3.0, 2: 0.5}])
def test_weights_of_classes(rng, class_weight):
    X = rng.normal(size=(300, 4))
    y = np.digitize(X[:, 0] + rng.normal(size=300), [0.8, 1.6])
    for classes in (3, 2):
        labels = np.minimum(y, classes - 1)
        if isinstance(class_weight, dict):
            class_weight = {k: class_weight[k] for k in range(classes)}
        by_class = LogisticRegression(class_weight=class_weight, tol=1e-10, C=1e6).fit(X, labels)
        model = FedEPMClassifier(class_weight=class_weight, beta=0.0).fit(X, labels)
        p, q = model.predict_proba(X), by_class.predict_proba(X)
        np.testing.assert_allclose(p, q, atol=1e-3)


def test_bad_weights():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    for model in (FedEPMClassifier(), FedEPMRegressor()):
        with pytest.raises(ValueError, match="sample_weight must be at least 0, got -1"):
            model.fit(X, y, sample_weight=[1, 1, 1, -1])
        with pytest.raises(ValueError, match="sample_weight must not be zero for every row"):
            model.fit(X, y, sample_weight=np.zeros(4))
        with pytest.raises(ValueError, match="sample_weight must have shape"):
            model.fit(X, y, sample_weight=[1.0])
        with pytest.raises(ValueError, match="client ids must have 4 entries, got 2"):
            model.fit(X, y, clients=[0, 1], sample_weight=[1, 0, 1, 1])
    with pytest.raises(ValueError, match="y must have at least two classes, got one class: 0"):
        FedEPMClassifier().fit(X, y, sample_weight=[1, 0, 1, 0])


# In parts ---------------------------------------------------------------------------------


def test_rounds_one_by_one(cancer):
    X, y = cancer
    whole = FedEPMClassifier(beta=0.1, random_state=0).fit(X, y)
    parts = FedEPMClassifier(beta=0.1, random_state=0)
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        parts.partial_fit(X, y)
    found = []
    for _ in range(100):
        parts.partial_fit(X, y, classes=[1, 0])
        assert parts.n_iter_ == 1
        found.append(parts.history_["objective"])
    found = np.array(found)
    np.testing.assert_allclose(found[1:, 0], found[:-1, 1], rtol=1e-12)
    assert (np.diff(found, axis=1) <= 0).all()
    start, best = whole.history_["objective"][[0, -1]]
    assert found[-1, 1] - best < 0.03 * (start - best)
    parts.partial_fit(X[:20], np.zeros(20, int))  # no more than one class in a part
    np.testing.assert_array_equal(parts.classes_, [0, 1])
    with pytest.raises(ValueError, match="y must be among classes, got 2"):
        parts.partial_fit(X[:2], [1, 2])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        parts.partial_fit(X, y, classes=[0, 1, 2])
    target = 3 * X[:, 0] - X[:, 1] + 5
    ridge = FedEPMRegressor(beta=1e-3, random_state=0)
    for _ in range(3):
        ridge.partial_fit(X, target)
    np.testing.assert_allclose(ridge.coef_, ridge.fit(X, target).coef_, rtol=1e-7, atol=1e-9)


# What the parameters do -------------------------------------------------------------------


@pytest.mark.parametrize("penalised", [1.0, 1e6])
def test_the_intercept_is_not_penalised(cancer, penalised):
    X, y = cancer
    model = FedEPMClassifier(beta=penalised * 1e6).fit(X, y)
    assert np.abs(model.coef_).max() < 1e-3
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-3)
    regression = FedEPMRegressor(beta=penalised * 1e9).fit(X, 1e4 + y)
    assert regression.predict(X) == pytest.approx(1e4 + y.mean(), abs=1e-3)


@pytest.mark.parametrize("coordinates", ["secant", "whitened", "columns", "given"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_solution_is_the_same_in_all_coordinates(rng, coordinates, fit_intercept):
    X = rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6)) + 1
    y = (X @ rng.normal(size=6) + rng.logistic(size=120) > 0).astype(int) + rng.integers(0, 2, 120)
    options = {"beta": 0.05, "fit_intercept": fit_intercept, "random_state": 0, "tol": 1e-8}
    want = FedEPMClassifier(**options).fit(X, y)
    for rows in (X, sparse.csr_array(X)):
        got = FedEPMClassifier(**options, coordinates=coordinates, max_rounds=20_000).fit(rows, y)
        np.testing.assert_allclose(got.coef_, want.coef_, atol=1e-5)
        np.testing.assert_allclose(got.intercept_, want.intercept_, atol=1e-5)
        np.testing.assert_allclose(got.predict_proba(rows), want.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_more_parameters_than_hessians_are_sent_for(rng, is_sparse, monkeypatch):
    monkeypatch.setattr(curvature, "_PARAMETERS", 8)
    X = rng.normal(size=(40, 12)) * (rng.random((40, 12)) < 0.5) * 10.0 ** rng.integers(-2, 3, 12)
    y = X @ (rng.normal(size=12) / X.std(axis=0)) + 2 + rng.normal(size=40)
    model = FedEPMRegressor(beta=1e-2, n_clients=8, tol=1e-8)
    model.fit(sparse.csr_array(X) if is_sparse else X, y)
    theirs = Ridge(alpha=0.4).fit(X, y)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), theirs.coef_ * X.std(axis=0), atol=1e-5)


def test_columns_of_any_scale(rng):
    scales = np.array([1e-6, 1.0, 1e9, 1e15])
    X = rng.normal(size=(100, 4)) * scales
    y = X @ (np.array([0.0, 1.0, 2.0, 3.0]) / scales) + 5
    model = FedEPMRegressor(beta=1e-9, n_clients=4, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_ * scales, [0, 1, 2, 3], atol=1e-3)
    assert model.intercept_ == pytest.approx(5, abs=1e-5)
    with pytest.raises(ValueError, match="X must have entries whose squares are finite"):
        model.fit(X * 1e150, y)


def test_warm_start(cancer):
    X, y = cancer
    for model, target in (
        (FedEPMClassifier(beta=1e-2), y),
        (FedEPMRegressor(loss="huber"), y * 5.0),
    ):
        model.set_params(warm_start=True, random_state=0).fit(X, target)
        coef, cold = model.coef_, model.n_iter_
        assert model.fit(X, target).n_iter_ < cold / 2
        np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-9)
        assert model.set_params(beta=1.1e-2).fit(X, target).n_iter_ <= cold
        # Of another shape: from zero.
        assert model.fit(X[:, :4], target).coef_.shape[-1] == 4


def test_too_few_rounds_are_said(cancer):
    X, y = cancer
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 rounds: the norm of the"):
        model = FedEPMClassifier(max_rounds=2).fit(X, y)
    assert model.n_iter_ == 2 and len(model.history_["elapsed"]) == 3


def test_parameters_of_earlier_versions(cancer):
    X, y = cancer
    want = FedEPMClassifier(random_state=0).fit(X, y)
    with pytest.warns(FutureWarning, match="local_steps, lam will go: eta is the curvature"):
        same = FedEPMClassifier(random_state=0, local_steps=4, lam=1e-6).fit(X, y)
    np.testing.assert_array_equal(same.coef_, want.coef_)
    for old, new in {"directions": "whitened", "columns": "columns", "none": "given"}.items():
        options = {"random_state": 0, "max_rounds": 3}
        with pytest.warns(ConvergenceWarning):
            want = FedEPMClassifier(coordinates=new, **options).fit(X, y)
            with pytest.warns(FutureWarning, match="preconditioner will go"):
                got = FedEPMClassifier(preconditioner=old, **options).fit(X, y)
        np.testing.assert_array_equal(got.coef_, want.coef_)
    with pytest.raises(ValueError, match="noise must be 'none', got 'laplace'"):
        FedEPMClassifier(noise="laplace").fit(X, y)


def test_random_state(cancer):
    X, y = cancer
    fits = [FedEPMClassifier(random_state=s, tol=1e-2).fit(X, y).coef_ for s in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).any()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_clients": 0}, ValueError, "n_clients must be an integer >= 1, got 0"),
        ({"beta": -1.0}, ValueError, "beta must be"),
        ({"tol": 0.0}, ValueError, "tol must be"),
        ({"max_rounds": 1.5}, TypeError, "max_rounds must be an integer"),
        ({"noise": "gaussian"}, ValueError, "noise must be 'none', got 'gaussian'"),
        ({"coordinates": "pca"}, ValueError, "coordinates must be one of 'auto'"),
        ({"client_weight": "rows"}, ValueError, "client_weight must be one of 'equal', 'size'"),
        ({"participation": 0.0}, ValueError, "participation must be"),
        ({"loss": "quantile"}, ValueError, "loss must be one of 'least_squares', 'huber'"),
        ({"loss": "huber", "delta": 0.0}, ValueError, "delta must be"),
    ],
)
def test_bad_parameters(change, error, message):
    model = FedEPMRegressor(**change)
    with pytest.raises(error, match=message):
        model.fit(np.eye(4), np.arange(4.0))


def test_bad_data():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="y must have at least two classes, got one class"):
        FedEPMClassifier().fit(X, np.zeros(4))
    with pytest.raises(ValueError, match="client ids must have 4 entries, got 3"):
        FedEPMClassifier().fit(X, y, clients=[0, 1, 2])
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="preconditioner must be one"):
        FedEPMClassifier(preconditioner="pca").fit(X, y)


@pytest.mark.parametrize("loss", ["least_squares", "huber"])
def test_targets_whose_squares_are_no_numbers(rng, loss):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    with pytest.raises(ValueError, match=r"y must be brought to scale: .* up to .*e\+200 is none"):
        FedEPMRegressor(loss=loss).fit(X, 1e200 * y)


def test_columns_of_a_frame_are_named():
    pandas = pytest.importorskip("pandas")
    y = np.arange(20) % 2
    good = pandas.DataFrame({"age": np.arange(20.0), "dose": np.arange(20) % 3})
    text = good.assign(dose=["low", "high"] * 10)
    gaps = good.assign(dose=[1.0, np.nan] * 10)
    models = FedEPMClassifier(beta=0.1), FedEPMRegressor(beta=0.1)
    for model in models:
        for frame in (text, text.astype("category")):
            with pytest.raises(
                ValueError, match="column 'dose', must be numbers, got 'low' in row 0"
            ):
                model.fit(frame, y)
        with pytest.raises(
            ValueError, match=r"X must be finite, got nan in row 1 .* column 'dose'"
        ):
            model.fit(gaps, y)
        model.fit(good, y)
        with pytest.raises(ValueError, match="X, column 'dose', must be numbers, got 'low' in row"):
            model.predict(text)
        with pytest.raises(ValueError, match=r"^The feature names should match"):
            model.predict(text.rename(columns={"age": "years"}))
    for labels in (["7", "few"] * 10, np.array(["few"] * 20, dtype=object)):
        with pytest.raises(ValueError, match=r"y must be numbers, got '(7|few)' in row 0"):
            models[1].fit(good, labels)
    models[1].fit(good, np.array(["7", "8"] * 10))  # numbers, if written


@pytest.mark.parametrize("cls", [FedEPMClassifier, FedEPMRegressor])
def test_clients_must_not_exceed_rows(cls):
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 2
    with pytest.raises(ValueError, match="n_clients must not exceed the number of rows: 7 > 6"):
        cls(n_clients=7).fit(X, y)
    assert cls(n_clients=6, beta=0.1).fit(X, y).n_clients_ == 6
    assert cls(n_clients=7, beta=0.1).fit(X, y, clients=y).n_clients_ == 2  # given otherwise
    assert cls(beta=0.1).fit(X, y).n_clients_ == 6
    X, y = np.tile(X, (2, 1)), np.tile(y, 2)
    one, other = (cls(n_clients=n, beta=0.1, random_state=3).fit(X, y) for n in (None, 10))
    assert one.n_clients_ == 10
    np.testing.assert_array_equal(one.coef_, other.coef_)


# scikit-learn's tools ---------------------------------------------------------------------


def test_strings_and_feature_names():
    pandas = pytest.importorskip("pandas")
    X, y = load_digits(return_X_y=True, as_frame=True)
    X, y = X[:300], y[:300].map("digit {}".format)
    model = FedEPMClassifier(beta=0.01, random_state=0).fit(X, y, clients=y)
    assert isinstance(X, pandas.DataFrame)
    assert list(model.feature_names_in_) == list(X.columns) and model.n_features_in_ == 64
    assert model.n_clients_ == 10 and model.classes_[3] == "digit 3"
    assert (model.predict(X) == y).mean() > 0.97
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p, rtol=1e-12)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X.to_numpy())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_far_rows_have_exact_log_probabilities():
    X, y = np.array([[-1.0], [1.0], [-2.0], [2.0]]), [0, 1, 0, 1]
    model = FedEPMClassifier(n_clients=2).fit(X, y)
    model.coef_, model.intercept_ = np.array([[2.0]]), np.zeros(1)
    np.testing.assert_allclose(
        model.predict_log_proba([[1e3], [-1e3]]), [[-2e3, 0], [0, -2e3]], rtol=1e-15
    )
    np.testing.assert_array_equal(model.predict_proba([[1e3], [-1e3]]), [[0, 1], [1, 0]])


def test_pipelines_search_and_routing(cancer):
    X, y = cancer
    clients = np.arange(len(y)) % 7
    with sklearn.config_context(enable_metadata_routing=True):
        model = FedEPMClassifier(random_state=0).set_fit_request(clients=True)
        pipeline = make_pipeline(StandardScaler(), model)
        assert pipeline.fit(X, y, clients=clients)[-1].n_clients_ == 7
        scores = cross_val_score(pipeline, X, y, cv=3, params={"clients": clients})
        assert scores.min() > 0.93
        search = GridSearchCV(
            pipeline, {"fedepmclassifier__beta": [1e-3, 10.0]}, cv=3, scoring="neg_log_loss"
        )
        search.fit(X, y, clients=clients)
        assert search.best_params_ == {"fedepmclassifier__beta": 1e-3}
        assert search.best_estimator_[-1].n_clients_ == 7


def test_processes_and_memory_maps(cancer, tmp_path):
    X, y = cancer
    path = tmp_path / "X.joblib"
    joblib.dump(X, path)
    mapped = joblib.load(path, mmap_mode="r")
    assert isinstance(mapped, np.memmap) and not mapped.flags.writeable
    model = FedEPMClassifier(random_state=0, beta=0.1)
    want = cross_val_score(model, X, y, cv=3)
    np.testing.assert_array_equal(cross_val_score(model, mapped, y, cv=3, n_jobs=2), want)
