"""``fedepm run``, what it prints and writes, and the command itself."""

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

from fedepm_fast import FedEPM, Result, datasets, make_problem, run


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


@pytest.mark.parametrize("algorithm", ["sfedavg", "sfedprox"])
def test_other_algorithms(capsys, algorithm):
    code, out, _ = fedepm(
        capsys, "run", "--algorithm", algorithm, "--clients", 10, "--rounds", 2, "--json"
    )
    assert code == 0
    assert json.loads(out)["parameters"]["name"] == algorithm


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


@pytest.mark.parametrize("command", ["run", "compare", "tune"])
def test_help_says_that_no_intercept_is_added(capsys, command):
    text = " ".join(re.sub("[│|]", " ", fedepm(capsys, command, "--help")[1]).split())
    assert "No intercept is added." in text
    assert "for an intercept it needs a column of ones." in text


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


def test_the_programs_that_the_benchmarks_wait_for_run(monkeypatch):
    bench = Path(__file__).parents[2] / "bench"
    monkeypatch.syspath_prepend(bench)
    peers = runpy.run_path(str(bench / "peers_waiting.py"))
    for program in ("IMPORT", "CALL"):
        assert peers["seconds"](peers[program]) > 0
