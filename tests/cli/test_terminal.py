"""What terminals of other widths than 80 columns show, and what a pipe is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from commands import COMPILING, fedepm

from fedepm_fast import FedEPM, Result, Store, Sweep, cli, run, sweep
from fedepm_fast._common.text import fill, pairs
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.result import NO_GUARANTEE

pty = pytest.importorskip("pty")


def in_terminal(columns, *arguments):
    """Lines that a command prints in a terminal so wide."""
    size = f"import os; os.environ['COLUMNS'] = '{columns}'; from fedepm_fast import cli; "
    master, slave = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", f"{size}cli.main({list(map(str, arguments))!r})"],
        stdout=slave, stderr=subprocess.PIPE, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(slave)
    said = b""
    try:
        while piece := os.read(master, 1 << 16):
            said += piece
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert done.communicate()[1] is not None and done.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).splitlines()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "runs.sqlite"
    sweep(Sweep(FedEPM(mu0=5.0), clients=4, trials=2, rounds=2), store=path, progress=False)
    return path


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_tables_and_summaries_are_as_wide_as_the_terminal(columns, store):
    lines = in_terminal(columns, "runs", "list", store)
    assert max(map(len, lines)) <= columns
    # Whole words, whatever the width: as a table, or below one another where that is too wide.
    assert sum(line.split()[-2:] == ["max", "rounds"] for line in lines) == 2
    with Store(store, readonly=True) as opened:
        shown = in_terminal(columns, "runs", "show", store, opened.ids()[0])
    words = [line for line in shown if not re.search("[0-9a-f]{64}", line)]
    assert max(map(len, words)) <= columns
    assert " ".join(" ".join(shown).split()).count(NO_GUARANTEE) == 1


def test_words_stay_whole():
    assert fill("one --max-rounds two", "  ", width=8).split() == ["one", "--max-rounds", "two"]
    assert pairs([("a", "x y z"), ("bcd", "w")], " ", width=9) == [" a    x y\n      z", " bcd  w"]


def test_a_result_is_80_columns_wide_where_there_is_no_terminal(monkeypatch):
    from fedepm_fast import datasets

    text = str(run(FedEPM(), datasets.adult(clients=50, seed=0), rounds=1))
    assert 70 < max(map(len, text.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert NO_GUARANTEE in str(run(FedEPM(), datasets.adult(clients=50, seed=0), rounds=1))


@pytest.mark.parametrize(
    ("arguments", "hint"), [(["rum"], "'run'"), (["runs", "lst"], "'list'")], ids=["rum", "lst"]
)
def test_a_suggestion_is_made_once(capsys, arguments, hint):
    with pytest.raises(SystemExit):
        cli.main(arguments)
    told = capsys.readouterr().err
    assert told.count("Did you mean") == 1 and told.rstrip().endswith(f"Did you mean {hint}?")


def test_what_is_suggested_is_accepted(capsys):
    private = ["run", "--private", "--total-epsilon", "2", "--quiet", "--data", "synthetic"]
    with pytest.raises(SystemExit):
        cli.main(private)
    named = re.findall(r"--\S+", capsys.readouterr().err)
    assert named == ["--public-scaling", "--no-scale"]
    for option in named:
        with pytest.raises(SystemExit) as done:
            cli.main([*private, option])
        assert not done.value.code and "rounds=" in capsys.readouterr().out


def test_completion_can_be_installed(capsys, monkeypatch):
    with pytest.raises(SystemExit) as done:
        cli.main(["--help"])
    assert not done.value.code and "--install-completion" in capsys.readouterr().out
    asked = {"_FEDEPM_COMPLETE": "complete_bash", "COMP_WORDS": "fedepm ru", "COMP_CWORD": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "fedepm_fast"], env={**os.environ, **asked},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.split() == ["run", "runs"]


def test_a_cold_cache_is_told_once_and_gives_the_same_bits(capsys, tmp_path):
    arguments = ["run", "--clients", "50", "--seed", "3", "--rounds", "20", "--quiet", "--out"]
    done = subprocess.run(
        [sys.executable, "-m", "fedepm_fast", *arguments, tmp_path / "cold"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == "" if JIT_DISABLED else COMPILING
    assert any((tmp_path / "cache").rglob("*.jit")) != JIT_DISABLED
    assert fedepm(capsys, *arguments, tmp_path / "warm")[0] == 0
    cold, warm = (Result.load(tmp_path / name / "result.npz") for name in ("cold", "warm"))
    assert cold.rounds == warm.rounds == 20
    for name in ("x", "W", "Z", "snr_clients"):
        assert getattr(cold, name).tobytes() == getattr(warm, name).tobytes()
    for name in cold.history.keys() - {"elapsed", "local_time"}:
        assert cold.history[name].tobytes() == warm.history[name].tobytes()
