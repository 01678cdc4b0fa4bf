"""What becomes of a command when nobody reads what it prints, or a disk has no room left."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest
from commands import COMPILING
from full_disk import full

from fedepm_fast import Store, Sweep, cli, fit, sweep
from fedepm_fast._common.files import check_writable_file
from fedepm_fast._common.json_files import write_json

RUN = ("run", "--data", "synthetic", "--clients", "3", "--samples", "60", "--features", "3",
       "--noise", "none", "--rounds", "1", "--mu0", "50", "--engine", "reference",
       "--out", "out")  # fmt: skip
COMMANDS = {
    "version": ("--version",),
    "help": ("run", "--help"),
    "fit": ("fit", "t.csv", "--label", "y", "--out", "again.json"),
    "predict": ("predict", "m.json", "t.csv"),
    "evaluate": ("evaluate", "m.json", "t.csv"),
    "list": ("runs", "list", "s.sqlite"),
    "run": RUN,
    "sweep": ("sweep", "s.toml"),
}
#: What each leaves behind.
FILES = {
    "fit": "again.json",
    "run": "out/result.npz",
    "sweep": "s.sqlite",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(i, (7 * i) % 5, (3 * i) % 2) for i in range(40)]
    text = "a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows)
    (tmp_path / "t.csv").write_text(text)
    fit("t.csv", "y", beta=0.1).save("m.json")
    (tmp_path / "s.toml").write_text(
        'trials = 2\nrounds = 1\nengine = "reference"\n[algorithm]\nname = "fedepm"\nmu0 = 50.0\n'
        '[data]\nsource = "synthetic"\nclients = 3\nsamples = 60\nfeatures = 3\n'
    )
    spec = Sweep.from_toml("s.toml", trials=1)
    sweep(spec, store="s.sqlite", progress=False)
    return tmp_path


def run_into(monkeypatch, command, file):
    """Exit code and standard error of a command that prints into a file of the system's."""
    errors = io.StringIO()
    with open(file, "w") as output, monkeypatch.context() as patched:  # which closes it, too
        patched.setattr(sys, "stdout", output)
        patched.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as caught:
            cli.main(list(command))
        assert sys.stdout is output
    return caught.value.code, errors.getvalue().replace(COMPILING, "")


def unread():
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("name", COMMANDS)
def test_nobody_needs_to_read_what_is_printed(folder, monkeypatch, name):
    command = COMMANDS[name]
    assert run_into(monkeypatch, command, unread()) == (0, "")
    if name in FILES:
        assert (folder / FILES[name]).is_file()
    with Store("s.sqlite", readonly=True) as store:
        assert len(store) == 1 + (name == "sweep")


def test_failures_are_told_when_nobody_reads_the_rest(folder, monkeypatch):
    code, told = run_into(monkeypatch, ("runs", "list", "none.sqlite"), unread())
    assert (code, told) == (2, "error: no store at none.sqlite\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_behind_standard_output_fails(folder, monkeypatch, name):
    code, told = run_into(monkeypatch, COMMANDS[name], "/dev/full")
    assert code == 1
    first = "error: standard output cannot be written: No space left on device"
    assert told.startswith(first) and told.count("\n") == 1


def test_without_standard_output_and_error(folder, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as caught:
        cli.main(list(COMMANDS["predict"]))
    assert caught.value.code == 0


def test_standard_error_that_nobody_reads(folder, monkeypatch):
    with open(unread(), "w") as errors, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as caught:
            cli.main(["runs", "list", "none.sqlite"])
    assert caught.value.code == 2


@pytest.mark.parametrize("where", ["draft", "proof"])
def test_a_disk_without_room_for_a_name_is_full(folder, monkeypatch, where):
    def none(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"tempfile.{'mkstemp' if where == 'draft' else 'TemporaryFile'}", none)
    monkeypatch.setattr("fedepm_fast._common.files.lock", none)
    with pytest.raises(OSError, match="No space left on device: 'new") as caught:
        if where == "draft":
            write_json("new.json", {})
        else:
            check_writable_file("out", "new.json")
    assert caught.value.errno == errno.ENOSPC
    code, told = run_into(monkeypatch, COMMANDS["fit"], os.devnull)
    assert code == 1 and told.startswith("error: again.json cannot be written: No space left")


def test_a_store_that_cannot_grow_fails(folder, monkeypatch):
    with full(os.path.getsize("s.sqlite")):
        code, told = run_into(monkeypatch, (*COMMANDS["sweep"], "--trials", "50"), os.devnull)
    assert code == 1 and told.startswith("error: ") and "s.sqlite" in told
    assert told.count("\n") == 1
