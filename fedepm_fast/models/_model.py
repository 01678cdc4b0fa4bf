"""What a fit gives: coefficients that one can read, and predictions for any table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.json_files import read_json, write_json
from .._common.text import counted
from ..preparation import as_table
from ._coefficients import Coefficients
from ._inference import Inference
from ._measures import LIKELIHOODS, probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..losses import Objective
    from ..preparation import Prepared, Table
    from ._comparison import Comparison
    from ._evaluation import Evaluation

Array = NDArray[np.float64]


class ModelWarning(UserWarning):
    """A fit did not converge, or has no finite coefficients."""


@dataclass(frozen=True, eq=False)
class Model(Coefficients):
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
        their label is missing or their weight is 0, those ``held_out``, and the sum of its
        rows' ``weight``.
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

    # Predictions ------------------------------------------------------------------------

    def decision_function(self, table: Any) -> Array:
        """Margins of the rows of a table: shape (d,), or (d, K) for more than two classes.

        Parameters
        ----------
        table : table
            Of any kind that `fedepm_fast.preparation` reads, with the columns of the training. A
            CSV file is read as that of the training was.
        """
        margins = np.asarray(self.prepared.transform(self.as_table(table))) @ self.w.T
        return margins[:, 0] if len(self.w) == 1 else margins

    def as_table(self, table: Any) -> Table:
        """A table of any kind; a CSV file is read by the options that `fit` read its own by."""
        from ..preparation._files import read_as

        if isinstance(table, (str, os.PathLike)):
            return read_as(table, self.training.get("read", {}))
        return as_table(table)

    def predict(self, table: Any) -> NDArray[Any]:
        """The most probable class, or the predicted number, of every row: shape (d,)."""
        return self._predicted(self.decision_function(table))

    def _predicted(self, margins: Array) -> NDArray[Any]:
        predicted = self.objective.predict(margins)
        if self.classes is None:
            return predicted
        return np.array(self.classes)[predicted.astype(int)]

    def predictions(self, table: Any) -> dict[str, NDArray[Any]]:
        """Columns of predictions: ``prediction``, and for each class ``probability_CLASS``.

        Without the latter where the loss gives no probabilities.
        """
        margins = self.decision_function(table)
        found = {"prediction": self._predicted(margins)}
        if self.classes is not None and self.has_probabilities:
            each = probabilities(margins).T
            found |= {f"probability_{c}": p for c, p in zip(self.classes, each, strict=True)}
        return found

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

    def score(self, table: Any, label: Any = None, sample_weight: Any = None) -> float:
        """Share of the rows whose class is predicted, or R squared of predicted numbers.

        Parameters
        ----------
        table : table
        label : str or array_like, optional
            The column of the labels, or these themselves; by default the column of the training.
        sample_weight : str, int or array_like, optional
            As in `evaluate`.
        """
        from ._evaluation import evaluate

        found = evaluate(self, table, label, sample_weight=sample_weight).overall
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
        # None are told of whole clients that are hidden.
        told = f"{counted(rows, 'row')}, " if rows else ""
        return (
            f"<Model {self.objective.name} of {self.label}: "
            f"{counted(len(self.clients), 'client')}, {told}"
            f"{counted(self.told.size, 'coefficient')}>"
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
            If it is none, of a newer version, or of a loss of your own that is not defined.
        """
        from ._comparison import Comparison
        from ._saving import fields_of

        model = cls(**fields_of(record))
        if (compared := record["comparison"]) is None:
            return model
        return replace(model, comparison=Comparison.from_dict(compared, model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; the file appears complete or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model written by `save`.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is no model, is damaged, was written by a newer version, or is of a loss of your
            own, a class, whose file is not imported.
        """
        from ._saving import VERSION, version_of

        return read_json(path, VERSION, cls.from_dict, "a model", version_of)


#: What `Model.score` is of classes, and of numbers.
_SCORE: dict[bool, str] = {False: "accuracy", True: "r2"}
