"""A model predicts, is kept as JSON that NumPy alone can read, and says what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from hospitals import LABELS, columns_for, hospitals, rows_of
from pseudo_huber import PseudoHuber

from fedepm_fast import FedEPM, Model, ScalarLoss, evaluate, fit, run, synthetic
from fedepm_fast.losses import OBJECTIVES
from fedepm_fast.preparation import Preparation, PreparationWarning

#: Predictions of a model file with NumPy alone, as the documentation has it.
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "models.md"
READER = PAGE.read_text(encoding="utf-8").partition("# predict_alone.py\n")[2].partition("```")[0]
SCRIPT = """
import json
import sys

with open("table.json") as file:
    table = json.load(file)
predicted = predict("model.json", table)
assert not {"fedepm_fast", "pandas", "scipy", "numba"} & set(sys.modules)
print(json.dumps(predicted.tolist()))
"""


def plain(table):
    """A table as JSON has it."""
    return {
        name: [None if cell is None or cell != cell else cell for cell in column.tolist()]
        for name, column in table.items()
    }


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "least_squares", "poisson"])
def test_numpy_alone_predicts_the_same(tmp_path, loss):
    table = columns_for(hospitals(300), loss)
    table["sex"] = table["sex"].astype(object)
    table["sex"][:9] = None
    table["sex"][30:50] = "F"
    preparation = Preparation(ignore_case=True)
    model = fit(table, LABELS[loss], "hospital", objective=loss, preparation=preparation)
    model.save(tmp_path / "model.json")
    new = {name: table[name].copy() for name in ("age", "sex", "dose")}
    new["sex"][20:30] = "other"
    (tmp_path / "table.json").write_text(json.dumps(plain(new)))
    (tmp_path / "reader.py").write_text(READER + SCRIPT)
    done = subprocess.run(
        [sys.executable, "-I", "reader.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.array(json.loads(done.stdout))
    with pytest.warns(PreparationWarning, match="'other'"):
        want = model.predict(new) if model.classes is None else model.predict_proba(new)
    np.testing.assert_allclose(found, want.reshape(found.shape), rtol=1e-12)


@pytest.mark.parametrize("loss", LABELS)
def test_a_saved_model_is_the_same_model(tmp_path, loss):
    table = columns_for(hospitals(300), loss)
    model = fit(table, LABELS[loss], "hospital", objective=loss, beta=0.01, holdout=0.3)
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert str(again) == str(model) and repr(again) == repr(model)
    assert again.to_dict() == model.to_dict()
    np.testing.assert_array_equal(again.coef, model.coef)
    np.testing.assert_array_equal(again.decision_function(table), model.decision_function(table))
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    for kind in model.inference.covariances:
        np.testing.assert_array_equal(again.covariance(kind), model.covariance(kind))
    more = fit(table, LABELS[loss], "hospital", objective=loss, beta=0.01, start=again)
    np.testing.assert_allclose(more.predict(table) == model.predict(table), True, atol=1)


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "model.json"
    with pytest.raises(FileNotFoundError, match="no file of a model at"):
        Model.load(path)
    table = columns_for(hospitals(100), "logistic")
    fit(table, "outcome", "hospital").save(path)
    whole = path.read_text()
    record = json.loads(whole)
    for text in (
        "", whole[:-50], "[]", '{"format": "fedepm_fast model"}',
        json.dumps({**record, "w": [[1.0]]}), json.dumps({**record, "format": "other"}),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(
            ValueError, match=r"model\.json is not a complete file of a model, as save"
        ):
            Model.load(path)
    path.write_text(json.dumps({**record, "version": 2}))
    with pytest.raises(ValueError, match="has format 2, this version of fedepm_fast reads up to 1"):
        Model.load(path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        fit(table, "outcome").save(tmp_path / "missing" / "model.json")


def test_a_model_is_read_from_a_pipe(tmp_path):
    path = tmp_path / "model.json"
    model = fit(columns_for(hospitals(100), "logistic"), "outcome", "hospital")
    model.save(path)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(path.read_bytes(),))
    writer.start()
    assert Model.load(tmp_path / "pipe").to_dict() == model.to_dict()
    writer.join()


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_models_of_losses_by_functions_predict_without_them(tmp_path, task):
    label = LABELS["least_squares" if task == "regression" else "logistic"]
    table = columns_for(hospitals(200), "least_squares" if task == "regression" else "logistic")
    loss = ScalarLoss(
        value=lambda t, y: 0.5 * (t - y) ** 2, gradient=lambda t, y: t - y,
        curvature=1.0, task=task, name="own_square",
    )  # fmt: skip
    model = fit(table, label, "hospital", objective=loss, holdout=0.2)
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert again.to_dict() == model.to_dict() and str(again) == str(model)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert evaluate(again, table).to_dict() == evaluate(model, table).to_dict()
    assert again.objective.changed(beta=1.0).parameters == loss.parameters
    with pytest.raises(ValueError, match="'own_square' was read from a file, which does not hold"):
        fit(table, label, "hospital", objective=again.objective)
    more = fit(table, label, "hospital", objective=loss, start=again)
    assert more.training["converged"]
    record = json.loads((tmp_path / "model.json").read_text())
    record["objective"]["task"] = "cooking"
    (tmp_path / "model.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="not a complete file of a model"):
        Model.load(tmp_path / "model.json")


def test_models_of_classes_of_losses_need_them(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    table = columns_for(hospitals(200), "least_squares")
    model = fit(table, LABELS["least_squares"], "hospital", objective=PseudoHuber())
    model.save(path)
    np.testing.assert_array_equal(Model.load(path).predict(table), model.predict(table))
    record = json.loads(path.read_text())
    record["objective"]["bend"] = 1.0
    path.write_text(json.dumps(record))
    wanted = r"model\.json: this model is not of the loss 'pseudo_huber' defined here: .*bend"
    with pytest.raises(ValueError, match=wanted):
        Model.load(path)
    monkeypatch.delitem(OBJECTIVES._found, "pseudo_huber")
    wanted = (
        r"model\.json: this model is of the loss 'pseudo_huber', which is not defined here: import "
        "the file that defines it first"
    )
    with pytest.raises(ValueError, match=wanted):
        Model.load(path)


def test_predictions_need_the_columns_and_no_others():
    table = columns_for(hospitals(200), "logistic")
    model = fit(table, "outcome", "hospital")
    features = {name: table[name] for name in ("dose", "sex", "age")}  # in any order
    np.testing.assert_array_equal(model.predict(features), model.predict(table))
    del features["dose"]
    with pytest.raises(ValueError, match="'dose'"):
        model.predict(features)


def test_scores_are_of_labels(rng):
    table = columns_for(hospitals(200), "logistic")
    model = fit(table, "outcome", "hospital")
    want = np.mean(model.predict(table) == table["outcome"])
    assert model.score(table) == want
    rest = {n: c for n, c in table.items() if n != "outcome"}
    assert model.score(rest, table["outcome"]) == want
    stays = columns_for(hospitals(200), "least_squares")
    line = fit(stays, "stay", "hospital")
    r = line.predict(stays) - stays["stay"]
    assert line.score(stays) == pytest.approx(1 - np.mean(r**2) / stays["stay"].var())


# Evaluation ------------------------------------------------------------------------------------


def test_evaluation_is_of_every_client_and_of_all():
    table = columns_for(hospitals(400), "logistic")
    model = fit(table, "outcome", "hospital")
    found = evaluate(model, table)
    assert list(found.clients) == ["h1", "h2", "h3", "h4", "h5"]
    p = model.predict_proba(table)[:, 1]
    died = table["outcome"] == "died"
    for name, known in found.clients.items():
        mine = table["hospital"] == name
        assert known["rows"] == mine.sum()
        assert known["brier"] == pytest.approx(np.mean((p - died)[mine] ** 2))
    assert found.overall["rows"] == 400
    # Of its own training rows a model is calibrated, by the likelihood equations.
    assert found.overall["calibration_slope"] == pytest.approx(1, abs=1e-6)
    assert found.overall["calibration_intercept"] == pytest.approx(0, abs=1e-6)
    assert found.overall["log_loss_null"] > found.overall["log_loss"]
    for curve in found.curves.values():
        assert sum(curve["rows"]) in {known["rows"] for known in found.clients.values()}
    assert list(found.to_pandas().index) == [*found.clients, "(all)"]
    lines = str(found).splitlines()
    assert lines[0].split()[:3] == ["client", "rows", "pos."] and max(map(len, lines)) <= 80


def test_evaluation_of_other_clients_and_of_none():
    table = columns_for(hospitals(400), "logistic")
    model = fit(table, "outcome", "hospital")
    new = columns_for(hospitals(100, clients=2, seed=9), "logistic")
    ids = np.where(new["hospital"] == "h1", "x", "y")
    assert list(evaluate(model, new, client=ids).clients) == ["x", "y"]
    rest = {n: c for n, c in new.items() if n != "hospital"}
    assert list(evaluate(model, rest).clients) == ["all rows"]
    holes = new["outcome"].astype(object)
    holes[:7] = None
    found = evaluate(model, {**new, "outcome": holes})
    assert found.left_out == 7 and found.overall["rows"] == 93
    assert "7 rows without a label left out" in str(found)
    assert repr(found) == "<Evaluation of 93 rows of 2 clients>"
    holes[20] = "moved"
    with pytest.raises(
        ValueError, match="one of the classes that the model knows, alive, died, got 'moved' in row"
    ):
        evaluate(model, {**new, "outcome": holes})
    with pytest.raises(ValueError, match="label must be a column of the table, got 'outcome'"):
        evaluate(model, {n: c for n, c in new.items() if n != "outcome"})
    with pytest.raises(ValueError, match="label 'outcome' must not be missing in every row"):
        evaluate(model, {**new, "outcome": [None] * 100})


def test_evaluation_by_weights(rng):
    table = columns_for(hospitals(400), "logistic")
    weights = rng.integers(0, 3, 400).astype(float)
    weights[table["hospital"] == "h2"] = 0
    model = fit(table, "outcome", "hospital")
    found = evaluate(model, {**table, "w": weights}, sample_weight="w")
    again = np.repeat(np.arange(400), weights.astype(int))
    want = evaluate(model, rows_of(table, again))
    assert list(found.clients) == list(want.clients) == ["h1", "h3", "h4", "h5"]
    for mine, theirs in ((found.overall, want.overall), (found.clients["h3"], want.clients["h3"])):
        assert mine["rows"] < theirs["rows"]
        assert {**mine, "rows": 0} == pytest.approx({**theirs, "rows": 0}, rel=1e-9)
    assert found.left_out == (weights == 0).sum()
    assert f"{found.left_out} rows without a label or of weight 0 left out" in str(found)
    assert "all but rows by their weights" in str(found)
    score = model.score(table, sample_weight=weights)
    assert score == pytest.approx(want.overall["accuracy"], rel=1e-12)
    for curve in found.curves.values():
        assert len(curve["seen"]) == len(curve["rows"])
    with pytest.raises(ValueError, match="sample_weight must not be 0 for every row with a label"):
        evaluate(model, table, sample_weight=np.zeros(400))
    with pytest.raises(ValueError, match="sample_weight must be at least 0, got -1"):
        evaluate(model, table, sample_weight=-np.ones(400))


def test_held_out_rows_weigh_as_those_of_the_fit(rng):
    table = columns_for(hospitals(400), "logistic")
    table["w"] = rng.gamma(1, 1, 400)
    model = fit(table, "outcome", "hospital", sample_weight="w", holdout=0.3)
    assert model.comparison.federated.weighted
    again = Model.from_dict(model.to_dict()).comparison.federated
    assert again.weighted and again.overall == model.comparison.federated.overall


def test_labels_are_the_same_whatever_holds_them(rng):
    X = {"a": rng.normal(size=40)}
    model = fit({**X, "y": [0, 1] * 20}, "y")
    for labels in ([0.0, 1.0] * 20, ["0", "1"] * 20, np.array([0, 1] * 20, dtype=np.int8)):
        assert evaluate(model, X, label=labels).overall == evaluate(
            model, {**X, "y": [0, 1] * 20}
        ).overall  # fmt: skip


# What federation brings ------------------------------------------------------------------------


def test_own_federated_and_pooled_models_of_the_same_rows():
    table = columns_for(hospitals(800, missing=0.0), "logistic")
    table["hospital"] = table["hospital"].astype(object)
    died = np.flatnonzero(table["outcome"] == "died")
    table["hospital"][died[:10]] = "one class"
    model = fit(table, "outcome", "hospital", holdout=0.3, seed=1)
    found = model.comparison
    # With clients that weigh by their rows, the federated model is the pooled one.
    for name, known in found.federated.clients.items():
        for measure, value in known.items():
            other = found.pooled.clients[name][measure]
            assert value == other or value == pytest.approx(other, rel=1e-5)
    assert found.without == {"one class": "rows of 1 of the 2 classes"}
    assert set(found.local) == {"h1", "h2", "h3", "h4", "h5"}
    from fedepm_fast.models._holdout import held_out
    from fedepm_fast.preparation._table import in_order

    names = in_order(set(table["hospital"]))
    codes = np.array([names.index(name) for name in table["hospital"]])
    out = held_out(0.3, codes, (table["outcome"] == "died").astype(float), 1)
    mine = table["hospital"] == "h2"
    alone = fit(
        {n: c for n, c in rows_of(table, mine & ~out).items() if n != "hospital"}, "outcome"
    )
    want = evaluate(alone, rows_of(table, mine & out), client=None).overall
    assert found.local["h2"] == want
    text = str(model)
    assert "What federation brings" in text and "pooled" in text
    assert "one class has no model of its own: rows of 1 of the 2 classes" in text
    assert max(map(len, text.splitlines())) <= 80


def test_equal_clients_have_another_optimum_than_the_pooled_rows():
    table = columns_for(hospitals(800), "logistic")
    model = fit(table, "outcome", "hospital", holdout=0.3, client_weight="equal")
    found = model.comparison
    assert found.federated.overall["log_loss"] != pytest.approx(
        found.pooled.overall["log_loss"], rel=1e-6
    )


@pytest.mark.parametrize("loss", ["least_squares", "poisson", "multinomial", "squared_hinge"])
def test_comparisons_of_other_losses(loss):
    table = columns_for(hospitals(500), loss)
    model = fit(table, LABELS[loss], "hospital", objective=loss, holdout=0.4, beta=0.01)
    assert set(model.comparison.local) | set(model.comparison.without) == {
        "h1", "h2", "h3", "h4", "h5",
    }  # fmt: skip
    assert max(map(len, str(model).splitlines())) <= 80


# Words -----------------------------------------------------------------------------------------


def test_summary_of_a_model():
    table = columns_for(hospitals(400, seed=2), "logistic")
    model = fit(table, "outcome", "hospital")
    text = str(model)
    assert text.startswith("Logistic regression of outcome = died\n")
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines()]
    (dose,) = [row for row in rows if row and row[0] == "dose"]
    told = dict(
        zip(model.feature_names, zip(*model.statistics().values(), strict=True), strict=True)
    )
    value, error, z, _, low, high = told["dose"]
    assert float(dose[1]) == pytest.approx(value, rel=1e-3)
    assert float(dose[2]) == pytest.approx(error, rel=1e-2)
    assert float(dose[3]) == pytest.approx(z, abs=0.006)
    assert float(dose[5]) == pytest.approx(low, rel=1e-2)
    assert float(dose[7]) == pytest.approx(high, rel=1e-2)
    names = [row[0] for row in rows if row and row[0] in ("(intercept)", "age", "sex=m", "dose")]
    assert names == ["(intercept)", "age", "age", "sex=m", "dose"]  # the second is of missing cells
    clustered = " ".join(model.summary("clustered", 0.9).split())
    assert "90 % interval" in clustered
    assert "clustered by client, of 5 clients only" in clustered
    frame = model.to_pandas("clustered")
    assert list(frame.index) == list(model.feature_names)
    assert frame.loc["dose", "standard_error"] == model.standard_errors("clustered")["dose"]


def test_long_names_and_small_numbers_fit_into_a_terminal(rng):
    table = {f"a column of a rather long name, number {j}": rng.normal(size=90) for j in range(3)}
    columns = {name: column * 10.0 ** (3 * j - 3) for j, (name, column) in enumerate(table.items())}
    y = 1e4 + sum(table.values()) + rng.normal(size=90)
    for kind in (None, "clustered"):
        text = fit({**columns, "y": y}, "y", clients=3).summary(kind)
        assert max(map(len, text.splitlines())) <= 80
        assert text.count("\N{HORIZONTAL ELLIPSIS}") == 3 and "number 2" in text


def test_several_classes_have_coefficients_against_the_first():
    table = columns_for(hospitals(400), "multinomial")
    model = fit(table, "unit", "hospital")
    assert list(model.coefficients) == ["b", "c"] == list(model.intercept)
    assert model.coefficients["c"]["dose"] == model.coef[2, 3]
    np.testing.assert_array_equal(model.coef[0], 0)
    assert model.standard_errors()["b"].keys() == {*model.feature_names}
    assert len(model.confidence_intervals()["c"]["dose"]) == 2
    assert "c against a" in str(model)
    assert model.to_pandas().index.names == ["class", "column"]
    p = model.predict_proba(table)
    odds = np.log(p[:, 2] / p[:, 0])
    step = {**table, "dose": table["dose"] + 1}
    other = model.predict_proba(step)
    np.testing.assert_allclose(
        np.log(other[:, 2] / other[:, 0]) - odds, model.coefficients["c"]["dose"], rtol=1e-7
    )


def test_notebooks_show_tables():
    table = columns_for(hospitals(200), "logistic")
    table["sex"] = np.where(table["sex"] == "m", "<b>", "f")
    model = fit(table, "outcome", "hospital", holdout=0.2)
    data = synthetic.make_federated("logistic", clients=3, samples=30, features=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(FedEPM(), data, rounds=1)
    shown = (model, model.comparison, model.comparison.federated, data, result)
    for thing in shown:
        text = thing._repr_html_()
        assert text.startswith("<table>") and text.count("<table>") == text.count("</table>")
        assert "<b>" not in text
    assert "sex=&lt;b&gt;" in model._repr_html_() or "sex=f" in model._repr_html_()
    assert "3 clients" in data._repr_html_() and "f(x)/m" in result._repr_html_()


@pytest.mark.parametrize("clients", [["p", "q", "r"], ["p", "p", "p", "q", "q", "q"]])
def test_that_sums_of_one_row_are_that_row_is_said(clients: list[str]) -> None:
    rows = len(clients)
    table = {"a": np.arange(rows) % 3.0, "y": ["j", "n"] * (rows // 2) + ["j"] * (rows % 2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = str(fit(table | {"k": clients}, "y", "k"))
    said = "no row but of the 3 with one, whose sums are that row, no noise"
    assert (said in " ".join(text.split())) == (rows == 3)
