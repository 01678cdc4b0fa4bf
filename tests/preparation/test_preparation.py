"""From clients' summaries to numbers: what is learned, and that it is the same everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedepm_fast.preparation import Preparation, Prepared, TableSummary, as_table

AGES = [30.0, 41.0, None, 52.0, 63.0, 29.0, 44.0, 58.0]
SEXES = ["f", "m", "f", None, "f", "m", "m", "f"]


def a_table():
    return as_table({"age": AGES, "sex": SEXES, "smoker": [True, False] * 4})


def learned(table, sizes=(5, 3), **choices):
    """A preparation, learned from the tables of clients whose rows follow one another."""
    preparation = Preparation(**choices)
    parts = np.split(np.arange(len(table)), np.cumsum(sizes)[:-1])
    return preparation.learn(
        [preparation.summarize(table.take(rows), guard=False) for rows in parts]
    )


def test_columns_are_standardised_over_all_clients():
    prepared = learned(a_table())
    rows = prepared.transform(a_table())
    assert prepared.feature_names == (
        "age",
        "age (missing)",
        "sex=m",
        "sex=(missing)",
        "smoker",
        "(intercept)",
    )
    np.testing.assert_allclose(rows[:, :-1].mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(rows[:, :-1].std(axis=0), 1)
    assert (rows[:, -1] == 1).all()


def test_coefficients_in_units_of_the_table_have_the_same_margins():
    prepared, table = learned(a_table()), a_table()
    seen = [age for age in AGES if age is not None]
    raw = np.column_stack(
        [
            [np.mean(seen) if age is None else age for age in AGES],
            [age is None for age in AGES],
            [sex == "m" for sex in SEXES],
            [sex is None for sex in SEXES],
            [1, 0] * 4,
            np.ones(8),
        ]
    )
    v = np.arange(1.0, 7.0)
    np.testing.assert_allclose(raw @ (prepared.units @ v), prepared.transform(table) @ v)


def test_one_machine_and_a_federation_learn_the_same_bits():
    table, preparation = a_table(), Preparation()
    at_once = learned(table)
    wire = [
        json.loads(json.dumps(preparation.summarize(table.take(rows), guard=False).to_dict()))
        for rows in (range(5), range(5, 8))
    ]
    apart = preparation.learn([TableSummary.from_dict(told) for told in wire])
    assert apart == at_once
    again = Prepared.from_dict(json.loads(json.dumps(apart.to_dict())))
    assert again == at_once
    assert again.transform(table).tobytes() == at_once.transform(table).tobytes()


def test_a_later_table_is_prepared_by_name():
    prepared = learned(a_table())
    later = {"extra": [1], "smoker": [False], "sex": ["m"], "age": [40]}
    rows = prepared.transform(later)
    expected = prepared.transform({"age": [40.0], "sex": ["m"], "smoker": [False]})
    np.testing.assert_array_equal(rows, expected)
    with pytest.raises(ValueError, match=r"lacks 'sex'"):
        prepared.transform({"age": [1.0], "smoker": [True]})
