"""``fedepm runs``: looking into a store, and deleting from it."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest
from commands import ROOT, fedepm
from records import record
from small_sweeps import SPECIFICATION

from fedepm_fast import Store, sweep


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    spec = tmp_path_factory.mktemp("runs") / "steps.toml"
    spec.write_text(SPECIFICATION)
    sweep(spec, store=spec.with_suffix(".sqlite"))
    return spec.with_suffix(".sqlite")


def test_runs_list(capsys, store):
    code, out, err = fedepm(
        capsys, "runs", "list", store, "--where", "algorithm=fedepm", "--where", "local_steps=2"
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["run", "clients", "trial", "f(x)/m"]
    assert len(lines) == 2 + 6 + 1 and lines[-1] == "6 runs"
    code, out, _ = fedepm(capsys, "runs", "list", store, "--limit", 4)
    assert out.splitlines()[-1] == "24 runs, the first 4 of them shown"
    code, out, _ = fedepm(capsys, "runs", "list", store, "--limit", 0, "--json")
    rows = json.loads(out)
    with Store(store, readonly=True) as opened:
        assert [row["mean_objective"] for row in rows] == opened.table()["mean_objective"]
    for command in ("list", "compare", "prune"):
        code, _, err = fedepm(capsys, "runs", command, store, "--where", "algorithm=FedEPM")
        assert code == 0
        assert err.startswith("note: no run has algorithm = FedEPM; stored: fedepm, sfedavg")


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (["clients=77"], "no run has clients = 77; stored: 4, 5"),
        (["clients>9", "trial=0"], "no run has clients>9 and trial=0"),
        (["failed=true"], "no run has failed=true"),
    ],
)
def test_that_no_run_is_found_is_said(capsys, store, where, told):
    asked = [word for condition in where for word in ("--where", condition)]
    for command, found in (
        (["list"], "0 runs\n"),
        (["list", "--json"], "[]\n"),
        (["compare", "--by", "algorithm,local_steps"], "0 runs\n"),
        (["compare", "--json"], "[]\n"),
        (["prune", "--dry-run"], "0 of 24 runs would be deleted\n"),
    ):
        name, *options = command
        shown = fedepm(capsys, "runs", name, store, *options, *asked)
        assert shown == (0, found, f"note: {told}\n")


def test_a_column_that_the_runs_found_have_not_is_none_of_theirs(capsys, store):
    asked = ("--where", "algorithm=fedepm", "--by", "learning_rate,algorithm", "--json")
    code, out, err = fedepm(capsys, "runs", "compare", store, *asked)
    (cell,) = json.loads(out)
    assert (code, err, cell["learning_rate"], cell["runs"]) == (0, "", None, 12)


def test_a_run_that_counts_as_diverged_is_listed_so(capsys, tmp_path):
    spec = tmp_path / "few.toml"
    spec.write_text(
        'trials = 1\n[data]\nsource = "adult"\nclients = 3\n[[algorithm]]\nname = "fedepm"\n'
    )
    assert "diverged" in fedepm(capsys, "sweep", spec)[1]
    store = spec.with_suffix(".sqlite")
    listed = fedepm(capsys, "runs", "list", store)[1]
    assert "diverged, objective and gradient rise" in listed
    compared = fedepm(capsys, "runs", "compare", store)[1]
    assert compared.splitlines()[0].split()[-1] == "diverged"


def test_runs_show(capsys, store):
    with Store(store, readonly=True) as opened:
        record = opened.get(opened.ids()[5])
    code, out, err = fedepm(capsys, "runs", "show", store, record.run_id[:10], "--history")
    assert (code, err) == (0, "")
    assert re.match(rf"run +{record.run_id}\n", out)
    assert re.search(rf"\nlocal_steps +{record.parameters['local_steps']}\n", out)
    assert re.search(r"\nrounds +2\n", out)
    assert re.search(r"round +f\(x\)/m +grad_mean_sq", out)
    mean = record.history["objective"] / record.parameters["clients"]
    assert out.splitlines()[-1].split()[1] == f"{mean[-1]:.6g}"
    assert mean[-1] == record.measures["mean_objective"]
    code, out, _ = fedepm(capsys, "runs", "show", store, record.run_id, "--json", "--history")
    shown = json.loads(out)
    assert shown["parameters"] == record.parameters
    assert shown["history"]["objective"] == record.history["objective"].tolist()
    assert shown["history"]["mean_objective"] == mean.tolist()
    assert "history" not in json.loads(fedepm(capsys, "runs", "show", store, record.run_id[:30],
                                              "--json")[1])  # fmt: skip


def test_runs_compare(capsys, store):
    code, out, err = fedepm(capsys, "runs", "compare", store, "--by", "algorithm", "--json")
    assert (code, err) == (0, "")
    cells = json.loads(out)
    assert [(c["algorithm"], c["runs"]) for c in cells] == [
        ("fedepm", 12), ("sfedavg", 6), ("sfedprox", 6),
    ]  # fmt: skip
    with Store(store, readonly=True) as opened:
        values = opened.table({"algorithm": "sfedavg"})["mean_objective"]
    assert cells[1]["mean_objective"] == np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    code, out, _ = fedepm(
        capsys, "runs", "compare", store, "--where", "algorithm=sfedavg", "--by", "algorithm"
    )
    low, median, high = (f"{v:.6g}" for v in np.quantile(values, [0.25, 0.5, 0.75]))
    assert f"{median} [{low}, {high}]" in out
    code, out, _ = fedepm(capsys, "runs", "compare", store)
    assert out.splitlines()[0].split()[:3] == ["algorithm", "local_steps", "clients"]


def test_runs_export(capsys, store, tmp_path):
    pandas = pytest.importorskip("pandas")
    for name, read in (("a.csv", pandas.read_csv), ("a.parquet", pandas.read_parquet)):
        code, out, _ = fedepm(
            capsys, "runs", "export", store, tmp_path / name, "--where", "clients>4"
        )
        assert (code, out) == (0, f"wrote 12 runs to {tmp_path / name}\n")
        table = read(tmp_path / name)
        assert set(table["clients"]) == {5}
        with Store(store, readonly=True) as opened:
            want = opened.table({"clients": 5})
        assert table["mean_objective"].tolist() == want["mean_objective"]


class Answers(io.StringIO):
    """Somebody at a terminal, or nobody."""

    def __init__(self, answer, end="\n"):
        super().__init__("" if answer is None else f"{answer}{end}")
        self.isatty = lambda: answer is not None


def test_runs_prune(capsys, spec, monkeypatch):
    fedepm(capsys, "sweep", spec, "--quiet")
    store = spec.with_suffix(".sqlite")
    prune = "runs", "prune", store, "--where", "trial=2"
    code, told, _ = fedepm(capsys, *prune, "--dry-run")
    assert code == 0 and told.endswith("\n8 of 24 runs would be deleted\n")
    assert "sfedavg" in told and "fedepm" in told  # by cells, which these are
    # Where nobody can be asked, nothing is deleted.
    code, out, err = fedepm(capsys, *prune)
    assert (code, out) == (2, told) and err.startswith("error: --yes must be given")
    monkeypatch.setattr(sys, "stdin", Answers("n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = fedepm(capsys, *prune)
    assert (code, out) == (0, told + "nothing was deleted\n")
    assert err == f"delete 8 runs of {store}? [y/N]: "
    monkeypatch.setattr(sys, "stdin", Answers("", end=""))  # Ctrl-D
    assert fedepm(capsys, *prune) == (0, out, f"{err}\n")
    with Store(store, readonly=True) as opened:
        assert len(opened) == 24
    for answer, more in (("y", ()), (None, ["--yes"])):
        fedepm(capsys, "sweep", spec, "--quiet")
        monkeypatch.setattr(sys, "stdin", Answers(answer))
        code, out, _ = fedepm(capsys, *prune, *more)
        # Of runs that were done again the times are others.
        deleted = "deleted 8 of 24 runs\n"
        asked = out.endswith("\n8 of 24 runs would be deleted\n" + deleted)
        assert code == 0 and (asked if answer else out == deleted)
    assert fedepm(capsys, "sweep", spec, "--dry-run")[1].endswith(
        f"16 of them in {store} already\n"
    )


def test_what_is_pruned_is_what_was_said(capsys, spec, monkeypatch):
    store = spec.with_suffix(".sqlite")
    fedepm(capsys, "sweep", spec, "--quiet")
    prune = "runs", "prune", store, "--where"
    # Nothing is said to be deleted, too.
    for more, told in (((), "0 of 24 runs would be deleted"), (["--yes"], "deleted 0 of 24 runs")):
        code, out, err = fedepm(capsys, *prune, "trial=7", *more)
        assert (code, out) == (0, f"{told}\n") and err.startswith("note: no run has trial = 7")

    class Slow(Answers):
        def readline(self):
            with Store(store) as opened:
                opened.add([record(2)])
            return super().readline()

    monkeypatch.setattr(sys, "stdin", Slow("y"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, _ = fedepm(capsys, *prune, "trial=2")
    assert code == 0 and out.endswith("\ndeleted 8 of 24 runs\n")
    with Store(store, readonly=True) as opened:
        assert len(opened) == 17


def test_bad_input_of_runs_is_one_line_and_code_2(capsys, store, tmp_path):
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    for arguments, message in (
        (["list", tmp_path / "no.sqlite"], "no store at"),
        (["list", store, "--where", "local_step=2"], "where must name columns of"),
        (["list", store, "--where", "local_steps"], "where must be conditions such as"),
        (["list", empty], "empty.sqlite is empty, it is not a store of runs"),
        (["list", ROOT / "README.md"], "README.md is not a store of runs"),
        (["list", store, "--where", "clients=abc"], "where must compare clients, such as 4, with"),
        (["list", store, "--limit", "-1"], "limit must be an integer >= 0"),
        (["show", store, "xyz"], "has no run xyz"),
        (["show", store, ""], "has several runs"),
        (["compare", store, "--by", "colour"], "by must name columns of"),
        (["export", store, tmp_path / "a.doc"], "suffix of the file must be one of '.csv'"),
        (["export", store, tmp_path / "no" / "a.csv"], "FILE must be a file to write to, got"),
        (["prune", store], "--where must say which runs to delete"),
        (["prune", tmp_path / "no.sqlite", "--where", "trial=1"], "no store at"),
        (["nonsense"], "No such command 'nonsense'"),
        ([], "Missing command"),
    ):
        code, _, err = fedepm(capsys, "runs", *arguments)
        assert code == 2, arguments
        assert err.startswith("error: ") and err.count("\n") == 1
        assert message in err, err
