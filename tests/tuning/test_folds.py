"""Folds: who is held out, and that scores are those of runs on the held-out rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import data_for, small_data
from small_tunings import ALGORITHM, small_tune

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Huber,
    Logistic,
    Multinomial,
    SFedAvg,
    SFedProx,
    make_problem,
    run,
)
from fedepm_fast.tuning._folds import NEVER, OVER, assign_folds, make_folds
from fedepm_fast.tuning._scores import mean_and_error


@st.composite
def clients_labels(draw):
    sizes = draw(st.lists(st.integers(1, 12), min_size=2, max_size=8))
    labels = draw(st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes)))
    features = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    return FederatedData(features, np.array(labels, float), np.array(sizes))


@settings(max_examples=60)
@given(clients_labels(), st.integers(2, 5), st.integers(0, 2**64 - 1))
def test_folds_hold_every_client_or_record_out_once(data, folds, seed):
    if folds <= data.n_clients:
        of_row = assign_folds(data, "clients", folds, seed)
        of_client = [set(part) for part in np.split(of_row, data.offsets[1:-1])]
        assert all(len(one) == 1 for one in of_client)
        counts = np.bincount([one.pop() for one in of_client], minlength=folds)
        assert counts.sum() == data.n_clients
        assert counts.max() - counts.min() <= 1
    try:
        of_row = assign_folds(data, "records", folds, seed)
    except ValueError as error:
        assert str(error).startswith("folds must be such that each holds records out")
        assert data.client_sizes.max() < folds
        return
    for part, labels in zip(
        np.split(of_row, data.offsets[1:-1]), np.split(data.labels, data.offsets[1:-1]), strict=True
    ):
        if len(part) == 1:
            assert part == [NEVER]
            continue
        counts = np.bincount(part, minlength=folds)
        assert counts.max() - counts.min() <= 1
        # Stratified: a class has as many records in each fold, up to two.
        for label in (0, 1):
            of_class = np.bincount(part[labels == label], minlength=folds)
            assert of_class.max() - of_class.min() <= 2
    np.testing.assert_array_equal(of_row, assign_folds(data, "records", folds, seed))


@pytest.mark.parametrize("over", OVER)
def test_folds_have_the_rows_they_should(over):
    data = small_data(m=5, largest=6, seed=3)
    of_row = assign_folds(data, over, 3, 7)
    client = np.repeat(np.arange(5), data.client_sizes)
    for k, fold in enumerate(make_folds(data, Logistic(), over, 3, 7)):
        for part, rows in ((fold.train, of_row != k), (fold.held_out.data, of_row == k)):
            np.testing.assert_array_equal(part.features, data.features[rows])
            np.testing.assert_array_equal(part.labels, data.labels[rows])
            kept, sizes = np.unique(client[rows], return_counts=True)
            np.testing.assert_array_equal(part.client_sizes, sizes)
        np.testing.assert_array_equal(fold.weights, sizes / data.client_sizes[kept])


def test_clients_are_stratified_by_their_labels():
    # Ten clients with the label 0 only, ten with 1 only: two of each in each of five folds.
    labels = np.repeat([0.0, 1.0], 30)
    data = FederatedData(np.ones((60, 1)), labels, np.full(20, 3))
    of_client = assign_folds(data, "clients", 5, 1)[::3]
    for half in (of_client[:10], of_client[10:]):
        np.testing.assert_array_equal(np.bincount(half), 2 * np.ones(5))


def test_a_subset_keeps_names_and_places():
    data = FederatedData(
        np.arange(12.0).reshape(6, 2), np.arange(6.0), [2, 1, 3], client_names=["a", "b", "c"],
        rows=[9, 8, 7, 6, 5, 4],
    )  # fmt: skip
    part = data.subset([0, 3, 5])
    assert part.client_names == ("a", "c")
    np.testing.assert_array_equal(part.client_sizes, [1, 2])
    np.testing.assert_array_equal(part.rows, [9, 6, 4])
    np.testing.assert_array_equal(part.features, data.features[[0, 3, 5]])
    for rows in ([], [1, 1], [2, 1], [6], [-1]):
        with pytest.raises(ValueError, match="rows must be increasing positions from 0 to 5"):
            data.subset(rows)


# Scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("over", OVER)
def test_scores_are_those_of_runs_on_the_held_out_rows(over):
    """By hand: every record of a client counts 1/d_i, every client alike."""
    data = small_data(m=7, largest=9, seed=1)
    result = small_tune(data=data, over=over, trials=2, seed=4, space={"beta": (1e-3, 1.0, "log")})
    accuracy = small_tune(
        data=data, over=over, trials=1, seed=4, score="accuracy", space={"beta": [1e-3]}
    )
    of_row = assign_folds(data, over, 3, 4)
    client = np.repeat(np.arange(7), data.client_sizes)
    for trial in result.trials:
        total = weights = right = 0.0
        for k, fold in enumerate(make_folds(data, Logistic(), over, 3, 4)):
            beta = trial.parameters["beta"]
            x = run(ALGORITHM, fold.train, objective=Logistic(beta=beta), seed=4, trial=k,
                    rounds=3, engine="reference").x  # fmt: skip
            rows = of_row == k
            margins = data.features[rows] @ x
            losses = np.logaddexp(0, margins) - data.labels[rows] * margins
            shares = 1 / data.client_sizes[client[rows]]
            mine = (shares * losses).sum() / shares.sum()
            assert trial.fold_scores[k] == pytest.approx(mine, rel=1e-13)
            total += (shares * losses).sum()
            right += (shares * ((margins > 0) == data.labels[rows])).sum()
            weights += shares.sum()
        assert trial.score == pytest.approx(total / weights, rel=1e-13)
        if trial.number == 0:
            assert accuracy.score == pytest.approx(right / weights, rel=1e-13)
    scored = data.n_clients if over == "clients" else (data.client_sizes > 1).sum()
    assert result.fold_weights.sum() == pytest.approx(scored)


def test_the_standard_error_of_equal_folds_is_the_usual_one():
    scores = np.array([1.0, 4.0, 2.0, 8.0])
    mean, error = mean_and_error(scores, np.full(4, 3.0))
    assert mean == scores.mean()
    assert error == pytest.approx(scores.std(ddof=1) / 2)
    mean, _ = mean_and_error(scores, [1, 0, 0, 3])
    assert mean == 6.25


def test_what_follows_from_the_data_follows_from_all_of_them():
    data = small_data(m=9)
    algorithm = FedEPM(mu0=20.0, noise="none")
    eta = algorithm.resolve(make_problem(algorithm, data)).eta
    given = {"space": {"participation": [0.5, 1.0]}, "trials": 1}
    left_open = small_tune(algorithm, data, **given)
    assert left_open.algorithm == algorithm
    told = small_tune(dataclasses.replace(algorithm, eta=eta, lam=eta / 2), data, **given)
    assert left_open.trials[0].fold_scores == told.trials[0].fold_scores


def test_the_compiled_engine_gives_the_scores_of_the_reference():
    reference, compiled = (small_tune(engine=e, trials=3) for e in ("reference", "compiled"))
    for a, b in zip(reference.trials, compiled.trials, strict=True):
        np.testing.assert_allclose(a.fold_scores, b.fold_scores, rtol=1e-9)


@pytest.mark.parametrize(
    ("objective", "algorithm"),
    [
        (Multinomial(), SFedProx(learning_rate=0.02, noise="none")),
        (Huber(), SFedAvg(learning_rate=0.02, noise="none")),
    ],
)
def test_other_algorithms_and_objectives(objective, algorithm):
    data = data_for(objective)
    result = small_tune(algorithm, data, objective=objective, space=None, over="records", trials=3)
    assert result.score <= result.default.score
    expected = {"learning_rate", "local_steps", "beta"} | (
        {"prox"} if isinstance(algorithm, SFedProx) else set()
    )
    assert set(result.parameters) == expected


@pytest.mark.parametrize(
    ("clients", "over", "folds"),
    [(2, "clients", 2), (3, "clients", 3), (6, "clients", 5), (3, "records", 5)],
)
def test_by_default_no_more_folds_than_clients(clients, over, folds):
    data = small_data(clients)
    found = small_tune(data=data, over=over, folds=None, trials=1)
    same = small_tune(data=data, over=over, folds=folds, trials=1)
    assert found.settings["folds"] == folds == len(found.default.fold_scores)
    assert found.default.fold_scores == same.default.fold_scores


def test_one_client_is_not_held_out():
    with pytest.raises(ValueError, match=r"2 > 1; over='records' holds out"):
        small_tune(data=small_data(1), folds=None)
