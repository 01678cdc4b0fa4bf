"""Coordinates against dense linear algebra."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, a_problem
from scipy import sparse

from fedepm_fast import FederatedData, Logistic, Problem
from fedepm_fast.algorithms._coordinates import FLOOR, KINDS, RANK, Coordinates, coordinates_of

seeds = st.integers(0, 2**32 - 1)


def a_matrix(rng, size: int, rank: int, decades: float) -> np.ndarray:
    """Positive semidefinite, of that rank, with columns of scales that differ by so much."""
    rows = rng.normal(size=(rank, size)) * 10.0 ** rng.uniform(-decades / 2, decades / 2, size)
    return rows.T @ rows


def made(kind: str, matrix: np.ndarray, copies: int = 1) -> Coordinates:
    if kind == "identity":
        return Coordinates.identity(np.linalg.eigvalsh(matrix)[-1], len(matrix), copies)
    if kind == "columns":
        diagonal = np.diagonal(matrix)
        scale = np.sqrt(np.where(diagonal > 0, diagonal, 1))
        top = np.linalg.eigvalsh(matrix / scale / scale[:, None])[-1]
        return Coordinates.columns(diagonal * top * (1 + 1e-12), copies)
    if kind == "dense":
        return Coordinates.dense(matrix, copies)
    return Coordinates.truncated(lambda v: matrix @ v, np.diagonal(matrix), rank=3, copies=copies)


def even(matrix: np.ndarray, by: np.ndarray) -> np.ndarray:
    """`matrix` in the scale in which the diagonal of `by` is 1."""
    diagonal = np.diagonal(by)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    return matrix / scale / scale[:, None]


@settings(max_examples=60)
@given(
    seed=seeds,
    kind=st.sampled_from(KINDS),
    size=st.integers(1, 12),
    rank=st.integers(1, 12),
    decades=st.sampled_from([0.0, 6.0, 12.0]),
    copies=st.integers(1, 3),
)
def test_products_agree_and_the_matrix_is_bounded(seed, kind, size, rank, decades, copies):
    rng = np.random.default_rng(seed)
    matrix = a_matrix(rng, size, rank, decades)
    found = made(kind, matrix, copies)
    n = copies * size
    assert found.n == n and found.copies == copies and found.kind == kind
    R, M = found.to(np.eye(n)).T, found.apply(np.eye(n))
    # In the scale of the columns everything is of size 1.
    d = np.sqrt(np.tile(np.where(np.diagonal(matrix) > 0, np.diagonal(matrix), 1), copies))
    M_even = M / d / d[:, None]
    top = np.abs(M_even).max()
    np.testing.assert_allclose((R / d).T @ (R / d), M_even, atol=1e-12 * top)
    # It is at least the matrix, and "dense" no more than that and its floor.
    whole = np.kron(np.eye(copies), matrix)
    above = np.linalg.eigvalsh((M - whole) / d / d[:, None])
    assert above[0] > -1e-11 * top
    if kind == "dense":
        assert above[-1] < 2 * FLOOR * size
    # Inverses undo, rows are vectors one by one, and pull is the adjoint of back.
    v = rng.normal(size=(4, n))
    for product, inverse in ((found.to, found.back), (found.apply, found.solve)):
        # Digits that a singular matrix leaves: in M half of what there are in R.
        atol = 1e-8 if product == found.to else 1e-4
        np.testing.assert_allclose(inverse(product(v / d)) * d, v, atol=atol)
        np.testing.assert_allclose(product(v)[2], product(v[2]), rtol=1e-9, atol=1e-12 * top)
    g = rng.normal(size=(4, n)) * d
    inside = np.einsum("sj,sj->s", found.pull(g), found.to(v / d))
    np.testing.assert_allclose(inside, np.einsum("sj,sj->s", g, v / d), atol=1e-7)
    assert found.pull(g).flags.c_contiguous and found.back(g).shape == (4, n)


@settings(max_examples=40)
@given(
    seed=seeds,
    decades=st.sampled_from([0.0, 6.0]),
    multiple=st.integers(1, 5),
    size=st.sampled_from([40, 300]),
)
def test_truncated_keeps_leading_directions_and_bounds_the_rest(seed, decades, multiple, size):
    """Whatever the spectrum: with eigenvalues that are there several times, or none but a few."""
    rng = np.random.default_rng(seed)
    values = np.repeat(10.0 ** -np.arange(8), multiple)
    directions = np.linalg.qr(rng.normal(size=(size, len(values))))[0]
    matrix = (directions * values) @ directions.T
    columns = 10.0 ** rng.uniform(-decades / 2, decades / 2, size)
    matrix *= columns * columns[:, None]
    asked = []

    def product(v):
        asked.append(v.size)
        return matrix @ v

    found = Coordinates.truncated(product, np.diagonal(matrix), rank=6)
    M, exact = even(found.apply(np.eye(size)), matrix), even(matrix, matrix)
    largest, vectors = np.linalg.eigh(exact)
    assert np.linalg.eigvalsh(M - exact)[0] > -1e-9 * largest[-1]
    kept = vectors[:, largest > largest[-7] * 1.2]  # apart from the rest
    np.testing.assert_allclose(M @ kept, exact @ kept, atol=1e-5 * largest[-1])
    assert np.linalg.eigvalsh(M)[0] <= 1.12 * max(largest[-7], 1e-9 * largest[-1])
    assert found.directions.shape[1] <= 6 and found.sent == sum(asked) + size


def test_what_clients_send():
    matrix = a_matrix(np.random.default_rng(0), 7, 9, 2.0)
    assert [made(kind, matrix).sent for kind in KINDS[:3]] == [1, 7, 28]


def test_nothing_but_zeros_is_the_identity():
    for kind in KINDS:
        found = made(kind, np.zeros((5, 5)))
        np.testing.assert_allclose(found.apply(np.ones(5)), np.ones(5), rtol=1e-9)
    part = np.zeros((4, 4))
    part[1:3, 1:3] = [[4.0, 1.0], [1.0, 9.0]]
    np.testing.assert_allclose(
        Coordinates.dense(part).apply(np.eye(4)),
        part + np.diag([1.0, 0.0, 0.0, 1.0]),
        atol=1e-8,
    )


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_coordinates_of_a_problem(name, kind, is_sparse):
    problem = a_problem(name, is_sparse=is_sparse)
    problem = Problem(problem.data, problem.objective, "size")
    if not problem.has_lipschitz:
        with pytest.raises(ValueError, match="nothing bounds its second derivative"):
            coordinates_of(problem, kind)
        return
    found = coordinates_of(problem, kind, rank=2)
    bound = problem.bound_hessian() / problem.n_clients
    M = found.apply(np.eye(found.n))
    assert np.linalg.eigvalsh(M - bound)[0] > -1e-9
    # Tight: less of it would be too little.
    inverse = np.linalg.inv(np.linalg.cholesky(M))
    ratio = np.linalg.eigvalsh(inverse @ bound @ inverse.T)[-1]
    assert 0.98 < ratio < 1 + 1e-8
    assert found.sent > 0


def test_wide_sparse_rows_are_never_dense():
    """20,000 columns of text: a matrix of them would take 3 GB."""
    rng = np.random.default_rng(2)
    features = sparse.random_array((300, 20_000), density=0.005, rng=rng, format="csr")
    intercept = sparse.csr_array(np.ones((300, 1)))
    held = sparse.hstack([features, intercept], format="csr")
    data = FederatedData(held, rng.integers(0, 2, 300), [100] * 3)
    problem = Problem(data, Logistic(1e-3, "beta", weights=(1.0,) * 20_000 + (0.0,)))
    v = rng.normal(size=20_001)
    for kind in ("identity", "columns", "truncated"):
        found = coordinates_of(problem, kind)
        bound = problem.bound_product(v) / 3
        assert v @ bound <= v @ found.apply(v) * (1 + 1e-12)
        np.testing.assert_allclose(found.solve(found.apply(v)), v, rtol=1e-9)
    assert found.directions.shape[1] <= RANK and found.sent < 160 * found.n


def test_state_comes_back():
    matrix = a_matrix(np.random.default_rng(0), 6, 9, 2.0)
    g = np.arange(6.0)
    for kind in KINDS:
        found = made(kind, matrix)
        for back in (
            Coordinates.from_state(found.state()),
            pickle.loads(pickle.dumps(found)),
        ):
            np.testing.assert_array_equal(back.solve(g), found.solve(g))
            assert back.kind == kind and back.sent == found.sent


def test_bad_arguments():
    with pytest.raises(ValueError, match="matrix must be square"):
        Coordinates.dense(np.ones((2, 3)))
    with pytest.raises(ValueError, match="matrix must be positive semidefinite"):
        Coordinates.dense([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="matrix must be finite"):
        Coordinates.dense([[np.nan]])
    with pytest.raises(ValueError, match="diagonal must hold numbers of at least 0, got -1"):
        Coordinates.columns([1.0, -1.0])
    with pytest.raises(ValueError, match="curvature must be"):
        Coordinates.identity(-1.0, 3)
    with pytest.raises(ValueError, match="rank must be an integer >= 1"):
        Coordinates.truncated(lambda v: v, np.ones(9), rank=0)
    with pytest.raises(ValueError, match="product must give finite numbers"):
        Coordinates.truncated(lambda v: v * np.nan, np.ones(9), rank=8)
    with pytest.raises(ValueError, match=r"v must have shape \(3,\) or \(any, 3\), got \(2,\)"):
        Coordinates.identity(1.0, 3).to(np.ones(2))
    problem = a_problem("logistic")
    with pytest.raises(ValueError, match="kind must be one of 'identity', 'columns', 'dense'"):
        coordinates_of(problem, "whole")
