"""FedEPM as scikit-learn estimators: linear models whose rows are spread over clients.

``FedEPMClassifier`` is logistic regression, binary or multinomial; ``FedEPMRegressor`` is ridge or
Huber regression. They minimise::

    (1/m) * sum_i (1/d_i) * sum_t loss(<a_t, w> + b, y_t) + beta/2 * |w|^2

over m clients with d_i rows each. With clients of equal size that is the pooled objective of
``LogisticRegression(C=1/(beta*d))`` and ``Ridge(alpha=beta*d)``; the intercept b is not penalised.

The rows of all clients are in this process: this is a simulation of federated learning, with
scikit-learn's tools around it. Nothing is noisy or private unless `noise` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_softmax, softmax

from .._common.docstrings import inherit_parameters
from .._common.extras import require
from .._common.validation import check_choice, check_real
from ..losses import Objective
from ..losses.huber import Huber
from ..losses.least_squares import LeastSquares
from ..losses.logistic import Logistic
from ..losses.multinomial import Multinomial

require("sklearn", "sklearn", "fedepm_fast.sklearn")

from sklearn.base import ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402

from ._estimator import FedEPMEstimator  # noqa: E402

__all__ = ["FedEPMClassifier", "FedEPMRegressor"]

Array = NDArray[np.float64]


class FedEPMClassifier(ClassifierMixin, FedEPMEstimator):
    """Logistic regression over clients, binary or multinomial, by FedEPM.

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
    local_steps, participation : int, float
        Local steps of a client in a round, and the share of the clients that take part in it.
        With a share rho about 1/rho times as many rounds are needed.
    lam, eta, mu0 : float, optional
        FedEPM's penalty: weights of its l1 and quadratic part, and the penalty parameter of the
        local steps, in coordinates in which the Hessian is at most the identity (see
        `preconditioner`). By default ``eta`` is 0.6 (1 for regression; 0.7 where the
        coordinates are renewed), ``mu0 = eta/2``, and ``lam`` so small that it leaves the gradient
        of the solution below `tol`. A larger `lam` lets the run end early: where all clients'
        gradients are at most lam, nothing moves.
        That the exact penalty theorem asks for (`theory.lam_star`) is of that kind.
    noise : {"none", "laplace", "standardized"}
        Of the uploads; see the package's notes on privacy, none of these protects anyone.
    epsilon : float
        Divides the noise.
    preconditioner : {"auto", "directions", "columns", "none"}
        Coordinates of the run; the solution is the same in all. Eigenvectors of the rows'
        covariance, each with its own scale; or the columns of X, each with its own scale; or X
        as it is, with one scale. "auto" takes the first for dense X of up to 1000 columns. A
        federation would add up the clients' second moments for it, once.
    tol : float
        The run ends when the norm of the mean gradient, in these coordinates, is below it.
    max_rounds : int
        Communication rounds at most.
    warm_start : bool
        Start from the coefficients of the last `fit`, where they have the right shape.
    random_state : int, RandomState or None
        Of the split, the selections and the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        In the units of X.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_iter_ : int
        Communication rounds.
    history_ : dict of ndarray
        For every round: ``objective``, the mean of the clients' objectives; ``gradient_norm``,
        compared with `tol`; ``elapsed``, seconds.
    n_clients_ : int
    client_sizes_ : ndarray of shape (m,)
        Rows of each client.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where X has names for its columns.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedepm_fast.sklearn import FedEPMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FedEPMClassifier(n_clients=20, random_state=0).fit(X, y).score(X, y) > 0.94
    True
    """

    _eta = 0.6

    def fit(self, X: Any, y: Any, clients: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
            Two or more classes.
        clients : array_like of shape (n_samples,), optional
            The client of every row, numbers or strings; with metadata routing,
            ``set_fit_request(clients=True)``.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        X, y = self._validated(X, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got one class: {classes[0]!r}")
        binary = len(classes) == 2
        objective: Objective = (
            Logistic(self.beta) if binary else Multinomial(self.beta, classes=len(classes))
        )
        shape = (1 if binary else len(classes), X.shape[1])
        start = None
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == shape:
            start = self.coef_, self.intercept_
        labels = codes.astype(np.float64)
        self.coef_, self.intercept_ = self._minimise(X, labels, clients, objective, start)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> Array:
        """Margins of the rows: of the second class, (n_samples,), or of each (n_samples, K)."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, shape (n_samples,)."""
        margins = self.decision_function(X)
        best = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, shape (n_samples, n_classes)."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([expit(-margins), expit(margins)])
        return softmax(margins, axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities, exact where these underflow."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            margins = np.column_stack([np.zeros_like(margins), margins])
        return log_softmax(margins, axis=1)


@dataclass(eq=False, repr=False, kw_only=True)
class FedEPMRegressor(RegressorMixin, FedEPMEstimator):
    """Ridge or Huber regression over clients, by FedEPM.

    Parameters
    ----------
    loss : {"least_squares", "huber"}
    delta : float
        Of the Huber loss: residuals beyond it count linearly. In the units of y.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y.
    intercept_ : float
    n_iter_, history_, n_clients_, client_sizes_, n_features_in_, feature_names_in_
        As those of `FedEPMClassifier`; y is brought to unit scale within, so ``objective`` is in
        the units of y squared but ``gradient_norm``, compared with `tol`, has none.

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

    def fit(self, X: Any, y: Any, clients: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
        clients : array_like of shape (n_samples,), optional
            As in `FedEPMClassifier.fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        X, y = self._validated(X, y, y_numeric=True)
        loss = check_choice("loss", self.loss, ("least_squares", "huber"))
        delta = check_real("delta", self.delta, low=0.0, open_low=True)
        # To unit scale, as `tol` has none; the penalty of the coefficients scales alike.
        shift = y.mean() if self.fit_intercept else 0.0
        unit = np.abs(y - shift).max()
        if unit > 0:
            unit *= np.sqrt(np.mean(((y - shift) / unit) ** 2))
        if loss == "huber":
            unit = min(unit, delta)
        unit = unit or 1.0
        objective = (
            Huber(self.beta, delta=delta / unit) if loss == "huber" else LeastSquares(self.beta)
        )
        start = None
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (X.shape[1],):
            start = self.coef_[None] / unit, np.array([(self.intercept_ - shift) / unit])
        coef, intercept = self._minimise(X, (y - shift) / unit, clients, objective, start)
        self.coef_ = coef[0] * unit
        self.intercept_ = float(intercept[0] * unit + shift)
        self.history_["objective"] = self.history_["objective"] * unit**2
        return self

    def predict(self, X: Any) -> Array:
        """Predicted values of the rows, shape (n_samples,)."""
        return self._margins(X)


inherit_parameters(FedEPMRegressor, FedEPMClassifier)
