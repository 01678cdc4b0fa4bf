"""Ridge and Huber regression over clients as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from .._common.validation import ArgumentValueError, check_choice, check_real
from ..losses.huber import Huber
from ..losses.least_squares import LeastSquares
from ._estimator import FedEPMEstimator
from ._private import fit_private

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class FedEPMRegressor(RegressorMixin, FedEPMEstimator):
    """Ridge or Huber regression over clients, by FedEPM.

    Parameters
    ----------
    loss : {"least_squares", "huber"}
        With `total_epsilon` least squares count residuals linearly beyond a delta that follows from
        the noise, unless whole clients are hidden.
    delta : float
        Of the Huber loss: residuals beyond it count linearly. In the units of y.
    label_bounds : tuple of float, optional
        With `total_epsilon`: least and largest values of y that are known to everyone, to which it
        is clipped.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y.
    intercept_ : float
    n_iter_, history_, n_clients_, client_sizes_, n_features_in_, feature_names_in_, model_,
    privacy_, plan_
        As those of `FedEPMClassifier`; y is brought to unit scale within, so ``objective`` is in
        the units of y squared but ``gradient_norm`` has none.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from fedepm_fast.sklearn import FedEPMRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> FedEPMRegressor(beta=1e-4, random_state=0).fit(X, y).n_iter_
    2
    """

    loss: str = "least_squares"
    delta: float = 1.0
    label_bounds: Any = None

    def fit(
        self,
        X: Any,
        y: Any,
        clients: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
        clients, sample_weight : array_like of shape (n_samples,), optional
            As in `FedEPMClassifier.fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        self._call(y, clients)
        X, y = self._validated(X, y, y_numeric=True)
        if self.total_epsilon is not None:
            return self._fit_private(X, y, clients, sample_weight)
        self._check_public()
        return self._fit(X, y, clients, sample_weight, self.warm_start)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        clients: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One round on these rows, from the coefficients that there are.

        The step is to the minimum of a bound of the objective of these rows, which it lowers.

        Parameters
        ----------
        X, y, clients, sample_weight
            As of `fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        self._refuse_partial()
        self._call(y, clients)
        X, y = self._validated(X, y, y_numeric=True, reset=not hasattr(self, "coef_"))
        return self._fit(X, y, clients, sample_weight, True, rounds=1)

    def _fit_private(self, X: Any, y: Array, clients: ArrayLike | None, sample_weight: Any) -> Self:
        loss = check_choice("loss", self.loss, ("least_squares", "huber"))
        objective = Huber(delta=self.delta) if loss == "huber" else LeastSquares()
        model, plan = fit_private(
            self, X, y, y, clients, objective, self._refused(sample_weight),
            label_bounds=self.label_bounds,
        )  # fmt: skip
        coef, intercept = self._learn_private(model, plan)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        return self

    def _fit(
        self,
        X: Any,
        y: Array,
        clients: ArrayLike | None,
        sample_weight: ArrayLike | None,
        warm: bool,
        rounds: int | None = None,
    ) -> Self:
        loss = check_choice("loss", self.loss, ("least_squares", "huber"))
        delta = check_real("delta", self.delta, low=0.0, open_low=True)
        X, y, clients, weights = self._weighted(X, y, clients, sample_weight)
        with np.errstate(over="ignore"):
            squares = float(y @ y)
        if not np.isfinite(squares):
            raise ArgumentValueError(
                "y", "must be brought to scale: the sum of the squares of numbers up to "
                f"{np.abs(y).max():.3g} is none",
            )  # fmt: skip
        # To unit scale: the penalty of the coefficients scales alike.
        shift = float(np.average(y, weights=weights)) if self.fit_intercept else 0.0
        unit = float(np.abs(y - shift).max())
        if unit > 0:
            unit *= float(np.sqrt(np.average(((y - shift) / unit) ** 2, weights=weights)))
        if loss == "huber":
            unit = min(unit, delta)
        unit = unit or 1.0
        objective = (
            Huber(self.beta, delta=delta / unit) if loss == "huber" else LeastSquares(self.beta)
        )
        start = None
        if warm and getattr(self, "coef_", np.empty(0)).shape == (X.shape[1],):
            start = self.coef_[None] / unit, np.array([(self.intercept_ - shift) / unit])
        targets = (y - shift) / unit
        found = self._minimise(X, targets, clients, weights, objective, start, rounds)
        coef, intercept = found.table.coefficients(found.v)
        self.coef_ = coef[0] * unit
        self.intercept_ = float(intercept[0] * unit + shift)
        self.history_["objective"] = self.history_["objective"] * unit**2
        w = found.v * unit
        if found.table.intercept:
            w[:, -1] += shift
        if loss == "huber":
            objective = Huber(self.beta, delta=delta)
        self._learn(found, w, y, (weights, weights), objective, rounds=rounds)
        return self

    def predict(self, X: Any) -> Array:
        """Predicted values of the rows, shape (n_samples,)."""
        return self._margins(X)
