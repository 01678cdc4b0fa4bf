"""The command line: what it prints, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from fedepm_fast import FedEPM, Result, cli, datasets, make_problem, run


def fedepm(capsys, *arguments):
    """Exit code, standard output and standard error of a command, run in this process."""
    with pytest.raises(SystemExit) as caught:
        cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


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
    assert [line for line in out.splitlines() if "time" not in line] == timeless


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
    optimum = make_problem(algorithm, data).optimum().value / 20
    assert record["optimum"] == pytest.approx(optimum, rel=1e-12)
    assert record["gap_percent"] == pytest.approx(100 * (result.mean_objective / optimum - 1))


def test_out_holds_result_history_summary_and_figure(capsys, tmp_path):
    out = tmp_path / "new" / "folder"
    code, text, _ = fedepm(capsys, "run", "--clients", 10, "--rounds", 3, "--out", out, "--quiet")
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
        == "table.csv: 60 rows, 3 features, 4 clients of 15 to 15 rows"
    )
    for partition in ("equal", "dirichlet"):
        code, out, _ = fedepm(
            capsys, "run", "--data", table, "--partition", partition, "--clients", 3,
            "--concentration", 5, "--rounds", 1, "--json",
        )  # fmt: skip
        assert json.loads(out)["data"]["partition"]["name"] == partition


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


def test_compare(capsys, tmp_path):
    code, out, _ = fedepm(capsys, "compare", "--clients", 50, "--seed", 0, "--json")
    record = json.loads(out)
    assert code == 0
    runs = {r["algorithm"]: r for r in record["runs"]}
    assert all(0 <= r["gap_percent"] < 1.5 for r in runs.values())
    assert runs["fedepm"]["rounds"] < runs["sfedprox"]["rounds"] < runs["sfedavg"]["rounds"]

    code, out, _ = fedepm(
        capsys, "compare", "--clients", 10, "--rounds", 2, "--out", tmp_path,
        "--plot", tmp_path / "one.svg",
    )  # fmt: skip
    assert code == 0
    for name in ("fedepm", "sfedprox", "sfedavg"):
        result = Result.load(tmp_path / f"{name}.npz")
        assert f"{result.mean_objective:.6f}" in out
    assert {"compare.png", "compare.svg", "one.svg"} <= {p.name for p in tmp_path.iterdir()}
    assert max(map(len, out.splitlines()[:-1])) <= 100


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
        (["--preset", "paper"], "--preset must be one of 'released', 'text', got 'paper'"),
        (["--algorithm", "sgd"], "--algorithm must be one of"),
        (["--algorithm", "sfedavg", "--lam", "1"], "--lam is not a parameter of sfedavg"),
        (["--noise", "gauss"], "--noise must be one of"),
        (["--stopping", "never"], "--stopping must be one of"),
        (["--rounds", "3", "--stopping", "text"], "--rounds and stopping exclude each other"),
        (["--objective", "hinge"], "--objective must be one of"),
        (["--beta", "-1"], "--beta must be"),
        (["--seed", "-1"], "--seed must be"),
        (["--clients", "0"], "--clients must be"),
        (["--clients", "50000"], "--clients must not exceed the number of rows: 50000 > 45222"),
        (["--partition", "magic"], "--partition must be one of"),
        (["--label", "y"], "--label is for a file, not for --data adult"),
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


def test_bad_data_is_one_line_and_code_2(capsys, tmp_path):
    cases = {
        "nan.csv": ("a,y\n1,0\nnan,1\n", "features must be finite"),
        "labels.csv": ("a,y\n1,0\n2,1\n3,2\n", "labels must have exactly two values"),
        "empty.csv": ("", "is empty"),
        "words.csv": ("a,y\nred,0\nblue,1\n", "numbers in its feature columns"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_text(content)
        code, out, err = fedepm(capsys, "run", "--data", tmp_path / name, "--clients", 1)
        assert (code, out) == (2, "")
        assert name in err and message in err and err.count("\n") == 1
    np.savez(tmp_path / "cut.npz", X=np.ones((9, 2)), y=np.arange(9) % 2)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-300])
    code, _, err = fedepm(capsys, "run", "--data", tmp_path / "cut.npz")
    assert code == 2 and "not a complete NumPy file" in err


def test_an_unwritable_out_folder_is_found_before_the_run(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("fedepm_fast.runner.simulate", None)
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        code, _, err = fedepm(capsys, "run", "--out", out)
        assert code == 2 and "--out must be a folder to write to" in err
    code, _, err = fedepm(capsys, "compare", "--plot", tmp_path / "file" / "a.png")
    assert code == 2 and "--plot must be a folder" in err
    code, _, err = fedepm(capsys, "compare", "--plot", tmp_path / "a.doc")
    assert code == 2 and "suffix must be one of" in err


def test_divergence_is_said_and_code_1(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", "least_squares", "--clients", 5,
        "--algorithm", "sfedavg", "--no-scale", "--json",
    )  # fmt: skip
    assert code == 1
    assert err.startswith("error: the run diverged after round") and err.count("\n") == 1
    record = json.loads(out)
    assert record["diverged"] and np.isfinite(record["x"]).all()


def test_interrupt_is_code_130(capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedepm_fast.runner.simulate", interrupted)
    code, out, err = fedepm(capsys, "run")
    assert (code, out, err) == (130, "", "interrupted, nothing was written\n")


def test_help_and_version(capsys):
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
