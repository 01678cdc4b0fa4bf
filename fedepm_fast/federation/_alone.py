"""One client's problem: its gradient, and what it tells when it joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .._common.validation import check_real
from ..algorithms import Algorithm
from ..objectives import ClientProblem, Problem
from ._checks import told_fault

Array = NDArray[Any]


class Alone:
    """The problem of a client of which there is a gradient: its size, and a bound if it has one.

    Parameters
    ----------
    gradient : callable
        Of f_i; if it has an attribute ``lipschitz``, that is a Lipschitz constant of it, and if it
        has a method ``batch_gradient(w, rows)``, that is the gradient with some of its rows.
    clients, features, samples : int
        As of `Client`.
    """

    def __init__(
        self, gradient: Callable[..., Any], clients: int, features: int, samples: int
    ) -> None:
        self._gradient = gradient
        self.n_clients, self.n_parameters, self.n_samples = clients, features, samples
        self.data = SimpleNamespace(client_sizes=np.array([samples]))
        self.client_weights = np.ones(1)

    def gradient(self, i: int, w: Array) -> Any:
        """The gradient at w."""
        return self._gradient(w)

    def batch_gradient(self, i: int, w: Array, rows: NDArray[np.intp]) -> Any:
        """The gradient at w with the mean loss of these rows."""
        return cast(Any, self._gradient).batch_gradient(w, rows)

    @property
    def has_batches(self) -> bool:
        """Whether the gradient has a method ``batch_gradient``."""
        return callable(getattr(self._gradient, "batch_gradient", None))

    @property
    def has_lipschitz(self) -> bool:
        """Whether the gradient has an attribute ``lipschitz``."""
        return hasattr(self._gradient, "lipschitz")

    def lipschitz(self) -> Array:
        """That of the gradient, shape (1,)."""
        bound = getattr(self._gradient, "lipschitz", None)
        if bound is None:
            raise ValueError(
                "gradient must have an attribute lipschitz, a Lipschitz constant of it, or be a "
                "ClientProblem, which has one"
            )
        return np.array([check_real("gradient.lipschitz", bound, low=0.0, open_low=True)])


class Held:
    """The problem of a client that holds its rows, among so many clients."""

    def __init__(self, problem: ClientProblem, clients: int) -> None:
        self._problem, self.n_clients = problem, clients

    has_batches = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)


def alone(
    algorithm: Algorithm, gradient: Any, clients: int, features: int, samples: int
) -> Alone | Held:
    """The problem of a client that is given as its gradient or as a `ClientProblem`.

    Raises
    ------
    ValueError, TypeError
        If it is neither, of other numbers of coordinates or samples, or does not know of batches
        where the algorithm draws some.
    """
    found: Alone | Held
    if isinstance(gradient, ClientProblem):
        own = {"features": gradient.n_parameters, "samples": gradient.n_samples}
        for name, given in (("features", features), ("samples", samples)):
            if given != own[name]:
                raise ValueError(
                    f"{name} must be those of the ClientProblem, {own[name]}, got {given}"
                )
        found = Held(gradient, clients)
    elif callable(gradient):
        found = Alone(gradient, clients, features, samples)
    else:
        raise TypeError(
            f"gradient must be callable, or a ClientProblem, got {type(gradient).__name__}"
        )
    if algorithm.draws_batches and not found.has_batches:
        raise ValueError(
            "gradient must have a method batch_gradient(w, rows), or be a ClientProblem, for "
            f"{algorithm.label} with batches, got {type(gradient).__name__}"
        )
    return found


def told_by(
    algorithm: Algorithm, problem: Alone | Held, told: Mapping[str, float] | None
) -> dict[str, float]:
    """What a client tells when it joins: what it is given to tell, or what follows of its problem.

    Raises
    ------
    ValueError
        If that has not what the algorithm needs.
    """
    if told is None and algorithm.tells:
        numbers = algorithm.told(cast(Problem, problem))[:, 0].tolist()
        told = dict(zip(algorithm.tells, numbers, strict=True))
    if fault := told_fault(algorithm, told):
        raise ValueError(fault)
    return {name: float((told or {})[name]) for name in algorithm.tells}
