"""The command line, as tests use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedepm_fast import cli

ROOT = Path(__file__).parents[1]


def fedepm(capsys, *arguments):
    """Exit code, standard output and standard error of a command, run in this process."""
    with pytest.raises(SystemExit) as caught:
        cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def start(*arguments) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedepm_fast", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
