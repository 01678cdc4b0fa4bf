"""A preparation of what is known to everyone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedepm_fast.preparation import Preparation, Prepared

COLUMNS = {
    "age": {"bounds": (0, 120), "missing": True},
    "bmi": {"mean": 25, "sd": 5},
    "smoker": {"kind": "boolean"},
    "sex": {"levels": ["f", "m"], "other": True},
}


def test_declared_values_are_all_that_is_used(recwarn):
    prepared = Preparation.public(COLUMNS)
    assert prepared.declared
    assert prepared.feature_names == (
        "age",
        "age (missing)",
        "bmi",
        "smoker",
        "sex=m",
        "sex=(other)",
        "(intercept)",
    )
    rows = prepared.transform(
        {
            "age": [60, 150, None, 0],
            "bmi": [20.0, 25.0, 30.0, None],
            "smoker": [True, False, None, True],
            "sex": ["f", "m", "x", None],
        }
    )
    np.testing.assert_array_equal(
        rows,
        [
            [0, 0, -1, 1, 0, 0, 1],
            [1, 0, 0, -1, 1, 0, 1],
            [0, 1, 1, 0, 0, 1, 1],
            [-1, 0, 0, 1, 0, 0, 1],
        ],
    )
    assert not recwarn.list
    again = Prepared.from_dict(json.loads(json.dumps(prepared.to_dict())))
    assert again == prepared


def test_units_are_those_of_the_table():
    prepared = Preparation.public({"age": {"bounds": (20, 80)}}, intercept=True)
    np.testing.assert_allclose(prepared.units @ [3.0, 1.0], [0.1, 1 - 5])


def test_a_report_says_that_it_is_public():
    assert Preparation.public(COLUMNS).report() == (
        "Declared public, learned from no data: 6 columns of numbers and the intercept.\n"
        "  age     numeric; clipped to 0 ... 120, from -1 to 1; missing: 60 stands for\n"
        "          it, and a column says where\n"
        "  bmi     numeric; mean 25, standard deviation 5\n"
        "  smoker  boolean, 1 for true\n"
        "  sex     category, m, (other) against f; (other) is any other level"
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "columns must be a mapping of at least one column, got {}"),
        ({"x": 3}, r"columns\['x'\] must be a mapping such as {'bounds': \[0, 1\]}, got 3"),
        ({"x": {}}, r"columns\['x'\] must have bounds, or mean and sd, or levels"),
        ({"x": {"bounds": 3}}, r"columns\['x'\]: bounds must be two numbers, got 3"),
        ({"x": {"bounds": (1, 1)}}, r"columns\['x'\]: bounds must be a finite number in \(1"),
        ({"x": {"mean": 1}}, r"columns\['x'\]: sd must be a finite number in \(0, inf\), got None"),
        ({"x": {"levels": ["a"]}}, r"columns\['x'\]: levels must be at least two, got \['a'\]"),
        ({"x": {"levels": "ab"}}, r"columns\['x'\]: levels must be texts, got 'ab'"),
        ({"x": {"limits": (0, 1)}}, "limits is not a parameter of the column"),
        ({"x": {"levels": ["a", "b"], "kind": "numeric"}}, r"columns\['x'\] must have bounds, or"),
    ],
)
def test_what_is_not_declared_is_refused(columns, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Preparation.public(columns)
