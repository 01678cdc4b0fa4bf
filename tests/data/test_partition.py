"""Every way to split: sizes, laws and limits."""

from __future__ import annotations

import datetime
import decimal
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedepm_fast.data.partition import ByColumn, DirichletLabelSkew, EqualParts, RandomCuts


def assign(partitioner, labels, seed=0):
    return partitioner.assign(np.asarray(labels, dtype=float), np.random.default_rng(seed))


@given(st.integers(1, 20), st.integers(0, 200), st.integers(0, 99), st.data())
@settings(max_examples=150)
def test_every_row_has_one_client(m, extra, seed, data):
    d = 3 * m + extra
    labels = np.arange(d) % 2
    partitioner = data.draw(
        st.sampled_from([RandomCuts(m), EqualParts(m), DirichletLabelSkew(m, 10.0)])
    )
    parts = assign(partitioner, labels, seed)
    assert len(parts) == m
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(d))


def test_random_cuts_keep_the_minimum_share():
    for seed in range(20):
        sizes = np.array([len(p) for p in assign(RandomCuts(100), np.zeros(45222), seed)])
        assert sizes.min() > 0.01 * 45222 / 100
    for m in (1, 2, 3, 50):  # one row each is a way
        assert [len(p) for p in assign(RandomCuts(m), np.zeros(m))] == [1] * m
    sizes = [len(p) for p in assign(RandomCuts(5000), np.zeros(45222))]
    assert min(sizes) >= 1 and len(sizes) == 5000


@pytest.mark.parametrize(("d", "m", "share"), [(9, 3, 0.0), (12, 3, 0.4), (10, 4, 0.01)])
def test_random_cuts_have_the_law_of_drawing_until_accepted(d, m, share):
    rng = np.random.default_rng(1)
    accepted = Counter()
    while accepted.total() < 4000:
        cuts = np.sort(rng.choice(np.arange(1, d - 1), m - 1, replace=False))
        sizes = np.diff(cuts, prepend=0, append=d)
        if sizes.min() > share * d / m:
            accepted[tuple(sizes.tolist())] += 1
    drawn = Counter(
        tuple(len(p) for p in RandomCuts(m, share).assign(np.zeros(d), rng)) for _ in range(4000)
    )
    assert drawn.keys() == accepted.keys()
    counts = [[c[s] for s in sorted(drawn)] for c in (drawn, accepted)]
    assert stats.chi2_contingency(counts).pvalue > 0.01


def test_equal_parts():
    sizes = [len(p) for p in assign(EqualParts(7), np.zeros(100))]
    assert sorted(sizes) == [14] * 5 + [15] * 2


def test_dirichlet_skew_follows_its_concentration():
    labels = np.arange(20000) % 2
    spread = {}
    for concentration in (0.1, 100.0):
        parts = assign(DirichletLabelSkew(10, concentration, min_samples=5), labels)
        assert min(map(len, parts)) >= 5
        spread[concentration] = np.std([labels[p].mean() for p in parts])
    assert spread[100.0] < 0.1 < spread[0.1]


def test_by_column():
    ids = [3, 1, 3, 2, 1]
    parts = assign(ByColumn(ids), np.zeros(5))
    assert [p.tolist() for p in parts] == [[1, 4], [3], [0, 2]]
    assert ByColumn(ids).client_names() == ("1", "2", "3")
    assert ByColumn(ids).describe() == {"name": "column", "clients": 3}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomCuts(0), "clients must be"),
        (lambda: EqualParts(0), "clients must be"),
        (lambda: RandomCuts(3, 1.0), "min_share must be"),
        (lambda: DirichletLabelSkew(3, 0.0), "concentration must be"),
        (lambda: DirichletLabelSkew(3, 1e300), r"concentration must be .* \[1e-06, 1e\+12\]"),
        (lambda: DirichletLabelSkew(3, 1.0, 0), "min_samples must be"),
        (lambda: ByColumn(3), r"client ids must be a vector, one entry per row, got shape \(\)"),
        (lambda: ByColumn(np.ma.masked_equal([1, 2], 1)), "must not have masked entries"),
        (lambda: ByColumn(pd.array(["a", pd.NA])), "must not be missing, got <NA> at index 1"),
        (lambda: ByColumn([]), "client ids must be a vector"),
        (lambda: ByColumn([1.0, np.nan]), "client ids must be finite"),
        (lambda: ByColumn(np.array(["a", None], dtype=object)), "must not be missing"),
        (lambda: assign(RandomCuts(5), np.zeros(4)), "clients must not exceed .*: 5 > 4"),
        (lambda: assign(RandomCuts(2, 0.9), np.zeros(5)), "at least 3 of 5 for each"),
        (lambda: ByColumn([1 << 20_000, 1]), "at most 14000 bits long, got an integer of 20001"),
        (lambda: ByColumn([[1], [2, 3]]), "client ids must be a vector, got lists of different"),
        (lambda: assign(EqualParts(5), np.zeros(4)), "clients must not exceed"),
        (lambda: assign(DirichletLabelSkew(5, 1.0), np.zeros(4)), "clients must not exceed"),
        (lambda: assign(DirichletLabelSkew(3, 1.0, 9), np.zeros(9)), "min_samples must be at most"),
        (lambda: assign(DirichletLabelSkew(3, 1.0), np.arange(500)), "labels must be classes"),
        (lambda: assign(DirichletLabelSkew(3, 1.0), np.arange(50) / 7), "bin them first"),
        (lambda: assign(DirichletLabelSkew(90, 1e-3), np.zeros(99)), "leaves a client of 90"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_dirichlet_takes_binned_and_named_labels():
    for labels in (np.repeat([0.25, 0.75], 50), np.repeat(["red", "blue", "green"], 40)):
        parts = DirichletLabelSkew(4, 5.0).assign(labels, np.random.default_rng(0))
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_dirichlet_shares_have_their_mean_and_variance():
    labels, m, c = np.zeros(1000), 4, 2.0
    rng = np.random.default_rng(5)
    shares = np.array(
        [[len(p) / 1000 for p in DirichletLabelSkew(m, c).assign(labels, rng)] for _ in range(2000)]
    )
    np.testing.assert_allclose(shares.mean(axis=0), 1 / m, atol=0.01)
    want = (1 / m) * (1 - 1 / m) / (m * c + 1)
    np.testing.assert_allclose(shares.var(axis=0), want, rtol=0.1)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["b", "a", "b"], ("a", "b")),
        ([10, 2, 10], ("2", "10")),
        ([10.0, 2.0, 10.0], ("2", "10")),  # a column of a table of floats
        ([0.5, 2.0, 0.5], ("0.5", "2.0")),
        ([1e300, 2.0, 1e300], ("2.0", "1e+300")),
        (np.array([10, 2, 10], dtype=object), ("2", "10")),
        (np.array(["b", "a", "b"], dtype=np.dtypes.StringDType()), ("a", "b")),
        ([True, False, True], ("False", "True")),
        (pd.Series(["b", "a", "b"]), ("a", "b")),
        # Integers are exact, whatever type holds them.
        ([2**63, 1, 2**63], ("1", str(2**63))),
        ([2**63 + 1, 2**63, 2**63 + 1], (str(2**63), str(2**63 + 1))),
        ([2**64, -1, 2**64], ("-1", str(2**64))),
        ([10**400, 1, 10**400], ("1", str(10**400))),
        ([np.uint64(2**63), np.int64(-5), np.uint64(2**63)], ("-5", str(2**63))),
        (pd.Series([2**70, 1, 2**70]), ("1", str(2**70))),
    ],
)
def test_ids_of_any_type(ids, names):
    column = ByColumn(ids)
    assert column.client_names() == names
    parts = assign(column, np.zeros(3))
    # In every case the clients are those of rows 0 and 2, and of row 1.
    assert {tuple(p.tolist()) for p in parts} == {(0, 2), (1,)}
    assert str(np.asarray(ids, dtype=object)[parts[0][0]]).startswith(names[0])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([decimal.Decimal("0.1"), 1], r"numbers or strings, got Decimal\('0.1'\) of type Decimal"),
        ([1, datetime.date(2020, 1, 1)], r"got datetime.date\(2020, 1, 1\) of type date at"),
        ([1.5, 10**400], "numbers of one kind .* got an integer of 1329 bits among others at ind"),
        (["a", 10**400], "numbers of one kind .* got an integer of 1329 bits among others at ind"),
    ],
)
def test_what_is_no_id_is_told_with_its_place(ids, message):
    with pytest.raises(TypeError, match=message):
        ByColumn(ids)


def test_ids_are_kept_as_they_were():
    ids = np.array([1, 2, 1])
    column = ByColumn(ids)
    ids[:] = 7
    assert column.client_names() == ("1", "2")
    with pytest.raises(ValueError, match="read-only"):
        column.ids[0] = 3


@pytest.mark.parametrize(
    "partitioner",
    [
        RandomCuts(np.int64(3), np.float32(0.5)),
        EqualParts(np.int8(3)),
        DirichletLabelSkew(np.int64(3), np.float64(1), np.int64(2)),
        ByColumn([1, 2]),
    ],
)
def test_descriptions_are_plain(partitioner):
    assert json.loads(json.dumps(partitioner.describe()))["name"] == partitioner.name


def test_equal_partitioners_give_equal_splits():
    for partitioner in (RandomCuts(5), EqualParts(5), DirichletLabelSkew(5, 1.0)):
        one, other = (assign(partitioner, np.arange(300) % 3, seed=8) for _ in range(2))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
