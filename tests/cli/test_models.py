"""``fedepm fit``, ``predict`` and ``evaluate`` do what the functions of the same names do."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from commands import fedepm
from full_disk import full
from hospitals import LABELS, columns_for, hospitals
from pseudo_huber import PseudoHuber

from fedepm_fast import Model, ScalarLoss, evaluate, fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of a training and of a later year, and a model of the first."""
    folder = tmp_path_factory.mktemp("models")
    frame = pandas.DataFrame(columns_for(hospitals(700, seed=1), "logistic"))
    frame[:500].to_csv(folder / "table.csv", index=False)
    frame[500:].to_csv(folder / "new.csv", index=False, sep=";", decimal=",", na_rep="-99")
    fit(frame[:500], "outcome", "hospital").save(folder / "model.json")
    return folder


@pytest.fixture
def options(folder):
    return (folder / "table.csv", "--label", "outcome", "--client-column", "hospital")


NEW = ("--decimal", ",", "--na", "-99")


def the_table(folder):
    return pandas.read_csv(folder / "table.csv")


def test_fit_prints_the_model_and_writes_it(capsys, folder, options, tmp_path):
    out, plot = tmp_path / "model.json", tmp_path / "model.png"
    code, text, err = fedepm(
        capsys, "fit", *options, "--holdout", 0.25, "--seed", 3, "--out", out, "--plot", plot
    )
    assert (code, err) == (0, "")
    model = fit(the_table(folder), "outcome", "hospital", holdout=0.25, seed=3)
    np.testing.assert_allclose(Model.load(out).coef, model.coef, rtol=1e-12)
    assert text == f"{Model.load(out)}\nwrote model.json, model.png in {tmp_path}\n"
    assert "What federation brings" in text
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_tables_are_read_as_that_of_the_fit(capsys, folder, tmp_path):
    out, table = tmp_path / "model.json", folder / "new.csv"
    told = (table, "--label", "outcome", "--client-column", "hospital", "--separator", ";", *NEW)
    assert fedepm(capsys, "fit", *told, "--out", out)[0] == 0
    model = Model.load(out)
    assert model.training["read"] == {"separator": ";", "na": ["-99"], "decimal": ","}
    frame = pandas.read_csv(table, sep=";", decimal=",", na_values=["-99"])
    _, predicted, err = fedepm(capsys, "predict", out, table)
    assert err == "" and predicted == fedepm(capsys, "predict", out, table, *NEW)[1]
    np.testing.assert_array_equal(model.predict(table), model.predict(frame))
    assert model.score(str(table)) == model.score(frame)
    assert fedepm(capsys, "evaluate", out, table)[0] == 0
    frame.to_csv(tmp_path / "plain.csv", index=False)
    plain = ("--separator", ",", "--decimal", ".")
    assert fedepm(capsys, "predict", out, tmp_path / "plain.csv", *plain)[1] == predicted
    frame.to_parquet(tmp_path / "new.parquet")
    assert fedepm(capsys, "predict", out, tmp_path / "new.parquet")[1] == predicted


def test_a_full_disk_leaves_nothing(capsys, folder, options, tmp_path):
    out = tmp_path / "out.json"
    with full(500):
        code, _, err = fedepm(capsys, "fit", *options, "--out", out)
        assert (code, err.splitlines()[-1]) == (
            1, f"error: {out} cannot be written: File too large, nothing was written",
        )  # fmt: skip
        code, _, err = fedepm(
            capsys, "predict", folder / "model.json", folder / "table.csv", "--out", out
        )
        assert code == 1 and err.endswith(
            "cannot be written: File too large, nothing was written\n"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_weight_is_named_by_its_line(capsys, tmp_path):
    (tmp_path / "t.csv").write_text("x,y,w\n1,0,1\n\n2,1,-3\n")
    weighted = ("--label", "y", "--sample-weight", "w")
    _, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *weighted)
    assert err == "error: --sample-weight must be at least 0, got -3 in line 4\n"


def test_json_has_the_statistics_of_every_coefficient(capsys, folder, options):
    code, out, _ = fedepm(
        capsys, "fit", *options, "--errors", "clustered", "--level", 0.9, "--json"
    )
    record = json.loads(out)
    model = fit(the_table(folder), "outcome", "hospital")
    assert code == 0 and record["errors"] == "clustered"
    told = model.statistics("clustered", 0.9)
    assert [row["column"] for row in record["coefficients"]] == list(model.feature_names)
    for name, values in told.items():
        np.testing.assert_allclose([row[name] for row in record["coefficients"]], values, rtol=1e-9)
    assert record["classes"] == ["alive", "died"] and record["notes"] == []
    assert record["inference"]["aic"] == pytest.approx(model.inference.aic)


def test_options_are_arguments_of_fit(capsys, folder, options, tmp_path):
    command = (*options, "--quiet", "--out", tmp_path / "m.json")
    table = the_table(folder)
    for given, wanted in (
        (("--beta", 0.1, "--client-weight", "equal"), {"beta": 0.1, "client_weight": "equal"}),
        (("--positive", "alive"), {"positive": "alive"}),
        (("--class-weight", "balanced"), {"class_weight": "balanced"}),
        (
            ("--objective", "squared_hinge", "--beta", 0.1),
            {"objective": "squared_hinge", "beta": 0.1},
        ),
        (("--start", folder / "model.json"), {}),
    ):
        code, text, _ = fedepm(capsys, "fit", *command, *given)
        assert code == 0 and text.startswith("<Model")
        want = fit(table, "outcome", "hospital", **wanted)
        found = Model.load(tmp_path / "m.json")
        np.testing.assert_allclose(found.coef, want.coef, rtol=1e-6)
        assert found.classes == want.classes
    code, _, _ = fedepm(
        capsys, "fit", *command, "--drop", "dose", "--drop", "age", "--kind", "sex=category",
        "--reference", "sex=m",
    )  # fmt: skip
    names = Model.load(tmp_path / "m.json").feature_names
    assert code == 0 and names == ("sex=f", "(intercept)")
    age = folder / "table.csv", "--label", "age", "--clients", 4, "--out", tmp_path / "m.json"
    code, _, _ = fedepm(capsys, "fit", *age, "--objective", "huber", "--delta", 5)
    found = Model.load(tmp_path / "m.json")
    assert code == 0 and found.objective.delta == 5.0 and len(found.clients) == 4


def test_predictions_are_a_row_for_each(capsys, folder, tmp_path):
    command = ("predict", folder / "model.json", folder / "new.csv", *NEW)
    code, out, err = fedepm(capsys, *command)
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(out.splitlines()))
    model = Model.load(folder / "model.json")
    new = pandas.read_csv(folder / "new.csv", sep=";", decimal=",", na_values="-99")
    assert [row["prediction"] for row in rows] == list(model.predict(new))
    found = [[float(row[f"probability_{c}"]) for c in model.classes] for row in rows]
    np.testing.assert_allclose(found, model.predict_proba(new), rtol=1e-12)
    code, text, _ = fedepm(
        capsys, *command, "--keep", "hospital", "--keep", "age", "--out", tmp_path / "p.csv"
    )
    assert (code, text) == (0, f"wrote 200 predictions of outcome to {tmp_path / 'p.csv'}\n")
    kept = pandas.read_csv(tmp_path / "p.csv")
    assert list(kept)[:3] == ["hospital", "age", "prediction"]
    assert list(kept["hospital"]) == list(new["hospital"])
    np.testing.assert_allclose(kept["age"], new["age"])


def test_identifiers_are_kept_as_they_are_written(capsys, folder, tmp_path):
    lines = (folder / "table.csv").read_text().splitlines()
    lines = [f"{'id' if not k else f'{k:04d}'},{line}" for k, line in enumerate(lines)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    code, out, err = fedepm(
        capsys, "predict", folder / "model.json", tmp_path / "t.csv", "--keep", "id"
    )
    assert (code, err) == (0, "")
    assert [line.partition(",")[0] for line in out.splitlines()[1:3]] == ["0001", "0002"]
    options = ("--label", "outcome", "--client-column", "hospital", "--quiet")
    code, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *options)
    assert code == 0 and err.startswith("warning: column 'id' has another whole number in every")
    assert "--drop" in err and err.count("\n") == 1
    code, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *options, "--drop", "id")
    assert (code, err) == (0, "")


def test_levels_in_any_case_are_one_if_asked(capsys, folder, tmp_path):
    text = (folder / "table.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace(",m,", ",M,", 30))
    options = ("--label", "outcome", "--client-column", "hospital", "--quiet")
    code, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *options)
    assert code == 0 and "--ignore-case" in err
    out = tmp_path / "m.json"
    done = fedepm(capsys, "fit", tmp_path / "t.csv", *options, "--ignore-case", "--out", out)
    assert (done[0], done[2]) == (0, "")
    assert Model.load(out).coefficients == Model.load(folder / "model.json").coefficients


def test_labels_in_any_case_are_told_and_one_if_asked(capsys, folder, tmp_path):
    text = (folder / "table.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace(",died,", ",DIED,", 30))
    options = ("--label", "outcome", "--client-column", "hospital", "--quiet")
    code, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *options)
    assert code == 0 and "the label 'outcome' has values that differ in case only" in err
    options = (*options, "--ignore-case", "--positive", "Died", "--out", tmp_path / "m.json")
    code, _, err = fedepm(capsys, "fit", tmp_path / "t.csv", *options)
    assert (code, err) == (0, "")
    model = Model.load(tmp_path / "m.json")
    assert model.classes == ("alive", "died")
    assert model.coefficients == Model.load(folder / "model.json").coefficients
    code, out, _ = fedepm(capsys, "evaluate", tmp_path / "m.json", tmp_path / "t.csv", "--json")
    assert code == 0 and json.loads(out)["overall"]["rows"] == 500


def test_evaluate_prints_measures_of_clients(capsys, folder, tmp_path):
    command = ("evaluate", folder / "model.json", folder / "new.csv", *NEW)
    plot = tmp_path / "e.svg"
    code, out, err = fedepm(capsys, *command, "--plot", plot)
    assert (code, err) == (0, "") and plot.is_file()
    model = Model.load(folder / "model.json")
    new = pandas.read_csv(folder / "new.csv", sep=";", decimal=",", na_values="-99")
    want = evaluate(model, new)
    assert str(want) in out and out.startswith("new.csv, by the model model.json, <Model logistic")
    code, out, _ = fedepm(capsys, *command, "--json")
    found = json.loads(out)
    for name, value in want.overall.items():
        assert found["overall"][name] == pytest.approx(value, rel=1e-9)
    assert list(found["clients"]) == list(want.clients)
    code, out, _ = fedepm(capsys, *command, "--client-column", "sex", "--json")
    assert list(json.loads(out)["clients"]) == ["f", "m"]
    code, out, _ = fedepm(capsys, *command, "--sample-weight", "dose", "--json")
    weighted = evaluate(model, new, sample_weight="dose")
    found = json.loads(out)
    assert found["weighted"] and found["overall"] == pytest.approx(weighted.overall, rel=1e-9)
    assert found["overall"]["auc"] != pytest.approx(want.overall["auc"], rel=1e-6)


def test_warnings_are_told_and_not_raised(capsys, folder, tmp_path, monkeypatch):
    rows = (folder / "table.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([rows[0], "50,x,1.5,alive,h1", *rows[1:40]]))
    code, out, err = fedepm(capsys, "predict", folder / "model.json", tmp_path / "new.csv")
    assert code == 0 and len(out.splitlines()) == 41
    assert err.startswith("warning: ") and "'x'" in err and err.count("\n") == 1
    tells = [rows[0] + ",tells", *(f"{row},{int('died' in row)}" for row in rows[1:])]
    (tmp_path / "tells.csv").write_text("\n".join(tells))
    code, out, err = fedepm(
        capsys, "fit", tmp_path / "tells.csv", "--label", "outcome", "--client-column", "hospital"
    )
    assert code == 0 and err.startswith("warning: the rows have no best coefficients: tells can")
    # Once, and on standard error, whatever else is printed, and wherever to.
    columns = ("--label", "outcome", "--client-column", "hospital")
    for terminal in (False, True):
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        for more in ((), ("--quiet",), ("--json",)):
            code, out, err = fedepm(capsys, "fit", tmp_path / "tells.csv", *columns, *more)
            assert code == 0 and err.count("no best coefficients") == 1
            assert "warning" not in out and err.startswith("warning: ")
        code, out, err = fedepm(capsys, "fit", folder / "table.csv", *columns, "--max-rounds", 1)
        assert code == 1 and err.startswith("error: the fit did not converge in 1 round: ")
        assert "did not converge" not in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--label", "dead"), "--label must be a column of the table, got 'dead'"),
        (
            ("--client-column", "clinic"),
            "--client-column must be a column of the table, got 'clinic'",
        ),
        (("--drop", "weight"), "--drop must be a column of the table, got 'weight'"),
        (("--kind", "age"), "--kind must be COLUMN=VALUE, got 'age'"),
        (("--errors", "hc3"), "--errors must be one of 'wald', 'robust', 'clustered', got 'hc3'"),
        (("--level", 95), "--level must be"),
        (("--clients", 5), "--clients and --client-column exclude each other"),
        (("--holdout", 2), "--holdout must be"),
        (("--delta", 2), "--delta is for --objective huber"),
        (("--objective", "ridge"), "--objective must be one of"),
        (("--sample-weight", "weight"), "--sample-weight must be a column of the table"),
        (("--out", "missing/model.json"), "--out must be a file to write to"),
        (("--plot", "model.gif"), "--plot's suffix must be one of"),
        (("--start", "nothing.json"), "no file of a model at nothing.json"),
        (("--encoding", "utf-99"), "--encoding must be one that Python knows"),
        (("--na", "x", "--format", "parquet"), "--na is for csv files"),
    ],
)
def test_mistakes_are_named_as_options(capsys, options, change, message):
    code, out, err = fedepm(capsys, "fit", *options, *change)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}"), err


@pytest.mark.parametrize("make", ["same", "through/../{}", "symlink_to", "hardlink_to"])
def test_no_file_that_is_read_is_written_over(capsys, folder, tmp_path, make):
    """Neither by its own name nor by another one."""
    (tmp_path / "through").mkdir()
    for command, read, what in (
        (("fit",), "table.csv", "table"),
        (("predict", tmp_path / "model.json"), "table.csv", "table"),
        (("predict", tmp_path / "model.json"), "model.json", "model"),
    ):
        for name in ("table.csv", "model.json"):
            (tmp_path / name).write_bytes((folder / name).read_bytes())
        out = tmp_path / make.format(read)
        if make.endswith("_to"):
            out = tmp_path / f"{command[0]}-{what}"
            getattr(out, make)(tmp_path / read)
        elif make == "same":
            out = tmp_path / read
        label = ("--label", "outcome") if command[0] == "fit" else ()
        given = (*command, tmp_path / "table.csv", *label, "--out", out)
        code, text, err = fedepm(capsys, *given)
        told = f"error: --out must be another file than the {what}, got {out}\n"
        assert (code, text, err) == (2, "", told)
        assert (tmp_path / read).read_bytes() == (folder / read).read_bytes()


def test_a_figure_is_not_written_over_what_is_read(capsys, folder, tmp_path):
    table, model = tmp_path / "table.png", tmp_path / "model.png"
    table.write_bytes((folder / "table.csv").read_bytes())
    model.write_bytes((folder / "model.json").read_bytes())
    fitting = ("fit", table, "--format", "csv", "--label", "outcome")
    measuring = ("evaluate", model, table, "--format", "csv")
    for command, plot, what in (
        (fitting, table, "table"),
        (measuring, table, "table"),
        (measuring, model, "model"),
    ):
        code, text, err = fedepm(capsys, *command, "--plot", plot)
        told = f"error: --plot must be another file than the {what}, got {plot}\n"
        assert (code, text, err) == (2, "", told)


def test_a_kind_of_errors_that_cannot_be_had(capsys, folder):
    code, _, err = fedepm(
        capsys, "fit", folder / "table.csv", "--label", "outcome", "--errors", "clustered"
    )
    assert (
        code == 2 and err == "error: --errors 'clustered' cannot be had: there is one client only\n"
    )


def test_files_that_are_not_what_they_should_be(capsys, folder, tmp_path):
    for command in ("predict", "evaluate"):
        code, _, err = fedepm(capsys, command, tmp_path / "m.json", folder / "new.csv")
        assert code == 2 and err.startswith("error: no file of a model at")
        code, _, err = fedepm(capsys, command, folder / "new.csv", folder / "new.csv")
        assert code == 2 and "is not a complete file of a model" in err
        code, _, err = fedepm(capsys, command, folder / "model.json", tmp_path / "new.csv")
        assert code == 2 and err.startswith("error: no data file at")
        code, _, err = fedepm(capsys, command, folder / "model.json", "/dev/null")
        assert code == 2 and err.startswith("error: /dev/null must be a regular file")
    (tmp_path / "few.csv").write_text("age,sex\n50,f\n")
    code, _, err = fedepm(capsys, "predict", folder / "model.json", tmp_path / "few.csv")
    assert code == 2 and "'dose'" in err


def test_models_of_losses_of_ones_own(folder, tmp_path):
    table, path = tmp_path / "stays.csv", tmp_path / "own.json"
    frame = pandas.DataFrame(columns_for(hospitals(200), "least_squares"))
    frame.to_csv(table, index=False)

    def predicted(*python):
        done = subprocess.run(
            [sys.executable, *python, "predict", path, table],
            capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    by_functions = ScalarLoss(
        value=lambda t, y: 0.5 * (t - y) ** 2, gradient=lambda t, y: t - y, name="own_square"
    )
    for loss in (by_functions, PseudoHuber()):
        model = fit(frame, LABELS["least_squares"], "hospital", objective=loss)
        model.save(path)
        wanted = pandas.DataFrame({"prediction": model.predict(frame)}).to_csv(index=False)
        code, text, err = predicted("-m", "fedepm_fast")
        if loss is by_functions:
            assert (code, text, err) == (0, wanted, "")
    assert code == 2 and err.startswith(
        f"error: {path}: this model is of the loss 'pseudo_huber', which is not defined here"
    )
    code, text, err = predicted("-c", "import pseudo_huber, fedepm_fast.cli as c; c.main()")
    assert (code, text, err) == (0, wanted, "")


def test_a_fit_that_does_not_converge_fails_and_writes_where_it_ended(capsys, options, tmp_path):
    out = tmp_path / "m.json"
    code, text, err = fedepm(capsys, "fit", *options, "--max-rounds", 1, "--out", out)
    assert code == 1 and "not converged in 1 round," in text
    assert err.startswith("error: the fit did not converge in 1 round: the gradient's norm is")
    assert "--max-rounds" in err
    assert not Model.load(out).training["converged"]
    code, text, err = fedepm(capsys, "fit", *options, "--start", out, "--participation", 0.5)
    assert (code, err) == (0, "") and "of 50 % of the clients" in text


def test_the_former_name_of_an_option_is_taken_without_a_word(options, capsys, tmp_path):
    """And errors name the one that the help has."""
    out = {name: tmp_path / f"{name}.json" for name in ("client", "client-column")}
    for name, path in out.items():
        columns = ("--label", "outcome", f"--{name}", "hospital")
        assert fedepm(capsys, "fit", options[0], *columns, "--quiet", "--out", path)[::2] == (0, "")
        command = ("evaluate", path, options[0], f"--{name}", "sex", "--json")
        assert fedepm(capsys, *command)[::2] == (0, "")
        code, _, err = fedepm(
            capsys, "fit", options[0], "--label", "outcome", f"--{name}", "clinic"
        )
        assert code == 2 and "--client-column must be a column of the table, got 'clinic'" in err
    assert len({path.read_text() for path in out.values()}) == 1
    for name in ("fit", "evaluate", "run", "tune", "compare"):
        _, help_, _ = fedepm(capsys, name, "--help")
        assert "--client-column" in help_ and "--client " not in help_
