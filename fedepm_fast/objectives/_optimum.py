"""The minimiser of the sum of the clients' objectives, by someone who has all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import ArgumentValueError, check_array, check_choice

if TYPE_CHECKING:
    from ._problem import Problem

Array = NDArray[np.float64]

#: Of the gradient of f/m.
_TOLERANCE = 1e-9
#: Parameters up to which there are Newton steps, and BFGS keeps a whole matrix.
_SMALL = 500


class Optimum(NamedTuple):
    """The minimiser of f = sum_i f_i, as found by BFGS and polished by Newton steps."""

    x: Array
    value: float
    """f at `x`, summed over the clients."""
    gradient_norm: float


def minimise(problem: Problem, start: ArrayLike | None, method: str) -> Optimum:
    """As `Problem.optimum` says."""
    check_choice("method", method, ("bfgs", "newton"))
    m, n = problem.n_clients, problem.n_parameters
    x = np.zeros(n) if start is None else check_array("start", start, shape=(n,))
    with np.errstate(over="ignore", invalid="ignore"):  # found below
        value, gradient = problem.total_value_and_gradient(x)
        if not np.isfinite(value + gradient @ gradient):
            raise ArgumentValueError(
                "data" if start is None else "start",
                "must be brought to scale: f, or the square of its gradient, overflows where the "
                "search begins",
            )
    with np.errstate(over="ignore", invalid="ignore"):  # at points that a search refuses
        if method == "newton":
            x, gradient = _newton(problem, x, gradient)
        if method == "bfgs" or not np.linalg.norm(gradient) <= _TOLERANCE * m:
            from scipy.optimize import minimize  # takes a third of a second to import

            ended = minimize(
                lambda w: tuple(part / m for part in problem.total_value_and_gradient(w)),
                x,
                jac=True,
                method="BFGS" if n <= _SMALL else "L-BFGS-B",
                options={"gtol": _TOLERANCE, "maxiter": 10_000},
            )
            x, gradient = _newton(problem, ended.x, problem.total_gradient(ended.x))
        found = Optimum(x, problem.total_value(x), float(np.linalg.norm(gradient)))
    if not np.isfinite([found.value, found.gradient_norm, np.abs(x).max()]).all():
        raise ArgumentValueError("data", "must be brought to scale: f overflows near its minimum")
    return found


def _newton(problem: Problem, x: Array, gradient: Array) -> tuple[Array, Array]:
    """Newton steps from `x` while they halve the gradient: the last point and its gradient."""
    for _ in range(20 if problem.n_parameters <= _SMALL else 0):
        try:
            candidate = x - np.linalg.solve(problem.total_hessian(x), gradient)
        except np.linalg.LinAlgError:
            break
        new = problem.total_gradient(candidate)
        if not np.linalg.norm(new) < 0.5 * np.linalg.norm(gradient):
            break
        x, gradient = candidate, new
    return x, gradient
