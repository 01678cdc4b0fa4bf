"""The client of `fedepm_fast.federation.curvature_server.CurvatureServer`.

It remembers nothing between rounds: an answer is a function of the server's point and its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.validation import check_array, check_int
from ..algorithms import CurvatureFedEPM
from ..objectives import ClientProblem
from ..objectives._curvature import packed
from ._answers import LARGEST, Answer, check_classes, resolve_curvature
from ._checks import check_point

__all__ = ["Answer", "CurvatureClient", "OwnObjective"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OwnObjective:
    """f_i of a client as functions of one's own, convex and twice differentiable.

    Parameters
    ----------
    value, gradient : callable
        Of f_i: a point of shape (n,) to a number, and to an array of that shape.
    features : int
        Coordinates, n.
    hessian : callable, optional
        A point to the Hessian of f_i, shape (n, n). ``"renewed"`` coordinates need it.
    bound : array_like, optional
        What no Hessian of f_i exceeds, as a matrix (n, n); for ``"secant"`` coordinates a diagonal
        (n,). Without one, ``"renewed"`` begins with the Hessian at the start; then all clients must
        do so, and the server be made with ``bounded=False``.
    """

    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    features: int
    hessian: Callable[[Array], Array] | None = None
    bound: ArrayLike | None = None


class CurvatureClient:
    """A client of `CurvatureFedEPM`: f_i, its gradient, and what is known of its curvature.

    Parameters
    ----------
    algorithm : CurvatureFedEPM or FedNL
        The parameters, the same as the server's.
    objective : ClientProblem or OwnObjective
        f_i, with the client's weight in f.
    index : int
        The client's number, from 0.
    clients : int
        How many clients there can be, as the server has it.

    Notes
    -----
    No noise is added: what is sent, sums over rows, may say much of few rows.
    """

    def __init__(
        self,
        algorithm: CurvatureFedEPM,
        objective: ClientProblem | OwnObjective,
        *,
        index: int,
        clients: int,
    ) -> None:
        self.clients = check_int("clients", clients, low=1)
        self.index = check_int("index", index, high=self.clients - 1)
        if isinstance(objective, ClientProblem):
            self.features, self.classes = objective.n_parameters, objective.objective.n_outputs
        elif isinstance(objective, OwnObjective):
            self.features, self.classes = check_int("features", objective.features, low=1), 1
        else:
            raise TypeError(
                "objective must be a ClientProblem or an OwnObjective, "
                f"got {type(objective).__name__}"
            )
        check_classes(self.classes, self.features)
        self.objective = objective
        self.algorithm = resolve_curvature(algorithm, self.clients, self.features, self.classes)

    def join(self, x: ArrayLike) -> Answer:
        """The first answer, at the server's point: with what is known of the curvature.

        That is n*(n+1)/2 numbers for ``"renewed"`` coordinates, a symmetric matrix's upper
        triangle row by row; n for ``"secant"``; p*(p+1)/2 for ``"whitened"``, with p the columns.

        Raises
        ------
        ValueError, TypeError
            If `x` is not finite or of another shape, f_i too large there, or the objective has not
            what the coordinates need.
        """
        x = check_point(x, self.features).astype(np.float64)
        answer = self._at(x)
        if not math.isfinite(answer.value):
            raise ValueError(
                f"x must be a point at which f_i and its gradient are below {LARGEST:g}"
            )
        return answer._replace(curvature=self._curvature(x))

    def answer(self, x: ArrayLike, *, due: bool = False) -> Answer:
        """The answer of a round at the server's point `x`; with the Hessian if that is `due`.

        Raises
        ------
        ValueError, TypeError
            If `x` is not finite or of another shape.
        """
        x = check_point(x, self.features).astype(np.float64)
        answer = self._at(x)
        if due and math.isfinite(answer.value):
            answer = answer._replace(curvature=self._hessian(x))
            return answer if _is_small(answer.curvature) else _beyond(x)
        return answer

    def _at(self, x: Array) -> Answer:
        own = self.objective
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(own, ClientProblem):
                values, gradients = own.client_gradients([0], x, compiled=False)
                value, gradient = float(values[0]), gradients[0]
            else:
                value = float(own.value(x))
                gradient = _array("gradient", own.gradient(x), x.shape)
        return Answer(value, gradient) if _is_small(value, gradient) else _beyond(x)

    def _curvature(self, x: Array) -> Array:
        own, n = self.objective, self.features
        if isinstance(own, ClientProblem):
            return np.asarray(next(iter(self.algorithm.curvatures(own, x))))
        uses_bound = own.bound is not None and self.algorithm.safeguarded
        if self.algorithm.coordinates == "renewed" and not uses_bound:
            return self._hessian(x)
        if own.bound is None:
            raise ValueError(
                f"bound must be given for {self.algorithm.coordinates!r} coordinates, got None"
            )
        if self.algorithm.coordinates == "secant":
            return check_array("bound", own.bound, shape=(n,))
        return packed(check_array("bound", own.bound, shape=(n, n)))

    def _hessian(self, x: Array) -> Array:
        own, n = self.objective, self.features
        if isinstance(own, ClientProblem):
            return own.packed_hessians([0], x)[0]
        if own.hessian is None:
            raise ValueError("hessian must be given for 'renewed' coordinates, got None")
        return packed(check_array("hessian", own.hessian(x), shape=(n, n)))


def _is_small(*numbers: Any) -> bool:
    return all(bool((np.abs(each) <= LARGEST).all()) for each in numbers)


def _beyond(x: Array) -> Answer:
    return Answer(math.inf, np.zeros_like(x))


def _array(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    return check_array(name, given, shape=shape, finite=False)
