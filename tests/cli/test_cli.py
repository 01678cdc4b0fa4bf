"""The command line: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import fedepm
from full_disk import full

from fedepm_fast import FedEPM, Result, _warm, datasets, kernels, make_problem, run
from fedepm_fast._common.validation import ArgumentValueError
from fedepm_fast.cli import _common as _cli_common
from fedepm_fast.cli._compiling import USUAL, _Line
from fedepm_fast.cli._names import with_option_names


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    path = tmp_path / "table.csv"
    np.savetxt(
        path,
        np.column_stack([np.arange(60) % 4, X, X.sum(axis=1) > 0]),
        delimiter=",",
        header="who,a,b,c,y",
        comments="",
    )
    return path


def test_run_without_arguments_is_fedepm_on_adult(capsys):
    code, out, err = fedepm(capsys, "run")
    data = datasets.adult(clients=100, seed=0)
    result = run(FedEPM(local_steps=12), data, seed=0)
    assert (code, err) == (0, "")
    timeless = [line for line in str(result).splitlines() if "time" not in line]
    *lines, last = [line for line in out.splitlines() if "time" not in line]
    assert lines == timeless and last.startswith("  --algorithm curvature f(x)/m = 0.565905 ")


def test_json_is_the_result(capsys):
    code, out, err = fedepm(
        capsys, "run", "--clients", 20, "--seed", 3, "--epsilon", 0.5, "--local-steps", 4,
        "--participation", 0.3, "--json", "--check-optimum",
    )  # fmt: skip
    assert (code, err) == (0, "")
    record = json.loads(out)
    data = datasets.adult(clients=20, seed=3)
    algorithm = FedEPM(local_steps=4, participation=0.3, epsilon=0.5)
    result = run(algorithm, data, seed=3)
    assert record["x"] == result.x.tolist()
    assert record["rounds"] == result.rounds
    optimum = make_problem(algorithm, data).optimum(method="newton").value / 20
    assert record["optimum"] == pytest.approx(optimum, rel=1e-12)
    assert record["gap_percent"] == pytest.approx(100 * (result.mean_objective / optimum - 1))


def test_out_holds_result_history_summary_and_figure(capsys, tmp_path):
    out = tmp_path / "new"
    code, text, _ = fedepm(capsys, "run", "--clients", 50, "--rounds", 3, "--out", out, "--quiet")
    assert code == 0
    assert text.startswith("<Result fedepm")
    assert "wrote result.npz, history.csv, summary.json, history.png, history.svg in" in text
    assert sorted(p.name for p in out.iterdir()) == [
        "history.csv", "history.png", "history.svg", "result.npz", "summary.json",
    ]  # fmt: skip
    result = Result.load(out / "result.npz")
    assert json.loads((out / "summary.json").read_text())["x"] == result.x.tolist()
    history = np.genfromtxt(out / "history.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(history["objective"], result.history["objective"])


def test_own_data(capsys, table):
    code, out, _ = fedepm(
        capsys, "run", "--data", table, "--client-column", "who", "--rounds", 2, "--json"
    )
    record = json.loads(out)
    assert code == 0
    assert (
        record["data"]["description"]
        == "table.csv: 60 rows, 3 features, 4 clients of 15 to 15 rows; label column y; client "
        "column who; columns scaled to unit norm"
    )
    assert record["data"]["label_column"] == "y" and record["data"]["client_column"] == "who"
    for partition, more in (("equal", ()), ("dirichlet", ("--concentration", 5))):
        code, out, _ = fedepm(
            capsys, "run", "--data", table, "--partition", partition, "--clients", 3, *more,
            "--rounds", 1, "--json",
        )  # fmt: skip
        assert json.loads(out)["data"]["partition"]["name"] == partition


def test_every_command_says_what_it_made_of_a_file(capsys, tmp_path):
    rng = np.random.default_rng(2)
    lines = [
        f"{a:.3f}\t{b:.3f}\t0{i % 3}\t{a > b}" for i, (a, b) in enumerate(rng.normal(size=(60, 2)))
    ]
    (tmp_path / "rows").write_text("\n".join(lines))
    data = (
        "--data", tmp_path / "rows", "--format", "csv", "--no-header", "--separator", "tab",
        "--client-column", "2", "--label", 3, "--noise", "none", "--mu0", 50, "--beta", 0.1,
    )  # fmt: skip
    said = "rows: 60 rows, 2 features, 3 clients of 20 to 20 rows; label column 3; client column 2"
    for command, *more in (
        ("run", "--rounds", 1),
        ("compare", "--rounds", 1, "--algorithms", "fedepm,sfedavg"),
        ("tune", "--trials", 1, "--folds", 2, "--rounds", 1),
    ):
        code, out, err = fedepm(capsys, command, *data, *more)
        assert (code, err) == (0, "") and said in " ".join(out.split())
        code, out, _ = fedepm(capsys, command, *data, *more, "--json")
        told = json.loads(out)["data"]
        assert (told["description"] if command == "run" else told).startswith(said)
    code, _, err = fedepm(capsys, "run", "--data", tmp_path / "rows")
    assert code == 2 and "rows: --format is not known from its name" in err
    code, _, err = fedepm(capsys, "run", "--data", "adult", "--no-header")
    assert code == 2 and err == "error: --header is for a file, not for adult\n"


def test_clients_named_in_the_file_are_the_split_unless_told_otherwise(capsys, tmp_path):
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "t.npz",
        X=rng.normal(size=(60, 3)), y=np.arange(60) % 2, clients=np.arange(60) // 20,
    )  # fmt: skip
    command = ("run", "--data", tmp_path / "t.npz", "--rounds", 1, "--json")
    found = [
        json.loads(fedepm(capsys, *command, *more)[1])["data"]["description"]
        for more in ((), ("--clients", 4), ("--partition", "equal", "--clients", 5))
    ]
    assert "3 clients of 20 to 20 rows" in found[0]
    assert "4 clients" in found[1]
    assert "5 clients of 12 to 12 rows" in found[2]


@pytest.mark.parametrize("algorithm", ["sfedavg", "sfedprox"])
def test_other_algorithms(capsys, algorithm):
    code, out, _ = fedepm(
        capsys, "run", "--algorithm", algorithm, "--clients", 10, "--rounds", 2, "--json"
    )
    assert code == 0
    assert json.loads(out)["parameters"]["name"] == algorithm


def test_synthetic_regression(capsys):
    code, out, _ = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", "least_squares", "--clients", 5,
        "--noise", "none", "--mu0", 3, "--rounds", 3, "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["accuracy"] is None


@pytest.mark.parametrize(
    ("objective", "options", "expected"),
    [
        ("multinomial", (), {"classes": 3}),
        ("huber", ("--huber-delta", 0.5), {"delta": 0.5}),
        ("squared_hinge", (), {}),
    ],
)
def test_other_objectives(capsys, objective, options, expected):
    code, out, _ = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", objective, "--clients", 5, *options,
        "--noise", "none", "--mu0", 20, "--rounds", 3, "--json",
    )  # fmt: skip
    assert code == 0
    record = json.loads(out)
    assert record["objective"]["name"] == objective
    assert {name: record["objective"][name] for name in expected} == expected
    assert (record["accuracy"] is None) == (objective == "huber")


def test_a_file_of_classes(capsys, tmp_path):
    rows = [f"{a},{b},{'xyz'[(a + b) % 3]}" for a in range(6) for b in range(5)]
    (tmp_path / "t.csv").write_text("a,b,kind\n" + "\n".join(rows) + "\n")
    code, out, _ = fedepm(
        capsys, "run", "--data", tmp_path / "t.csv", "--objective", "multinomial", "--clients", 3,
        "--partition", "equal", "--noise", "none", "--mu0", 200, "--rounds", 2,
    )  # fmt: skip
    assert code == 0
    assert "on 3 clients, 2 features, 3 classes" in out and "x -> 0, y -> 1, z -> 2" in out


def test_compare(capsys):
    code, out, err = fedepm(capsys, "compare", "--clients", 50, "--seed", 0, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    runs = {r["algorithm"]: r for r in record["runs"]}
    data = datasets.adult(clients=50, seed=0)
    alone = run(FedEPM(), data, seed=0)
    assert runs["fedepm"]["x"] == alone.x.tolist()
    assert record["optimum"] == make_problem(FedEPM(), data).optimum().value / 50
    assert all(0 <= r["gap_percent"] < 1.5 for r in runs.values())
    assert runs["fedepm"]["rounds"] < runs["sfedprox"]["rounds"] < runs["sfedavg"]["rounds"]


def test_compare_prints_one_table_within_80_columns_and_writes(capsys, tmp_path):
    (tmp_path / "plot").mkdir()
    code, out, _ = fedepm(
        capsys, "compare", "--clients", 10, "--rounds", 2, "--trial", 3, "--lam", 1e-5,
        "--learning-rate", 1.5, "--out", tmp_path, "--plot", tmp_path / "plot" / "one.svg",
    )  # fmt: skip
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines[:-2])) <= 80 and "\x1b" not in out and "…" not in out
    cells = {line[:15].strip(): line[15:].split() for line in lines}
    results = [Result.load(tmp_path / f"{name}.npz") for name in ("fedepm", "sfedprox", "sfedavg")]
    assert ["FedEPM", "SFedProx", "SFedAvg"] in [line.split() for line in lines]
    assert "logistic, no intercept added, beta 0.001 (weight beta/d per client)" in lines
    assert "accuracy of the training rows; largest class 0.7522" in lines
    assert cells["f(x)/m"] == [f"{r.mean_objective:.6f}" for r in results]
    assert cells["rounds (CR)"] == ["2", "2", "2"]
    assert cells["accuracy"] == [f"{r.accuracy:.4f}" for r in results]
    optimum = make_problem(FedEPM(), datasets.adult(clients=10)).optimum(method="newton").value / 10
    gaps = [100 * (r.mean_objective / optimum - 1) for r in results]
    assert cells["above optimum"] == [c for gap in gaps for c in (f"{gap:.3f}", "%")]
    assert f"f*/m = {optimum:.6f}" in out
    assert [r.trial for r in results] == [3, 3, 3]
    assert results[0].algorithm["lam"] == 1e-5
    assert [r.algorithm["learning_rate"] for r in results[1:]] == [1.5, 1.5]
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    names = {f"{r.algorithm['name']}.{s}" for r in results for s in ("npz", "csv")}
    names |= {"summary.json"}
    assert written == names | {"compare.png", "compare.svg", "plot/one.svg"}
    assert lines[-2:] == [
        "wrote summary.json, fedepm.npz, fedepm.csv, sfedprox.npz, sfedprox.csv, sfedavg.npz, "
        f"sfedavg.csv, compare.png, compare.svg in {tmp_path}",
        f"wrote one.svg in {tmp_path / 'plot'}",
    ]


def test_compare_quiet_is_one_line_per_run(capsys):
    code, out, err = fedepm(capsys, "compare", "--clients", 50, "--rounds", 2, "--quiet")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "<Result fedepm", "<Result sfedprox", "<Result sfedavg",
    ]  # fmt: skip
    assert all(line.endswith("% above the optimum") for line in out.splitlines())


def test_an_optimum_of_zero_has_no_relative_gap(capsys, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    table = np.column_stack([X, X.sum(axis=1)])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,y", comments="")
    code, out, _ = fedepm(
        capsys, "run", "--data", tmp_path / "t.csv", "--objective", "least_squares", "--beta", 0,
        "--clients", 3, "--noise", "none", "--mu0", 50, "--rounds", 1, "--check-optimum", "--json",
    )  # fmt: skip
    record = json.loads(out)
    assert code == 0
    assert record["gap_percent"] is None and abs(record["optimum"]) < 1e-12


def test_the_live_table_keeps_rounds_and_costs_a_run_nothing():
    from fedepm_fast.cli._run import RoundsTable

    data = datasets.adult(clients=10)
    table = RoundsTable("fedepm")
    assert table.render().row_count == 0
    draws = []
    table.render = lambda: draws.append(1)
    result = run(FedEPM(), data, rounds=12, callback=table)
    assert draws == []  # a thread draws, never the run
    del table.render
    shown = [list(column.cells) for column in table.render().columns]
    rounds = range(13 - RoundsTable.SHOWN, 13)
    assert shown[0] == [str(tau) for tau in rounds]
    assert shown[1] == [f"{result.history['objective'][tau] / 10:.6f}" for tau in rounds]
    assert shown[3] == [f"{result.history['accuracy'][tau]:.4f}" for tau in rounds]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--participation", "0"], "--participation must be a finite number in (0, 1]"),
        (["--participation", "1.5"], "--participation must be"),
        (["--epsilon", "-1"], "--epsilon must be"),
        (["--lam", "-1"], "--lam must be"),
        (["--eta", "-1"], "--eta must be"),
        (["--eta", "nan"], "--eta must be"),
        (["--local-steps", "0"], "--local-steps must be an integer >= 1, got 0"),
        (["--local-steps", "x"], "Invalid value for '--local-steps'"),
        (["--preset", "paper"], "--preset must be one of 'released', 'text', 'private'"),
        (["--algorithm", "sgd"], "--algorithm must be one of"),
        (["--algorithm", "sfedavg", "--lam", "1"], "--lam is not a parameter of sfedavg"),
        (["--noise", "gauss"], "--noise must be one of"),
        (["--stopping", "never"], "--stopping must be one of"),
        (["--rounds", "3", "--stopping", "text"], "--rounds and --stopping exclude each other"),
        (["--learning-rate", "1"], "--learning-rate is not a parameter of fedepm"),
        (["--mu0", "0"], "--mu0 must be"),
        (["--coverage-rounds", "1"], "--coverage-rounds must be at least 2"),
        (["--no-scale"], "--no-scale is for a file or --data synthetic"),
        (["--objective", "least_squares"], "--objective must be of two classes for adult"),
        (["--concentration", "1"], "--concentration is not a parameter of the partition 'random'"),
        (["--data", "synthetic", "--partition", "equal"], "--partition is for a table"),
        (["--data", "a.csv", "--client-column", "a", "--clients", "3"],
         "--clients and --client-column exclude each other"),
        (["--objective", "hinge"], "--objective must be one of"),
        (["--data", "synthetic", "--objective", "poisson"],
         "--objective must not be poisson with synthetic data: its labels are counts"),
        (["--huber-delta", "1"], "--huber-delta is not a parameter of the objective 'logistic'"),
        (["--objective", "huber", "--huber-delta", "0"], "--huber-delta must be"),
        (["--beta", "-1"], "--beta must be"),
        (["--seed", "-1"], "--seed must be"),
        (["--clients", "0"], "--clients must be"),
        (["--clients", "50000"], "--clients must not exceed the number of rows: 50000 > 45222"),
        (["--partition", "magic"], "--partition must be one of"),
        (["--label", "y"], "--label is for a file, not for adult"),
        (["--data", "no/such/file.csv"], "no data file at no/such/file.csv"),
        (["--out", "/proc/nothing"], "--out must be a folder to write to, got /proc/nothing"),
        (["--nonsense"], "No such option"),
        (["extra"], "unexpected extra argument"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_code_2(capsys, arguments, message):
    code, out, err = fedepm(capsys, "run", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err


def test_compare_names_its_own_option(capsys):
    code, _, err = fedepm(capsys, "compare", "--algorithms", "foo")
    assert code == 2 and err.startswith(
        "error: --algorithms must be one of 'curvature', 'fedadmm', "
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("objective must be huber"), "--objective must be huber"),
        (ValueError("a.csv: label is missing"), "a.csv: --label is missing"),
        (ArgumentValueError("label", "names none", "a.csv:"), "a.csv: --label names none"),
        (ValueError("rounds and stopping exclude each other"),
         "--rounds and --stopping exclude each other"),
        (ValueError("fold 0: objective and gradient rose"), "fold 0: objective and gradient rose"),
        (ValueError("storage a.db cannot be used"), "--storage a.db cannot be used"),
        (ValueError("objective rose"), "objective rose"),
        (ValueError("fedepm: local_steps grow"), "fedepm: --local-steps grow"),
    ],
)  # fmt: skip
def test_only_arguments_are_said_as_options(error, said):
    assert with_option_names(error, "tune") == said


def test_bad_data_is_one_line_and_code_2(capsys, tmp_path):
    cases = {
        "nan.csv": ("a,y\n1,0\nnan,1\n", "features must be finite"),
        "labels.csv": (
            "a,y\n1,0\n2,1\n3,2\n",
            "labels of column 'y', which label= (--label) names, must",
        ),
        "empty.csv": ("", "is empty"),
        "few.csv": ("a,y\n1,0\n2,1\n", "few.csv: --clients must not exceed the number of rows: 3"),
        "words.csv": ("a,y\nred,0\nblue,1\n", "; --client-column names who holds a row; "),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_text(content)
        code, out, err = fedepm(capsys, "run", "--data", tmp_path / name, "--clients", 3)
        assert (code, out) == (2, "")
        assert name in err and message in err and err.count("\n") == 1
    (tmp_path / "three.csv").write_text("a,y\n1,0\n2,1\n3,2\n")
    code, _, err = fedepm(capsys, "run", "--data", tmp_path / "three.csv", "--clients", 3)
    assert "(commands: --objective multinomial)" in err
    (tmp_path / "table.csv").write_text("a,y\n1,0\n2,1\n")
    for option in ("--label", "--client-column"):
        code, _, err = fedepm(capsys, "run", "--data", tmp_path / "table.csv", option, "z")
        assert code == 2 and err.startswith(f"error: {option} must be a column of")
    np.savez(tmp_path / "cut.npz", X=np.ones((9, 2)), y=np.arange(9) % 2)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-300])
    code, _, err = fedepm(capsys, "run", "--data", tmp_path / "cut.npz")
    assert code == 2 and "not a complete NumPy file" in err


def test_an_unwritable_out_folder_is_found_before_the_run(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("fedepm_fast.engine.simulate", None)
    code, _, err = fedepm(capsys, "run", "--out", tmp_path / "new", "--participation", 0)
    assert code == 2 and not (tmp_path / "new").exists()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        code, _, err = fedepm(capsys, "run", "--out", out)
        assert code == 2 and "--out must be a folder to write to" in err
    code, _, err = fedepm(capsys, "run", "--out", tmp_path / "a" / "b")
    assert code == 2 and "--out must be a folder" in err and f"no folder {tmp_path / 'a'}" in err
    assert not (tmp_path / "a").exists()
    for folder in ("file", "a"):
        code, _, err = fedepm(capsys, "compare", "--plot", tmp_path / folder / "a.png")
        assert code == 2 and "--plot must be a file to write to" in err and "no folder" in err
    assert not (tmp_path / "a").exists()
    code, _, err = fedepm(capsys, "compare", "--plot", tmp_path / "a.doc")
    assert code == 2 and "suffix must be one of" in err
    (tmp_path / "folder.png").mkdir()
    code, _, err = fedepm(capsys, "compare", "--plot", tmp_path / "folder.png")
    assert code == 2 and err.startswith("error: --plot must be a file")


def test_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    hint = "pip install 'fedepm-fast[plots]'"
    code, out, err = fedepm(capsys, "run", "--clients", 50, "--rounds", 1, "--out", tmp_path, "-q")
    assert code == 0 and err.startswith("no figure: ") and hint in err
    assert "wrote result.npz, history.csv, summary.json in" in out
    monkeypatch.setattr("fedepm_fast.engine.simulate", None)  # found before the run
    code, _, err = fedepm(capsys, "compare", "--clients", 5, "--plot", tmp_path / "a.png")
    assert code == 2 and err.startswith("error: ") and hint in err


def test_divergence_is_said_and_code_1(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", "least_squares", "--clients", 5,
        "--algorithm", "sfedavg", "--no-scale", "--json",
    )  # fmt: skip
    assert code == 1
    assert err.startswith("error: the run diverged after round") and err.count("\n") == 1
    assert "--learning-rate of" in err  # what to change, as it is typed
    record = json.loads(out)
    assert record["diverged"] and np.isfinite(record["x"]).all()


def test_what_is_wrong_with_each_run_is_said_in_options(capsys):
    where = ["--data", "synthetic", "--clients", 3, "--features", 4, "--no-scale"]
    papers = ("--algorithms", "fedepm,sfedprox,sfedavg")
    code, _, err = fedepm(capsys, "compare", *where, *papers, "--quiet")
    *warnings, error = err.splitlines()
    assert code == 1 and error.startswith("error: fedepm: the run diverged after round ")
    assert "0.6931 at the start, where it was lowest: the parameters do not fit" in error
    assert "a penalty parameter --mu0 of" in error
    other = "curvature, which has no step to choose, and no noise"
    assert all(line.endswith(f"; or try --algorithms {other}") for line in err.splitlines())
    _, _, alone = fedepm(capsys, "run", *where, "--algorithm", "fedepm", "--quiet")
    assert alone.endswith(f"; or try --algorithm {other}\n")
    code, _, _ = fedepm(capsys, "compare", *where, "--algorithms", "curvature", "--quiet")
    assert code == 0
    assert [line[:30] for line in warnings] == [
        "warning: sfedprox: the run div",
        "warning: sfedavg: the run dive",
    ]
    assert all("a --learning-rate of" in line for line in warnings)
    assert not any("learning_rate" in line for line in warnings)


def test_compare_takes_each_algorithm_once(capsys):
    code, out, err = fedepm(capsys, "compare", "--algorithms", "fedepm,sfedavg, fedepm")
    assert (code, out) == (2, "")
    assert err == "error: --algorithms must be different ones, got fedepm more than once\n"


def test_ending_above_the_start_is_said_and_code_1(capsys):
    code, out, err = fedepm(capsys, "run", "--clients", 3)
    assert code == 1
    assert err.startswith("error: the run ended above its start: f(x)/m = 1.547 after round 3, ")
    assert "0.6931 at the start, 0.5617 at its best (round 2); a penalty parameter --mu0 of" in err
    # The summary has the verdict, and the whole paragraph is not printed twice.
    assert " ".join(out.split()).count("the run ended above its start") == 1
    assert "at its best" not in " ".join(out.split())
    code, _, err = fedepm(capsys, "compare", "--clients", 3, "--json")
    assert code == 1 and err.startswith("error: fedepm: the run ended above its start: ")
    # Far above its best, and below its start: a warning.
    code, out, err = fedepm(capsys, "run", "--clients", 3, "--mu0", 0.5, "--json")
    assert code == 0 and err.startswith("warning: the run ended far above its best: ")
    record = json.loads(out)
    assert (record["diverged"], record["ended_above_best"], record["best_round"]) == (
        False,
        True,
        8,
    )
    assert record["warning"] in record["message"] and record["best_objective"] < 0.5
    private = ["--private", "--total-epsilon", 0.0001, "--noise-seed", 1, "--clients", 3]
    private += ["--seed", 1]
    code, _, err = fedepm(capsys, "run", *private)
    assert code == 1 and "or a larger --total-epsilon make up for the noise" in err


@pytest.mark.parametrize("command", ["run", "compare", "tune"])
def test_help_says_that_no_intercept_is_added(capsys, command):
    text = " ".join(re.sub("[│|]", " ", fedepm(capsys, command, "--help")[1]).split())
    assert "No intercept is added." in text
    assert "for an intercept it needs a column of ones." in text


def test_interrupt_is_code_130(capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedepm_fast.engine.simulate", interrupted)
    code, out, err = fedepm(capsys, "run")
    assert (code, out, err) == (130, "", "interrupted, nothing was written\n")


def test_interrupt_while_writing_says_what_is_whole(capsys, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedepm_fast.Result.to_csv", interrupted)
    code, _, err = fedepm(capsys, "run", "--clients", 5, "--rounds", 1, "--out", tmp_path)
    assert code == 130
    assert err == f"interrupted, only wrote {tmp_path / 'result.npz'}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]


def test_no_memory_is_one_line_and_code_1(capsys, monkeypatch):
    def too_large(*args, **kwargs):
        raise MemoryError("Unable to allocate 149 GiB")

    monkeypatch.setattr("fedepm_fast.engine.simulate", too_large)
    code, out, err = fedepm(capsys, "run", "--clients", 5)
    assert (code, out, err) == (1, "", "error: not enough memory: Unable to allocate 149 GiB\n")


def test_help_and_version(capsys):
    assert fedepm(capsys)[:2] == fedepm(capsys, "--help")[:2]
    code, out, _ = fedepm(capsys, "--help")
    assert code == 0 and "run " in out and "compare " in out
    code, out, _ = fedepm(capsys, "--version")
    assert code == 0 and out.startswith("fedepm 0.")
    code, out, _ = fedepm(capsys, "run", "--help")
    assert code == 0 and "--check-optimum" in out


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom fedepm_fast import cli\n"
        "try: cli.main(['run', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'scipy', 'numba', 'rich', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "fedepm_fast", "run", "--rounds", "1", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("<Result fedepm: f/m=")


#: The command, which ends where a kernel would be compiled, and how many it loads.
COUNTED = """
import sys
from fedepm_fast import kernels
kernels.on_compile(sys.exit)
from fedepm_fast.kernels._cache import KernelCache
load, loaded = KernelCache._load, []
def _load(self, *call):
    loaded.append(load(self, *call))
    return loaded[-1]
KernelCache._load = _load
from fedepm_fast.cli import main
try:
    main()
finally:
    print(sum(one is not None for one in loaded))
"""


def test_warmup_says_when_it_compiles_and_leaves_nothing_to_compile():
    """The real thing, in the tests' own cache: what other tests compiled is loaded."""
    command = [sys.executable, "-m", "fedepm_fast", "warmup"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    compiled = done.stdout.startswith("kernels compiled in ")
    assert compiled or done.stdout.startswith("kernels already compiled, loaded in ")
    assert done.stderr == ("compiling kernels, the first time only ...\n" if compiled else "")
    # In a process of its own: here other tests have registered algorithms and losses of theirs.
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stderr == ""
    assert again.stdout.startswith("kernels already compiled, loaded in ")
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, "run", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("<Result fedepm")
    # What the first run of all compiles, and tells how much of that is done.
    assert done.stdout.endswith(f"\n{USUAL}\n")


@pytest.mark.parametrize(
    ("options", "dtypes"), [([], ("float64",)), (["--float32"], ("float64", "float32"))]
)
def test_warmup_compiles_float32_where_it_is_asked_for(options, dtypes, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(kernels, "warmup", asked.append)
    monkeypatch.setattr(_warm, "warm_runs", lambda: asked.append("runs"))
    code, out, err = fedepm(capsys, "warmup", *options)
    assert (code, err) == (0, "") and out.startswith("kernels already compiled, loaded in ")
    assert asked == [dtypes, "runs"]


def test_a_terminal_is_told_what_is_compiled_and_how_far_it_is(capsys):
    line = _Line()
    module = "fedepm_fast.kernels.losses._packing"
    for kernel in ("mine.make.<locals>._rows", None, f"{module}._fill.<locals>.fill", None):
        line(kernel)
    told = capsys.readouterr().err.split("\r\x1b[2K")
    begun = "compiling kernels (first time only): "
    assert told == [
        f"{begun}1 of about {USUAL}, 0 s: rows",
        f"{begun}2 of about {USUAL}, 0 s: losses, gradients",
        "",
    ]
    assert max(map(len, told)) < 80
    for _ in range(USUAL):
        line("more")
    assert f" {USUAL + 1}, 0 s: more" in capsys.readouterr().err


def test_what_is_compiled_is_shown_in_what_moves_on_the_terminal():
    program = """if True:
        import io, sys, time
        from unittest import mock
        from rich.console import Console
        import rich
        from fedepm_fast.cli import _compiling, _run
        out = io.StringIO()
        rich._console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
        with mock.patch.object(sys, "stderr", out):
            with _run.RoundsTable("fedepm", keep=False) as table:
                _compiling.LINE("make.<locals>.rounds")
                wrote = _compiling.LINE._written
                table.live.refresh()
                _compiling.LINE(None)
                table.live.refresh()
            from rich.progress import Progress
            with Progress(console=rich._console) as progress:
                for name in "one", "two":
                    _compiling.LINE(name)
                    wrote |= _compiling.LINE._written
                    _compiling.LINE(None)
        print(wrote, out.getvalue())
    """
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("False ") and "1 of about 11, 0 s: \x1b[1mrounds" in shown
    assert shown.count("compiling kernels, the first time only ...") == 1


def test_compilation_is_said_once_in_a_process(capsys, monkeypatch):
    from fedepm_fast.kernels import _jit

    monkeypatch.setattr(_jit, "_compile_callbacks", [])
    monkeypatch.setattr(_jit, "_compiled", [])
    _cli_common.announce_compilation.cache_clear()
    for _ in range(2):  # announced twice, and again after kernels were compiled
        _cli_common.announce_compilation()
        _cli_common.announce_compilation()
        _jit._notify(fedepm)
    assert capsys.readouterr().err == "compiling kernels, the first time only ...\n"


def test_the_programs_that_the_benchmarks_wait_for_run(monkeypatch):
    bench = Path(__file__).parents[2] / "bench"
    monkeypatch.syspath_prepend(bench)
    peers = runpy.run_path(str(bench / "peers_waiting.py"))
    for program in ("IMPORT", "CALL"):
        assert peers["seconds"](peers[program]) > 0


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_full_disk_leaves_no_empty_folder(capsys, command, tmp_path):
    asked = ("--data", "synthetic", "--clients", 3, "--samples", 60, "--features", 3)
    asked += ("--noise", "none", "--rounds", 1, "--engine", "reference", "--quiet")
    new, old = tmp_path / "new", tmp_path / "old"
    old.mkdir()
    for out in (new, old):
        with full(10):
            code, _, err = fedepm(capsys, command, *asked, "--out", out)
        assert code == 1 and err.endswith(
            "cannot be written: File too large, nothing was written\n"
        )
    assert list(tmp_path.iterdir()) == [old] and not list(old.iterdir())
    # Nor does a run that there is not.
    assert fedepm(capsys, command, *asked, "--mu0", -1, "--out", new)[0] == 2
    assert fedepm(capsys, command, *asked, "--max-iterations", -1, "--out", new)[0] == 2
    assert not new.exists()
