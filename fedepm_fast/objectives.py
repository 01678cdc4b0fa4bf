"""Clients' objectives: a loss bound to federated data.

Every client's objective has one form,

    f_i(w) = (1 / d_i) * sum_t loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2,

with a loss of `fedepm_fast.losses`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import svds

from ._validation import check_array
from .losses import (
    OBJECTIVES,
    REGULARIZERS,
    Huber,
    LeastSquares,
    Logistic,
    Multinomial,
    Objective,
    SquaredHinge,
    as_objective,
)

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
            objective = replace(objective, regularizer=REGULARIZERS[0])
        object.__setattr__(self, "objective", objective.fit_to(self.data))

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return self.data.n_clients

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

    def pack(self, dtype: Any = None) -> ClientRows:
        """The data as `fedepm_fast.kernels.losses` evaluates this objective on them.

        Parameters
        ----------
        dtype : float64 or float32, optional
            That of the features by default.
        """
        from .kernels import losses

        return losses.pack(
            self.data.features,
            self.data.labels,
            self.data.client_sizes,
            loss=self.objective.name,
            weights=self.objective.weights,
            dtype=dtype,
            **self.objective.parameters,
        )

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
        losses = self.objective.loss(self.margins(self.data.features, x), self.data.labels)
        sums = np.add.reduceat(losses, self.data.offsets[:-1])
        return sums / self.data.client_sizes + self.reg / 2 * (self._weights * x @ x)

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
        a, b = self.data.features, self.data.labels
        slopes = self.objective.derivative(self.margins(a, x), b)
        weighted = (slopes.T * self._sample_weights).T
        return self._pull_back(a, weighted) + self.reg.sum() * (self._weights * x)

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

    def lipschitz(self) -> Array:
        """A Lipschitz constant r_i of each gradient, shape (m,).

        ``r_i = curvature * sigma_max(A_i)^2 / d_i + reg_i``, exact for least squares and a
        tight bound for the other losses (with reg_i times the largest weight, an upper bound).
        """
        sigma = np.empty(self.n_clients)
        for i in range(self.n_clients):
            a, _ = self.data.client(i)
            if self.data.is_sparse and min(a.shape) > 2:
                sigma[i] = svds(a, k=1, return_singular_vectors=False, random_state=0)[0]
            else:
                sigma[i] = np.linalg.norm(a.toarray() if self.data.is_sparse else a, 2)
        largest = np.max(self._weights)
        return self.objective.curvature * sigma**2 / self.data.client_sizes + self.reg * largest

    def optimum(self, start: ArrayLike | None = None) -> Optimum:
        """Minimise f by BFGS, then by Newton steps while they lower the gradient.

        Parameters
        ----------
        start : array_like of shape (n,), optional
            Where to start; zero by default.

        Returns
        -------
        Optimum
            The point, f there, and the norm of the gradient.
        """
        m, n = self.n_clients, self.n_parameters
        x = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
        found = minimize(
            lambda w: (self.total_value(w) / m, self.total_gradient(w) / m),
            x,
            jac=True,
            method="BFGS" if n <= 500 else "L-BFGS-B",
            options={"gtol": 1e-9, "maxiter": 10_000},
        )
        x, gradient = found.x, self.total_gradient(found.x)
        for _ in range(20 if n <= 500 else 0):
            try:
                candidate = x - np.linalg.solve(self.total_hessian(x), gradient)
            except np.linalg.LinAlgError:
                break
            new = self.total_gradient(candidate)
            if not np.linalg.norm(new) < 0.5 * np.linalg.norm(gradient):
                break
            x, gradient = candidate, new
        return Optimum(x, self.total_value(x), float(np.linalg.norm(gradient)))

    def accuracy(self, x: Array) -> float | None:
        """Share of rows whose label is predicted; None for regression.

        The prediction is ``<a, x> > 0``, or the class with the largest margin.
        """
        if self.objective.task == "regression":
            return None
        predicted = self.objective.predict(self.margins(self.data.features, x))
        return float(np.mean(predicted == self.data.labels))

    def describe(self) -> dict[str, Any]:
        """The objective as plain values, for records."""
        record = {
            "name": self.objective.name,
            "beta": self.objective.beta,
            "regularizer": self.objective.regularizer,
            **self.objective.parameters,
        }
        if self.objective.weights is not None:
            record["weights"] = list(self.objective.weights)
        return record
