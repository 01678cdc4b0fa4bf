"""The objectives of clients, all together: values, gradients, curvature, and their optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import ArgumentValueError, check_array
from ..losses.scalar import ScalarLoss
from . import _curvature, _together
from ._optimum import Optimum, minimise
from ._weighed import Weighed

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from ..kernels.losses import ClientRows

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem(Weighed):
    """The objectives f_1..f_m of the clients: an objective bound to federated data.

    ::

        f_i(w) = c_i * ( (1 / s_i) * sum_t v_t * loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2 )

    v_t are the sample weights of the client's rows, 1 where there are none, and s_i is their sum,
    its number of rows d_i then. f is the sum of the f_i, and f/m the mean objective.

    Parameters
    ----------
    data : FederatedData
        The clients' rows.
    objective : str or Objective
        The loss and ``beta``. Where its `regularizer` is None, ``"beta/d"`` is meant.
    client_weight : {"equal", "size"}
        ``"equal"``, as in the paper: c_i = 1, and reg_i is beta or ``beta / s_i``. ``"size"``:
        ``c_i = m * s_i / s`` with s the sum of all s_i, and reg_i is beta or ``beta / s``, so that
        f/m is the mean loss of the pooled rows plus ``reg_i / 2 * |w|^2``.
    """

    #: Makes the stages of a compiled run where rows are elsewhere.
    stages: ClassVar[Callable[..., Any] | None] = None

    def _at(self, w: ArrayLike) -> Array:
        """A point, as an array."""
        point = np.asarray(w, np.float64)
        if point.shape != (self.n_parameters,):
            raise ArgumentValueError(
                "w", f"must have shape ({self.n_parameters},), got {point.shape}"
            )
        return point

    def margins(self, features: Any, w: Array) -> Array:
        """Margins of rows at a point: (d,), or (d, K) for the multinomial objective."""
        outputs = self.objective.n_outputs
        return features @ (w if outputs == 1 else w.reshape(outputs, -1).T)

    def pull_back(self, features: Any, slopes: Array) -> Array:
        """The sum of rows times their slopes: the adjoint of `margins`, shape (n,)."""
        return (features.T @ slopes).T.ravel()

    # One client -------------------------------------------------------------------------

    def value(self, i: int, w: ArrayLike) -> float:
        """f_i(w)."""
        w, (a, b) = self._at(w), self.data.client(i)
        return self.value_of(i, self.objective.loss(self.margins(a, w), b), w)

    def gradient(self, i: int, w: ArrayLike) -> Array:
        """The gradient of f_i at w, shape (n,)."""
        w, (a, b) = self._at(w), self.data.client(i)
        return self.gradient_of(i, a, self.objective.derivative(self.margins(a, w), b), w)

    def batch_gradient(self, i: int, w: Array, rows: NDArray[np.intp]) -> Array:
        """The gradient of f_i at w with the mean loss of these of its rows, shape (n,)."""
        return _together.of_batch(self, i, w, rows)

    def hessian(self, i: int, w: Array) -> Array:
        """The Hessian of f_i at w, shape (n, n)."""
        weights = self.row_weights[self.data.rows_of(i)]
        return _curvature.hessian(self, *self.data.client(i), weights, self.reg[i], w)

    def packed_hessians(self, clients: ArrayLike, w: Array) -> Array:
        """`hessian` of several clients, their upper triangles row by row, (s, n*(n+1)/2)."""
        return _curvature.packed_hessians(self, np.asarray(clients, np.intp).tolist(), w)

    def value_of(self, i: int, losses: Array, w: Array) -> float:
        """f_i(w) from the losses of its rows."""
        own = self._weighs(i)
        mean = losses @ self.row_weights[self.data.rows_of(i)] if own else losses.mean()
        return float(mean + self.reg[i] / 2 * (self.reg_weights * w @ w))

    def gradient_of(self, i: int, features: Any, slopes: Array, w: Array) -> Array:
        """The gradient of f_i at w from the derivatives of its rows' losses."""
        if self._weighs(i):
            weighted = (slopes.T * self.row_weights[self.data.rows_of(i)]).T
        else:
            weighted = slopes / len(slopes)
        return self.pull_back(features, weighted) + self.reg[i] * (self.reg_weights * w)

    def packed_bounds(self) -> Array:
        """`bound_hessian` of each client, packed likewise, shape (m, n*(n+1)/2)."""
        return _curvature.packed_bounds(self)

    # All clients ------------------------------------------------------------------------

    def values(self, x: ArrayLike) -> Array:
        """f_i for every client, shape (m,); `x` is one point (n,) or a point for each (m, n)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 2:
            x = check_array("x", x, shape=(self.n_clients, self.n_parameters), finite=False)
            return np.array([self.value(i, x[i]) for i in range(self.n_clients)])
        x = self._at(x)
        return self._values(self.margins(self.data.features, x), x)

    def gradients(self, x: ArrayLike) -> Array:
        """Gradients of f_i, shape (m, n); `x` is one point (n,) or a point for each (m, n)."""
        shape = self.n_clients, self.n_parameters
        x = np.asarray(x, np.float64)
        points = check_array("x", x, shape=shape, finite=False) if x.ndim == 2 else self._at(x)
        points = np.broadcast_to(points, shape)
        return np.stack([self.gradient(i, points[i]) for i in range(self.n_clients)])

    def client_gradients(
        self, clients: ArrayLike, x: Array, *, compiled: bool = True
    ) -> tuple[Array, Array]:
        """f_i and their gradients at one point, for some of the clients.

        A client's numbers do not depend on who else is asked for.

        Parameters
        ----------
        clients : array_like of int, shape (s,)
            In any order.
        x : ndarray of shape (n,)
            Where it is not finite, neither is what comes of it.
        compiled : bool
            Whether compiled kernels do it where they can: those of losses that have some, for
            rows without weights. They agree with `value` and `gradient` to rounding; without
            them these are bit for bit what comes.

        Returns
        -------
        values : ndarray of shape (s,)
        gradients : ndarray of shape (s, n)

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        chosen = check_array("clients", clients, ndim=1, dtype=np.intp)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < self.n_clients:
            raise ValueError(f"clients must be in [0, {self.n_clients}), got {chosen.tolist()}")
        x = check_array("x", x, shape=(self.n_parameters,), finite=False)
        can = self.data.sample_weight is None and self.objective.has_kernels
        if compiled and can and np.isfinite(x).all():
            return _together.by_kernels(self, chosen, x)
        return _together.by_numpy(self, chosen, x)

    def total_value(self, x: ArrayLike) -> float:
        """f(x) = sum_i f_i(x)."""
        return float(self.values(x).sum())

    def total_gradient(self, x: ArrayLike) -> Array:
        """The gradient of f at x, shape (n,)."""
        x = self._at(x)
        return self._total_gradient(self.margins(self.data.features, x), x)

    def total_value_and_gradient(self, x: ArrayLike) -> tuple[float, Array]:
        """f(x) and its gradient, of the same margins."""
        x = self._at(x)
        margins = self.margins(self.data.features, x)
        return float(self._values(margins, x).sum()), self._total_gradient(margins, x)

    def _values(self, margins: Array, x: Array) -> Array:
        losses, offsets = self.objective.loss(margins, self.data.labels), self.data.offsets[:-1]
        if self.is_weighted:
            means = np.add.reduceat(losses * self.row_weights, offsets)
        else:
            means = np.add.reduceat(losses, offsets) / self.data.client_sizes
        return means + self.reg / 2 * (self.reg_weights * x @ x)

    def _total_gradient(self, margins: Array, x: Array) -> Array:
        slopes = self.objective.derivative(margins, self.data.labels)
        pulled = self.pull_back(self.data.features, (slopes.T * self.row_weights).T)
        return pulled + self.reg.sum() * (self.reg_weights * x)

    # Curvature --------------------------------------------------------------------------

    def total_hessian(self, x: Array) -> Array:
        """The Hessian of f at x, shape (n, n)."""
        data = self.data
        return _curvature.hessian(
            self, data.features, data.labels, self.row_weights, self.reg.sum(), x
        )

    def hessian_operator(self, x: Array) -> LinearOperator:
        """The Hessian of f at x as products with it, without forming it, shape (n, n)."""
        return _curvature.hessian_operator(self, x)

    def hessian_product(self, x: Array, v: Array) -> Array:
        """The Hessian of f at x times v, shape (n,); it is not formed."""
        return np.asarray(self.hessian_operator(x).matvec(v))

    @property
    def has_lipschitz(self) -> bool:
        """Whether there is a bound of the loss's second derivative, which `lipschitz` needs."""
        return self.objective.curvature is not None

    def bound_hessian(self, i: int | None = None) -> Array:
        """A matrix that no Hessian of f, or of the f_i of one client, exceeds; shape (n, n).

        With W the `row_weights` it is ``curvature * A'WA + sum_i reg_i * diag(weights)``, once on
        the diagonal for every class of the multinomial loss; divided by m it bounds the Hessian of
        the mean objective. For least squares it is the Hessian.

        Raises
        ------
        ValueError
            If nothing bounds the second derivative of the loss: it has no `curvature`; or if sums
            of squares overflow.
        """
        block = _curvature.bound_block(self, i)
        return np.asarray(np.kron(np.eye(self.objective.n_outputs), block), np.float64)

    def column_bounds(self, start: Array | None = None) -> Array:
        """Diagonal matrices that no Hessian of the f_i exceeds, one for each client, shape (m, n).

        Of a loss without a bound of its second derivative they are of the Hessians at `start`
        (n,), and hold there. Hessians are not formed.

        Raises
        ------
        ValueError
            If there is neither such a bound nor a start, or sums of squares overflow.
        """
        return _curvature.column_bounds(self, start)

    def row_bounds(self) -> Array:
        """The largest Lipschitz constant that one row alone would give, of each gradient, (m,)."""
        return _curvature.row_bounds(self)

    def bound_product(self, v: Array) -> Array:
        """`bound_hessian` times v, shape (n,); it is not formed."""
        return _curvature.bound_product(self, v)

    def mean_curvature(self) -> float:
        """The largest eigenvalue of ``bound_hessian() / m``: a bound of the curvature of f/m.

        Of many columns it is found by Lanczos iterations, to a part in 1e10, without ``A'WA``.

        Raises
        ------
        ValueError
            As `bound_hessian`.
        """
        return _curvature.mean_curvature(self)

    def lipschitz(self) -> Array:
        """A Lipschitz constant r_i of each gradient, shape (m,).

        ``r_i = curvature * sigma_max(A_i)^2 / d_i + reg_i``, exact for least squares and a
        tight bound for the other losses (with reg_i times the largest weight, an upper bound);
        with weights of clients or rows, that of the weighted f_i.

        Raises
        ------
        ValueError
            If nothing bounds the second derivative of the loss: it has no `curvature`.
        """
        return _curvature.lipschitz(self)

    def optimum(self, start: ArrayLike | None = None, *, method: str = "bfgs") -> Optimum:
        """Minimise f.

        Parameters
        ----------
        start : array_like of shape (n,), optional
            Where to start; zero by default.
        method : {"bfgs", "newton"}
            By BFGS, then by Newton steps while they lower the gradient; or by such Newton steps
            alone, a hundred times faster in few dimensions, and by BFGS only where they end with
            a gradient of f/m above 1e-9.

        Returns
        -------
        Optimum
            The point, f there, and the norm of the gradient.

        Raises
        ------
        ValueError
            Naming the argument; if f or the norm of its gradient overflows at the start, or the
            search comes to where they do.
        """
        return minimise(self, start, method)

    def accuracy(self, x: ArrayLike) -> float | None:
        """Share of rows whose label is predicted, by their weights; None for regression.

        The prediction is ``<a, x> > 0``, or the class with the largest margin.
        """
        if self.objective.task == "regression":
            return None
        predicted = self.objective.predict(self.margins(self.data.features, self._at(x)))
        return float(np.average(predicted == self.data.labels, weights=self.data.sample_weight))

    # Compiled ---------------------------------------------------------------------------

    @property
    def has_kernels(self) -> bool:
        """Whether the compiled kernels have this objective: none has weights of rows."""
        return self.objective.has_kernels and self.data.sample_weight is None

    @cached_property
    def rows(self) -> ClientRows:
        """The clients' rows, packed for the compiled kernels in float64; without their weights."""
        objective = self.objective
        return self.data.packed(weights=objective.weights, **objective.packing)

    def value_at_start(self, start: Array | None) -> float:
        """f at the mean of the clients' parameters at the start, compiled."""
        if start is None and self.objective.at_zero is not None:
            return self.n_clients * self.objective.at_zero
        n = self.n_parameters
        x = np.zeros(n) if start is None else start.reshape(-1, n).mean(axis=0)
        if self.is_weighted or isinstance(self.objective, ScalarLoss):  # a kernel less to compile
            return self.total_value(x)
        from ..kernels import losses

        return float(losses.values(self.rows, x, reg=self.reg).sum())

    def accuracies(self, points: Array) -> Array | None:
        """`accuracy` of each of the `points`, shape (t, n), compiled."""
        if self.objective.task == "regression":
            return None
        return _together.accuracies(self, points)
