"""Fits under differential privacy."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast.losses import Logistic
from fedepm_fast.mechanisms import GaussianMechanism
from fedepm_fast.models import Model, ModelWarning, evaluate, fit
from fedepm_fast.models._private import after, coordinates, train_private
from fedepm_fast.models._rows import classes_of, coded, read_rows
from fedepm_fast.preparation import Preparation
from fedepm_fast.privacy.curvature import curvature_settings

COLUMNS = {
    "age": {"bounds": (18, 100)},
    "weight": {"mean": 80, "sd": 12},
    "smoker": {"levels": ["no", "yes", "ex"]},
    "urban": {"kind": "boolean"},
}
PUBLIC = Preparation.public(COLUMNS)
SECRET = 987654321987


def table(d=12_000, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    age, weight = rng.normal(55, 12, d).clip(18, 100), rng.normal(80 + shift, 12, d)
    smoker = rng.choice(["no", "yes", "ex"], d, p=[0.6, 0.25, 0.15])
    urban = rng.random(d) < 0.4
    margins = -0.8 + 0.05 * (age - 55) + 0.03 * (weight - 80) + (smoker == "yes") - 0.5 * urban
    ill = (rng.random(d) < 1 / (1 + np.exp(-margins))).astype(int)
    hospital = np.array([*"ABBCCCDDDD"])[np.arange(d) % 10]
    return {
        "age": age, "weight": weight, "smoker": smoker, "urban": urban, "ill": ill,
        "hospital": hospital,
    }  # fmt: skip


TABLE = table()


def private(given=TABLE, epsilon=1.0, **options):
    options = {"preparation": PUBLIC, "total_epsilon": epsilon, **options}
    return fit(given, "ill", "hospital", **options)


@pytest.mark.parametrize("delta", [None, 1e-5, 0])
def test_the_coefficients_are_those_of_the_rows_up_to_the_noise(delta):
    model = private(epsilon=3.0, delta=delta)
    plain = fit(TABLE, "ill", "hospital", preparation=Preparation(reference={"smoker": "no"}))
    known = plain.coefficients
    names = {"urban": next(name for name in known if name.startswith("urban"))}
    noise = model.training["privacy"]["noise"]
    for name, value in model.coefficients.items():
        other = known[names.get(name, name)]
        # Clipped rows and few rounds leave some way to go, a fifth at most here.
        assert abs(value - other) < 6 * noise[name] + 0.25 * abs(other)
    assert model.score(TABLE) > plain.score(TABLE) - 0.01
    assert model.notes == ()


def test_the_model_has_the_guarantee_and_keeps_it(tmp_path):
    model = private(epsilon=1.5)
    told = model.training["privacy"]
    assert told["guarantee"].startswith("each client: epsilon <= 1.5 at delta 1e-06")
    assert (
        told["epsilon_clients"] == pytest.approx([1.5] * 4) and max(told["epsilon_clients"]) <= 1.5
    )
    assert told["client_sizes"] == [1200, 2400, 3600, 4800]
    assert "which rows have a label" in told["public"]
    assert any("as declared" in text for text in told["public"])
    assert model.training["seed"] is None
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert again.training == model.training
    np.testing.assert_array_equal(again.predict_proba(TABLE), model.predict_proba(TABLE))
    for shown in (str(model), model._repr_html_()):
        text = " ".join(shown.split())
        assert "epsilon &lt;= 1.5" in text or "epsilon <= 1.5 at delta 1e-06" in text
        assert "all with noise, and nothing else" in text and "noise (sd)" in text
        assert "no standard errors: a private fit releases no curvature" in text
    pure = private(delta=0).training["privacy"]
    assert pure["guarantee"].startswith("each client: epsilon <= 1 (pure)")
    assert pure["mechanism"] == "laplace" and told["mechanism"] == "gaussian"


def test_nothing_else_of_the_rows_is_in_the_model():
    # Other rows, as many for each client: all but the point and what follows from it is alike.
    one, two = private(), private(table(seed=1, shift=20.0))
    first, second = one.to_dict(), two.to_dict()
    for name in ("coefficients", "w", "null"):
        assert first.pop(name) != second.pop(name)
    assert first == second
    assert one.inference.covariances == {} and one.inference.deviance is None
    with pytest.raises(ValueError, match="no default: a private fit releases no curvature"):
        one.standard_errors()
    with pytest.raises(ValueError, match="'clustered' cannot be had: a private fit releases"):
        one.standard_errors("clustered")


def test_noise_is_never_the_same():
    assert private().coefficients != private().coefficients


def test_the_noise_of_the_coefficients_is_as_said():
    # Labels that no column tells anything of, and fits that differ in their noise only. Ages vary
    # by less than a quarter of their bounds, so that noise in their coefficient is more.
    given = TABLE | {"ill": np.random.default_rng(3).integers(0, 2, len(TABLE["ill"]))}
    rows = read_rows(given, "ill", "hospital")
    loss, mechanism = Logistic(beta=0.0), GaussianMechanism(total_epsilon=0.3)
    classes = classes_of(rows.label, loss)
    labels = coded(rows.label, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        models = [
            train_private(rows, labels, loss, classes, PUBLIC, mechanism, seed=SECRET + k)
            for k in range(30)
        ]
    noise = models[0].training["privacy"]["noise"]
    names = ("weight", "urban")
    found = np.std([[m.coefficients[name] for name in names] for m in models], axis=0)
    np.testing.assert_allclose(found, [noise[name] for name in names], rtol=0.35)


def test_prepared_columns_are_brought_to_one_scale_by_what_is_declared():
    public = Preparation.public(
        {"a": {"bounds": (0, 8)}, "b": {"levels": ["u", "v", "w", "x"]}, "c": {"mean": 1, "sd": 3}}
    )
    rng = np.random.default_rng(0)
    given = {
        "a": rng.normal(4, 2, 20_000).clip(0, 8), "b": rng.choice(list("uvwx"), 20_000),
        "c": rng.normal(1, 3, 20_000),
    }  # fmt: skip
    rows = public.transform(given) @ coordinates(public)
    np.testing.assert_allclose(rows[:, :-1].mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(rows.std(axis=0), [1, 1, 1, 1, 1, 0], atol=0.05)
    np.testing.assert_array_equal(rows[:, -1], 1)
    bare = Preparation.public({"a": {"bounds": (0, 8)}}, intercept=False)
    np.testing.assert_array_equal(coordinates(bare), [[2.0]])


def test_the_shares_of_the_classes_are_known_up_to_the_noise():
    share = TABLE["ill"].mean()
    for delta, epsilon in ((None, 5.0), (0, 50.0)):  # either's noise is a fifth of 0.1 and less
        null = float(private(epsilon=epsilon, delta=delta).null)
        # Clipping draws it to a half.
        assert 0 < np.sign(share - 0.5) * null <= abs(math.log(share / (1 - share))) + 0.1


def test_rows_without_a_label_are_left_out():
    label = np.where(TABLE["hospital"] == "A", np.nan, TABLE["ill"])
    label[1::20] = np.nan
    model = private(TABLE | {"ill": label})
    assert model.training["privacy"]["client_sizes"] == [1800, 3600, 4800]
    assert all(set(told) == {"name", "rows", "weight"} for told in model.clients)


def test_several_classes():
    rng = np.random.default_rng(2)
    X = np.column_stack([TABLE["age"] - 55, TABLE["weight"] - 80]) / 12
    scores = X @ np.array([[0.0, 1.5, -1.0], [0.0, 0.5, 1.5]]) + rng.gumbel(size=(12_000, 3))
    given = TABLE | {"ill": np.array(["mild", "none", "severe"])[scores.argmax(axis=1)]}
    model, plain = private(given, epsilon=2.0), fit(given, "ill", "hospital")
    assert model.classes == ("mild", "none", "severe")
    assert model.score(given) > plain.score(given) - 0.03
    assert np.isfinite(model.null).all() and model.null.shape == (3,)


def test_clients_that_weigh_alike():
    model = private(client_weight="equal", epsilon=5.0)
    assert model.training["client_weight"] == "equal"
    # Small clients' noise counts more.
    by_size = private(epsilon=5.0).training["privacy"]["expected_rise"]
    assert model.training["privacy"]["expected_rise"] > by_size


def test_a_penalty_draws_to_zero():
    model = private(beta=5.0, epsilon=5.0)
    assert np.abs(model.w[0, :-1]).max() < 0.2 and abs(model.w[0, -1]) > 0.3
    assert "penalty beta 5 on standardised columns" in " ".join(model.summary().split())


# Warnings -----------------------------------------------------------------------------------


def test_noise_larger_than_the_signal_is_said_before_and_after():
    few = {name: values[:300] for name, values in TABLE.items()}
    with pytest.warns(ModelWarning, match="the noise is larger than the signal") as told:
        model = private(few, epsilon=0.1)
    assert told[0].filename == __file__
    note = model.notes[0]
    assert "4 clients, 300 rows, 6 columns and epsilon 0.1" in note
    rise = model.training["privacy"]["expected_rise"]
    assert f"raise the mean loss by about {rise:.2g}" in note


def test_the_warning_comes_before_the_noise_is_drawn():
    few = {name: values[:300] for name, values in TABLE.items()}
    with warnings.catch_warnings(), pytest.raises(ModelWarning, match="larger than the signal"):
        warnings.simplefilter("error", ModelWarning)
        private(few, epsilon=0.1)


def test_coefficients_that_noise_alone_would_give_are_said_to_be_so():
    settings = curvature_settings(GaussianMechanism(total_epsilon=1.0), [1000], 6)
    pure = settings.deviation * np.ones((1, 6))
    assert "hardly larger than noise" in after(settings, pure, PUBLIC)
    assert after(settings, 2 * pure, PUBLIC) == ""


# Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given, error, message", [
    ({"preparation": None}, TypeError, r"preparation must be Preparation.public\(columns\)"),
    ({"preparation": Preparation()}, TypeError, "not private, got Preparation"),
    ({"total_epsilon": 0.0}, ValueError, "total_epsilon must be"),
    ({"total_epsilon": "1"}, TypeError, "total_epsilon must be"),
    ({"delta": 1.0}, ValueError, "delta must be"),
    ({"total_epsilon": None, "preparation": None, "delta": 1e-6}, ValueError,
     "delta needs total_epsilon"),
    ({"total_epsilon": None}, TypeError, "preparation must be a Preparation, got Prepared"),
    ({"holdout": 0.2}, ValueError, "holdout must not be given for a private fit"),
    ({"sample_weight": "age"}, ValueError, "sample_weight must not be given"),
    ({"class_weight": "balanced"}, ValueError, "class_weight must not be given"),
    ({"participation": 0.5}, ValueError, "participation must not be given"),
    ({"objective": "squared_hinge"}, ValueError, "objective must be logistic or multinomial"),
    ({"task": "regression"}, ValueError, "got least_squares"),
    ({"beta": -1.0}, ValueError, "beta must be"),
])  # fmt: skip
def test_refusals(given, error, message):
    with pytest.raises(error, match=message):
        private(**given)


def test_a_start_is_refused():
    with pytest.raises(ValueError, match="start must not be given for a private fit"):
        private(start=private())


# The command --------------------------------------------------------------------------------


def write(folder, given):
    names = list(given)
    rows = zip(*(np.asarray(given[name]).tolist() for name in names), strict=True)
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    (folder / "public.json").write_text(json.dumps(COLUMNS))
    return ["fit", folder / "table.csv", "--label", "ill", "--client", "hospital"]


def test_the_command(capsys, tmp_path):
    asked = [*write(tmp_path, TABLE), "--total-epsilon", 2, "--public", tmp_path / "public.json"]
    code, out, err = fedepm(capsys, *asked, "--out", tmp_path / "model.json")
    assert (code, err) == (0, "")
    assert "each client: epsilon <= 2 at delta 1e-06" in " ".join(out.split())
    model = Model.load(tmp_path / "model.json")
    assert evaluate(model, TABLE).overall["auc"] > 0.7
    code, out, _ = fedepm(capsys, *asked, "--privacy-delta", 0, "--json")
    assert code == 0
    assert json.loads(out)["training"]["privacy"]["guarantee"].startswith(
        "each client: epsilon <= 2 (pure)"
    )


def test_the_command_warns(capsys, tmp_path):
    few = {name: values[:300] for name, values in TABLE.items()}
    asked = [*write(tmp_path, few), "--total-epsilon", 0.1, "--public", tmp_path / "public.json"]
    code, out, err = fedepm(capsys, *asked)
    assert code == 0 and err.startswith("warning: the noise is larger than the signal")
    assert "warning: the noise is larger than the signal" in " ".join(out.split())


@pytest.mark.parametrize("options, message", [
    (["--total-epsilon", 1], "public must be given, a file that declares the columns"),
    (["--privacy-delta", 0], "--total-epsilon must be given with --privacy-delta"),
    (["--public", "public.json"], "--total-epsilon must be given with --public"),
    (["--total-epsilon", 1, "--public", "public.json", "--privacy-delta", 2],
     "--privacy-delta must be"),
    (["--total-epsilon", 1, "--public", "nowhere.json"], "no file at nowhere.json"),
    (["--total-epsilon", 1, "--public", "table.csv"], "public must be a file of JSON"),
    (["--total-epsilon", 1, "--public", "public.json", "--drop", "age"], "public must say all"),
])  # fmt: skip
def test_the_command_refuses(capsys, tmp_path, monkeypatch, options, message):
    few = {name: values[:40] for name, values in TABLE.items()}
    asked = write(tmp_path, few)
    monkeypatch.chdir(tmp_path)
    code, _, err = fedepm(capsys, *asked, *options)
    assert code != 0 and message in " ".join(err.split()).replace("total_epsilon", "total-epsilon")
