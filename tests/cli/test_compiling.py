"""What the command line says of kernels that are compiled, and ``fedepm warmup``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import fedepm

from fedepm_fast import _warm, kernels
from fedepm_fast.cli import _common as _cli_common
from fedepm_fast.cli._compiling import USUAL, _Line

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
