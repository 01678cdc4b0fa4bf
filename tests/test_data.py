"""Federated data: what is held, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from problems import small_data
from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, Logistic, Problem, partition, run


def table(d=40, n=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(d, n)), (rng.random(d) < 0.4).astype(float)


def test_rows_are_held_client_by_client():
    X, y = table()
    data = FederatedData.split(X, y, partition.EqualParts(7), seed=3)
    assert (data.n_clients, data.n_features, data.n_samples) == (7, 3, 40)
    assert data.client_sizes.tolist() == [6, 6, 6, 6, 6, 5, 5]
    np.testing.assert_array_equal(np.sort(data.rows), np.arange(40))
    np.testing.assert_array_equal(data.features, X[data.rows])
    np.testing.assert_array_equal(data.labels, y[data.rows])
    for i in range(7):
        a, b = data.client(i)
        rows = data.rows[data.offsets[i] : data.offsets[i + 1]]
        np.testing.assert_array_equal(a, X[rows])
        np.testing.assert_array_equal(b, y[rows])
        assert np.shares_memory(a, data.features)


def test_a_split_is_a_pure_function_of_the_seed():
    X, y = table()
    first, again, other = (
        FederatedData.split(X, y, partition.EqualParts(7), seed=s) for s in (1, 1, 2)
    )
    assert first.content_hash() == again.content_hash() != other.content_hash()


def test_is_frozen_and_leaves_the_callers_arrays_alone():
    X, y = table()
    before = X.copy()
    data = FederatedData(X, y, [20, 20])
    with pytest.raises(ValueError, match="read-only"):
        data.features[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1
    X[:] = 7
    np.testing.assert_array_equal(data.features, before)


def test_any_layout_gives_the_same_data():
    X, y = table()
    want = FederatedData(X, y, [20, 20]).content_hash()
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        assert FederatedData(other, y, [20, 20]).content_hash() == want
    assert FederatedData(X.astype(np.float32), y, [20, 20]).features.dtype == np.float32
    assert FederatedData(X.astype(int), y, [20, 20]).features.dtype == np.float64


def test_two_values_are_mapped_and_reported():
    X, _ = table(6)
    for labels, mapping in [
        ([-1, 1, 1, -1, 1, -1], {"-1": 0, "1": 1}),
        (["no", "yes", "yes", "no", "yes", "no"], {"no": 0, "yes": 1}),
        ([2.0, 5.5, 5.5, 2.0, 5.5, 2.0], {"2.0": 0, "5.5": 1}),
        (np.array(["a", "b", "b", "a", "b", "a"], dtype=object), {"a": 0, "b": 1}),
    ]:
        data = FederatedData.split(X, labels, [0, 0, 0, 1, 1, 1])
        assert data.description["label_mapping"] == mapping
        assert data.labels.tolist() == [0, 1, 1, 0, 1, 0]
        assert " -> 1" in data.summary()
    data = FederatedData.split(X, [False, True] * 3, [0, 0, 0, 1, 1, 1])
    assert "label_mapping" not in data.description


def test_unit_norm():
    X, y = table()
    X[:, 1] = 0
    data = FederatedData.split(X, y, partition.EqualParts(4), scale="unit-norm")
    np.testing.assert_allclose(np.linalg.norm(data.features, axis=0), [1, 0, 1])
    assert data.description["zero_columns"] == [1]
    as_csr = FederatedData.split(sparse.csr_array(X), y, partition.EqualParts(4), scale="unit-norm")
    np.testing.assert_allclose(as_csr.features.toarray(), data.features, rtol=1e-15)


def test_from_clients():
    X, y = table()
    pieces = [(X[:5], y[:5]), (X[5:6], y[5:6]), (X[6:], y[6:])]
    want = FederatedData(X, y, [5, 1, 34])
    assert FederatedData.from_clients(pieces).content_hash() == want.content_hash()
    as_csr = FederatedData.from_clients([(sparse.csr_array(a), b) for a, b in pieces])
    np.testing.assert_array_equal(as_csr.features.toarray(), X)
    with pytest.raises(ValueError, match=r"clients\[1\] must have 3 features"):
        FederatedData.from_clients([pieces[0], (X[5:, :2], y[5:])])
    with pytest.raises(ValueError, match=r"clients\[0\] must be features \(d_i, n\)"):
        FederatedData.from_clients([(X, y[:3])])
    with pytest.raises(ValueError, match="clients must hold at least one"):
        FederatedData.from_clients([])


def test_csr_gives_the_run_of_the_dense_data():
    dense = small_data()
    features = np.where(np.abs(dense.features) < 1, 0, dense.features)
    dense = FederatedData(features, dense.labels, dense.client_sizes)
    as_csr = FederatedData(sparse.csr_array(features), dense.labels, dense.client_sizes)
    assert as_csr.is_sparse
    one, other = Problem(dense, Logistic()), Problem(as_csr, Logistic())
    np.testing.assert_allclose(other.lipschitz(), one.lipschitz(), rtol=1e-9)
    np.testing.assert_allclose(other.optimum().x, one.optimum().x, rtol=1e-8)
    want, got = run(FedEPM(), dense, rounds=5), run(FedEPM(), as_csr, rounds=5)
    np.testing.assert_allclose(got.Z, want.Z, rtol=1e-10)


X, Y = table(6)
NAN, INF = X.copy(), X.copy()
NAN[2, 1], INF[0, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("features", "labels", "sizes", "error", "message"),
    [
        (NAN, Y, [3, 3], ValueError, r"features must be finite, got nan at index \(2, 1\)"),
        (INF, Y, [3, 3], ValueError, r"features must be finite, got -inf at index \(0, 0\)"),
        (sparse.csr_array(NAN), Y, [3, 3], ValueError, "features must be finite"),
        (np.ma.masked_less(X, 0), Y, [3, 3], ValueError, "features must not have masked entries"),
        (X, [0, 1, np.nan, 0, 1, 0], [3, 3], ValueError, "labels must be finite"),
        (X, Y[:5], [3, 3], ValueError, r"labels must have shape \(6\), got \(5,\)"),
        (X, Y, [6, 0], ValueError, "client_sizes must be at least 1: client 1 is empty"),
        (X, Y, [7, -1], ValueError, "client 1 is empty"),
        (X, Y, [3, 4], ValueError, "client_sizes must add up to the 6 rows, got 7"),
        (X, Y, [1] * 7, ValueError, "must not name more clients than rows: 7 > 6"),
        (X, Y, [3.0, 3.0], ValueError, "client_sizes must be a vector of integers"),
        (X, Y, [], ValueError, "client_sizes must be a vector of integers"),
        (X[0], Y, [3, 3], ValueError, "features must have 2 dimension"),
        (X[:, :0], Y, [3, 3], ValueError, "at least one row and column"),
        ([["a", "b"]], Y, [1], TypeError, "features must be an array of real numbers"),
        (X + 1j, Y, [3, 3], TypeError, "features must be an array of real numbers"),
    ],
)
def test_bad_data_are_named(features, labels, sizes, error, message):
    with pytest.raises(error, match=message):
        FederatedData(features, labels, sizes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, 1, 2, 0, 1, 2]}, "labels must have exactly two values .* got 3: 0, 1, 2"),
        ({"labels": [1] * 6}, "exactly two values for classification, got 1: 1"),
        ({"labels": [0, 1, np.nan, 0, 1, 0]}, "labels must be finite"),
        ({"labels": [0, 1]}, r"labels must have shape \(6,\)"),
        ({"task": "ranking"}, "task must be one of"),
        ({"scale": "minmax"}, "scale must be one of"),
        ({"seed": -1}, "seed must be"),
        ({"partition": [0, 0, 1]}, "client ids must have 6 entries, got 3"),
        ({"partition": partition.EqualParts(7)}, "clients must not exceed .* 7 > 6"),
    ],
)
def test_bad_splits_are_named(changes, message):
    arguments = {"features": X, "labels": Y, "partition": [0, 0, 0, 1, 1, 1]} | changes
    with pytest.raises(ValueError, match=message):
        FederatedData.split(**arguments)


def test_names():
    data = FederatedData.split(X, Y, ["b", "a", "b", "a", "c", "c"], feature_names="xyz")
    assert data.client_names == ("a", "b", "c")
    assert data.feature_names == ("x", "y", "z")
    assert data.rows.tolist() == [1, 3, 0, 2, 4, 5]
    with pytest.raises(ValueError, match="feature_names must have 3 entries, got 2"):
        FederatedData(X, Y, [6], feature_names=("x", "y"))
    assert repr(data) == "<FederatedData arrays: 6 rows, 3 features, 3 clients of 2 to 2 rows>"
