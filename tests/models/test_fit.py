"""From a table to a model: what is fitted, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import polars
import pytest
from hospitals import LABELS, columns_for, hospitals, rows_of

from fedepm_fast import Huber, ModelWarning, evaluate, fit
from fedepm_fast.models._holdout import held_out
from fedepm_fast.preparation import Preparation


@pytest.fixture(scope="module")
def table():
    return columns_for(hospitals(), "logistic")


def test_a_table_gives_named_coefficients_in_its_units(table):
    model = fit(table, label="outcome", client="hospital")
    assert model.feature_names == ("age", "age (missing)", "sex=m", "dose", "(intercept)")
    assert list(model.coefficients) == ["age", "age (missing)", "sex=m", "dose"]
    assert model.classes == ("alive", "died")
    assert [client["name"] for client in model.clients] == ["h1", "h2", "h3", "h4", "h5"]
    assert [client["rows"] for client in model.clients] == [
        np.sum(table["hospital"] == f"h{i}") for i in range(1, 6)
    ]
    # The score equations of the likelihood, in the columns as they are.
    seen = ~np.isnan(table["age"])
    age = np.where(seen, table["age"], np.nanmean(table["age"]))
    X = np.column_stack([age, ~seen, table["sex"] == "m", table["dose"], np.ones(600)])
    p = 1 / (1 + np.exp(-X @ model.coef[0]))
    np.testing.assert_allclose(X.T @ (p - (table["outcome"] == "died")) / 600, 0, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(table)[:, 1], p, rtol=1e-9)
    assert model.intercept == model.coef[0, -1]
    assert model.coefficients["dose"] == model.coef[0, 3]


def test_who_holds_the_rows_does_not_change_the_likelihood(table):
    models = [
        fit(table, "outcome", "hospital"),
        fit({n: c for n, c in table.items() if n != "hospital"}, "outcome"),
        fit({n: c for n, c in table.items() if n != "hospital"}, "outcome", clients=9, seed=4),
    ]
    assert [len(model.clients) for model in models] == [5, 1, 9]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef, models[0].coef, rtol=1e-7)
        np.testing.assert_allclose(model.covariance(), models[0].covariance(), rtol=1e-6)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, lambda t: t])
def test_tables_of_any_kind(table, make):
    want = fit(table, "outcome", "hospital").coef
    np.testing.assert_array_equal(fit(make(table), "outcome", "hospital").coef, want)
    rest = make({n: c for n, c in table.items() if n not in ("outcome", "hospital")})
    beside = fit(rest, list(table["outcome"]), table["hospital"])
    np.testing.assert_array_equal(beside.coef, want)


def test_arrays_have_columns_by_number(rng):
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60)
    model = fit(np.column_stack([X, y]), label=-1, clients=3)
    assert list(model.coefficients) == ["x1", "x2", "x3"] and model.label == "x4"
    want = np.linalg.lstsq(np.column_stack([X, np.ones(60)]), y, rcond=None)[0]
    np.testing.assert_allclose(model.coef[0], want, rtol=1e-8)


def test_rows_without_a_label_are_left_out_and_counted(table):
    holes = table["outcome"].astype(object)
    holes[[3, 7, 11]] = None
    model = fit({**table, "outcome": holes}, "outcome", "hospital")
    kept = np.setdiff1d(np.arange(600), [3, 7, 11])
    np.testing.assert_array_equal(model.coef, fit(rows_of(table, kept), "outcome", "hospital").coef)
    assert sum(client["left_out"] for client in model.clients) == 3
    assert "3 without a label left out" in " ".join(str(model).split())


def test_a_client_of_one_row_and_one_of_one_class(table):
    who = table["hospital"].astype(object)
    who[0] = "h9"
    who[np.flatnonzero(table["outcome"] == "died")[:20]] = "h8"
    model = fit({**table, "hospital": who}, "outcome", "hospital")
    np.testing.assert_allclose(model.coef, fit(table, "outcome", "hospital").coef, rtol=1e-7)
    assert [c["name"] for c in model.clients] == ["h1", "h2", "h3", "h4", "h5", "h8", "h9"]


def test_a_client_without_a_label_takes_no_part(table):
    holes = table["outcome"].astype(object)
    holes[table["hospital"] == "h5"] = None
    model = fit({**table, "outcome": holes}, "outcome", "hospital")
    last = model.clients[-1]
    assert last["name"] == "h5" and last["rows"] == 0
    assert last["left_out"] == np.sum(table["hospital"] == "h5")


@pytest.mark.parametrize(
    ("label", "classes", "loss"),
    [
        ([True, False] * 10, (False, True), "logistic"),
        ([3, 8] * 10, (3, 8), "logistic"),
        ([0.5, 1.5] * 10, (0.5, 1.5), "logistic"),
        (["no", "yes"] * 10, ("no", "yes"), "logistic"),
        (["b", "c", "a", "a"] * 5, ("a", "b", "c"), "multinomial"),
        (
            pandas.Categorical(["lo", "hi"] * 10, ["lo", "hi"], ordered=True),
            ("lo", "hi"),
            "logistic",
        ),
        (np.linspace(0, 1, 20), None, "least_squares"),
        (np.arange(1000, 1020) ** 2 * 1.0 + np.arange(20) / 7, None, "least_squares"),
    ],
)
def test_the_loss_follows_from_the_labels(rng, label, classes, loss):
    model = fit({"a": rng.normal(size=20), "y": label}, "y")
    assert (model.classes, model.objective.name) == (classes, loss)
    if classes is not None:
        assert [type(c) for c in model.classes] == [type(c) for c in classes]
        assert set(model.predict({"a": [0.0, 9.0]})) <= set(classes)


def test_few_whole_numbers_are_not_guessed(rng):
    table = {"a": rng.normal(size=60), "y": np.arange(60) % 4}
    with pytest.raises(ValueError, match="task must be given for the label 'y' of 4 different"):
        fit(table, "y")
    assert fit(table, "y", task="multiclass").classes == (0, 1, 2, 3)
    assert fit(table, "y", task="regression").objective.name == "least_squares"
    assert fit(table, "y", objective="poisson").objective.name == "poisson"


def test_the_positive_class_can_be_named(table):
    model, other = (fit(table, "outcome", positive=name) for name in ("died", "alive"))
    assert other.classes == ("died", "alive")
    np.testing.assert_allclose(other.coef, -model.coef, rtol=1e-7)
    assert str(other).startswith("Logistic regression of outcome = alive")
    with pytest.raises(ValueError, match="positive must be one of two classes, alive, died"):
        fit(table, "outcome", positive="dead")


def test_class_weights_are_weights_of_rows(table):
    died = table["outcome"] == "died"
    share = died.mean()
    balanced = np.where(died, 0.5 / share, 0.5 / (1 - share))
    want = fit({**table, "w": balanced}, "outcome", "hospital", sample_weight="w")
    by_name = {"died": 0.5 / share, "alive": 0.5 / (1 - share)}
    for given in ("balanced", by_name):
        model = fit(table, "outcome", "hospital", class_weight=given)
        np.testing.assert_allclose(model.coef, want.coef, rtol=1e-7)
        np.testing.assert_allclose(
            model.covariance("clustered"), want.covariance("clustered"), rtol=1e-6, atol=1e-10
        )
        assert model.inference.deviance is None
    with pytest.raises(ValueError, match="class_weight must be of the classes alive, died"):
        fit(table, "outcome", class_weight={"dead": 2.0})


def test_a_penalty_is_of_standardised_columns(rng):
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    X = rng.normal(size=(200, 3)) * [1, 10, 0.1]
    y = X @ [1, 0.1, 5] + rng.normal(size=200) > 0
    model = fit(X, y, clients=4, beta=0.05)
    scaler = StandardScaler().fit(X)
    theirs = LogisticRegression(C=1 / (200 * 0.05), tol=1e-10, max_iter=1000)
    theirs.fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.w[0, :3], theirs.coef_[0], rtol=1e-5)
    np.testing.assert_allclose(model.w[0, 3], theirs.intercept_[0], rtol=1e-4)
    np.testing.assert_allclose(model.coef[0, :3], theirs.coef_[0] / scaler.scale_, rtol=1e-5)


@pytest.mark.parametrize("loss", LABELS)
def test_every_loss(loss):
    table = columns_for(hospitals(300), loss)
    model = fit(table, LABELS[loss], "hospital", objective=loss, beta=0.01)
    assert model.training["converged"]
    assert model.objective.name == loss
    assert model.coef.shape == (3 if loss == "multinomial" else 1, 5)
    predicted = model.predict(table)
    assert predicted.shape == (300,)
    if model.classes is None:
        assert np.corrcoef(predicted, table[LABELS[loss]])[0, 1] > 0.1
        with pytest.raises(ValueError, match="gives no probabilities"):
            model.predict_proba(table)
    else:
        assert np.mean(predicted == table[LABELS[loss]]) > 0.5
    assert np.isfinite(model.score(table))


def test_an_objective_of_its_own_parameters(rng):
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + rng.standard_t(2, size=100)
    far = fit(X, y, clients=2, objective=Huber(beta=7.0, delta=1e6))
    np.testing.assert_allclose(far.coef, fit(X, y, clients=2).coef, rtol=1e-6)
    near = fit(X, y, clients=2, objective=Huber(delta=0.5))
    r = X @ near.coef[0, :2] + near.intercept - y
    np.testing.assert_allclose(
        np.clip(r, -0.5, 0.5) @ np.column_stack([X, r * 0 + 1]), 0, atol=1e-6
    )


def test_a_warm_start_ends_where_a_cold_one_does(table):
    first = fit(rows_of(table, slice(0, 400)), "outcome", "hospital")
    cold = fit(table, "outcome", "hospital")
    warm = fit(table, "outcome", "hospital", start=first)
    np.testing.assert_allclose(warm.coef, cold.coef, rtol=1e-7)
    several = columns_for(hospitals(300), "multinomial")
    begun = fit(several, "unit", "hospital")
    np.testing.assert_allclose(
        fit(several, "unit", "hospital", start=begun).coef, begun.coef, atol=1e-8
    )


def test_too_few_rounds_are_told(table):
    with pytest.warns(ModelWarning, match="did not converge in 2 rounds: the gradient's norm"):
        model = fit(table, "outcome", "hospital", max_rounds=2)
    assert model.training["rounds"] == 2 and not model.training["converged"]
    assert fit(table, "outcome", "hospital", start=model).training["converged"]


@pytest.mark.parametrize("participation", [0.2, 0.5])
def test_clients_that_sit_out_change_no_coefficient(table, participation):
    whole = fit(table, "outcome", "hospital")
    part = fit(table, "outcome", "hospital", participation=participation, seed=7)
    np.testing.assert_allclose(part.coef, whole.coef, rtol=1e-6)
    assert part.training["rounds"] > whole.training["rounds"]
    seen = []
    fit(table, "outcome", "hospital", callback=lambda info: seen.append(info.tau))
    assert seen == list(range(whole.training["rounds"] + 1))


def test_without_an_intercept(rng):
    X = rng.normal(size=(50, 2)) + 1
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=50)
    model = fit(X, y, clients=2, preparation=Preparation(intercept=False))
    assert not model.has_intercept and model.intercept == 0
    np.testing.assert_allclose(model.coef[0], np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-8)
    assert list(model.standard_errors()) == ["x1", "x2"]


def test_columns_that_separate_the_classes_are_named(table):
    tells = np.where(table["outcome"] == "died", 1.0, 0.0)
    tells[table["hospital"] != "h1"] = 0.0
    with pytest.warns(ModelWarning, match="no best coefficients: tells can tell the classes"):
        model = fit({**table, "tells": tells}, "outcome", "hospital")
    assert not model.training["converged"] and model.training["unbounded"] == ["tells"]
    assert "warning: the rows have no best coefficients" in " ".join(str(model).split())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        penalised = fit({**table, "tells": tells}, "outcome", "hospital", beta=1e-3)
    assert penalised.training["converged"]


def test_strong_columns_are_not_taken_for_separation(rng):
    X = rng.normal(size=(4000, 2))
    y = rng.random(4000) < 1 / (1 + np.exp(-12 * X[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(X, y, clients=4).coef[0, 0] > 8
        near = X[:, 0] + 1e-4 * rng.normal(size=4000)
        fit(np.column_stack([X, near]), y, clients=4)


def test_a_level_of_zero_counts_has_no_coefficient(rng):
    level = np.repeat(["a", "b", "c"], 40)
    counts = np.where(level == "c", 0, 1 + rng.poisson(2.0, 120))
    with pytest.warns(ModelWarning, match="level=c can tell counts of zero"):
        fit({"level": level, "y": counts}, "y", objective="poisson")


def test_columns_that_are_sums_of_others_have_no_coefficient(table):
    twice = {**table, "double": 2 * table["dose"]}
    model = fit(twice, "outcome", "hospital")
    assert "double" not in model.coefficients
    np.testing.assert_allclose(model.coef, fit(table, "outcome", "hospital").coef, rtol=1e-7)
    assert "left out, as sums of other columns: double" in " ".join(str(model).split())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"label": "outcom"}, "label must be a column of the table, got 'outcom'; it has age"),
        ({}, {"label": None}, "label must be given"),
        ({}, {"client": "clinic"}, "client must be a column of the table, got 'clinic'"),
        ({}, {"client": "outcome"}, "label must be another column than client"),
        ({}, {"client": "hospital", "clients": 3}, "clients and client exclude each other"),
        ({"outcome": ["died"] * 600}, {}, "label 'outcome' must have two values .* got 1: died"),
        ({"outcome": [None] * 600}, {}, "label 'outcome' must have two values .* got 0: none"),
        ({"hospital": [None] + ["h1"] * 599}, {"client": "hospital"}, "client 'hospital' must not"),
        ({"w": [-1.0] * 600}, {"sample_weight": "w"}, "sample_weight must be at least 0, got -1"),
        ({}, {"holdout": 1.0}, "holdout must be"),
        ({}, {"holdout": 1e-9}, "holdout must be large enough to hold out a row, got 1e-09 of 600"),
        ({}, {"client_weight": "rows"}, "client_weight must be one of 'size', 'equal'"),
        ({}, {"objective": "ridge"}, "objective must be one of"),
        ({}, {"objective": "logistic", "task": "regression"}, "task must be 'classification'"),
        ({}, {"class_weight": 2.0}, "class_weight must be a mapping"),
        ({}, {"beta": -1.0}, "beta must be"),
        ({}, {"participation": 0.0}, "participation must be"),
        ({}, {"preparation": "standardize"}, "preparation must be a Preparation"),
        ({}, {"start": "model.json"}, "start must be a Model"),
        ({}, {"label": ["died"] * 3}, "label must have one entry per row, 600, got 3"),
        ({}, {"seed": -1}, "seed must be"),
        (
            {"w": [0.0] * 600},
            {"client": "hospital", "sample_weight": "w"},
            "sample_weight must not be 0 for all rows of a client, got so for 'h1'",
        ),
        ({"w": [1e300] * 600}, {"sample_weight": "w"}, "sample_weight must be 0 or from 1e-77 to"),
        ({"w": [1e-300] * 600}, {"sample_weight": "w"}, "got 1e-300 in row 0"),
        ({"huge": [10**400] * 600}, {}, "column 'huge' must have numbers below 1.8e308"),
        (
            {"n": [1.0] * 599 + [-1.0]},
            {"label": "n", "objective": "poisson"},
            "label 'n' must be counts or rates, at least 0, got -1 in row 599",
        ),
    ],
)
def test_what_is_wrong_is_named(table, change, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit({**table, **change}, **{"label": "outcome", **options})


def test_levels_are_counted_over_all_clients():
    codes = [f"{site}{k:02}" for site in "abc" for k in range(80)]
    table = {"code": codes, "more": codes, "y": [0, 1] * 120, "site": [c[0] for c in codes]}
    with pytest.raises(ValueError, match="table has 2 columns that") as told:
        fit(table, "y", "site")
    assert str(told.value).count("levels as a category, got 240") == 2


def test_a_start_of_other_columns(table):
    begun = fit({name: table[name] for name in ("age", "sex", "outcome")}, "outcome")
    with pytest.warns(UserWarning, match="start has no coefficient of 'dose': 0 stands for it"):
        model = fit(table, "outcome", "hospital", start=begun)
    np.testing.assert_allclose(model.coef, fit(table, "outcome", "hospital").coef, rtol=1e-6)
    other = {"weight": table["dose"], "outcome": table["outcome"]}
    with pytest.raises(ValueError, match=r"start must be a model of columns .* of 'age', 'age \(m"):
        fit(other, "outcome", start=begun)
    several = {**table, "outcome": ["a", "b", "c"] * 200}
    with pytest.raises(ValueError, match="for each output of multinomial, 3, got 1 of logistic"):
        fit(several, "outcome", "hospital", start=begun)


def test_a_table_of_labels_alone():
    with pytest.raises(ValueError, match="table must have at least one column beside those of"):
        fit({"y": ["a", "b"]}, "y")


# Held-out rows ---------------------------------------------------------------------------------


def test_rows_held_out_are_of_every_client_and_class_in_proportion():
    rng = np.random.default_rng(0)
    clients, labels = np.repeat([0, 1, 2], [400, 100, 1]), rng.integers(0, 2, 501).astype(float)
    held = held_out(0.25, clients, labels, seed=5)
    np.testing.assert_array_equal(held, held_out(0.25, clients, labels, seed=5))
    assert (held != held_out(0.25, clients, labels, seed=6)).any()
    for i, size in ((0, 400), (1, 100)):
        mine = clients == i
        assert abs(held[mine].sum() - size / 4) <= 1
        for label in (0, 1):
            of = mine & (labels == label)
            assert abs(held[of].sum() - of.sum() / 4) <= 1
    assert not held[-1]  # its client's only row
    assert not held_out(0.0, clients, labels, 0).any()


def test_clients_without_a_row_held_out_are_named():
    rng = np.random.default_rng(0)
    x = rng.normal(size=67)
    held = ["a"] * 30 + ["b"] * 30 + [f"solo {i}" for i in range(7)]
    table = {"x": x, "y": x + rng.normal(size=67), "held": held}
    model = fit(table, "y", "held", holdout=0.3)
    assert list(model.comparison.federated.clients) == ["a", "b"]
    text = " ".join(model.summary().split())
    names = ", ".join(held[-7:-2])
    assert f"not in these tables, with so few rows that none was held out: {names} and 2 o" in text
    few = {name: column[58:62] for name, column in table.items()}
    assert "so few rows that none was held out: solo 0, solo 1" in " ".join(
        fit(few, "y", "held", holdout=0.5).summary().split()
    )
    both = {name: list(column[:60]) for name, column in table.items()}
    assert "none was held out" not in fit(both, "y", "held", holdout=0.3).summary()


def test_rows_held_out_take_no_part_in_the_fit(table):
    model = fit(table, "outcome", "hospital", holdout=0.3, seed=2)
    held = [client["held_out"] for client in model.clients]
    assert all(
        abs(h - 0.3 * (h + c["rows"])) <= 1 for h, c in zip(held, model.clients, strict=True)
    )
    assert model.comparison.federated.overall["rows"] == sum(held)
    codes = np.unique(table["hospital"], return_inverse=True)[1]
    out = held_out(0.3, codes, (table["outcome"] == "died").astype(float), 2)
    alone = fit(rows_of(table, ~out), "outcome", "hospital")
    np.testing.assert_array_equal(alone.coef, model.coef)
    np.testing.assert_array_equal(alone.prepared.transform(table), model.prepared.transform(table))


@pytest.mark.parametrize("choice", ["drop", "kinds", "levels"])
def test_choices_of_columns_that_are_not_there_are_refused(table, choice):
    values = {"drop": ["agee"], "kinds": {"agee": "numeric"}, "levels": {"agee": ["x", "y"]}}
    with pytest.raises(ValueError, match=rf"^{choice} must be a column of the table, got 'agee"):
        fit(table, "outcome", "hospital", preparation=Preparation(**{choice: values[choice]}))
    allowed = Preparation(drop=["hospital", "outcome", "dose"])  # no features anyway
    found = fit(table, "outcome", "hospital", preparation=allowed)
    assert "dose" not in found.coefficients


def test_columns_that_are_left_out_are_given_one_by_one(table):
    with pytest.raises(ValueError, match=r"got 'age,dose'; give each column on its own; it has"):
        fit(table, "outcome", "hospital", preparation=Preparation(drop=["age,dose"]))


def test_only_models_are_evaluated(table):
    for given in ("model.json", table):
        with pytest.raises(TypeError, match=r"model must be a Model, such as Model.load"):
            evaluate(given, table)


def test_a_dict_is_of_columns_not_of_tables():
    with pytest.raises(ValueError, match=r"column 'h1' .* clients' tables are one table, with a"):
        fit({"h1": np.zeros((3, 2))}, "outcome", "hospital")
