"""Federated data: what is held, what is refused."""

from __future__ import annotations

import copy
import decimal
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_data
from scipy import sparse

from fedepm_fast import FedEPM, FederatedData, Logistic, Problem, run
from fedepm_fast.data import partition, standardised
from fedepm_fast.mechanisms import GaussianMechanism


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


def test_two_values_are_mapped_and_reported():
    X, _ = table(6)
    for labels, mapping in [
        ([-1, 1, 1, -1, 1, -1], {"-1": 0, "1": 1}),
        (["no", "yes", "yes", "no", "yes", "no"], {"no": 0, "yes": 1}),
        ([2.0, 5.5, 5.5, 2.0, 5.5, 2.0], {"2.0": 0, "5.5": 1}),
        (np.array(["a", "b", "b", "a", "b", "a"], dtype=object), {"a": 0, "b": 1}),
        (np.array([2, 10, 10, 2, 10, 2], dtype=object), {"2": 0, "10": 1}),
        (pd.Series(["a", "b", "b", "a", "b", "a"], dtype="category"), {"a": 0, "b": 1}),
    ]:
        data = FederatedData.split(X, labels, [0, 0, 0, 1, 1, 1])
        assert data.label_mapping == data.description["label_mapping"] == mapping
        assert data.labels.tolist() == [0, 1, 1, 0, 1, 0]
        assert " -> 1" in data.summary()
    data = FederatedData.split(X, [False, True] * 3, [0, 0, 0, 1, 1, 1])
    assert data.label_mapping is None and "label_mapping" not in data.description


def test_classes_are_numbered():
    X, _ = table(6)
    for labels, mapping in [
        (["b", "c", "a", "b", "c", "a"], {"a": 0, "b": 1, "c": 2}),
        ([7.0, 10.0, -2.0] * 2, {"-2.0": 0, "7.0": 1, "10.0": 2}),
        (pd.Series([4, 9, 3] * 2, dtype="category"), {"3": 0, "4": 1, "9": 2}),
    ]:
        data = FederatedData.split(X, labels, [0, 0, 0, 1, 1, 1], task="multiclass")
        assert data.description["task"] == "multiclass" and data.label_mapping == mapping
        assert data.labels.tolist() == [1, 2, 0, 1, 2, 0]
    pairs = [(X[:3], ["x", "y", "z"]), (X[3:], ["z", "z", "y"])]
    data = FederatedData.from_clients(pairs, task="multiclass")
    assert data.labels.tolist() == [0, 1, 2, 2, 2, 1]
    data = FederatedData.split(X, [0, 2, 1, 0, 2, 1], [0, 0, 0, 1, 1, 1], task="multiclass")
    assert data.label_mapping is None and data.labels.tolist() == [0, 2, 1, 0, 2, 1]
    many = FederatedData.split(X, list("fedcba"), [0] * 6, task="multiclass")
    assert many.summary().endswith("; labels a -> 0, b -> 1, c -> 2, d -> 3, e -> 4, ...")
    for labels, message in [
        ([3] * 6, "labels must have at least two values for multiclass, got 1: 3"),
        ([0.5, 1.0, 2.0] * 2, "strings or whole numbers for multiclass, got 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            FederatedData.split(X, labels, [0] * 6, task="multiclass")


def ordered(values, categories):
    return pd.Categorical(values, categories=categories, ordered=True)


@pytest.mark.parametrize(
    ("labels", "mapping"),
    [
        (ordered(["lo", "hi", "lo", "hi"], ["lo", "hi"]), {"lo": 0, "hi": 1}),
        (pd.Series(ordered(["lo", "hi", "lo", "hi"], ["lo", "hi"])), {"lo": 0, "hi": 1}),
        (ordered(["lo", "hi", "lo", "hi"], ["no", "lo", "mid", "hi"]), {"lo": 0, "hi": 1}),
        (ordered([1, 0, 1, 0], [1, 0]), {"1": 0, "0": 1}),
        (ordered([0, 1, 0, 1], [0, 1]), None),
        (ordered([2.5, 0.5, 2.5, 0.5], [2.5, 0.5]), {"2.5": 0, "0.5": 1}),
        (pd.qcut([1, 9, 2, 8], 2, labels=["under", "over"]), {"under": 0, "over": 1}),
        (pd.Categorical(["lo", "hi", "lo", "hi"], categories=["lo", "hi"]), {"hi": 0, "lo": 1}),
    ],
)
def test_ordered_categories_are_in_their_order(labels, mapping):
    data = FederatedData.split(np.eye(4), labels, [0, 0, 1, 1])
    want = [1, 0, 1, 0] if mapping == {"hi": 0, "lo": 1} else [0, 1, 0, 1]
    assert data.label_mapping == mapping and data.labels.tolist() == want
    pairs = [(np.eye(2), labels[:2]), (np.eye(2), labels[2:])]
    again = FederatedData.from_clients(pairs, task="classification")
    assert again.label_mapping == mapping and again.labels.tolist() == want


def test_ordered_categories_of_many_classes_and_of_several_clients():
    grades = ordered(list("caba"), list("cba"))
    data = FederatedData.split(np.eye(4), grades, [0, 0, 1, 1], task="multiclass")
    assert data.label_mapping == {"c": 0, "b": 1, "a": 2} and data.labels.tolist() == [0, 2, 1, 2]
    with pytest.raises(ValueError, match=r"labels must not be missing, got nan at index 1"):
        FederatedData.split(np.eye(4), ordered(["a", None, "b", "a"], ["b", "a"]), [0, 0, 1, 1])
    for other in (ordered(list("ab"), list("ab")), ["a", "b"]):
        pairs = {"north": (np.eye(4), grades), "south": (np.eye(4)[:2], other)}
        with pytest.raises(ValueError, match=r"labels of clients\['south'\] must have the or"):
            FederatedData.from_clients(pairs, task="multiclass")


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


@pytest.mark.parametrize(
    ("clients", "options", "error", "message"),
    [
        ({"n": np.eye(2)}, {}, TypeError, r"clients\['n'\] must be a pair .*, got ndarray"),
        ({"n": {"X": 1, "y": 2}}, {}, TypeError, r"clients\['n'\] must be a pair .*, got dict"),
        ({"n": (np.eye(2), [0])}, {}, ValueError, r"clients\['n'\] must be features .* labels"),
        ({"n": ([[np.nan]], [0])}, {}, ValueError, r"features of clients\['n'\] must be finite"),
        ((np.eye(2), [0, 1]), {}, TypeError, r"clients\[0\] must be a pair .*, got ndarray"),
        ([(np.eye(2), [0, 1], 5)], {}, TypeError, r"clients\[0\] must be a pair .* tuple of 3"),
        (["ab"], {}, TypeError, r"clients\[0\] must be a pair .*, got str"),
        (5, {}, TypeError, r"clients must be \(features, labels\) pairs, got int"),
        ({1: (np.eye(2), [0, 1]), "1": (np.eye(2), [0, 1])}, {}, ValueError, "differ as text"),
        ({"n": (np.eye(2), [0, 1])}, {"client_names": ["m"]}, ValueError, "client_names must not"),
        ([(np.eye(2), [0, 1]), (np.eye(2), ["0", "1"])], {"task": "classification"}, TypeError,
         "labels must be all numbers of one kind or all strings"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_named(clients, options, error, message):
    with pytest.raises(error, match=message):
        FederatedData.from_clients(clients, **options)


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


X, Y = table(6)
NAN, INF = X.copy(), X.copy()
NAN[2, 1], INF[0, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("features", "labels", "sizes", "error", "message"),
    [
        (NAN, Y, [3, 3], ValueError, r"features must be finite, got nan at index \(2, 1\)"),
        (INF, Y, [3, 3], ValueError, r"features must be finite, got -inf at index \(0, 0\)"),
        (sparse.csr_array(NAN), Y, [3, 3], ValueError, r"got nan at index \(2, 1\)"),
        (NAN.astype(np.float32), Y, [3, 3], ValueError, r"got nan at index \(2, 1\)"),
        (np.ma.masked_less(X, 0), Y, [3, 3], ValueError, "features must not have masked entries"),
        (X, [0, 1, np.nan, 0, 1, 0], [3, 3], ValueError, "labels must be finite"),
        (X, Y[:5], [3, 3], ValueError, r"labels must have shape \(6,\), got \(5,\)"),
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
        (
            {"labels": [0, 1, 2, 0, 1, 2]},
            "; task='multiclass' takes classes .commands: --objective multinomial., "
            "task='regression' takes numbers .commands: --objective least_squares or poisson.$",
        ),
        ({"labels": [0.5, 1, 2.5] * 2}, "got 3: 0.5, 1.0, 2.5; task='regression' takes numbers"),
        ({"labels": ["a", "b", "c"] * 2}, "c; task='multiclass' takes .*objective multinomial.$"),
        ({"labels": [1] * 6}, "exactly two values for classification, got 1: 1$"),
        ({"labels": [0, 1, np.nan, 0, 1, 0]}, "labels must be finite"),
        ({"labels": ["a", "b", None] * 2}, "labels must not be missing, got None at index 2"),
        (
            {"labels": pd.Series(["a", np.nan] * 3)},
            "labels must not be missing, got nan at index 1",
        ),
        ({"labels": pd.array([0, pd.NA] * 3)}, r"labels must be finite, got nan at index \(1,\)"),
        ({"labels": np.ma.masked_equal(Y, 1)}, "labels must not have masked entries"),
        ({"labels": np.ma.masked_equal(Y, 1), "task": "regression"}, "must not have masked"),
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


def test_names_of_a_data_frame():
    names = ("age", "income", "height")
    frame = pd.DataFrame(X, columns=names)
    client = [0, 0, 0, 1, 1, 1]
    pieces = [(frame[:3], Y[:3]), (frame[3:], Y[3:])]
    for data in (
        FederatedData.split(frame, Y, client),
        FederatedData.split(frame, Y, client, scale="unit-norm"),
        FederatedData(frame, Y, [3, 3]),
        FederatedData.from_clients(pieces),
    ):
        assert data.feature_names == names
    assert FederatedData.split(frame, Y, client, feature_names="xyz").feature_names == tuple("xyz")
    assert FederatedData.from_clients(pieces, feature_names="xyz").feature_names == tuple("xyz")
    assert FederatedData.split(pd.DataFrame(X), Y, client).feature_names is None
    turned = frame[["age", "height", "income"]]
    with pytest.raises(ValueError, match=r"clients\[1\] must have the columns of clients\[0\], in"):
        FederatedData.from_clients([pieces[0], (turned[3:], Y[3:])])


def numbers_in_frames():
    whole = pd.DataFrame({"a": [1.5, -2.0, 0.25, 3.0, 8.0, 9.5], "b": [3, 0, 1, 2, 2, 7]})
    flag = whole.b > 1
    return {
        "nullable": whole.convert_dtypes(),
        "arrow": whole.convert_dtypes(dtype_backend="pyarrow"),
        "bool": whole.assign(b=flag),
        "boolean": whole.assign(b=flag.astype("boolean")),
        "category": whole.assign(b=whole.b.astype("category")),
        "ordered": whole.assign(b=pd.Categorical(whole.b, ordered=True)),
        "object": whole.astype(object),
        "decimal": whole.assign(b=whole.b.map(decimal.Decimal)),
        "sparse": whole.assign(b=whole.b.astype(pd.SparseDtype("int64"))),
        "mixed": whole.assign(b=flag.astype("boolean"), a=whole.a.astype("Float32")),
        "array": whole.astype(object).to_numpy(),
    }


@pytest.mark.parametrize("kind", numbers_in_frames())
def test_frames_of_numbers_of_every_kind(kind):
    frame = numbers_in_frames()[kind]
    parts = [column for _, column in frame.items()] if hasattr(frame, "items") else frame.T
    want = np.column_stack([np.asarray(part, dtype=float) for part in parts])
    labels = pd.Series([True, False] * 3, dtype="boolean")
    clients = pd.Series(["0045", "045", "45"] * 2, dtype="string")
    half = slice(0, 3), slice(3, 6)
    for data in (
        FederatedData.split(frame, labels, [0] * 6),
        FederatedData(frame, labels, [3, 3]),
        FederatedData.from_clients([(frame[s], labels[s]) for s in half]),
        FederatedData.split(frame, labels.astype("Int64"), [0] * 6, task="regression"),
    ):
        np.testing.assert_array_equal(data.features, want)
        assert data.features.dtype == np.float64
        assert data.labels.tolist() == [1, 0] * 3
        assert data.feature_names == (None if kind == "array" else ("a", "b"))
    for ids in (clients, clients.astype("category"), clients.astype("string[pyarrow]")):
        data = FederatedData.split(frame, labels, ids)
        assert data.client_names == ("0045", "045", "45")


def test_one_hot_columns_are_numbers():
    table = pd.DataFrame({"age": [50.0, 61, 47], "work": ["gov", "own", "gov"]})
    data = FederatedData.split(pd.get_dummies(table), [0, 1, 1], [0, 0, 0])
    assert data.feature_names == ("age", "work_gov", "work_own")
    np.testing.assert_array_equal(data.features, [[50, 1, 0], [61, 0, 1], [47, 1, 0]])


FRAME = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1]})


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (["x"] * 6, TypeError, "column 'city', must be numbers, got 'x' in row 0"),
        ([1, 2, "3", 4, 5, 6], TypeError, "column 'city', must be numbers, got '3' in row 2"),
        (pd.Categorical(list("ababab")), TypeError, "column 'city', must be numbers, got 'a' in"),
        (
            pd.date_range("2020", periods=6),
            TypeError,
            "column 'city', must be numbers, got dtype da",
        ),
        ([1, 2, 3, 4, 1j, 6], TypeError, "column 'city', must be numbers, got dtype complex"),
        (
            [1, 2, 3, 4, 5, 10**400],
            ValueError,
            "column 'city', must be numbers below 1.8e308, in r",
        ),
        (
            [1, 2, 3, np.nan, 4, 5],
            ValueError,
            r"finite, got nan in row 3 .*, column 'city' \(1 such",
        ),
        (pd.array([1, pd.NA] * 3), ValueError, r"got nan in row 1 .*, column 'city' \(3 such"),
        (pd.array([True, None] * 3), ValueError, r"got nan in row 1 .*, column 'city' \(3 such"),
        ([1, None, np.inf, 4, 5, 6], ValueError, r"got nan in row 1 .*, column 'city' \(2 such"),
    ],
)
def test_what_is_no_number_is_named_by_row_and_column(column, error, message):
    frame = FRAME.assign(city=column)
    for make in (
        lambda: FederatedData.split(frame, Y, [0] * 6),
        lambda: FederatedData(frame, Y, [6]),
        lambda: FederatedData.from_clients([(frame, Y)]),
    ):
        with pytest.raises(error, match=message):
            make()
    with pytest.raises(error, match=r"clients\[1\]"):
        FederatedData.from_clients([(FRAME.assign(city=1.0), Y), (frame, Y)])


def test_missing_entries_of_from_clients_are_not_forgotten():
    with pytest.raises(ValueError, match=r"features of clients\[0\] must not have masked entries"):
        FederatedData.from_clients([(np.ma.masked_less(X, 0), Y)])
    with pytest.raises(ValueError, match=r"labels of clients\[0\] must not have masked entries"):
        FederatedData.from_clients([(X, np.ma.masked_equal(Y, 1))])


@pytest.mark.parametrize(
    "ids",
    [
        [1, "1", 2, 2, 2, 2],
        np.array([1, "1", 2, 2, 2, 2], dtype=object),
        [2**53 + 1, 2**53, 0.5, 1, 1, 1],
        pd.Series([7, "7"] * 3, dtype=object),
        [True, "True"] * 3,
    ],
)
def test_clients_of_two_kinds_do_not_become_one(ids):
    with pytest.raises(
        TypeError, match="client ids must be all numbers of one kind or all strings"
    ):
        FederatedData.split(X, Y, ids)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rows": [0.5] * 6}, ValueError, "rows must hold whole numbers, got 0.5"),
        ({"rows": [-1] * 6}, ValueError, "rows must be at least 0, got -1"),
        ({"rows": [0]}, ValueError, r"rows must have shape \(6,\), got \(1,\)"),
        ({"client_names": ["a"]}, ValueError, "client_names must have 2 entries, got 1"),
        ({"description": {"w": np.ones(2)}}, TypeError, "description must be a mapping that JSON"),
        ({"description": {"w": np.nan}}, TypeError, "description must be a mapping that JSON"),
    ],
)
def test_bad_particulars_are_named(options, error, message):
    with pytest.raises(error, match=message):
        FederatedData(X, Y, [3, 3], **options)


@pytest.mark.parametrize("wrong", [3, "random", partition.EqualParts])
def test_a_partition_is_an_object_or_a_column(wrong):
    with pytest.raises(TypeError, match="partition must be a partitioner, such as RandomCuts"):
        FederatedData.split(X, Y, wrong)


@pytest.mark.parametrize(
    "parts", [[[0, 1], [2, 3]], [[0, 1, 2], [2, 3, 4]], [[0, 1, 2], [3, 4, 6]]]
)
def test_a_partitioner_of_ones_own_must_keep_every_row(parts):
    class Own(partition.Partitioner):
        name = "own"

        def assign(self, labels, rng):
            return [np.array(part) for part in parts]

    with pytest.raises(ValueError, match="partition must give each of the 6 rows to exactly one"):
        FederatedData.split(X, Y, Own())


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


def test_data_frames_may_change_afterwards():
    frame = pd.DataFrame(X)
    data = FederatedData(frame, pd.Series(Y), [3, 3])
    frame.iloc[:, :] = 0.0
    np.testing.assert_array_equal(data.features, X)


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
    assert found.description == {"source": "here", "scale": "mean 0 and deviation 1"}
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
