"""What every dataset does, the built-in ones and one of a user's own file."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from commands import fedepm

from fedepm_fast import FedEPM, Store, Sweep, datasets, run, sweep
from fedepm_fast._common import declared as _declared
from fedepm_fast.data import DATASETS, TASKS, Dataset
from fedepm_fast.data.loaders import Loaded
from fedepm_fast.data.partition import EqualParts
from fedepm_fast.data.sources import from_options, is_scaling_public
from fedepm_fast.objectives import as_objective
from fedepm_fast.randomness import split_seed


class Petals(Dataset):
    """Three kinds of flowers, told apart by the lengths of their petals."""

    name = "petals"
    label = "Petals"
    task = "multiclass"
    origin = "made here"
    licence = "CC0"

    @classmethod
    def load(cls) -> Loaded:
        rng = np.random.default_rng(4)
        kinds = rng.integers(0, 3, 90)
        lengths = rng.normal(size=(90, 4)) + 2.0 * kinds[:, None]
        names = np.array(["setosa", "versicolor", "virginica"])[kinds]
        return Loaded(lengths, names, None, ("a", "b", "c", "d"))


#: Few rows of unit columns need larger penalty parameters than the paper's table.
STABLE = FedEPM(mu0=30, noise="none")
OBJECTIVE = {
    "classification": "logistic",
    "multiclass": "multinomial",
    "regression": "least_squares",
}


def objective(name):
    return OBJECTIVE[DATASETS[name].task]


def test_a_definition_is_a_registration():
    assert DATASETS["petals"] is Petals
    assert {"adult", "breast_cancer", "petals"} <= set(DATASETS)
    # Known without importing anything: the files of the package.
    assert _declared.datasets()[:2] == ["adult", "breast_cancer"]
    assert "petals" in _declared.datasets()
    with pytest.raises(ValueError, match="'petals' names another dataset, of "):
        type("Other", (Dataset,), {"name": "petals"})
    with pytest.raises(ValueError, match="name must be one of 'adult', 'breast_cancer', 'petals'"):
        datasets.federated("iris")


def test_rows_without_names_are_refused_by_what_is_wanted():
    class Bare(Dataset):
        name = "bare"

        @classmethod
        def load(cls):
            return np.ones((4, 2)), np.arange(4) % 2

    try:
        with pytest.raises(TypeError, match=r"^Bare.load must return an object with features, "):
            datasets.federated("bare", clients=2)
    finally:
        del DATASETS._found["bare"]


@pytest.fixture(params=sorted(DATASETS))
def name(request):
    return request.param


def test_says_what_it_is(name):
    found = DATASETS[name]
    assert found.name == name and found.task in TASKS
    assert found.label and found.origin and found.licence and found.__doc__
    rows = found.load()
    d, n = rows.features.shape
    assert np.isfinite(rows.features).all() and len(rows.labels) == d
    assert len(rows.feature_names) == n


def test_is_dealt_with_columns_of_unit_norm(name):
    data = datasets.federated(name, clients=5, seed=2)
    rows = DATASETS[name].load()
    assert (data.n_clients, data.n_samples) == (5, len(rows.labels))
    assert data.feature_names == rows.feature_names
    expected = rows.features / np.linalg.norm(rows.features, axis=0)
    np.testing.assert_allclose(data.features, expected[data.rows], rtol=1e-12)
    if data.label_mapping is not None:
        mapped = [data.label_mapping[str(label)] for label in rows.labels[data.rows]]
        assert data.labels.tolist() == mapped
    assert repr(data).startswith(f"<FederatedData {DATASETS[name].label}: {data.n_samples} rows, ")
    equal = datasets.federated(name, partition=EqualParts(3))
    assert np.ptp(equal.client_sizes) <= 1 and equal.n_clients == 3
    copy = pickle.loads(pickle.dumps(data))
    assert copy.content_hash() == data.content_hash()
    assert copy.description == data.description
    with pytest.raises(ValueError, match="clients must be an integer >= 1, got 0"):
        datasets.federated(name, clients=0)


def test_compiled_rows_are_those_that_are_seen(name):
    data = datasets.federated(name, clients=5)
    goal = as_objective(objective(name))
    engine, reference = (
        run(STABLE, data, objective=goal, rounds=3, engine=engine)
        for engine in ("compiled", "reference")
    )
    np.testing.assert_allclose(engine.x, reference.x, rtol=1e-10, atol=1e-13)


def test_sweeps_by_name_and_reads_back(name, tmp_path):
    spec = Sweep(STABLE, name, clients=5, rounds=2, seed=3, objective=objective(name))
    found = sweep(spec, store=tmp_path / "store.sqlite", keep_x=True, progress=False)
    data = datasets.federated(name, clients=5, seed=split_seed(3, 0))
    expected = run(STABLE, data, objective=objective(name), seed=3, rounds=2)
    (row,) = found.to_pandas().to_dict("records")
    assert (row["data"], row["clients"]) == (name, 5)
    assert row["mean_objective"] == expected.mean_objective
    with Store(tmp_path / "store.sqlite") as store:
        (run_id,) = store.to_pandas()["run_id"]
        assert store.to_pandas()["data"].tolist() == [name]
        np.testing.assert_array_equal(
            store.history(run_id)["objective"], expected.history["objective"]
        )
    assert [r.run_id for r in spec.runs] == [run_id]


def test_commands_know_the_name(name, tmp_path, capsys):
    words = ["--data", name, "--clients", 5, "--objective", objective(name), "--rounds", 4]
    words += ["--noise", "none", "--mu0", 30]
    code, out, err = fedepm(capsys, "run", *words, "--json")
    assert (code, err) == (0, "")
    data = datasets.federated(name, clients=5)
    expected = run(STABLE, data, objective=objective(name), rounds=4)
    assert json.loads(out)["mean_objective"] == pytest.approx(expected.mean_objective, rel=1e-13)
    code, _, err = fedepm(capsys, "run", *words, "--no-scale")
    assert code == 2 and f"{DATASETS[name].label} comes scaled" in err
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'rounds = 1\nobjective = "{objective(name)}"\n[data]\nsource = "{name}"\nclients = 4\n'
        '[[algorithm]]\nname = "fedepm"\n'
    )
    code, out, err = fedepm(capsys, "sweep", spec, "--store", tmp_path / "s.sqlite", "--quiet")
    assert code == 0, err
    with Store(tmp_path / "s.sqlite") as store:
        assert store.to_pandas()["data"].tolist() == [name]


def test_options_and_losses_that_do_not_suit_are_refused(name):
    goal = as_objective(objective(name))
    with pytest.raises(ValueError, match=f"label is for a file, not for {name}"):
        from_options({"source": name, "label": "y"}, loss=goal)
    other = "logistic" if DATASETS[name].task == "regression" else "least_squares"
    with pytest.raises(ValueError, match=f"objective must be .* for {name}, got '{other}'"):
        from_options({"source": name}, loss=as_objective(other))


def test_what_is_public():
    assert is_scaling_public("adult")
    assert not any(map(is_scaling_public, ("breast_cancer", "petals", "synthetic", "rows.csv")))
