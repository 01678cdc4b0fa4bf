"""Logistic regression over clients as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ..losses import Objective
from ..losses.logistic import Logistic
from ..losses.multinomial import Multinomial
from ._estimator import FedEPMEstimator
from ._private import fit_private
from ._scaled import Coefficients

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class FedEPMClassifier(ClassifierMixin, FedEPMEstimator):
    """Logistic regression over clients, binary or multinomial, by FedEPM.

    Parameters
    ----------
    class_weight : dict or "balanced", optional
        Weights of the classes, which multiply those of the rows; "balanced" gives all classes the
        same sum of weights.
    classes : array_like of shape (n_classes,), optional
        With `total_epsilon`: all classes that there are, known to everyone.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        In the units of X.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_iter_ : int
        Communication rounds.
    history_ : dict of ndarray
        For every round: ``objective``, the mean objective; ``gradient_norm``, that of its gradient,
        of columns of one scale; ``elapsed``, seconds.
    n_clients_ : int
    client_sizes_ : ndarray of shape (m,)
        Rows of each client; those of weight 0 do not count. Zeros where whole clients are hidden.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where X has names for its columns.
    privacy_, plan_ : dict, PrivatePlan
        With `total_epsilon`: what the fit states, its ``guarantee`` first, and the settings that
        were known before it. There is no ``history_`` then, which is not released.
    model_ : Model
        The same model by the names of the columns (``x1``, ``x2``, ... where they have none), with
        standard errors, words for a terminal or a notebook, and JSON; see `fedepm_fast.Model`.
        Its tables are dense. After `partial_fit` it has no standard errors.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedepm_fast.sklearn import FedEPMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FedEPMClassifier(n_clients=20, random_state=0).fit(X, y).score(X, y) > 0.94
    True
    """

    class_weight: Any = None
    classes: Any = None

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
            Two or more classes.
        clients : array_like of shape (n_samples,), optional
            The client of every row, numbers or strings; with metadata routing,
            ``set_fit_request(clients=True)``.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows, at least 0.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        self._call(y, clients)
        X, y = self._validated(X, y)
        check_classification_targets(y)
        if self.total_epsilon is not None:
            return self._fit_private(X, y, clients, sample_weight)
        self._check_public()
        X, y, clients, weights = self._weighted(X, y, clients, sample_weight)
        classes = np.unique(y)
        start = self._start(classes, X.shape[1]) if self.warm_start else None
        return self._fit(X, y, clients, weights, classes, start)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        clients: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One round on these rows, from the coefficients that there are.

        The step is to the minimum of a bound of the objective of these rows, which it lowers.

        Parameters
        ----------
        X, y, clients, sample_weight
            As of `fit`; y need not have every class.
        classes : array_like of shape (n_classes,), optional
            All that there are, in the first call; later the same or None.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        self._refuse_partial()
        first = not hasattr(self, "classes_")
        self._call(y, clients)
        X, y = self._validated(X, y, reset=first)
        check_classification_targets(y)
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit")
        known = self.classes_ if classes is None else np.unique(np.asarray(classes))
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_}")
        _check_among(y, known)
        X, y, clients, weights = self._weighted(X, y, clients, sample_weight)
        return self._fit(X, y, clients, weights, known, self._start(known, X.shape[1]), rounds=1)

    def _fit_private(
        self, X: Any, y: NDArray[Any], clients: ArrayLike | None, sample_weight: Any
    ) -> Self:
        if self.classes is None:
            raise ValueError(
                "classes must be given with total_epsilon: those that the rows have are not public"
            )
        classes = np.unique(np.asarray(self.classes))
        if len(classes) < 2:
            raise ValueError(f"classes must be at least two, got {classes.tolist()}")
        _check_among(y, classes)
        refused = self._refused(sample_weight) | {"class_weight": self.class_weight is not None}
        model, plan = fit_private(
            self, X, y, np.searchsorted(classes, y).astype(np.float64), clients,
            Logistic() if len(classes) == 2 else Multinomial(classes=len(classes)), refused,
            classes=tuple(classes.tolist()),
        )  # fmt: skip
        self.coef_, self.intercept_ = self._learn_private(model, plan)
        self.classes_ = classes
        return self

    def _start(self, classes: NDArray[Any], columns: int) -> Coefficients | None:
        """The coefficients that there are, if they are of this shape."""
        shape = (1 if len(classes) == 2 else len(classes), columns)
        found = getattr(self, "coef_", np.empty(0)).shape == shape
        return (self.coef_, self.intercept_) if found else None

    def _fit(
        self,
        X: Any,
        y: NDArray[Any],
        clients: ArrayLike | None,
        weights: Array | None,
        classes: NDArray[Any],
        start: Coefficients | None,
        rounds: int | None = None,
    ) -> Self:
        if len(classes) < 2:
            raise ValueError(
                f"y must have at least two classes, got one class: {classes.tolist()[0]!r}"
            )
        codes, plain = np.searchsorted(classes, y), weights
        if self.class_weight is not None:
            weights = np.ones(len(y)) if weights is None else weights
            weights = weights * self._class_weights(classes, codes, weights)[codes]
        binary = len(classes) == 2
        objective: Objective = (
            Logistic(self.beta) if binary else Multinomial(self.beta, classes=len(classes))
        )
        labels = codes.astype(np.float64)
        found = self._minimise(X, labels, clients, weights, objective, start, rounds)
        self.coef_, self.intercept_ = found.table.coefficients(found.v)
        self.classes_ = classes
        self._learn(
            found, found.v, labels, (plain, weights), objective, tuple(classes.tolist()),
            rounds=rounds,
        )  # fmt: skip
        return self

    def _class_weights(self, classes: NDArray[Any], codes: NDArray[Any], weights: Array) -> Array:
        """Weights of the classes, shape (K,)."""
        if self.class_weight != "balanced":
            found = compute_class_weight(self.class_weight, classes=classes, y=classes[codes])
            return np.asarray(found, np.float64)
        sums = np.bincount(codes, weights, len(classes))
        return weights.sum() / (len(classes) * np.where(sums > 0, sums, 1.0))

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


def _check_among(y: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse labels that are none of the classes."""
    if unknown := sorted(set(np.unique(y).tolist()) - set(classes.tolist())):
        raise ValueError(f"y must be among classes, got {unknown[0]!r}")
