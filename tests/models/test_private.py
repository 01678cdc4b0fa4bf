"""Fits under differential privacy."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast.losses import Huber, Logistic
from fedepm_fast.models import Model, ModelWarning, evaluate, fit
from fedepm_fast.models._declared import bounds_of, coordinates
from fedepm_fast.models._private import after, private_model
from fedepm_fast.models._rows import classes_of, coded, read_rows
from fedepm_fast.preparation import Preparation
from fedepm_fast.privacy import plan

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
    assert model.coefficients.keys() == {name.split("=true")[0] for name in plain.coefficients}
    # Clipped rows and few rounds leave some way to go.
    margins, known = model.decision_function(TABLE), plain.decision_function(TABLE)
    assert np.sqrt(np.mean((margins - known) ** 2)) < 0.15 * known.std()
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
    rounds = 6 * model.training["rounds"]
    assert model.training["sent"] == {"preparation": 21 + 8, "rounds": rounds, "inference": 0}
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
    # Other rows, as many for each client: all but the points, and what follows from them and from
    # the second moments, is alike.
    one, two = private(), private(table(seed=1, shift=20.0))
    first, second = one.to_dict(), two.to_dict()
    for name in ("coefficients", "w", "null"):
        assert first.pop(name) != second.pop(name)
    noise = [told["training"]["privacy"].pop("noise") for told in (first, second)]
    assert noise[0].keys() == noise[1].keys() and noise[0] != noise[1]
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
    given = {name: values[:4000] for name, values in TABLE.items()}
    given["ill"] = np.random.default_rng(3).integers(0, 2, 4000)
    rows = read_rows(given, "ill", "hospital")
    loss, asked = Logistic(beta=0.0), {"total_epsilon": 1.0}
    classes = classes_of(rows.label, loss)
    labels = coded(rows.label, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        models = [
            private_model(rows, labels, loss, classes, PUBLIC, asked, seed=SECRET + k)[0]
            for k in range(16)
        ]
    noise = models[0].training["privacy"]["noise"]
    names = ("weight", "urban")
    found = np.std([[m.coefficients[name] for name in names] for m in models], axis=0)
    # Said is what it is where columns tell something: here the loss is most curved, and it is less.
    ratios = found / [noise[name] for name in names]
    assert (ratios > 0.3).all() and (ratios < 1.4).all()


def a_rare_class(share, count=16_000):
    """Three columns of which it depends, at ten clients, with what declares them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 3))
    margins = X @ [1.0, -0.5, 0.3] + np.log(share / (1 - share)) - 0.4
    table = dict(zip("abc", X.T, strict=True), ill=margins + rng.logistic(size=count) > 0)
    columns = {name: {"mean": 0.0, "sd": 1.0} for name in "abc"}
    return table, Preparation.public(columns)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_the_noise_is_as_said_where_a_class_is_rare(share):
    """Noise is brought back more slowly there: several times as much is left as a plan says."""
    table, public = a_rare_class(share)
    rows = read_rows(table, "ill", np.arange(16_000) % 10)
    asked, labels = {"total_epsilon": 4.0, "delta": 1e-6}, table["ill"].astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        models, planned = zip(
            *[
                private_model(
                    rows, labels, Logistic(beta=0.0), (False, True), public, asked, seed=SECRET + k
                )
                for k in range(12)
            ],
            strict=True,
        )
    found = np.std([[m.coefficients[name] for name in "abc"] for m in models], axis=0, ddof=1)
    said = [models[0].training["privacy"]["noise"][name] for name in "abc"]
    assert 0.7 < np.sqrt((found**2).mean() / np.square(said).mean()) < 1.5
    # The intercept, which shares what curvature there is with the columns, among them.
    found = np.std([m.w[0, -1] for m in models], ddof=1)
    assert 0.55 < found / models[0].training["privacy"]["noise"]["(intercept)"] < 1.5
    assert (np.mean(said) > 3 * planned[0].deviation) == (share == 0.02)
    # And the rounds come less far, which is said.
    notes = [[note for note in m.notes if "a class is so rare" in note] for m in models]
    assert all(map(bool, notes)) if share == 0.02 else not any(notes)
    found = np.mean([m.coefficients["a"] for m in models])
    assert (found < 0.75) == (share == 0.02) and found < 1.1


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


def numbers(d=6000):
    rng = np.random.default_rng(4)
    age, smoker = rng.normal(55, 12, d).clip(18, 100), rng.random(d) < 0.3
    cost = 20 + 0.4 * (age - 55) + 6 * smoker + rng.standard_t(3, d)
    return {"age": age, "smoker": smoker, "cost": cost, "hospital": rng.choice([*"ABC"], d)}


HUBER = {
    "objective": Huber(delta=3.0), "label_bounds": (0, 48),
    "preparation": Preparation.public(
        {"age": {"bounds": (18, 100)}, "smoker": {"kind": "boolean"}}
    ),
}  # fmt: skip


def test_a_regression_of_bounded_labels():
    given = numbers()
    model = fit(given, "cost", "hospital", total_epsilon=3.0, **HUBER)
    plain = fit(given, "cost", "hospital", objective=Huber(delta=3.0))
    known = {name.split("=")[0]: value for name, value in plain.coefficients.items()}
    for name, value in model.coefficients.items():
        assert value == pytest.approx(known[name], rel=0.2)
    assert model.objective == Huber(
        beta=0.0, delta=3.0, regularizer="beta", weights=(1.0, 1.0, 0.0)
    )
    assert float(model.null) == pytest.approx(given["cost"].mean(), abs=1.5)
    # Of a label in other units the same model, in these; of the noise the same share.
    cents = fit(
        given | {"cost": 100 * given["cost"]}, "cost", "hospital", total_epsilon=3.0,
        **HUBER | {"objective": Huber(delta=300.0), "label_bounds": (0, 4800)},
    )  # fmt: skip
    first, second = (m.training["privacy"] for m in (model, cents))
    assert second["expected_rise"] == pytest.approx(1e4 * first["expected_rise"])
    assert second["noise"]["age"] == pytest.approx(100 * first["noise"]["age"], rel=0.1)


def test_least_squares_count_far_residuals_linearly():
    given = numbers()
    options = {name: HUBER[name] for name in ("label_bounds", "preparation")}
    model = fit(given, "cost", "hospital", total_epsilon=5.0, **options)
    plain = fit(given, "cost", "hospital")
    # The delta is the plan's, in the units of the labels: 12 is a quarter of their range.
    made = plan(5.0, np.unique(given["hospital"], return_counts=True)[1], 3,
                objective="least_squares")  # fmt: skip
    assert model.objective.name == "huber"
    assert model.objective.delta == pytest.approx(12 * made.objective.delta)
    text = " ".join(model.summary().split())
    delta = f"huber with delta {model.objective.delta:.4g}"
    assert f"objective {delta}, instead of least_squares, whose slope has no bound" in text
    # Which was asked for itself, or has no other in its place, says that of nobody.
    for known in (fit(given, "cost", "hospital", total_epsilon=5.0, **HUBER), plain):
        assert "instead of" not in known.summary()
    assert "objective huber with delta 3; " in " ".join(
        fit(given, "cost", "hospital", objective=Huber(delta=3.0)).summary().split()
    )
    known = {name.split("=")[0]: value for name, value in plain.coefficients.items()}
    for name, value in model.coefficients.items():
        assert value == pytest.approx(known[name], rel=0.2)


def test_declared_columns_that_a_table_lacks_are_named_as_such():
    given = {name: values for name, values in numbers().items() if name not in ("age", "smoker")}
    given["height"] = given["cost"]
    told = "must have the columns that are declared .*--public.*, but lacks 'age', 'smoker'"
    options = {name: HUBER[name] for name in ("label_bounds", "preparation")}
    with pytest.raises(ValueError, match=told):
        fit(given, "cost", "hospital", total_epsilon=5.0, **options)
    with pytest.raises(ValueError, match=told):
        HUBER["preparation"].transform(given)


def test_whole_clients_are_hidden_with_their_sizes():
    def of(sizes):
        given = {name: values[: sum(sizes)] for name, values in TABLE.items()}
        given["hospital"] = np.repeat(np.arange(60), sizes)
        return private(given, neighbours="client", epsilon=40.0)

    models = of([100] * 60), of([*[50] * 30, *[150] * 29, 90])
    told = [model.to_dict() for model in models]
    for record in told:
        for name in ("coefficients", "w", "null"):
            del record[name]
        del record["training"]["privacy"]["noise"]
    assert told[0] == told[1]
    privacy = models[0].training["privacy"]
    assert privacy["client_sizes"] == [] and "which rows have a label" not in privacy["public"]
    assert "which clients have a row with a label" in privacy["public"]  # others are left out
    assert "all clients count alike" in str(models[0])
    assert "for all records of a client together" in privacy["guarantee"]
    assert "of 60 clients, whose sizes are private" in " ".join(str(models[0]).split())
    assert models[0].score(TABLE) > 0.6


def test_labels_beyond_their_bounds_count_as_these():
    given = numbers()
    rows = read_rows(given, "cost", "hospital")
    far = np.where(given["cost"] > 30, 1e6, given["cost"])
    w = [
        private_model(
            rows, labels, Huber(delta=3.0), None, HUBER["preparation"], {"total_epsilon": 2.0},
            label_bounds=(0, 30), seed=SECRET,
        )[0].w
        for labels in (given["cost"], far)
    ]  # fmt: skip
    np.testing.assert_array_equal(*w)


def test_cells_without_a_value_and_unknown_levels_follow_public_rules():
    public = Preparation.public({
        "age": {"bounds": (18, 100), "missing": True},
        "smoker": {"levels": ["no", "yes"], "other": True, "missing": True},
        "weight": {"mean": 80, "sd": 12},
    })  # fmt: skip
    rng = np.random.default_rng(7)
    held = {name: TABLE[name].copy() for name in ("age", "weight", "ill", "hospital")}
    held["smoker"] = TABLE["smoker"].astype(object)
    for name in ("age", "weight", "smoker"):
        held[name][rng.random(len(held["ill"])) < 0.1] = None if name == "smoker" else np.nan
    model = private(held, preparation=public, epsilon=5.0)
    names = {"age", "age (missing)", "smoker=yes", "smoker=(other)", "smoker=(missing)", "weight"}
    assert set(model.coefficients) == names
    # What stands for a missing weight, or for a level that is none of the declared, is declared.
    alike = {
        "age": [np.nan, 59], "weight": [np.nan, 80], "smoker": ["ex", "cigar"],
    }  # fmt: skip
    margins = model.decision_function(alike)
    gap = model.coefficients["age (missing)"]
    assert margins[0] - margins[1] == pytest.approx(gap, abs=1e-9)
    # How many are missing is not in the model.
    again = private(held | {"weight": TABLE["weight"]}, preparation=public, epsilon=5.0)
    told = [m.to_dict()["prepared"] for m in (model, again)]
    assert told[0] == told[1]


def test_a_share_of_the_clients_in_every_round():
    model = private(participation=0.5, epsilon=5.0)
    told = model.training["privacy"]
    assert model.training["participation"] == 0.5
    assert told["epsilon"] <= 5.0 and told["epsilon_clients"] == pytest.approx([5.0] * 4)
    assert model.score(TABLE) > 0.65


def test_secure_sums_need_less_noise():
    model = private(trust="secure-sum", honest=0.75)
    told = model.training["privacy"]
    assert "secure sums only, each of 4 or more clients, at least 3 of them" in told["guarantee"]
    alone = private().training["privacy"]
    # Three of four parts hide a record that is among all rows.
    assert told["expected_rise"] < alone["expected_rise"]
    assert model.score(TABLE) > 0.68


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
    planned = plan(1.0, [1000], 6)
    pure = planned.deviation * np.ones((1, 6))
    variance = planned.deviation**2
    assert "hardly larger than noise" in after(variance, pure, np.eye(6), PUBLIC)
    assert after(variance, 2 * pure, np.eye(6), PUBLIC) == ""
    # In coordinates of their own noise is larger, too.
    assert "hardly larger than noise" in after(variance, 2 * pure, 2 * np.eye(6), PUBLIC)


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
    ({"participation": 0.0}, ValueError, "participation must be"),
    ({"objective": "poisson", "label_bounds": (0, 1)}, ValueError, "no bound on a record's grad"),
    ({"task": "regression"}, ValueError, "label_bounds must be given for a private regression"),
    ({"label_bounds": (0, 1)}, ValueError, "label_bounds are for a regression"),
    ({"objective": "huber", "label_bounds": (1, 1)}, ValueError,
     r"label_bounds must be a finite number in \(1, inf\)"),
    ({"objective": "huber", "label_bounds": 1}, TypeError, "label_bounds must be two numbers"),
    ({"total_epsilon": None, "preparation": None, "label_bounds": (0, 1)}, ValueError,
     "label_bounds needs total_epsilon"),
    ({"total_epsilon": None, "preparation": None, "trust": "clients"}, ValueError,
     "trust needs total_epsilon"),
    ({"trust": "server"}, ValueError, "trust must be one of"),
    ({"trust": "secure-sum", "delta": 0}, ValueError, "delta must be above 0 for trust"),
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
    return ["fit", folder / "table.csv", "--label", "ill", "--client-column", "hospital"]


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
    assert err.count("\n") == 1 and "larger than the signal" not in " ".join(out.split())


def test_the_command_of_a_regression(capsys, tmp_path):
    asked = write(tmp_path, numbers(1500))
    asked[asked.index("ill")] = "cost"
    columns = {"age": {"bounds": (18, 100)}, "smoker": {"kind": "boolean"}}
    (tmp_path / "public.json").write_text(json.dumps(columns))
    asked += ["--total-epsilon", 5, "--public", tmp_path / "public.json", "--trust", "secure-sum"]
    code, out, err = fedepm(capsys, *asked, "--label-bounds", "0,48", "--json")
    told = json.loads(out)["training"]["privacy"]
    assert (code, err) == (0, "") and "secure sums only" in told["guarantee"]
    code, _, err = fedepm(capsys, *asked, "--label-bounds", 3)
    assert code == 2 and "--label-bounds must be LOW,HIGH, got '3'" in err


@pytest.mark.parametrize("options, message", [
    (["--total-epsilon", 1], "--public must be given with --total-epsilon: a JSON file that"),
    (["--privacy-delta", 0], "--total-epsilon must be given with --privacy-delta"),
    (["--public", "public.json"], "--total-epsilon must be given with --public"),
    (["--total-epsilon", 1, "--public", "public.json", "--privacy-delta", 2],
     "--privacy-delta must be"),
    (["--total-epsilon", 1, "--public", "nowhere.json"], "no file at nowhere.json"),
    (["--total-epsilon", 1, "--public", "table.csv"], "public must be a file of JSON"),
    (["--total-epsilon", 1, "--public", "public.json", "--drop", "age"], "public must say all"),
    (["--total-epsilon", 1, "--public", "list.json"],
     "--public must declare columns, list.json does not: columns must be a mapping"),
])  # fmt: skip
def test_the_command_refuses(capsys, tmp_path, monkeypatch, options, message):
    few = {name: values[:40] for name, values in TABLE.items()}
    asked = write(tmp_path, few)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[1]")
    code, _, err = fedepm(capsys, *asked, *options)
    assert code != 0 and message in " ".join(err.split()).replace("total_epsilon", "total-epsilon")


def test_the_values_of_the_label_are_declared_or_said_to_be_the_rows(capsys, tmp_path):
    seen = np.where(TABLE["ill"] == 1, "ill", "well")
    given = {**TABLE, "ill": seen}
    of_rows = "the values of the label, as the rows have them, and the clients' names"
    declared = of_rows.replace("the rows have them", "declared")
    assert of_rows in private(given).training["privacy"]["public"]
    assert declared in private().training["privacy"]["public"]  # 0 and 1
    model = private(given, classes=["well", "ill"], objective="logistic")
    assert declared in model.training["privacy"]["public"] and model.classes == ("well", "ill")
    # A value that no row has is a class all the same, and one more value is refused.
    three = private(given, classes=["well", "ill", "dead"])
    assert three.classes == ("well", "ill", "dead") and len(three.w) == 3
    with pytest.raises(ValueError, match=r"'ill' must be one of the classes .* got 'ill'"):
        private(given, classes=["well", "dead"])
    for wrong, text in ((["well"], "two different values"), ("well,ill", "sequence of values")):
        with pytest.raises((ValueError, TypeError), match=f"classes must be .*{text}"):
            private(given, classes=wrong)
    with pytest.raises(ValueError, match="classes needs total_epsilon"):
        fit(given, "ill", "hospital", classes=["well", "ill"])


def test_levels_that_were_not_declared_are_told_as_what_is_not_released():
    given = {**TABLE, "smoker": np.where(TABLE["smoker"] == "ex", "former", TABLE["smoker"])}
    with pytest.warns(UserWarning, match=r"not declared, 'former': .* this is not released"):
        private(given)


def test_columns_of_which_bounds_alone_are_known_are_learned_first():
    prepared = Preparation.public(
        COLUMNS | {"smoker": {"levels": ["no", "yes", "ex"], "missing": True}}
    )
    back = coordinates(prepared)
    low, high = bounds_of(prepared, back)
    # Age within two quarters of its range; weight known; levels of four, a column each; urban.
    assert (low[0], high[0]) == (-2, 2) and (low[1], high[1]) == (-np.inf, np.inf)
    ends = (np.array([0, 1]) - 0.25) / math.sqrt(0.25 * 0.75)
    np.testing.assert_allclose([low[2:5], high[2:5]], np.repeat(ends[:, None], 3, axis=1))
    assert (low[5], high[5]) == (-1, 1) and (low[6], high[6]) == (1, 1)
    # Without an intercept numbers are where they are.
    alone = Preparation.public(COLUMNS, intercept=False)
    low, high = bounds_of(alone, coordinates(alone))
    np.testing.assert_allclose([low[2], high[2]], [0, 1 / math.sqrt(2 / 9)])
    # A column whose values are few within its bounds is told apart by its coefficient's noise: 17
    # times as much as a rule, but what of its variance is noise differs; of 73 runs two had 9.
    given = TABLE | {"age": 18 + TABLE["age"] / 50}
    noise = private(given, epsilon=3.0).training["privacy"]["noise"]
    assert noise["age"] > 4 * private(epsilon=3.0).training["privacy"]["noise"]["age"]
    known = {"age": {"mean": 55, "sd": 12}, "weight": {"mean": 80, "sd": 12}}
    model = private(preparation=Preparation.public(known))
    assert model.training["sent"]["preparation"] == 6  # second moments, and no means
