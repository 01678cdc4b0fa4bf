"""Sparse rows of all lengths: what the copy of their entries holds, and what is computed of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedepm_fast.kernels import losses
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.losses import _jagged

FLOATS = (np.float64, np.float32)
TOLERANCE = {np.dtype(np.float64): 1e-14, np.dtype(np.float32): 2e-6}


def rows_of(rng, lengths, n, dtype=np.float64):
    """Rows with these numbers of entries, in any order and more than one to a column."""
    starts = np.concatenate(([0], np.cumsum(lengths)))
    values = rng.normal(size=starts[-1]).astype(dtype)
    columns = rng.integers(0, n, starts[-1])
    return sparse.csr_array((values, columns.astype(np.int32), starts), shape=(len(lengths), n))


def textlike(rng, d, longest):
    """Lengths of which few are large, and some zero."""
    lengths = np.minimum(longest, (3 * rng.random(d) ** -1.1).astype(int))
    lengths[rng.random(d) < 0.2] = 0
    return lengths


def entries_of(packed):
    """Row, column and value of each entry of the copy, in its order."""
    width = 64 // packed.dtype.itemsize
    found = []
    first = np.repeat(packed.offsets[:-1], packed.client_sizes)
    place = np.arange(len(first)) - first
    heights = np.repeat(packed.heights, packed.client_sizes)
    begins = np.flatnonzero(place % _jagged.CHUNK % heights == 0)
    assert len(begins) == len(packed.panels) - 1
    for begin, (row, k), (end, _) in zip(
        begins, packed.panels[:-1], packed.panels[1:], strict=True
    ):
        for group in range(row, end, width):
            lengths = packed.lengths[group : group + width]
            shared = lengths[0]
            if lengths[0] - lengths[_jagged._FEW] > _jagged._LONGER:
                shared = lengths[_jagged._FEW]
            order = [(entry, t) for entry in range(shared) for t in np.flatnonzero(lengths > entry)]
            order += [(entry, t) for t in range(width) for entry in range(shared, lengths[t])]
            for entry, t in order:
                r = begin + packed.order[group + t]
                found.append((r, entry, packed.columns[k], packed.values[k]))
                k += 1
    return found


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1 << 16, (1 << 16) + 1])
def test_the_copy_holds_each_entry_once(rng, n, dtype):
    sizes = [40, 1, 700, 9]
    given_rows = rows_of(rng, textlike(rng, sum(sizes), 300), n, dtype)
    packed = losses.pack(given_rows, np.zeros(sum(sizes)), sizes)
    assert packed.columns.dtype == (np.uint16 if n == 1 << 16 else np.uint32)
    found = sorted(entries_of(packed))
    starts = given_rows.indptr
    rows = np.repeat(np.arange(sum(sizes)), np.diff(starts))
    want = zip(rows, np.arange(len(rows)) - starts[rows], given_rows.indices, given_rows.data,
               strict=True)  # fmt: skip
    assert found == list(want)
    assert not packed.values.flags.writeable and not packed.columns.flags.writeable


def test_panels_are_what_a_cache_holds(rng):
    lengths = np.concatenate((np.full(2000, 1), np.full(300, 200), np.full(130, 5000)))
    packed = losses.pack(rows_of(rng, lengths, 9000), np.zeros(2430), [2000, 300, 130])
    assert packed.heights.tolist() == [1024, 128, 64]
    assert packed.starts.tolist() == [0, 2, 5]
    assert packed.panels[:, 1].tolist() == [
        0, 1024, 2000, 27_600, 53_200, 62_000, 382_000, 702_000, 712_000
    ]  # fmt: skip


def logistic(features, labels, w):
    """The sum of the losses, its gradient and the scale of its errors, in extended precision."""
    rows = np.repeat(np.arange(len(labels)), np.diff(features.indptr))
    a, columns = features.data.astype(np.longdouble), features.indices
    margins, gradient, scale = (np.zeros(k, np.longdouble) for k in (len(labels), w.size, w.size))
    np.add.at(margins, rows, a * w.astype(np.longdouble)[columns])
    signed = (1 - 2 * labels) * margins
    slope = (1 - 2 * labels) / (1 + np.exp(-signed))
    np.add.at(gradient, columns, a * slope[rows])
    np.add.at(scale, columns, np.abs(a * slope[rows]))
    return np.logaddexp(0, signed).sum(), gradient, scale


def check(features, labels, sizes, w):
    packed = losses.pack(features, labels, sizes)
    f, g = losses.values_and_gradients(packed, w)
    limit, first = TOLERANCE[packed.dtype], 0
    for i, size in enumerate(sizes):
        some = slice(first, first + size)
        value, gradient, scale = logistic(features[some], labels[some], w)
        assert f[i] == pytest.approx(float(value / size), rel=20 * limit)
        error = np.abs(g[i] - gradient / size)
        assert (error <= 20 * limit * scale / size).all()
        first += size
    np.testing.assert_array_equal(losses.values(packed, w), f)
    return f, g


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("sizes", "n", "longest"),
    [
        ([1], 1, 1),
        ([3, 1, 1500], 40, 30),
        ([20_000, 5], 9, 9),
        ([300, 64, 65], 20_000, 1000),
        ([900], 70_000, 400),
    ],
)
def test_rows_of_all_lengths(rng, sizes, n, longest, dtype):
    if JIT_DISABLED:
        sizes = [size // 50 + 1 for size in sizes]
    features = rows_of(rng, textlike(rng, sum(sizes), longest), n, dtype)
    labels = rng.integers(0, 2, sum(sizes)).astype(float)
    check(features, labels, sizes, (0.1 * rng.normal(size=n)).astype(dtype))


@settings(max_examples=40)
@given(
    lengths=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=40), min_size=1, max_size=4),
    n=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_lengths(lengths, n, seed):
    rng = np.random.default_rng(seed)
    sizes = [len(some) for some in lengths]
    features = rows_of(rng, np.concatenate(lengths), n)
    check(features, rng.integers(0, 2, sum(sizes)).astype(float), sizes, rng.normal(size=n))


def test_rows_without_entries():
    features = sparse.csr_array((5, 3))
    f, g = check(features, np.array([0.0, 1, 1, 0, 1]), [2, 3], np.ones(3))
    np.testing.assert_allclose(f, np.log(2), rtol=1e-15)
    np.testing.assert_array_equal(g, 0)


def test_a_client_has_the_same_bits_whoever_else_there_is(rng):
    sizes = [150, 2000 if not JIT_DISABLED else 90, 7]
    features = rows_of(rng, textlike(rng, sum(sizes), 500), 600)
    labels, w = rng.integers(0, 2, sum(sizes)).astype(float), rng.normal(size=600)
    f, g = losses.values_and_gradients(losses.pack(features, labels, sizes), w)
    first = 0
    for i, size in enumerate(sizes):
        some = slice(first, first + size)
        alone = losses.pack(features[some], labels[some], [size])
        own_f, own_g = losses.values_and_gradients(alone, w)
        np.testing.assert_array_equal(own_f, f[[i]])
        np.testing.assert_array_equal(own_g, g[[i]])
        first += size


def test_points_that_are_not_finite_reach_their_rows_alone():
    """A run that diverges has them: lanes that hold no entry must not read them."""
    lengths = np.array([9, 3, 3, 2, 1, 1, 0, 0, 0, 5])
    columns = np.concatenate([np.arange(k) for k in lengths]).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    features = sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(10, 9))
    packed = losses.pack(features, np.zeros(10), np.ones(10, int), loss="least_squares")
    together = losses.pack(features, np.zeros(10), [10], loss="least_squares")
    w = np.ones(9)
    w[3] = np.nan
    kernel, work = losses.client_kernel(packed), losses.workspace(packed)
    gradient, found = np.empty(9), []
    for i in range(10):
        kernel(packed.arrays, i, w, 0.0, True, gradient, work)
        found.append(gradient.copy())
    touched = np.array(found)[:, 0]
    np.testing.assert_array_equal(np.isnan(touched), lengths > 3)
    assert touched[lengths == 3].tolist() == [3.0, 3.0]
    kernel(together.arrays, 0, w, 0.0, True, gradient, losses.workspace(together))
    np.testing.assert_array_equal(np.isnan(gradient), True)
