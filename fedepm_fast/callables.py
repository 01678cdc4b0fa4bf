"""Runs on losses that are any Python callables of flat vectors, such as PyTorch models.

A loss is ``value, gradient = loss(x)`` at a point x of shape (n,). If it has an attribute
``lipschitz``, that is a Lipschitz constant of its gradient; if it has a method
``batch_gradient(x, rows)``, that is the gradient with the mean loss of these rows alone. A run of
`run_callables` goes round by round in Python and calls every loss; server, local steps and noise
are the compiled kernels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._common.notes import of_client
from ._common.validation import check_array, check_choice, check_real
from .algorithms import Algorithm, CurvatureFedEPM
from .callbacks import Callback
from .kernels.noise import laplace
from .objectives import Problem
from .randomness import INITIAL_NOISE, NOISE, CounterRandomness
from .result import Result
from .runner import check_algorithm, check_limits, check_start, make_result, record, simulate
from .stopping import NEAR, StoppingRule

Array = NDArray[np.float64]

ENGINE = "stepwise"


class Loss(Protocol):
    """A client's loss f_i."""

    def __call__(self, x: Array, /) -> tuple[float, ArrayLike]:
        """The value f_i(x), a number, and the gradient, of shape (n,).

        `x`, float64 of shape (n,), is the callable's own to keep or change.
        """


def run_callables(
    algorithm: Algorithm,
    losses: Sequence[Loss],
    start: ArrayLike,
    *,
    samples: ArrayLike | None = None,
    seed: int = 0,
    trial: int = 0,
    stopping: str | StoppingRule | None = None,
    rounds: int | None = None,
    max_rounds: int = 500,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    keep_x: bool = True,
) -> Result:
    """Run an algorithm on losses that are callables, one for each client, in one process.

    With the losses of `run`, regularisers included, its result is that of `run`, to rounding.

    Parameters
    ----------
    algorithm : Algorithm
        What to run, with its parameters, but no mechanism. `CurvatureFedEPM` has "secant"
        coordinates, and needs every loss's ``lipschitz``; so do learning rates that follow from
        the curvature. Algorithms with batches need every loss's ``batch_gradient``.
    losses : sequence of m callables
        ``value, gradient = loss(x)``, see `Loss`, each called once a round, and by the baselines
        once for each further local gradient. Gradients in float32, or tensors on the CPU, are
        converted to float64, in which everything else is computed. A regulariser is up to them.
    start : array_like of shape (n,) or (m, n)
        The clients' parameters at the start.
    samples : array_like of int, shape (m,), optional
        Numbers of samples d_i, which scale the steps as in `run`, and of which batches are drawn;
        1 by default.
    seed, trial, stopping, rounds, max_rounds, max_iterations, callback
        As of `run`.
    keep_x : bool
        Whether the history holds the point of every round.

    Returns
    -------
    Result

    Raises
    ------
    ValueError, TypeError
        Naming the argument, or the client whose loss gives something else than a number and n
        numbers, or is not finite in round 0. What a loss raises is passed on, with the client's
        number and the round as notes.

    Warns
    -----
    DivergenceWarning
        If the run diverges, a loss or gradient that is not finite included: it stops, and the
        result holds the last finite state. Or if it ends above its start or far above its best.

    Examples
    --------
    >>> import numpy as np
    >>> from fedepm_fast import FedEPM, run_callables
    >>> targets = np.arange(12.0).reshape(4, 3)
    >>> losses = [lambda x, t=t: ((x - t) @ (x - t) / 2, x - t) for t in targets]
    >>> result = run_callables(FedEPM(noise="none", mu0=5.0, eta=1.0), losses, np.zeros(3))
    >>> result.x.round(2)
    array([4.5, 5.5, 6.5])
    """
    check_algorithm(algorithm)
    if algorithm.mechanism is not None:
        raise ValueError(
            "algorithm must have no mechanism: it bounds what a record changes, and callables do "
            "not tell of records"
        )
    problem = _Callables(losses, start, samples)
    if algorithm.draws_batches:
        problem.check_batches(algorithm, samples)
    m, n = problem.n_clients, problem.n_parameters
    start = check_start(start, m, n)
    as_problem = cast(Problem, problem)
    resolved = _resolved(algorithm, as_problem)
    limits = check_limits(algorithm, stopping, rounds, max_rounds, max_iterations, callback)
    source = _Compiled(seed, trial)
    outcome = simulate(
        resolved.with_kernels(), as_problem, source, limits, callback=callback, start=start,
        keep_x=keep_x, compiled=False,
    )  # fmt: skip
    history, settings = record(outcome, limits)
    if problem.fault:
        settings["advice"] = f"{problem.fault}; "
    text = f"{m} callables of {n} parameters, {problem.n_samples} samples"
    return make_result(
        resolved, as_problem, {"description": text}, source, ENGINE, outcome, history, settings,
        NEAR * abs(outcome.at_start),
    )  # fmt: skip


def _resolved(algorithm: Algorithm, problem: Problem) -> Algorithm:
    """The algorithm with every default filled in; of curvature callables know a bound at most."""
    if isinstance(algorithm, CurvatureFedEPM):
        if not algorithm.safeguarded:
            raise ValueError(
                f"algorithm must be another than {algorithm.label}, which takes Hessians: losses "
                "that are callables give none"
            )
        known = ("auto", "secant")
        check_choice("coordinates, of losses that are callables,", algorithm.coordinates, known)
        if not problem.has_lipschitz:
            raise ValueError(
                f"losses must have an attribute lipschitz for {algorithm.label}, each a Lipschitz "
                "constant of its gradient"
            )
        for i, bound in enumerate(problem.lipschitz()):
            check_real(f"lipschitz of client {i}", bound, low=0.0, open_low=True)
        algorithm = dataclasses.replace(algorithm, coordinates="secant")
    resolved = algorithm.resolve(problem)
    resolved.check_coverage(problem.n_clients)
    return resolved


class _Callables:
    """Callables as the reference takes a `Problem`."""

    def __init__(self, losses: Sequence[Loss], start: ArrayLike, samples: ArrayLike | None) -> None:
        if not isinstance(losses, Sequence) or len(losses) == 0:
            raise TypeError(
                "losses must be a list of callables, one for each client, "
                f"got {type(losses).__name__}{' of none' if isinstance(losses, Sequence) else ''}"
            )
        for i, loss in enumerate(losses):
            if not callable(loss):
                raise TypeError(f"losses must be callable, got {type(loss).__name__} at index {i}")
        self.losses = losses
        self.n_clients = m = len(losses)
        shape = np.shape(start)
        if len(shape) not in (1, 2) or shape[-1] == 0:
            raise ValueError(f"start must have shape (n,) or ({m}, n), got {shape}")
        self.n_parameters = int(shape[-1])
        sizes = np.ones(m, np.int64)
        if samples is not None:
            sizes = check_array("samples", samples, shape=(m,), dtype=np.int64)
            if (sizes < 1).any():
                raise ValueError(f"samples must be at least 1, got {sizes.min()}")
        self.data, self.client_weights = SimpleNamespace(client_sizes=sizes), np.ones(m)
        self.n_samples = int(sizes.sum())
        self.fault = ""
        self._values = np.empty(m)
        self._points: list[Any] = [None] * m
        self._begun = False

    def gradient(self, i: int, w: Array) -> Array:
        self._values[i], gradient = self._evaluate(i, w)
        self._points[i] = w
        return gradient

    def batch_gradient(self, i: int, w: Array, rows: NDArray[np.intp]) -> Array:
        with of_client(i):
            found = cast(Any, self.losses[i]).batch_gradient(w.copy(), rows)
        return self._checked(i, 0.0, found)

    def check_batches(self, algorithm: Algorithm, samples: Any) -> None:
        """Raise ValueError unless clients of an algorithm with batches can have some."""
        if samples is None:
            raise ValueError(
                f"samples must be given for {algorithm.label} with batches, which are drawn of them"
            )
        for i, loss in enumerate(self.losses):
            if not callable(getattr(loss, "batch_gradient", None)):
                raise ValueError(
                    f"losses must have a method batch_gradient(x, rows) for {algorithm.label} with "
                    f"batches, got {type(loss).__name__} without one at index {i}"
                )

    def total_value(self, x: Array) -> float:
        for i in range(self.n_clients):
            if self._points[i] is not x:
                self.gradient(i, x)
        self._begun = True
        return float(self._values.sum())

    def client_gradients(
        self, clients: NDArray[np.intp], x: Array, *, compiled: bool
    ) -> tuple[Array, Array]:
        gradients = np.array([self.gradient(int(i), x) for i in clients]).reshape(-1, len(x))
        self._begun = True
        return self._values[clients], gradients

    def column_bounds(self, start: Array) -> Array:
        return np.repeat(self.lipschitz()[:, None], self.n_parameters, axis=1)

    def accuracy(self, x: Array) -> None:
        return None

    def _evaluate(self, i: int, w: Array) -> tuple[float, Array]:
        with of_client(i):
            found: Any = self.losses[i](w.copy())
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(
                f"losses must give (value, gradient), got {type(found).__name__} of client {i}"
            )
        try:
            value = float(found[0].item() if hasattr(found[0], "item") else found[0])
        except (TypeError, ValueError):
            raise TypeError(
                f"value of client {i} must be a number, got {type(found[0]).__name__}"
            ) from None
        return value, self._checked(i, value, found[1])

    def _checked(self, i: int, value: float, gradient: Any) -> Array:
        """A gradient as an array, which is finite, as the value is, or remembered as a fault."""
        name = f"gradient of client {i}"
        try:
            found = check_array(name, gradient, shape=(self.n_parameters,), finite=False)
        except RuntimeError as error:  # a tensor that is elsewhere, or tracks gradients
            raise TypeError(f"{name} must be an array of numbers: {error}") from None
        if not (math.isfinite(value) and np.isfinite(found).all()):
            self._not_finite(i, value, found)
        return found

    def _not_finite(self, i: int, value: float, gradient: Array) -> None:
        fault = f"value of client {i} must be finite, got {value}"
        if math.isfinite(value):
            j = int(np.flatnonzero(~np.isfinite(gradient))[0])
            fault = f"gradient of client {i} must be finite, got {gradient[j]} at index ({j},)"
        if not self._begun:
            raise ValueError(f"{fault}, before the end of round 0")
        self.fault = self.fault or fault

    @property
    def has_lipschitz(self) -> bool:
        return all(hasattr(loss, "lipschitz") for loss in self.losses)

    def lipschitz(self) -> Array:
        return np.array([float(loss.lipschitz) for loss in self.losses])  # type: ignore[attr-defined]

    def describe(self) -> dict[str, Any]:
        return {"name": "callables"}


class _Compiled(CounterRandomness):
    """The numbers of `CounterRandomness`, by the kernels."""

    def unit_noise(
        self,
        tau: int,
        clients: NDArray[np.intp],
        n: int,
        *,
        standardize: bool = False,
        law: Any = "laplace",
    ) -> Array:
        purpose, tau = (INITIAL_NOISE, 0) if tau < 0 else (NOISE, tau)
        return laplace(self.seed, self.trial, purpose, tau, clients, n, standardize=standardize)
