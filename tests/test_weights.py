"""Weights of rows and of clients in the objectives, and bounds of these."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from problems import LOSSES, a_problem, data_for, small_data
from runs import assert_agree, both
from scipy import sparse

from fedepm_fast import (
    FedEPM,
    FederatedData,
    Logistic,
    Problem,
    SFedAvg,
    Sweep,
    partition,
    run,
    sweep,
)
from fedepm_fast._common.parameters import parameters
from fedepm_fast.algorithms import ALGORITHMS
from fedepm_fast.objectives import _curvature, as_objective
from fedepm_fast.privacy import LaplaceMechanism


def weighted(name: str, *, is_sparse: bool = False, client_weight: str = "size", **changes):
    """A problem whose rows have whole weights, some 0, and the same with each row so often."""
    plain = a_problem(name, is_sparse=is_sparse)
    data, objective = plain.data, plain.objective.changed(**changes)
    rng = np.random.default_rng(3)
    times = rng.integers(0, 4, data.n_samples)
    times[data.offsets[:-1]] = rng.integers(1, 4, data.n_clients)
    by_weight = FederatedData(data.features, data.labels, data.client_sizes, sample_weight=times)
    often = np.repeat(np.arange(data.n_samples), times)
    sizes = np.add.reduceat(times, data.offsets[:-1])
    repeated = FederatedData(data.features[often], data.labels[often], sizes)
    return (
        Problem(by_weight, objective, client_weight),
        Problem(repeated, objective, client_weight),
    )


@pytest.mark.parametrize("client_weight", ["equal", "size"])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_whole_weight_counts_a_row_so_often(name, is_sparse, client_weight, rng):
    problem, repeated = weighted(name, is_sparse=is_sparse, client_weight=client_weight)
    n = problem.n_parameters
    w, W = rng.normal(size=n) / 2, rng.normal(size=(problem.n_clients, n)) / 2
    close = {"rtol": 1e-11, "atol": 1e-12}
    for point in (w, W):
        np.testing.assert_allclose(problem.values(point), repeated.values(point), **close)
        np.testing.assert_allclose(problem.gradients(point), repeated.gradients(point), **close)
    for one, other in zip(
        problem.total_value_and_gradient(w), repeated.total_value_and_gradient(w), strict=True
    ):
        np.testing.assert_allclose(one, other, **close)
    np.testing.assert_allclose(problem.total_hessian(w), repeated.total_hessian(w), **close)
    np.testing.assert_allclose(problem.hessian(2, w), repeated.hessian(2, w), **close)
    assert problem.accuracy(w) == pytest.approx(repeated.accuracy(w))
    np.testing.assert_allclose(problem.reg, repeated.reg, rtol=1e-14)
    if problem.has_lipschitz:
        np.testing.assert_allclose(problem.lipschitz(), repeated.lipschitz(), rtol=1e-9)
        np.testing.assert_allclose(problem.bound_hessian(), repeated.bound_hessian(), **close)
        assert problem.mean_curvature() == pytest.approx(repeated.mean_curvature())


@pytest.mark.parametrize("regularizer", ["beta", "beta/d"])
@pytest.mark.parametrize("name", LOSSES)
def test_by_size_the_mean_objective_is_that_of_the_pooled_rows(name, regularizer, rng):
    problem, repeated = weighted(name, regularizer=regularizer, beta=0.3)
    assert problem.client_weights.sum() == pytest.approx(problem.n_clients)
    data = repeated.data
    pooled = FederatedData(data.features, data.labels, [data.n_samples])
    one = Problem(pooled, problem.objective)
    w = rng.normal(size=problem.n_parameters) / 2
    m = problem.n_clients
    assert problem.total_value(w) / m == pytest.approx(one.total_value(w), rel=1e-12)
    np.testing.assert_allclose(problem.total_gradient(w) / m, one.total_gradient(w), rtol=1e-11)
    np.testing.assert_allclose(problem.reg.sum() / m, one.reg[0], rtol=1e-14)
    if problem.has_lipschitz:
        assert problem.mean_curvature() == pytest.approx(one.mean_curvature())


def test_clients_weigh_by_size_in_least_squares():
    """By hand: means of 1, 1 and of 4, of one feature that is 1 everywhere."""
    data = FederatedData(np.ones((3, 1)), [1.0, 1.0, 4.0], [2, 1])
    goal = as_objective("least_squares", beta=0.0)
    assert Problem(data, goal).optimum().x == pytest.approx(2.5)
    assert Problem(data, goal, "size").optimum().x == pytest.approx(2.0)
    data = FederatedData(np.ones((3, 1)), [1.0, 1.0, 4.0], [2, 1], sample_weight=[1, 1, 6])
    assert Problem(data, goal).optimum().x == pytest.approx(2.5)
    by_size = Problem(data, goal, client_weight="size")
    assert by_size.optimum().x == pytest.approx((2 + 24) / 8)
    np.testing.assert_array_equal(by_size.client_weights, [0.5, 1.5])
    assert data.largest_class == 0.75  # of numbers as of classes: 6 of 8
    with pytest.raises(ValueError, match="client_weight must be one of 'equal', 'size', got 'n'"):
        Problem(data, goal, "n")


@pytest.mark.parametrize("client_weight", ["equal", "size"])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_hessians_and_their_bounds(name, is_sparse, client_weight, rng):
    problem, _ = weighted(name, is_sparse=is_sparse, client_weight=client_weight)
    n, m = problem.n_parameters, problem.n_clients
    w, v = rng.normal(size=(2, n)) / 2
    hessians = [problem.hessian(i, w) for i in range(m)]
    h = 1e-6
    numeric = [
        (problem.gradient(1, w + h * e) - problem.gradient(1, w - h * e)) / (2 * h)
        for e in np.eye(n)
    ]
    np.testing.assert_allclose(hessians[1], numeric, rtol=1e-6, atol=1e-7)
    total = problem.total_hessian(w)
    np.testing.assert_allclose(sum(hessians), total, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(problem.hessian_product(w, v), total @ v, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(problem.hessian_operator(w).T @ v, total @ v, rtol=1e-11, atol=1e-12)
    if not problem.has_lipschitz:
        for asked in (problem.bound_hessian, problem.mean_curvature):
            with pytest.raises(ValueError, match="nothing bounds its second derivative"):
                asked()
        with pytest.raises(ValueError, match="nothing bounds its second derivative"):
            problem.bound_product(v)
        return
    bound, bounds = problem.bound_hessian(), [problem.bound_hessian(i) for i in range(m)]
    np.testing.assert_allclose(sum(bounds), bound, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(problem.bound_product(v), bound @ v, rtol=1e-11, atol=1e-12)
    for above, below in zip([*bounds, bound], [*hessians, total], strict=True):
        assert np.linalg.eigvalsh(above - below)[0] > -1e-12
    assert problem.mean_curvature() == pytest.approx(np.linalg.eigvalsh(bound)[-1] / m, rel=1e-12)
    tops = [np.linalg.eigvalsh(own)[-1] for own in bounds]
    np.testing.assert_allclose(problem.lipschitz(), tops, rtol=1e-9)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_curvature_of_wide_rows_is_found_without_their_matrix(is_sparse, rng):
    features = sparse.random_array((60, 700), density=0.05, rng=np.random.default_rng(1)).toarray()
    features[:, 3] += 2.0  # as an intercept has it: one large eigenvalue
    labels = rng.integers(0, 3, 60)
    held = sparse.csr_array(features) if is_sparse else features
    data = FederatedData(held, labels, [10, 20, 30], sample_weight=rng.uniform(0.1, 2, 60))
    weights = tuple(rng.uniform(0, 2, 700))
    problem = Problem(data, as_objective("multinomial", beta=0.1, weights=weights), "size")
    scaled = features * np.sqrt(0.5 * problem.row_weights)[:, None]
    matrix = scaled.T @ scaled + problem.reg.sum() * np.diag(weights)
    top = np.linalg.eigvalsh(matrix)[-1] / 3
    assert problem.mean_curvature() == pytest.approx(top, rel=1e-9)
    assert problem.mean_curvature() == problem.mean_curvature()
    nothing = FederatedData(held * 0.0, labels, [10, 20, 30])
    assert Problem(nothing, as_objective("multinomial", beta=0.0)).mean_curvature() == 0.0


@pytest.mark.parametrize(("density", "columns"), [(0.4, 7), (0.01, 300)])
def test_hessians_of_sparse_rows(density, columns, monkeypatch):
    """Of many entries by dense rows, a few at a time; of few entries by sparse products."""
    monkeypatch.setattr(_curvature, "_DENSE_NUMBERS", 50)
    rng = np.random.default_rng(4)
    features = sparse.random_array((90, columns), density=density, rng=rng, format="csr")
    labels = rng.integers(0, 3, 90)
    w = rng.normal(size=3 * columns)
    found, want = (
        Problem(FederatedData(given, labels, [40, 50]), "multinomial")
        for given in (features, features.toarray())
    )
    np.testing.assert_allclose(found.total_hessian(w), want.total_hessian(w), atol=1e-14)
    np.testing.assert_allclose(found.hessian(1, w), want.hessian(1, w), atol=1e-14)


def test_curvature_that_overflows_is_refused():
    data = FederatedData([[1e200], [1.0]], [0, 1], [1, 1])
    with pytest.raises(ValueError, match="features must be brought to scale"):
        Problem(data, "logistic").bound_hessian()


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_some_clients(name, is_sparse, rng):
    problem, repeated = weighted(name, is_sparse=is_sparse)
    x = rng.normal(size=problem.n_parameters) / 2
    for some in ([4, 1], [], range(6)):
        values, gradients = problem.client_gradients(some, x)
        np.testing.assert_array_equal(values, [problem.value(i, x) for i in some])
        assert gradients.shape == (len(some), len(x)) and values.shape == (len(some),)
        for own, i in zip(gradients, some, strict=True):
            np.testing.assert_array_equal(own, problem.gradient(i, x))
        # Clients weigh by size there, too, and rows are as many as they weigh.
        values, gradients = repeated.client_gradients(some, x)
        by_numpy = repeated.client_gradients(some, x, compiled=False)
        np.testing.assert_allclose(values, by_numpy[0], rtol=1e-12)
        np.testing.assert_allclose(gradients, by_numpy[1], rtol=1e-11, atol=1e-13)
    with np.errstate(invalid="ignore"):
        assert np.isnan(repeated.client_gradients([0], x * np.nan)[0]).all()
    with pytest.raises(ValueError, match=r"clients must be in \[0, 6\)"):
        problem.client_gradients([6], x)


def test_runs_with_weights_of_rows_are_the_reference_s():
    data = data_for(Logistic())
    twos = np.full(data.n_samples, 2.0)
    heavy = FederatedData(data.features, data.labels, data.client_sizes, sample_weight=twos)
    quiet = {"mu0": 5.0, "noise": "none"}
    found = run(FedEPM(**quiet), data, rounds=3, client_weight="size")
    assert found.engine == "compiled" and found.objective["client_weight"] == "size"
    problem = Problem(data, "logistic", "size")
    assert found.history["objective"][-1] == pytest.approx(problem.total_value(found.x))
    assert "client_weight" not in run(FedEPM(**quiet), data, rounds=1).objective
    for algorithm in (FedEPM(**quiet), SFedAvg(noise="none")):
        options = {"rounds": 3, "objective": as_objective("logistic", beta=0.0)}
        alike = run(algorithm, heavy, **options)
        assert alike.engine == "reference" and alike.objective["sample_weight"] == "given"
        plain = run(algorithm, data, engine="reference", **options)
        np.testing.assert_allclose(alike.x, plain.x, rtol=1e-12)
    table = sweep(Sweep(FedEPM(**quiet), heavy, trials=1, rounds=1)).to_pandas()
    assert table.engine.tolist() == ["reference"]
    with pytest.raises(ValueError, match="engine 'compiled' knows nothing of weights of rows"):
        run(FedEPM(**quiet), heavy, rounds=1, engine="compiled")
    for given in ({"data": heavy}, {"data": data, "client_weight": "size"}):
        private = FedEPM(mechanism=LaplaceMechanism(total_epsilon=5.0, public_scaling=True))
        with pytest.raises(ValueError, match="client_weight must be 'equal', and data without"):
            run(private, rounds=1, **given)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", ALGORITHMS.built_in())
def test_clients_that_weigh_by_their_size_are_compiled(name, layout):
    cls = ALGORITHMS[name]
    quiet: dict[str, object] = {
        "local_steps": 3,
        "mu0": 20.0,
        "noise": "none",
        "participation": 0.6,
    }
    if "learning_rate" in parameters(cls):
        quiet["learning_rate"] = 0.02
    algorithm = cls(**{key: quiet[key] for key in parameters(cls).keys() & quiet.keys()})
    data = small_data(7, 5)
    if layout == "csr":
        data = FederatedData(sparse.csr_array(data.features), data.labels, data.client_sizes)
    for loss in ("logistic", "squared_hinge"):
        assert_agree(*both(algorithm, data, objective=loss, client_weight="size", rounds=6))


def test_clients_of_one_size_weigh_alike():
    rng = np.random.default_rng(5)
    data = FederatedData(rng.normal(size=(30, 3)), rng.integers(0, 2, 30), [10] * 3)
    options = {"rounds": 2, "objective": as_objective("logistic", regularizer="beta")}
    by_size = run(FedEPM(mu0=5.0), data, client_weight="size", **options)
    alike = run(FedEPM(mu0=5.0), data, **options)
    assert by_size.engine == "compiled"
    np.testing.assert_array_equal(by_size.x, alike.x)


def table(d: int = 40):
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(d, 3)), np.arange(d) % 2
    return X, y, rng.uniform(0.5, 2, d)


def test_weights_go_with_their_rows():
    X, y, v = table()
    data = FederatedData.split(X, y, partition.EqualParts(4), seed=3, sample_weight=v)
    np.testing.assert_array_equal(data.sample_weight, v[data.rows])
    assert not data.sample_weight.flags.writeable
    again = data.resplit(partition.EqualParts(5), seed=1)
    np.testing.assert_array_equal(again.sample_weight, data.sample_weight[again.rows])
    part = data.subset([0, 5, 39])
    np.testing.assert_array_equal(part.sample_weight, data.sample_weight[[0, 5, 39]])
    np.testing.assert_array_equal(data.rows_of(1), slice(10, 20))
    np.testing.assert_allclose(data.weight_sums, [w.sum() for w in np.split(v[data.rows], 4)])
    pairs = [(X[:9], y[:9]), (X[9:], y[9:])]
    made = FederatedData.from_clients(pairs, sample_weight=v)
    np.testing.assert_array_equal(made.sample_weight, v)
    assert "rows weighed by 0.5" in made.summary()
    plain = FederatedData.from_clients(pairs)
    assert plain.sample_weight is None and "weighed" not in plain.summary()
    assert plain.content_hash() != made.content_hash()
    np.testing.assert_array_equal(plain.weight_sums, [9.0, 31.0])
    v[0] = 100.0  # the caller's, which was copied
    assert made.sample_weight[0] < 2


def test_sparse_rows_of_a_client_share_the_entries_of_all():
    X, y, _ = table()
    held = sparse.csr_array(np.where(np.abs(X) < 0.7, 0, X))
    data = FederatedData(held, y, [1, 30, 9])
    for i, rows in enumerate(np.split(held.toarray(), data.offsets[1:-1])):
        found, _ = data.client(i)
        np.testing.assert_array_equal(found.toarray(), rows)
        assert found.nnz == 0 or np.shares_memory(found.data, data.features.data)
    with pytest.raises(IndexError, match="client must be a number from 0 to 2, got 3"):
        data.client(3)


def test_clients_without_weight_drop_out_of_a_subset():
    X, y, v = table(9)
    v[:4] = [1, 0, 0, 0]
    data = FederatedData(X, y, [4, 5], client_names=["a", "b"], sample_weight=v)
    part = data.subset([1, 2, 6, 7])
    assert part.client_names == ("b",) and part.client_sizes.tolist() == [2]
    assert data.subset([0, 1, 8]).client_sizes.tolist() == [2, 1]
    with pytest.raises(ValueError, match="rows must not all have a sample_weight of 0"):
        data.subset([1, 3])


def test_pickles_have_weights_or_none():
    X, y, v = table()
    data = FederatedData.split(X, y, partition.EqualParts(4), seed=3, sample_weight=v)
    back = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(back.sample_weight, data.sample_weight)
    assert not back.sample_weight.flags.writeable
    old = FederatedData(X, y, [20, 20])
    state = old.__getstate__()
    del state["sample_weight"]  # of an earlier version
    loaded = FederatedData.__new__(FederatedData)
    loaded.__setstate__(state)
    assert loaded.sample_weight is None and loaded.content_hash() == old.content_hash()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 39, r"sample_weight must have shape \(40,\), got \(39,\)"),
        ([1.0] * 39 + [-2.0], "sample_weight must be at least 0, got -2 in row 39"),
        ([1.0] * 39 + [np.nan], r"sample_weight must be finite, got nan at index \(39,\)"),
        (
            [1.0] * 20 + [0.0] * 20,
            "sample_weight must have a positive, finite sum.*got 0 for c.* 1",
        ),
        ([1e308] * 40, "sample_weight must have a positive, finite sum"),
        (["a"] * 40, "sample_weight must be an array of real numbers"),
    ],
)
def test_bad_weights(weights, message):
    X, y, _ = table()
    with pytest.raises((ValueError, TypeError), match=message):
        FederatedData(X, y, [20, 20], sample_weight=weights)
