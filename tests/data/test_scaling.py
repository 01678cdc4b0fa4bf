"""Columns scaled to unit norm, or standardised."""

from __future__ import annotations

import numpy as np
import pytest
from problems import table
from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, run
from fedepm_fast.data import partition, standardised
from fedepm_fast.mechanisms import GaussianMechanism


def test_unit_norm():
    X, y = table()
    X[:, 1] = 0
    data = FederatedData.split(X, y, partition.EqualParts(4), scale="unit-norm")
    np.testing.assert_allclose(np.linalg.norm(data.features, axis=0), [1, 0, 1])
    assert data.description["zero_columns"] == [1]
    assert data.summary().endswith("; only zeros in column 1")
    # The norms do not depend on the split.
    norms = np.where(X.any(axis=0), np.linalg.norm(X, axis=0), 1)
    np.testing.assert_array_equal(data.features, (X / norms)[data.rows])
    as_csr = FederatedData.split(sparse.csr_array(X), y, partition.EqualParts(4), scale="unit-norm")
    np.testing.assert_array_equal(as_csr.features.toarray(), data.features)


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1.0, 1e170, 1e300])
def test_unit_norm_at_any_magnitude(size):
    X, y = table()
    X = np.column_stack([size * X[:, 0], X[:, 1], np.zeros(40)])
    want = np.column_stack([X[:, 0] / size, X[:, 1:]])
    norms = np.linalg.norm(want, axis=0)
    for features in (X, sparse.csr_array(X)):
        data = FederatedData.split(features, y, [0] * 40, scale="unit-norm")
        got = data.features.toarray() if data.is_sparse else data.features
        np.testing.assert_allclose(got[:, :2], want[:, :2] / norms[:2], rtol=1e-14)
        assert data.description["zero_columns"] == [2]


def test_unit_norm_in_single_precision_sums_in_double():
    X = np.full((300_000, 1), 1e-3, dtype=np.float32)
    X[0] = 30.0
    data = FederatedData.split(X, np.arange(300_000) % 2, [0] * 300_000, scale="unit-norm")
    assert data.features.dtype == np.float32
    norm = np.linalg.norm(X.astype(float))
    np.testing.assert_array_equal(data.features, X / np.float32(norm))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_standardised_columns(dtype):
    rng = np.random.default_rng(0)
    # One column constant up to the rounding of its mean.
    X = np.column_stack([rng.normal(3, 2, 50), rng.random(50) < 0.2, np.full(50, 0.1)])
    data = FederatedData(
        X.astype(dtype), rng.integers(0, 2, 50), [20, 30], feature_names="abc", client_names="uv",
        description={"source": "here", "scale": "unit-norm"},
    )  # fmt: skip
    found = standardised(data)
    assert found.feature_names == ("a", "b", "c", "(intercept)") and found.client_names == (
        "u",
        "v",
    )
    assert found.description == {
        "source": "here", "scale": "mean 0 and deviation 1", "intercept": True,
    }  # fmt: skip
    np.testing.assert_allclose(found.features.mean(axis=0), [0, 0, 0, 1], atol=1e-14)
    np.testing.assert_allclose(found.features.std(axis=0), [1, 1, 0, 0], atol=1e-14)
    assert not found.features[:, 2].any()
    mechanism = GaussianMechanism(total_epsilon=1.0)
    with pytest.raises(ValueError, match="divided by numbers that depend on the data"):
        run(FedEPM(mechanism=mechanism), found, rounds=1)


def test_sparse_columns_are_not_centred():
    dense = np.array([[2.0, 0, 0], [0, 0, 1], [2, 0, 0], [0, 0, 0]])
    data = FederatedData(sparse.csr_array(dense), [0, 1, 1, 0], [4])
    found = standardised(data)
    assert found.is_sparse
    want = dense / [np.sqrt(2), 1, 0.5]
    np.testing.assert_allclose(found.features.toarray(), np.hstack([want, np.ones((4, 1))]))
