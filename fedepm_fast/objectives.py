"""Clients' objectives: pointwise losses, and a loss bound to federated data.

Every client's objective has one form,

    f_i(w) = (1 / d_i) * sum_t loss(<a_t, w>, b_t) + reg_i / 2 * |w|^2,

so a loss is three pointwise functions of the margin ``t = <a, w>`` and the label ``b``, and
a bound on its curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ._validation import check_array, check_choice, check_real

if TYPE_CHECKING:
    from .data import FederatedData
    from .kernels.losses import ClientRows

Array = NDArray[np.float64]

#: How the regulariser's weight follows from ``beta``: ``"beta/d"`` divides by the number of
#: samples of the client (the authors' program), ``"beta"`` does not (the printed equations).
REGULARIZERS = ("beta/d", "beta")


@dataclass(frozen=True)
class Objective:
    """A loss and its l2 regulariser.

    Parameters
    ----------
    beta : float
        Weight of the regulariser, at least 0.
    regularizer : {"beta/d", "beta"}, optional
        ``reg_i = beta / d_i`` or ``reg_i = beta``. By default the preset of the algorithm
        decides.
    """

    beta: float = 1e-3
    regularizer: str | None = None

    name: ClassVar[str]
    task: ClassVar[str]
    #: An upper bound of the second derivative of `loss` in the margin.
    curvature: ClassVar[float]
    #: An upper bound of the derivative of `loss` in the margin, for any label; None without one.
    slope: ClassVar[float | None] = None
    #: Name of the loss among the compiled kernels, if they have it.
    kernel: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", check_real("beta", self.beta, low=0.0))
        if self.regularizer is not None:
            check_choice("regularizer", self.regularizer, REGULARIZERS)

    @staticmethod
    def loss(t: Array, b: Array) -> Array:
        """Pointwise loss of margins `t` and labels `b`."""
        raise NotImplementedError

    @staticmethod
    def derivative(t: Array, b: Array) -> Array:
        """Derivative of `loss` in `t`."""
        raise NotImplementedError

    @staticmethod
    def second_derivative(t: Array, b: Array) -> Array:
        """Second derivative of `loss` in `t`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Logistic(Objective):
    """Logistic loss, ``softplus(t) - b*t`` for labels 0 and 1.

    Both functions are evaluated at the signed margin ``(1 - 2b) t``, where they neither
    overflow nor cancel: ``softplus(t) - t`` would lose every digit for large `t`.
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "classification"
    curvature: ClassVar[float] = 0.25
    slope: ClassVar[float | None] = 1.0
    kernel: ClassVar[str | None] = "logistic"

    @staticmethod
    def loss(t: Array, b: Array) -> Array:
        s = (1 - 2 * b) * t
        return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))

    @staticmethod
    def derivative(t: Array, b: Array) -> Array:
        sign = 1 - 2 * b
        return sign * expit(sign * t)

    @staticmethod
    def second_derivative(t: Array, b: Array) -> Array:
        return expit(t) * expit(-t)


@dataclass(frozen=True)
class LeastSquares(Objective):
    """Least squares, ``(t - b)^2 / 2`` for real labels."""

    name: ClassVar[str] = "least_squares"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0
    kernel: ClassVar[str | None] = "least_squares"

    @staticmethod
    def loss(t: Array, b: Array) -> Array:
        return 0.5 * (t - b) ** 2

    @staticmethod
    def derivative(t: Array, b: Array) -> Array:
        return t - b

    @staticmethod
    def second_derivative(t: Array, b: Array) -> Array:
        return np.ones_like(t)


OBJECTIVES: dict[str, type[Objective]] = {cls.name: cls for cls in (Logistic, LeastSquares)}


def as_objective(objective: str | Objective) -> Objective:
    """Return `objective`, or the one registered under that name with its defaults."""
    if isinstance(objective, Objective):
        return objective
    return OBJECTIVES[check_choice("objective", objective, OBJECTIVES)]()


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
        object.__setattr__(self, "objective", objective)
        if objective.task == "classification" and not self.data.is_binary:
            raise ValueError(
                f"labels must be 0 or 1 for the {objective.name} objective; "
                "FederatedData.split maps any two values to them"
            )

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return self.data.n_clients

    @property
    def n_features(self) -> int:
        """Number of coordinates, n."""
        return self.data.n_features

    @cached_property
    def reg(self) -> Array:
        """Weight of each client's regulariser, shape (m,)."""
        sizes = self.data.client_sizes
        beta = self.objective.beta
        return beta / sizes if self.objective.regularizer == "beta/d" else np.full(len(sizes), beta)

    # One client -------------------------------------------------------------------------

    def value(self, i: int, w: Array) -> float:
        """f_i(w)."""
        a, b = self.data.client(i)
        return float(self.objective.loss(a @ w, b).mean() + self.reg[i] / 2 * (w @ w))

    def gradient(self, i: int, w: Array) -> Array:
        """The gradient of f_i at w, shape (n,)."""
        a, b = self.data.client(i)
        return a.T @ (self.objective.derivative(a @ w, b) / len(b)) + self.reg[i] * w

    # All clients ------------------------------------------------------------------------

    def values(self, x: ArrayLike) -> Array:
        """f_i for every client, shape (m,); `x` is one point (n,) or a point for each (m, n)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 2:
            return np.array([self.value(i, x[i]) for i in range(self.n_clients)])
        losses = self.objective.loss(self.data.features @ x, self.data.labels)
        sums = np.add.reduceat(losses, self.data.offsets[:-1])
        return sums / self.data.client_sizes + self.reg / 2 * (x @ x)

    def gradients(self, x: ArrayLike) -> Array:
        """Gradients of f_i, shape (m, n); `x` is one point (n,) or a point for each (m, n)."""
        points = np.broadcast_to(np.asarray(x, dtype=np.float64), (self.n_clients, self.n_features))
        return np.stack([self.gradient(i, points[i]) for i in range(self.n_clients)])

    def total_value(self, x: Array) -> float:
        """f(x) = sum_i f_i(x)."""
        return float(self.values(x).sum())

    def total_gradient(self, x: Array) -> Array:
        """The gradient of f at x, shape (n,)."""
        residual = self.objective.derivative(self.data.features @ x, self.data.labels)
        return self.data.features.T @ (residual * self._sample_weights) + self.reg.sum() * x

    def total_hessian(self, x: Array) -> Array:
        """The Hessian of f at x, shape (n, n)."""
        a, b = self.data.features, self.data.labels
        weight = self.objective.second_derivative(a @ x, b) * self._sample_weights
        weighted = (
            a.multiply(weight[:, None]).tocsr() if self.data.is_sparse else a * weight[:, None]
        )
        hessian = a.T @ weighted
        if self.data.is_sparse:
            hessian = hessian.toarray()
        return hessian + self.reg.sum() * np.eye(self.n_features)

    @cached_property
    def _sample_weights(self) -> Array:
        sizes = self.data.client_sizes
        return np.repeat(1.0 / sizes, sizes)

    def lipschitz(self) -> Array:
        """A Lipschitz constant r_i of each gradient, shape (m,).

        ``r_i = curvature * sigma_max(A_i)^2 / d_i + reg_i``, exact for least squares and a
        tight bound for the logistic loss.
        """
        from scipy.sparse.linalg import svds

        sigma = np.empty(self.n_clients)
        for i in range(self.n_clients):
            a, _ = self.data.client(i)
            if self.data.is_sparse and min(a.shape) > 2:
                sigma[i] = svds(a, k=1, return_singular_vectors=False, random_state=0)[0]
            else:
                sigma[i] = np.linalg.norm(a.toarray() if self.data.is_sparse else a, 2)
        return self.objective.curvature * sigma**2 / self.data.client_sizes + self.reg

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
        m, n = self.n_clients, self.n_features
        x = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
        tolerance = 1e-9
        gradient = self.total_gradient(x)
        if method == "newton":
            x, gradient = self._newton(x, gradient)
        if method == "bfgs" or not np.linalg.norm(gradient) <= tolerance * m:
            found = minimize(
                lambda w: (self.total_value(w) / m, self.total_gradient(w) / m),
                x,
                jac=True,
                method="BFGS" if n <= 500 else "L-BFGS-B",
                options={"gtol": tolerance, "maxiter": 10_000},
            )
            x, gradient = self._newton(found.x, self.total_gradient(found.x))
        return Optimum(x, self.total_value(x), float(np.linalg.norm(gradient)))

    def _newton(self, x: Array, gradient: Array) -> tuple[Array, Array]:
        """Newton steps from `x` while they halve the gradient: the last point and its gradient."""
        for _ in range(20 if self.n_features <= 500 else 0):
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
        """Share of rows with ``[<a, x> > 0] = b``; None unless the task is classification."""
        if self.objective.task != "classification":
            return None
        return float(np.mean((self.data.features @ x > 0) == self.data.labels))

    # Compiled ---------------------------------------------------------------------------

    @property
    def has_kernels(self) -> bool:
        """Whether the compiled kernels have this objective."""
        kernel = self.objective.kernel
        return kernel is not None and OBJECTIVES.get(kernel) is type(self.objective)

    @property
    def rows(self) -> ClientRows:
        """The clients' rows, packed for the compiled kernels in float64."""
        return self.data.packed(str(self.objective.kernel))

    def size_at_start(self, start: Array | None) -> float:
        """``|f|`` at the mean of the clients' parameters at the start, compiled."""
        if start is None and self.objective.kernel == "logistic":
            return self.n_clients * math.log(2.0)
        from .kernels import losses

        x = np.zeros(self.n_features) if start is None else start.reshape(-1, self.n_features)
        x = x.reshape(-1, self.n_features).mean(axis=0)
        return abs(float(losses.values(self.rows, x, reg=self.reg).sum()))

    def accuracies(self, points: Array) -> Array | None:
        """`accuracy` of each of the `points`, shape (t, n), compiled."""
        if self.objective.task != "classification":
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
        return {
            "name": self.objective.name,
            "beta": self.objective.beta,
            "regularizer": self.objective.regularizer,
        }
