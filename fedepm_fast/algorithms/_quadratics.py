"""Quadratic parts of clients' models: matrices M_i, and what one does with them.

The model of client i around x_i, the point at which it last took part, is::

    q_i(x) = f_i(x_i) + <g_i, x - x_i> + 1/2 |x - x_i|^2 in M_i + kappa*B_i

M_i is what is known of the curvature there, B_i what bounds it everywhere, if anything does, and
kappa the damping that `_surrogates.Surrogates` finds. One class for each way to know M_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..objectives._curvature import triangle, unpacked
from ._coordinates import Coordinates
from ._operators import ens, soft_threshold

Array = NDArray[np.float64]
Clients = NDArray[np.intp]

#: With the diagonal brought to 1, directions whose curvature is this part of the largest one or
#: less are left alone: nothing there is known but rounding.
_FLAT = 1e-14
#: Numbers of packed matrices that are gone through at a time.
_BLOCK = 1 << 20
#: What sums are known to.
_EPSILON = float(np.finfo(np.float64).eps)
#: Conjugate gradients end where the residual is this part of the first one.
_CG_TOLERANCE, _CG_ITERATIONS = 1e-12, 500


class Quadratics(Protocol):
    """The M_i and B_i of all clients."""

    bounded: bool
    """Whether M_i + B_i is known to bound the curvature of f_i everywhere."""
    stretches: bool
    """Whether steps may be longer where the last one found less curvature than M_i has."""

    def forms(self, S: Clients, steps: Array) -> tuple[Array, Array]:
        """``1/2 |d_i|^2`` in M_i and in B_i of the clients `S` and their `steps` (s, n): (s,)."""

    def minimiser(self, X: Array, G: Array, kappa: float) -> Array:
        """Where the sum of all clients' models is least, shape (n,)."""

    def length(self, step: Array, kappa: float) -> float:
        """``1/2 |step|^2`` in the mean of M_i + kappa*B_i."""

    def update(self, S: Clients, steps: Array, turns: Array, hessians: Mapping[int, Array]) -> None:
        """Clients moved by `steps` (s, n), their gradients by `turns`; some sent a Hessian."""

    def admit(self, row: int, curvature: Array) -> None:
        """A client more, before that of `row`: its B_i, as `CurvatureFedEPM.models_of` takes it."""

    def dismiss(self, row: int) -> None:
        """A client less."""

    def state(self) -> dict[str, Any]:
        """What it has learnt, for files."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from what `state` gave."""


class Common:
    """One M for all clients: FedEPM with a fixed eta, in coordinates in which M is the identity.

    There ``z_i = x_i - soft(g_i, lam) / eta`` with eta = 1 + kappa, the limit of a client's local
    steps (one gradient a round contracts them), and the server's point is ENS of all z_i:
    their mean for lam = 0.
    """

    bounded = False
    stretches = False

    def __init__(
        self, m: int, coordinates: Coordinates, lam: float = 0.0,
        solve: Callable[..., Array] = ens,
    ) -> None:  # fmt: skip
        self.m, self.coordinates, self.lam, self._ens = m, coordinates, lam, solve

    def forms(self, S: Clients, steps: Array) -> tuple[Array, Array]:
        form = 0.5 * (self.coordinates.to(steps) ** 2).sum(axis=1)
        return form, form

    def uploads(self, X: Array, G: Array, kappa: float) -> Array:
        """The z_i in these coordinates, shape (m, n)."""
        eta = 1.0 + kappa
        g = self.coordinates.pull(G)
        return np.asarray(self.coordinates.to(X) - soft_threshold(g, self.lam * eta) / eta)

    def minimiser(self, X: Array, G: Array, kappa: float) -> Array:
        if self.lam == 0.0:
            return X.mean(axis=0) - self.coordinates.solve(G.mean(axis=0)) / (1.0 + kappa)
        return self.coordinates.back(self._ens(self.uploads(X, G, kappa), self.lam))

    def length(self, step: Array, kappa: float) -> float:
        return 0.5 * (1.0 + kappa) * float((self.coordinates.to(step) ** 2).sum())

    def update(self, S: Clients, steps: Array, turns: Array, hessians: Mapping[int, Array]) -> None:
        """Nothing is learnt."""

    def admit(self, row: int, curvature: Array) -> None:
        raise NotImplementedError("the metric of all is that of those who were there at first")

    def dismiss(self, row: int) -> None:
        raise NotImplementedError("the metric of all is that of those who were there at first")

    def state(self) -> dict[str, Array]:
        return {}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Nothing was learnt."""


class Hessians:
    """M_i is the Hessian of f_i at x_i, as the client sent it; at first it is the bound B_i.

    Symmetric matrices are packed: their upper triangles, ``n*(n+1)/2`` numbers.

    Parameters
    ----------
    bounds : sequence of ndarray, each of shape (n*(n+1)/2,)
        The B_i, or the clients' Hessians at the start where nothing bounds these.
    bounded : bool
        Which of the two.
    """

    stretches = True

    def __init__(self, bounds: Array, n: int, *, bounded: bool) -> None:
        self.bounded, self.n = bounded, n
        self._rows, self._columns = triangle(n)
        self._diagonal = self._rows == self._columns
        self._twice = np.where(self._diagonal, 1.0, 2.0)
        #: Clients whose matrices are gone through at a time.
        self._block = max(1, _BLOCK // len(self._rows))
        self.B = np.ascontiguousarray(bounds, np.float64)
        self.M = self.B.copy()

    def forms(self, S: Clients, steps: Array) -> tuple[Array, Array]:
        in_m, in_b = np.empty((2, len(S)))
        for first in range(0, len(S), self._block):
            part = slice(first, first + self._block)
            some, d = S[part], steps[part]
            products = d[:, self._rows] * d[:, self._columns] * self._twice
            in_m[part] = np.einsum("sk,sk->s", products, self.M[some])
            in_b[part] = np.einsum("sk,sk->s", products, self._bound[some])
        return in_m / 2, in_b / 2

    @property
    def _bound(self) -> Array:
        # Without a bound of the curvature damping is a multiple of what is known of it.
        return self.B if self.bounded else self.M

    def minimiser(self, X: Array, G: Array, kappa: float) -> Array:
        # With x = c + s the sum of (M_i + kappa*B_i)(x_i - c) has no large terms that cancel.
        centre = X.mean(axis=0)
        right = -G.sum(axis=0) + self._pulled(X - centre, kappa)
        matrix = unpacked(self._sum(kappa), self.n)
        return centre + solve_symmetric(matrix, right, lambda: self._directions)

    @cached_property
    def _directions(self) -> Array:
        # All others are of no consequence: nothing of the data is along them.
        return directions_of(unpacked(self.B.sum(axis=0), self.n))

    def _pulled(self, steps: Array, kappa: float) -> Array:
        """The sum of all (M_i + kappa*B_i) d_i, shape (n,)."""
        upper, lower = np.zeros((2, len(self._rows)))
        for first in range(0, len(steps), self._block):
            some = slice(first, first + self._block)
            if steps[some].any():
                matrices = self.M[some] + kappa * self._bound[some]
                upper += np.einsum("sk,sk->k", matrices, steps[some][:, self._columns])
                lower += np.einsum("sk,sk->k", matrices, steps[some][:, self._rows])
        lower[self._diagonal] = 0.0
        return np.asarray(
            np.bincount(self._rows, upper, self.n) + np.bincount(self._columns, lower, self.n)
        )

    def length(self, step: Array, kappa: float) -> float:
        products = step[self._rows] * step[self._columns] * self._twice
        return 0.5 * float(products @ self._sum(kappa)) / len(self.M)

    def update(self, S: Clients, steps: Array, turns: Array, hessians: Mapping[int, Array]) -> None:
        for i, hessian in hessians.items():
            self.M[i] = hessian

    def admit(self, row: int, curvature: Array) -> None:
        self.M, self.B = (np.insert(a, row, curvature, axis=0) for a in (self.M, self.B))

    def dismiss(self, row: int) -> None:
        self.M, self.B = (np.delete(a, row, axis=0) for a in (self.M, self.B))

    def state(self) -> dict[str, Array]:
        return {"M": self.M, "B": self.B}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.M, self.B = np.array(state["M"]), np.array(state["B"])

    def _sum(self, kappa: float) -> Array:
        return np.asarray(self.M.sum(axis=0) + kappa * self._bound.sum(axis=0))


class Secants:
    """M_i is a diagonal that bounds the curvature, corrected by the client's last steps.

    The server sent the x_i and knows the g_i, so it knows for every client how its gradient turned
    along its own steps, however stale these are: limited-memory BFGS for each client, as in the
    incremental quasi-Newton method (Mokhtari, Eisen and Ribeiro 2018). Nothing more is sent.

    Parameters
    ----------
    diagonals : ndarray of shape (m, n)
        The B_i.
    memory : int
        Steps that are kept of each client.
    """

    stretches = False

    def __init__(self, diagonals: Array, memory: int, *, bounded: bool) -> None:
        self.bounded, self.memory = bounded, memory
        self.B = np.ascontiguousarray(diagonals, np.float64)
        m, n = self.B.shape
        self.steps, self.turns = np.zeros((m, memory, n)), np.zeros((m, memory, n))
        self.count = np.zeros(m, np.int64)
        self._correct_all()

    def forms(self, S: Clients, steps: Array) -> tuple[Array, Array]:
        in_m, in_b = np.empty((2, len(S)))
        for k, (i, step) in enumerate(zip(S, steps, strict=True)):
            in_b[k] = step * step @ self.B[i]
            along = self._wide[i] @ step
            in_m[k] = self._scale[i] * in_b[k] - along @ self._core[i] @ along
        return in_m / 2, in_b / 2

    def minimiser(self, X: Array, G: Array, kappa: float) -> Array:
        centre = X.mean(axis=0)
        right = -G.sum(axis=0)
        for i, step in enumerate(X - centre):
            if step.any():
                right += (self._scale[i] + kappa) * self.B[i] * step
                right -= self._wide[i].T @ (self._core[i] @ (self._wide[i] @ step))
        diagonal, wide, core = self._sum(kappa)

        def product(v: Array) -> Array:
            return np.asarray(diagonal * v - wide.T @ _blocks(core, wide @ v))

        return np.asarray(centre + conjugate_gradients(product, right, diagonal))

    def length(self, step: Array, kappa: float) -> float:
        diagonal, wide, core = self._sum(kappa)
        along = wide @ step
        form = float(step * step @ diagonal - along @ _blocks(core, along))
        return 0.5 * max(form, 0.0) / len(self.B)

    def update(self, S: Clients, steps: Array, turns: Array, hessians: Mapping[int, Array]) -> None:
        for i, step, turn in zip(S.tolist(), steps, turns, strict=True):
            bend = float(step @ turn)
            if bend > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(turn)):
                for kept, new in ((self.steps, step), (self.turns, turn)):
                    kept[i, :-1] = kept[i, 1:]
                    kept[i, -1] = new
                self.count[i] = min(self.count[i] + 1, self.memory)
                self._correct(i)

    def _correct(self, i: int) -> None:
        """M_i as ``scale*B_i - wide' core wide`` (Byrd, Nocedal and Schnabel 1994)."""
        kept = slice(self.memory - self.count[i], None)
        s, y = self.steps[i, kept], self.turns[i, kept]
        # Of one size, for the last steps of a run are shorter than the first by ten digits.
        size = np.sqrt((s * y).sum(axis=1))[:, None]
        s, y = s / size, y / size
        # The last turn says how much of the bound there is, in coordinates in which that is 1: at
        # most, by its own length, and at least, along the step. Runs take half as many rounds with
        # their geometric mean as with the first, which is safest, and fewer than with the other.
        # Where nothing bends, in a column that the client has no entry of, nothing turns.
        B, bend = self.B[i], float(s[-1] @ y[-1])
        most = float(y[-1] / np.where(B > 0, B, np.inf) @ y[-1]) / bend
        least = bend / float(s[-1] * B @ s[-1])
        self._scale[i] = scale = min(max(math.sqrt(most * least), 1e-3), 1.0)
        inside = s @ y.T
        lower = np.tril(inside, -1)
        block = np.block([[scale * (s * B) @ s.T, lower], [lower.T, -np.diag(np.diag(inside))]])
        self._wide[i] = np.vstack([scale * B * s, y])
        self._core[i] = np.linalg.inv(block)

    def state(self) -> dict[str, Any]:
        return {"B": self.B, "steps": self.steps, "turns": self.turns, "count": self.count}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.B, self.steps, self.turns = (np.array(state[k]) for k in ("B", "steps", "turns"))
        self.count = np.array(state["count"], np.int64)
        self._correct_all()

    def admit(self, row: int, curvature: Array) -> None:
        self.B = np.insert(self.B, row, curvature, axis=0)
        self.steps, self.turns = (np.insert(a, row, 0.0, axis=0) for a in (self.steps, self.turns))
        self.count = np.insert(self.count, row, 0)
        self._correct_all()

    def dismiss(self, row: int) -> None:
        self.B, self.count = np.delete(self.B, row, axis=0), np.delete(self.count, row)
        self.steps, self.turns = (np.delete(a, row, axis=0) for a in (self.steps, self.turns))
        self._correct_all()

    def _correct_all(self) -> None:
        m, n = self.B.shape
        self._scale = np.ones(m)
        self._wide, self._core = [np.empty((0, n))] * m, [np.empty((0, 0))] * m
        for i in np.flatnonzero(self.count).tolist():
            self._correct(i)

    def _sum(self, kappa: float) -> tuple[Array, Array, list[Array]]:
        diagonal = self._scale @ self.B + kappa * self.B.sum(axis=0)
        return diagonal, np.vstack(self._wide), self._core


def _blocks(core: list[Array], along: Array) -> Array:
    """The product with a matrix of blocks on its diagonal."""
    found, first = np.empty_like(along), 0
    for block in core:
        last = first + len(block)
        found[first:last] = block @ along[first:last]
        first = last
    return found


def solve_symmetric(matrix: Array, right: Array, directions: Callable[[], Array]) -> Array:
    """A solution of a positive semidefinite system; one among `directions` where it is singular.

    These are the columns of a matrix (n, k), and are asked for then only.
    """
    from scipy.linalg import cho_factor, cho_solve

    diagonal = np.diagonal(matrix)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    try:
        factor = cho_factor(matrix / scale / scale[:, None], check_finite=False)
        pivots = np.diagonal(factor[0])
        if pivots.min() ** 2 > 1e-10:
            return np.asarray(cho_solve(factor, right / scale, check_finite=False) / scale)
    except np.linalg.LinAlgError:
        pass
    along = directions()
    inside = along.T @ matrix @ along
    # Nothing less than rounding is known of it: no step is longer than that allows.
    inside[np.diag_indices_from(inside)] += len(inside) * _EPSILON * np.trace(inside)
    factor = cho_factor(inside, check_finite=False)
    return np.asarray(along @ cho_solve(factor, along.T @ right, check_finite=False))


def directions_of(matrix: Array) -> Array:
    """Directions in which a positive semidefinite matrix bends, in columns of one scale."""
    diagonal = np.diagonal(matrix)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    return np.asarray(vectors[:, values > len(values) * _FLAT * values[-1]] / scale[:, None])


def conjugate_gradients(product: Any, right: Array, diagonal: Array) -> Array:
    """The solution of ``product(x) = right``, preconditioned by a diagonal."""
    inverse = 1.0 / np.where(diagonal > 0, diagonal, 1.0)
    x, residual = np.zeros_like(right), right.copy()
    z = inverse * residual
    direction, size = z.copy(), float(residual @ z)
    enough = _CG_TOLERANCE**2 * size
    for _ in range(_CG_ITERATIONS):
        if not size > enough:
            break
        image = product(direction)
        bend = float(direction @ image)
        if not bend > 0:
            break
        x += size / bend * direction
        residual -= size / bend * image
        z = inverse * residual
        before, size = size, float(residual @ z)
        direction = z + size / before * direction
    return x
