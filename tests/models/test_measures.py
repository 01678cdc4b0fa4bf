"""Measures of predictions are scikit-learn's, and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.linear_model import LinearRegression, LogisticRegression

from fedepm_fast.losses import as_objective
from fedepm_fast.models._measures import auc, calibration, measures


@pytest.fixture
def margins(rng):
    return rng.normal(size=200)


def test_two_classes(rng, margins):
    labels = (rng.random(200) < 1 / (1 + np.exp(-2 * margins - 0.5))).astype(float)
    found = measures(as_objective("logistic"), margins, labels, np.array(-1.0))
    p = 1 / (1 + np.exp(-margins))
    assert found["rows"] == 200
    assert found["positives"] == labels.mean()
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, p), rel=1e-12)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, p), rel=1e-12)
    assert found["brier"] == pytest.approx(metrics.brier_score_loss(labels, p), rel=1e-12)
    assert found["accuracy"] == metrics.accuracy_score(labels, margins > 0)
    null = np.full(200, 1 / (1 + np.e))
    assert found["log_loss_null"] == pytest.approx(metrics.log_loss(labels, null), rel=1e-12)
    assert found["brier_null"] == pytest.approx(np.mean((null - labels) ** 2), rel=1e-12)
    assert found["accuracy_null"] == np.mean(labels == 0)
    line = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(margins[:, None], labels)
    assert found["calibration_slope"] == pytest.approx(line.coef_[0, 0], rel=1e-5)
    # The intercept makes the mean probability the share of the labels.
    shifted = 1 / (1 + np.exp(-margins - found["calibration_intercept"]))
    assert shifted.mean() == pytest.approx(labels.mean(), rel=1e-10)


def test_several_classes(rng):
    margins = rng.normal(size=(300, 3))
    labels = rng.integers(0, 3, 300).astype(float)
    objective = as_objective("multinomial", classes=3)
    found = measures(objective, margins, labels, np.log([0.5, 0.3, 0.2]))
    p = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, p), rel=1e-12)
    want = metrics.roc_auc_score(labels, p, multi_class="ovr", average="macro")
    assert found["auc"] == pytest.approx(want, rel=1e-12)
    assert found["accuracy"] == metrics.accuracy_score(labels, p.argmax(axis=1))
    assert found["brier"] == pytest.approx(
        np.mean(np.sum((np.eye(3)[labels.astype(int)] - p) ** 2, 1))
    )
    assert found["accuracy_null"] == np.mean(labels == 0)
    assert "calibration_slope" not in found
    assert measures(objective, margins[labels > 0], labels[labels > 0], np.zeros(3))["auc"] is None


def test_numbers(rng, margins):
    labels = 0.5 + 0.7 * margins + rng.normal(size=200)
    found = measures(as_objective("least_squares"), margins, labels, np.array(0.4))
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(labels, margins))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(labels, margins))
    assert found["r2"] == pytest.approx(metrics.r2_score(labels, margins))
    assert found["rmse_null"] == pytest.approx(np.sqrt(np.mean((labels - 0.4) ** 2)))
    line = LinearRegression().fit(margins[:, None], labels)
    assert found["calibration_slope"] == pytest.approx(line.coef_[0])
    assert found["calibration_intercept"] == pytest.approx(np.mean(labels - margins))
    huber = measures(as_objective("huber"), margins, labels, np.array(0.4))
    assert huber["calibration_slope"] == pytest.approx(line.coef_[0])


def test_counts(rng, margins):
    labels = rng.poisson(np.exp(0.8 * margins)).astype(float)
    found = measures(as_objective("poisson"), margins, labels, np.array(0.0))
    want = metrics.mean_poisson_deviance(labels, np.exp(margins))
    assert found["deviance"] == pytest.approx(want, rel=1e-12)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(labels, np.exp(margins)))
    # The mean of what a calibrated intercept predicts is that of the labels.
    intercept = found["calibration_intercept"]
    assert np.exp(margins + intercept).mean() == pytest.approx(labels.mean(), rel=1e-9)


def test_margins_of_no_probabilities_are_not_judged_as_such(rng, margins):
    labels = (rng.random(200) < 0.5).astype(float)
    found = measures(as_objective("squared_hinge"), margins, labels, np.array(1.0))
    assert set(found) == {"rows", "positives", "accuracy", "accuracy_null", "auc"}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30),
)
def test_auc_counts_pairs(rows):
    score = np.array([s for s, _ in rows], float)
    labels = np.array([b for _, b in rows], float)
    pairs = [(a > b) + (a == b) / 2 for a in score[labels == 1] for b in score[labels == 0]]
    found = auc(score, labels)
    assert (found is None) == (not pairs)
    if pairs:
        assert found == pytest.approx(np.mean(pairs))


@pytest.fixture
def weights(rng):
    return rng.gamma(1, 1, 200)


def test_weighted_measures_of_two_classes(rng, margins, weights):
    margins = np.round(margins, 1)  # ties
    labels = (rng.random(200) < 1 / (1 + np.exp(-2 * margins))).astype(float)
    found = measures(as_objective("logistic"), margins, labels, np.array(-1.0), weights)
    p, own = 1 / (1 + np.exp(-margins)), {"sample_weight": weights}
    assert found["rows"] == 200
    assert found["positives"] == pytest.approx(weights @ labels / weights.sum(), rel=1e-12)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, p, **own), rel=1e-12)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, p, **own), rel=1e-12)
    assert found["brier"] == pytest.approx(metrics.brier_score_loss(labels, p, **own), rel=1e-12)
    want = metrics.accuracy_score(labels, margins > 0, **own)
    assert found["accuracy"] == pytest.approx(want, rel=1e-12)
    null = metrics.log_loss(labels, np.full(200, 1 / (1 + np.e)), **own)
    assert found["log_loss_null"] == pytest.approx(null, rel=1e-12)
    line = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    line.fit(margins[:, None], labels, sample_weight=weights)
    assert found["calibration_slope"] == pytest.approx(line.coef_[0, 0], rel=1e-5)
    shifted = 1 / (1 + np.exp(-margins - found["calibration_intercept"]))
    assert weights @ (shifted - labels) == pytest.approx(0, abs=1e-8)


def test_weighted_measures_of_several_classes(rng, weights):
    margins, labels = rng.normal(size=(200, 3)), rng.integers(0, 3, 200).astype(float)
    found = measures(
        as_objective("multinomial", classes=3), margins, labels, np.log([0.5, 0.3, 0.2]), weights
    )
    p = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    own = {"sample_weight": weights}
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, p, **own), rel=1e-12)
    want = metrics.roc_auc_score(labels, p, multi_class="ovr", average="macro", **own)
    assert found["auc"] == pytest.approx(want, rel=1e-12)
    want = metrics.accuracy_score(labels, p.argmax(axis=1), **own)
    assert found["accuracy"] == pytest.approx(want, rel=1e-12)
    apart = np.sum((np.eye(3)[labels.astype(int)] - p) ** 2, axis=1)
    assert found["brier"] == pytest.approx(np.average(apart, weights=weights), rel=1e-12)


def test_weighted_measures_of_numbers_and_counts(rng, margins, weights):
    labels, own = 0.5 + 0.7 * margins + rng.normal(size=200), {"sample_weight": weights}
    found = measures(as_objective("least_squares"), margins, labels, np.array(0.4), weights)
    want = metrics.root_mean_squared_error(labels, margins, **own)
    assert found["rmse"] == pytest.approx(want, rel=1e-12)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(labels, margins, **own))
    assert found["r2"] == pytest.approx(metrics.r2_score(labels, margins, **own))
    line = LinearRegression().fit(margins[:, None], labels, **own)
    assert found["calibration_slope"] == pytest.approx(line.coef_[0])
    assert found["calibration_intercept"] == pytest.approx(
        weights @ (labels - margins) / weights.sum()
    )
    counts = rng.poisson(np.exp(0.8 * margins)).astype(float)
    found = measures(as_objective("poisson"), margins, counts, np.array(0.0), weights)
    want = metrics.mean_poisson_deviance(counts, np.exp(margins), **own)
    assert found["deviance"] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("name", ["logistic", "least_squares", "squared_hinge"])
def test_whole_weights_are_as_many_rows(rng, margins, name):
    labels = (rng.random(200) < 0.4).astype(float)
    copies = rng.integers(1, 4, 200)
    objective = as_objective(name)
    found = measures(objective, margins, labels, np.array(0.3), copies.astype(float))
    want = measures(objective, np.repeat(margins, copies), np.repeat(labels, copies), np.array(0.3))
    assert found.pop("rows") == 200 and want.pop("rows") == copies.sum()
    assert found == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "margins", "labels"),
    [
        ("logistic", [-1.0, 0.3, 2.0], [1.0, 1.0, 1.0]),  # one class
        ("poisson", [-1.0, 0.3, 2.0], [0.0, 0.0, 0.0]),
    ],
)
def test_what_cannot_be_calibrated_has_no_calibration(name, margins, labels):
    found = calibration(as_objective(name), np.array(margins), np.array(labels))
    assert found == (None, None)


def test_margins_that_separate_classes_or_are_all_alike_have_no_slope():
    logistic = as_objective("logistic")
    for margins in ([-3.0, -2.0, 1.0, 1.5], [3.0, 2.0, -1.0, -1.0], [0.2] * 4):
        slope, intercept = calibration(logistic, np.array(margins), np.array([0.0, 0, 1, 1]))
        assert slope is None
        assert intercept is not None
