"""What the command line refuses, in one line and before any work."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast._common.validation import ArgumentValueError
from fedepm_fast.cli._names import with_option_names


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
        # Options of two algorithms whose parameters have one name.
        (["--lam-share", "-1"], "--lam-share must be a finite number in [0, 1], got -1"),
        (["--algorithm", "fedepm", "--lam-share", "0.5"],
         "--lam-share is not a parameter of fedepm"),
        (["--algorithm", "curvature", "--lam", "0.5"], "--lam is not a parameter of curvature"),
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
        (ValueError("kinds['a'] must be one of"), "kinds['a'] must be one of"),
        (ValueError("a.csv, line 8: features must be finite, got nan"),
         "a.csv, line 8: features must be finite, got nan"),
        (ValueError("features must be an integer >= 1"), "--features must be an integer >= 1"),
        (ValueError("objective rose"), "objective rose"),
        (ValueError("fedepm: local_steps grow"), "fedepm: --local-steps grow"),
    ],
)  # fmt: skip
def test_only_arguments_are_said_as_options(error, said):
    assert with_option_names(error, "tune") == said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit t.csv --label y --kind a=b", "--kind a must be one of 'numeric', 'boolean'"),
        ("fit t.csv --label y --kind a=category --reference a=9", "--reference a must be a level"),
        ("fit t.csv --label y --reference z=9", "--reference"),
        ("runs list a.sqlite --limit -3", "--limit must be an integer >= 0, got -3"),
        ("tune --lam-share -1", "--lam-share must be a finite number in [0, 1], got -1"),
        ("compare --all --rounds 1 --stopping text --clients 3",
         "--rounds and --stopping exclude each other: give one of them\n"),
        ("compare --lam-share 0.5", "--lam-share is not a parameter of fedepm, sfedprox, sfedavg"),
    ],
)  # fmt: skip
def test_options_are_named_as_they_are_typed(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,y\n1,0\n2,1\n1,1\n2,0\n")
    code, out, err = fedepm(capsys, *words.split())
    assert (code, out) == (2, "") and err.startswith(f"error: {message}")


def test_bad_data_is_one_line_and_code_2(capsys, tmp_path):
    cases = {
        "nan.csv": ("a,y\n1,0\nnan,1\n", "features must be finite"),
        "labels.csv": (
            "a,y\n1,0\n2,1\n3,2\n",
            "labels of column 'y', which label= (--label) names, must",
        ),
        "empty.csv": ("", "is empty"),
        "few.csv": ("a,y\n1,0\n2,1\n", "few.csv: --clients must not exceed the number of rows: 3"),
        "words.csv": (
            "a,y\nred,0\nblue,1\n",
            "; --client-column names who holds a row, in place",
        ),
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
