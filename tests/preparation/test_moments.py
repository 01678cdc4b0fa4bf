"""Columns that are sums of others."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedepm_fast.preparation import Preparation, SecondMoments, as_table


def learned(table, **choices):
    preparation = Preparation(**choices)
    return preparation.learn([preparation.summarize(table, guard=False)])


def without_aliased(table, cuts=(), **choices):
    prepared = learned(table, **choices)
    parts = np.split(np.arange(len(table)), cuts)
    return prepared.without_aliased([prepared.second_moments(table.take(rows)) for rows in parts])


def test_later_columns_are_left_out_as_in_r():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    table = as_table({"a": a, "twice": 2e6 * a + 3, "b": b, "sum": a - 1e-6 * b, "c": a * b})
    found = without_aliased(table, cuts=[7, 20])
    assert found.aliased == ("twice", "sum")
    assert found.feature_names == ("a", "b", "c", "(intercept)")
    rows = found.transform(table)
    assert np.linalg.matrix_rank(rows) == 4
    full = learned(table).transform(table)
    assert np.linalg.matrix_rank(full, tol=1e-7) == 4
    v = np.array([1.0, 2.0, 3.0, 4.0])
    raw = np.column_stack([a, b, a * b, np.ones(50)])
    np.testing.assert_allclose(raw @ (found.units @ v), rows @ v, atol=1e-12)
    assert "twice  a sum of columns before it" in found.report()


def test_all_levels_of_two_categories_that_say_the_same():
    ward = ["a", "b", "c", "a", "b", "c", "a"]
    table = as_table({"ward": ward, "floor": [{"a": "1", "b": "2", "c": "2"}[w] for w in ward]})
    found = without_aliased(table, kinds={"floor": "category"})
    assert found.feature_names == ("ward=b", "ward=c", "(intercept)")
    assert found.aliased == ("floor=1",)


def test_indicators_that_are_the_same():
    table = as_table({"x": [1.0, None, 2.0, 5.0], "y": [3.0, None, 2.5, 9.0]})
    assert without_aliased(table).aliased == ("y (missing)",)


def test_nearly_the_same_columns_are_kept():
    rng = np.random.default_rng(1)
    a = rng.normal(size=200)
    table = as_table({"a": a, "near": a + 1e-3 * rng.normal(size=200)})
    assert without_aliased(table).aliased == ()


def test_columns_whose_scales_differ_by_a_million():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 100))
    table = as_table({"a": 1e6 * a + 1e9, "b": 1e-6 * b, "sum": 1e6 * a + b})
    for scaling in ("standardize", "none"):
        assert without_aliased(table.without(["sum"]), scaling=scaling).aliased == ()
    assert without_aliased(table).aliased == ("sum",)


def test_moments_go_over_the_wire_and_add_up():
    table = as_table(np.random.default_rng(3).normal(size=(30, 3)))
    prepared = learned(table)
    parts = [prepared.second_moments(table.take(r), client=str(i)) for i, r in enumerate((
        range(10), range(10, 30)
    ))]  # fmt: skip
    again = [SecondMoments.from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
    for mine, theirs in zip(parts, again, strict=True):
        np.testing.assert_array_equal(np.tril(mine.matrix), np.tril(theirs.matrix))
        np.testing.assert_array_equal(theirs.matrix, theirs.matrix.T)
    total = again[0] + again[1]
    assert (total.clients, total.rows) == (("0", "1"), 30)
    rows = prepared.transform(table)
    np.testing.assert_allclose(total.matrix, rows.T @ rows, atol=1e-12)
    assert len(parts[0].to_dict()["lower"]) == 10
    with pytest.raises(ValueError, match=r"moments must have one shape for all clients"):
        total + SecondMoments.of(np.eye(2))
    with pytest.raises(ValueError, match=r"moments must have shape \(4, 4\), got \(2, 2\)"):
        prepared.without_aliased(SecondMoments.of(np.eye(2)))
    with pytest.raises(ValueError, match="moments must be those of at least one client"):
        prepared.without_aliased([])
    with pytest.raises(ValueError, match=r"lower must have shape \(3,\)"):
        SecondMoments.from_dict({**parts[0].to_dict(), "columns": 2})
