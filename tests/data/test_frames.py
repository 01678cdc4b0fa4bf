"""Data frames: names of columns, numbers of every kind, and entries that are none."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest
from problems import table

from fedepm_fast import FederatedData

X, Y = table(6)


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


def test_data_frames_may_change_afterwards():
    frame = pd.DataFrame(X)
    data = FederatedData(frame, pd.Series(Y), [3, 3])
    frame.iloc[:, :] = 0.0
    np.testing.assert_array_equal(data.features, X)
