"""``fedepm sweep``: what it prints, refuses and draws."""

from __future__ import annotations

import pytest
from commands import fail_one_trial, fedepm

from fedepm_fast import Store, Sweep, sweep


def test_bad_options_are_one_line_and_code_2(capsys, spec, tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "text.sqlite").write_text("something else\n" * 100)
    for arguments, message in (
        ([tmp_path / "no.toml"], "no.toml cannot be read: No such file"),
        ([tmp_path], "cannot be read: Is a directory"),
        ([tmp_path / "binary.toml"], "binary.toml is not text in UTF-8"),
        ([spec, "--jobs", 0], "--jobs must be an integer >= 1"),
        ([spec, "--trials", 0], "must be an integer >= 1, got 0"),
        ([spec, "--backend", "magic"], "--backend must be one of 'threads', 'processes'"),
        ([spec, "--ray", "--dask", "tcp://x"], "--dask and --ray exclude each other"),
        ([spec, "--store", tmp_path / "no" / "a.sqlite"], "does not exist"),
        ([spec, "--store", tmp_path / "text.sqlite"], "text.sqlite is not a store of runs"),
        ([spec, "--store", tmp_path], "is a folder, a store is a file"),
        ([spec, "--dry-run", "--trials", 10**8], "at most 1,000,000 runs, got 800,000,000"),
        ([], "Missing argument 'SPEC.toml'"),
    ):
        code, _, err = fedepm(capsys, "sweep", *arguments)
        assert code == 2
        assert err.startswith("error: ") and err.count("\n") == 1
        assert message in err


def test_sweep_stores_sums_up_and_goes_on(capsys, spec):
    code, out, err = fedepm(capsys, "sweep", spec, "--dry-run")
    store = spec.with_suffix(".sqlite")
    assert (code, err) == (0, "")
    assert out == f"24 runs in 8 cells, 0 of them in {store} already\n"
    assert not store.exists()
    code, out, err = fedepm(capsys, "sweep", spec)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"24 runs in 8 cells, into {store}"
    assert lines[1].split()[:4] == ["algorithm", "local_steps", "clients", "runs"]
    assert [line.split()[:4] for line in lines[3:-1]] == [
        [name, steps, m, "3"]
        for name, steps in (
            ("fedepm", "2"), ("fedepm", "4"), ("sfedavg", "12"), ("sfedprox", "12"),
        )
        for m in "45"
    ]  # fmt: skip
    with Store(store, readonly=True) as opened:
        found = opened.table(["algorithm=sfedavg", "clients=5"])
    median = sorted(found["mean_objective"])[1]
    assert f"{median:.6g}" in next(li for li in lines if li.startswith("sfedavg") and "  5  " in li)
    assert fedepm(capsys, "sweep", spec, "--dry-run", "--trials", 5)[1] == (
        f"40 runs in 8 cells, 24 of them in {store} already\n"
    )
    code, out, _ = fedepm(capsys, "sweep", spec, "--trials", 5)
    assert out.startswith(f"40 runs in 8 cells, into {store}, 24 of them there already\n")
    code, out, _ = fedepm(capsys, "sweep", spec, "--trials", 5)
    assert out.startswith(f"nothing to do: 40 runs in 8 cells, all in {store} already\n")
    assert fedepm(capsys, "sweep", spec, "--trials", 5, "--quiet") == (0, "", "")
    other = spec.with_name("other.db")
    code, out, _ = fedepm(
        capsys, "sweep", spec, "--store", other, "--backend", "processes", "--jobs", 1
    )
    assert code == 0 and f"into {other}" in out
    assert [p.name for p in sorted(spec.parent.iterdir())] == [
        "other.db", "steps.sqlite", "steps.toml",
    ]  # fmt: skip


def test_failed_runs_are_told_and_code_1(capsys, spec, monkeypatch):
    from fedepm_fast.sweeps import _execute

    execute = _execute.execute
    fail_one_trial(monkeypatch, "this one fails")
    code, out, err = fedepm(capsys, "sweep", spec)
    store = spec.with_suffix(".sqlite")
    assert code == 1
    assert err.startswith("error: 2 of 24 runs failed, the first of them (") and err[-1] == "\n"
    assert "ValueError: this one fails" in err and err.count("\n") == 1
    assert "failed" in out.splitlines()[1]
    code, out, _ = fedepm(capsys, "runs", "list", store, "--where", "failed=true")
    assert code == 0 and out.count("failed: ValueError: this one fails") == 2
    monkeypatch.setattr(_execute, "execute", execute)
    code, out, err = fedepm(capsys, "sweep", spec)
    assert (code, err) == (0, "") and "failed" not in out.splitlines()[1]


def test_what_does_not_fit_is_found_before_a_store_is_made(capsys, tmp_path):
    table, spec, store = (tmp_path / name for name in ("t.csv", "s.toml", "s.sqlite"))
    table.write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(40)))

    def ask(clients):
        spec.write_text(
            f'trials = 1\nrounds = 1\n[algorithm]\nname = "sfedavg"\n'
            f"[data]\nsource = '{table}'\nclients = {clients}\n"
        )

    ask([5, 60])
    dry = fedepm(capsys, "sweep", spec, "--dry-run")
    assert dry[0] == 2 and dry[1] == "" and "60" in dry[2]
    assert fedepm(capsys, "sweep", spec) == dry and not store.exists()
    for given in (spec, Sweep.from_toml(spec)):
        with pytest.raises(ValueError, match="60"):
            sweep(given, store=store, progress=False)
    assert not store.exists()
    ask([5])
    assert fedepm(capsys, "sweep", spec, "--quiet")[0] == 0
    before = store.read_bytes()
    ask([5, 60])
    assert fedepm(capsys, "sweep", spec) == dry and store.read_bytes() == before


def test_a_full_disk_is_one_line(capsys, spec, monkeypatch):
    store = spec.with_suffix(".sqlite")
    opened = Store.__init__

    def little_room(self, *args, **kwargs):
        opened(self, *args, **kwargs)
        self._connection.execute("PRAGMA max_page_count = 12")

    monkeypatch.setattr(Store, "__init__", little_room)
    code, _, err = fedepm(capsys, "sweep", spec, "--trials", 30)
    assert code == 1
    assert err == (
        f"error: no space left to write {store}; what it holds is whole, with "
        "steps.sqlite-wal if that is beside it\n"
    )
    monkeypatch.setattr(Store, "__init__", opened)
    with Store(store, readonly=True) as whole:
        assert whole._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert 0 < len(whole) < 240
    assert fedepm(capsys, "sweep", spec, "--trials", 30, "--quiet") == (0, "", "")


@pytest.mark.parametrize("plot", ["rounds:local_steps", "objective:round", "total_time:clients"])
def test_sweep_draws(capsys, tmp_path, plot):
    spec = tmp_path / "a.toml"
    spec.write_text(
        "trials = 2\nmax_rounds = 3\n[data]\nclients = [4, 5]\n"
        '[[algorithm]]\nname = ["fedepm", "sfedavg"]\nlocal_steps = [1, 2]\n'
    )
    code, out, err = fedepm(capsys, "sweep", spec, "-q", "--plot", plot)
    assert (code, err) == (0, "") and out == f"wrote {tmp_path / 'a.png'}\n"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    figure = tmp_path / "b.svg"
    assert fedepm(capsys, "sweep", spec, "-q", "--plot", plot, "--plot-out", figure)[0] == 0
    assert b"<svg" in figure.read_bytes()


@pytest.mark.parametrize("options, message", [
    (["--plot", "nothing:round"], "--plot's measure must be one of"),
    (["--plot", "rounds"], "--plot must be MEASURE:PARAMETER"),
    (["--plot", "rounds:clients", "--plot-out", "x.txt"], "suffix must be one of"),
    (["--plot-out", "x.png"], "--plot-out needs --plot"),
    (["--plot", "rounds:local_steps", "--plot-out", "no/x.png"], "--plot-out must be a file to"),
])  # fmt: skip
def test_a_bad_plot_is_found_before_any_run(capsys, tmp_path, options, message):
    spec = tmp_path / "a.toml"
    spec.write_text('[[algorithm]]\nname = "fedepm"\n')
    code, _, err = fedepm(capsys, "sweep", spec, *options)
    assert code == 2 and message in err and len(err.splitlines()) == 1
    assert not (tmp_path / "a.sqlite").exists()
