"""Numbers of any size, in every option and key: one line that says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest
from commands import ROOT, fedepm

from fedepm_fast import FedEPM, Store, Sweep, cli
from fedepm_fast._common.validation import MAX_COUNT, check_int, check_real
from fedepm_fast.algorithms import ALGORITHMS

#: What a command needs beside the option that is tried, and what keeps it short.
NEEDED = {
    "run": ["--data", "synthetic"],
    # All that there are: that one of them is refused is an error if they are named.
    "compare": ["--data", "synthetic", "--algorithms", ",".join(ALGORITHMS)],
    "tune": ["--data", "synthetic"],
    "sweep": ["SPEC"],
    "list": ["STORE"],
    "show": ["STORE", "0"],
    "compare runs": ["STORE"],
    "export": ["STORE", "OUT.csv"],
    "prune": ["STORE"],
}


def commands(app=cli.app, before=()):
    """The function of every command, with the words that call it."""
    for info in app.registered_commands:
        yield (*before, info.name or info.callback.__name__), info.callback
    for group in app.registered_groups:
        yield from commands(group.typer_instance, (*before, group.name))


def numeric_options():
    for words, function in commands():
        for name, kind in get_type_hints(function).items():
            for number in {int, float} & {kind, *get_args(kind)}:
                yield words, f"--{name.replace('_', '-')}", number


OPTIONS = list(numeric_options())


def test_there_are_options_of_every_command():
    assert {words[0] for words, *_ in OPTIONS} >= {
        "run",
        "compare",
        "tune",
        "sweep",
        "paper",
        "runs",
    }
    assert len(OPTIONS) > 60


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "s.toml").write_text('[data]\nsource = "synthetic"\n[[algorithm]]\nname = "fedepm"\n')
    with Store(folder / "s.sqlite") as _:
        pass
    return {"SPEC": folder / "s.toml", "STORE": folder / "s.sqlite", "OUT.csv": folder / "o.csv"}


@pytest.mark.parametrize(("words", "option", "kind"), OPTIONS, ids=lambda v: str(v)[:20])
def test_options_take_no_integers_beyond_64_bits(capsys, files, tmp_path, words, option, kind):
    needed = NEEDED.get("compare runs" if words == ("runs", "compare") else words[-1], [])
    needed = [files.get(word, word) for word in needed]
    if words[0] == "paper":
        needed = ["--out", tmp_path / "out"]
    for value in (10**400, 2**64) if kind is int else (10**400,):
        code, out, err = fedepm(capsys, *words, *needed, f"{option}={value}")
        assert (code, out) == (2, ""), (value, err)
        assert err.startswith("error: ") and err.count("\n") == 1


INTEGER_KEYS = {
    "": ["trials", "seed", "rounds", "max_rounds", "max_iterations"],
    "data": ["clients", "samples", "features"],
    "algorithm": ["local_steps", "coverage_rounds"],
}
REAL_KEYS = {
    "": ["objective", "beta", "regularizer", "engine", "stopping", "zip", "data", "algorithm"],
    "data": ["source", "partition", "concentration", "min_share", "scale", "label"],
    "algorithm": ["name", "participation", "epsilon", "preset", "noise", "mu0", "c", "alpha",
                  "lam", "eta", "step", "start"],
}  # fmt: skip


def specification(table, key, value):
    top = f"{key} = {value}\n" if not table else ""
    tables = {"data": 'source = "synthetic"\n', "algorithm": ""}
    for name, text in tables.items():
        if key != name or table:
            text = text.replace("source", "#") if key == "source" else text
            top += f"[{name}]\n{text}" + (f"{key} = {value}\n" if table == name else "")
    return top


@pytest.mark.parametrize(
    "value", [2**64, -(2**64), 10**400, [1, 10**400]], ids=lambda v: str(v)[:9]
)
def test_keys_take_no_integers_beyond_64_bits(tmp_path, value):
    path = tmp_path / "s.toml"
    keys = [(t, k) for t, names in INTEGER_KEYS.items() for k in names]
    if value not in (2**64, -(2**64)):
        keys += [(t, k) for t, names in REAL_KEYS.items() for k in names]
    for table, key in keys:
        path.write_text(specification(table, key, value))
        with pytest.raises((ValueError, TypeError)) as caught:
            Sweep.from_toml(path)
        assert str(caught.value).startswith(f"{path},"), (table, key)


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "{a=" * 5000 + "1" + "}" * 5000,
                                  "[" * 200 + "1" + "]" * 200])  # fmt: skip
def test_what_is_nested_deeply_is_told(capsys, tmp_path, text):
    path = tmp_path / "s.toml"
    for key in ("trials", "beta", "stopping", "data", "zip"):
        path.write_text(f"{key} = {text}\n")
        code, out, err = fedepm(capsys, "sweep", path, "--dry-run")
        assert (code, out) == (2, "") and err.startswith(f"error: {path}, ")
        assert err.count("\n") == 1


def test_conditions_take_integers_of_any_size(capsys, files):
    for value in ("9" * 400, "-" + "9" * 400, "9" * 5000, "1e400", 2**64, -(2**63) - 1):
        for command in ("list", "compare", "prune"):
            code, _, err = fedepm(
                capsys, "runs", command, files["STORE"], "--where", f"trial>={value}"
            )
            # Whatever other tests have left in the store.
            assert code == 0
            assert err in ("", f"note: no run has trial>={value}\n")


def test_numbers_of_python_are_refused_by_name():
    assert check_int("n", MAX_COUNT) == MAX_COUNT
    with pytest.raises(ValueError, match=r"mu0 must be a finite number in .* 1329 bits"):
        FedEPM(mu0=10**400)
    with pytest.raises(ValueError, match=f"n must be an integer from 0 to {MAX_COUNT}, got 2"):
        check_int("n", 2 * 10**30)
    with pytest.raises(ValueError, match="n must be an integer from 0 to 5, got an integer of"):
        check_int("n", 10**5000, high=5)
    with pytest.raises(ValueError, match="x must be a finite number"):
        check_real("x", -(10**5000))


INTERRUPTED = """
import os, sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["/bin/fedepm"]
before = set(sys.modules)
from fedepm_fast.__main__ import main
found = sorted(set(sys.modules) - before - {{"__future__", "_signal"}})
assert found == ["fedepm_fast", "fedepm_fast.__main__"], found  # no time to be interrupted in
if {module!r} == "none":
    os.kill(os.getpid(), 2)
main()
"""


@pytest.mark.parametrize("module", ["none", "fedepm_fast.cli", "typer"])
def test_an_interrupt_of_the_imports_has_no_traceback(module):
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert (found.stdout, found.stderr) == ("", "interrupted, nothing was written\n")
    assert found.returncode == 130


@pytest.mark.parametrize("setup", ["sys.argv = ['other']", "import multiprocessing.spawn"])
def test_who_imports_the_entry_keeps_the_interrupt(setup):
    code = (
        f"import sys, signal; sys.argv = ['fedepm']; {setup}; import fedepm_fast.__main__; "
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["tune", "--space", "foo=1,2"], "--space must name .*, got 'foo': local_steps, .*, mu0, "),
        (["tune", "--space", "local-steps=0,2"], "--space of local_steps: local_steps must be an "),
        (["tune", "--space", "local_steps=4,1_0"], "--space of local_steps: .*, got '1_0'"),
        (["run", "--noise", "local_steps"], "--noise must be one of .*, got 'local_steps'$"),
        (["run", "--local-steps", "0"], "--local-steps must be an integer >= 1, got 0$"),
        (["run", "--clients", str(2**63)], f"--clients must be .* from 1 to {2**63 - 1}, got"),
        (
            ["run", "--data", "one.csv", "--clients", "2", "--algorithm", "fedepm"],
            "--noise 'standardized' needs .* has 1: --noise laplace or --noise none needs one$",
        ),
    ],
)
def test_names_are_as_they_are_typed(capsys, tmp_path, monkeypatch, arguments, want):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("a,label\n1,1\n2,0\n3,1\n4,0\n")
    code, _, err = fedepm(capsys, *arguments)
    assert code == 2
    assert re.search(f"^error: {want}", err.strip()), err


@pytest.mark.parametrize("command", ["run", "compare", "tune", "tradeoff", "paper"])
@pytest.mark.parametrize("name", ["r.npz", "r.CSV"])
def test_no_folder_is_made_by_the_name_of_a_file(capsys, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    code, _, err = fedepm(capsys, command, "--out", name)
    assert code == 2 and not list(tmp_path.iterdir())
    assert err.splitlines()[-1] == (
        "error: --out must be a folder, which several files are written to, got the name of a "
        f"{name[1:]} file, {name}"
    )
