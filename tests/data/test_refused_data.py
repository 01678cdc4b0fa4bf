"""Data, splits and particulars that are refused, by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from problems import table
from scipy import sparse

from fedepm_fast import FederatedData
from fedepm_fast.data import partition

X, Y = table(6)


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
