"""Estimators with a total epsilon."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from fedepm_fast.models import ModelWarning, fit
from fedepm_fast.preparation import Preparation
from fedepm_fast.sklearn import FedEPMClassifier, FedEPMRegressor

D = 8000
BOUNDS = ([18, 40], [100, 160])


def rows(seed=0, classes=2):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(59, 15, D).clip(18, 100), rng.normal(100, 25, D)])
    v = (X - [59, 100]) / [15, 25]
    scores = v @ rng.normal(size=(2, classes)) * 1.5 + rng.gumbel(size=(D, classes))
    return X, np.array(["no", "some", "yes"])[scores.argmax(axis=1) * 2 // (classes - 1)]


X, Y = rows()


def private(**changed):
    given = {"n_clients": 8, "random_state": 0, "total_epsilon": 3.0, "bounds": BOUNDS}
    return FedEPMClassifier(**{**given, "classes": ["yes", "no"], "beta": 0.0, **changed})


def test_a_private_classifier():
    estimator = private().fit(X, Y)
    plain = FedEPMClassifier(beta=0.0, random_state=0).fit(X, Y)
    np.testing.assert_allclose(estimator.coef_, plain.coef_, rtol=0.2)
    assert estimator.score(X, Y) > plain.score(X, Y) - 0.01
    assert estimator.privacy_["guarantee"].startswith("each client: epsilon <= 3 at delta 1e-06")
    assert estimator.privacy_["client_sizes"] == [1000] * 8 == estimator.client_sizes_.tolist()
    assert estimator.plan_.rounds == estimator.n_iter_ and estimator.n_clients_ == 8
    assert estimator.classes_.tolist() == ["no", "yes"] and not hasattr(estimator, "history_")
    # The same model by its names, and by its coefficients.
    model = estimator.model_
    assert model.classes == ("no", "yes") and model.feature_names[:2] == ("x1", "x2")
    np.testing.assert_array_equal(model.decision_function(X), estimator.decision_function(X))
    inside = X.clip(*BOUNDS)  # as all entries are taken
    there = inside @ estimator.coef_[0] + estimator.intercept_[0]
    np.testing.assert_allclose(estimator.decision_function(X), there, atol=1e-12)
    np.testing.assert_allclose(estimator.decision_function(sparse.csr_array(X)), there, atol=1e-12)
    assert "guarantee" not in str(plain.model_) and "epsilon <= 3" in str(model)
    # The noise is drawn anew, whatever random_state.
    assert (estimator.coef_ != clone(estimator).fit(X, Y).coef_).all()


def test_it_is_what_fit_gives_up_to_the_noise():
    public = Preparation.public({"x1": {"bounds": (18, 100)}, "x2": {"bounds": (40, 160)}})
    model = fit(X, Y, clients=8, preparation=public, total_epsilon=50.0, beta=0.0)
    estimator = private(total_epsilon=50.0).fit(X, Y)
    noise = [model.training["privacy"]["noise"][name] for name in ("x1", "x2")]
    assert estimator.plan_.rise * 1.01 > model.training["privacy"]["expected_rise"]
    for name, there, here, sd in zip(
        ("x1", "x2"), (model.coefficients["x1"], model.coefficients["x2"]), estimator.coef_[0],
        noise, strict=True,
    ):  # fmt: skip
        assert abs(there - here) < 8 * sd + 0.02 * abs(there), name


def test_several_classes_and_a_pure_guarantee():
    X, y = rows(3, classes=3)
    estimator = private(classes=["no", "some", "yes"], privacy_delta=0, total_epsilon=5.0)
    estimator.fit(X, y, clients=np.arange(D) % 4)
    assert estimator.privacy_["guarantee"].startswith("each client: epsilon <= 5 (pure)")
    assert estimator.coef_.shape == (3, 2) and estimator.predict_proba(X).shape == (D, 3)
    assert estimator.score(X, y) > np.unique(y, return_counts=True)[1].max() / D + 0.1


def test_columns_that_were_standardised_by_public_numbers():
    V = (X - [59, 100]) / [20.5, 30]
    estimator = private(bounds=None, mean_sd=(0, 1)).fit(V, Y)
    plain = FedEPMClassifier(beta=0.0, random_state=0).fit(V, Y)
    np.testing.assert_allclose(estimator.coef_, plain.coef_, rtol=0.2)
    without = private(bounds=None, mean_sd=(0, 1), fit_intercept=False).fit(V, Y)
    assert without.intercept_.tolist() == [0.0]


def test_a_penalty_is_of_coefficients_in_the_units_of_X():
    scale = np.array([1e-3, 10.0])
    estimator = private(beta=1.0, total_epsilon=20.0).fit(X, Y)
    there = private(
        beta=1.0, total_epsilon=20.0, bounds=(BOUNDS[0] * scale, BOUNDS[1] * scale)
    ).fit(X * scale, Y)  # fmt: skip
    # As good as none at unit scale; in thousands it draws the first coefficient to zero.
    assert abs(there.coef_[0, 0] * scale[0]) < 0.1 * abs(estimator.coef_[0, 0])
    assert "penalty beta 1 on raw columns" in " ".join(str(there.model_).split())


def test_a_private_regression():
    rng = np.random.default_rng(1)
    y = 3 + 0.5 * (X[:, 0] - 59) - 0.2 * (X[:, 1] - 100) + rng.normal(0, 2, D)
    estimator = FedEPMRegressor(
        loss="huber", delta=6.0, beta=0.0, n_clients=4, total_epsilon=5.0, bounds=BOUNDS,
        label_bounds=(-30, 36),
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(estimator.coef_, [0.5, -0.2], rtol=0.2)
    assert estimator.score(X, y) > 0.9 and isinstance(estimator.intercept_, float)
    assert estimator.privacy_["epsilon"] == 5.0


def test_what_is_left_of_another_fit():
    estimator = FedEPMClassifier(random_state=0).fit(X, Y)
    assert "objective" in estimator.history_
    estimator.set_params(total_epsilon=3.0, bounds=BOUNDS, classes=["no", "yes"]).fit(X, Y)
    assert not hasattr(estimator, "history_") and hasattr(estimator, "privacy_")
    estimator.set_params(total_epsilon=None, bounds=None, classes=None).fit(X, Y)
    assert hasattr(estimator, "history_") and not hasattr(estimator, "privacy_")
    assert "privacy" not in estimator.model_.training


def test_noise_larger_than_the_signal_is_said():
    with pytest.warns(ModelWarning, match="the noise is larger than the signal") as told:
        private(total_epsilon=0.01).fit(X[:200], Y[:200])
    assert told[0].filename == __file__


@pytest.mark.parametrize("changed, given, error, message", [
    ({"bounds": None}, {}, ValueError, "exactly one of bounds and mean_sd must be given"),
    ({"mean_sd": (0, 1)}, {}, ValueError, "exactly one of bounds and mean_sd must be given"),
    ({"bounds": 3}, {}, TypeError, "bounds must be two numbers"),
    ({"bounds": ([0, 0, 0], 1)}, {}, ValueError, r"bounds must have shape \(2,\)"),
    ({"bounds": (5, 5)}, {}, ValueError, r"columns\['x1'\]: bounds must be"),
    ({"bounds": None, "mean_sd": (0, 0)}, {}, ValueError, r"columns\['x1'\]: sd must be"),
    ({"classes": None}, {}, ValueError, "classes must be given with total_epsilon"),
    ({"classes": ["no"]}, {}, ValueError, "classes must be at least two"),
    ({"classes": ["no", "maybe"]}, {}, ValueError, "y must be among classes, got 'yes'"),
    ({"total_epsilon": 0.0}, {}, ValueError, "total_epsilon must be"),
    ({"privacy_delta": 1.0}, {}, ValueError, "delta must be"),
    ({"warm_start": True}, {}, ValueError, "warm_start must not be given with total_epsilon"),
    ({"class_weight": "balanced"}, {}, ValueError, "class_weight must not be given"),
    ({}, {"sample_weight": np.ones(D)}, ValueError, "sample_weight must not be given"),
    ({"total_epsilon": None}, {}, ValueError, "bounds needs total_epsilon"),
])  # fmt: skip
def test_refusals(changed, given, error, message):
    with pytest.raises(error, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        private(**changed).fit(X, Y, **given)


def test_other_refusals():
    with pytest.raises(TypeError, match="X must be dense with total_epsilon"):
        private().fit(sparse.csr_array(X), Y)
    with pytest.raises(ValueError, match="total_epsilon must be None for partial_fit"):
        private().partial_fit(X, Y)
    with pytest.raises(ValueError, match="label_bounds must be given"):
        FedEPMRegressor(loss="huber", total_epsilon=1.0, bounds=BOUNDS).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="label_bounds needs total_epsilon"):
        FedEPMRegressor(label_bounds=(0, 1)).fit(X, X[:, 0])
