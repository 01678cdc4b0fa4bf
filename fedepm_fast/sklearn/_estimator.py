"""What the scikit-learn estimators share: from rows and targets to coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._common.text import counted
from .._common.validation import (
    ArgumentValueError,
    check_array,
    check_choice,
    check_finite,
    check_int,
    check_real,
    column_names,
    numbers_of,
    numbers_of_column,
)
from .._common.warned import warn
from ..algorithms.curvature import CurvatureFedEPM
from ..data import FederatedData
from ..data.partition import ByColumn, EqualParts
from ..losses import Objective
from ..models import Model
from ..result import Result
from ..runner import run
from ..stopping import MAX_ROUNDS
from ._model import Learned, Minimum, learned
from ._private import margins
from ._scaled import Coefficients, scaled

if TYPE_CHECKING:
    from ..privacy.private_plan import PrivatePlan

Array = NDArray[np.float64]

#: Clients that rows are dealt to, where nobody says how many.
_CLIENTS = 10
#: The default of a parameter that is there for code of earlier versions only.
DEPRECATED = "deprecated"
#: What `coordinates` is where `preconditioner` was given.
_PRECONDITIONERS = {"auto": "auto", "directions": "whitened", "columns": "columns", "none": "given"}


@dataclass(eq=False, repr=False, kw_only=True)
class FedEPMEstimator(BaseEstimator):
    """Base of the estimators.

    Parameters
    ----------
    n_clients : int, optional
        Clients that the rows are dealt to, shuffled, in equal numbers, where `fit` is not told
        who holds them; an error if there are fewer rows. By default 10, or one for each row if
        these are fewer.
    beta : float
        Weight of the l2 penalty of the coefficients, in the units of X, beside the *mean* loss.
        The intercept is not penalised: the regulariser gives its coordinate the weight 0.
    fit_intercept : bool
    client_weight : {"size", "equal"}
        Whether clients weigh by their rows, which makes the objective that of the pooled rows,
        whoever holds them; or all alike, as in the paper.
    participation : float
        Share of the clients that take part in a round.
    coordinates : {"auto", "renewed", "secant", "whitened", "columns", "given"}
        What the penalty is measured in, see `CurvatureFedEPM`; the solution is the same in all.
    tol : float
        The run ends when a further round is expected to lower the objective by less than ``tol**2``
        of what it was at the start: errors of coefficients are of the size of `tol`, and as a rule
        far below it.
    max_rounds : int
        Communication rounds at most.
    warm_start : bool
        Start from the coefficients of the last `fit`, where they have the right shape.
    random_state : int, RandomState or None
        Of the split and the selections; not of private noise, which is drawn anew in each fit.
    total_epsilon : float, optional
        Fit under differential privacy: what each client may spend, for each of its records. Needs
        `bounds` or `mean_sd`; see `fedepm_fast.fit`. `coordinates`, `tol` and `max_rounds` have no
        effect then.
    privacy_delta : float, optional
        With `total_epsilon`, in [0, 1), 1e-6 by default: Gaussian noise; 0 takes Laplace noise,
        whose guarantee is pure.
    bounds : tuple of float or array_like of shape (p,), optional
        With `total_epsilon`: least and largest values of the columns that are known to everyone,
        to which entries are clipped.
    mean_sd : tuple of float or array_like of shape (p,), optional
        Instead of `bounds`: means and standard deviations that are known to everyone; (0, 1) for
        columns that were standardised by public numbers.
    trust, honest, neighbours : str, float, str, optional
        With `total_epsilon`, as of `fedepm_fast.privacy.plan`: "clients", by default, where nobody
        else is trusted, or "secure-sum", and the share of the clients that is honest; "record", by
        default, or "client", where all rows of a client together are hidden.
    local_steps, lam, eta, mu0, noise, epsilon, preconditioner : optional
        Of earlier versions. They have no effect any more, with a FutureWarning, but for
        `preconditioner`, now `coordinates`, and `noise`, which must be "none".
    """

    n_clients: int | None = None
    beta: float = 1e-3
    fit_intercept: bool = True
    client_weight: str = "size"
    participation: float = 1.0
    coordinates: str = "auto"
    tol: float = 1e-6
    max_rounds: int = 2000
    warm_start: bool = False
    random_state: Any = None
    total_epsilon: float | None = None
    privacy_delta: float | None = None
    bounds: Any = None
    mean_sd: Any = None
    trust: str | None = None
    honest: float | None = None
    neighbours: str | None = None
    local_steps: Any = DEPRECATED
    lam: Any = DEPRECATED
    eta: Any = DEPRECATED
    mu0: Any = DEPRECATED
    noise: Any = DEPRECATED
    epsilon: Any = DEPRECATED
    preconditioner: Any = DEPRECATED

    if TYPE_CHECKING:  # of `fit`, and no parameters
        coef_: Array
        intercept_: Any
        history_: dict[str, Array]
        privacy_: dict[str, Any]
        plan_: PrivatePlan
        _learned: Learned | Model
        _called: tuple[str, str | None]

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

    def _call(self, y: Any, clients: Any) -> None:
        """Note what the labels and the clients are called."""
        label, client = (getattr(given, "name", None) for given in (y, clients))
        self._called = (
            label if isinstance(label, str) else "y", client if isinstance(client, str) else None,
        )  # fmt: skip

    def _weighted(
        self, X: Any, y: Any, clients: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, Any, Array | None]:
        """Rows, targets, clients and weights of the rows that count: those of weight 0 do not."""
        if sample_weight is None:
            return X, y, clients, None
        weights = numbers_of("sample_weight", sample_weight)
        if np.ndim(weights) == 0:
            weights = np.full(len(y), weights)
        weights = check_array("sample_weight", weights, shape=(len(y),))
        if (weights < 0).any():
            raise ValueError(f"sample_weight must be at least 0, got {weights.min()}")
        counts = weights > 0
        if not counts.any():
            raise ValueError("sample_weight must not be zero for every row")
        if counts.all():
            return X, y, clients, weights
        if clients is not None:
            if len(np.asarray(clients)) != len(y):
                raise ValueError(
                    f"client ids must have {len(y)} entries, got {len(np.asarray(clients))}"
                )
            clients = np.asarray(clients)[counts]
        return X[counts], y[counts], clients, weights[counts]

    def _minimise(
        self,
        X: Any,
        y: Array,
        clients: ArrayLike | None,
        weights: Array | None,
        objective: Objective,
        start: Coefficients | None,
        rounds: int | None = None,
    ) -> Minimum:
        """The minimum of the objective, of columns of one scale.

        Or as far as so many `rounds` come. Sets the attributes that describe the run.
        """
        coordinates = self._coordinates()
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        max_rounds = check_int("max_rounds", self.max_rounds, low=0) if rounds is None else rounds
        tol = check_real("tol", self.tol, low=0.0, open_low=True)
        order, sizes, names = self._dealt(y, clients, seed)
        table = scaled(X, order, weights, intercept=bool(self.fit_intercept))
        data = FederatedData(
            table.rows, y[order], sizes, sample_weight=None if weights is None else weights[order]
        )
        result = run(
            CurvatureFedEPM(participation=self.participation, coordinates=coordinates, tol=tol**2),
            data,
            objective=objective.changed(regularizer="beta", weights=table.weights),
            client_weight=self.client_weight,
            seed=seed,
            max_rounds=max_rounds,
            start=None if start is None else table.parameters(*start).ravel(),
            every_accuracy=False,
            engine="reference",  # its gradients are BLAS: nothing is compiled, which takes seconds
        )
        self._describe(result, sizes)
        if result.reasons == (MAX_ROUNDS,) and rounds is None:
            warn(
                f"FedEPM did not converge in {counted(max_rounds, 'round')}: the norm of the "
                f"gradient, of columns of one scale, is {self.history_['gradient_norm'][-1]:.2g}. "
                "Increase max_rounds, tol or beta.",
                ConvergenceWarning,
            )
        v = result.x.reshape(len(result.x) // table.rows.shape[1], -1)
        return Minimum(table, v, order, sizes, names, seed, "converged" in result.reasons)

    def _learn_private(self, model: Model, plan: PrivatePlan) -> tuple[Array, Array]:
        """Keep a private model; its coefficients (K, p) in the units of X, and intercepts (K,)."""
        self.__dict__.pop("history_", None)  # of an earlier fit
        self._learned, self.plan_, self.privacy_ = model, plan, model.training["privacy"]
        self.n_iter_, self.n_clients_ = model.training["rounds"], len(model.clients)
        self.client_sizes_ = np.array([client["rows"] for client in model.clients])
        w = model.prepared.in_units(model.w)
        if not model.prepared.intercept:
            return w, np.zeros(len(w))
        return w[:, :-1], w[:, -1]

    def _check_public(self) -> None:
        """Refuse what is for private fits only."""
        for name in (
            "privacy_delta", "bounds", "mean_sd", "trust", "honest", "neighbours", "classes",
            "label_bounds",
        ):  # fmt: skip
            if getattr(self, name, None) is not None:
                raise ArgumentValueError(name, "needs total_epsilon")

    def _refused(self, sample_weight: Any) -> dict[str, bool]:
        """Which arguments were given that a private fit does not account for."""
        return {
            "sample_weight": sample_weight is not None, "warm_start": bool(self.warm_start),
        }  # fmt: skip

    def _refuse_partial(self) -> None:
        """Refuse `partial_fit` of a private estimator."""
        if self.total_epsilon is not None:
            raise ArgumentValueError(
                "total_epsilon", "must be None for partial_fit: what its calls spend together is "
                "not accounted for",
            )  # fmt: skip

    def _coordinates(self) -> str:
        """`coordinates`, or what a parameter of earlier versions says it is."""
        if self.noise not in (DEPRECATED, "none"):
            raise ValueError(
                f"noise must be 'none', got {self.noise!r}: estimators have none any more, and "
                "what they had protected nobody; run(FedEPM(...)) has the paper's, and mechanisms"
            )
        old = ("local_steps", "lam", "eta", "mu0", "noise", "epsilon", "preconditioner")
        given = [name for name in old if getattr(self, name) is not DEPRECATED
                 and getattr(self, name) != DEPRECATED]  # fmt: skip
        if given:
            warn(
                f"{', '.join(given)} will go: eta is the curvature of the rows now, which needs "
                "none of the paper's parameters; `coordinates` is what `preconditioner` was",
                FutureWarning,
            )
        if "preconditioner" not in given:
            return self.coordinates
        return _PRECONDITIONERS[
            check_choice("preconditioner", self.preconditioner, _PRECONDITIONERS)
        ]

    def _dealt(self, y: Array, clients: ArrayLike | None, seed: int) -> Any:
        """The order of the rows, client by client, and the clients' sizes and names."""
        n_clients = min(_CLIENTS, len(y))
        if self.n_clients is not None:
            n_clients = check_int("n_clients", self.n_clients, low=1)
            if clients is None and n_clients > len(y):
                raise ValueError(
                    f"n_clients must not exceed the number of rows: {n_clients} > {len(y)}"
                )
        how = EqualParts(n_clients) if clients is None else ByColumn(clients)
        parts = how.assign(y, np.random.default_rng(seed))
        names = how.client_names() or tuple(f"client {i + 1}" for i in range(len(parts)))
        return np.concatenate(parts), np.array([len(part) for part in parts]), names

    def _learn(
        self,
        found: Minimum,
        w: Array,
        labels: Array,
        weights: tuple[Array | None, Array | None],
        objective: Objective,
        classes: tuple[Any, ...] | None = None,
        *,
        rounds: int | None,
    ) -> None:
        """Keep what `model_` is made of: never a row.

        Parameters
        ----------
        found : Minimum
        w : ndarray of shape (K, .)
            Coefficients of the columns of one scale, in the units of y.
        labels : ndarray of shape (d,)
        weights : tuple of ndarray or None
            Of the rows as given, and with those of their classes.
        objective : Objective
            In the units of X and y.
        classes : tuple, optional
        rounds : int or None
            How many were allowed by `partial_fit`, after which what is known of earlier rows still
            counts; None for `fit`.
        """
        by_class = getattr(self, "class_weight", None)
        if by_class is not None and not isinstance(by_class, str):
            by_class = {str(name): float(weight) for name, weight in by_class.items()}
        training = {
            "client_weight": self.client_weight, "beta": float(self.beta), "penalised": "raw",
            "class_weight": by_class, "weighted": weights[0] is not None,
            "participation": float(self.participation), "seed": found.seed,
            "rounds": self.n_iter_,
            "max_rounds": int(self.max_rounds if rounds is None else rounds),
            "gradient_norm": float(self.history_["gradient_norm"][-1]), "tol": float(self.tol) ** 2,
            "holdout": 0.0,
        }  # fmt: skip
        for name in ("plan_", "privacy_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        names = getattr(self, "feature_names_in_", None)
        told = None if names is None else tuple(map(str, names))
        partial = rounds is not None
        self._learned = learned(
            found, w, labels, weights, objective, training, classes=classes, features=told,
            called=self._called, partial=partial,
            earlier=getattr(self, "_learned", None) if partial else None,
        )  # fmt: skip

    @property
    def model_(self) -> Model:
        """What was fitted as a `Model`: named coefficients, their errors, words, JSON."""
        check_is_fitted(self)
        return self._learned if isinstance(self._learned, Model) else self._learned.model

    def _describe(self, result: Result, sizes: NDArray[np.int64]) -> None:
        """Set the attributes that describe a run."""
        self.n_iter_, self.n_clients_, self.client_sizes_ = result.rounds, len(sizes), sizes
        self.history_ = {
            "objective": result.history["objective"] / len(sizes),
            "gradient_norm": np.sqrt(result.history["grad_mean_sq"]),
            "elapsed": result.history["elapsed"],
        }

    def _margins(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        if isinstance(self._learned, Model):
            found = margins(self._learned, X)
            return found[:, 0] if self.coef_.ndim == 1 else found
        return X @ self.coef_.T + self.intercept_
