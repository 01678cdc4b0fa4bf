"""What clients send: sums that add up, over a wire, to the same bits everywhere."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import a_table, learned

from fedepm_fast.preparation import (
    Preparation,
    Prepared,
    TableSummary,
    Thresholds,
    as_table,
)


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


def test_a_column_that_one_client_lacks_altogether():
    preparation = Preparation()
    summaries = {
        "north": preparation.summarize({"x": [None, None], "g": ["a", "b"]}, guard=False),
        "south": preparation.summarize({"x": [1.0, 3.0], "g": [None, None]}, guard=False),
    }
    assert summaries["north"].columns["x"].kind == "missing"
    prepared = preparation.learn(summaries)
    assert prepared.feature_names == (
        "x",
        "x (missing)",
        "g=b",
        "g=(missing)",
        "(intercept)",
    )
    assert prepared.columns[0].fill == 2.0


def test_kinds_differ_between_clients():
    preparation = Preparation()
    numbers = preparation.summarize({"x": [1, 2]}, client="north", guard=False)
    words = preparation.summarize({"x": ["1", "2A"]}, client="south", guard=False)
    truths = preparation.summarize({"x": [True, False]}, client="east", guard=False)
    with pytest.raises(
        ValueError,
        match=r"column 'x' must be of one kind for all clients, got numeric for client 'north' and "
        r"category for client 'south': say which by Preparation\(kinds=",
    ):
        numbers + words
    assert (numbers + truths).columns["x"].kind == "numeric"
    as_levels = Preparation(kinds={"x": "category"})
    parts = [{"x": [1, 2.0]}, {"x": ["1", "2A"]}]
    both = as_levels.learn([as_levels.summarize(part, guard=False) for part in parts])
    assert both.columns[0].levels == {"1": 2, "2": 1, "2A": 1}


def test_columns_differ_between_clients():
    preparation = Preparation()
    less = preparation.summarize({"x": [1, 2]}, client="north", guard=False)
    more = preparation.summarize({"bmi": [1, 2], "x": [1, 2]}, client="south", guard=False)
    message = r"table of client 'north' must have the columns of client 'south', but lacks 'bmi'"
    for a, b in ((less, more), (more, less)):
        with pytest.raises(ValueError, match=message):
            preparation.learn([a, b])
    dropping = Preparation(drop=["bmi"])
    again = dropping.summarize({"bmi": [1, 2], "x": [3, 4]}, client="south", guard=False)
    assert dropping.learn([less, again]).clients == ("north", "south")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"scaling": "whiten"}, "scaling must be one of 'standardize', 'none', got 'whiten'"),
        ({"kinds": {"x": "number"}}, r"kinds\['x'\] must be one of 'numeric', 'boolean'"),
        ({"kinds": ["x"]}, "kinds must be a mapping of columns' names, got list"),
        ({"levels": {"x": "ab"}}, r"levels\['x'\] must be a sequence of texts, got 'ab'"),
        ({"levels": {"x": ["a", "a "]}}, r"levels\['x'\] must be different levels"),
        ({"levels": {"x": ["(other)"]}}, r"levels\['x'\] must not be '\(other\)'"),
        ({"levels": {"x": ["a"]}, "kinds": {"x": "numeric"}}, r"kinds\['x'\] must be category"),
        ({"levels": {"x": ["a"]}, "reference": {"x": "b"}}, r"reference\['x'\] must be one of"),
        ({"drop": "x"}, "drop must be a sequence of names, got 'x'"),
        ({"min_count": 0}, "min_count must be an integer >= 1, got 0"),
        ({"intercept": 1}, "intercept must be True or False, got 1"),
        ({"thresholds": 3}, "thresholds must be Thresholds, got 3"),
    ],
)
def test_choices_that_are_none_are_refused(choices, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Preparation(**choices)


def test_choices_for_columns_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"levels must be a column of the table, got 'y'"):
        Preparation(levels={"y": ["a", "b"]}).summarize({"x": [1]}, guard=False)


def test_choices_go_over_the_wire():
    preparation = Preparation(
        kinds={"x": "category"},
        levels={"g": ["a", "b"]},
        drop=["id"],
        min_count=4,
        thresholds=Thresholds(smallest_cell=5),
    )
    again = Preparation.from_dict(json.loads(json.dumps(preparation.to_dict())))
    assert again == preparation
    with pytest.raises(ValueError, match="document must have the format 'fedepm_fast preparation"):
        Preparation.from_dict({"format": "other"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must have the version 1, got 2"),
        ({"rows": -1}, "rows must be an integer >= 0, got -1"),
        ({"rows": 9}, "column 'x' must have 9 rows, seen or missing, got 2 and 0"),
        ({"clients": "me"}, "clients must be a list of names, got 'me'"),
        ({"columns": {"x": {"kind": "row"}}}, "column 'x' must have a kind of numeric, boolean"),
        (
            {"columns": {"x": {"kind": "numeric", "seen": 2, "missing": 0, "mean": np.nan}}},
            "column 'x': mean must be a finite number",
        ),
        (
            {
                "columns": {
                    "x": {"kind": "category", "seen": 2, "missing": 0, "levels": {"a": 3}},
                }
            },
            "column 'x': levels must have 2 rows, got 3",
        ),
    ],
)
def test_a_summary_that_is_none_is_refused(change, message):
    told = Preparation().summarize({"x": [1.0, 2.0]}, guard=False).to_dict()
    with pytest.raises((ValueError, TypeError), match=message):
        TableSummary.from_dict({**told, **change})


def test_a_preparation_that_is_none_is_refused():
    told = learned(a_table()).to_dict()
    with pytest.raises(ValueError, match="must be a mapping whose format is"):
        Prepared.from_dict([told])
    with pytest.raises(TypeError, match="must be a preparation as to_dict writes it, but"):
        Prepared.from_dict({**told, "features": [{"what": 1}]})
    with pytest.raises(ValueError, match="at least one client, got none"):
        Preparation().learn([])


CELLS = {
    "number": st.none() | st.floats(-1e6, 1e6).map(lambda x: round(x, 9)),
    "count": st.none() | st.integers(0, 5),
    "truth": st.none() | st.booleans(),
    "level": st.none() | st.sampled_from(["a", "b", "ü", "c "]),
}


@st.composite
def tables(draw):
    """A table of every kind of column, and the clients that its rows belong to."""
    rows = draw(st.integers(1, 12))
    table = {
        name: draw(st.lists(cells, min_size=rows, max_size=rows)) for name, cells in CELLS.items()
    }
    who = draw(st.lists(st.sampled_from(["9", "10", "0045"]), min_size=rows, max_size=rows))
    return table, who


@given(tables(), st.sampled_from(["standardize", "none"]), st.booleans())
@settings(max_examples=60)
def test_a_federation_of_any_table_learns_the_same_bits(held, scaling, intercept):
    table, who = held
    preparation = Preparation(scaling=scaling, intercept=intercept)
    parts = as_table({**table, "who": who}).split("who")
    wire = {}
    for client in parts:  # which has its own rows only, as lists
        own = {
            name: [cell for cell, of in zip(cells, who, strict=True) if of == client]
            for name, cells in table.items()
        }
        told = json.dumps(preparation.summarize(own, guard=False).to_dict(), allow_nan=False)
        wire[client] = TableSummary.from_dict(json.loads(told))
    summaries = {c: preparation.summarize(part, guard=False) for c, part in parts.items()}
    try:
        at_once = preparation.learn(summaries)
    except ValueError as error:
        assert "that is not constant" in str(error)
        return
    apart = preparation.learn(wire)
    assert apart == at_once
    again = Prepared.from_dict(json.loads(json.dumps(apart.to_dict(), allow_nan=False)))
    rows = as_table(table)
    found = at_once.transform(rows)
    assert np.isfinite(found).all()
    assert again.transform(rows).tobytes() == found.tobytes()
    pieces = [again.transform(part) for part in parts.values()]
    order = np.argsort([list(parts).index(of) for of in who], kind="stable")
    assert np.concatenate(pieces).tobytes() == found[order].tobytes()
    if intercept and scaling == "standardize":
        np.testing.assert_allclose(found[:, :-1].std(axis=0), 1, rtol=1e-6)
        np.testing.assert_allclose(found[:, :-1].mean(axis=0), 0, atol=1e-6)


@given(
    st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 6)), min_size=2, max_size=40),
    st.integers(1, 39),
)
def test_moments_are_those_of_all_rows(values, cut):
    preparation = Preparation()
    parts = [part for part in (values[:cut], values[cut:]) if part]
    total = preparation.summarize({"x": parts[0]}, guard=False)
    for part in parts[1:]:
        total = total + preparation.summarize({"x": part}, guard=False)
    found = total.columns["x"]
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    deviation = sum((value - mean) ** 2 for value in exact)
    largest = max(map(abs, values))
    assert abs(found.mean - float(mean)) <= 1e-14 * largest
    assert abs(found.deviation - float(deviation)) <= 1e-13 * float(deviation) + (
        1e-30 * len(values) * largest**2
    )


def test_an_ordered_category_goes_over_the_wire():
    told = Preparation(levels={"g": ["hi", "lo"]}).summarize(
        {"g": ["lo", "hi", None]}, client="north", guard=False
    )
    wire = json.loads(json.dumps(told.to_dict()))
    assert wire["columns"]["g"]["order"] == ["hi", "lo", "(other)"]
    assert wire["columns"]["g"]["client"] == "north"
    assert TableSummary.from_dict(wire) == told
    wire["columns"]["g"]["order"] = ["hi"]
    with pytest.raises(ValueError, match=r"column 'g': order must be a list of all levels"):
        TableSummary.from_dict(wire)


def test_numbers_whose_squares_vanish_or_overflow():
    preparation = Preparation()
    with pytest.raises(ValueError, match=r"column 'x' must have numbers whose squares are not 0"):
        preparation.summarize({"x": [1e-200, 2e-200]}, guard=False)
    apart = [preparation.summarize({"x": [x]}, guard=False) for x in (1e200, -1e200)]
    with pytest.raises(ValueError, match="summaries must have numbers whose squares are finite"):
        preparation.learn(apart)


def test_what_is_no_summary_is_refused():
    with pytest.raises(TypeError, match="summaries must be those of clients, got dict"):
        Preparation().learn([{}])
    with pytest.raises(ValueError, match="summaries must have at least one row, got none"):
        Preparation().learn([Preparation().summarize({"x": []}, guard=False)])
    summary = Preparation().summarize({"x": [1, 2]}, guard=False)
    with pytest.raises(TypeError):
        summary + 1


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (3, "column 'x' must be a mapping, got int"),
        ({"kind": "numeric", "seen": 0, "missing": 2}, "must have values unless it is missing"),
        ({"kind": "missing", "seen": 0, "missing": 2, "client": 3}, "client must be a name, got 3"),
        ({"kind": "category", "seen": 2, "missing": 0}, "levels must be a mapping, got None"),
    ],
)
def test_a_column_that_is_none_is_refused(column, message):
    told = Preparation().summarize({"x": [1.0, 2.0]}, guard=False).to_dict()
    with pytest.raises((ValueError, TypeError), match=message):
        TableSummary.from_dict({**told, "columns": {"x": column}})
    with pytest.raises(TypeError, match="columns must be a mapping of names, got list"):
        TableSummary.from_dict({**told, "columns": [column]})


def test_a_client_of_one_row_is_a_client():
    rng = np.random.default_rng(6)
    table = as_table(
        {"x": rng.normal(size=9), "g": list("abcabcabc"), "b": [True, False, True] * 3}
    )
    one_each = learned(table, sizes=(1,) * 9)
    np.testing.assert_allclose(one_each.transform(table)[:, :-1].std(axis=0), 1)
    assert one_each.clients == tuple(f"client {i + 1}" for i in range(9))
