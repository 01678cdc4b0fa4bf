"""Tables of every kind, and what is wrong with them."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pytest

from fedepm_fast.preparation import Preparation, Table, as_table, read_table

ROWS = {"age": [30.5, None, 41.0], "sex": ["f", None, "m"], "smoker": [True, False, None]}


def frame_library(name):
    """A library whose frames narwhals reads, or the test is left out."""
    pytest.importorskip("narwhals")
    return pytest.importorskip(name)


def frames():
    pandas = frame_library("pandas")
    yield "pandas", pandas.DataFrame(ROWS)
    yield (
        "nullable",
        pandas.DataFrame(
            {
                "age": pandas.array(ROWS["age"], dtype="Float64"),
                "sex": pandas.array(ROWS["sex"], dtype="string"),
                "smoker": pandas.array(ROWS["smoker"], dtype="boolean"),
            }
        ),
    )
    yield (
        "categorical",
        pandas.DataFrame(
            {
                "age": pandas.array(ROWS["age"], dtype="float64[pyarrow]"),
                "sex": pandas.Categorical(ROWS["sex"], categories=["x", "m", "f"]),
                "smoker": pandas.array(ROWS["smoker"], dtype="bool[pyarrow]"),
            }
        ),
    )
    import pyarrow

    yield "arrow", pyarrow.table(ROWS)
    encoded = pyarrow.table(ROWS)
    yield (
        "arrow dictionary",
        encoded.set_column(1, "sex", encoded.column("sex").dictionary_encode()),
    )
    polars = frame_library("polars")
    yield "polars", polars.DataFrame(ROWS)
    yield (
        "polars categorical",
        polars.DataFrame(ROWS).with_columns(polars.col("sex").cast(polars.Categorical)),
    )


def levels(column):
    codes, names = column.levels
    return [None if code < 0 else names[code] for code in codes]


def check(table):
    assert table.names == ("age", "sex", "smoker")
    assert [table.column(n).kind for n in table.names] == ["numeric", "category", "boolean"]
    np.testing.assert_array_equal(table.column("age").numbers, [30.5, np.nan, 41.0])
    assert levels(table.column("sex")) == ["f", None, "m"]
    np.testing.assert_array_equal(table.column("smoker").numbers, [1, 0, np.nan])
    assert levels(table.column("smoker")) == ["true", "false", None]
    assert table.column("age").missing().tolist() == [False, True, False]
    assert table.column("sex").missing().tolist() == [False, True, False]


def test_frames_of_all_libraries_are_one_table():
    found = dict(frames())
    for frame in found.values():
        check(as_table(frame))


def test_a_dict_of_columns_and_arrays():
    check(as_table(ROWS))
    table = as_table(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert table.names == ("x1", "x2")
    assert as_table(np.array([[1, 2]]), names=["a", "b"]).names == ("a", "b")
    rows = np.array([(30.5, "f"), (41.0, "m")], dtype=[("age", float), ("sex", "U1")])
    assert as_table(rows).column("sex").kind == "category"
    mixed = np.array([[1.5, "f"], [None, "m"]], dtype=object)
    assert [as_table(mixed).column(n).kind for n in ("x1", "x2")] == ["numeric", "category"]


def test_integers_of_a_nullable_column_are_levels_without_decimals():
    pandas = frame_library("pandas")
    frame = pandas.DataFrame(
        {
            "nullable": pandas.array([1, None, 2], dtype="Int64"),
            "floats": [1.0, np.nan, 2.0],
            "categories": pandas.Categorical([1, None, 2]),
            "objects": pandas.Series([1, None, "2 "], dtype=object),
        }
    )
    table = as_table(frame)
    for name in table.names:
        assert levels(table.column(name)) == ["1", None, "2"]
    assert table.column("nullable").kind == "numeric"
    assert table.column("categories").kind == "category"
    np.testing.assert_array_equal(table.column("categories").numbers, [1, np.nan, 2])


def test_levels_are_the_same_text_in_every_spelling_of_unicode():
    table = as_table({"city": ["Malmö", "Malmo\u0308", " Malmö "], "o\u0308l": [1, 2, 3]})
    assert table.column("city").levels.names == ("Malmö",)
    assert table.column("öl").numbers.tolist() == [1, 2, 3]


def test_clients_are_text_and_in_order():
    table = as_table({"x": np.arange(5.0), "who": ["0045", "45", "0045", "9", "9"]})
    parts = table.split("who")
    assert list(parts) == ["0045", "45", "9"]
    assert parts["0045"].column("x").numbers.tolist() == [0, 2]
    assert parts["9"].names == ("x",)
    whole = as_table({"x": [1.0, 2.0, 3.0], "who": [10, 9, 2]})
    assert list(whole.split("who")) == ["2", "9", "10"]


def test_labels_are_numbers_booleans_or_text():
    table = as_table({"a": [1, 2], "b": ["true", "False"], "c": ["ill", "well"], "d": [None, 1]})
    assert table.values("a").tolist() == [1.0, 2.0]
    assert table.values("b").dtype == bool
    assert table.values("c").tolist() == ["ill", "well"]
    with pytest.raises(ValueError, match=r"label 'd' must not be missing, but it is in row 0"):
        table.values("d", "label")
    with pytest.raises(ValueError, match=r"label must be a column of the table, got 'e'"):
        table.values("e", "label")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"a": [1], "b": [1, 2]}, ValueError, "columns of one length, got 1 cells in 'a' and 2"),
        ({"a": [1], " a": [2]}, ValueError, "different names, got 'a' twice"),
        ({"(intercept)": [1]}, ValueError, "must not have a column of the name '\\(intercept\\)'"),
        ({"a": "text"}, TypeError, "column 'a' must be a list or an array"),
        ({"a": np.zeros((2, 2))}, ValueError, "column 'a' must have one dimension"),
        (np.zeros(3), ValueError, "table must have 2 dimensions"),
        ([[1, 2]], TypeError, "must be a data frame, a dict of columns"),
        (np.ma.masked_array([[1.0]], [[True]]), ValueError, "mask"),
    ],
)
def test_what_is_no_table_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        as_table(given)


def test_columns_of_one_name_are_refused():
    pandas = frame_library("pandas")
    with pytest.raises(ValueError, match="different names, got 'a' twice"):
        as_table(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    polars = frame_library("polars")
    with pytest.raises(TypeError, match=r"in memory, got a LazyFrame: collect\(\) it first"):
        as_table(polars.LazyFrame({"a": [1]}))


def test_dates_and_other_objects_are_refused_where_they_are_used():
    days = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
    tables = [
        {"x": [1.0, 2.0], "day": np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")},
        {"x": [1.0, 2.0], "day": days},
    ]
    pandas = frame_library("pandas")
    tables.append(pandas.DataFrame({"x": [1.0, 2.0], "day": pandas.to_datetime(days)}))
    polars = frame_library("polars")
    tables.append(polars.DataFrame({"x": [1.0, 2.0], "day": days}))
    for table in tables:
        with pytest.raises(TypeError, match=r"column 'day' must (be|hold) numbers, text or bool"):
            Preparation().summarize(table, guard=False)
        found = Preparation(drop=["day"]).summarize(table, guard=False)
        assert list(found.columns) == ["x"]
    with pytest.raises(TypeError, match=r"column 'x' must hold .* of type list"):
        Preparation().summarize({"x": [[1], [2]]}, guard=False)


def test_cells_that_are_no_numbers_are_named():
    with pytest.raises(ValueError, match=r"column 'x' must be finite, got inf in row 1"):
        Preparation().summarize({"x": [1.0, np.inf]}, guard=False)
    with pytest.raises(
        ValueError, match=r"column 'x' must be numbers, or true or false, got 'low'"
    ):
        Preparation(kinds={"x": "numeric"}).summarize({"x": ["1.5", "low"]}, guard=False)
    with pytest.raises(ValueError, match=r"column 'x' must be true or false, or 1 or 0, got 2"):
        Preparation(kinds={"x": "boolean"}).summarize({"x": [0, 1, 2]}, guard=False)
    with pytest.raises(ValueError, match=r"column 'x' must have numbers whose squares are finite"):
        Preparation().summarize({"x": [1e200, -1e200]}, guard=False)


def test_a_csv_file_of_any_shape(tmp_path):
    file = tmp_path / "export.csv"
    file.write_text("id;Größe;sex;smoker\n0045;1,5;f;TRUE\n045;-99;k.A.;false\n", "latin-1")
    table = read_table(file, encoding="latin-1", decimal=",", separator=";", na=["-99", "k.A."])
    assert table.names == ("id", "Größe", "sex", "smoker")
    np.testing.assert_array_equal(table.column("Größe").numbers, [1.5, np.nan])
    assert levels(table.column("sex")) == ["f", None]
    assert table.column("smoker").kind == "boolean"
    assert list(table.split("id")) == ["0045", "045"]
    with pytest.raises(ValueError, match=r"not text in UTF-8: .*give its encoding= \(--encoding\)"):
        read_table(file)


@pytest.mark.parametrize("law", ["utf-16-le", "utf-16-be"])
def test_a_csv_file_in_utf_16_is_told_from_others(tmp_path, law):
    file = tmp_path / "export.csv"
    file.write_text("\ufeffage,ward\n50,north\n60,süd\n", law)
    told = r"not text in UTF-8: .*give its encoding= \(--encoding\), utf-16$"
    with pytest.raises(ValueError, match=told):
        read_table(file)
    table = read_table(file, encoding="utf-16")
    assert table.names == ("age", "ward") and levels(table.column("ward")) == ["north", "süd"]


def test_a_csv_file_without_a_header(tmp_path):
    file = tmp_path / "plain.csv"
    file.write_text("1|2.5|f\n2||m\n")
    table = read_table(file, header=False, separator="|")
    assert table.names == ("x1", "x2", "x3")
    np.testing.assert_array_equal(table.column("x2").numbers, [2.5, np.nan])
    asked = {"header": False, "separator": "|"}
    assert table.note == {"format": "csv", **asked, "read": asked}


def test_errors_of_a_file_name_its_line(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,y\n1,2\n\ninf,3\n")
    with pytest.raises(ValueError, match=r"column 'x' must be finite, got inf in line 4"):
        Preparation().summarize(read_table(file), guard=False)
    file.write_text("x,x\n1,2\n")
    with pytest.raises(ValueError, match=r"t\.csv must have columns of different names, got 'x'"):
        read_table(file)
    with pytest.raises(FileNotFoundError, match="no data file at"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        read_table(file, encoding="klingon")
    with pytest.raises(TypeError, match="na must be a sequence of texts, got 'NA'"):
        read_table(file, na="NA")


def test_a_pandas_index_of_a_file_is_left_out(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(",x,sex\n0,1.5,f\n1,2.5,m\n")
    assert read_table(file).names == ("x", "sex")


def test_parquet_and_numpy_files(tmp_path):
    pandas = frame_library("pandas")
    pandas.DataFrame(ROWS).to_parquet(tmp_path / "t.parquet")
    check(read_table(tmp_path / "t.parquet"))
    np.save(tmp_path / "t.npy", np.eye(2))
    table = as_table(tmp_path / "t.npy")
    assert table.column("x2").numbers.tolist() == [0, 1]
    with pytest.raises(ValueError, match="separator is for csv files"):
        read_table(tmp_path / "t.npy", separator=",")


def test_a_file_and_its_frame_are_the_same_summary(tmp_path):
    pandas = frame_library("pandas")
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {
            "x": rng.normal(1e6, 3.0, size=50),
            "n": rng.integers(0, 9, size=50),
            "g": rng.choice(["a", "b", "ü"], size=50),
        }
    )
    frame.loc[3, "x"] = np.nan
    frame.loc[4, "g"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = Preparation().summarize(tmp_path / "t.csv", guard=False)
    assert told == Preparation().summarize(frame, guard=False)


def test_a_table_says_what_it_is():
    table = as_table({"a": [1.0], "b": [2.0]})
    assert isinstance(table, Table)
    assert repr(table) == "Table of 1 row: a, b"
    assert "a" in table and "c" not in table and len(table) == 1
    assert as_table(table) is table
    assert table.without(["a"]).names == ("b",)
    with pytest.raises(ValueError, match=r"drop must be a column of the table, got 'c'"):
        table.without(["c"])


def test_columns_of_rare_types():
    pandas = frame_library("pandas")
    frame = pandas.DataFrame(
        {
            "band": pandas.cut([1, 2, 3], [0, 2, 4]),
            "sparse": pandas.arrays.SparseArray([0, 0, 1.5]),
        }
    )
    table = as_table(frame)
    assert levels(table.column("band")) == ["(0, 2]", "(0, 2]", "(2, 4]"]
    assert table.column("sparse").numbers.tolist() == [0, 0, 1.5]
    other = pandas.DataFrame({"z": [1j, 2j], "year": pandas.period_range("2020", "2021", freq="Y")})
    with pytest.raises(
        TypeError,
        match=r"column 'z' must .* got complex128: leave it out by Preparation\(drop=\['z'\]\)",
    ):
        as_table(other).column("z").kind  # noqa: B018
    with pytest.raises(TypeError, match=r"got dates: .*, or give days since a date"):
        as_table(other).column("year").kind  # noqa: B018


def test_a_series_keeps_its_order_and_its_missing_cells():
    pandas = frame_library("pandas")
    polars = frame_library("polars")
    grade = pandas.Categorical(["b", "a", None], ["b", "a"], ordered=True)
    table = as_table(
        {
            "n": pandas.Series([1, None, 2], dtype="Int64"),
            "g": pandas.Series(grade),
            "e": polars.Series(["b", "a", None], dtype=polars.Enum(["b", "a"])),
        }
    )
    np.testing.assert_array_equal(table.column("n").numbers, [1, np.nan, 2])
    for name in ("g", "e"):
        assert table.column(name).ordered
        assert table.column(name).levels.names == ("b", "a")


def test_names_of_arrays():
    rows = np.zeros((2, 2))
    with pytest.raises(ValueError, match=r"names must be one for each of 2 columns, got 1"):
        as_table(rows, names=["a"])
    with pytest.raises(TypeError, match=r"names must be a sequence of names, got 'ab'"):
        as_table(rows, names="ab")
    with pytest.raises(ValueError, match=r"names are for arrays, got them for dict"):
        as_table({"x": [1]}, names=["a"])
    with pytest.raises(ValueError, match="names are those of the structured array"):
        as_table(np.zeros(2, dtype=[("a", float)]), names=["b"])


def test_a_client_that_has_no_name_is_refused(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,who\n1,a\n2,\n")
    with pytest.raises(ValueError, match=r"client 'who' must not be missing, .* in line 3"):
        read_table(file).split("who")


def test_rows_of_rows():
    table = as_table({"x": np.arange(6.0), "g": list("abcabc")}).take([5, 3, 1]).take([0, 2])
    assert table.column("x").numbers.tolist() == [5, 1]
    assert levels(table.column("g")) == ["c", "b"]
    assert table.take([False, True]).column("x").numbers.tolist() == [1]


def test_integers_too_long_for_an_array_and_numbers_as_levels():
    table = as_table({"x": [10**30, 1], "y": [0.5, 2.0]})
    assert table.column("x").numbers.tolist() == [1e30, 1.0]
    assert table.column("y").levels.names == ("0.5", "2")


def test_columns_without_a_value():
    polars = frame_library("polars")
    frame = polars.DataFrame(
        {"n": [None, None], "f": polars.Series([1, None], dtype=polars.Float32), "b": [True, False]}
    )
    table = as_table(frame)
    assert [table.column(n).kind for n in table.names] == ["missing", "numeric", "boolean"]
    assert table.column("f").numbers.dtype == np.float64


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty\.csv is empty"):
        read_table(tmp_path / "empty.csv")
    (tmp_path / "t.svm").write_text("1 1:2\n")
    with pytest.raises(ValueError, match=r"must be a table with columns .*, got svmlight"):
        read_table(tmp_path / "t.svm")
    (tmp_path / "t.npy.gz").write_bytes(b"1")
    with pytest.raises(ValueError, match="must not be compressed, npy files are so themselves"):
        read_table(tmp_path / "t.npy.gz")
    (tmp_path / "t.csv").write_text("x,y\n1\n")
    with pytest.raises(ValueError, match="line 2 has 1 fields where line 1 has 2"):
        read_table(tmp_path / "t.csv")


def test_a_column_of_a_file_without_a_value(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,y,z\n,1,unknown\nNA,2,unknown\n")
    assert read_table(file).column("x").kind == "missing"
    assert read_table(file, na=["unknown"]).column("z").kind == "missing"


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([f"{k}%" for k in range(20)], "20 different numbers with '%', such as '0%'"),
        ([f"{k},5 kg" for k in range(20)], "20 different numbers with 'kg'"),
        ([f"{k + 1}.{k + 200},50" for k in range(20)], "with thousands separators"),
        ([f"1,{k + 200}.5" for k in range(20)], "with thousands separators"),
    ],
)
def test_numbers_with_a_unit_are_no_levels_unless_that_is_said(cells, what):
    with pytest.raises(ValueError, match=re.escape(what)) as caught:
        Preparation().summarize({"x": cells}, guard=False)
    assert "write plain numbers" in str(caught.value)
    said = Preparation(kinds={"x": "category"}).summarize({"x": cells}, guard=False)
    assert len(said.columns["x"].levels) == 20
    for levels in (
        ("1. a", "2. b"),
        [f"ward {k}" for k in range(20)],
        [f"{k}a{k}" for k in range(20)],
    ):
        assert Preparation().summarize({"x": list(levels)}, guard=False).columns["x"].levels


def test_a_decimal_comma_among_numbers_says_how_it_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("age;sex\n79,5;f\n61;m\n")
    learned = Preparation().summarize({"age": [79.5, 61], "sex": ["f", "m"]}, guard=False)
    prepared = Preparation().learn([learned])
    with pytest.raises(ValueError, match=r"got '79,5' in line 2: decimal commas are"):
        prepared.transform(tmp_path / "t.csv")
    told = prepared.transform(read_table(tmp_path / "t.csv", decimal=","))
    assert np.array_equal(told, prepared.transform({"age": [79.5, 61], "sex": ["f", "m"]}))
    with pytest.raises(ValueError, match=r"got 'n, d' in row 0$"):
        prepared.transform({"age": ["n, d", "61"], "sex": ["f", "m"]})


@pytest.mark.parametrize(
    ("cells", "what", "instead"),
    [
        (np.array(["2024-01-01"], "datetime64[s]"), "dates", "days since a date"),
        (np.array([3], "timedelta64[D]"), "lengths of time", "days or hours"),
    ],
)
def test_times_are_called_by_their_names(cells, what, instead):
    pandas = frame_library("pandas")
    for table in ({"when": cells}, pandas.DataFrame({"when": cells})):
        with pytest.raises(TypeError, match=rf"got {what}: leave .*, or give {instead},"):
            as_table(table).column("when").kind  # noqa: B018
