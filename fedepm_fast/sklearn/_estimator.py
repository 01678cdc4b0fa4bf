"""What the scikit-learn estimators share: from rows and targets to coefficients."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._common.validation import (
    check_choice,
    check_finite,
    check_int,
    check_real,
    column_names,
    numbers_of,
    numbers_of_column,
)
from ..algorithms import FedEPM
from ..data import FederatedData
from ..data.partition import ByColumn, EqualParts
from ..losses import Objective
from ..result import DivergenceWarning, Result
from ..runner import run
from ..stopping import MAX_ROUNDS, TextRule
from ._design import design

Array = NDArray[np.float64]
Coefficients = tuple[Array, Array]

PRECONDITIONERS = ("auto", "directions", "columns", "none")
#: Clients that rows are dealt to, where nobody says how many.
_CLIENTS = 10
#: Numbers of the history of points that a run may hold.
_HELD = 1 << 23
#: Gradient steps of all clients after which coordinates are renewed.
_RENEWED_AFTER = 100
#: Default of `eta` in renewed coordinates, in units of bounds that hold near a point only: more
#: than the half at which steps become unstable, as the curvature may grow beyond them.
_ETA_RENEWED = 0.7
#: Margins may shrink to so much of what they are before bounds of the curvature fail.
_SHRINKAGE = 0.8


class _Stage:
    """FedEPM in the coordinates that certain bounds of the curvature give."""

    def __init__(
        self,
        estimator: FedEPMEstimator,
        X: Any,
        y: Array,
        sizes: NDArray[np.int64],
        objective: Objective,
        curvature: Array,
        everywhere: bool,
    ) -> None:
        e = estimator
        self.design = design(
            X, curvature, beta=objective.beta, intercept=e.fit_intercept, kind=e.preconditioner
        )
        rows = self.design.rows(X)
        for piece in (rows.data, rows.indices, rows.indptr) if sparse.issparse(rows) else (rows,):
            piece.setflags(write=False)  # so that it is not copied
        self.data = FederatedData(rows, y, sizes)
        weights = tuple(self.design.weights)
        goal = objective.changed(regularizer="beta", weights=weights)
        self.objective = goal.fit_to(self.data)
        self.n_parameters = self.objective.n_outputs * rows.shape[1]
        tol = check_real("tol", e.tol, low=0.0, open_low=True)
        eta = (e._eta if everywhere else _ETA_RENEWED) if e.eta is None else e.eta
        eta = check_real("eta", eta, low=0.0, open_low=True)
        self.algorithm = FedEPM(
            preset="text",
            noise=e.noise,
            epsilon=e.epsilon,
            local_steps=e.local_steps,
            participation=e.participation,
            lam=0.1 * tol / self.n_parameters**0.5 if e.lam is None else e.lam,
            eta=eta,
            mu0=eta / 2 if e.mu0 is None else e.mu0,
            c=0.0,
            alpha=1.0,
        )
        self.stopping = TextRule((len(sizes) * tol) ** 2, 0.0)

    def rounds(self, renews: bool) -> int:
        """Rounds of a run before new coordinates, or what its history holds, ask for another."""
        if self.algorithm.noise != "none":
            return sys.maxsize
        after = math.ceil(_RENEWED_AFTER / self.algorithm.participation) if renews else sys.maxsize
        return min(after, max(_HELD // self.n_parameters, 1))

    def run(self, start: Array | None, seed: int, trial: int, rounds: int) -> Result:
        return run(
            self.algorithm,
            self.data,
            objective=self.objective,
            seed=seed,
            trial=trial,
            stopping=self.stopping,
            max_rounds=rounds,
            start=start,
            every_accuracy=False,
        )

    def coefficients(self, x: Array) -> Coefficients:
        """Coefficients and intercepts of a point."""
        return self.design.coefficients(x.reshape(self.objective.n_outputs, -1))


def _curvatures(objective: Objective, X: Any, found: Coefficients) -> Array:
    """Bounds of the second derivative of the loss in each row's margins, near a point."""
    t = _SHRINKAGE * (X @ found[0].T + found[1])
    if objective.n_outputs == 1:
        return expit(t[:, 0]) * expit(-t[:, 0])
    p = softmax(t, axis=1)
    # Gershgorin's bound of the largest eigenvalue of diag(p) - p p^T.
    return np.minimum(2 * (p * (1 - p)).max(axis=1), objective.curvature)


@dataclass(eq=False, repr=False, kw_only=True)
class FedEPMEstimator(BaseEstimator):
    """Base of the estimators; its parameters are those of `FedEPMClassifier`."""

    n_clients: int | None = None
    beta: float = 1e-3
    fit_intercept: bool = True
    local_steps: int = 12
    participation: float = 1.0
    lam: float | None = None
    eta: float | None = None
    mu0: float | None = None
    noise: str = "none"
    epsilon: float = 0.1
    preconditioner: str = "auto"
    tol: float = 1e-4
    max_rounds: int = 2000
    warm_start: bool = False
    random_state: Any = None

    #: Default of `eta`, in units of a bound of the Hessian.
    _eta: ClassVar[float] = 1.0

    if TYPE_CHECKING:  # of `fit`, and no parameters
        coef_: Array
        intercept_: Any
        history_: dict[str, Array]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, *arrays: Any, **options: Any) -> Any:
        """What scikit-learn makes of X, or of X and y; its errors name no column."""
        try:
            made = validate_data(self, *arrays, accept_sparse="csr", dtype=np.float64, **options)
            return (made[0], made[1].astype(np.float64)) if options.get("y_numeric") else made
        except (TypeError, ValueError) as error:
            names = column_names(arrays[0])
            if str(error).startswith("The feature names"):
                raise
            try:
                if names is not None:
                    check_finite("X", numbers_of("X", arrays[0]), names)
                if options.get("y_numeric") and np.ndim(arrays[1]) == 1:
                    check_finite("y", numbers_of_column("y", np.asarray(arrays[1], dtype=object)))
            except (TypeError, ValueError) as named:
                raise type(error)(f"{named}: {error}") from None
            raise

    def _minimise(
        self, X: Any, y: Array, clients: ArrayLike | None, objective: Objective, start: Any
    ) -> Coefficients:
        """Coefficients (K, n) and intercepts (K,) that minimise the objective.

        `start` is None or such a pair. Sets the attributes that describe the run.
        """
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        max_rounds = check_int("max_rounds", self.max_rounds, low=0)
        check_choice("preconditioner", self.preconditioner, PRECONDITIONERS)
        X, y, sizes = self._dealt(X, y, clients, seed)
        omega = np.repeat(1.0 / (len(sizes) * sizes), sizes)  # of a row in the mean objective

        everywhere = objective.curvature * omega
        renews = objective.task != "regression" and self.noise == "none"
        stage: _Stage | None = None
        best, found, done = np.inf, start, 0
        pieces: list[Result] = []
        curvature = everywhere
        while True:
            if stage is None:
                stage = _Stage(self, X, y, sizes, objective, curvature, curvature is everywhere)
                point = None if found is None else stage.design.parameters(*found).ravel()
            left = max_rounds - done
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)  # of pieces
                result = stage.run(point, seed, len(pieces), min(left, stage.rounds(renews)))
            pieces.append(result)
            done += result.rounds
            value = result.mean_objective
            failed = value > best or (result.diverged and np.isfinite(best))
            if not failed:
                best, found = value, stage.coefficients(result.x)
            if done >= max_rounds or not (failed or result.reasons == (MAX_ROUNDS,)):
                break
            if not renews:
                point = result.W  # the same run, in pieces
                continue
            # Bounds of the curvature near this point; those that hold everywhere if they fail.
            renews = not failed
            curvature = everywhere if failed else omega * _curvatures(objective, X, found)
            stage = None
        self._describe(pieces, sizes, done)
        if not failed and result.warning:
            warnings.warn(result.warning, DivergenceWarning, stacklevel=3)
        elif result.reasons == (MAX_ROUNDS,) and self.noise == "none":
            warnings.warn(
                f"FedEPM did not converge in {max_rounds} rounds: the norm of the gradient is "
                f"{self.history_['gradient_norm'][-1]:.2g}, tol is {self.tol:g}. Increase "
                "max_rounds, tol or beta.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return found

    def _dealt(self, X: Any, y: Array, clients: ArrayLike | None, seed: int) -> Any:
        """Rows and targets client by client, and the clients' sizes."""
        n_clients = min(_CLIENTS, len(y))
        if self.n_clients is not None:
            n_clients = check_int("n_clients", self.n_clients, low=1)
            if clients is None and n_clients > len(y):
                raise ValueError(
                    f"n_clients must not exceed the number of rows: {n_clients} > {len(y)}"
                )
        how = EqualParts(n_clients) if clients is None else ByColumn(clients)
        parts = how.assign(y, np.random.default_rng(seed))
        order, sizes = np.concatenate(parts), np.array([len(part) for part in parts])
        return X[order], y[order], sizes

    def _describe(self, pieces: list[Result], sizes: NDArray[np.int64], rounds: int) -> None:
        """Set the attributes that describe the runs that a fit was made of."""
        self.n_iter_, self.n_clients_, self.client_sizes_ = rounds, len(sizes), sizes
        before = np.cumsum([0.0, *(piece.total_time for piece in pieces)])
        columns = [
            (
                piece.history["objective"] / len(sizes),
                np.sqrt(piece.history["grad_mean_sq"]),
                piece.history["elapsed"] + elapsed,
            )
            for piece, elapsed in zip(pieces, before, strict=False)
        ]
        # A piece begins where the one before it ended.
        kept = [columns[0], *([c[1:] for c in piece] for piece in columns[1:])]
        names = ("objective", "gradient_norm", "elapsed")
        self.history_ = {
            name: np.concatenate(parts)
            for name, parts in zip(names, zip(*kept, strict=True), strict=True)
        }

    def _margins(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return X @ self.coef_.T + self.intercept_
