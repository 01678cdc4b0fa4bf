"""What a client's sums may not say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedepm_fast.preparation import DisclosureError, Preparation, Prepared, Thresholds

ROWS = {
    "age": [30.0, 41, 33, 52, 63, 29, 44, 58, 47, 39, 36, 61],
    "sex": list("ffffffmmmmmm"),
}


def refused(table, *, client="north", **thresholds):
    """Why a client does not send its summary."""
    preparation = Preparation(thresholds=Thresholds(**thresholds))
    with pytest.raises(DisclosureError) as error:
        preparation.summarize(table, client=client)
    preparation.summarize(table, guard=False)
    return str(error.value)


def test_a_table_of_enough_rows_is_summarised():
    summary = Preparation().summarize(ROWS, client="north")
    assert summary.rows == 12
    assert summary.columns["sex"].levels == {"f": 6, "m": 6}


def test_a_table_of_few_rows_is_refused():
    assert refused({"age": [30.0, 41.0]}) == (
        "client 'north' sends no sums: it has 2 rows (smallest_table is 3)"
    )
    assert refused({"age": [30.0]}, client=None).startswith("a client without a name sends no")


def test_a_level_of_few_rows_is_refused():
    table = {**ROWS, "sex": list("ffffffmmmmmd")}
    assert refused(table) == (
        "client 'north' sends no sums: column 'sex' has 1 row of level 'd'; levels= declares those "
        "that are told apart (smallest_cell is 3)"
    )
    declared = Preparation(levels={"sex": ["f", "m"]})
    with pytest.raises(DisclosureError, match=r"1 row of level '\(other\)'"):
        declared.summarize(table, client="north")
    Preparation(thresholds=Thresholds(smallest_cell=1, parameters_share=0.5)).summarize(table)


def test_parameters_are_at_most_a_third_of_the_rows():
    rng = np.random.default_rng(0)
    table = {f"x{j}": rng.normal(size=12) for j in range(3)}
    Preparation(thresholds=Thresholds(parameters_share=1 / 3)).summarize(table)
    assert refused(table) == (
        "client 'north' sends no sums: 4 parameters are more than that share of its 12 rows "
        "(parameters_share is 0.33)"
    )


def test_two_values_are_cells():
    table = {**ROWS, "ill": [0] * 10 + [1] * 2}
    told = refused(table)
    assert "column 'ill' has two values, one of them in 2 rows" in told
    assert "column 'ill'" in refused({**ROWS, "ill": [True] * 10 + [False] * 2})
    many = {name: cells * 3 for name, cells in table.items()}
    Preparation().summarize(many)


def test_few_missing_cells_are_refused_where_an_indicator_tells_them():
    table = {**ROWS, "age": [None, *ROWS["age"][1:]]}
    assert "column 'age' is missing in 1 row, which its indicator would single out" in refused(
        table
    )
    Preparation(missing="fill").summarize(table, client="north")


def test_few_values_are_refused():
    table = {**ROWS, "age": [None] * 10 + [40.0, 50.0]}
    assert "column 'age' has 2 values (smallest_table is 3)" in refused(table)


def test_a_column_of_names_is_refused():
    names = [f"patient {i // 3}" for i in range(150)]
    assert "column 'name' has 50 levels (most_levels is 40)" in refused({"name": names})
    table = {"name": [f"patient {i // 3}" for i in range(12)]}
    assert "has 4 levels in 12 rows (levels_share is 0.33)" in refused(table)


def test_second_moments_are_refused_alike():
    other = {"age": [50.0, 60, 70] * 4, "sex": list("abcd") * 3}
    preparation = Preparation()
    prepared = preparation.learn(
        [preparation.summarize(table, guard=False) for table in (ROWS, other)]
    )
    prepared = Prepared.from_dict(json.loads(json.dumps(prepared.to_dict())))
    with pytest.raises(DisclosureError, match=r"7 parameters are more than .* 12 rows"):
        prepared.second_moments(ROWS, client="north", guard=True)
    with pytest.raises(DisclosureError, match="it has 2 rows"):
        prepared.second_moments({"age": [1, 2], "sex": ["f", "m"]}, guard=True)
    assert prepared.second_moments(ROWS, client="north").rows == 12
    table = {"age": ROWS["age"] * 3, "sex": ["f"] * 35 + ["m"]}
    with pytest.raises(DisclosureError, match=r"feature 'sex=m' has two values, one of them in 1"):
        prepared.second_moments(table, client="north", guard=True)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"smallest_cell": 0}, "smallest_cell must be an integer >= 1, got 0"),
        ({"parameters_share": 0.0}, r"parameters_share must be a finite number in \(0, inf\)"),
    ],
)
def test_thresholds_that_are_none_are_refused(thresholds, message):
    with pytest.raises(ValueError, match=message):
        Thresholds(**thresholds)


def test_a_summary_holds_no_row():
    rng = np.random.default_rng(5)
    ages = rng.normal(50, 10, size=40)
    told = json.dumps(Preparation().summarize({"age": ages}).to_dict())
    assert not any(repr(float(age)) in told for age in ages)
