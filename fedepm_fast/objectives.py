"""Clients' objectives: a loss bound to federated data.

Every client's objective has one form::

    f_i(w) = (1 / d_i) * sum_t loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2

with a loss of `fedepm_fast.losses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._common.validation import check_array, check_choice
from .losses import OBJECTIVES, REGULARIZERS, Objective, as_objective
from .losses.huber import Huber
from .losses.least_squares import LeastSquares
from .losses.logistic import Logistic
from .losses.multinomial import Multinomial
from .losses.scalar import ScalarLoss
from .losses.squared_hinge import SquaredHinge

if TYPE_CHECKING:
    from .data import FederatedData
    from .kernels.losses import ClientRows

__all__ = [
    "OBJECTIVES",
    "REGULARIZERS",
    "Huber",
    "LeastSquares",
    "Logistic",
    "Multinomial",
    "Objective",
    "Optimum",
    "Problem",
    "ScalarLoss",
    "SquaredHinge",
    "as_objective",
]

Array = NDArray[np.float64]


class Optimum(NamedTuple):
    """The minimiser of f = sum_i f_i, as found by BFGS and polished by Newton steps."""

    x: Array
    value: float
    """f at `x`, summed over the clients."""
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class Problem:
    """The objectives f_1..f_m of the clients: an objective bound to federated data.

    Parameters
    ----------
    data : FederatedData
        The clients' rows.
    objective : str or Objective
        The loss and ``beta``. Where its `regularizer` is None, ``"beta/d"`` is meant.
    """

    data: FederatedData
    objective: Objective

    def __post_init__(self) -> None:
        objective = as_objective(self.objective)
        if objective.regularizer is None:
            objective = objective.changed(regularizer=REGULARIZERS[0])
        object.__setattr__(self, "objective", objective.fit_to(self.data))

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return self.data.n_clients

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return self.data.n_samples

    @property
    def n_parameters(self) -> int:
        """Number of coordinates of a point, n: one per feature, or per class and feature."""
        return self.objective.n_outputs * self.data.n_features

    @cached_property
    def reg(self) -> Array:
        """Weight of each client's regulariser, shape (m,)."""
        sizes = self.data.client_sizes
        beta = self.objective.beta
        return beta / sizes if self.objective.regularizer == "beta/d" else np.full(len(sizes), beta)

    @cached_property
    def _weights(self) -> Array | float:
        """Weights of the coordinates in the regulariser."""
        if self.objective.weights is None:
            return 1.0
        return np.tile(self.objective.weights, self.objective.n_outputs)

    def margins(self, features: Any, w: Array) -> Array:
        """Margins of rows at a point: (d,), or (d, K) for the multinomial objective."""
        outputs = self.objective.n_outputs
        return features @ (w if outputs == 1 else w.reshape(outputs, -1).T)

    def _pull_back(self, features: Any, slopes: Array) -> Array:
        """The sum of rows times their slopes: the adjoint of `margins`, shape (n,)."""
        return (features.T @ slopes).T.ravel()

    # One client -------------------------------------------------------------------------

    def value(self, i: int, w: Array) -> float:
        """f_i(w)."""
        a, b = self.data.client(i)
        losses = self.objective.loss(self.margins(a, w), b)
        return float(losses.mean() + self.reg[i] / 2 * (self._weights * w @ w))

    def gradient(self, i: int, w: Array) -> Array:
        """The gradient of f_i at w, shape (n,)."""
        a, b = self.data.client(i)
        slopes = self.objective.derivative(self.margins(a, w), b)
        return self._pull_back(a, slopes / len(b)) + self.reg[i] * (self._weights * w)

    # All clients ------------------------------------------------------------------------

    def values(self, x: ArrayLike) -> Array:
        """f_i for every client, shape (m,); `x` is one point (n,) or a point for each (m, n)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 2:
            return np.array([self.value(i, x[i]) for i in range(self.n_clients)])
        return self._values(self.margins(self.data.features, x), x)

    def gradients(self, x: ArrayLike) -> Array:
        """Gradients of f_i, shape (m, n); `x` is one point (n,) or a point for each (m, n)."""
        shape = (self.n_clients, self.n_parameters)
        points = np.broadcast_to(np.asarray(x, dtype=np.float64), shape)
        return np.stack([self.gradient(i, points[i]) for i in range(self.n_clients)])

    def total_value(self, x: Array) -> float:
        """f(x) = sum_i f_i(x)."""
        return float(self.values(x).sum())

    def total_gradient(self, x: Array) -> Array:
        """The gradient of f at x, shape (n,)."""
        return self._total_gradient(self.margins(self.data.features, x), x)

    def total_value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """f(x) and its gradient, of the same margins."""
        margins = self.margins(self.data.features, x)
        return float(self._values(margins, x).sum()), self._total_gradient(margins, x)

    def _values(self, margins: Array, x: Array) -> Array:
        losses = self.objective.loss(margins, self.data.labels)
        sums = np.add.reduceat(losses, self.data.offsets[:-1])
        return sums / self.data.client_sizes + self.reg / 2 * (self._weights * x @ x)

    def _total_gradient(self, margins: Array, x: Array) -> Array:
        slopes = self.objective.derivative(margins, self.data.labels)
        weighted = (slopes.T * self._sample_weights).T
        pulled = self._pull_back(self.data.features, weighted)
        return pulled + self.reg.sum() * (self._weights * x)

    def total_hessian(self, x: Array) -> Array:
        """The Hessian of f at x, shape (n, n)."""
        a, b = self.data.features, self.data.labels
        outputs, n = self.objective.n_outputs, self.data.n_features
        curvature = self.objective.second_derivative(self.margins(a, x), b)
        curvature = curvature.reshape(-1, outputs, outputs)
        hessian = np.empty((outputs, n, outputs, n))
        for k in range(outputs):
            for h in range(k + 1):
                weight = curvature[:, k, h] * self._sample_weights
                if self.data.is_sparse:
                    block = (a.T @ a.multiply(weight[:, None]).tocsr()).toarray()
                else:
                    block = a.T @ (a * weight[:, None])
                hessian[k, :, h] = hessian[h, :, k] = block
        full = hessian.reshape(2 * (self.n_parameters,))
        return full + self.reg.sum() * np.diag(np.broadcast_to(self._weights, x.shape))

    @cached_property
    def _sample_weights(self) -> Array:
        sizes = self.data.client_sizes
        return np.repeat(1.0 / sizes, sizes)

    @property
    def has_lipschitz(self) -> bool:
        """Whether there is a bound of the loss's second derivative, which `lipschitz` needs."""
        return self.objective.curvature is not None

    def lipschitz(self) -> Array:
        """A Lipschitz constant r_i of each gradient, shape (m,).

        ``r_i = curvature * sigma_max(A_i)^2 / d_i + reg_i``, exact for least squares and a
        tight bound for the other losses (with reg_i times the largest weight, an upper bound).

        Raises
        ------
        ValueError
            If nothing bounds the second derivative of the loss: it has no `curvature`.
        """
        curvature = self.objective.curvature
        if curvature is None:
            raise ValueError(
                f"curvature is not known of the loss {self.objective.name!r}: nothing bounds its "
                "second derivative, so there is no Lipschitz constant"
            )
        from scipy.sparse.linalg import svds

        sigma = np.empty(self.n_clients)
        for i in range(self.n_clients):
            a, _ = self.data.client(i)
            if self.data.is_sparse and min(a.shape) > 2 and a.count_nonzero():
                sigma[i] = svds(a, k=1, return_singular_vectors=False, random_state=0)[0]
            else:
                sigma[i] = np.linalg.norm(a.toarray() if self.data.is_sparse else a, 2)
        return curvature * sigma**2 / self.data.client_sizes + self.reg_curvature

    @property
    def reg_curvature(self) -> Array:
        """Largest second derivative of each client's regulariser, shape (m,)."""
        return self.reg * np.max(self._weights)

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
        """
        from scipy.optimize import minimize

        check_choice("method", method, ("bfgs", "newton"))
        m, n = self.n_clients, self.n_parameters
        x = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
        tolerance = 1e-9
        gradient = self.total_gradient(x)
        with np.errstate(over="ignore", invalid="ignore"):  # at points that a search refuses
            if method == "newton":
                x, gradient = self._newton(x, gradient)
            if method == "bfgs" or not np.linalg.norm(gradient) <= tolerance * m:
                found = minimize(
                    lambda w: tuple(part / m for part in self.total_value_and_gradient(w)),
                    x,
                    jac=True,
                    method="BFGS" if n <= 500 else "L-BFGS-B",
                    options={"gtol": tolerance, "maxiter": 10_000},
                )
                x, gradient = self._newton(found.x, self.total_gradient(found.x))
        return Optimum(x, self.total_value(x), float(np.linalg.norm(gradient)))

    def _newton(self, x: Array, gradient: Array) -> tuple[Array, Array]:
        """Newton steps from `x` while they halve the gradient: the last point and its gradient."""
        for _ in range(20 if self.n_parameters <= 500 else 0):
            try:
                candidate = x - np.linalg.solve(self.total_hessian(x), gradient)
            except np.linalg.LinAlgError:
                break
            new = self.total_gradient(candidate)
            if not np.linalg.norm(new) < 0.5 * np.linalg.norm(gradient):
                break
            x, gradient = candidate, new
        return x, gradient

    def accuracy(self, x: Array) -> float | None:
        """Share of rows whose label is predicted; None for regression.

        The prediction is ``<a, x> > 0``, or the class with the largest margin.
        """
        if self.objective.task == "regression":
            return None
        predicted = self.objective.predict(self.margins(self.data.features, x))
        return float(np.mean(predicted == self.data.labels))

    # Compiled ---------------------------------------------------------------------------

    @property
    def has_kernels(self) -> bool:
        """Whether the compiled kernels have this objective."""
        return self.objective.has_kernels

    @property
    def rows(self) -> ClientRows:
        """The clients' rows, packed for the compiled kernels in float64."""
        objective = self.objective
        return self.data.packed(weights=objective.weights, **objective.packing)

    def value_at_start(self, start: Array | None) -> float:
        """f at the mean of the clients' parameters at the start, compiled."""
        if start is None and self.objective.at_zero is not None:
            return self.n_clients * self.objective.at_zero
        n = self.n_parameters
        x = np.zeros(n) if start is None else start.reshape(-1, n).mean(axis=0)
        if isinstance(self.objective, ScalarLoss):  # one kernel less to compile
            return self.total_value(x)
        from .kernels import losses

        return float(losses.values(self.rows, x, reg=self.reg).sum())

    def accuracies(self, points: Array) -> Array | None:
        """`accuracy` of each of the `points`, shape (t, n), compiled."""
        if self.objective.task == "regression":
            return None
        from .kernels import accuracy

        counts = accuracy.wrong_and_ties(self.rows, points)
        # A row on the border counts as label 0.
        if counts[:, 1].any():
            for t in np.flatnonzero(counts[:, 1]):
                counts[t, 0] = np.sum((self.data.features @ points[t] > 0) != self.data.labels)
        return 1.0 - counts[:, 0] / self.data.n_samples

    def describe(self) -> dict[str, Any]:
        """The objective as plain values, for records."""
        return self.objective.describe()
