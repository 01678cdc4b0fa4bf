"""From clients' summaries to numbers: what is learned, and that it is the same everywhere."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast.preparation import (
    Preparation,
    PreparationWarning,
    Prepared,
    TableSummary,
    Thresholds,
    as_table,
)

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


def test_categories_are_compared_with_the_most_frequent_level():
    prepared = learned(as_table({"g": list("bbcca")}), sizes=(5,))
    assert prepared.feature_names == ("g=a", "g=c", "(intercept)")  # b before c, as frequent
    declared = learned(as_table({"g": list("bbcca")}), sizes=(5,), reference={"g": "a"})
    assert declared.feature_names == ("g=b", "g=c", "(intercept)")
    in_order = learned(as_table({"g": list("bbcca")}), sizes=(5,), levels={"g": ["c", "b", "a"]})
    assert in_order.feature_names == ("g=b", "g=a", "(intercept)")
    with pytest.raises(ValueError, match=r"reference\['g'\] must be a level .* got 'd', which has"):
        learned(as_table({"g": list("bbcca")}), sizes=(5,), reference={"g": "d"})


def test_an_ordered_category_keeps_its_order():
    pytest.importorskip("narwhals")
    pandas = pytest.importorskip("pandas")
    grade = pandas.Categorical(["II", "I", "II", "IV"], ["IV", "II", "I", "X"], ordered=True)
    prepared = learned(as_table(pandas.DataFrame({"grade": grade})), sizes=(2, 2))
    assert prepared.feature_names == ("grade=II", "grade=I", "(intercept)")
    other = as_table(pandas.DataFrame({"grade": grade.as_unordered()}))
    preparation = Preparation()
    summaries = {
        "north": preparation.summarize(pandas.DataFrame({"grade": grade}), guard=False),
        "south": preparation.summarize(other, guard=False),
    }
    with pytest.raises(ValueError, match=r"'grade' must have the same ordered levels .*'south'"):
        preparation.learn(summaries)


def test_rare_levels_are_taken_together():
    table = as_table({"g": ["a"] * 5 + ["b"] * 4 + ["c", "d"]})
    prepared = learned(table, sizes=(6, 5), min_count=3, scaling="none")
    assert prepared.feature_names == ("g=b", "g=(other)", "(intercept)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(prepared.transform(table)[:, 1], [0] * 9 + [1, 1])
    with pytest.warns(PreparationWarning, match=r"2 cells of levels .* 'x': '\(other\)' stands"):
        rows = prepared.transform({"g": ["x", "a", "x"]})
    np.testing.assert_array_equal(rows[:, 1], [1, 0, 1])
    assert prepared.columns[0].merged == {"c": 1, "d": 1}


def test_a_level_that_is_new_is_the_reference():
    prepared = learned(a_table(), scaling="none")
    with pytest.warns(PreparationWarning, match=r"'sex' has 1 cell of levels .*'x': 'f' stands"):
        rows = prepared.transform({"age": [40.0], "sex": ["x"], "smoker": [True]})
    np.testing.assert_array_equal(rows, [[40, 0, 0, 0, 1, 1]])


def test_declared_levels_are_all_that_is_told_apart():
    table = as_table({"g": ["a", "b", "c", "a", "d", "b"]})
    preparation = Preparation(levels={"g": ["b", "a"]}, scaling="none")
    summary = preparation.summarize(table, guard=False)
    assert summary.columns["g"].levels == {"(other)": 2, "a": 2, "b": 2}
    prepared = preparation.learn([summary])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = prepared.transform(table)
    np.testing.assert_array_equal(rows[:, :2], [[1, 0], [0, 0], [0, 1], [1, 0], [0, 1], [0, 0]])


def test_missing_cells():
    table = as_table({"x": [1.0, None, 3.0, 5.0], "g": ["a", "a", None, "b"]})
    filled = learned(table, sizes=(4,), missing="fill", scaling="none")
    assert filled.feature_names == ("x", "g=b", "(intercept)")
    np.testing.assert_array_equal(filled.transform(table)[:, 0], [1, 3, 3, 5])
    np.testing.assert_array_equal(filled.transform(table)[:, 1], [0, 0, 0, 1])
    with pytest.raises(ValueError, match=r"column 'x' must not be missing .* in 1 rows"):
        learned(table, sizes=(4,), missing="refuse")


def test_a_cell_that_is_missing_where_none_was_is_told():
    table = as_table({"x": [1.0, 2.0, 6.0], "g": ["a", "a", "b"]})
    prepared = learned(table, sizes=(3,), scaling="none")
    with pytest.warns(PreparationWarning) as told:
        rows = prepared.transform({"x": [None], "g": [None]})
    np.testing.assert_array_equal(rows, [[3, 0, 1]])
    assert [str(warning.message) for warning in told] == [
        "table: column 'x' was never missing in training, but is in 1 row: the mean 3 stands for "
        "it",
        "table: column 'g' was never missing in training, but is in 1 row: the level 'a' stands "
        "for it",
    ]
    assert {warning.filename for warning in told} == {__file__}


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


def test_constant_columns_are_left_out():
    table = {"one": [0.1] * 6, "none": [None] * 6, "g": ["a"] * 6, "x": [1.0, 2, 3, 4, 5, 6]}
    prepared = learned(as_table(table), sizes=(1, 2, 3))
    assert prepared.feature_names == ("x", "(intercept)")
    assert dict(prepared.dropped) == {
        "one": "constant, 0.1 in every row that has a value",
        "none": "no client has a value of it",
        "g": "constant, 'a' in every row",
    }
    assert prepared.table_columns == ("x",)
    np.testing.assert_array_equal(prepared.transform({"x": [3.5]}), [[0, 1]])


def test_without_an_intercept_columns_are_scaled_but_not_centred():
    table = as_table({"one": [2.0, 2.0, 2.0, 2.0], "x": [1.0, 2.0, None, 3.0]})
    prepared = learned(table, sizes=(2, 2), intercept=False)
    assert prepared.feature_names == ("one", "x", "x (missing)")
    rows = prepared.transform(table)
    np.testing.assert_allclose((rows**2).mean(axis=0), 1)
    np.testing.assert_allclose(rows[:, 1] / rows[0, 1], [1, 2, 2, 3])
    np.testing.assert_allclose(prepared.units, np.diag(1 / np.sqrt([4, 18 / 4, 1 / 4])))


def test_kinds_differ_between_clients():
    preparation = Preparation()
    numbers = preparation.summarize({"x": [1, 2]}, client="north", guard=False)
    words = preparation.summarize({"x": ["1", "2A"]}, client="south", guard=False)
    truths = preparation.summarize({"x": [True, False]}, client="east", guard=False)
    with pytest.raises(
        ValueError,
        match=r"column 'x' must be of one kind for all clients, got numeric for client 'north' and "
        r"category for client 'south': say which by kinds=",
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


def test_a_column_that_is_no_category():
    with pytest.raises(ValueError, match=r"must have at most max_levels=3 levels .* drop="):
        Preparation(max_levels=3).summarize({"x": list("abcd")}, guard=False)
    days = [f"2020-01-{day:02d}" for day in range(1, 31)]
    with pytest.raises(ValueError, match="its cells are dates"):
        Preparation(max_levels=20).summarize({"x": days}, guard=False)
    codes = [f"{day},5" for day in range(30)]
    with pytest.raises(ValueError, match="decimal=','"):
        Preparation(max_levels=20).summarize({"x": codes}, guard=False)
    ages = [*map(str, range(40)), "unknown"]
    with pytest.raises(ValueError, match=r"got 40 different numbers and 'unknown': say what"):
        Preparation().summarize({"x": ages}, guard=False)
    told = Preparation(kinds={"x": "category"}).summarize({"x": ages}, guard=False)
    assert len(told.columns["x"].levels) == 41


def test_scales_of_a_million_and_a_millionth():
    rng = np.random.default_rng(3)
    big = rng.normal(1e6, 1e-3, size=500)
    small = rng.normal(0, 1e-6, size=500)
    table = as_table({"big": big, "small": small})
    prepared = learned(table, sizes=(1, 99, 400))
    rows = prepared.transform(table)
    np.testing.assert_allclose(rows[:, 1], (small - small.mean()) / small.std(), rtol=1e-9)
    np.testing.assert_allclose(rows[:, 0].std(), 1, rtol=1e-8)
    np.testing.assert_allclose(prepared.columns[0].deviation, big.std(), rtol=1e-9)


def test_preparation_is_that_of_scikit_learn():
    impute = pytest.importorskip("sklearn.impute")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(4)
    rows = rng.normal(5, 2, size=(60, 3))
    rows[::7, 1] = np.nan
    prepared = learned(as_table(rows), sizes=(10, 50))
    expected = make_pipeline(impute.SimpleImputer(add_indicator=True), StandardScaler())
    order = [0, 1, 3, 2]  # the indicator stands beside its column
    np.testing.assert_allclose(
        prepared.transform(rows)[:, :-1], expected.fit_transform(rows)[:, order], atol=1e-13
    )


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


def test_a_name_that_two_features_would_have_is_refused():
    with pytest.raises(ValueError, match=r"columns must not be called .*'x \(missing\)': rename"):
        learned(as_table({"x": [1.0, None, 2.0], "x (missing)": [1.0, 2.0, 3.0]}), sizes=(3,))


def test_a_report_says_every_choice():
    prepared = learned(as_table({**dict(age=AGES, sex=SEXES), "one": [1] * 8}), drop=["id"])
    assert prepared.report() == (
        "Learned from sums of 8 rows of 2 clients: 4 columns of numbers and the intercept.\n"
        "  age  numeric; mean 45.2857, standard deviation 12.1856; 1 missing: 45.2857\n"
        "       stands for it, and a column says where\n"
        "  sex  category, m (3), (missing) (1) against f (4)\n"
        "Left out:\n"
        "  id   left out, as was chosen\n"
        "  one  constant, 1 in every row that has a value"
    )


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
@settings(deadline=None, max_examples=60)
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
@settings(deadline=None)
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
