"""Sweeps: what they consist of, and that nothing but that decides what comes out."""

from __future__ import annotations

import dataclasses
import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import commands
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data
from scipy import sparse

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Huber,
    LeastSquares,
    Logistic,
    SFedAvg,
    SFedProx,
    Store,
    Sweep,
    _backends,
    _execute,
    datasets,
    grid,
    loaders,
    partition,
    run,
    sources,
    stopping,
    sweep,
)
from fedepm_fast._cells import Cell
from fedepm_fast._plan import Plan
from fedepm_fast._record import MEASURES, Outcome
from fedepm_fast.randomness import split_seed
from fedepm_fast.sweeps import SweepInterrupted

SMALL = sources.Synthetic(clients=4, samples=40, features=3)
TIMES = ("total_time", "local_time", "elapsed")


def small_sweep(**changed) -> Sweep:
    algorithms = grid(FedEPM, local_steps=[2, 4]) + grid(SFedAvg, local_steps=3)
    return Sweep(algorithms, SMALL, **{"trials": 6, "max_rounds": 5, **changed})


def timeless(result) -> tuple:
    """Everything of the runs, to the last bit, but times and places."""
    apart = (*TIMES, "machine", "created")
    table = {name: column for name, column in result.table().items() if name not in apart}
    histories = {
        run_id: {name: v.tobytes() for name, v in history.items() if name not in TIMES}
        for run_id, history in result.histories().items()
    }
    return table, histories


# Grids --------------------------------------------------------------------------------


def test_a_grid_is_every_combination_the_last_axis_fastest():
    made = grid(dict, a=[1, 2], b="fixed", c=range(2))
    assert made == [
        {"a": 1, "b": "fixed", "c": 0},
        {"a": 1, "b": "fixed", "c": 1},
        {"a": 2, "b": "fixed", "c": 0},
        {"a": 2, "b": "fixed", "c": 1},
    ]
    assert grid(dict) == [{}]
    assert grid(FedEPM, epsilon=np.array([0.1, 0.5])) == [FedEPM(epsilon=0.1), FedEPM(epsilon=0.5)]


def test_zipped_axes_move_together():
    made = grid(dict, zip=[("a", "c"), ("d", "e")], a=[1, 2], b=[5, 6], c=[3, 4], d=[7], e=[8])
    assert made == [
        {"a": a, "b": b, "c": c, "d": 7, "e": 8} for a, c in ((1, 3), (2, 4)) for b in (5, 6)
    ]
    assert grid(dict, zip=("a", "b"), a=[1, 2], b=[3, 4]) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


@pytest.mark.parametrize(
    ("zips", "axes", "message"),
    [
        ((), {"a": []}, "a must not be an empty list"),
        (("a", "b"), {"a": [1, 2], "b": [1]}, "zip must join lists of the same length, got 2 of a"),
        (("a", "b"), {"a": [1, 2], "b": 1}, "zip joins a and b, but b is not a list"),
        (("a", "b"), {"a": [1, 2]}, "zip joins a and b, but b is not a list"),
        (("a", "b"), {}, "zip joins a and b, but a is not a list"),
        ((("a", "b"), ("b", "c")), {}, "zip must name an axis once, got b twice"),
        ((("a",),), {"a": [1]}, "zip must be lists of two names or more"),
        ("ab", {"a": [1]}, "zip must be a list of names"),
    ],
)
def test_bad_grids_are_told(zips, axes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        grid(dict, zip=zips, **axes)


def test_what_is_too_many_to_hold_is_told_at_once():
    thousand = list(range(1000))
    with pytest.raises(ValueError, match=r"at most 1,000,000 combinations, got 1,000,000,000"):
        grid(dict, a=thousand, b=thousand, c=thousand)
    for trials in (10**15, range(10**15)):
        with pytest.raises(ValueError, match="at most 1,000,000"):
            Sweep(FedEPM(), SMALL, trials=trials)
    with pytest.raises(ValueError, match="at most 1,000,000 cells, got 3,000,000"):
        Sweep([FedEPM()] * 3, SMALL, max_rounds=thousand, max_iterations=thousand)


# Sources ------------------------------------------------------------------------------


def test_the_split_seed_is_a_word_of_philox():
    before = np.array([2**64 - 1, 2**64 - 1, 2**64 - 1, 4], dtype=np.uint64)  # one before (0,0,0,5)
    for seed, trial in ((0, 0), (1, 2), (2**64 - 1, 2**63)):
        key = np.array([seed, trial], dtype=np.uint64)
        want = np.random.Philox(key=key, counter=before).random_raw()
        assert split_seed(seed, trial) == int(want)


def same_data(a: FederatedData, b: FederatedData) -> None:
    assert a.content_hash() == b.content_hash()
    assert a.description == b.description
    np.testing.assert_array_equal(a.rows, b.rows)
    assert (a.feature_names, a.client_names) == (b.feature_names, b.client_names)


@pytest.mark.parametrize(
    "how",
    [partition.RandomCuts(7), partition.EqualParts(3), partition.DirichletLabelSkew(5, 0.3)],
)
def test_a_source_of_adult_splits_as_the_data_set_does(how):
    source = sources.Partitioned(sources.read_adult(), how)
    assert (source.n_clients, source.n_features) == (how.clients, 14)
    same_data(source.split(2**63 + 1), datasets.adult(seed=2**63 + 1, partition=how))


@pytest.mark.parametrize("scale", ["unit-norm", None])
def test_a_source_of_a_file_splits_as_the_loader_does(tmp_path, scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:, 1] = 0
    np.savez(tmp_path / "t.npz", X=X, y=np.where(X[:, 0] > 0, "yes", "no"), clients=X[:, 2] > 0)
    options = {"scale": scale, "source": str(tmp_path / "t.npz")}
    for chosen, way in (
        ({}, {}),
        ({"clients": 5}, {"partition": partition.RandomCuts(5)}),
        ({"partition": "equal", "clients": 2}, {"partition": partition.EqualParts(2)}),
    ):
        source = sources.from_options({**options, **chosen}, loss=Logistic())
        want = loaders.read_federated(tmp_path / "t.npz", scale=scale, seed=3, **way)
        same_data(source.split(3), want)
        assert source.n_clients == want.n_clients


def test_sparse_tables_are_dealt_too():
    X = sparse.random_array((30, 8), density=0.4, rng=np.random.default_rng(1), format="csr")
    loaded = loaders.Loaded(X, np.arange(30) % 2, None, None)
    table = sources.Table.prepare("t", loaded, task="classification", scale=None, source="t")
    how = partition.EqualParts(4)
    want = FederatedData.split(X, np.arange(30) % 2, how, seed=5, description={"source": "t"})
    same_data(sources.Partitioned(table, how).split(5), want)


def test_ids_of_files_follow_content_not_names(tmp_path):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X, y=y)
    np.savez(tmp_path / "c.npz", X=X + 1e-12, y=y)
    a, b, c = (Sweep(FedEPM(), tmp_path / f"{n}.npz", clients=3)[0] for n in "abc")
    assert a.run_id == b.run_id != c.run_id
    assert [r.cell.parameters["data"] for r in (a, b, c)] == ["a.npz", "b.npz", "c.npz"]


# Sweeps -------------------------------------------------------------------------------


def test_the_names_of_runs_do_not_change_by_accident():
    # A change here means that stored results are not found any more: raise RESULTS_VERSION
    # when results change, and nothing when they do not.
    synthetic = Cell(FedEPM(), SMALL, engine="reference").run_id(0, 0)
    assert synthetic == "dfc4538ec701844f205d39ff340cfc54831fe97d5c7cf0a9ec64d1fd1dbee3b6"
    found = Cell(SFedProx(), adult(100), engine="reference").run_id(2, 3)
    assert found == "e5eec5cc282033e106d3072fb0ff1f17d09ae5cb8081c319c0309089af0e233b"


def test_whatever_determines_a_result_changes_the_name():
    cell = Cell(FedEPM(), SMALL)
    other = [
        dataclasses.replace(cell, algorithm=algorithm)
        for algorithm in (
            FedEPM(local_steps=11), FedEPM(participation=0.4), FedEPM(epsilon=0.2),
            FedEPM(preset="text"), FedEPM(noise="none"), FedEPM(mu0=0.1), FedEPM(c=0.0),
            FedEPM(alpha=1.0), FedEPM(coverage_rounds=3), FedEPM(lam=0.0), FedEPM(eta=1.0),
            FedEPM(step="1"), SFedAvg(), SFedAvg(learning_rate=1.0), SFedProx(),
            SFedProx(prox=0.1), SFedProx(inner_steps=2),
        )
    ]  # fmt: skip
    other += [
        dataclasses.replace(cell, source=dataclasses.replace(SMALL, **changed))
        for changed in (
            {"clients": 5}, {"samples": 41}, {"features": 4}, {"heterogeneity": 0.1},
            {"imbalance": 0.1}, {"label_noise": 0.5}, {"density": 0.5}, {"scale": None},
            {"dtype": "float32"},
        )
    ]  # fmt: skip
    other += [Cell(FedEPM(), sources.Fixed(small_data())), Cell(FedEPM(), adult(4))]
    other += [
        Cell(FedEPM(), SMALL, **changed)
        for changed in (
            {"objective": Logistic(beta=0.1)}, {"objective": Logistic(regularizer="beta")},
            {"objective": LeastSquares()}, {"objective": Huber()}, {"objective": Huber(delta=2.0)},
            {"objective": LeastSquares(weights=[1, 2, 3])}, {"stopping": "text"}, {"rounds": 3},
            {"stopping": stopping.ReleasedRule(1e-8)}, {"max_rounds": 3}, {"max_iterations": 9},
        )
    ]  # fmt: skip
    names = [cell.run_id(0, 0) for cell in [cell, *other]]
    names += [cell.run_id(1, 0), cell.run_id(0, 1), cell.run_id(11, 1), cell.run_id(1, 11)]
    assert len(set(names)) == len(names)


def adult(clients: int) -> sources.Source:
    return sources.Partitioned(sources.read_adult(), partition.RandomCuts(clients))


def test_runs_that_are_the_same_have_one_name():
    eta = (0.02 * 4 + 1) * (0.5 + 0.1) * 1e-5
    spelled = FedEPM(
        lam=eta / 2, eta=eta, noise="standardized", step="1/d", participation=np.float64(0.5)
    )
    same = [
        Cell(FedEPM(), SMALL, rounds=7),
        Cell(spelled, SMALL, stopping="none", max_rounds=7),
        Cell(FedEPM(), sources.Synthetic(clients=4, samples=40, features=3), rounds=7),
        Cell(FedEPM(), SMALL, Logistic(regularizer="beta/d"), rounds=7),
    ]
    assert len({cell.run_id(3, 4) for cell in same}) == 1
    assert len(Sweep.from_cells(same, trials=5)) == 5
    data = small_data()
    renamed = FederatedData(
        data.features, data.labels, data.client_sizes, description={"source": "elsewhere"}
    )
    assert len(Sweep(FedEPM(), [data, renamed])) == 1


def test_a_sweep_is_the_product_of_its_lists():
    made = Sweep(
        grid(FedEPM, local_steps=[2, 4]),
        clients=[10, 20],
        partition=["random", "equal"],
        objective=[Logistic(), Logistic(beta=0.1)],
        max_rounds=[3, 4],
        trials=[5, 9],
        seed=[0, 1],
    )
    assert len(made.cells) == 2**5
    assert len(made) == 2**7
    assert [(r.seed, r.trial) for r in made[:4]] == [(0, 5), (0, 9), (1, 5), (1, 9)]
    assert len(made + made) == len(made)
    more = made + Sweep(SFedAvg(), clients=10)
    assert (len(more), more[:128]) == (129, made.runs)
    assert repr(more) == "<Sweep of 129 runs in 33 cells>"
    by_object = Sweep(FedEPM(), partition=grid(partition.EqualParts, clients=[10, 20]))
    by_name = Sweep(FedEPM(), partition="equal", clients=[10, 20])
    assert [r.run_id for r in by_object] == [r.run_id for r in by_name]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FedEPM,), {}, "algorithm must be one of FedEPM, SFedAvg, SFedProx, got type"),
        (([],), {}, "algorithms must not be an empty list"),
        ((FedEPM(), 3), {}, "data must be 'adult', 'synthetic', a path, FederatedData or a source"),
        ((FedEPM(), "no.csv"), {}, "no data file at no.csv"),
        ((FedEPM(), SMALL), {"clients": 3}, "clients is for adult or a file"),
        ((FedEPM(), "synthetic"), {"partition": "equal"}, "partition is for a table"),
        ((FedEPM(),), {"clients": 0}, "clients must be an integer >= 1, got 0"),
        ((FedEPM(),), {"clients": []}, "clients must not be an empty list"),
        ((FedEPM(),), {"partition": "magic"}, "partition must be one of 'random'"),
        ((FedEPM(),), {"partition": partition.EqualParts(3), "clients": 4}, "clients is for part"),
        ((FedEPM(),), {"objective": "hinge"}, "objective must be one of"),
        ((FedEPM(),), {"objective": "least_squares"}, "objective must be of two classes for adult"),
        ((FedEPM(),), {"trials": 0}, "trials must be an integer >= 1"),
        ((FedEPM(),), {"trials": [-1]}, "trials must be an integer from 0"),
        ((FedEPM(),), {"seed": 2**64}, "seed must be an integer from 0"),
        ((FedEPM(),), {"rounds": 3, "stopping": "text"}, "rounds and stopping exclude each other"),
        ((FedEPM(),), {"rounds": -1}, "rounds must be an integer >= 0"),
        ((FedEPM(),), {"max_rounds": 1.5}, "max_rounds must be an integer >= 0"),
        ((FedEPM(),), {"max_iterations": -1}, "max_iterations must be an integer >= 0"),
        ((FedEPM(),), {"stopping": "never"}, "stopping must be one of"),
        ((FedEPM(),), {"engine": "magic"}, "engine must be one of"),
        ((FedEPM(coverage_rounds=1),), {}, "coverage_rounds must be at least 2"),
        ((FedEPM(), sources.Fixed(small_data(n=1))), {}, "noise 'standardized' needs at least 2"),
    ],
)
def test_bad_sweeps_are_told(arguments, options, message):
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        Sweep(*arguments, **options)


def test_what_cannot_be_told_from_a_description_is_refused():
    class Mine(stopping.NoRule):
        pass

    with pytest.raises(TypeError, match="stopping must be one that is registered"):
        Sweep(FedEPM(), SMALL, stopping=Mine())

    class Odd(partition.EqualParts):
        pass

    with pytest.raises(TypeError, match="partition must be one of"):
        Sweep(FedEPM(), partition=Odd(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, "clients must be an integer >= 1"),
        ({"samples": 3}, "samples must be an integer >= 100"),
        ({"features": 0}, "features must be"),
        ({"heterogeneity": -1.0}, "heterogeneity must be"),
        ({"imbalance": float("nan")}, "imbalance must be"),
        ({"label_noise": 0}, "label_noise must be"),
        ({"density": 2.0}, "density must be"),
        ({"scale": "max"}, "scale must be one of"),
        ({"dtype": "int32"}, "dtype must be float64 or float32"),
        ({"task": "ranking"}, "task must be one of"),
    ],
)
def test_bad_synthetic_sources_are_told(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sources.Synthetic(**options)


def test_what_does_not_fit_is_found_before_any_work(tmp_path):
    with pytest.raises(ValueError, match="clients must not exceed the number of rows"):
        sweep(Sweep(FedEPM(), clients=[10, 50_000]))
    data = FederatedData(np.eye(4), [0, 1, 2, 0], [2, 2])
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        sweep(Sweep(FedEPM(), data))
    for options, message in (
        ({"jobs": 0}, "jobs must be"),
        ({"backend": "magic"}, "backend must be one of"),
        ({"address": "tcp://here"}, "address is for the backends 'dask' and 'ray'"),
        ({"progress": 3}, "progress must be a bool or a callable"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            sweep(small_sweep(), **options)
    with pytest.raises(TypeError, match="spec must be a Sweep"):
        sweep(3)
    sweep(small_sweep(trials=1, rounds=0, max_rounds=500), store=tmp_path / "a.sqlite")
    with (
        Store(tmp_path / "a.sqlite", readonly=True) as store,
        pytest.raises(ValueError, match="store must be one to write to"),
    ):
        sweep(small_sweep(), store=store)


# Doing them ---------------------------------------------------------------------------


def test_a_run_of_a_sweep_is_the_run_itself():
    algorithms = [FedEPM(local_steps=4), SFedAvg(local_steps=2), SFedProx(local_steps=2)]
    result = sweep(Sweep(algorithms, clients=12, trials=[0, 3], seed=7, max_rounds=6), keep_x=True)
    table = result.to_pandas()
    rows = iter(table.to_dict("records"))
    for algorithm in algorithms:
        for trial in (0, 3):
            data = datasets.adult(clients=12, seed=split_seed(7, trial))
            want = run(algorithm, data, seed=7, trial=trial, max_rounds=6, every_accuracy=False)
            row = next(rows)
            assert (row["algorithm"], row["local_steps"], row["clients"], row["trial"]) == (
                algorithm.name, algorithm.local_steps, 12, trial,
            )  # fmt: skip
            for name in ("mean_objective", "rounds", "iterations", "snr", "accuracy", "diverged"):
                assert row[name] == getattr(want, name)
            assert row["reasons"] == "+".join(want.reasons)
            assert row["grad_mean_sq"] == want.history["grad_mean_sq"][-1]
            history = result.history(row["run_id"])
            assert history.keys() == want.history.keys()
            for name in history.keys() - set(TIMES):
                np.testing.assert_array_equal(history[name], want.history[name])
    assert table["lam"].notna().tolist() == [True] * 2 + [False] * 4
    assert table.columns[:3].tolist() == ["run_id", "algorithm", "local_steps"]
    assert {"participation", "epsilon", "eta", "learning_rate", "partition", "objective",
            "seed", *MEASURES} <= set(table.columns)  # fmt: skip


def test_trials_differ_in_split_selection_and_noise():
    result = sweep(Sweep(FedEPM(), clients=5, trials=4, rounds=0))
    starts = {result.history(run_id)["objective"][0] for run_id in result}
    assert len(starts) == 4
    fixed = sweep(Sweep(FedEPM(noise="none"), small_data(), trials=3, rounds=0))
    assert len({fixed.history(run_id)["objective"][0] for run_id in fixed}) == 1


@pytest.fixture(scope="module")
def expected():
    return timeless(sweep(small_sweep(), jobs=1))


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_backend_and_jobs_change_nothing(expected, backend, jobs):
    assert timeless(sweep(small_sweep(), backend=backend, jobs=jobs)) == expected


def test_a_dask_cluster_changes_nothing(expected):
    import distributed

    with distributed.Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as client:
        assert timeless(sweep(small_sweep(), backend="dask", address=client)) == expected
        assert not _execute._installed  # the workers are left as they were


def test_a_dask_worker_that_dies_changes_nothing():
    import distributed

    made = small_sweep(trials=60)
    want = timeless(sweep(made))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        first = next(iter(cluster.workers.values()))
        killed = []

        def kill(done, total, failed):
            if done >= 40 and not killed:
                killed.append(done)
                os.kill(first.pid, signal.SIGKILL)

        result = sweep(made, backend="dask", address=cluster.scheduler_address, progress=kill)
    assert killed and killed[0] < len(made)
    assert timeless(result) == want


def test_order_and_grouping_change_nothing(expected, monkeypatch):
    runs = list(small_sweep())
    np.random.default_rng(0).shuffle(runs)
    shuffled = Sweep.from_cells([])
    shuffled._set(runs)
    one = sweep(shuffled)
    monkeypatch.setattr(_backends.Threads, "target", 1e9)
    other = sweep(shuffled, jobs=2)
    ids = [r.run_id for r in small_sweep()]
    for result in (one, other):
        result.run_ids = tuple(ids)
        assert timeless(result) == expected


def test_sharing_a_split_changes_nothing(expected, monkeypatch):
    made = []
    split = sources.Synthetic.split
    monkeypatch.setattr(
        sources.Synthetic, "split", lambda self, seed: made.append(seed) or split(self, seed)
    )
    assert timeless(sweep(small_sweep(), jobs=1)) == expected
    assert len(set(made)) == 6  # one for each trial, whatever the cell


def test_a_store_is_resumed_and_extended(tmp_path, monkeypatch):
    done = []
    execute = _execute.execute
    monkeypatch.setattr(
        _execute, "execute", lambda cell, s, t, data: done.append(t) or execute(cell, s, t, data)
    )
    path = tmp_path / "a.sqlite"
    first = sweep(small_sweep(trials=2), store=path)
    assert len(done) == 6
    second = sweep(small_sweep(trials=4), store=path)
    assert sorted(done[6:]) == [2, 2, 2, 3, 3, 3]
    again = sweep(small_sweep(trials=4), store=path)
    assert len(done) == 12
    assert timeless(second) == timeless(again) == timeless(sweep(small_sweep(trials=4)))
    assert timeless(first) == timeless(sweep(small_sweep(trials=2)))
    with Store(path) as store:
        assert len(store) == 12
        assert len(sweep(small_sweep(trials=4), store=store)) == 12
        assert len(store) == 12  # still open


def test_what_another_program_stores_meanwhile_is_not_done_again(tmp_path, monkeypatch):
    want = sweep(small_sweep(), store=tmp_path / "other.sqlite")
    records = [want.store.get(run_id) for run_id in want]
    execute, path, done = _execute.execute, tmp_path / "a.sqlite", []

    def meanwhile(cell, seed, trial, data):
        done.append(trial)
        if len(done) == 1:
            with Store(path) as other:
                other.add(record for record in records if record.trial >= 2)
        return execute(cell, seed, trial, data)

    monkeypatch.setattr(_execute, "execute", meanwhile)
    told = []
    result = sweep(small_sweep(), store=path, jobs=1, progress=lambda *counts: told.append(counts))
    assert sorted(done) == [0, 0, 0, 1, 1, 1]
    assert told[-1] == (18, 18, 0)
    assert timeless(result) == timeless(want)


def test_two_programs_in_step_part(tmp_path, monkeypatch):
    """One whose runs another stores, each a moment before, goes on elsewhere."""
    want = sweep(small_sweep(trials=40), store=tmp_path / "other.sqlite")
    execute, path, done = _execute.execute, tmp_path / "a.sqlite", []
    other = Store(path)
    monkeypatch.setattr(_backends.Threads, "target", 1e-9)  # one by one

    def faster(cell, seed, trial, data):
        done.append(trial)
        if len(done) <= 5:
            other.add([want.store.get(cell.run_id(seed, trial))])
        return execute(cell, seed, trial, data)

    monkeypatch.setattr(_execute, "execute", faster)
    assert timeless(sweep(small_sweep(trials=40), store=path, jobs=1)) == timeless(want)
    assert sorted(done) == sorted([*range(40)] * 3)
    assert done[:2] == [0, 0] and done != sorted(done)


def test_a_run_that_raises_is_recorded_and_tried_again(tmp_path, monkeypatch):
    execute = _execute.execute
    commands.fail_one_trial(monkeypatch, "this one\nfails")
    path = tmp_path / "a.sqlite"
    result = sweep(small_sweep(), store=path)
    assert list(result.failed.values()) == ["ValueError: this one\nfails"]
    assert repr(result) == "<SweepResult of 18 runs, 1 failed>"
    (run_id,) = result.failed
    assert result.history(run_id) == {}
    row = result.to_pandas().set_index("run_id").loc[run_id]
    assert (row["algorithm"], row["trial"]) == ("sfedavg", 1)
    assert np.isnan(row["mean_objective"])
    monkeypatch.setattr(_execute, "execute", execute)
    assert timeless(sweep(small_sweep(), store=path)) == timeless(sweep(small_sweep()))


def test_a_split_that_fails_in_a_later_trial_is_recorded(monkeypatch):
    split = sources.Synthetic.split

    def fail(self, seed):
        if seed == split_seed(0, 4):
            raise ValueError("no such split")
        return split(self, seed)

    monkeypatch.setattr(sources.Synthetic, "split", fail)
    result = sweep(small_sweep(), jobs=2)
    assert set(result.failed.values()) == {"ValueError: no such split"}
    assert len(result.failed) == 3


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_run_that_diverges_is_a_result(backend):
    wild = Sweep(
        SFedAvg(learning_rate=1e6),
        sources.Synthetic("least_squares", clients=4, samples=40, features=3),
        objective="least_squares",
        trials=3,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sweep(wild, backend=backend, jobs=1)
    assert result.failed == {}
    assert result.to_pandas()["diverged"].all()
    assert set(result.table()["reasons"]) == {"diverged"}


def test_progress_is_told_and_nothing_is_shown_without_a_terminal(capsys):
    told = []
    sweep(small_sweep(), progress=lambda *counts: told.append(counts), jobs=2)
    done = [counts[0] for counts in told]
    assert done == sorted(done)
    assert told[-1] == (18, 18, 0)
    sweep(small_sweep())
    assert capsys.readouterr() == ("", "")


def test_the_bar_counts(monkeypatch):
    from fedepm_fast._progress import Bar

    bar = Bar(5, 20)
    with bar:
        bar.update([Outcome("a", 0, 0, 0, None, (), None, "", "", 1.0)] * 3)
        bar.update([Outcome("a", 0, 0, 0, "no", (), None, "", "", 1.0)])
    (task,) = bar.bar.tasks
    assert (task.completed, task.total, task.fields["failed"]) == (9, 20, "1 failed")


def test_ctrl_c_keeps_what_finished(tmp_path):
    def interrupt(done, total, failed):
        if done >= 5:
            raise KeyboardInterrupt

    path = tmp_path / "a.sqlite"
    with pytest.raises(SweepInterrupted, match=r"interrupted, \d+ of 18 runs are kept in") as told:
        sweep(small_sweep(), store=path, jobs=1, progress=interrupt)
    with Store(path) as store:
        kept = len(store)
    assert 5 <= kept < 18
    assert f"{kept} of 18" in str(told.value)
    assert timeless(sweep(small_sweep(), store=path)) == timeless(sweep(small_sweep()))
    with pytest.raises(SweepInterrupted, match="without a store nothing is kept"):
        sweep(small_sweep(), jobs=1, progress=interrupt)


# Workers that die ---------------------------------------------------------------------


class Mortal(sources.Synthetic):
    """Data whose making kills the process, the first time or always."""

    def split(self, seed):
        if seed == split_seed(0, 2) and (self.always or not os.path.exists(self.marker)):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().split(seed)


@pytest.mark.parametrize("always", [False, True])
def test_runs_of_a_process_that_dies_are_done_by_others(expected, tmp_path, always):
    source = Mortal(**{k: v for k, v in dataclasses.asdict(SMALL).items() if k != "name"})
    object.__setattr__(source, "marker", str(tmp_path / "died"))
    object.__setattr__(source, "always", always)
    algorithms = [] if always else grid(FedEPM, local_steps=[2, 4])
    algorithms += [SFedAvg(local_steps=3)]
    result = sweep(Sweep(algorithms, source, trials=6, max_rounds=5), backend="processes", jobs=1)
    assert os.path.exists(tmp_path / "died")
    if not always:
        assert timeless(result) == expected
        return
    table = result.to_pandas()
    assert set(table[table["error"].isna()]["trial"]) >= {0, 1, 5}
    assert table[table["trial"] == 2]["error"].str.startswith("the worker was lost 3 times").all()


def test_a_lost_cluster_ends_the_sweep_and_keeps_what_finished(tmp_path, monkeypatch):
    class Lost(_backends.Threads):
        def check(self):
            raise RuntimeError("the cluster is gone")

        def submit(self, task):
            if len(self.cells) and any(trial >= 3 for *_, trial in task):
                future = ThreadPoolExecutor(1).submit(int, "x")
                return future
            return super().submit(task)

    monkeypatch.setitem(_backends.BACKENDS, "threads", Lost)
    with pytest.raises(RuntimeError, match="the cluster is gone"):
        sweep(small_sweep(), store=tmp_path / "a.sqlite", jobs=1)
    with Store(tmp_path / "a.sqlite") as store:
        assert store.table()["trial"] == sorted(store.table()["trial"])
        assert set(store.table()["trial"]) <= {0, 1, 2}


def test_workers_that_never_get_anything_done_end_the_sweep(monkeypatch):
    class Useless(_backends.Threads):
        def submit(self, task):
            return super().submit([("no such run",)])

    monkeypatch.setitem(_backends.BACKENDS, "threads", Useless)
    with pytest.raises(RuntimeError, match="no worker gets anything done: ValueError"):
        sweep(small_sweep(trials=100))


def test_workers_of_another_version_are_refused():
    with pytest.raises(RuntimeError, match=r"this worker has fedepm_fast .*, the sweep was star"):
        _execute.execute_installed("x", "0.0.0", [])


# Plans --------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=200),
    st.lists(st.floats(1e-4, 3), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_a_plan_deals_every_run_once_in_tasks_of_about_the_target(cells, seconds, workers):
    items = [(str(i), cell, 0, i) for i, cell in enumerate(cells)]
    plan = Plan(items, 0.5, workers)
    dealt = []
    while task := plan.next():
        known = [plan.seconds.get(item[1]) for item in task]
        assert None not in known[:-1]  # a new cell ends a task
        assert sum(t for t in known[:-1] if t is not None) < 0.5
        dealt += task
        plan.learn([Outcome(*item, None, (), None, "", "", seconds[item[1]]) for item in task])
    assert dealt == items


def test_lost_tasks_come_back_one_by_one():
    items = [(str(i), i % 2, 0, i) for i in range(40)]
    plan = Plan(items, 0.5, 1)
    plan.learn([Outcome(*item, None, (), None, "", "", 1e-3) for item in items])
    first = plan.next()
    assert len(first) > 3
    plan.again(first[:3])
    assert [plan.next() for _ in range(3)] == [[item] for item in first[:3]]
    assert plan.next()[0] == items[len(first)]


def test_private_runs_in_a_sweep():
    from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism

    mechanisms = [
        LaplaceMechanism(total_epsilon=epsilon, public_scaling=True) for epsilon in (1.0, 5.0)
    ]
    mechanisms.append(GaussianMechanism(total_epsilon=1.0, public_scaling=True))
    algorithms = [FedEPM(mechanism=mechanism, local_steps=2) for mechanism in mechanisms]
    result = sweep(Sweep([*algorithms, FedEPM()], clients=5, trials=2, rounds=2))
    table = result.to_pandas()
    assert not result.failed
    assert table["mechanism"].tolist()[:6] == ["laplace"] * 4 + ["gaussian"] * 2
    assert table["total_epsilon"].tolist()[:6] == [1.0, 1.0, 5.0, 5.0, 1.0, 1.0]
    assert table["mechanism"].isna().tolist()[6:] == [True, True]
    want = run(algorithms[1], datasets.adult(clients=5, seed=split_seed(0, 1)), seed=0, trial=1,
               rounds=2)  # fmt: skip
    assert table["mean_objective"][3] == want.mean_objective
    with pytest.raises(ValueError, match="rounds must be given"):
        Sweep(algorithms[0], clients=5)
