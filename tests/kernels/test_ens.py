"""The ENS kernels against the reference: layouts, ties, sizes, weights, threads."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedepm_fast.kernels import _jit
from fedepm_fast.kernels import ens as module
from fedepm_fast.kernels._boundary import ArgumentError
from fedepm_fast.kernels.ens import _passes as passes
from fedepm_fast.kernels.ens import ens, ens_buffer, ens_columns, group_size
from fedepm_fast.kernels.ens_blocks import EnsSearch, ens_blocks
from fedepm_fast.reference import ens as reference

# Without compilation every case takes a hundred times longer.
FEW = _jit.JIT_DISABLED
CASES = 8 if FEW else 120

SHAPES = {
    "normal": lambda rng, s: rng.normal(size=s),
    "cauchy": lambda rng, s: rng.standard_cauchy(s),
    "lognormal": lambda rng, s: rng.lognormal(0, 4, s),
    "bimodal": lambda rng, s: rng.normal(size=s) + 10 * rng.integers(0, 2, s),
    "ties": lambda rng, s: 0.1 * rng.integers(-2, 3, s),
    "equal": lambda rng, s: np.repeat(rng.normal(size=(1, s[1])), s[0], axis=0),
    "shifted": lambda rng, s: rng.normal(size=s) + 1e8,
    "zeros": lambda rng, s: np.where(rng.random(s) < 0.5, 0.0, rng.normal(size=s)),
    "outlier": lambda rng, s: np.where(rng.random(s) < 0.02, 1e12, rng.normal(size=s)),
    "tiny": lambda rng, s: 1e-310 * rng.normal(size=s),
    "uniform": lambda rng, s: rng.uniform(-1, 1, s),
}
CS = (0.0, 1e-20, 1e-6, 1e-3, 0.1, 0.5, 2.0, 1e3, 1e12, 1e300)
MS = (1, 2, 3, 5, 8, 10, 31, 32, 33, 63, 64, 65, 100, 257)
NS = (1, 2, 7, 8, 9, 15, 16, 17, 33)


def error(got, want, Z):
    """Largest error relative to the largest number."""
    largest = np.abs(Z).max()
    return 0.0 if largest == 0 else float(np.abs(got.astype(float) - want).max() / largest)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_reference(shape, dtype, rng):
    for _ in range(CASES):
        m, n = int(rng.choice(MS[: 9 if FEW else None])), int(rng.choice(NS))
        Z = SHAPES[shape](rng, (m, n)).astype(dtype)
        c, axis = float(rng.choice(CS)), int(rng.integers(-2, 2))
        got = ens(Z if axis % 2 == 0 else np.ascontiguousarray(Z.T), c, axis=axis)
        assert got.dtype == dtype
        bound = 1e-15 if dtype == np.float64 else 2e-7
        if shape == "tiny":
            bound = 1e-7 if dtype == np.float64 else 0.0  # spacing of subnormal numbers
        assert error(got, reference(Z, c), Z) <= bound, (m, n, c, axis)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weighted_equals_the_reference(dtype, rng):
    for _ in range(CASES):
        m, n = int(rng.choice(MS[: 9 if FEW else None])), int(rng.choice(NS))
        Z = SHAPES[str(rng.choice(list(SHAPES)[:8]))](rng, (m, n)).astype(dtype)
        c, axis = float(rng.choice(CS[:-1])), int(rng.integers(2))
        p = rng.random(m) * 10 ** rng.uniform(-2, 2, m) + 1e-3
        got = ens(Z if axis == 0 else np.ascontiguousarray(Z.T), c, axis=axis, weights=p)
        bound = 1e-13 if dtype == np.float64 else 2e-7
        assert error(got, reference(Z, c, p), Z) <= bound, (m, n, c, axis)
    np.testing.assert_array_equal(ens(Z, 0.5, weights=np.full(m, 7.0)), ens(Z, 0.5))


@given(
    arrays(
        float,
        st.tuples(st.integers(1, 45), st.integers(1, 10)),
        elements=st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.1]), st.floats(-1e6, 1e6)),
    ),
    st.one_of(st.sampled_from(CS), st.floats(0, 1e3)),
)
@settings(max_examples=10 if FEW else 200)
def test_properties(Z, c):
    w = ens(Z, c)
    assert error(w, reference(Z, c), Z) <= 1e-15
    assert (Z.min(axis=0) <= w).all() and (w <= Z.max(axis=0)).all()
    np.testing.assert_array_equal(ens(np.ascontiguousarray(Z[:, ::-1]), c), w[::-1])


@pytest.mark.parametrize("m", [1, 2, 3, 10, 33, 100, 1001])
@pytest.mark.parametrize("value", [0.1, -1 / 3, 1e307, 5e-324])
@pytest.mark.parametrize("c", [0.0, 1e-20, 0.5, 1e6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_uploads_are_returned_exactly(m, value, c, dtype):
    if dtype == np.float32:
        value = np.clip(value, -1e38, 1e38)
    Z = np.full((min(m, 65) if FEW else m, 9), value, dtype)
    np.testing.assert_array_equal(ens(Z, c), Z[0])


@pytest.mark.parametrize("m", [1000] if FEW else [1000, 100_000])
def test_many_clients(m, rng):
    Z = rng.lognormal(0, 2, (m, 9))
    for c in (1e-3, 0.5, 1e3):
        assert error(ens(Z, c), reference(Z, c), Z) <= 1e-15
    single = Z.astype(np.float32)
    assert error(ens(single, 0.5), reference(single, 0.5), single) <= 2e-7


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [10, 70])
def test_a_coordinate_depends_on_nothing_but_itself(m, dtype, rng, monkeypatch):
    """Same bits for any threads, chunks, order and neighbours."""
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    n = 37 if FEW else 133
    Z = SHAPES["cauchy"](rng, (m, n)).astype(dtype)
    for c in (0.1, 50.0):
        w = ens(Z, c)
        for threads in (1, 2):
            np.testing.assert_array_equal(ens(Z, c, threads=threads), w)
            other = ens(np.ascontiguousarray(Z.T), c, axis=1, threads=threads)
            np.testing.assert_array_equal(other, w)
        for size in (1, 5, 16, 50):
            chunks = [ens(Z[:, j : j + size], c) for j in range(0, n, size)]
            np.testing.assert_array_equal(np.concatenate(chunks), w)
        order = rng.permutation(n)
        np.testing.assert_array_equal(ens(Z[:, order], c), w[order])


def test_more_clients_than_float32_counts(rng, monkeypatch):
    monkeypatch.setattr(module, "MOST_SINGLE", 39)
    Z = rng.normal(size=(40, 30)).astype(np.float32)
    for axis, z in ((0, Z), (1, np.ascontiguousarray(Z.T))):
        w = ens(z, 0.5, axis=axis)
        np.testing.assert_array_equal(w, ens(Z.astype(float), 0.5).astype(np.float32))


@pytest.mark.parametrize("numbers", [1, 400, 1000, 1 << 19])  # blocks of 8, 8, 24 and all columns
def test_weighted_float32_is_float64_rounded(numbers, rng, monkeypatch):
    """Whatever the blocks, the threads that share them, the layout, and c."""
    monkeypatch.setattr(module, "_DOUBLES", numbers)
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    m = 40
    p = rng.uniform(1.0, 5.0, m)
    for n in (1, 8, 9, 61):
        Z = (rng.standard_cauchy((m, n)) * 1e30).astype(np.float32)
        for c in (0.0, 1e30, 1e39, 1e308):
            want = ens(Z.astype(float), c, weights=p).astype(np.float32)
            for z, axis in ((Z, 0), (np.asfortranarray(Z), 0), (np.ascontiguousarray(Z.T), 1)):
                for threads in (1, 2):
                    got = ens(z, c, axis=axis, weights=p, threads=threads)
                    np.testing.assert_array_equal(got, want)
        Z[3, n - 1] = np.nan
        for threads in (1, 2):
            with pytest.raises(ValueError, match=rf"z must be .*nan at index \(3, {n - 1}\)"):
                ens(Z, 1.0, weights=p, threads=threads)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("m", "row", "offset", "alike"),
    [
        (40, 1 << 12, 16, True),  # a multiple of a page, and vectors that straddle two lines
        (40, 3 << 12, 16, True),
        (40, 1 << 12, 0, False),
        (64, 1 << 17, 0, True),  # a way of the second cache
        (63, 1 << 17, 0, False),
        (64, (1 << 17) - 120, 0, True),
        (64, (1 << 17) + 128, 8, True),
        (64, (1 << 17) + 136, 8, False),
        (40, 1000, 16, False),
    ],
)
def test_rows_that_lie_alike(m, row, offset, alike, dtype, rng, monkeypatch):
    """They are read several groups at a time; the bits are those of any other distance."""
    monkeypatch.setattr(module, "PARALLEL_FROM", 0)
    n = row // np.dtype(dtype).itemsize
    few = min(n, 1000)
    memory = np.empty(m * n + 64, dtype)
    start = (-memory.ctypes.data % 64 + offset) // memory.itemsize
    Z = memory[start : start + m * n].reshape(m, n)
    Z[:] = rng.standard_cauchy(Z.shape)
    assert module._lie_alike(Z) == alike
    if FEW and row != 1 << 12:
        return
    for c in (0.1, 50.0):
        w = ens(Z, c)
        other = ens(np.ascontiguousarray(Z.T), c, axis=-1)
        np.testing.assert_array_equal(w, other)
    np.testing.assert_array_equal(ens(Z, c, threads=2), w)
    assert error(w[:few], reference(Z[:, :few], c), Z[:, :few]) <= 10 * np.finfo(dtype).eps


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("m", [1, 3, 33, 100, 512, 513, 1000, 1025, 2049, 5000])
def test_what_is_asked_for_ahead(m, width):
    """Every line of the next panel is asked for once, while the groups of this one are solved."""
    log2_panel, lines_ahead = (
        getattr(f, "py_func", f) for f in (passes.log2_panel, passes.lines_ahead)
    )
    n = 40 * width + 3
    log2 = log2_panel(m, n, width)
    groups = 1 << log2
    assert groups == 1 or m * groups <= passes.PANEL_LINES
    for panel in range(2):
        asked = []
        for group in range(panel * groups, (panel + 1) * groups):
            line, end, *rows = lines_ahead(group, m, n, width, log2)
            assert rows == [((panel + 1) * groups + 1) * width, n, log2]
            asked += range(line, end)
        assert asked == list(range(m * groups))
    assert lines_ahead(40, m, n, width, log2) == passes.NOTHING_AHEAD
    assert log2_panel(m, width - 1, width) == 0


@pytest.mark.parametrize(("m", "n"), [(40, 700), (600, 300), (1100, 150), (2100, 90)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_panels(m, n, dtype, rng):
    """The bits do not depend on how much of a row is asked for at a time."""
    if FEW:
        m, n = m // 10, n // 10
    Z = rng.standard_cauchy((m, n)).astype(dtype)
    for c in (0.5,) if FEW else (1e-3, 0.5, 1e3):
        for weights in (None, rng.uniform(1, 2, m)):
            w = ens(Z, c, weights=weights)
            other = ens(np.ascontiguousarray(Z.T), c, axis=1, weights=weights)
            np.testing.assert_array_equal(w, other)
            each = [ens(Z[:, j : j + 1], c, weights=weights)[0] for j in (0, n // 2, n - 1)]
            np.testing.assert_array_equal(w[[0, n // 2, n - 1]], each)


def test_strided_integer_and_readonly_input(rng):
    Z = rng.normal(size=(40, 30))
    w = ens(Z, 0.4)
    np.testing.assert_array_equal(ens(np.asfortranarray(Z), 0.4), w)
    np.testing.assert_array_equal(ens(np.repeat(Z, 2, axis=1)[:, ::2], 0.4), w)
    np.testing.assert_array_equal(ens(Z.tolist(), 0.4), w)
    Z.setflags(write=False)
    np.testing.assert_array_equal(ens(Z, 0.4), w)
    counts = rng.integers(0, 9, (40, 30))
    np.testing.assert_array_equal(ens(counts, 0.4), ens(counts.astype(float), 0.4))
    assert ens(np.empty((3, 0)), 1.0).shape == (0,)


def test_out(rng):
    Z = rng.normal(size=(40, 30))
    out = np.empty(30)
    assert ens(Z, 0.4, out=out) is out
    np.testing.assert_array_equal(out, ens(Z, 0.4))


def test_sums_that_overflow(rng):
    Z = rng.uniform(0.5e308, 1.5e308, (50, 9))
    Z[:, 3] = 1.0
    for z, axis in ((Z, 0), (np.ascontiguousarray(Z.T), 1)):
        w = ens(z, 1e307, axis=axis)
        np.testing.assert_allclose(w, 8 * reference(Z / 8, 1e307 / 8), rtol=1e-14)
    few = np.ascontiguousarray(Z[:5])
    np.testing.assert_allclose(ens(few, 0.0), 8 * (few / 8).mean(axis=0), rtol=1e-14)


def exactly(z, c, p):
    """One coordinate in rational numbers."""
    z, p, c = [Fraction(float(v)) for v in z], [Fraction(float(v)) for v in p], Fraction(c)
    total = sum(p)
    mean, above = sum(a * b for a, b in zip(z, p, strict=True)) / total, Fraction(0)
    w = mean - c
    for i in sorted(range(len(z)), key=lambda i: -z[i]):
        above += p[i]
        w = max(w, min(mean + c * (2 * above / total - 1), z[i]))
    return w


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_at_the_edge_of_the_range(dtype, weighted, rng):
    largest = float(np.finfo(dtype).max)
    for _ in range(CASES):
        m, n = int(rng.choice(MS[:10])), int(rng.choice(NS[:6]))
        Z = SHAPES[str(rng.choice(["uniform", "zeros", "ties"]))](rng, (m, n))
        size = np.abs(Z).max() or 1.0  # all may be zero
        Z = (Z / size * largest * rng.choice([1, 0.3, 1e-3, 1e-9])).astype(dtype)
        c = largest * float(rng.choice([1e-3, 0.2, 0.25, 0.26, 0.9, 1.0]))
        p = rng.random(m) + 0.01 if weighted else np.ones(m)
        p *= float(rng.choice([1e-300, 1.0, 1e308]))
        given = p if weighted else None
        found = {axis: ens(z, c, axis=axis, weights=given)
                 for axis, z in ((0, Z), (1, np.ascontiguousarray(Z.T)))}  # fmt: skip
        np.testing.assert_array_equal(found[0], found[1])
        if dtype == np.float64:
            found[2] = ens_blocks(Z, c, weights=given, block_rows=7)
        bound = Fraction(1e-12 if dtype == np.float64 else 3e-7)
        for w in found.values():
            for j in range(n):
                assert np.isfinite(w[j]), (m, n, c)
                size = max(abs(Fraction(float(v))) for v in Z[:, j])
                assert abs(Fraction(float(w[j])) - exactly(Z[:, j], c, p)) <= bound * size


def test_c_beyond_a_quarter_of_the_largest_float():
    z = np.array([[1e38], [-1e38], [-1e38]], np.float32)
    np.testing.assert_allclose(ens(z, 9e37), -6.3333333e37, rtol=1e-6)
    huge = np.array([[1e308], [-1e308], [-1e308]])
    for found in (ens(huge, 9e307), ens_blocks(huge, 9e307)):
        np.testing.assert_allclose(found, -1e308 / 3 - 3e307, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("n", [3, 20])
def test_a_zero_is_positive_everywhere(m, n, dtype):
    for Z in (np.full((m, n), -0.0, dtype), np.zeros((m, n), dtype)):
        p = np.arange(1.0, m + 1)
        found = [ens(Z, 0.5), ens(np.ascontiguousarray(Z.T), 0.5, axis=1), ens(Z, 0.5, weights=p)]
        found += [ens(Z, 0.0), reference(Z, 0.5), reference(Z, 0.5, p), ens_blocks(Z, 0.5)]
        for w in found:
            np.testing.assert_array_equal(np.signbit(w), False)
            np.testing.assert_array_equal(w, 0.0)


def test_raw_functions_inside_other_compiled_code(rng):
    import numba

    @numba.njit
    def two_rounds(z, c, out):
        m, n = z.shape
        groups = (n + group_size(z) - 1) // group_size(z)
        buffer = ens_buffer(z, m)
        for _ in range(2):
            finite = ens_columns(z, c, None, float(m), 1.0, 0, groups, out, buffer)
        return finite

    Z, out = rng.normal(size=(40, 30)), np.empty(30)
    assert two_rounds(Z, 0.4, out)
    np.testing.assert_array_equal(out, ens(Z, 0.4))
    Z[3, 4] = np.nan
    assert not two_rounds(Z, 0.4, out)


GOOD = np.ones((40, 30))


@pytest.mark.parametrize(
    ("arguments", "error_type", "message"),
    [
        ({"z": GOOD[0]}, ValueError, "z must have 2 dimension"),
        ({"z": np.empty((0, 3))}, ValueError, "z must hold at least one client"),
        ({"z": GOOD + 1j}, TypeError, "z must be float64 or float32, got dtype complex128"),
        ({"z": GOOD.astype(np.float16)}, TypeError, "z must be float64 or float32"),
        ({"z": [[1, 2], [3]]}, TypeError, "numbers, got list whose rows differ in length"),
        ({"z": ([1, 2], 3)}, TypeError, "numbers, got tuple whose rows differ in length"),
        ({"z": [["a"]]}, TypeError, "z must be float64 or float32"),
        ({"c": -1.0}, ValueError, r"c must be a finite number in \[0, inf\)"),
        ({"c": np.nan}, ValueError, "c must be a finite number"),
        ({"c": "much"}, TypeError, "c must be a finite number"),
        ({"axis": 2}, ValueError, "axis must be 0 or 1"),
        ({"axis": -3}, ValueError, "axis must be 0 or 1"),
        ({"axis": None}, ValueError, "axis must be 0 or 1"),
        ({"weights": np.ones(39)}, ValueError, r"weights must have shape \(40,\)"),
        ({"weights": np.zeros(40)}, ValueError, "weights must be positive"),
        ({"weights": np.full(40, np.inf)}, ValueError, "weights must be finite"),
        ({"out": np.empty(29)}, ValueError, r"out must have shape \(30,\)"),
        ({"out": np.empty(30, np.float32)}, TypeError, "out must be an array of dtype float64"),
        ({"out": [0.0] * 30}, TypeError, "out must be an array"),
        ({"out": np.empty(60)[::2]}, ValueError, "out must be C-contiguous"),
        ({"out": GOOD[0]}, ValueError, "out must not overlap the input"),
        ({"threads": 0}, ValueError, "threads must be an integer >= 1"),
        ({"threads": 1.5}, TypeError, "threads must be an integer"),
    ],
)
def test_bad_input(arguments, error_type, message):
    with pytest.raises(error_type, match=message) as caught:
        ens(**{"z": GOOD, "c": 1.0} | arguments)
    assert isinstance(caught.value, ArgumentError)
    assert str(caught.value).startswith(caught.value.argument)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [3, 40])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_number_that_is_not_finite_is_named(value, m, axis):
    Z = np.ones((m, 30))
    Z[1, 17] = value
    where = r"\(1, 17\)" if axis == 0 else r"\(17, 1\)"
    with pytest.raises(ValueError, match=f"z must be finite, got .* at index {where}"):
        ens(Z if axis == 0 else np.ascontiguousarray(Z.T), 0.5, axis=axis)


# Blocks of rows -------------------------------------------------------------------------


@pytest.mark.parametrize("shape", list(SHAPES)[:9])
def test_blocks_equal_the_reference(shape, rng):
    for _ in range(3 if FEW else 60):
        m, n = int(rng.choice(MS[:9])), int(rng.choice(NS))
        Z, c = SHAPES[shape](rng, (m, n)), float(rng.choice(CS))
        p = None if rng.random() < 0.6 else rng.random(m) + 0.1
        got = ens_blocks(Z, c, weights=p, block_rows=int(rng.integers(1, m + 1)))
        assert error(got, reference(Z, c, p), Z) <= (1e-15 if p is None else 1e-13)


@pytest.mark.parametrize("shape", list(SHAPES)[:9])
def test_counts_alone_give_the_solution(shape, rng):
    for _ in range(2 if FEW else 30):
        m, n = int(rng.choice(MS[:9])), int(rng.choice(NS))
        Z, c = SHAPES[shape](rng, (m, n)), float(rng.choice(CS))
        search = EnsSearch(Z.sum(axis=0), m, c)
        questions = 0
        while not search.done:
            search.update((search.point < Z).sum(axis=0))
            questions += 1
        assert questions <= 71
        assert error(search.solution, reference(Z, c), Z) <= 2e-15


def above_of(Z, t, p=None):
    return (np.ones(len(Z)) if p is None else p) @ (t < Z)


def search_of(Z, c, p=None, squares=None):
    if p is None:
        return EnsSearch(Z.sum(axis=0), len(Z), c, squares=squares)
    return EnsSearch(p @ Z, p.sum(), c, smallest=p.min(), squares=squares)


def answer(search, Z, p=None, neighbours=False):
    """All that `update` can be told."""
    t = search.point
    if not neighbours:
        return (above_of(Z, t, p),)
    low, high = np.where(t < Z, -np.inf, Z), np.where(t < Z, Z, np.inf)
    return above_of(Z, t, p), low.max(axis=0), high.min(axis=0)


def test_the_number_of_answers_is_as_the_docs_say(rng):
    Z = rng.normal(size=(100, 50 if FEW else 2000))
    for c, counts, neighbours in ((0.0, 1, 1), (0.5, 71, 10), (1e9, 71, 10)):
        for squares in (None, (Z * Z).sum(axis=0)):
            for known, most in ((False, counts), (True, neighbours)):
                search, asked = search_of(Z, c, squares=squares), 0
                while not search.done:
                    search.update(*answer(search, Z, neighbours=known))
                    asked += 1
                assert asked <= most
                np.testing.assert_allclose(search.solution, ens(Z, c), rtol=0, atol=1e-15)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("step", [0, 1, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 101.0, 0.5, 1e300])
def test_what_cannot_be_a_count_is_refused(bad, step, neighbours, weighted, rng):
    Z = rng.normal(size=(100, 30))
    p = rng.permutation(np.linspace(0.9, 1.1, 100)) if weighted else None
    search = search_of(Z, 0.5, p)
    for _ in range(step):
        search.update(*answer(search, Z, p, neighbours))
    point = search.point.copy()
    above, *rest = answer(search, Z, p, neighbours)
    wrong = above.copy()
    wrong[17] = bad
    rule = "0, 100.* or from 0.9 to 99.1.*" if weighted else "a whole number from 0 to 100"
    rule = f"^above must be {rule}, got {re.escape(str(bad))} at index 17$"
    with pytest.raises(ValueError, match=rule):
        search.update(wrong, *rest)
    # Nothing has happened: it may be answered again, and is right in the end.
    np.testing.assert_array_equal(search.point, point)
    while not search.done:
        search.update(*answer(search, Z, p, neighbours))
    np.testing.assert_allclose(search.solution, ens(Z, 0.5, weights=p), rtol=0, atol=1e-14)


@pytest.mark.parametrize("always", [-1, 101, np.nan])
def test_a_constant_that_is_no_count_is_refused_at_once(always):
    search = EnsSearch(np.zeros(3), 100, 0.5)
    with pytest.raises(ValueError, match=r"^above must be a whole number from 0 to 100, got"):
        search.update(np.full(3, always))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("c", [0.5, 1e9])
def test_a_client_that_drops_out_midway_is_found(c, neighbours, weighted, rng):
    Z = rng.normal(size=(100, 500))
    p = rng.permutation(np.linspace(0.5, 1.5, 100)) if weighted else None
    search = search_of(Z, c, p)
    for _ in range(2):
        search.update(*answer(search, Z, p, neighbours))
    left, q = Z[1:], None if p is None else p[1:]
    found = "above is inconsistent with earlier answers: did a client "
    if neighbours:  # its number may have been one
        found = f"{found}|below must be at most point, and -inf where all are above"
    with pytest.raises(ValueError, match=found):
        while not search.done:
            search.update(*answer(search, left, q, neighbours))
    # With all of them back it goes on.
    while not search.done:
        search.update(*answer(search, Z, p, neighbours))
    np.testing.assert_allclose(search.solution, ens(Z, c, weights=p), rtol=0, atol=1e-14)


def test_counts_that_rise_with_the_point_are_refused():
    Z = np.arange(10.0)[:, None]
    search = search_of(Z, 0.01)
    search.update(above_of(Z, search.point))
    for wrong in (10, 0):
        last = EnsSearch(Z.sum(axis=0), 10, 0.01)
        last.update([5])
        last.update([wrong])  # at any one other point these may be
    while not search.done:
        low, high = search._bracket[3][0], search._bracket[2][0]
        for wrong in (low - 1, high + 1):
            if 0 <= wrong <= 10:
                with pytest.raises(ValueError, match=r"^above is inconsistent with earlier"):
                    search.update([wrong])
        search.update(above_of(Z, search.point))
    np.testing.assert_allclose(search.solution, ens(Z, 0.01), rtol=1e-15)


@pytest.mark.parametrize(
    ("below", "next_above", "message"),
    [
        (np.nan, 3.0, "below must be at most point"),
        (2.0, np.nan, "next_above must be above point"),
        (2.5, 3.0, "below must be at most point"),
        (1.0, 1.5, "next_above must be above point"),
        (np.inf, 3.0, "below must be at most point"),
        (-np.inf, 3.0, "below must be at most point, and -inf where all are above"),
        (1.0, np.inf, "next_above must be above point, and inf where none are"),
    ],
)
def test_what_are_no_neighbours_is_refused(below, next_above, message):
    search = EnsSearch([8.0], 4, 0.1)  # the point is 2
    with pytest.raises(ValueError, match=f"^{message}.*at index 0"):
        search.update([2], [below], [next_above])


def test_neighbours_that_contradict_earlier_ones_are_refused(rng):
    Z = rng.normal(size=(20, 1))
    search = search_of(Z, 1e9)
    search.update(*answer(search, Z, neighbours=True))
    above, low, high = answer(search, Z, neighbours=True)
    with pytest.raises(ValueError, match=r"^(below|next_above) is inconsistent with earlier"):
        search.update(above, low - 10, high + 10)


def test_rounding_of_weighted_sums_is_no_contradiction(rng):
    """Sums of weights in any order, and of weights beside which others vanish."""
    for _ in range(5 if FEW else 100):
        m = int(rng.integers(1, 60))
        Z = rng.choice([-1.0, 0.0, 0.5, 3.0], (m, 9)) + (rng.random() < 0.5) * rng.random((m, 9))
        p = rng.random(m) ** 30 + 1e-300
        for neighbours in (False, True):
            c = float(rng.choice(CS))
            search = search_of(Z, c, p)
            while not search.done:
                order = rng.permutation(m)
                search.update(*answer(search, Z[order], p[order], neighbours))
            np.testing.assert_allclose(search.solution, ens(Z, c, weights=p), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"total": 2.5}, "total must be the number of clients, unless smallest"),
        ({"smallest": 5.0}, "smallest must be at most total = 4.0, got 5.0"),
        ({"smallest": 0.0}, r"smallest must be a finite number in \(0, inf\)"),
        ({"squares": [-1.0, 1.0]}, "squares must be at least 0, got -1.0 at index 0"),
        ({"squares": [1.0, np.nan]}, "squares must be at least 0, got nan at index 1"),
        ({"sums": [0.0, np.inf]}, "sums must be finite"),
    ],
)
def test_a_search_checks_what_it_begins_with(given, message):
    with pytest.raises(ValueError, match=message):
        EnsSearch(**{"sums": [1.0, 2.0], "total": 4.0, "c": 0.5} | given)


def test_rows_that_change_between_readings_are_refused(rng):
    with pytest.raises(ValueError, match=r"^source must give the same rows each time: "):
        ens_blocks(lambda: iter([rng.normal(size=(40, 50))]), 0.5)


def test_sources(rng, tmp_path):
    Z = rng.normal(size=(50, 21))
    want = ens_blocks(Z, 0.5)
    np.testing.assert_allclose(want, reference(Z, 0.5), rtol=1e-14)
    mapped = np.memmap(tmp_path / "z", dtype=np.float64, mode="w+", shape=Z.shape)
    mapped[:] = Z
    shards = [Z[:7], Z[7:8], Z[8:]]
    rows = [list(Z), Z.tolist(), tuple(map(tuple, Z.tolist())), [Z[:7].tolist(), Z[7:]]]
    for source in (
        mapped, shards, tuple(shards), lambda: iter(shards), np.asfortranarray(Z), *rows,
    ):  # fmt: skip
        np.testing.assert_array_equal(ens_blocks(source, 0.5, block_rows=11), want)
    single = Z.astype(np.float32)
    np.testing.assert_allclose(
        ens_blocks([single[:9], single[9:]], 0.5), reference(single.astype(float), 0.5), rtol=1e-14
    )
    assert ens_blocks(single, 0.5).dtype == np.float64
    out = np.empty(21)
    assert ens_blocks(Z, 0.5, out=out) is out
    np.testing.assert_array_equal(out, want)
    # Weights are whatever ratios they are, to the least of floats.
    p = np.where(np.arange(50) < 3, 1e300, 1e-300)
    np.testing.assert_allclose(ens_blocks(Z, 0.5, weights=p), ens(Z, 0.5, weights=p), rtol=1e-12)


def test_bad_blocks(rng):
    Z = rng.normal(size=(6, 3))
    with pytest.raises(ValueError, match=r"source must be finite, got nan at index \(0, 1\)"):
        ens_blocks(np.where(np.arange(3) == 1, np.nan, Z), 1.0)
    with pytest.raises(ValueError, match="rows of one length: 3 at first, 2 at row 6"):
        ens_blocks([Z, Z[:, :2]], 1.0)
    with pytest.raises(ValueError, match="source must hold at least one row"):
        ens_blocks([], 1.0)
    with pytest.raises(TypeError, match="source must be an array, a list of rows"):
        ens_blocks(3, 1.0)
    with pytest.raises(ValueError, match="source must have 2 dimensions"):
        ens_blocks(Z[0], 1.0)
    with pytest.raises(ValueError, match=r"weights must have shape \(6,\)"):
        ens_blocks(Z, 1.0, weights=np.ones(7))
    with pytest.raises(ValueError, match="weights must cover every row, got 5"):
        ens_blocks(Z, 1.0, weights=np.ones(5))
    with pytest.raises(ValueError, match="weights must be positive"):
        ens_blocks(Z, 1.0, weights=-np.ones(6))
    sources = iter([[Z], [Z[:5]]])
    with pytest.raises(ValueError, match="the same rows each time: 6 at first, then 5"):
        ens_blocks(lambda: next(sources), 1.0)
    search = EnsSearch(Z.sum(axis=0), 6, 0.5)
    with pytest.raises(RuntimeError, match="the search is not done"):
        search.solution  # noqa: B018
    with pytest.raises(ValueError, match="below and next_above go together"):
        search.update(np.zeros(3), below=np.zeros(3))


@pytest.mark.parametrize("numbers", [
    [-15e-324, -5e-324, -0.0, 0.0, 5e-324, 10e-324],
    [-0.0, 0.0, -5e-324, 1.0, -1e6, 1e-310, 0.1],
    [0.0, 1e300, -1e300, 5e-324, -0.0],
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zeros_of_either_sign_and_subnormal_numbers_end_the_search(numbers, dtype, rng):
    """Bits differ where floats do not, and halves of the least numbers are zero."""
    numbers = np.clip(np.array(numbers), -1e38, 1e38) if dtype == np.float32 else np.array(numbers)
    for _ in range(5 if FEW else 300):
        m, n = int(rng.integers(1, 50)), int(rng.integers(1, 12))
        Z = rng.choice(numbers.astype(dtype), (m, n))
        c = float(rng.choice([0, 5e-324, 1e-320, 1e-300, 1e-20, 0.1, 1.0, 1e3, 1e300]))
        bound = (1e-15 if dtype == np.float64 else 2e-7) * max(np.abs(Z).max(), 1e-300)
        assert np.abs(ens(Z, c).astype(float) - reference(Z, c)).max() <= bound
        assert np.abs(ens_blocks(Z, c) - reference(Z.astype(float), c)).max() <= bound
