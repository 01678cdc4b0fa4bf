"""``fedepm tune``."""

from __future__ import annotations

import json
import shlex

import pytest
from commands import fedepm

from fedepm_fast import FedEPM, Logistic, Sweep
from fedepm_fast.tuning._space import Choices, Range, as_space, parse_space


def test_spaces_are_read_from_a_command_line():
    texts = [
        "lam=1e-6:1:log",
        "local-steps=4,8",
        "noise=none,laplace",
        "alpha=1:1.01",
        "step=1,1/d",
    ]
    space = as_space(parse_space(texts, FedEPM(), Logistic()), FedEPM(), Logistic())
    assert space == {
        "lam": Range(1e-6, 1.0, log=True),
        "local_steps": Choices((4, 8)),
        "noise": Choices(("none", "laplace")),
        "alpha": Range(1.0, 1.01),
        "step": Choices(("1", "1/d")),
    }
    for text in ("lam", "lam=", "=1"):
        with pytest.raises(ValueError, match="space must be NAME=LOW:HIGH"):
            parse_space([text], FedEPM(), Logistic())
    with pytest.raises(ValueError, match="space must name a parameter once, got lam twice"):
        parse_space(["lam=1:2", "lam=3:4"], FedEPM(), Logistic())


DATA = ("--data", "synthetic", "--clients", 6)


def test_the_command_tunes_and_prints_what_to_go_on_with(capsys, tmp_path):
    code, out, err = fedepm(
        capsys, "tune", *DATA, "--trials", 4, "--folds", 3, "--rounds", 3, "--out", tmp_path,
        "--space", "mu0=0.5:50:log", "--space", "beta=1e-4,1e-2", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert len(found["trials"]) == 4
    assert found["score"] == min(t["score"] for t in found["trials"] if t["score"] is not None)
    names = ["scores.png", "scores.svg", "summary.json", "trials.csv", "tuned.toml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert json.loads((tmp_path / "summary.json").read_text()) == found
    (cell,) = Sweep.from_toml(tmp_path / "tuned.toml").cells
    assert cell.algorithm.mu0 == found["parameters"].get("mu0")
    # The command that it prints is a run with these parameters.
    words = shlex.split(found["command"])
    assert words[:2] == ["fedepm", "run"]
    code, out, _ = fedepm(capsys, *words[1:], "--json")
    ran = json.loads(out)
    assert (code, ran["rounds"]) == (0, 3)
    assert ran["parameters"]["mu0"] == found["parameters"]["mu0"]
    assert ran["objective"]["beta"] == found["parameters"]["beta"]


@pytest.mark.parametrize(
    ("options", "algorithm", "told"),
    [
        ((), "curvature", "default for data other than Adult"),
        (("--space", "mu0=5,50"), "fedepm", "--mu0 is of the paper's FedEPM"),
        (("--mu0", 50), "fedepm", "--mu0 is of the paper's FedEPM"),
        (("--algorithm", "fedepm", "--mu0", 50), "fedepm", ""),
        (
            ("--space", "lam-share=0,0.1", "--coordinates", "columns"),
            "curvature",
            "--lam-share is of --algorithm curvature",
        ),
    ],
)
def test_what_is_tuned_is_what_run_runs(capsys, options, algorithm, told):
    given = [*DATA, "--folds", 2, "--rounds", 2, "--trials", 2, *options]
    code, out, err = fedepm(capsys, "tune", *given)
    label = "FedEPM" if algorithm == "fedepm" else "FedEPM (curvature)"
    assert code == 0 and f"\n{label} tuned over 2 folds" in out
    assert err.startswith(f"tuning {label}, as fedepm run takes it here: {told}" if told else "")
    code, out, err = fedepm(capsys, "tune", *given, "--json")
    assert (code, err) == (0, "")
    code, out, _ = fedepm(capsys, *shlex.split(json.loads(out)["command"])[1:], "--json")
    assert json.loads(out)["algorithm"] == algorithm


def test_the_command_tells_what_is_wrong_in_a_line(capsys, tmp_path):
    for arguments, message in (
        (("--space", "lam=1:0.1"), "error: --space of lam must have low < high"),
        (
            ("--folds", 7),
            "error: --folds must not exceed the clients that they hold out: 7 > 6; --folds 6 holds "
            "each out alone, --over records holds out a part of each one's\n",
        ),
        (("--prox", 1), "error: --prox is not a parameter of fedepm"),
        (("--plot", tmp_path / "a.gif"), "error: --plot's suffix must be"),
        (("--storage", tmp_path / "no" / "a.db"), "error: --storage"),
    ):
        code, out, err = fedepm(capsys, "tune", *DATA, "--algorithm", "fedepm", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(message)
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "option",
    ["folds", "trials", "jobs", "rounds", "max-rounds", "sampler", "stopping", "storage"],
)
def test_nothing_is_said_to_begin_that_is_refused(capsys, option):
    code, out, err = fedepm(capsys, "tune", *DATA, f"--{option}={'/' if option[0] == 's' else -1}")
    assert (code, out) == (2, "") and err.startswith(f"error: --{option}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("typed", ["lam-share", "lam_share", "lam"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("2:3", "--space of {}: {} must be a finite number in [0, 1], got 2.0"),
        ("0:0", "--space of {} must have low < high"),
        ("0.1", "--space of {}: coordinates with {} above 0 must be one of"),
    ],
)
def test_what_is_searched_is_named_as_it_is_typed(capsys, typed, values, message):
    given = "--algorithm", "curvature", "--space", f"{typed}={values}"
    code, out, err = fedepm(capsys, "tune", *DATA, *given[typed != "lam" and 2 :])
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert err.startswith(f"error: {message.format(typed, typed)}")


def test_why_the_algorithm_as_given_has_no_score_is_told_as_others_are(capsys):
    asked = ("--data", "synthetic", "--clients", 3, "--samples", 60, "--features", 3)
    asked += ("--noise", "none", "--max-rounds", 60, "--trials", 3, "--sampler", "grid")
    code, out, _ = fedepm(capsys, "tune", *asked, "--mu0", 1e-9, "--space", "mu0=5,1e-9")
    assert code == 0 and max(map(len, out.splitlines()[:8])) <= 80
    told = " ".join(out.split())
    assert "as given diverged: fold 0: the run " in told and "--mu0 of" in told
    assert "CurvatureFedEPM" not in told.partition("fedepm run")[0]
