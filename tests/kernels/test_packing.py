"""Rows in blocks: from a table in any order, in half the memory, and who is on which side."""

from __future__ import annotations

import pickle

import numba
import numpy as np
import pytest
from scipy import sparse

from fedepm_fast import FedEPM, Problem, datasets
from fedepm_fast.kernels import _aligned, accuracy, losses
from fedepm_fast.kernels.losses import _packed
from fedepm_fast.kernels.losses._repacking import Repacking
from fedepm_fast.kernels.sampling import sample

SIZES = np.array([1, 7, 8, 9, 16, 200, 3])
D = int(SIZES.sum())


def table(rng, n):
    return rng.integers(-50, 50, (D, n)).astype(float), rng.integers(0, 2, D).astype(float)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 14, 16, 33, 64, 65, 140])
@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_rows_of_a_table_are_those_of_its_reordered_copy(rng, n, loss):
    features, labels = table(rng, n)
    features += 0.1  # no float32 numbers
    order = rng.permutation(D)
    want = losses.pack(features[order], labels, SIZES, loss=loss)
    got = losses.pack(features, labels, SIZES, loss=loss, rows=order)
    assert [a.dtype for a in got.arrays] == [a.dtype for a in want.arrays]
    whole = np.empty(D)
    whole[order] = labels
    kept = losses.pack(features, whole, SIZES, loss=loss, rows=order, labels_of_table=True)
    for a, b, c in zip(got.arrays, want.arrays, kept.arrays, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def small_numbers(rng, kind, n):
    """Numbers that a narrow table holds as one digit, two, float32, or a column of each kind."""
    counts = rng.integers(-127, 128, (D, n)).astype(float)
    large = rng.integers(-127 * 256, 127 * 256 + 1, (D, n)).astype(float)
    large[:2] = [[-127 * 256], [127 * 256]]
    singles = rng.normal(size=(D, n)).astype(np.float32).astype(float)
    kinds = {"bytes": counts, "pairs": large, "float32": singles}
    if kind in kinds:
        return kinds[kind]
    return np.choose(rng.integers(0, 3, n), list(kinds.values()))


@pytest.mark.parametrize(
    ("n", "kind"),
    [(1, "bytes"), (2, "pairs"), (7, "float32"), (14, "bytes"), (16, "pairs")]
    + [(n, "all") for n in (8, 9, 33, 64)],
)
@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_narrow_rows_give_what_wide_ones_give(rng, n, loss, kind, monkeypatch):
    counts, labels = small_numbers(rng, kind, n), rng.integers(0, 2, D).astype(float)
    scale = rng.normal(size=n)
    order = rng.permutation(D)
    got = losses.pack(losses.narrow_table(counts), labels, SIZES, loss=loss, rows=order)
    assert isinstance(got, losses.NarrowRows) and got.dtype == np.float64
    held = losses.pack(counts, labels, SIZES, loss=loss, rows=order)
    assert held.blocks.dtype == np.float64 and held.table.dtype == np.float32
    np.testing.assert_array_equal(got.table, held.table)
    np.testing.assert_array_equal(got.entries, held.entries)
    x = rng.normal(size=(len(SIZES), n)) / 50 / np.abs(counts).max()
    reg = rng.random(len(SIZES))
    f, g = losses.values_and_gradients(got, x, reg=reg)
    for a, b in zip(losses.values_and_gradients(held, x, reg=reg), (f, g), strict=True):
        np.testing.assert_array_equal(a, b)  # of the same numbers, in several times the memory
    want = losses.pack(counts[order] * scale, labels[order], SIZES, loss=loss)
    table = losses.narrow_table(counts, scale)
    scaled = losses.pack(table, labels[order], SIZES, loss=loss, rows=order)
    f, g = losses.values_and_gradients(scaled, x, reg=reg)
    f_want, g_want = losses.values_and_gradients(want, x, reg=reg)
    np.testing.assert_allclose(f, f_want, rtol=1e-12)
    np.testing.assert_allclose(g, g_want, rtol=0, atol=1e-12 * np.abs(g_want).max())
    # Found out by itself where there is no scale, of large tables.
    monkeypatch.setattr(_packed, "_WIDE_UP_TO", 0)
    assert isinstance(losses.pack(counts, labels, SIZES, loss=loss), losses.NarrowRows)
    single = losses.pack(counts.astype(np.float32), labels, SIZES, loss=loss)
    assert single.dtype == np.float32 and single.blocks.shape[2] == 16


@pytest.mark.parametrize(
    ("n", "wide", "narrow"),
    [
        (64, losses.PackedRows, losses.NarrowRows),
        (65, losses.DenseRows, losses.NarrowRows),
        (128, losses.DenseRows, losses.NarrowRows),
        (129, losses.DenseRows, losses.DenseRows),
    ],
)
def test_rows_of_many_columns_are_packed_where_they_are_narrow(rng, n, wide, narrow):
    counts, labels = small_numbers(rng, "all", n), rng.integers(0, 2, D).astype(float)
    order, x = rng.permutation(D), rng.normal(size=n) / 50 / np.abs(counts).max()
    held = [
        losses.pack(table, labels, SIZES, rows=order)
        for table in (counts, losses.narrow_table(counts))
    ]
    assert [type(rows) for rows in held] == [wide, narrow]
    (f, g), (f_narrow, g_narrow) = (losses.values_and_gradients(rows, x) for rows in held)
    np.testing.assert_allclose(f, f_narrow, rtol=1e-12)
    np.testing.assert_allclose(g, g_narrow, rtol=0, atol=1e-12 * np.abs(g).max())


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "huber"])
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_rows_packed_again_in_place_are_those_packed_anew(rng, loss, shift):
    features, labels = table(rng, 14)
    features += shift  # no float32 numbers
    held = losses.narrow_table(features) or features
    first = losses.pack(held, labels, SIZES, loss=loss)
    again = Repacking(first, held, labels, 6)
    before = again.rows.arrays
    # What is made of the clients before any rows are dealt divides by their sizes.
    np.testing.assert_array_equal(again.rows.client_sizes, SIZES)
    for _ in range(2):
        key, sizes = rng.integers(0, 2**63, 2), rng.permutation(SIZES)
        again.key[:2], again.sizes[:] = key, sizes
        again()
        order = sample(*key.tolist(), 6, 0, D, D)
        want = losses.pack(held, labels, sizes, loss=loss, rows=order, labels_of_table=True)
        blocks, targets, *others = again.rows.arrays
        count = want.starts[-1]
        np.testing.assert_array_equal(blocks[:count], want.blocks)
        np.testing.assert_array_equal(targets[: want.targets.size], want.targets)
        for a, b in zip(others, want.arrays[2:], strict=True):
            np.testing.assert_array_equal(a, b)
        assert all(a is b for a, b in zip(again.rows.arrays, before, strict=True))


def test_rows_are_packed_again_of_a_table_of_their_kind(rng):
    features, labels = table(rng, 5)
    narrow = losses.narrow_table(features)
    wide = losses.pack(features, labels, SIZES)
    with pytest.raises(TypeError, match="table must be an array for PackedRows, got NarrowTable"):
        Repacking(wide, narrow, labels, 6)
    with pytest.raises(TypeError, match="table must be a NarrowTable for NarrowRows, got ndarray"):
        Repacking(losses.pack(narrow, labels, SIZES), features, labels, 6)


@pytest.mark.parametrize("classes", [2, 3])
def test_narrow_rows_of_several_classes_and_threads(rng, classes, monkeypatch):
    monkeypatch.setattr(losses, "_PARALLEL_FROM", 0)
    loss = "logistic" if classes == 2 else "multinomial"
    counts = small_numbers(rng, "all", 9)
    labels = np.arange(D) % classes * 1.0
    wide = losses.pack(counts, labels, SIZES, loss=loss)
    narrow = losses.pack(losses.narrow_table(counts), labels, SIZES, loss=loss)
    x = rng.normal(size=wide.n_parameters) / 1000
    f, g = losses.values_and_gradients(wide, x, reg=0.1, threads=1)
    for threads in (1, 2):
        if threads <= numba.config.NUMBA_NUM_THREADS:
            values, slopes = losses.values_and_gradients(narrow, x, reg=0.1, threads=threads)
            np.testing.assert_array_equal(values, f)
            np.testing.assert_array_equal(slopes, g)


def test_memory_of_rows_is_used_again_when_nobody_has_it():
    made = _aligned.recycled((100, 3, 8), np.float32)
    view, where = made[1:2], made.ctypes.data
    assert where % 64 == 0
    made = _aligned.recycled((100, 3, 8), np.float32)
    assert made.ctypes.data != where  # the view is still there
    view[:] = 1.0
    del view
    assert _aligned.recycled((99, 3, 8), np.float32).ctypes.data == where


def test_narrow_table_is_exact_or_none(rng, monkeypatch):
    monkeypatch.setattr(_packed, "_WIDE_UP_TO", 0)
    counts, _ = table(rng, 5)
    held = losses.narrow_table(counts)
    assert held.shape == counts.shape and held.values.shape == (D, 6)
    np.testing.assert_array_equal(held.values[:, :5], counts)
    np.testing.assert_array_equal(held.values[:, 5:], 0)
    for row in (0, D - 1):
        for value in (0.1, 2.0**24 + 1, 1e39, 1e-46):
            changed = counts.copy()
            changed[row, 2] = value
            assert losses.narrow_table(changed) is None
            assert losses.pack(changed, np.zeros(D), SIZES).blocks.dtype == np.float64
    for bad in (np.nan, np.inf):
        changed = counts.copy()
        changed[3, 1] = bad
        with pytest.raises(ValueError, match="features must be finite"):
            losses.narrow_table(changed)
    with pytest.raises(ValueError, match="scale must have shape"):
        losses.narrow_table(counts, np.ones(4))


def test_pack_refuses_wrong_rows(rng):
    features, labels = table(rng, 3)
    for rows in (np.full(D, D), np.full(D, -1)):
        with pytest.raises(ValueError, match=r"rows must hold numbers of rows in \[0, 244\)"):
            losses.pack(features, labels, SIZES, rows=rows)
    with pytest.raises(ValueError, match="labels must have shape"):
        losses.pack(features, labels, [2], rows=[0, 1])
    with pytest.raises(ValueError, match="CSR"):
        losses.pack(sparse.csr_array(features), labels, SIZES, rows=np.arange(D))
    with pytest.raises(TypeError, match="dtype must be float64 for a NarrowTable"):
        losses.pack(losses.narrow_table(features), labels, SIZES, dtype=np.float32)


def test_adult_is_packed_from_its_counts():
    data = datasets.adult(clients=10, seed=4)
    rows = Problem(data, "logistic").rows
    assert rows.blocks.shape[1] == 24  # bytes of a row, two columns of four
    # In another process, or after a copy, the same bits.
    again = Problem(pickle.loads(pickle.dumps(data)), "logistic").rows
    for a, b in zip(rows.arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).features, data.features)
    x = np.random.default_rng(0).normal(size=data.n_features)
    problem = Problem(data, FedEPM().objective(Problem(data, "logistic").objective))
    np.testing.assert_allclose(
        losses.values(rows, x, reg=problem.reg), problem.values(x), rtol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", ["blocks", "narrow", "dense", "csr"])
def test_wrong_and_ties(rng, layout, dtype, monkeypatch):
    features, labels = table(rng, 9)
    features[rng.random((D, 9)) < 0.6] = 0
    features[:20] = 0  # on the border
    if layout == "blocks":
        features += 0.25 * (dtype == np.float64) * (features == 1) / 3
    held = features.astype(dtype)
    if layout == "dense":
        monkeypatch.setattr(_packed, "_BLOCKS_UP_TO", 0)
    if layout == "narrow":
        monkeypatch.setattr(_packed, "_WIDE_UP_TO", 0)
    if layout == "csr":
        held = sparse.csr_array(held)
    rows = losses.pack(held, labels, SIZES)
    points = rng.integers(-3, 4, (6, 9)).astype(dtype)
    points[0] = 0
    t = features.astype(dtype) @ points.T
    want = np.stack(
        [((t > 0) & (labels == 0)[:, None] | (t < 0) & (labels == 1)[:, None]).sum(0),
         (t == 0).sum(0)], axis=1
    )  # fmt: skip
    np.testing.assert_array_equal(accuracy.wrong_and_ties(rows, points), want)
    with pytest.raises(ValueError, match="points must have shape"):
        accuracy.wrong_and_ties(rows, points[:, :4])


@pytest.mark.parametrize("layout", ["blocks", "narrow", "dense", "csr"])
def test_wrong_classes(rng, layout, monkeypatch):
    features = rng.integers(-2, 3, (D, 9)) / (3.0 if layout == "blocks" else 1.0)
    labels = rng.integers(0, 5, D).astype(float)
    if layout == "dense":
        monkeypatch.setattr(_packed, "_BLOCKS_UP_TO", 0)
    if layout == "narrow":
        monkeypatch.setattr(_packed, "_WIDE_UP_TO", 0)
    held = sparse.csr_array(features) if layout == "csr" else features
    rows = losses.pack(held, labels, SIZES, loss="multinomial")
    points = rng.integers(-1, 2, (6, 45)).astype(float)
    points[0] = 0  # every class alike, as many rows are at the other points
    want = [((features @ x.reshape(5, 9).T).argmax(axis=1) != labels).sum() for x in points]
    if layout == "blocks":  # thirds are rounded, and ties with them
        points[1:] += rng.normal(size=(5, 45))
        want = [((features @ x.reshape(5, 9).T).argmax(axis=1) != labels).sum() for x in points]
    found = accuracy.wrong_and_ties(rows, points)
    np.testing.assert_array_equal(found[:, 0], want)
    np.testing.assert_array_equal(found[:, 1], 0)


@pytest.mark.parametrize("layout", ["blocks", "narrow", "dense", "csr"])
@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_rows_spread_over_more_clients(rng, layout, loss):
    n = 70 if layout == "dense" else 9
    features, labels = table(rng, n)
    kinds = {"narrow": losses.narrow_table, "csr": sparse.csr_array}
    rows = losses.pack(kinds.get(layout, np.asarray)(features), labels, SIZES, loss=loss)
    x = rng.normal(size=n)
    want = losses.values_and_gradients(rows, x)
    for numbers in (np.array([0, 2, 3, 7, 8, 9, 11]), np.arange(5, 12), np.arange(7)):
        whole = rows.spread(numbers, 12)
        assert whole.n_clients == 12 and whole.client_sizes.sum() == D
        for a, b in zip(losses.values_and_gradients(whole, x, clients=numbers), want, strict=True):
            np.testing.assert_array_equal(a, b)
    # Rows stay where they are: other numbers would be given those of others.
    for numbers in ([1, 0, *range(2, 7)], [0, *range(6)], range(6), range(-1, 6), range(6, 13)):
        with pytest.raises(ValueError, match="numbers must be 7 that rise within 0 to 11"):
            rows.spread(np.array(numbers), 12)


def test_wrong_and_ties_needs_classes(rng):
    features, labels = table(rng, 3)
    rows = losses.pack(features, labels, SIZES, loss="least_squares")
    with pytest.raises(ValueError, match="rows must hold classes"):
        accuracy.wrong_and_ties(rows, np.ones((1, 3)))
    with pytest.raises(TypeError, match="pack"):
        accuracy.wrong_and_ties(features, np.ones((1, 3)))


@pytest.mark.parametrize("clients", [3, 40])
def test_accuracies_are_those_of_the_reference(clients):
    data = datasets.adult(clients=clients, seed=1)
    problem = Problem(data, "logistic")
    points = np.random.default_rng(3).normal(size=(5, 14)) * 30
    points[2] = 0
    want = [problem.accuracy(x) for x in points]
    np.testing.assert_allclose(problem.accuracies(points), want, rtol=1e-15)
