"""Loss kernels against the reference, extended precision, and their own symmetries."""

from __future__ import annotations

import gc
import weakref

import mpmath
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedepm_fast import FederatedData, Problem
from fedepm_fast.kernels import losses
from fedepm_fast.kernels._jit import JIT_DISABLED
from fedepm_fast.kernels.losses import _packed, _pointed
from fedepm_fast.objectives import as_objective

LOSSES = ("logistic", "least_squares", "huber", "squared_hinge", "multinomial")
#: What the tests give as the loss's own parameter.
PARAMETERS = {"huber": {"delta": 0.7}, "multinomial": {"classes": 4}}
TOLERANCE = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-5}
FLOATS = (np.float64, np.float32)


def random_rows(rng, sizes, n, loss="logistic", density=None):
    d = int(np.sum(sizes))
    features = rng.normal(size=(d, n))
    if density is not None:
        features[rng.random((d, n)) >= density] = 0
    if loss in ("least_squares", "huber"):
        labels = rng.normal(size=d)
    else:
        labels = rng.integers(0, 4 if loss == "multinomial" else 2, d).astype(float)
    return features, labels, np.asarray(sizes)


def outputs(loss):
    return PARAMETERS["multinomial"]["classes"] if loss == "multinomial" else 1


def pointwise(t, b, loss):
    """Losses and their derivatives of margins (d, outputs), as textbooks write them."""
    sign = 1 - 2 * b
    if loss == "multinomial":
        own = np.arange(t.shape[1]) == b[:, None]
        short = t - t[own][:, None]
        largest = short.max(axis=1)
        e = np.exp(short - largest[:, None])
        rest = np.where(own, 0, e).sum(axis=1) + np.expm1(-largest)
        p = e / e.sum(axis=1)[:, None]
        return largest + np.log1p(rest), np.where(own, np.where(own, 0, -p).sum(1)[:, None], p)
    t = t[:, 0]
    if loss == "logistic":
        s = sign * t
        e = np.exp(-np.abs(s))
        value, slope = np.maximum(s, 0) + np.log1p(e), sign * np.where(s < 0, e, 1) / (1 + e)
    elif loss == "squared_hinge":
        short = np.maximum(0, 1 + sign * t)
        value, slope = short**2, 2 * sign * short
    elif loss == "least_squares":
        value, slope = (t - b) ** 2 / 2, t - b
    else:
        r, delta = t - b, np.longdouble(PARAMETERS["huber"]["delta"])
        inside = np.abs(r) <= delta
        value = np.where(inside, r**2 / 2, delta * (np.abs(r) - delta / 2))
        slope = np.where(inside, r, delta * np.sign(r))
    return value, slope[:, None]


def extended(features, labels, sizes, points, reg, loss, weights=1.0):
    """Values and gradients in extended precision, and the scales that errors are relative to."""
    a, b = features.astype(np.longdouble), labels.astype(np.longdouble)
    points, reg = points.astype(np.longdouble), np.asarray(reg).astype(np.longdouble)
    values, gradients, scales = [], [], []
    first = 0
    for i, size in enumerate(sizes):
        rows, w = slice(first, first + size), points[i].reshape(outputs(loss), -1)
        value, slope = pointwise(a[rows] @ w.T, b[rows], loss)
        values.append(value.mean() + reg[i] / 2 * (weights * w * w).sum())
        gradients.append((slope.T @ a[rows] / size + reg[i] * weights * w).ravel())
        scale = np.abs(slope).T @ np.abs(a[rows]) / size + np.abs(reg[i] * weights * w)
        scales.append(scale.ravel())
        first += size
    return np.array(values), np.array(gradients), np.array(scales)


def layouts(features, labels, sizes, loss, dtype, **options):
    dense = features.astype(dtype)
    options = {"loss": loss, **PARAMETERS.get(loss, {}), **options}
    found = [losses.pack(sparse.csr_array(dense), labels, sizes, **options)]
    found.append(losses.pack(dense, labels, sizes, **options))
    if dense.shape[1] <= 64:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_packed, "_BLOCKS_UP_TO", 0)
            found.append(losses.pack(dense, labels, sizes, **options))
    return found


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
        (list(range(1, 41)), 67),
        ([9000, 2], 2),
    ],
)
def test_against_extended_precision(rng, sizes, n, loss, dtype):
    if JIT_DISABLED:
        sizes = [300, 2] if max(sizes) > 1000 else sizes[:: 1 + len(sizes) // 7]
    features, labels, sizes = random_rows(rng, sizes, n, loss)
    features, labels = (v.astype(dtype).astype(float) for v in (features, labels))
    m, limit = len(sizes), TOLERANCE[np.dtype(dtype)]
    points = (rng.normal(size=(m, outputs(loss) * n)) / n).astype(dtype)
    reg, weights = rng.random(m).astype(dtype), rng.integers(0, 3, n).astype(dtype)
    for rows in layouts(features, labels, sizes, loss, dtype, weights=weights):
        for x in (points[0], points):
            each = np.broadcast_to(x, points.shape)
            expected = extended(features, labels, sizes, each, reg, loss, weights)
            values, gradients, scales = expected
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


@pytest.mark.parametrize("b", [0, 1, 2])
def test_multinomial_at_any_margin(b):
    # The margins of a row are those of the identity; one row a client.
    for largest in MARGINS:
        w = np.array([0.0, largest, -largest])[[b, (b + 1) % 3, (b + 2) % 3]]
        for t in (w, -w):
            for rows in layouts(np.ones((1, 1)), [b], [1], "multinomial", float, classes=3):
                f, g = losses.values_and_gradients(rows, t)
                with mpmath.workdps(60):
                    e = [mpmath.exp(mpmath.mpf(float(v)) - float(t[b])) for v in t]
                    others = [v for k, v in enumerate(e) if k != b]
                    loss = float(mpmath.log1p(mpmath.fsum(others)))
                    p = [v / mpmath.fsum(e) for v in e]
                    p[b] = -mpmath.fsum(others) / mpmath.fsum(e)
                assert f[0] == pytest.approx(loss, rel=1e-15, abs=1e-320)
                np.testing.assert_allclose(g[0], [float(v) for v in p], rtol=2e-15, atol=1e-310)


@pytest.mark.parametrize("loss", ["huber", "squared_hinge"])
def test_kinks_and_far_margins(loss):
    delta = 0.75
    around = np.array([-1e3, -1.0, -delta, 0.0, delta, 1.0, 1e3, 1e200])
    margins = np.concatenate([np.nextafter(around, -np.inf), around, np.nextafter(around, np.inf)])
    labels = np.zeros(len(margins))
    options = {"delta": delta} if loss == "huber" else {}
    sizes = np.ones(len(margins), int)
    for rows in layouts(margins[:, None], labels, sizes, loss, float, **options):
        with np.errstate(over="ignore"):
            f, g = losses.values_and_gradients(rows, np.ones(1))
            if loss == "huber":
                slope = np.clip(margins, -delta, delta)
                value = slope * (margins - slope / 2)
            else:
                short = np.maximum(0, 1 + margins)
                value, slope = short**2, 2 * short
            np.testing.assert_allclose(f, value, rtol=4e-16)
            np.testing.assert_allclose(g[:, 0], slope * margins, rtol=4e-16)


def test_two_classes_are_the_logistic_loss(rng):
    features, labels, sizes = random_rows(rng, [30, 1, 9], 6)
    w = rng.normal(size=12)
    for rows, binary in zip(
        layouts(features, labels, sizes, "multinomial", float, classes=2),
        layouts(features, labels, sizes, "logistic", float),
        strict=True,
    ):
        assert (rows.n_outputs, rows.n_parameters, rows.n_features) == (2, 12, 6)
        f, g = losses.values_and_gradients(rows, w)
        expected_f, expected_g = losses.values_and_gradients(binary, w[6:] - w[:6])
        np.testing.assert_allclose(f, expected_f, rtol=1e-14)
        np.testing.assert_allclose(g, np.hstack([-expected_g, expected_g]), rtol=0, atol=1e-15)


@pytest.mark.parametrize("classes", [7, 130])
def test_many_classes(rng, classes):
    # Products of so many sums would overflow float32; one row more than whole vectors.
    features = rng.normal(size=(129, 9)).astype(np.float32)
    labels = rng.integers(0, classes, 129).astype(float)
    x = np.zeros(classes * 9, np.float32)
    for rows in layouts(features, labels, [129], "multinomial", np.float32, classes=classes):
        f, g = losses.values_and_gradients(rows, x)
        assert f[0] == pytest.approx(np.log(classes), rel=1e-6)
        own = np.zeros((classes, 9))
        np.add.at(own, labels.astype(int), features)
        expected = (features.sum(axis=0) / classes - own) / 129
        np.testing.assert_allclose(g.reshape(classes, 9), expected, rtol=0, atol=3e-7)


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
            f, g = losses.values_and_gradients(rows, np.ones(rows.n_parameters))
            at_zero = {"logistic": np.log(2), "squared_hinge": 1.0, "multinomial": np.log(4)}
            assert f[0] == pytest.approx(at_zero.get(loss, 0.0), rel=1e-15)
            assert (g == 0).all()


@settings(max_examples=25)
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
    weights = rng.integers(0, 3, n)
    problem = Problem(data, as_objective(loss, weights=weights, **PARAMETERS.get(loss, {})))
    rows = problem.rows
    assert rows.n_parameters == problem.n_parameters == outputs(loss) * n
    for x in (
        rng.normal(size=problem.n_parameters),
        rng.normal(size=(len(sizes), outputs(loss) * n)),
    ):
        f, g = losses.values_and_gradients(rows, x, reg=problem.reg)
        np.testing.assert_allclose(f, problem.values(x), rtol=1e-12)
        np.testing.assert_allclose(g, problem.gradients(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_bits_do_not_depend_on_the_clients_asked_for(rng, loss, dtype):
    features, labels, sizes = random_rows(rng, [7, 30, 1, 200, 16], 6, loss)
    points = rng.normal(size=(5, outputs(loss) * 6)).astype(dtype)
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
        ({"loss": "hinge"}, ValueError, "loss must be one of 'huber', 'least_squares', 'logistic'"),
        (
            {"labels": [0, 2, 1]},
            ValueError,
            "labels must be 0 or 1 for the logistic objective, got 2",
        ),
        ({"delta": 1.0}, ValueError, "delta is not a parameter of the objective 'logistic'"),
        ({"loss": "huber", "delta": 0.0}, ValueError, r"delta must be .* in \(0, inf\), got 0"),
        (
            {"loss": "huber", "classes": 2},
            ValueError,
            "classes is not a parameter of the objective 'huber'",
        ),
        (
            {"loss": "multinomial", "labels": [0, 1.5, 2]},
            ValueError,
            "labels must be whole numbers from 0 for the multinomial objective, got 1.5 at index 1",
        ),
        (
            {"loss": "multinomial", "labels": [0, 1, 2], "classes": 2},
            ValueError,
            "labels must be below classes = 2, got 2",
        ),
        (
            {"loss": "squared_hinge", "labels": [0, 2, 1]},
            ValueError,
            "0 or 1 for the squared_hinge objective",
        ),
        ({"weights": [1.0]}, ValueError, r"weights must have shape \(2,\)"),
        ({"weights": [1.0, -1.0]}, ValueError, "weights must be at least 0, got -1"),
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", ["least_squares", "huber"])
@pytest.mark.parametrize("n", [2, 150])
def test_quadratic_losses_overflow_only_with_their_result(n, loss, dtype, rng):
    root = 2.0 ** (511 if dtype == np.float64 else 63)  # products are exact
    delta = root if loss == "huber" else None
    ones = np.zeros((40, n), dtype)
    ones[:, 0] = 1
    labels = np.full(40, -0.9 * root, dtype)
    rows = losses.pack(ones, labels, [40], loss=loss, delta=delta)
    f, g = losses.values_and_gradients(rows, np.zeros(n, dtype))
    np.testing.assert_allclose(f.astype(float) / root**2, 0.405, rtol=1e-6)
    np.testing.assert_allclose(g[0, :2].astype(float) / root, [0.9, 0.0], rtol=1e-6)
    # Margins that overflow on the way, and a regulariser that is small for a large point.
    wide = np.zeros((2, n), dtype)
    wide[:, 0], wide[:, 1] = root, -root
    x = np.zeros(n, dtype)
    x[:2] = 8 * root
    rows = losses.pack(wide, np.array([3, 3], dtype), [2], loss=loss, delta=delta)
    for reg in (1e-3, 1e-30):
        f, g = losses.values_and_gradients(rows, x, reg=reg)
        np.testing.assert_allclose(f.astype(float) / root**2, 64 * reg, rtol=1e-6)
        np.testing.assert_array_equal(losses.values(rows, x, reg=reg), f)
        pull = 8 * reg * root
        np.testing.assert_allclose(g[0, :2], [pull - 3 * root, pull + 3 * root], rtol=1e-6)
    assert losses.values(rows, x, reg=1.0)[0] == np.inf  # 16 times the largest number


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


@pytest.mark.skipif(JIT_DISABLED, reason="nothing is given by address")
def test_what_addresses_stand_for_lives_as_long_as_the_call(rng, monkeypatch):
    """Whatever becomes of what is remembered of rows: another thread may have put its own there."""
    rows = losses.pack(*random_rows(rng, [9, 20], 3))
    want, evaluate, alive = losses.values(rows, np.zeros(3)), _pointed.evaluate_at, []

    def forget_first(*arguments):
        words = weakref.ref(_pointed._pointed.pop(rows)[1])
        gc.collect()
        alive.append(words() is not None)
        return evaluate(*arguments)

    monkeypatch.setattr(_pointed, "evaluate_at", forget_first)
    np.testing.assert_array_equal(losses.values(rows, np.zeros(3)), want)
    assert alive == [True]
