"""What sweeps consist of: grids, sources, cells and their names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import small_data
from scipy import sparse
from small_sweeps import SMALL, small_sweep

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
    datasets,
    grid,
    stopping,
    sweep,
)
from fedepm_fast.data import loaders, partition, sources
from fedepm_fast.randomness import split_seed
from fedepm_fast.sweeps._cells import Cell

# Grids --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["fedepm", FedEPM()])
def test_a_grid_is_of_what_can_be_called(make):
    with pytest.raises(TypeError, match="make must be a class or a function, such as FedEPM, got"):
        grid(make, local_steps=[4])


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
        ((FedEPM,), {}, "algorithm must be one of .*FedEPM, .*SFedAvg, SFedProx.*, got type"),
        (([],), {}, "algorithms must not be an empty list"),
        ((FedEPM(), 3), {}, "data must be 'adult', .*'synthetic', a path, FederatedData or"),
        ((FedEPM(), "no.csv"), {}, "no data file at no.csv"),
        ((FedEPM(), SMALL), {"clients": 3}, "clients is for a dataset or a file"),
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
        ({"imbalance": float("nan")}, "imbalance must not be nan"),
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


def test_runs_that_are_given_twice_are_counted_once():
    for given in ({"trials": 10**12}, {"trials": range(10**12)}):
        with pytest.raises(ValueError, match=r"runs, got 1,000,000,000,000$"):
            Sweep(FedEPM(), clients=[10, 10], seed=[3, 3], rounds=2, **given)
    assert len(Sweep(FedEPM(), clients=[10, 10], seed=[3, 3], trials=[1, 1, 2], rounds=2)) == 2


def test_there_are_at_most_as_many_workers_as_runs():
    found = sweep(Sweep(FedEPM(), clients=10, trials=2, rounds=1), jobs=2**62, progress=False)
    assert found.failed == {} and len(found) == 2
