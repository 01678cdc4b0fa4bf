"""Runs whose clients live on Dask workers have the bits of runs in one process."""

from __future__ import annotations

import os
import signal
import warnings
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
from problems import a_problem
from scipy import sparse

import fedepm_fast as ff
from fedepm_fast import dask as here
from fedepm_fast.data import FederatedData
from fedepm_fast.kernels.engine import _one_by_one
from fedepm_fast.kernels.ens import ens as kernel

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    """Two workers in this process."""
    with distributed.Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as client:
        yield client


def pieces_of(data, count):
    """So many pieces of the clients, each to be made where it will be."""
    ends = np.linspace(0, data.n_clients, count + 1).astype(int)
    rows = [np.arange(data.offsets[a], data.offsets[b]) for a, b in pairwise(ends)]
    return [dask.delayed(data.subset)(own) for own in rows]


def same(found, expected):
    """Whether two results agree in all but their times."""
    names = {"elapsed", "local_time"} ^ expected.history.keys()
    assert found.history.keys() == expected.history.keys()
    for name in names & expected.history.keys():
        assert np.array_equal(found.history[name], expected.history[name], equal_nan=True), name
    for name in ("x", "W", "Z", "snr_clients"):
        found_one, one = getattr(found, name), getattr(expected, name)
        assert np.array_equal(found_one, one, equal_nan=True), name
    for name, kept in expected.kept.items():
        assert np.array_equal(found.kept[name], kept), name
    assert (found.reasons, found.rounds) == (expected.reasons, expected.rounds)
    assert found.start_objective == expected.start_objective


def adult():
    return ff.datasets.adult(clients=9, seed=2)


def random_data(kind):
    """Of many columns, sparse, or of several classes."""
    rng = np.random.default_rng(7)
    n = {"dense": 140, "sparse": 30, "classes": 5}[kind]
    features = rng.normal(size=(90, n)) * (rng.random((90, n)) < 0.3)
    labels = rng.integers(0, 3 if kind == "classes" else 2, 90).astype(float)
    sizes = np.array([5, 30, 1, 20, 34])
    return FederatedData(
        sparse.csr_array(features) if kind == "sparse" else features, labels, sizes
    )


RUNS = {
    "fedepm": (adult, ff.FedEPM(), {}),
    "by size": (adult, ff.FedEPM(noise="laplace", coverage_rounds=3), {"client_weight": "size"}),
    "batches": (adult, ff.FedAvg(batch_size=16), {}),
    "shares and keeps": (adult, ff.Scaffold(), {}),
    "models": (adult, ff.CurvatureFedEPM(coordinates="renewed", participation=0.4), {}),
    "diagonals": (adult, ff.CurvatureFedEPM(coordinates="secant"), {"start": np.ones(14) / 9}),
    "dense": (lambda: random_data("dense"), ff.SFedAvg(), {"start": np.ones(140) / 9}),
    "sparse": (lambda: random_data("sparse"), ff.FedEPM(participation=0.2), {}),
    "classes": (lambda: random_data("classes"), ff.FedEPM(), {"objective": "multinomial"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_workers_has_the_bits_of_one_here(client, name):
    make, algorithm, options = RUNS[name]
    data, options = make(), {"seed": 4, "max_rounds": 5, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.DivergenceWarning)
        expected = ff.run(algorithm, data, engine="compiled", **options)
        found = here.run(algorithm, pieces_of(data, 4), client=client, **options)
    same(found, expected)
    assert "dask" in str(found)


def test_runs_without_noise_compile_no_law_on_workers(client, monkeypatch):
    compiled, address = [], _one_by_one.draw_address
    monkeypatch.setattr(
        _one_by_one, "draw_address", lambda law: compiled.append(law) or address(law)
    )
    for noise, draws in (("none", False), ("laplace", True)):
        here.run(ff.FedEPM(noise=noise), pieces_of(adult(), 2), client=client, seed=1, rounds=2)
        assert bool(compiled) == draws


def test_a_run_that_is_watched_stopped_or_spoilt(client):
    data = adult()
    clients = here.Clients(pieces_of(data, 2), client)
    seen = []
    found = ff.run(ff.SFedAvg(), clients, callback=lambda info: seen.append(info.objective[-1]))
    same(found, ff.run(ff.SFedAvg(), data, callback=lambda info: None))
    assert seen == found.history["objective"].tolist()
    with pytest.warns(ff.DivergenceWarning):
        expected = ff.run(ff.SFedAvg(learning_rate=1e300), data)
    with pytest.warns(ff.DivergenceWarning):
        same(ff.run(ff.SFedAvg(learning_rate=1e300), clients), expected)
    assert len(clients.parcels) <= 2
    assert "9 clients" in repr(clients)


def test_pairs_of_arrays_are_clients_of_one_each(client):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    lazy = da.from_array(X, chunks=(7, 4)), da.from_array(y, chunks=20)
    cuts = [(0, 10), (10, 45), (45, 60)]
    pairs = [tuple(one[a:b] for one in lazy) for a, b in cuts]
    data = FederatedData.from_clients([(X[a:b], y[a:b]) for a, b in cuts])
    options = {"objective": "least_squares", "rounds": 3}
    same(
        here.run(ff.FedEPM(), pairs, client=client, **options), ff.run(ff.FedEPM(), data, **options)
    )


@pytest.mark.parametrize(
    ("pieces", "options", "message"),
    [
        ([], {}, "data must be of at least one piece"),
        ("rows", {}, "data must be a sequence of pieces, got str"),
        (
            [3],
            {},
            r"data must be of pieces that are FederatedData or \(features, labels\), got int",
        ),
        ([(np.ones((2, 2)), [0, 1]), (np.ones((2, 3)), [0, 1])], {}, "pieces of the same columns"),
        ([(np.ones((2, 2)), [0, 2])], {}, "the logistic objective"),
        ([(np.ones((2, 2)), [0, 1])], {"engine": "reference"}, "engine must be 'compiled'"),
        (
            [(np.ones((2, 2)), [0, 1])],
            {"algorithm": ff.CurvatureFedEPM(coordinates="whitened")},
            "coordinates must be 'auto', 'renewed' or 'secant'",
        ),
    ],
)
def test_errors_name_the_argument(client, pieces, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        here.run(
            options.pop("algorithm", ff.FedEPM(noise="none")), pieces, client=client, **options
        )


def test_processes_one_of_which_dies():
    problem = a_problem("logistic")
    rng = np.random.default_rng(1)
    z, p = rng.standard_cauchy((30, 90)), rng.random(30) + 0.1
    expected = ff.run(ff.FedEPM(noise="laplace"), problem.data, rounds=3)
    with distributed.Client(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        for lazy in (da.from_array(z, chunks=(4, 50)), da.from_array(z, chunks=(30, 9))):
            w = here.ens(lazy.persist().rechunk((4, 50)), 0.5, weights=p)
            assert np.allclose(w.compute(), kernel(z, 0.5, weights=p), 1e-12)
        clients = here.Clients(pieces_of(problem.data, 3), client)

        def kill(info):
            if len(info.objective) == 1:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        same(ff.run(ff.FedEPM(noise="laplace"), clients, rounds=3, callback=kill), expected)
