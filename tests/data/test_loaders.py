"""Files of every format, whole and broken."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import random
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedepm_fast import FedEPM, fit, run
from fedepm_fast.data import _svmlight, loaders, sources
from fedepm_fast.data.partition import EqualParts
from fedepm_fast.preparation import Preparation, read_table

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(30, 3)), 3)
Y = np.arange(30) % 2
WHO = np.repeat([2, 0, 1], 10)


def frame():
    return pd.DataFrame({"who": WHO, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})


def svm_text(features, labels):
    lines = []
    for row, label in zip(features, labels, strict=True):
        cells = [f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v]
        lines.append(f"{2 * label - 1:+d} {' '.join(cells)}")
    return "# a comment\n" + "\n".join(lines) + "  # another\n\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "t.svm").write_text(svm_text(X, Y))
    (tmp_path / "t.svm.gz").write_bytes(gzip.compress(svm_text(X, Y).encode()))
    frame().to_csv(tmp_path / "t.csv", index=False)
    frame().to_csv(tmp_path / "t.csv.gz", index=False)
    frame().to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", np.column_stack([WHO, X, Y]))
    np.savez(tmp_path / "t.npz", X=X, y=Y, clients=WHO)
    return tmp_path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npy", "t.npz"])
def test_tables(files, name):
    column = {} if name == "t.npz" else {"client_column": 0 if name == "t.npy" else "who"}
    got = loaders.load(files / name, **column)
    np.testing.assert_array_equal(got.features, X)
    np.testing.assert_array_equal(got.labels, Y)
    np.testing.assert_array_equal(got.clients, WHO)
    assert got.feature_names == (None if name.startswith("t.np") else ("a", "b", "c"))
    data = loaders.read_federated(files / name, scale=None, **column)
    assert data.client_names == ("0", "1", "2")
    np.testing.assert_array_equal(data.client(2)[0], X[:10])


@pytest.mark.parametrize("name", ["t.svm", "t.svm.gz"])
def test_svmlight(files, name):
    got = loaders.load(files / name)
    np.testing.assert_array_equal(got.features, X)
    np.testing.assert_array_equal(got.labels, 2 * Y - 1)
    data = loaders.read_federated(files / name, partition=EqualParts(3), seed=4)
    assert data.description["label_mapping"] == {"-1.0": 0, "1.0": 1}
    np.testing.assert_allclose(np.linalg.norm(data.features, axis=0), 1)
    assert run(FedEPM(), data, rounds=2).rounds == 2


def test_a_mostly_empty_svmlight_file_is_csr(tmp_path):
    matrix = np.zeros((20, 50))
    matrix[np.arange(20), np.arange(20) * 2] = np.arange(20) + 1.5
    (tmp_path / "t.svm").write_text(svm_text(matrix, np.arange(20) % 2))
    got = loaders.load(tmp_path / "t.svm", n_features=50)
    assert sparse.issparse(got.features)
    np.testing.assert_array_equal(got.features.toarray(), matrix)


def test_columns_by_name_and_index(files):
    got = loaders.load(files / "t.csv", label="a", client_column="y")
    np.testing.assert_array_equal(got.labels, X[:, 0])
    assert got.feature_names == ("who", "b", "c")
    got = loaders.load(files / "t.csv", label="1")
    np.testing.assert_array_equal(got.labels, X[:, 0])


def test_clients_default_to_random_cuts(files):
    assert loaders.read_federated(files / "t.csv", clients=4).n_clients == 4


@pytest.mark.parametrize("name", ["t.parquet", "t.npy", "t.npz", "t.csv.gz", "t.svm.gz"])
def test_truncated_files_are_named(files, name):
    content = (files / name).read_bytes()
    (files / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        loaders.load(files / name)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("x.csv", "", {}, "x.csv is empty"),
        ("x.csv", "a,b\n", {}, "x.csv has no rows"),
        ("x.csv", "\n \n", {}, "x.csv has no rows"),
        ("x.csv", "a,b\nred,1\nblue,0\n", {}, "numbers in its feature columns, but not so: a"),
        ("x.csv", "a\n1\n2\n", {}, "at least one feature column"),
        ("x.csv", "a,b\n1,2\n", {"label": "z"}, "label must be a column of .* it has a, b"),
        (
            "x.csv",
            "a,b\n1,2\n",
            {"client_column": 7},
            "client_column must be an integer from -2 to 1, got 7",
        ),
        ("x.csv", "a,b\n1,2\n", {"label": "a", "client_column": "a"}, "must be different columns"),
        ("x.svm", "# nothing\n", {}, "x.svm has no rows"),
        ("x.svm", "1 1:2\n1 two:3\n", {}, "x.svm, line 2: index 'two' is not a whole number"),
        ("x.svm", "1 1:2\n1 2\n", {}, "line 2: '2' is not index:value"),
        ("x.svm", "1 0:2\n", {}, "line 1: index 0 must be at least 1"),
        ("x.svm", "1 3:1 2:2\n", {}, "line 1: indices must increase along a line, got 2 after 3"),
        ("x.svm", "1 3:1 3:2\n", {}, "line 1: indices must increase along a line, got 3 after 3"),
        ("x.svm", "1 1.0:2\n", {}, r"line 1: index '1\.0' is not a whole number"),
        ("x.svm", "1 9999999999:2\n", {}, "index 9999999999 must be at most"),
        ("x.svm", "1_0 1:2\n", {}, "line 1: '1_0' is not a number"),
        ("x.svm", "1 1:\n", {}, "line 1: '' is not a number"),
        ("x.svm", "1 1:2-3\n", {}, "line 1: '2-3' is not a number"),
        ("x.svm", "1:2 2:3\n", {}, "line 1: '1:2' is not a number"),
        ("x.svm", "1 1:2\n", {"n_features": 0}, "n_features must be an integer from 1"),
        ("x.csv", "a,b\n1,2\n", {"n_features": 3}, "n_features is for svmlight files, got 3"),
        ("x.svm", "1 qid:3 1:2\n", {}, "line 1: qid is for ranking"),
        ("x.svm", "1 4:2\n", {"n_features": 3}, "n_features must be at least 4"),
        ("x.svm", "1 4:2\n", {"label": 0}, "label names a column, but svmlight files have none"),
        ("x.svm", "1 1:1 2147483647:1\n", {}, "line 1: index 2147483647 must be at most 100000000"),
        (
            "x.svm",
            "1 1:2\n",
            {"n_features": 2**31},
            "n_features must be an integer from 1 to 100000",
        ),
        ("x.svm", "1 1:2\n", {"header": True}, "header is for csv files, got True for svmlight"),
        ("x.csv", "a,b\n1,2\n", {"separator": ",,"}, "separator must be one character, or 'tab'"),
        ("x.npz.gz", "1 1:2\n", {}, "x.npz.gz must not be compressed"),
        ("x.txt", "1,2,0\n", {}, "line 1: '1,2,0' is not a number; it was read as SVMlight"),
        ("x.svm", "a b y\n1 2 0\n", {}, r"line 1: 'a' is not .* needs format=\"csv\" \(--format"),
        ("x.csv", "+1 1:2\n-1 1:3\n", {}, r"looks like SVMlight, format=\"svmlight\" \(--format"),
        ("x.bin", "a,b\n1,2\n", {}, "x.bin: format is not known from its name or beginning"),
        ("x.bin", "1 4:2\n", {"format": "xml"}, "format must be one of"),
        ("x.xlsx", "PK\3\4", {}, "x.xlsx must not be a workbook: save .* CSV, or .*read_excel"),
        ("x.svm", "1 0:2 1:3\n", {}, "scikit-learn's dump_svmlight_file .* with zero_based=False"),
    ],
)
def test_malformed_files(tmp_path, name, content, options, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        loaders.load(tmp_path / name, **options)


def test_numpy_files_of_the_wrong_content(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(ValueError, match="must hold a 2-D array"):
        loaders.load(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", X=X)
    with pytest.raises(ValueError, match=r"must hold X and y .* got X"):
        loaders.load(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", X=X, y=Y[:5])
    with pytest.raises(ValueError, match=r"must hold X \(d, n\) and y \(d,\)"):
        loaders.load(tmp_path / "x.npz")


def test_errors_of_the_data_name_the_file(tmp_path):
    (tmp_path / "x.csv").write_text("a,y\n1,0\n,1\n3,0\n")
    with pytest.raises(
        ValueError, match=r"x\.csv, line 3: features must be finite, got nan in column 'a' \(1 su"
    ):
        loaders.read_federated(tmp_path / "x.csv", clients=1)
    with pytest.raises(FileNotFoundError, match="no data file at"):
        loaders.load(tmp_path / "missing.csv")
    (tmp_path / "x.csv").write_text("y,w\n1,7\n0,8\n1,9\n")  # the label is not the last
    with pytest.raises(ValueError, match=r"x\.csv: labels of column 'w', which label= .* must"):
        loaders.read_federated(tmp_path / "x.csv", clients=1)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("x.csv", "a,b,y\n1,2,0\n\n1,NA,1\n,2,0\n", {},
         "line 4: features must be finite, got nan in column 'b' (2 such entries)"),
        ("x.csv", "0,7,1\n1,8,inf\n", {"label": 1, "header": False},
         "line 2: features must be finite, got inf in column 2 (1 such entry)"),
        ("x.csv", 'a,y\n1,0\n"2",inf\n', {"task": "regression"},
         "line 3: labels must be finite numbers, got 'inf'"),
        ("x.csv", "a,y\n1,0\n2,few\n", {"task": "regression"},
         "line 3: labels must be finite numbers, got 'few'"),
        ("x.svm", "# c\n1 1:2\n\n0 1:1 7:1e999\n", {},
         "line 4: features must be finite, got inf at index 7 (1 such entry)"),
        ("x.svm", "# c\n1 1:2\n\nnan 1:3\n", {},
         "line 4: labels must be finite numbers, got 'nan'"),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_named_by_the_line_of_the_file(
    tmp_path, name, content, options, message
):
    (tmp_path / name).write_text(content)
    message = re.escape(f"{tmp_path / name}, {message}")
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        loaders.read_federated(tmp_path / name, clients=1, **options)
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        sources.read_table(tmp_path / name, **options)


@pytest.mark.parametrize("size", [1, 30, _svmlight.BLOCK])
def test_rows_of_svmlight_know_their_lines(tmp_path, monkeypatch, size):
    monkeypatch.setattr(_svmlight, "BLOCK", size)
    (tmp_path / "t.svm").write_text("# c\n1 1:2\n\n0 1:1 # d\n1\n\n# e\n0 1:nan\n1 1:1")
    assert loaders.load(tmp_path / "t.svm").lines.tolist() == [2, 4, 5, 8, 9]


def test_ordered_categories_of_parquet_keep_their_order(tmp_path):
    y = pd.Categorical(["lo", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True)
    pd.DataFrame({"a": [1.0, 2, 3], "y": y}).to_parquet(tmp_path / "t.parquet")
    data = loaders.read_federated(tmp_path / "t.parquet", clients=1)
    assert data.label_mapping == {"lo": 0, "hi": 1}
    assert sources.read_table(tmp_path / "t.parquet").held.labels.tolist() == [0, 1, 0]


# Whole numbers, signs, exponents, blanks and comments in every order, well-formed or not.
PIECES = ["1", "-1", "+2.5", "3e-2", "7", "12:", "1:", "2:", ":", "#x", "e", "."]
BLANKS = [" ", "\t", "\n", "\r\n"]


def plainly_read(text):
    """Label, pairs and line of every row; None where a cell is none of its kind."""
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        label, *pairs = line.partition("#")[0].split() or [None]
        if label is None:
            continue
        try:
            found = [(int(a), float(b)) for a, b in (pair.split(":") for pair in pairs)]
            rows.append((float(label), found, number))
        except ValueError:
            return None
        indices = [index for index, _ in found]
        if any(not pair[0].isdigit() for pair in pairs) or indices != sorted({*indices} - {0}):
            return None
    return rows


@given(st.lists(st.sampled_from([*PIECES, *BLANKS]), max_size=25).map("".join))
@settings(max_examples=400)
def test_lines_are_read_as_they_stand_or_refused(text):
    expected = plainly_read(text)
    if expected is None:
        with pytest.raises(ValueError, match=r"^line [0-9]+: "):
            _svmlight.parse_lines(text.encode())
        return
    got = _svmlight.parse_lines(text.encode())
    assert got.labels.tolist() == [label for label, _, _ in expected]
    assert got.lines.tolist() == [line for _, _, line in expected]
    assert got.counts.tolist() == [len(pairs) for _, pairs, _ in expected]
    pairs = [pair for _, pairs, _ in expected for pair in pairs]
    assert list(zip(got.indices.tolist(), got.values.tolist(), strict=True)) == pairs


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.dictionaries(
                st.integers(1, 9), st.floats(allow_nan=False, allow_infinity=False), max_size=4
            ),
        ),
        min_size=1,
    )
)
@settings(max_examples=100)
def test_numbers_are_read_exactly(rows):
    text = "\n".join(
        f"{label!r} " + " ".join(f"{j}:{entries[j]!r}" for j in sorted(entries))
        for label, entries in rows
    )
    fast = _svmlight.parse_lines(text.encode())
    assert fast.labels.tolist() == [label for label, _ in rows]
    assert fast.counts.tolist() == [len(entries) for _, entries in rows]
    pairs = [(j, entries[j]) for _, entries in rows for j in sorted(entries)]
    assert list(zip(fast.indices.tolist(), fast.values.tolist(), strict=True)) == pairs


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_blocks_of_any_size_give_the_same_table(files, monkeypatch, size):
    monkeypatch.setattr(_svmlight, "BLOCK", size)
    got = loaders.load(files / "t.svm")
    np.testing.assert_array_equal(got.features, X)
    np.testing.assert_array_equal(got.labels, 2 * Y - 1)
    (files / "bad.svm").write_text(svm_text(X, Y) + "1 x:1\n")
    line = svm_text(X, Y).count("\n") + 1
    with pytest.raises(ValueError, match=f"bad.svm, line {line}: index 'x' is not a whole number"):
        loaders.load(files / "bad.svm")


def test_values_out_of_the_ordinary_are_read_too(tmp_path):
    (tmp_path / "t.svm").write_bytes("1 1:nan 2:inf # caf\u00e9\n0 1:1\n".encode("latin-1"))
    got = loaders.load(tmp_path / "t.svm")
    np.testing.assert_array_equal(got.features, [[np.nan, np.inf], [1, 0]])
    with pytest.raises(ValueError, match=r"t\.svm, line 1: features must be finite, got nan"):
        loaders.read_federated(tmp_path / "t.svm", clients=1)


def test_an_empty_archive_has_no_rows(tmp_path):
    (tmp_path / "t.svm.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(ValueError, match="has no rows"):
        loaders.load(tmp_path / "t.svm.gz")


@pytest.mark.parametrize("name", ["t.svm.gz", "t.csv.gz", "t.parquet", "t.npy", "t.npz"])
def test_damage_is_a_value_error_that_names_the_file(files, name):
    content = (files / name).read_bytes()
    draw = random.Random(1)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (files / name).write_bytes(bytes(damaged))
        try:
            loaders.load(files / name)  # damage to a number without a checksum cannot show
        except ValueError as error:
            assert name in str(error)


def test_single_precision_is_kept(tmp_path):
    frame = pd.DataFrame({"a": np.float32([1.5, 2]), "b": np.float32([3, 4]), "y": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", frame.to_numpy(dtype=np.float32))
    np.savez(tmp_path / "t.npz", X=frame[["a", "b"]].to_numpy(), y=frame["y"])
    for name in ("t.parquet", "t.npy", "t.npz"):
        got = loaders.load(tmp_path / name).features
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, [[1.5, 3], [2, 4]])
    frame.assign(c=1).to_parquet(tmp_path / "t.parquet")
    assert loaders.load(tmp_path / "t.parquet", label="y").features.dtype == np.float64


def test_labels_and_clients_may_be_names(tmp_path):
    lines = ["who,a,y"] + [
        f"{w},{i},{y}"
        for i, (w, y) in enumerate(itertools.product(["rome", "oslo"], ["no", "yes"]))
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = loaders.read_federated(tmp_path / "t.csv", client_column="who", scale=None)
    assert data.client_names == ("oslo", "rome")
    assert data.label_mapping == {"no": 0, "yes": 1}
    assert data.features.ravel().tolist() == [2, 3, 0, 1]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "rome,4,"]))
    with pytest.raises(ValueError, match=r"t\.csv, line 6: label 'y' must not be missing, got ''"):
        loaders.read_federated(tmp_path / "t.csv", client_column="who")
    with pytest.raises(ValueError, match="client_column and partition exclude each other"):
        loaders.read_federated(tmp_path / "t.csv", client_column="who", partition=EqualParts(2))


def test_the_client_column_by_its_former_name(files):
    got = loaders.load(files / "t.csv", client="who")
    assert got.note == {"format": "csv", "label_column": "y", "client_column": "who"}
    assert loaders.read_federated(files / "t.csv", client="who").n_clients == 3
    with pytest.raises(ValueError, match="client is the former name of client_column: give one"):
        loaders.load(files / "t.csv", client="who", client_column="who")


SVM = b"+1 1:0.5 3:-2\n-1 2:1 3:7\n"


@pytest.mark.parametrize("name", ["a9a", "a9a.t", "news20.binary", "a9a.gz", "a9a.bz2", "t.svm.xz"])
def test_libsvm_files_by_the_names_that_they_have(tmp_path, name):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    content = pack.get(name[-3:], pack.get(name[-4:], bytes))(b"# from a site\n" + SVM)
    (tmp_path / name).write_bytes(content)
    got = loaders.load(tmp_path / name)
    np.testing.assert_array_equal(got.features, [[0.5, 0, -2], [0, 1, 7]])
    assert got.labels.tolist() == [1, -1] and got.note == {"format": "svmlight"}
    if content[:1] != b"#":
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match=name):
            loaders.load(tmp_path / name)


@pytest.mark.parametrize("size", [1, 2, 4, 1 << 22])
def test_a_byte_order_mark_is_no_label(tmp_path, monkeypatch, size):
    monkeypatch.setattr(_svmlight, "BLOCK", size)
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf" + SVM)
    assert loaders.load(tmp_path / "t").labels.tolist() == [1, -1]
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,y\n1,0\n2,1\n")
    assert loaders.load(tmp_path / "t.csv").feature_names == ("a",)


def test_bytes_are_known_by_how_they_begin(files):
    for name in ("t.parquet", "t.npy", "t.npz"):
        (files / name).rename(files / "x")
        column = {} if name == "t.npz" else {"label": -1}
        np.testing.assert_array_equal(loaders.load(files / "x", **column).labels, Y)


def test_columns_of_parquet_of_every_kind(tmp_path):
    frame = pd.DataFrame(
        {
            "a": pd.array([1, 2, None], dtype="Int64"),
            "b": pd.array([True, False, True], dtype="boolean"),
            "c": pd.Categorical([4, 9, 4]),
            "y": ["no", "yes", "no"],
        },
        index=pd.Index(["0045", "045", "45"], name="site"),
    )
    frame.to_parquet(tmp_path / "t.parquet")
    got = loaders.load(tmp_path / "t.parquet", client_column="site")
    np.testing.assert_array_equal(got.features, [[1, 1, 4], [2, 0, 9], [np.nan, 1, 4]])
    assert got.clients.tolist() == ["0045", "045", "45"]
    assert loaders.load(tmp_path / "t.parquet").feature_names == ("a", "b", "c")


def test_shapes_that_files_only_claim(tmp_path):
    for shape in [(2**40, 3), (2**31, 1), (1, 2**62)]:
        head = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
        head = head.ljust(117) + b"\n"
        content = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(64)
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(ValueError, match="is not a complete NumPy file"):
            loaders.load(tmp_path / "x.npy")
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("X.npy", content)
            archive.writestr("y.npy", content)
        with pytest.raises(ValueError, match="is not a complete NumPy file"):
            loaders.load(tmp_path / "x.npz")


def test_arrays_of_an_archive_must_fit(tmp_path):
    for arrays, message in [
        ({"X": X, "y": Y, "clients": WHO[:4]}, r"must hold clients \(30,\), got \(4,\)"),
        ({"X": X.astype(str), "y": Y}, "must hold numbers in X, got dtype <U32"),
    ]:
        np.savez(tmp_path / "x.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            loaders.load(tmp_path / "x.npz")


def test_columns_that_are_not_named_are_counted(tmp_path):
    names = [f"x{j}" for j in range(102)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(",".join(row) for row in (names, ["1"] * 102, ["0"] * 102)) + "\n")
    told = "got 'zzz'; it has " + ", ".join(names[:20]) + ", ... and 82 more"
    for read in (
        lambda: loaders.load(path, label="zzz"),
        lambda: loaders.load(path, label="x0", client_column="zzz"),
        lambda: read_table(path).column("zzz"),
        lambda: fit(path, "zzz"),
        lambda: fit(path, "x0", "zzz"),
    ):
        with pytest.raises(ValueError) as caught:
            read()
        assert str(caught.value).endswith(told)
    with pytest.raises(ValueError, match=r"got 'zzz'; it has x1, .*, x20, \.\.\. and 81 more"):
        fit(path, "x0", preparation=Preparation(drop=("zzz",)))
    path.write_text("\n".join(",".join(row) for row in (names, ["u"] * 102, ["v"] * 102)) + "\n")
    with pytest.raises(ValueError, match=r"not so: x0, .*, x9, \.\.\. and 91 more"):
        loaders.load(path, label="x101")


def test_what_is_there_and_no_file_is_not_said_to_be_missing(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for read in (loaders.load, read_table, lambda path: fit(path, "x")):
        for path in (pipe, "/dev/null"):
            with pytest.raises(ValueError, match="must be a regular file, but it is a pipe or a"):
                read(path)
        with pytest.raises(ValueError, match="must be the file of a table, but it is a folder"):
            read(tmp_path)
        with pytest.raises(FileNotFoundError, match="no data file at"):
            read(tmp_path / "none.csv")
