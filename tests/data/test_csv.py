"""CSV: what is written is what is read, or an error says where it is not clear."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import Logistic
from fedepm_fast.data import loaders, sources


def load(folder, text, **options):
    (folder / "x.csv").write_text(text, encoding="utf-8", newline="")
    return loaders.load(folder / "x.csv", **options)


@pytest.mark.parametrize(
    ("cells", "names", "sizes"),
    [
        (["0045", "045", "45", "00501"], ("0045", "00501", "045", "45"), [1, 1, 1, 1]),
        (["1e2", "100", "100.0"], ("100", "100.0", "1e2"), [1, 1, 1]),
        (["9007199254740993", "9007199254740992", "1.5"],
         ("1.5", "9007199254740992", "9007199254740993"), [1, 1, 1]),
        (["True", "TRUE", "true"], ("TRUE", "True", "true"), [1, 1, 1]),
        (["NA", "DE", "nan", "None", "DE"], ("DE", "NA", "None", "nan"), [2, 1, 1, 1]),
        (["+1", "1", "-0", "0"], ("+1", "-0", "0", "1"), [1, 1, 1, 1]),
        (["18446744073709551617", "1"], ("1", "18446744073709551617"), [1, 1]),
        (['"0045"', "0045", ' "a, b"', '"a, b"'], ("0045", "a, b"), [2, 2]),
        (["10", "9", "-3"], ("-3", "9", "10"), [1, 1, 1]),  # as numbers are ordered
    ],
)  # fmt: skip
def test_clients_are_text_as_written(tmp_path, cells, names, sizes):
    lines = [f"{i},{cell},{i % 2}" for i, cell in enumerate(cells)]
    (tmp_path / "x.csv").write_text("age,site,ill\n" + "\n".join(lines))
    data = loaders.read_federated(tmp_path / "x.csv", client_column="site", scale=None)
    assert data.client_names == names and data.client_sizes.tolist() == sizes


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("age,dose,ill\n61,5,20,0\n47,3,25,1\n", {}, "line 2 has 4 fields where line 1 has 3: ','"),
        ("a,b,y\n1,2,0\n\n3,1\n", {}, "line 4 has 2 fields where line 1 has 3"),
        ("a,b,y\n1,2,0,\n3,4,1,\n", {}, "line 2 has 4 fields .* the line ends with a separator"),
        ("a,b,y,\n1,2,0,\n3,4,1,\n", {}, "must have a name for column 4, got none"),
        ("2,3,well,ill\n1,2,3,4,5,0\n6,7,8,9,0,1\n", {}, "line 2 has 6 fields where line 1 has 4"),
        ("a;b;y\n61,5;20;0\n47,3;25;1\n", {}, "not so: a \\('61,5' in line 2\\)"),
        ("61,5;20;0\n47,3;25;1\n", {}, "separated by ',' \\(2 fields\\) or ';' \\(3 fields\\)"),
        *[(text, {}, r"may be separated by '.' or by blanks \(\d fields\): blanks and decimal")
          for text in ("1,5 0\n2,5 1\n3,5 0\n", "1,5 yes\n2,5 no\n", "1|5 0\n2|5 1\n",
                       "1;5 0\n2;5 1\n",
                       "61 5,0\n62 5,1\n", "1,5  2,5\t0\n2,5 3,5 1\n", "-1,5e3 0\n2,5 1\n")],
        *[(text, {}, "several numbers in one cell, '[15].+', as all rows .*: '.+' separates")
          for text in ("a,y\n1,5 0\n2,5 1\n", "1\t5 0\n2\t5 1\n", "1, 5 0\n2, 5 1\n",
                       "a;y\n1;5,0\n2;5,1\n",
                       "a,y\n1,5|0\n2,5|1\n", "a,y\n1,5;0\n2,5;1\n", "a,y\n1,5\t0\n2,5\t1\n",
                       "a b y\n1.2 5 0\n2.2 5 1\n", "a,y\n1,1 000\n2,\n3,2 000\n")],
        ("7\t5 0\tu\n8\t5 1\tv\n", {"client_column": 1}, "several numbers in one cell, '5 0'"),
        ("a,b,a ,y\n1,2,3,0\n", {}, "different names, got 'a' for columns 1 and 3"),
        ("a,,b,y\n1,2,3,0\n", {}, "must have a name for column 2, got none"),
        (",a,y\n7,2,0\n7,3,1\n", {}, "must have a name for column 1, got none, and cells twice"),
        ("Unnamed: 0,a,y\n7,2,0\n7,3,1\n", {}, "name for column 1, got none, and cells twice"),
        (",Unnamed: 0,a,y\n0,0,5,0\n1,1,6,1\n", {}, "column 2, got 'Unnamed: 0', as pandas"),
        ("a,y,Unnamed: 2\n1,0,\n2,1,\n", {}, "must have a name for column 3, got 'Unnamed: 2'"),
        (",Unnamed: 0.1,a,y\n0,0,5,0\n1,1,6,1\n", {}, "name for column 2, got 'Unnamed: 0.1'"),
        (",a,y\n0.5,5,0\n1.5,6,1\n", {}, "name for column 1, got none, and cells that are not"),
        (",a,y\n1.0,5,0\n2.0,6,1\n", {}, "not whole numbers, .* name it if it is a feature"),
        (",a,y\n1e3,5,0\n2,6,1\n", {}, "cells that are not whole numbers"),
        (",a,y\n,5,0\n2,6,1\n", {}, "cells that are not whole numbers"),
        (",a,y\nTrue,5,0\nFalse,6,1\n", {}, "cells that are not whole numbers"),
        ("a,y\n1,0\n2,\n", {}, "line 3: label 'y' must not be missing, got ''"),
        ("a,y\n1,yes\n2,NA\n", {}, "line 3: label 'y' must not be missing, got 'NA'"),
        ("a,w,y\n1,u,0\n2, ,1\n", {"client_column": "w"}, "line 3: client_column 'w' must not be"),
        ("a,w,y\n1,u,0\n2,u ,1\n", {"client_column": "w"}, "'w' has names that differ in the"),
        ('a,y\n1,"0\n2,1\n', {}, "unexpected end of data, in line 3, of the quotes .* in line 2"),
        ('a,y\n1,0\n2, "1\n2,1\n', {}, "end of data, in line 4, of the quotes that open in line 3"),
        ('a,y\n1,"0\n2,1\n3,"1\n', {}, "',' expected .* in line 4, of the quotes .* in line 2"),
        ('a,w,y\r\n1,"u\r\nv","0\r\n2,1\r\n', {}, "in line 4, of the quotes that open in line 3"),
        ('a,y\n5" b,0\n1,0\n2,"1' + "\n2,1" * 40_000, {}, "limit .* quotes that open in line 4"),
        ('a,y\n"1"2,0\n2,1\n', {}, "not a readable csv file: ',' expected after '\"', in line 2"),
        ("a,y\n1\0,0\n", {}, "holds a NUL byte before line 2"),
        ("a,b\n1_0,1\n2,0\n", {}, "not so: a \\('1_0' in line 2\\)"),
        ("a,b\n\u0661,1\n2,0\n", {}, "not so: a \\('\u0661' in line 2\\)"),
        ("1,2\n3,4\n", {}, "line 1 may be names of columns or data, with '1', '2': say which by h"),
        ("5,4,u,v\n1,2,3,4\n", {}, "data, with '5', '4' and 'u', 'v' over numbers: say"),
        ("0,1,kind\n5,6,u\n7,8,v\n", {}, "may be names of columns or data, with '0', '1'"),
        ("2019,2020,kind\n5,6,u\n7,8,v\n", {}, "may be names of columns or data"),
        ("ok,no\n3,yes\n4,no\n", {}, "data, with 'no' over the same word and 'ok' over numbers"),
        ("5,2,u\n3,4,v\n", {"label": "ill"}, "got 'ill'; it has 3 columns without names"),
        ("ok,no\n3,yes\n4,no\n", {"label": "no", "client_column": "u"}, "'no' over the same word"),
        ("a,w,y\n1,u,0\n2,v,1\n", {}, "w .*; client_column names who .* by fit"),
        ("a,w,v,y\n1,u,s,0\n2,v,t,1\n", {"client_column": "w"}, "v .*; categories and gaps .* fit"),
        ("a;y\n1,5;0\n2,5;1\n", {"separator": ";"}, "a .*; decimal commas are read by fit"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_said_with_its_place(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=f"x.csv.*{message}"):
        load(tmp_path, text, **options)


def test_tables_whose_first_line_counts_are_refused():
    folder = Path(sklearn.__file__).parent / "datasets" / "data"
    for name, message in [
        ("breast_cancer.csv", "line 2 has 31 fields where line 1 has 4"),
        ("wine_data.csv", "line 2 has 14 fields where line 1 has 5"),
        ("iris.csv", "line 1 may be names of columns or data, with '150', '4' and 'setosa'"),
    ]:
        with pytest.raises(ValueError, match=message):
            loaders.load(folder / name)


@pytest.mark.parametrize(
    ("text", "options", "names", "rows", "labels"),
    [
        ("ill,rare\n3,rare\n4,no\n", {"label": "rare"}, ("ill",), [[3], [4]], ["rare", "no"]),
        ("ok,no\n3,yes\n4,no\n", {"label": "no"}, ("ok",), [[3], [4]], ["yes", "no"]),
        ("5.1,3.5,u\n4.9,3,u\n7,2,v\n", {}, None, [[5.1, 3.5], [4.9, 3], [7, 2]], ["u", "u", "v"]),
        ("M,17.9\nB,13.5\nM,20\n", {"label": 0}, None, [[17.9], [13.5], [20]], ["M", "B", "M"]),
        ("61,20,rome\n47,25,oslo\n", {}, None, [[61, 20], [47, 25]], ["rome", "oslo"]),
        ("1,,0\n2,3,1\n", {}, None, [[1, np.nan], [2, 3]], [0, 1]),
        ("1,2\n3,4\n", {"header": False}, None, [[1], [3]], [2, 4]),
        ("1,2\n3,4\n", {"header": True}, ("1",), [[3]], [4]),
        ("5,4,u,v\n1,2,3,4\n", {"header": True}, ("5", "4", "u"), [[1, 2, 3]], [4]),
        ("0,1,kind\n5,6,3\n7,8,4\n", {}, ("0", "1"), [[5, 6], [7, 8]], [3, 4]),
        ("a,2019,2020,y\n5,6,3,1\n", {}, ("a", "2019", "2020"), [[5, 6, 3]], [1]),
        ("2019,kind\n5,u\n7,v\n", {"label": "kind"}, ("2019",), [[5], [7]], ["u", "v"]),
        ("a;b;y\n1;2;no\n3;4;yes\n", {}, ("a", "b"), [[1, 2], [3, 4]], ["no", "yes"]),
        ("a\tb\ty\n1\t2\tx, z\n", {}, ("a", "b"), [[1, 2]], ["x, z"]),
        ("a|b,y\n1,2\n", {}, ("a|b",), [[1]], [2]),
        ("6,5;2\n4,3;1\n", {"separator": ",", "header": False}, None, [[6], [4]], ["5;2", "3;1"]),
        ("1,5 0\n2,5 1\n", {"separator": ","}, None, [[1], [2]], ["5 0", "5 1"]),
        ("1,2.5,5 mg daily\n4,3,50 mg\n", {"header": False}, None, [[1, 2.5], [4, 3]],
         ["5 mg daily", "50 mg"]),
        (",a,y\n5,1,0\n3,2,1\n", {}, ("a",), [[1], [2]], [0, 1]),
        (",a,y\n-5,1,0\n+3,2,1\n", {}, ("a",), [[1], [2]], [0, 1]),
        (",a,y\n2024-01-01,1,0\n5,2,1\n", {}, ("a",), [[1], [2]], [0, 1]),
        ("a,y\n1,9\n2,18446744073709551617\n", {}, ("a",), [[1], [2]], [9, 18446744073709551617]),
        ("Unnamed: 0,a,y\n0,1,0\n1,2,1\n", {}, ("a",), [[1], [2]], [0, 1]),
        (",a,y\n5,1,0\n3,2,1\n", {"label": 0}, ("a", "y"), [[1, 0], [2, 1]], [5, 3]),
        ("a,b,y\nTrue,NA,1\nFalse,null,0\n", {}, ("a", "b"), [[1, np.nan], [0, np.nan]], [1, 0]),
        ("a, b ,y\r\n 1 ,2\t, u \r\n3,4,v", {}, ("a", "b"), [[1, 2], [3, 4]], ["u", "v"]),
        ('"a","b c",y\n"1",2,"u\nv"\n', {}, ("a", "b c"), [[1, 2]], ["u\nv"]),
        ("a,y\n1,none\n2,mild\n", {}, ("a",), [[1], [2]], ["none", "mild"]),
        ("a,y\n1,9007199254740993\n2,9007199254740992\n", {}, ("a",), [[1], [2]],
         [9007199254740993, 9007199254740992]),
    ],
)  # fmt: skip
def test_what_is_clear_is_read(tmp_path, text, options, names, rows, labels):
    got = load(tmp_path, text, **options)
    assert got.feature_names == names and got.labels.tolist() == labels
    np.testing.assert_array_equal(got.features, rows)


def test_the_summary_says_what_was_made_of_the_file(tmp_path):
    (tmp_path / "x.csv").write_text(",age,site,ill\n3,5,u,no\n4,6,v,yes\n9,7,v,no\n")
    data = loaders.read_federated(tmp_path / "x.csv", client_column="site")
    assert data.summary() == (
        "x.csv: 3 rows, 1 feature, 2 clients of 1 to 2 rows; label column ill (no -> 0, yes -> 1)"
        "; client column site; first column, without a name, left out as an index; columns scaled "
        "to unit norm"
    )
    (tmp_path / "y.csv").write_text("5,6.5\n4,7\n")
    data = loaders.read_federated(tmp_path / "y.csv", clients=1, task="regression", scale=None)
    assert data.summary() == (
        "y.csv: 2 rows, 1 feature, 1 client; label column 1; columns not scaled"
    )
    assert data.description["label_column"] == 1


def test_names_of_clients_may_be_numbers_with_blanks(tmp_path):
    got = load(tmp_path, "age,site,ill\n50,123 45,0\n60,123 46,1\n", client_column="site")
    assert got.clients.tolist() == ["123 45", "123 46"]


def test_pandas_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    got = load(tmp_path, "a,w,y\n0.1,01,no\n,1,yes\n", client_column="w")
    np.testing.assert_array_equal(got.features, [[0.1], [np.nan]])
    assert (got.labels.tolist(), got.clients.tolist()) == (["no", "yes"], ["01", "1"])


@pytest.mark.parametrize("index", [True, False])
def test_what_pandas_writes(tmp_path, index):
    frame = pd.get_dummies(
        pd.DataFrame({"age": [50.25, 61, 47], "work": ["gov", "own", "gov"], "ill": [0, 1, 0]})
    )[["age", "work_gov", "work_own", "ill"]]
    frame.to_csv(tmp_path / "x.csv", index=index)
    got = loaders.load(tmp_path / "x.csv")
    assert got.feature_names == ("age", "work_gov", "work_own")
    np.testing.assert_array_equal(got.features, frame.iloc[:, :3].astype(float))
    assert got.note.get("unnamed_index", False) is index


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6)
IDS = st.one_of(WORDS, st.sampled_from(["0045", "045", "45", "1e2", "100", "NA", "nan", "True"]))


@st.composite
def tables(draw):
    n, d = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    names = [f"c{j}" for j in range(n)]
    rows = [
        (
            [draw(NUMBERS) for _ in range(n)],
            draw(IDS),
            draw(st.sampled_from(["no", "y,e;s", "x|\t"])),
        )
        for _ in range(d)
    ]
    dialect = {
        "delimiter": draw(st.sampled_from(",;\t|")),
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        "lineterminator": draw(st.sampled_from(["\n", "\r\n"])),
    }
    return names, rows, dialect


def written(names, rows, dialect):
    text = io.StringIO()
    writer = csv.writer(text, **dialect)
    writer.writerow([*names, "site", "label"])
    writer.writerows([*map(repr, numbers), who, label] for numbers, who, label in rows)
    return text.getvalue()


@given(tables(), st.booleans())
@settings(max_examples=150)
def test_any_dialect_gives_back_what_was_written(tmp_path_factory, table, told):
    names, rows, dialect = table
    path = tmp_path_factory.getbasetemp() / "dialect.csv"
    path.write_text(written(*table), encoding="utf-8", newline="")
    options = {"separator": dialect["delimiter"]} if told else {}
    try:
        got = loaders.load(path, label="label", client_column="site", **options)
    except ValueError as error:
        assert not told and "may be separated by" in str(error)
        return
    assert got.features.tolist() == [numbers for numbers, _, _ in rows]
    assert list(map(str, got.clients.tolist())) == [who for _, who, _ in rows]
    assert got.labels.tolist() == [label.strip() for _, _, label in rows]
    assert got.feature_names == tuple(names)


@given(tables(), st.data())
@settings(max_examples=150)
def test_a_cell_too_many_or_too_few_never_passes(tmp_path_factory, table, data):
    names, rows, dialect = table
    separator = dialect["delimiter"]
    lines = written(names, [(r, f"s{i}", "no") for i, (r, _, _) in enumerate(rows)], dialect)
    lines = lines.splitlines()
    i = data.draw(st.integers(0, len(lines) - 1))
    cells = lines[i].split(separator)
    j = data.draw(st.integers(0, len(cells) - 1))
    what = data.draw(st.sampled_from(["drop", "double", "empty", "end"]))
    if what == "end":
        cells.append("")
    else:
        cells[j : j + 1] = {"drop": [], "double": [cells[j]] * 2, "empty": ["", cells[j]]}[what]
    lines[i] = separator.join(cells)
    path = tmp_path_factory.getbasetemp() / "ragged.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"ragged\.csv"):
        loaders.load(path, label="label", client_column="site", separator=separator)


def test_specifications_have_the_same_options(tmp_path):
    (tmp_path / "rows").write_text("5\t01\t0\n7\t1\t1\n9\t01\t1\n")
    options = {"format": "csv", "header": False, "separator": "tab", "client_column": 1, "label": 2}
    source = sources.from_options({"source": tmp_path / "rows", **options}, loss=Logistic())
    data = source.split(0)
    assert data.client_names == ("01", "1") and data.client_sizes.tolist() == [2, 1]
    assert "label column 2; client column 1; columns scaled to unit norm" in data.summary()
    with pytest.raises(ValueError, match="header is for a file, not for adult"):
        sources.from_options({"source": "adult", "header": True}, loss=Logistic())
