"""Files of every format, whole and broken."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fedepm_fast import FedEPM, loaders, run
from fedepm_fast.partition import EqualParts

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
    column = {} if name == "t.npz" else {"client": 0 if name == "t.npy" else "who"}
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
    got = loaders.load(files / "t.csv", label="a", client="y")
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
        ("x.csv", "1,2\n3,4\n", {}, "must begin with the names of its columns, got numbers"),
        ("x.csv", "a,b\n1,2\n3,4,5\n", {}, "x.csv is not a readable csv file"),
        ("x.csv", "a,b\nred,1\nblue,0\n", {}, "numbers in its feature columns, but not so: a"),
        ("x.csv", "a\n1\n2\n", {}, "at least one feature column"),
        ("x.csv", "a,b\n1,2\n", {"label": "z"}, "label must be a column of .* it has a, b"),
        ("x.csv", "a,b\n1,2\n", {"client": 7}, "client must be an integer from -2 to 1, got 7"),
        ("x.csv", "a,b\n1,2\n", {"label": "a", "client": "a"}, "must be different columns"),
        ("x.svm", "# nothing\n", {}, "x.svm has no rows"),
        ("x.svm", "1 1:2\n1 two:3\n", {}, "x.svm, line 2: invalid literal"),
        ("x.svm", "1 1:2\n1 2\n", {}, "line 2: '2' is not index:value"),
        ("x.svm", "1 0:2\n", {}, "line 1: index 0 must be at least 1"),
        ("x.svm", "1 qid:3 1:2\n", {}, "line 1: qid is for ranking"),
        ("x.svm", "1 4:2\n", {"n_features": 3}, "n_features must be at least 4"),
        ("x.svm", "1 4:2\n", {"label": 0}, "label names a column, but svmlight files have none"),
        ("x.bin", "1 4:2\n", {}, "format of x.bin is not known"),
        ("x.bin", "1 4:2\n", {"format": "xml"}, "format must be one of"),
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
    with pytest.raises(ValueError, match=r"x\.csv: features must be finite, got nan"):
        loaders.read_federated(tmp_path / "x.csv", clients=1)
    with pytest.raises(FileNotFoundError, match="no data file at"):
        loaders.load(tmp_path / "missing.csv")
