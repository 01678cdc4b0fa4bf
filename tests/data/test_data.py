"""Federated data: what is held, and that nobody can change it."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data, table
from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, Logistic, Problem, run
from fedepm_fast.data import partition

X, Y = table(6)


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
    rows = np.arange(40)
    data = FederatedData(X, y, [20, 20], rows=rows)
    y[0], rows[0] = 5, 6
    assert data.labels[0] != 5 and data.rows[0] == 0
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


def test_from_clients():
    X, y = table()
    pieces = [(X[:5], y[:5]), (X[5:6], y[5:6]), (X[6:], y[6:])]
    want = FederatedData(X, y, [5, 1, 34])
    assert FederatedData.from_clients(pieces).content_hash() == want.content_hash()
    as_csr = FederatedData.from_clients([(sparse.csr_array(a), b) for a, b in pieces])
    np.testing.assert_array_equal(as_csr.features.toarray(), X)
    signs = FederatedData.from_clients([(a, 2 * b - 1) for a, b in pieces], task="classification")
    np.testing.assert_array_equal(signs.labels, y)
    assert signs.label_mapping == {"-1.0": 0, "1.0": 1}
    with pytest.raises(ValueError, match=r"clients\[1\] must have 3 features"):
        FederatedData.from_clients([pieces[0], (X[5:, :2], y[5:])])
    with pytest.raises(ValueError, match=r"clients\[0\] must be features \(d_i, n\)"):
        FederatedData.from_clients([(X, y[:3])])
    with pytest.raises(ValueError, match="clients must hold at least one"):
        FederatedData.from_clients([])


def test_from_clients_by_name():
    X, y = table(6)
    pairs = {"south": (X[:2], y[:2]), 7: (X[2:], y[2:])}
    data = FederatedData.from_clients(pairs)
    assert data.client_names == ("south", "7") and data.client_sizes.tolist() == [2, 4]
    assert data.content_hash() == FederatedData.from_clients(pairs.values()).content_hash()


def test_csr_gives_the_run_of_the_dense_data():
    dense = small_data()
    features = np.where(np.abs(dense.features) < 1, 0, dense.features)
    dense = FederatedData(features, dense.labels, dense.client_sizes)
    as_csr = FederatedData(sparse.csr_array(features), dense.labels, dense.client_sizes)
    assert as_csr.is_sparse
    one, other = Problem(dense, Logistic()), Problem(as_csr, Logistic())
    np.testing.assert_allclose(other.lipschitz(), one.lipschitz(), rtol=1e-9)
    np.testing.assert_allclose(other.optimum().x, one.optimum().x, rtol=1e-8)
    want, got = (
        run(FedEPM(), data, rounds=5, engine="reference") for data in (dense, as_csr)
    )  # fmt: skip
    np.testing.assert_allclose(got.Z, want.Z, rtol=1e-10)


def test_names():
    data = FederatedData.split(X, Y, ["b", "a", "b", "a", "c", "c"], feature_names="xyz")
    assert data.client_names == ("a", "b", "c")
    assert data.feature_names == ("x", "y", "z")
    assert data.rows.tolist() == [1, 3, 0, 2, 4, 5]
    with pytest.raises(ValueError, match="feature_names must have 3 entries, got 2"):
        FederatedData(X, Y, [6], feature_names=("x", "y"))
    assert repr(data) == "<FederatedData arrays: 6 rows, 3 features, 3 clients of 2 rows>"


def test_a_description_is_plain_and_complete():
    data = FederatedData.split(
        X,
        Y * 2,
        partition.RandomCuts(np.int64(2), np.float32(0.5)),
        scale="unit-norm",
        seed=np.int8(4),
    )
    assert json.loads(json.dumps(data.description)) == {
        "source": "arrays",
        "task": "classification",
        "label_mapping": {"0.0": 0, "2.0": 1},
        "partition": {"name": "random", "clients": 2, "min_share": 0.5},
        "split_seed": 4,
        "scale": "unit-norm",
    }


def test_the_callers_csr_is_left_alone():
    values, columns, starts = np.array([1.0, 2, 3]), np.array([1, 1, 0]), np.array([0, 2, 3])
    given = sparse.csr_array((values, columns, starts), shape=(2, 2))
    data = FederatedData(given, [0, 1], [1, 1])
    np.testing.assert_array_equal(data.features.toarray(), [[0, 3], [3, 0]])
    np.testing.assert_array_equal(given.data, [1, 2, 3])
    canonical = sparse.csr_array(X)
    data = FederatedData(canonical, Y, [3, 3])
    canonical.data[:] = 7
    np.testing.assert_array_equal(data.features.toarray(), X)
    with pytest.raises(ValueError, match="read-only"):
        data.features.data[0] = 1
    broken = sparse.csr_array(X)
    broken.indices[1] = 5
    with pytest.raises(ValueError, match="features must be a valid CSR array"):
        FederatedData(broken, Y, [3, 3])


def test_read_only_arrays_are_held_without_a_copy():
    mine = X.copy()
    mine.setflags(write=False)
    assert np.shares_memory(FederatedData(mine, Y, [3, 3]).features, mine)
    assert not np.shares_memory(FederatedData(X, Y, [3, 3]).features, X)


@pytest.mark.parametrize("features", [X, sparse.csr_array(X)])
def test_copies_are_frozen_too(features):
    data = FederatedData(features, Y, [2, 4], client_names="ab")
    data.client(0)
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert other.content_hash() == data.content_hash()
        assert other.client_names == ("a", "b") and other.offsets.tolist() == [0, 2, 6]
        for array in (other.features.data if other.is_sparse else other.features, other.labels):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_the_hash_is_of_content():
    base = FederatedData(sparse.csr_array(X), Y, [3, 3])
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert FederatedData(wide, Y, [3, 3]).content_hash() == base.content_hash()
    different = [
        FederatedData(X, Y, [3, 3]),
        FederatedData(sparse.csr_array(X), Y, [2, 4]),
        FederatedData(sparse.csr_array(X), 1 - Y, [3, 3]),
        FederatedData(sparse.csr_array(X.astype(np.float32)), Y, [3, 3]),
        FederatedData(sparse.csr_array(X + 1), Y, [3, 3]),
    ]
    assert len({d.content_hash() for d in (base, *different)}) == 6


def test_no_such_client():
    data = FederatedData(X, Y, [3, 3])
    with pytest.raises(IndexError, match="client must be a number from 0 to 1, got 2"):
        data.client(2)
    with pytest.raises(TypeError, match="from 0 to 1, as in client_names, got 'north'"):
        data.client("north")


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 99), st.sampled_from(["f4", "f8"]))
@settings(max_examples=60)
def test_splits_only_move_rows(d, n, seed, dtype):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(d, n)).astype(dtype), rng.normal(size=d)
    ids = rng.integers(0, 5, d)
    data = FederatedData.split(features, labels, ids, task="regression")
    np.testing.assert_array_equal(data.features, features[data.rows])
    np.testing.assert_array_equal(data.labels, labels[data.rows])
    np.testing.assert_array_equal(
        np.repeat(data.client_names, data.client_sizes), np.sort(ids).astype(str)
    )
