"""The synthetic generator keeps what it promises."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from fedepm_fast import DivergenceWarning, FedEPM, Problem, datasets, run
from fedepm_fast.data.synthetic import make_federated, true_parameters


def test_sizes():
    data = make_federated(clients=7, samples=100)
    assert sorted(data.client_sizes) == [14] * 5 + [15] * 2
    uneven = make_federated(clients=50, samples=5000, imbalance=1.5)
    assert uneven.client_sizes.sum() == 5000 and uneven.client_sizes.min() >= 1
    assert uneven.client_sizes.max() > 5 * np.median(uneven.client_sizes)
    assert make_federated(clients=3, samples=[1, 5, 2]).client_sizes.tolist() == [1, 5, 2]
    assert make_federated(clients=5, samples=5).client_sizes.tolist() == [1] * 5


def test_is_a_pure_function_of_the_seed_client_by_client():
    first, again, other = (make_federated(clients=4, seed=s).content_hash() for s in (1, 1, 2))
    assert first == again != other
    few = make_federated(clients=3, samples=[9, 9, 9], seed=5)
    many = make_federated(clients=5, samples=[9] * 5, seed=5)
    np.testing.assert_array_equal(few.features, many.features[:27])


def test_least_squares_truth_is_the_optimum_without_noise():
    data = make_federated("least_squares", clients=5, samples=400, features=6, noise=0.0)
    from fedepm_fast import LeastSquares

    best = Problem(data, LeastSquares(beta=0.0)).optimum()
    np.testing.assert_allclose(best.x, true_parameters(data).common, rtol=1e-9)


def test_logistic_truth_is_near_the_optimum():
    data = make_federated(clients=5, samples=50_000, features=6, seed=1)
    best = Problem(data, "logistic").optimum()
    np.testing.assert_allclose(best.x, true_parameters(data).common, atol=0.08)


@pytest.mark.parametrize("density", [None, 0.5])
def test_multinomial_truth_is_near_the_optimum(density):
    options = {"clients": 5, "samples": 50_000, "features": 6, "density": density, "seed": 1}
    data = make_federated("multinomial", n_classes=4, **options)
    assert data.description["task"] == "multiclass" and data.description["n_classes"] == 4
    truth = true_parameters(data)
    assert truth.common.shape == (4, 6) and truth.clients.shape == (5, 4, 6)
    best = Problem(data, "multinomial").optimum(method="newton").x.reshape(4, 6)
    # Only differences between classes matter; the optimum's classes add up to zero.
    np.testing.assert_allclose(best, truth.common - truth.common.mean(axis=0), atol=0.08)
    with pytest.raises(ValueError, match="n_classes must be an integer >= 2, got 1"):
        make_federated("multinomial", n_classes=1)


def test_heterogeneity_moves_clients_apart():
    spread = []
    for h in (0.0, 0.5, 2.0):
        data = make_federated(clients=30, samples=6000, features=8, heterogeneity=h, seed=2)
        means = np.array([data.client(i)[0].mean(axis=0) for i in range(30)])
        spread.append(means.std(axis=0).mean())
    assert spread[0] == pytest.approx(200**-0.5, rel=0.15)
    assert spread[1] == pytest.approx(np.hypot(0.5, 200**-0.5), rel=0.15)
    assert spread[2] == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("density", [None, 0.3])
def test_unit_norm(density):
    data = make_federated(
        "least_squares", clients=20, samples=4000, features=10, density=density, scale="unit-norm"
    )
    squares = data.features.multiply(data.features) if data.is_sparse else data.features**2
    np.testing.assert_allclose(squares.sum(axis=0), 1)
    problem = Problem(data, "least_squares")
    with pytest.warns(DivergenceWarning, match=r"mu0 of \S+ or more makes the local steps stable"):
        diverged = run(FedEPM(noise="none"), data, objective="least_squares")
    mu0 = float(re.search(r"mu0 of (\S+)", diverged.message)[1])
    result = run(FedEPM(noise="none", mu0=mu0), data, objective="least_squares")
    start = problem.total_value(np.zeros(10))
    closed = (start - result.mean_objective * 20) / (start - problem.optimum().value)
    assert closed > 0.95


def test_sparse_and_single_precision():
    data = make_federated(clients=4, samples=800, features=50, density=0.1, seed=3)
    assert data.is_sparse
    assert data.features.nnz == pytest.approx(0.1 * 800 * 50, rel=0.1)
    assert run(FedEPM(), data, rounds=2).rounds == 2
    single = make_federated(clients=4, dtype=np.float32)
    assert single.features.dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "ranking"}, "task must be one of"),
        ({"clients": 0}, "clients must be"),
        ({"clients": 10, "samples": 9}, "samples must be an integer >= 10"),
        ({"clients": 2, "samples": [1.5, 2.5]}, "samples must hold whole numbers, got 1.5"),
        ({"clients": 2, "samples": [1, 2], "imbalance": 1}, "imbalance is for samples in all"),
        ({"clients": 2, "samples": [1, 0]}, "samples must be at least 1 for every client"),
        ({"clients": 2, "samples": [1, 2, 3]}, r"samples must have shape \(2,\)"),
        ({"features": 0}, "features must be"),
        ({"heterogeneity": -1}, "heterogeneity must be"),
        ({"imbalance": -1}, "imbalance must be"),
        ({"noise": 0.0}, "noise must be"),
        ({"density": 0.0}, "density must be"),
        ({"scale": "minmax"}, "scale must be one of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_federated(**arguments)


def test_bad_dtype():
    with pytest.raises(TypeError, match="dtype must be float64 or float32, got int64"):
        make_federated(dtype=np.int64)


def test_dtypes_by_name():
    assert make_federated(samples=20, dtype="float32").features.dtype == np.float32
    with pytest.raises(TypeError, match="dtype must be float64 or float32, got 'real'"):
        make_federated(dtype="real")


def test_streams_are_the_children_of_one_seed_sequence():
    data = make_federated(clients=3, samples=[4, 5, 6], features=2, heterogeneity=0.7, seed=2**40)
    common, clients = np.random.SeedSequence(2**40).spawn(2)
    w = np.random.default_rng(common).normal(size=2) / np.sqrt(2)
    truth = true_parameters(data)
    np.testing.assert_array_equal(truth.common, w)
    for i, child in enumerate(clients.spawn(3)):
        rng = np.random.default_rng(child)
        shift, own = 0.7 * rng.normal(size=2), w + 0.7 * rng.normal(size=2) / np.sqrt(2)
        np.testing.assert_array_equal(truth.clients[i], own)
        features = rng.standard_normal((len(data.client(i)[0]), 2)) + shift
        np.testing.assert_array_equal(data.client(i)[0], features)


def test_seeds_do_not_collide():
    hashes = {make_federated(seed=s).content_hash() for s in (0, 1, 2**32, 2**32 + 1, 2**64 - 1)}
    assert len(hashes) == 5


def test_every_client_follows_its_own_parameter():
    data = make_federated(
        "least_squares", clients=6, samples=300, features=4, heterogeneity=1.0, noise=0.0, seed=3
    )
    truth = true_parameters(data)
    for i in range(6):
        a, b = data.client(i)
        np.testing.assert_allclose(np.linalg.lstsq(a, b)[0], truth.clients[i], rtol=1e-9)
    assert np.abs(truth.clients - truth.common).min() > 0
    iid = true_parameters(make_federated(clients=4, samples=40, features=4, seed=3))
    np.testing.assert_array_equal(iid.clients, np.tile(iid.common, (4, 1)))
    with pytest.raises(ValueError, match="data must come from make_federated, got Adult"):
        true_parameters(datasets.adult(clients=5))


def test_sparse_entries_are_kept_independently():
    p, d, n = 0.3, 20_000, 5
    data = make_federated("least_squares", clients=1, samples=d, features=n, density=p, seed=4)
    kept = data.features.toarray() != 0
    # Counts of a row are binomial, and every column, and pair of columns, has its share.
    counts = np.bincount(kept.sum(axis=1), minlength=n + 1)
    assert stats.chisquare(counts, d * stats.binom(n, p).pmf(np.arange(n + 1))).pvalue > 1e-3
    pairs = kept.T.astype(float) @ kept / d
    want = np.full((n, n), p * p) + np.eye(n) * (p - p * p)
    np.testing.assert_allclose(pairs, want, atol=5 * np.sqrt(p / d))
    assert data.features.data.var() == pytest.approx(1 / p, rel=0.05)
    full = make_federated(clients=2, samples=10, features=3, density=1.0)
    assert full.features.nnz == 30
    empty = make_federated(clients=2, samples=10, features=3, density=1e-300)
    assert empty.features.nnz == 0 and empty.features.shape == (10, 3)
