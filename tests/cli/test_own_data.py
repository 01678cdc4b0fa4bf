"""Runs of files and of made-up rows: clients, labels, losses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import fedepm


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    path = tmp_path / "table.csv"
    np.savetxt(
        path,
        np.column_stack([np.arange(60) % 4, X, X.sum(axis=1) > 0]),
        delimiter=",",
        header="who,a,b,c,y",
        comments="",
    )
    return path


def test_own_data(capsys, table):
    code, out, _ = fedepm(
        capsys, "run", "--data", table, "--client-column", "who", "--rounds", 2, "--json"
    )
    record = json.loads(out)
    assert code == 0
    assert (
        record["data"]["description"]
        == "table.csv: 60 rows, 3 features, 4 clients of 15 rows; label column y; client "
        "column who; columns scaled to unit norm"
    )
    assert record["data"]["label_column"] == "y" and record["data"]["client_column"] == "who"
    for partition, more in (("equal", ()), ("dirichlet", ("--concentration", 5))):
        code, out, _ = fedepm(
            capsys, "run", "--data", table, "--partition", partition, "--clients", 3, *more,
            "--rounds", 1, "--json",
        )  # fmt: skip
        assert json.loads(out)["data"]["partition"]["name"] == partition


def test_every_command_says_what_it_made_of_a_file(capsys, tmp_path):
    rng = np.random.default_rng(2)
    lines = [
        f"{a:.3f}\t{b:.3f}\t0{i % 3}\t{a > b}" for i, (a, b) in enumerate(rng.normal(size=(60, 2)))
    ]
    (tmp_path / "rows").write_text("\n".join(lines))
    data = (
        "--data", tmp_path / "rows", "--format", "csv", "--no-header", "--separator", "tab",
        "--client-column", "2", "--label", 3, "--noise", "none", "--mu0", 50, "--beta", 0.1,
    )  # fmt: skip
    said = "rows: 60 rows, 2 features, 3 clients of 20 rows; label column 3; client column 2"
    for command, *more in (
        ("run", "--rounds", 1),
        ("compare", "--rounds", 1, "--algorithms", "fedepm,sfedavg"),
        ("tune", "--trials", 1, "--folds", 2, "--rounds", 1),
    ):
        code, out, err = fedepm(capsys, command, *data, *more)
        begins = "tuning FedEPM, as fedepm run takes it here: " if command == "tune" else ""
        assert (code, err.count("\n")) == (0, bool(begins)) and err.startswith(begins)
        assert said in " ".join(out.split())
        code, out, _ = fedepm(capsys, command, *data, *more, "--json")
        told = json.loads(out)["data"]
        assert (told["description"] if command == "run" else told).startswith(said)
    code, _, err = fedepm(capsys, "run", "--data", tmp_path / "rows")
    assert code == 2 and "rows: --format is not known from its name" in err
    code, _, err = fedepm(capsys, "run", "--data", "adult", "--no-header")
    assert code == 2 and err == "error: --header is for a file, not for adult\n"


def test_clients_named_in_the_file_are_the_split_unless_told_otherwise(capsys, tmp_path):
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "t.npz",
        X=rng.normal(size=(60, 3)), y=np.arange(60) % 2, clients=np.arange(60) // 20,
    )  # fmt: skip
    command = ("run", "--data", tmp_path / "t.npz", "--rounds", 1, "--json")
    found = [
        json.loads(fedepm(capsys, *command, *more)[1])["data"]["description"]
        for more in ((), ("--clients", 4), ("--partition", "equal", "--clients", 5))
    ]
    assert "3 clients of 20 rows" in found[0]
    assert "4 clients" in found[1]
    assert "5 clients of 12 rows" in found[2]


def test_synthetic_regression(capsys):
    code, out, _ = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", "least_squares", "--clients", 5,
        "--noise", "none", "--mu0", 3, "--rounds", 3, "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["accuracy"] is None


@pytest.mark.parametrize(
    ("objective", "options", "expected"),
    [
        ("multinomial", (), {"classes": 3}),
        ("huber", ("--huber-delta", 0.5), {"delta": 0.5}),
        ("squared_hinge", (), {}),
    ],
)
def test_other_objectives(capsys, objective, options, expected):
    code, out, _ = fedepm(
        capsys, "run", "--data", "synthetic", "--objective", objective, "--clients", 5, *options,
        "--noise", "none", "--mu0", 20, "--rounds", 3, "--json",
    )  # fmt: skip
    assert code == 0
    record = json.loads(out)
    assert record["objective"]["name"] == objective
    assert {name: record["objective"][name] for name in expected} == expected
    assert (record["accuracy"] is None) == (objective == "huber")


def test_a_file_of_classes(capsys, tmp_path):
    rows = [f"{a},{b},{'xyz'[(a + b) % 3]}" for a in range(6) for b in range(5)]
    (tmp_path / "t.csv").write_text("a,b,kind\n" + "\n".join(rows) + "\n")
    code, out, _ = fedepm(
        capsys, "run", "--data", tmp_path / "t.csv", "--objective", "multinomial", "--clients", 3,
        "--partition", "equal", "--noise", "none", "--mu0", 200, "--rounds", 2,
    )  # fmt: skip
    assert code == 0
    assert "on 3 clients, 2 features, 3 classes" in out and "x -> 0, y -> 1, z -> 2" in out


def test_an_optimum_of_zero_has_no_relative_gap(capsys, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    table = np.column_stack([X, X.sum(axis=1)])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,y", comments="")
    code, out, _ = fedepm(
        capsys, "run", "--data", tmp_path / "t.csv", "--objective", "least_squares", "--beta", 0,
        "--clients", 3, "--noise", "none", "--mu0", 50, "--rounds", 1, "--check-optimum", "--json",
    )  # fmt: skip
    record = json.loads(out)
    assert code == 0
    assert record["gap_percent"] is None and abs(record["optimum"]) < 1e-12


def test_what_columns_of_text_are_said_to_need_works(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{'nsw'[i % 3]},{'fm'[i // 3 % 2]},{i % 5 // 3}" for i in range(60)]
    (tmp_path / "both.csv").write_text("\n".join(["age,hospital,sex,ill", *rows]))
    rows = [row[:4] + row[6:] for row in rows]
    (tmp_path / "one.csv").write_text("\n".join(["age,hospital,ill", *rows]))
    for name in ("one.csv", "both.csv"):
        given = name, "--label", "ill"
        code, _, err = fedepm(capsys, "run", "--data", *given, "--clients", 3)
        assert code == 2 and "--client-column names who holds a row, in place of" in err
        code, _, err = fedepm(capsys, "run", "--data", *given, "--client-column", "hospital")
        assert code == (0 if name == "one.csv" else 2)
        assert code == 0 or "; categories and gaps are taken by fit (fedepm fit)" in err
        for more in (("--clients", 3), ("--client-column", "hospital")):
            assert fedepm(capsys, "fit", *given, *more)[0] == 0
