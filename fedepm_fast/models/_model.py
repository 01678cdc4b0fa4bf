"""What a fit gives: coefficients that one can read, and predictions for any table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from .._common.files import replacing
from .._common.validation import ArgumentValueError, check_choice, check_real
from ._inference import KINDS, Inference
from ._measures import LIKELIHOODS, probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ..losses import Objective
    from ..preparation import Prepared
    from ._comparison import Comparison
    from ._evaluation import Evaluation

Array = NDArray[np.float64]

#: What the intercept is called among the coefficients.
INTERCEPT = "(intercept)"


class ModelWarning(UserWarning):
    """A fit did not converge, or has no finite coefficients."""


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model of a table's columns, as `fit` gives it.

    Attributes
    ----------
    objective : Objective
        The loss, with its parameters and the penalty.
    label, client : str or None
        The columns that the labels and the clients were in.
    classes : tuple or None
        The values of the label in the order of their codes, the last of two the one whose
        probability the margins speak of; None for numbers.
    prepared : Prepared
        How columns of a table become columns of numbers.
    w : ndarray of shape (K, p)
        Coefficients of the prepared columns, for every output of the loss.
    inference : Inference
        Covariances, deviance and what else follows from the clients' sums.
    null : ndarray of shape () or (K,)
        Margins of the model without columns.
    clients : tuple of dict
        For every client its ``name``, its ``rows`` that were used, those ``left_out`` because
        their label is missing, those ``held_out``, and the sum of its rows' ``weight``.
    training : dict
        How it was fitted, as plain values: ``client_weight``, ``beta``, ``rounds``,
        ``converged``, ``gradient_norm``, ``sent`` (numbers a client sent), ``seed`` and others.
    notes : tuple of str
        What is to be known before the model is trusted: that the fit did not converge, say.
    comparison : Comparison or None
        Measures of the rows that `fit` held out.
    """

    objective: Objective
    label: str
    client: str | None
    classes: tuple[Any, ...] | None
    prepared: Prepared
    w: Array
    inference: Inference
    null: Array
    clients: tuple[dict[str, Any], ...]
    training: dict[str, Any]
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = field(default=None, repr=False)

    # Coefficients -----------------------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the prepared columns, shape (p,); the intercept, if there is one, is last."""
        return tuple(self.prepared.feature_names)

    @cached_property
    def coef(self) -> Array:
        """Coefficients in the units of the table, intercept included: shape (1, p) or (K, p).

        Of more than two classes they are those against the first, whose own are zero.
        """
        found = self.w @ np.asarray(self.prepared.units).T
        return found - found[0] if len(found) > 1 else found

    @property
    def _told(self) -> Array:
        """The rows of `coef` that say something, shape (K', p)."""
        return self.coef if len(self.coef) == 1 else self.coef[1:]

    @property
    def has_intercept(self) -> bool:
        return bool(self.feature_names) and self.feature_names[-1] == INTERCEPT

    @property
    def coefficients(self) -> dict[Any, Any]:
        """Coefficients by column, in the units of the table, without the intercept.

        Of more than two classes a dict by class, each against the first.
        """
        return self._named(self._told, intercept=False)

    @property
    def intercept(self) -> Any:
        """The intercept, 0 if there is none; of more than two classes a dict by class."""
        last = self._told[:, -1] if self.has_intercept else np.zeros(len(self._told))
        if len(last) == 1:
            return float(last[0])
        assert self.classes is not None
        return dict(zip(self.classes[1:], last.tolist(), strict=True))

    def _named(self, values: Any, *, intercept: bool = True) -> dict[Any, Any]:
        """Values of shape (K', p, ...) by column, and by class before that if there are several."""
        names = self.feature_names
        if self.has_intercept and not intercept:
            names = names[:-1]
        rows = [dict(zip(names, row, strict=False)) for row in np.asarray(values).tolist()]
        if len(rows) == 1:
            return rows[0]
        assert self.classes is not None
        return dict(zip(self.classes[1:], rows, strict=True))

    # Inference --------------------------------------------------------------------------

    def covariance(self, kind: str | None = None) -> Array:
        """The covariance of the coefficients in the units of the table, shape (K'*p, K'*p).

        Columns in the order of `feature_names`, for each class but the first if there are more
        than two.

        Parameters
        ----------
        kind : {"wald", "robust", "clustered"}, optional
            From the likelihood; robust to rows that vary more or less than it says; or robust to
            rows of a client that resemble one another. By default the first that there is.

        Raises
        ------
        ValueError
            If there is none of this kind, and why; without `kind`, if the loss is no likelihood.
        """
        return self.inference.covariances[self._kind(kind)]

    def _kind(self, kind: str | None) -> str:
        known = self.inference
        if kind is None:
            if known.default is None:
                why = known.missing.get("wald", "")
                raise ArgumentValueError(
                    "kind", f"must be given where there is no default: {why}; "
                    f"{' and '.join(known.covariances) or 'no kind'} can be had",
                )  # fmt: skip
            return known.default
        if check_choice("kind", kind, KINDS) not in known.covariances:
            raise ArgumentValueError("kind", f"{kind!r} cannot be had: {known.missing[kind]}")
        return kind

    def _errors(self, kind: str | None) -> Array:
        variances = np.diag(self.covariance(kind)).reshape(self._told.shape)
        return np.sqrt(np.maximum(variances, 0.0))

    def standard_errors(self, kind: str | None = None) -> dict[Any, Any]:
        """Standard errors by column, the intercept included; see `covariance`."""
        return self._named(self._errors(kind))

    def p_values(self, kind: str | None = None) -> dict[Any, Any]:
        """Two-sided p-values of the coefficients being zero, by column; see `covariance`."""
        return self._named(self.statistics(kind)["p_value"].reshape(self._told.shape))

    def confidence_intervals(self, level: float = 0.95, kind: str | None = None) -> dict[Any, Any]:
        """Lower and upper ends by column, as lists of two; see `covariance`.

        Student's distribution for least squares and for clustered errors, with clients minus 1
        degrees of freedom; else the normal one.
        """
        found = self.statistics(kind, level)
        ends = np.stack([found["low"], found["high"]], axis=1)
        return self._named(ends.reshape(*self._told.shape, 2))

    def statistics(self, kind: str | None = None, level: float = 0.95) -> dict[str, Array]:
        """Coefficients and what is said of them, arrays of shape (K'*p,).

        Returns
        -------
        dict
            ``coefficient``, ``standard_error``, ``statistic`` (their ratio), ``p_value``, ``low``
            and ``high``.
        """
        from scipy.stats import t

        level = check_real("level", level, low=0.0, high=1.0, open_low=True, open_high=True)
        kind = self._kind(kind)
        value, error = self._told.ravel(), self._errors(kind).ravel()
        law = t(self.inference.df(kind))
        ratio = np.divide(value, error, out=np.full(len(value), np.nan), where=error > 0)
        reach = law.ppf((1 + level) / 2) * error
        return {
            "coefficient": value, "standard_error": error, "statistic": ratio,
            "p_value": 2 * law.sf(np.abs(ratio)), "low": value - reach, "high": value + reach,
        }  # fmt: skip

    def to_pandas(self, kind: str | None = None, level: float = 0.95) -> DataFrame:
        """`statistics` as a table, one row per coefficient."""
        pandas = require("pandas", "tables", "Model.to_pandas")
        names: list[Any] = list(self.feature_names)
        if len(self._told) > 1:
            assert self.classes is not None
            index = pandas.MultiIndex.from_product(
                [self.classes[1:], names], names=["class", "column"]
            )
        else:
            index = pandas.Index(names, name="column")
        return pandas.DataFrame(self.statistics(kind, level), index=index)

    # Predictions ------------------------------------------------------------------------

    def decision_function(self, table: Any) -> Array:
        """Margins of the rows of a table: shape (d,), or (d, K) for more than two classes.

        Parameters
        ----------
        table : table
            Of any kind that `fedepm_fast.preparation` reads, with the columns of the training.
        """
        margins = np.asarray(self.prepared.transform(table)) @ self.w.T
        return margins[:, 0] if len(self.w) == 1 else margins

    def predict(self, table: Any) -> NDArray[Any]:
        """The most probable class, or the predicted number, of every row: shape (d,)."""
        predicted = self.objective.predict(self.decision_function(table))
        if self.classes is None:
            return predicted
        return np.array(self.classes)[predicted.astype(int)]

    def predict_proba(self, table: Any) -> Array:
        """Probabilities of the classes, shape (d, K), in the order of `classes`.

        Raises
        ------
        ValueError
            If the loss has none.
        """
        if not self.has_probabilities:
            raise ValueError(f"the loss {self.objective.name} gives no probabilities of classes")
        return probabilities(self.decision_function(table))

    @property
    def has_probabilities(self) -> bool:
        """Whether its margins say how probable classes are."""
        return self.classes is not None and self.objective.name in LIKELIHOODS

    def score(self, table: Any, label: Any = None) -> float:
        """Share of the rows whose class is predicted, or R squared of predicted numbers.

        Parameters
        ----------
        table : table
        label : str or array_like, optional
            The column of the labels, or these themselves; by default the column of the training.
        """
        from ._evaluation import evaluate

        found = evaluate(self, table, label).overall
        return float("nan") if (v := found[_SCORE[self.classes is None]]) is None else float(v)

    # Words and figures ------------------------------------------------------------------

    def plot(self, evaluation: Evaluation | None = None, level: float = 0.95) -> Figure:
        """Coefficients with their intervals, and beside them the calibration client by client.

        Coefficients of numbers are per standard deviation of the column, so that they compare;
        those of levels are as they are.

        Parameters
        ----------
        evaluation : Evaluation, optional
            Of which rows the calibration is; by default of those that `fit` held out, if any.
        level : float
            Of the intervals.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        from ._figure import draw

        return draw(self, evaluation, level)

    def summary(self, kind: str | None = None, level: float = 0.95) -> str:
        """The model for a terminal of 80 columns; `kind` as in `covariance`."""
        from ._words import summary_of

        return summary_of(self, kind, level)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        rows = sum(client["rows"] for client in self.clients)
        return (
            f"<Model {self.objective.name} of {self.label}: {len(self.clients)} "
            f"client{'s' * (len(self.clients) != 1)}, {rows} rows, "
            f"{self._told.size} coefficients>"
        )

    def _repr_html_(self) -> str:
        from ._words import html_of

        return html_of(self)

    # Files ------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The model as `save` writes it, JSON-able."""
        from ._saving import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Model:
        """The model of a dict that `to_dict` made.

        Raises
        ------
        ValueError
            If it is none, or of a newer version.
        """
        from ._comparison import Comparison
        from ._saving import fields_of

        model = cls(**fields_of(record))
        if (compared := record["comparison"]) is None:
            return model
        return replace(model, comparison=Comparison.from_dict(compared, model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; the file appears complete or not at all."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model written by `save`.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is no model, is damaged, or was written by a newer version.
        """
        from ._saving import FORMAT, VERSION

        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no model at {path}")
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            version = record["version"] if record["format"] == FORMAT else 0
            if version <= VERSION:
                return cls.from_dict(record)
        except (OSError, KeyError, ValueError, TypeError, RecursionError):
            raise ValueError(
                f"{path} is not a complete model file, as Model.save writes it"
            ) from None
        raise ValueError(f"{path} has version {version}, this fedepm_fast reads up to {VERSION}")


#: What `Model.score` is of classes, and of numbers.
_SCORE: dict[bool, str] = {False: "accuracy", True: "r2"}
