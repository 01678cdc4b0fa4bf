"""Second derivatives of clients' objectives, and bounds of them that hold at every point.

A loss whose second derivative is at most `curvature` has a Hessian of at most ``curvature * A'WA``,
with the rows A and their weights W; of a loss with K margins a row, in every one of K diagonal
blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from ._problem import Problem

Array = NDArray[np.float64]

#: Columns up to which the largest eigenvalue is that of a matrix: of dense rows, of sparse ones.
_MATRIX_UP_TO = {False: 500, True: 50}
#: Rows or columns of a client up to which its largest eigenvalue is that of a matrix.
_GRAM_UP_TO = 128
#: Products of dense rows are so many times as fast, number by number, as those of sparse ones;
#: and so many numbers of sparse rows are made dense at a time.
_DENSE_COST, _DENSE_NUMBERS = 50.0, 1 << 18
#: Lanczos iterations end where an eigenvalue is known to this part of it.
_LANCZOS_TOLERANCE = 1e-10
#: So many numbers of dense rows are weighted at a time: 8 MB.
_BLOCK_NUMBERS = 1 << 20
#: What is added to a largest eigenvalue that a bound needs, as it is found from below.
_SLACK = 0.01


def bound_of(problem: Problem, what: str) -> float:
    """The bound of the loss's second derivative; ValueError where there is none."""
    curvature = problem.objective.curvature
    if curvature is None:
        raise ValueError(
            f"curvature is not known of the loss {problem.objective.name!r}: nothing bounds its "
            f"second derivative, so there is no {what}"
        )
    return float(curvature)


def hessian(
    problem: Problem, features: Any, labels: Array, weights: Array, reg: float, x: Array
) -> Array:
    """The Hessian at x of the rows' weighted losses and a regulariser, shape (n, n)."""
    outputs = problem.objective.n_outputs
    curvature = problem.objective.second_derivative(problem.margins(features, x), labels)
    curvature = curvature.reshape(-1, outputs, outputs)
    full = second_moments(features, curvature * weights[:, None, None])
    full[np.diag_indices(len(full))] += reg * problem.reg_weights
    return full


def second_moments(features: Any, weights: Array) -> Array:
    """Sums of rows times themselves, (K * p, K * p), for symmetric weights of shape (d, K, K).

    Rows are an array or of CSR.
    """
    p, outputs = features.shape[1], weights.shape[1]
    found = np.empty((outputs, p, outputs, p))
    pairs = [(k, h) for k in range(outputs) for h in range(k + 1)]
    products = weighted_products(features, [weights[:, k, h] for k, h in pairs])
    for (k, h), block in zip(pairs, products, strict=True):
        found[k, :, h] = found[h, :, k] = block
    return found.reshape(outputs * p, outputs * p)


def weighted_products(features: Any, weights: Sequence[Array]) -> Iterator[Array]:
    """``A' diag(w) A`` for each of the weights w (d,)."""
    if not sparse.issparse(features):
        yield from (weighted_gram(features, w) for w in weights)
        return
    d, n = features.shape
    counts = np.diff(features.indptr)
    if n * n * d > _DENSE_COST * float((counts.astype(np.float64) ** 2).sum()):
        for w in weights:
            entries = features.data * np.repeat(w, counts)
            scaled = sparse.csr_array((entries, features.indices, features.indptr), features.shape)
            yield (features.T @ scaled).toarray()
        return
    # A few rows at a time are no dense copy of the table.
    sums = np.zeros((len(weights), n, n))
    step = max(_DENSE_NUMBERS // n, 1)
    for first in range(0, d, step):
        rows = features[first : first + step].toarray()
        for total, w in zip(sums, weights, strict=True):
            total += weighted_gram(rows, w[first : first + step])
    yield from sums


def weighted_gram(a: Array, w: Array) -> Array:
    """``A' diag(w) A`` of dense rows, some of them at a time; exactly symmetric if no w < 0."""
    gram = _root_gram if (w >= 0).all() else _gram
    n = max(a.shape[1], 1)
    step = max(_BLOCK_NUMBERS // n, n)  # what is added up is as large otherwise
    found = gram(a[:step], w[:step])
    for first in range(step, len(a), step):
        found += gram(a[first : first + step], w[first : first + step])
    return found


def _gram(rows: Array, w: Array) -> Array:
    return np.asarray(rows.T @ (rows * w[:, None]))


def _root_gram(rows: Array, w: Array) -> Array:
    """Of one matrix BLAS computes a triangle, which is half of the work."""
    root = rows * np.sqrt(w)[:, None]
    return np.asarray(root.T @ root)


def packed_hessians(problem: Problem, clients: Any, x: Array) -> Array:
    """As `Problem.packed_hessians` says."""
    data, objective = problem.data, problem.objective
    found = np.empty((len(clients), len(triangle(problem.n_parameters)[0])))
    if objective.n_outputs > 1 or data.is_sparse or not len(clients):
        for row, i in enumerate(clients):
            found[row] = packed(problem.hessian(i, x))
        return found
    rows = [data.rows_of(i) for i in clients]
    margins = [problem.margins(data.features[own], x) for own in rows]
    bend = objective.second_derivative(
        np.concatenate(margins), np.concatenate([data.labels[own] for own in rows])
    )
    return _packed_grams(problem, clients, bend, found)


def packed_bounds(problem: Problem) -> Array:
    """`Problem.bound_hessian` of every client, packed, shape (m, n*(n+1)/2)."""
    m = problem.n_clients
    found = np.empty((m, len(triangle(problem.n_parameters)[0])))
    curvature = bound_of(problem, "bound of its Hessian")
    if problem.objective.n_outputs > 1 or problem.data.is_sparse:
        for i in range(m):
            found[i] = packed(problem.bound_hessian(i))
        return found
    with np.errstate(over="ignore", invalid="ignore"):
        bend = np.full(problem.n_samples, curvature)
        return _finite(_packed_grams(problem, range(m), bend, found))


def _packed_grams(problem: Problem, clients: Any, bend: Array, found: Array) -> Array:
    """``A_i'WA_i`` with weights `bend` of the clients' rows, and their regulariser's part."""
    last, n, data = 0, problem.n_parameters, problem.data
    rows, columns = triangle(n)
    diagonal, penalty = rows == columns, np.broadcast_to(problem.reg_weights, n)
    for row, i in enumerate(clients):
        own = data.rows_of(i)
        first, last = last, last + (own.stop - own.start)
        a, weights = data.features[own], bend[first:last] * problem.row_weights[own]
        found[row] = weighted_gram(a, weights)[rows, columns]
        found[row, diagonal] += problem.reg[i] * penalty
    return found


@functools.cache
def triangle(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle of an (n, n) matrix, row by row."""
    rows, columns = np.triu_indices(n)
    rows.setflags(write=False)
    columns.setflags(write=False)
    return rows, columns


def packed(matrix: Array) -> Array:
    """The upper triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[triangle(len(matrix))])


def unpacked(upper: Array, n: int) -> Array:
    """The symmetric matrix with that upper triangle."""
    full = np.empty((n, n))
    rows, columns = triangle(n)
    full[rows, columns] = full[columns, rows] = upper
    return full


def hessian_operator(problem: Problem, x: Array) -> LinearOperator:
    """Products with the Hessian of f at x, which is not formed."""
    from scipy.sparse.linalg import LinearOperator

    a, b, outputs = problem.data.features, problem.data.labels, problem.objective.n_outputs
    curvature = problem.objective.second_derivative(problem.margins(a, x), b)
    curvature = (curvature.T * problem.row_weights).T

    def product(v: Array) -> Array:
        v = v.ravel()
        along = problem.margins(a, v)
        slopes = curvature * along if outputs == 1 else np.einsum("tkh,th->tk", curvature, along)
        return problem.pull_back(a, slopes) + problem.reg.sum() * (problem.reg_weights * v)

    n = problem.n_parameters
    return LinearOperator((n, n), matvec=product, rmatvec=product, dtype=np.float64)


def bound_block(problem: Problem, i: int | None = None) -> Array:
    """One of the K equal diagonal blocks of `Problem.bound_hessian`, shape (columns, columns)."""
    curvature = bound_of(problem, "bound of its Hessian")
    rows = slice(None) if i is None else problem.data.rows_of(i)
    weights = curvature * problem.row_weights[rows]
    a = problem.data.features if i is None else problem.data.client(i)[0]
    with np.errstate(over="ignore", invalid="ignore"):
        (block,) = weighted_products(a, [weights])
    reg = problem.reg.sum() if i is None else problem.reg[i]
    block[np.diag_indices(len(block))] += reg * _column_weights(problem)
    return _finite(block)


def block_diagonal(problem: Problem) -> Array:
    """The diagonal of `bound_block`, shape (columns,)."""
    weights = bound_of(problem, "bound of its Hessian") * problem.row_weights
    a = problem.data.features
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(a):
            squares = a.multiply(a).T @ weights
        else:
            squares = np.einsum("t,tj,tj->j", weights, a, a)
        return _finite(squares + problem.reg.sum() * _column_weights(problem))


def block_operator(problem: Problem) -> LinearOperator:
    """Products with `bound_block`, which is not formed."""
    from scipy.sparse.linalg import LinearOperator

    weights = bound_of(problem, "bound of its Hessian") * problem.row_weights
    a, penalty = problem.data.features, problem.reg.sum() * _column_weights(problem)

    def product(v: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            # One vector, or several as columns.
            return _finite(a.T @ ((a @ v).T * weights).T + (v.T * penalty).T)

    n = problem.data.n_features
    return LinearOperator((n, n), matvec=product, rmatvec=product, matmat=product, dtype=np.float64)


def bound_product(problem: Problem, v: Array) -> Array:
    """The product of `Problem.bound_hessian` with v, which is not formed."""
    block = block_operator(problem)
    columns = np.asarray(v, np.float64).reshape(problem.objective.n_outputs, -1)
    return np.concatenate([block.matvec(own) for own in columns])


def mean_curvature(problem: Problem) -> float:
    """As `Problem.mean_curvature` says."""
    data = problem.data
    if data.n_features <= _MATRIX_UP_TO[data.is_sparse]:
        return float(np.linalg.eigvalsh(bound_block(problem))[-1]) / problem.n_clients
    return largest_eigenvalue(block_operator(problem)) / problem.n_clients


def largest_eigenvalue(operator: LinearOperator, tolerance: float = _LANCZOS_TOLERANCE) -> float:
    """That of a positive semidefinite operator, by Lanczos iterations: from below, and nearly."""
    from scipy.sparse.linalg import eigsh

    start = lanczos_start(operator.shape[0])
    if operator.shape[0] == 1 or not operator.matvec(start).any():
        return float(operator.matvec(start)[0] / start[0])
    found = eigsh(operator, k=1, v0=start, tol=tolerance, return_eigenvectors=False)
    return float(found[0])


def lanczos_start(n: int) -> Array:
    """What no structure of rows is orthogonal to, and the same in every process."""
    return np.random.default_rng(0).standard_normal(n)


def lipschitz(problem: Problem) -> Array:
    """As `Problem.lipschitz` says."""
    curvature = bound_of(problem, "Lipschitz constant")
    with np.errstate(over="ignore", invalid="ignore"):
        squares = [_largest_square(problem, i) for i in range(problem.n_clients)]
        bound = curvature * np.array(squares) / problem.data.weight_sums
    return problem.client_weights * bound + problem.reg_curvature


def _largest_square(problem: Problem, i: int) -> float:
    """The largest eigenvalue of ``A_i'V_iA_i``, with the weights v of client i's rows.

    Of a few dense rows or columns it is that of a matrix; else Lanczos iterations find it, to a
    part in 1e10, from products with the rows: neither ``A_i'V_iA_i`` nor a dense copy is formed.
    """
    from scipy.sparse.linalg import LinearOperator

    data = problem.data
    (a, _), v = data.client(i), data.sample_weight
    weights = np.ones(a.shape[0]) if v is None else v[data.rows_of(i)]
    if not data.is_sparse and min(a.shape) <= _GRAM_UP_TO:
        rows = a if v is None else a * np.sqrt(weights)[:, None]
        gram = rows.T @ rows if rows.shape[0] > rows.shape[1] else rows @ rows.T
        # LAPACK stops at what is not finite, a run says more.
        return float(np.linalg.eigvalsh(gram)[-1]) if np.isfinite(gram).all() else np.inf

    root = np.sqrt(weights)

    def product(u: Array) -> Array:
        if a.shape[0] < a.shape[1]:  # of ``VAA'V``, which has the same: vectors are shorter
            return np.asarray(root * (a @ (a.T @ (root * u.ravel()))))
        return np.asarray(a.T @ (weights * (a @ u.ravel())))

    n = min(a.shape)
    return largest_eigenvalue(LinearOperator((n, n), matvec=product, dtype=np.float64))


def row_bounds(problem: Problem) -> Array:
    """The largest Lipschitz constant that one row alone would give the gradient of f_i, (m,)."""
    a, data = problem.data.features, problem.data
    with np.errstate(over="ignore", invalid="ignore"):
        squares = a.multiply(a).sum(axis=1) if data.is_sparse else np.einsum("tj,tj->t", a, a)
        bends = bound_of(problem, "Lipschitz constant") * problem.row_weights * np.ravel(squares)
    largest = np.maximum.reduceat(bends, data.offsets[:-1]) * data.client_sizes
    return _finite(largest + problem.reg_curvature)


def _column_weights(problem: Problem) -> Array:
    """Weights of the columns in the regulariser."""
    return np.broadcast_to(problem.reg_weights, problem.n_parameters)[: problem.data.n_features]


def _finite(found: Array) -> Array:
    if not np.isfinite(found).all():
        raise ValueError(
            "features must be brought to scale: sums of their squares overflow, so there is no "
            "bound of the Hessian"
        )
    return found


def column_bounds(problem: Problem, start: Array | None) -> Array:
    """As `Problem.column_bounds` says."""
    data, objective = problem.data, problem.objective
    if objective.curvature is None and start is not None and objective.n_outputs == 1:
        margins = problem.margins(data.features, start)
        bend = objective.second_derivative(margins, data.labels)
    else:
        bend = np.full(data.n_samples, bound_of(problem, "bound of its Hessian"))
    found = np.empty((problem.n_clients, problem.n_parameters))
    for i in range(problem.n_clients):
        a, rows = data.client(i)[0], data.rows_of(i)
        weights, penalty = bend[rows] * problem.row_weights[rows], problem.reg[i]
        own = _column_bound(a, weights, penalty * _column_weights(problem))
        found[i] = np.tile(own, objective.n_outputs)
    return found


def _column_bound(a: Any, weights: Array, penalty: Array) -> Array:
    """A diagonal of at least ``A'WA + diag(penalty)``: its own diagonal, times a number."""
    from scipy.sparse.linalg import LinearOperator

    with np.errstate(over="ignore", invalid="ignore"):
        squares = a.multiply(a).T @ weights if sparse.issparse(a) else weights @ (a * a)
        diagonal = _finite(squares + penalty)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))

    def even(v: Array) -> Array:
        v = v.ravel() / scale
        return (a.T @ (weights * (a @ v)) + penalty * v) / scale

    n = len(diagonal)
    largest = largest_eigenvalue(
        LinearOperator((n, n), matvec=even, rmatvec=even, dtype=np.float64), _SLACK / 10
    )
    return diagonal * ((1 + _SLACK) * largest)
