"""From clients' summaries to numbers: what is learned, and what becomes of a table."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from small_tables import AGES, SEXES, a_table, learned

from fedepm_fast.preparation import (
    Preparation,
    PreparationWarning,
    Prepared,
    as_table,
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
    with pytest.raises(ValueError, match=r"column 'x' must not be missing .* in 1 row"):
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


def test_a_column_that_is_no_category():
    with pytest.raises(ValueError, match=r"must have at most max_levels=3 levels .*drop="):
        Preparation(max_levels=3).summarize({"x": list("abcd")}, guard=False)
    for day in ("2020-01-31", "31.1.2020", "1/31/20", "2020-01-31 12:00"):
        with pytest.raises(ValueError, match=rf"got dates such as '{day}': leave it out by"):
            Preparation().summarize({"x": [day, day]}, guard=False)
    assert Preparation(kinds={"x": "category"}).summarize({"x": [day] * 2}, guard=False).rows == 2
    codes = [f"{day},5" for day in range(30)]
    with pytest.raises(ValueError, match=r"numbers of a file, read it by read_table.*decimal=','"):
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


def test_a_constant_column_says_where_it_is_missing():
    table = as_table({"x": [2.0, None, 2.0, 2.0], "b": [True, True, False, False]})
    prepared = learned(table, sizes=(2, 2), scaling="none")
    assert prepared.feature_names == ("x (missing)", "b", "(intercept)")
    np.testing.assert_array_equal(prepared.transform(table)[:, 0], [0, 1, 0, 0])
    assert prepared.report() == (
        "Learned from sums of 4 rows of 2 clients: 2 columns of numbers and the intercept.\n"
        "  x  numeric, constant but for where it is missing; mean 2, standard deviation\n"
        "     0; 1 missing: 2 stands for it, and a column says where\n"
        "  b  boolean, 1 for true; true in 50.0%; not scaled\n"
        "Left out:\n"
        "  x  constant, 2 in every row that has a value"
    )


def test_a_report_of_rare_and_missing_levels():
    table = as_table({"g": ["a"] * 5 + ["b"] * 4 + ["c", "d", None]})
    assert learned(table, sizes=(12,), min_count=2, missing="fill").report().splitlines()[1:] == [
        "  g  category, b (4), (other) (2) against a (5); (other) is c, d; 1 missing: a",
        "     stands for it",
    ]
    declared = learned(table, sizes=(12,), levels={"g": ["b", "a", "x"]})
    assert declared.dropped == (("g=x", "no client has a row of that level"),)
    assert "(other) (2), (missing) (1) against b (4); (other) is any" in declared.report()


def test_all_columns_that_cannot_be_used_are_told_at_once():
    table = {
        "name": [f"p{i}" for i in range(200)],
        "x": [1.0] * 200,
        "dose": ["n.d.", *(f"{i},5" for i in range(199))],
        "day": ["2020-01-01"] * 200,
    }
    with pytest.raises(ValueError) as error:
        Preparation().summarize(table, guard=False)
    head, name, dose, day = str(error.value).splitlines()
    assert head == "table has 3 columns that cannot be used:"
    assert name.endswith(
        "leave it out by Preparation(drop=['name']) (--drop name), or allow more by "
        "Preparation(max_levels=...)"
    )
    assert dose == (
        "(2) column 'dose' must be numbers or levels, got 199 different numbers and 'n.d.': say "
        "what stands for a missing cell of a file, by read_table(..., na=[...], decimal=',') "
        "(--na and --decimal ,), or say that they are levels, by "
        "Preparation(kinds={'dose': 'category'}) (--kind dose=category)"
    )
    assert day.startswith("(3) column 'day' must be numbers or levels, got dates")


def test_levels_that_differ_in_case_only_are_told():
    with pytest.warns(PreparationWarning, match=r"'sex' has levels that differ in case .*'M' and"):
        prepared = learned(as_table({"sex": ["m", "M", "f", "f"]}), sizes=(2, 2))
    assert prepared.feature_names == ("sex=M", "sex=m", "(intercept)")


def test_levels_that_differ_in_case_are_one_if_asked():
    choices = Preparation(ignore_case=True, reference={"sex": "M"})
    table = as_table({"sex": ["m", " M", "f", "F"], "ward": ["ICU", "a", "icu", "a"]})
    assert choices.reference == {"sex": "m"}
    prepared = choices.learn([choices.summarize(table.take(rows), guard=False) for rows in (
        [0, 1], [2, 3],
    )])  # fmt: skip
    assert prepared.feature_names == ("sex=f", "ward=icu", "(intercept)")
    again = Prepared.from_dict(json.loads(json.dumps(prepared.to_dict())))
    np.testing.assert_array_equal(
        again.transform({"sex": ["F", "M"], "ward": ["Icu", "A"]}), [[1, 1, 1], [-1, -1, 1]]
    )
    declared = Preparation(levels={"sex": ["F", "M"]}, ignore_case=True)
    summary = declared.summarize(table.without(["ward"]), guard=False)
    assert summary.columns["sex"].levels == {"f": 2, "m": 2}
    assert Preparation.from_dict(declared.to_dict()) == declared
