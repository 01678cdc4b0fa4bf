"""``fedepm sweep`` and ``fedepm runs``: what they print, refuse, and survive."""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import time

import numpy as np
import pytest
from commands import ROOT, fail_one_trial, fedepm, start

from fedepm_fast import (
    FedEPM,
    Huber,
    LeastSquares,
    Logistic,
    SFedAvg,
    SFedProx,
    Store,
    Sweep,
    grid,
    sweep,
)
from fedepm_fast.data import partition, sources
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism
from fedepm_fast.stopping import ReleasedRule
from fedepm_fast.sweeps._cells import Cell

SPEC = """
trials = 3
max_rounds = 2

[data]
source = "synthetic"
clients = [4, 5]
samples = 60
features = 3

[[algorithm]]
name = "fedepm"
local_steps = [2, 4]

[[algorithm]]
name = ["sfedavg", "sfedprox"]
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "steps.toml"
    path.write_text(SPEC)
    return path


def ids(sweep: Sweep) -> list[str]:
    return sorted(run.run_id for run in sweep)


# Specifications -----------------------------------------------------------------------


def test_a_specification_is_the_sweep_in_python(spec):
    algorithms = [*grid(FedEPM, local_steps=[2, 4]), SFedAvg(), SFedProx()]
    data = grid(sources.Synthetic, clients=[4, 5], samples=60, features=3)
    want = Sweep(algorithms, data, trials=3, max_rounds=2)
    assert ids(Sweep.from_toml(spec)) == ids(want)
    assert ids(Sweep.from_toml(spec, trials=[1])) == ids(Sweep(algorithms, data, trials=[1],
                                                               max_rounds=2))  # fmt: skip


def test_every_part_of_a_specification(tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=(60, 2)), np.arange(60) % 2, np.arange(60) % 3])
    np.savetxt(
        tmp_path / "t.csv", table, delimiter=",", header="a,b,y,who", comments="", fmt="%.17g"
    )
    (tmp_path / "s.toml").write_text("""
        seed = [1, 2]
        trials = [4, 7]
        objective = "logistic"
        beta = [0.1, 0.01]
        stopping = ["text", {rule = "released", tolerance = 1e-8}]
        max_rounds = 9
        max_iterations = 50
        zip = [["lam", "eta"], ["clients", "participation"]]
        [[data]]
        source = "t.csv"
        label = "y"
        scale = false
        partition = "dirichlet"
        concentration = [0.5, 5]
        clients = [3, 4]
        [[data]]
        clients = [5, 6]
        [[algorithm]]
        participation = [0.5, 1]
        lam = [1e-6, 2e-6]
        eta = [2e-6, 4e-6]
    """)
    read = Sweep.from_toml(tmp_path / "s.toml")
    table = sources.read_table(tmp_path / "t.csv", label="y", scale=None)
    cells = [
        Cell(
            FedEPM(participation=rho, lam=lam, eta=2 * lam),
            sources.Partitioned(held, how(m)),
            objective,
            stopping=rule,
            max_rounds=9,
            max_iterations=50,
        )
        for held, how, sizes in (
            (table, lambda m: partition.DirichletLabelSkew(m, 0.5), (3, 4)),
            (table, lambda m: partition.DirichletLabelSkew(m, 5), (3, 4)),
            (sources.read_adult(), partition.RandomCuts, (5, 6)),
        )
        for m, rho in zip(sizes, (0.5, 1.0), strict=True)
        for lam in (1e-6, 2e-6)
        for objective in grid(Logistic, beta=[0.1, 0.01])
        for rule in ("text", ReleasedRule(1e-8))
    ]
    assert ids(read) == ids(Sweep.from_cells(cells, seed=[1, 2], trials=[4, 7]))


def test_a_specification_of_regression(tmp_path):
    read = Sweep.from_dict(
        {"objective": "least_squares", "data": {"source": "synthetic"}, "beta": 0.5}
    )
    source = sources.Synthetic("least_squares")
    assert ids(read) == ids(Sweep(FedEPM(), source, objective=LeastSquares(beta=0.5)))
    assert read[0].cell.parameters["samples"] == 20_000


def test_a_specification_of_a_loss_with_a_parameter():
    data = {"source": "synthetic"}
    read = Sweep.from_dict({"objective": "huber", "delta": [0.5, 2.0], "data": data})
    huber = [Huber(delta=delta) for delta in (0.5, 2.0)]
    source = sources.Synthetic("least_squares")
    assert ids(read) == ids(Sweep(FedEPM(), source, objective=huber))
    assert [run.cell.parameters["delta"] for run in read] == [0.5, 2.0]
    read = Sweep.from_dict({"objective": "multinomial", "classes": 4, "data": data})
    assert read[0].cell.source == sources.Synthetic("multinomial", n_classes=4)
    with pytest.raises(ValueError, match="delta is not a parameter of the objective 'logistic'"):
        Sweep.from_dict({"delta": 1.0, "data": data})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials = 3": "trial = 3"}, "key 'trial' is unknown, those are data, algorithm, zip"),
        ({"trials = 3": "trials = 0"}, "trials must be an integer >= 1, got 0"),
        ({"trials = 3": "trials = []"}, "trials must not be an empty list"),
        ({"trials = 3": "trials = 'all'"}, "trials must be an integer >= 1, got 'all'"),
        ({"trials = 3": "seed = -1"}, "seed must be an integer from 0"),
        ({"trials = 3": "trials = "}, "Invalid value (at line 2, column 10)"),
        ({"trials = 3": "beta = -1"}, "beta must be a finite number"),
        ({"trials = 3": "objective = 'hinge'"}, "objective must be one of 'huber'"),
        ({"trials = 3": "stopping = 'never'"}, "stopping must be one of 'released'"),
        ({"trials = 3": "stopping = {rule = 'text', tolerance = 1}"},
         "key 'tolerance' is unknown, those of the stopping rule 'text' are gradient_tolerance"),
        ({"trials = 3": "rounds = 3\nstopping = 'text'"}, "rounds and stopping exclude each other"),
        ({"max_rounds = 2": "max_rounds = 2.5"}, "max_rounds must be an integer >= 0, got 2.5"),
        ({"max_rounds = 2": "engine = 'magic'"}, "engine must be one of 'compiled', 'reference'"),
        ({"trials = 3": "zip = ['clients']"}, "zip must be lists of two names or more"),
        ({"trials = 3": "zip = [['clients', 'local_step']]"},
         "zip joins clients and local_step, but local_step is not a list"),
        ({"trials = 3": "zip = [['clients', 'local_steps']]"},
         "[data] with [[algorithm]] 2 zip joins clients and local_steps, but local_steps is not"),
        ({"[data]": "[[data]]", "clients": "client"},
         "[[data]] 1 key 'client' is unknown, those of 'synthetic' are source, clients, samples"),
        ({"clients = [4, 5]": "clients = []"}, "clients must not be an empty list"),
        ({"clients = [4, 5]": "clients = [4, 'five']"}, "[data] clients must be an integer >= 1"),
        ({"source = \"synthetic\"": "source = 'no.csv'", "samples = 60": "",
          "features = 3": ""}, "no data file at"),
        ({"source = \"synthetic\"": "source = 7", "samples = 60": "", "features = 3": ""},
         "[data] source must be 'adult', 'breast_cancer', "),
        ({"source = \"synthetic\"": "partition = ['random', 'magic']", "samples = 60": "",
          "features = 3": ""}, "[data] partition must be one of 'random', 'equal', 'dirichlet'"),
        ({"source = \"synthetic\"": "partition = 'equal'\nconcentration = 1", "samples = 60": "",
          "features = 3": ""}, "[data] concentration is not a parameter of the partition 'equal'"),
        ({"local_steps = [2, 4]": "local_steps = [2, 0]"},
         "[[algorithm]] 1 local_steps must be an integer >= 1, got 0"),
        ({"local_steps = [2, 4]": "local_steps = '2'"}, "[[algorithm]] 1 local_steps must be an"),
        ({"local_steps = [2, 4]": "learning_rate = 1"},
         "[[algorithm]] 1 key 'learning_rate' is unknown, those of 'fedepm' are name, local_steps"),
        ({"\"sfedprox\"]": "\"sgd\"]"}, 
         "[[algorithm]] 2 name must be one of 'curvature', 'fedadmm'"),
        ({"[[algorithm]]\nname = \"fedepm\"\nlocal_steps = [2, 4]": "algorithm = 3",
          "[[algorithm]]\nname = [\"sfedavg\", \"sfedprox\"]": ""},
         "key 'algorithm' is unknown, those of 'synthetic'"),
    ],
)  # fmt: skip
def test_a_bad_specification_is_one_line_and_code_2(capsys, spec, changes, message):
    text = SPEC
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    spec.write_text(text)
    code, out, err = fedepm(capsys, "sweep", spec)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {spec}, ") and err.count("\n") == 1
    assert message in err
    assert not spec.with_suffix(".sqlite").exists()


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


# Sweeping -----------------------------------------------------------------------------


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


def test_a_full_disk_is_one_line(capsys, spec, monkeypatch):
    store = spec.with_suffix(".sqlite")
    opened = Store.__init__

    def little_room(self, *args, **kwargs):
        opened(self, *args, **kwargs)
        self._connection.execute("PRAGMA max_page_count = 12")

    monkeypatch.setattr(Store, "__init__", little_room)
    code, _, err = fedepm(capsys, "sweep", spec, "--trials", 30)
    assert code == 2
    assert err == (
        f"error: no space left to write {store}; what it holds is whole, with "
        "steps.sqlite-wal if that is beside it\n"
    )
    monkeypatch.setattr(Store, "__init__", opened)
    with Store(store, readonly=True) as whole:
        assert whole._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert 0 < len(whole) < 240
    assert fedepm(capsys, "sweep", spec, "--trials", 30, "--quiet") == (0, "", "")


# Interrupted, killed, two at a time -----------------------------------------------------

LONG = SPEC.replace("trials = 3", "trials = 40").replace("max_rounds = 2", "rounds = 3")


def stored(path) -> set[str]:
    """Ids in the store, as another program sees them meanwhile."""
    try:
        with Store(path, readonly=True, timeout=60) as store:
            return set(store.ids())
    except OSError:  # not there yet
        return set()


def wait_for(path, count, process) -> set[str]:
    """What is stored once there are so many, or the process has ended."""
    while len(found := stored(path)) < count and process.poll() is None:
        time.sleep(0.01)
    return found


def test_a_killed_sweep_leaves_a_whole_store_and_goes_on(capsys, spec):
    spec.write_text(LONG)
    path = spec.with_suffix(".sqlite")
    draw = random.Random(20221)
    seen: set[str] = set()
    for kill in range(1, 5):
        process = start("sweep", spec, "--quiet")
        seen |= wait_for(path, 60 * kill - draw.randrange(59), process)
        process.kill()
        process.communicate()
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        assert seen <= stored(path)  # nothing that was stored is lost
    assert len(stored(path)) < 320
    assert fedepm(capsys, "sweep", spec, "--quiet") == (0, "", "")
    assert timeless(path) == timeless(swept_at_once(capsys, spec))


def swept_at_once(capsys, spec):
    path = spec.with_name("at_once.sqlite")
    assert fedepm(capsys, "sweep", spec, "--quiet", "--store", path) == (0, "", "")
    return path


def timeless(path) -> list[tuple]:
    with Store(path, readonly=True) as store:
        table = store.table()
        histories = store.histories(table["run_id"])
    left_out = ("total_time", "local_time", "machine", "created")
    rows = zip(*(column for name, column in table.items() if name not in left_out), strict=True)
    return sorted((*map(repr, row), histories[row[0]]["objective"].tobytes()) for row in rows)


def test_processes_end_with_a_killed_sweep(spec):
    import psutil

    spec.write_text(LONG.replace("40", "4000"))
    process = start("sweep", spec, "--quiet", "--backend", "processes", "--jobs", 1)
    wait_for(spec.with_suffix(".sqlite"), 1, process)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    process.communicate()
    psutil.wait_procs(workers)  # returns when all of them are gone
    assert not any(worker.is_running() for worker in workers)


def test_two_programs_share_a_store(capsys, spec):
    spec.write_text(LONG.replace("40", "10"))
    path = spec.with_suffix(".sqlite")
    programs = [start("sweep", spec, "--quiet") for _ in range(2)]
    for program in programs:
        assert program.communicate() == ("", "")
        assert program.returncode == 0
    with Store(path, readonly=True) as store:
        assert sorted(store.ids()) == ids(Sweep.from_toml(spec))
    assert timeless(path) == timeless(swept_at_once(capsys, spec))


def test_ctrl_c_is_code_130_and_says_how_to_go_on(spec):
    spec.write_text(LONG)
    path = spec.with_suffix(".sqlite")
    process = start("sweep", spec)
    wait_for(path, 20, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    kept = re.fullmatch(
        rf"interrupted, (\d+) of 320 runs are kept in {path}: the same again does "
        r"the others\n",
        err,
    )
    assert kept is not None, err
    assert int(kept[1]) == len(stored(path)) >= 20
    assert out == f"320 runs in 8 cells, into {path}\n"


# Looking into a store -----------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    spec = tmp_path_factory.mktemp("runs") / "steps.toml"
    spec.write_text(SPEC)
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


def test_runs_prune(capsys, spec):
    fedepm(capsys, "sweep", spec, "--quiet")
    store = spec.with_suffix(".sqlite")
    code, out, _ = fedepm(capsys, "runs", "prune", store, "--where", "trial=2", "--dry-run")
    assert (code, out) == (0, "8 of 24 runs would be deleted\n")
    code, out, _ = fedepm(capsys, "runs", "prune", store, "--where", "trial=2")
    assert (code, out) == (0, "deleted 8 of 24 runs\n")
    assert fedepm(capsys, "sweep", spec, "--dry-run")[1].endswith(
        f"16 of them in {store} already\n"
    )


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


def test_the_specification_in_the_readme_runs(capsys, tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert len(blocks) == 1
    (tmp_path / "steps.toml").write_text(blocks[0])
    code, out, _ = fedepm(capsys, "sweep", tmp_path / "steps.toml", "--dry-run")
    assert (code, out.split(",")[0]) == (0, "3000 runs in 30 cells")
    quick = blocks[0].replace("clients = [50, 100]", "clients = 5")
    quick = re.sub(r"trials = \d+", "rounds = 1", quick)
    (tmp_path / "steps.toml").write_text(quick)
    code, out, err = fedepm(capsys, "sweep", tmp_path / "steps.toml")
    assert (code, err) == (0, "") and out.startswith("15 runs in 15 cells")


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


def test_a_specification_of_mechanisms(tmp_path):
    path = tmp_path / "private.toml"
    path.write_text(
        'rounds = 3\n[algorithm]\nmechanism = ["laplace", "gaussian"]\ntotal_epsilon = [1, 2.5]\n'
        "delta = 1e-6\nclip = 0.1\npublic_scaling = true\n"
    )
    found = [cell.algorithm.mechanism for cell in Sweep.from_toml(path).cells]
    assert found == [
        kind(total_epsilon=epsilon, delta=1e-6, clip=0.1, public_scaling=True)
        for kind in (LaplaceMechanism, GaussianMechanism)
        for epsilon in (1.0, 2.5)
    ]
    path.write_text("rounds = 3\n[algorithm]\ntotal_epsilon = 1\nepsilon_per_round = 1\n")
    with pytest.raises(ValueError, match="exactly one of total_epsilon and epsilon_per_round"):
        Sweep.from_toml(path)


@pytest.mark.parametrize("key", ["huber_delta", "delta"])
def test_a_parameter_of_a_loss_has_the_name_of_its_option_and_its_own(tmp_path, key):
    path = tmp_path / "huber.toml"
    path.write_text(f'objective = "huber"\n{key} = [0.5, 2.0]\n[data]\nsource = "synthetic"\n')
    cells = Sweep.from_toml(path).cells
    assert [cell.objective.delta for cell in cells] == [0.5, 2.0]
    assert [cell.parameters["delta"] for cell in cells] == [0.5, 2.0]
