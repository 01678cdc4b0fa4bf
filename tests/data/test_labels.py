"""Labels: what values are classes, how they are numbered, and in which order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from problems import table

from fedepm_fast import FederatedData


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
    assert many.summary().endswith(
        "; labels a -> 0, b -> 1, c -> 2, d -> 3, e -> 4, ... and 1 more"
    )
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
