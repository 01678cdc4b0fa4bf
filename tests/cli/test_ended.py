"""Runs that do not end as they should: what is said of them, and what is left."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import fedepm
from full_disk import full


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
