"""The command line, as tests use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedepm_fast import cli
from fedepm_fast.sweeps import _execute

ROOT = Path(__file__).parents[1]


#: What a command says once in a process, if it has to compile; with full caches it has not.
COMPILING = "compiling kernels, the first time only ...\n"


def fedepm(capsys, *arguments):
    """Exit code, standard output and standard error of a command, run in this process.

    Standard error is without `COMPILING`.
    """
    with pytest.raises(SystemExit) as caught:
        cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err.replace(COMPILING, "")


def start(*arguments) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedepm_fast", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fail_one_trial(monkeypatch, message):
    """Let trial 1 of every SFedAvg cell raise a ValueError."""
    execute = _execute.execute

    def fail(cell, seed, trial, data):
        if trial == 1 and cell.algorithm.name == "sfedavg":
            raise ValueError(message)
        return execute(cell, seed, trial, data)

    monkeypatch.setattr(_execute, "execute", fail)
