"""Loss kernels against the reference, extended precision, and their own symmetries."""

from __future__ import annotations

import mpmath
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedepm_fast import FederatedData, LeastSquares, Logistic, Problem
from fedepm_fast.kernels import _packed, losses
from fedepm_fast.kernels._jit import JIT_DISABLED

LOSSES = ("logistic", "least_squares")
TOLERANCE = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-5}
FLOATS = (np.float64, np.float32)


def random_rows(rng, sizes, n, loss="logistic", density=None):
    d = int(np.sum(sizes))
    features = rng.normal(size=(d, n))
    if density is not None:
        features[rng.random((d, n)) >= density] = 0
    labels = rng.integers(0, 2, d).astype(float) if loss == "logistic" else rng.normal(size=d)
    return features, labels, np.asarray(sizes)


def extended(features, labels, sizes, points, reg, loss):
    """Values and gradients in extended precision, and the scales that errors are relative to."""
    a, b = features.astype(np.longdouble), labels.astype(np.longdouble)
    points, reg = points.astype(np.longdouble), np.asarray(reg).astype(np.longdouble)
    values, gradients, scales = [], [], []
    first = 0
    for i, size in enumerate(sizes):
        rows, w = slice(first, first + size), points[i]
        t = a[rows] @ w
        if loss == "logistic":
            s = (1 - 2 * b[rows]) * t
            e = np.exp(-np.abs(s))
            value = np.maximum(s, 0) + np.log1p(e)
            slope = (1 - 2 * b[rows]) * np.where(s < 0, e, 1) / (1 + e)
        else:
            slope = t - b[rows]
            value = slope**2 / 2
        values.append(value.mean() + reg[i] / 2 * (w @ w))
        gradients.append(slope @ a[rows] / size + reg[i] * w)
        scales.append(np.abs(slope) @ np.abs(a[rows]) / size + np.abs(reg[i] * w))
        first += size
    return np.array(values), np.array(gradients), np.array(scales)


def layouts(features, labels, sizes, loss, dtype):
    dense = features.astype(dtype)
    yield losses.pack(dense, labels, sizes, loss=loss)
    if dense.shape[1] <= 64:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_packed, "_BLOCKS_UP_TO", 0)
            yield losses.pack(dense, labels, sizes, loss=loss)
    yield losses.pack(sparse.csr_array(dense), labels, sizes, loss=loss)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("sizes", "n"),
    [
        ([1], 1),
        ([5, 1, 17], 1),
        ([8, 16, 128], 3),
        ([3, 129, 64, 1, 250], 14),
        ([20, 33], 41),
        ([70, 9], 131),
        ([9000, 2], 2),
    ],
)
def test_against_extended_precision(rng, sizes, n, loss, dtype):
    if JIT_DISABLED and max(sizes) > 1000:
        sizes = [300, 2]
    features, labels, sizes = random_rows(rng, sizes, n, loss)
    features, labels = (v.astype(dtype).astype(float) for v in (features, labels))
    m, limit = len(sizes), TOLERANCE[np.dtype(dtype)]
    points = (rng.normal(size=(m, n)) / n).astype(dtype)
    reg = rng.random(m).astype(dtype)
    for rows in layouts(features, labels, sizes, loss, dtype):
        for x in (points[0], points):
            each = np.broadcast_to(x, (m, n))
            values, gradients, scales = extended(features, labels, sizes, each, reg, loss)
            f, g = losses.values_and_gradients(rows, x, reg=reg)
            assert f.dtype == g.dtype == dtype
            assert (np.abs(f - values) <= limit * values).all()
            assert (np.abs(g - gradients) <= limit * scales.max(axis=1, keepdims=True)).all()
            np.testing.assert_array_equal(losses.values(rows, x, reg=reg), f)
            np.testing.assert_array_equal(losses.gradients(rows, x, reg=reg), g)


MARGINS = np.array([0.0, 1e-300, 1e-17, 1e-8, 0.3, 2.0, 17.0, 36.0, 40.0, 700.0, 745.0, 1e3, 1e8])


@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_logistic_at_any_margin(sign, b):
    # One row a client: nothing of a neighbour can hide an error.
    margins = sign * MARGINS
    labels = np.full(len(margins), b)
    for rows in layouts(margins[:, None], labels, np.ones(len(margins), int), "logistic", float):
        f, g = losses.values_and_gradients(rows, np.ones(1))
        with mpmath.workdps(60):
            for margin, value, slope in zip(margins, f, g[:, 0], strict=True):
                s = (1 - 2 * b) * mpmath.mpf(float(margin))
                loss = float(mpmath.log1p(mpmath.exp(s)))
                assert value == pytest.approx(loss, rel=1e-15, abs=1e-320)
                sigmoid = 1 / (1 + mpmath.exp(-s))
                expected = float((1 - 2 * b) * sigmoid * mpmath.mpf(float(margin)))
                assert slope == pytest.approx(expected, rel=1e-15, abs=1e-310)


def test_small_losses_of_many_rows_keep_their_digits():
    # Every factor 1 + e of the running product rounds to 1 or nearly.
    for margin in (-12.0, -30.0, -40.0, -300.0):
        rows = losses.pack(np.full((1000, 1), margin), np.zeros(1000), [1000])
        expected = np.log1p(np.exp(np.longdouble(margin)))
        assert abs(losses.values(rows, np.ones(1))[0] - expected) < 1e-13 * expected


@pytest.mark.parametrize("loss", LOSSES)
def test_padding_adds_exactly_nothing(loss):
    # Rows of zeros: each adds the same number, and there is no rounding in their mean.
    for size in range(1, 40):
        for rows in layouts(np.zeros((size, 2)), np.zeros(size), [size], loss, float):
            f, g = losses.values_and_gradients(rows, np.ones(2))
            if loss == "least_squares":
                assert f[0] == 0
            else:
                assert f[0] == pytest.approx(np.log(2), rel=1e-15)
            assert (g == 0).all()


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    n=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from(LOSSES),
    is_sparse=st.booleans(),
)
def test_agrees_with_the_reference(sizes, n, seed, loss, is_sparse):
    rng = np.random.default_rng(seed)
    features, labels, sizes = random_rows(rng, sizes, n, loss, density=0.4)
    if is_sparse:
        features = sparse.csr_array(features)
    data = FederatedData(features, labels, sizes)
    problem = Problem(data, Logistic() if loss == "logistic" else LeastSquares())
    rows = losses.pack(data.features, data.labels, data.client_sizes, loss=loss)
    for x in (rng.normal(size=n), rng.normal(size=(len(sizes), n))):
        f, g = losses.values_and_gradients(rows, x, reg=problem.reg)
        np.testing.assert_allclose(f, problem.values(x), rtol=1e-12)
        np.testing.assert_allclose(g, problem.gradients(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_bits_do_not_depend_on_the_clients_asked_for(rng, loss, dtype):
    features, labels, sizes = random_rows(rng, [7, 30, 1, 200, 16], 6, loss)
    points = rng.normal(size=(5, 6)).astype(dtype)
    for rows in layouts(features, labels, sizes, loss, dtype):
        for x in (points[1], points):
            f, g = losses.values_and_gradients(rows, x, reg=0.1)
            for clients in ([3], [4, 0, 3, 3], []):
                some_f, some_g = losses.values_and_gradients(rows, x, clients=clients, reg=0.1)
                np.testing.assert_array_equal(some_f, f[clients])
                np.testing.assert_array_equal(some_g, g[clients])


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread only")
@pytest.mark.parametrize("sizes", [[19_000], [10, 9_000, 700, 12_000, 1]])
def test_bits_do_not_depend_on_threads(rng, sizes, monkeypatch):
    monkeypatch.setattr(losses, "_PARALLEL_FROM", 0)
    if JIT_DISABLED:
        sizes = [size // 100 + 1 for size in sizes]
    features, labels, sizes = random_rows(rng, sizes, 9)
    points = rng.normal(size=(len(sizes), 9))
    for rows in layouts(features, labels, sizes, "logistic", float):
        for x in (points[0], points):
            f, g = losses.values_and_gradients(rows, x, reg=0.1)
            many_f, many_g = losses.values_and_gradients(rows, x, reg=0.1, threads=2)
            np.testing.assert_array_equal(many_f, f)
            np.testing.assert_array_equal(many_g, g)
            np.testing.assert_array_equal(losses.values(rows, x, reg=0.1, threads=2), f)


def test_client_kernel_inside_compiled_code(rng):
    features, labels, sizes = random_rows(rng, [30, 11], 5)

    @numba.njit
    def descend(client, arrays, w, gradient, work):
        value = 0.0
        for _ in range(4):
            value = client(arrays, 1, w, 0.5, True, gradient, work)
            w -= 0.1 * gradient
        return value

    for rows in layouts(features, labels, sizes, "logistic", float):
        w, gradient = np.zeros(5), np.empty(5)
        client, work = losses.client_kernel(rows), losses.workspace(rows)
        value = descend(client, rows.arrays, w, gradient, work)
        v = np.zeros(5)
        for _ in range(4):
            f, g = losses.values_and_gradients(rows, v, clients=[1], reg=0.5)
            v -= 0.1 * g[0]
        assert value == f[0]
        np.testing.assert_allclose(w, v, rtol=1e-14)


def test_packed_layout(rng):
    features, labels, sizes = random_rows(rng, [3, 8, 10], 2)
    rows = losses.pack(features, labels, sizes)
    assert rows.blocks.shape == (4, 2, 8) and rows.blocks.ctypes.data % 64 == 0
    np.testing.assert_array_equal(rows.starts, [0, 1, 2, 4])
    signed = (1 - 2 * labels)[:, None] * features
    np.testing.assert_array_equal(rows.blocks[0, :, :3], signed[:3].T)
    np.testing.assert_array_equal(rows.blocks[0, :, 3:], 0)
    np.testing.assert_array_equal(rows.blocks[1], signed[3:11].T)
    single = losses.pack(features, labels, sizes, loss="least_squares", dtype=np.float32)
    assert single.blocks.shape == (3, 2, 16) and single.dtype == np.float32
    np.testing.assert_array_equal(single.targets.reshape(3, 16)[2, :10], np.float32(labels[11:]))


def test_sparse_entries_are_not_copied(rng):
    features, labels, sizes = random_rows(rng, [30], 5, density=0.3)
    matrix = sparse.csr_array(features)
    rows = losses.pack(matrix, labels, sizes)
    assert np.shares_memory(rows.data, matrix.data)
    assert matrix.data.flags.writeable


def test_out(rng):
    features, labels, sizes = random_rows(rng, [9, 4], 3)
    rows, x = losses.pack(features, labels, sizes), np.ones(3)
    f, g = np.empty(2), np.empty((2, 3))
    got = losses.values_and_gradients(rows, x, out=(f, g))
    assert got[0] is f and got[1] is g
    assert losses.values(rows, x, out=f) is f
    assert losses.gradients(rows, x, out=g) is g
    with pytest.raises(ValueError, match=r"out must have shape \(2,\)"):
        losses.values(rows, x, out=np.empty(3))


def test_bad_points_and_clients(rng):
    features, labels, sizes = random_rows(rng, [9, 4], 3)
    rows = losses.pack(features, labels, sizes)
    with pytest.raises(TypeError, match=r"rows must come from pack\(\), got ndarray"):
        losses.values(features, np.ones(3))
    with pytest.raises(TypeError, match="x must be float64"):
        losses.values(rows, np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"x must have shape \(2, 3\), got \(3, 3\)"):
        losses.values(rows, np.ones((3, 3)))
    with pytest.raises(ValueError, match="x must be finite, got nan at index"):
        losses.values(rows, [0.0, np.nan, 1.0])
    with pytest.raises(ValueError, match=r"clients must be in \[0, 2\), got -1"):
        losses.values(rows, np.ones(3), clients=[0, -1])
    with pytest.raises(ValueError, match=r"reg must be a number or have shape \(2,\)"):
        losses.values(rows, np.ones(3), reg=np.ones(3))
    with pytest.raises(ValueError, match="reg must be finite and at least 0"):
        losses.values(rows, np.ones(3), reg=-1.0)
    with pytest.raises(ValueError, match="threads must be"):
        losses.values(rows, np.ones(3), threads=0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, "loss must be one of 'logistic', 'least_squares'"),
        ({"labels": [0, 2, 1]}, ValueError, "labels must be 0 or 1 for the logistic loss, got 2"),
        ({"labels": [0, 1]}, ValueError, r"labels must have shape \(3,\)"),
        ({"client_sizes": [3, 0]}, ValueError, "every one at least 1 row"),
        ({"client_sizes": [1, 1]}, ValueError, "add up to the 3 rows of features, got 2"),
        ({"client_sizes": [1.5, 1.5]}, TypeError, "client_sizes must be integers"),
        ({"features": np.full((3, 2), np.inf)}, ValueError, "features must be finite, got inf"),
        ({"features": np.ones(3)}, ValueError, "features must have 2 dimension"),
        ({"features": sparse.csc_array(np.eye(3))}, TypeError, "dense or CSR, got format 'csc'"),
        ({"dtype": np.int64}, TypeError, "dtype must be float64 or float32"),
    ],
)
def test_pack_refuses(change, error, message):
    given = {"features": np.ones((3, 2)), "labels": [0, 1, 1], "client_sizes": [2, 1]} | change
    with pytest.raises(error, match=message):
        losses.pack(**given)


def test_pack_refuses_broken_sparse_structure():
    class Rows:
        shape = (2, 3)
        data = np.ones(2)
        indices = np.array([0, 3])
        indptr = np.array([0, 1, 2])

    with pytest.raises(ValueError, match=r"features.indices must be in \[0, 3\)"):
        losses.pack(Rows(), [0, 1], [2])
    Rows.indptr = np.array([0, 2, 1])
    with pytest.raises(ValueError, match=r"features.indptr must rise from 0 to the 2 entries"):
        losses.pack(Rows(), [0, 1], [2])
