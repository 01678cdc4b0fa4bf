"""Integers of any size: compared as Python does, sorted, exported."""

from __future__ import annotations

import csv
import operator
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import record

from fedepm_fast import Store, StoreError

EDGES = [0, 2**53, 2**62, 2**63, 2**64]
WORDS = st.sampled_from(EDGES).flatmap(
    lambda edge: st.integers(max(0, edge - 3), min(2**64 - 1, edge + 3))
)
INTEGERS = st.tuples(st.sampled_from([*EDGES, 10**30, 10**400]), st.integers(-3, 3)).map(sum)
RELATIONS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
             ">": operator.gt, ">=": operator.ge}  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(WORDS, WORDS, st.sampled_from([-1, 1]), WORDS), min_size=1, max_size=6),
    st.one_of(
        INTEGERS, INTEGERS.map(operator.neg), st.sampled_from([0.5, 1e19, 2.0**63, 2.0**64, -0.5])
    ),
)
def test_the_store_compares_as_python_does(rows, asked):
    columns = {
        "seed": [seed for seed, *_ in rows],
        "trial": [trial for _, trial, *_ in rows],
        "weight": [sign * word for _, _, sign, word in rows],
        "mean_objective": [float(sign * word) for _, _, sign, word in rows],
        "rounds": [min(word, 2**63 - 1) for *_, word in rows],
    }
    with Store(":memory:") as store:
        for i, (seed, trial, sign, word) in enumerate(rows):
            one = record(i, seed=seed, weight=sign * word)
            object.__setattr__(one, "trial", trial)
            changed = {"mean_objective": float(sign * word), "rounds": min(word, 2**63 - 1)}
            object.__setattr__(one, "measures", {**one.measures, **changed})
            store.add([one])
        for name, values in columns.items():
            assert store.table()[name] == values
            for sign, holds in RELATIONS.items():
                want = [f"{i:064x}" for i, value in enumerate(values) if holds(value, asked)]
                assert store.ids([f"{name}{sign}{asked!r}"]) == want, (name, sign)
            assert store.ids({name: asked}) == store.ids([f"{name}={asked!r}"])
        impossible = [f"seed>={2**64}"]
        assert store.prune(impossible) == 0 == store.prune([]) == store.prune({})
        assert len(store) == len(rows)


SEEDS = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 10**19, 2**64 - 1]


def test_numpy_integers_are_compared_as_integers():
    with Store(":memory:") as store:
        store.add(record(i, seed=seed) for i, seed in enumerate(SEEDS))
        for i, seed in enumerate(SEEDS):
            assert store.ids({"seed": np.uint64(seed)}) == [f"{i:064x}"]
            assert store.ids({"seed": np.array([seed, 5], np.uint64)}) == [f"{i:064x}"]
        assert store.ids({"seed": np.float64(2**53)}) == []


def test_the_view_sorts_and_compares_every_seed(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        store.add(record(i, seed=seed) for i, seed in enumerate(reversed(SEEDS)))
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    found = connection.execute("SELECT seed FROM results ORDER BY seed").fetchall()
    assert [int(seed) for (seed,) in found] == SEEDS
    for bound in SEEDS:
        text = str(bound) if bound < 2**63 else f"'{bound:020}'"
        (count,) = connection.execute(
            f"SELECT count(*) FROM results WHERE seed < {text}"
        ).fetchone()
        assert count == SEEDS.index(bound)
    connection.close()


def test_exports_keep_every_integer(tmp_path):
    pandas = pytest.importorskip("pandas")
    records = [record(i, seed=seed) for i, seed in enumerate(SEEDS)]
    for i, one in enumerate(records):
        one.parameters.update(
            cap=[None, 2**53 + 1][i % 2],
            top=[None, 2**64 - 1][i % 2],
            mixed=[0.5, 2**53 + 1][i % 2],
            huge=[1, 10**30][i % 2],
        )
    with Store(tmp_path / "a.sqlite") as store:
        store.add(records)
        frame = store.to_pandas()
        store.to_csv(tmp_path / "a.csv")
        store.to_parquet(tmp_path / "a.parquet")
    assert frame["seed"].dtype == np.uint64 and frame["seed"].tolist() == SEEDS
    assert frame.dtypes[["cap", "top", "mixed", "huge"]].astype(str).tolist() == [
        "Int64", "UInt64", "object", "object",
    ]  # fmt: skip
    for name in ("cap", "top", "mixed", "huge"):
        assert frame[name].tolist()[1] == records[1].parameters[name]
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == SEEDS
    assert (rows[1]["cap"], rows[1]["huge"]) == (str(2**53 + 1), str(10**30))
    read = pandas.read_parquet(tmp_path / "a.parquet")
    assert read["seed"].tolist() == SEEDS
    assert (read["cap"][1], read["top"][1], read["mixed"][1], read["huge"][1]) == (
        2**53 + 1, 2**64 - 1, str(2**53 + 1), str(10**30),
    )  # fmt: skip


def test_seeds_beyond_64_bits_are_refused():
    with Store(":memory:") as store:
        for seed in (-1, 2**64, 10**400):
            with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
                store.add([record(1, seed=seed)])
        with pytest.raises(StoreError, match="holds integers from"):
            one = record(1)
            object.__setattr__(one, "measures", {**one.measures, "rounds": 2**63})
            store.add([one])
