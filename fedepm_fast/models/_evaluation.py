"""How well a model predicts the rows of a table, client by client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from .._common.text import counted
from .._common.validation import ArgumentTypeError, ArgumentValueError
from ._measures import Measures, measures, probabilities
from ._rows import Rows, coded, read_rows, with_label_in

if TYPE_CHECKING:
    from pandas import DataFrame

    from ._model import Model

Array = NDArray[np.float64]
Curve = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Measures of a model's predictions.

    Attributes
    ----------
    model : Model
    overall : dict
        Of all rows: see `evaluate`.
    clients : dict of dict
        The same of each client's rows, by the client's name.
    left_out : int
        Rows without a label, or of weight 0.
    curves : dict of dict
        By client, for figures: the means of what is ``predicted`` and ``seen`` in bins of rows by
        increasing prediction, and their numbers of ``rows``.
    weighted : bool
        Whether rows weigh differently: then all but ``rows`` is weighted.
    """

    model: Model
    overall: Measures
    clients: dict[str, Measures]
    left_out: int
    curves: dict[str, Curve]
    weighted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model as plain values, None where a measure does not exist."""
        return {
            "overall": self.overall, "clients": self.clients, "left_out": self.left_out,
            "curves": self.curves, "weighted": self.weighted,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], model: Model) -> Evaluation:
        """Of such a dict, for the model that was evaluated."""
        return cls(
            model, record["overall"], record["clients"], record["left_out"], record["curves"],
            record.get("weighted", False),
        )  # fmt: skip

    def to_pandas(self) -> DataFrame:
        """One row per client, and the last of all rows together."""
        pandas = require("pandas", "tables", "Evaluation.to_pandas")
        rows = {**self.clients, "(all)": self.overall}
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("client")

    def __repr__(self) -> str:
        rows = counted(int(self.overall["rows"] or 0), "row")
        return f"<Evaluation of {rows} of {counted(len(self.clients), 'client')}>"

    def __str__(self) -> str:
        from ._words import evaluation_text

        return evaluation_text(self)

    def _repr_html_(self) -> str:
        from ._words import evaluation_html

        return evaluation_html(self)


def evaluate(
    model: Model, table: Any, label: Any = None, client: Any = None, sample_weight: Any = None
) -> Evaluation:
    """Measures of a model's predictions of the rows of a table, client by client and over all.

    Parameters
    ----------
    model : Model
    table : table
        Of any kind that `fedepm_fast.preparation` reads, with the columns of the training.
    label : str, int or array_like of shape (d,), optional
        The column of the labels, or these themselves; by default the column of the training.
        Rows without one are left out.
    client : str, int or array_like of shape (d,), optional
        The column of the clients, or these themselves; by default the column of the training, if
        the table has it. Clients need not be those of the training.
    sample_weight : str, int or array_like of shape (d,), optional
        Weights of the rows in all measures, at least 0, or their column; by default all rows count
        alike, whatever they weighed in the training. Rows of weight 0 are left out.

    Returns
    -------
    Evaluation
        With ``rows`` and, for two classes, ``positives`` (the share of the second class),
        ``log_loss``, ``auc``, ``brier``, ``accuracy``, ``calibration_slope`` and
        ``calibration_intercept``; for more classes ``log_loss``, ``accuracy``, ``brier`` (summed
        over classes) and ``auc``, the mean of the classes' AUC against the rest; for numbers
        ``mean``, ``rmse``, ``mae``, ``r2`` and calibration; for counts ``deviance`` too, the mean
        of the rows'. A name that ends in ``_null`` is of the model that knows no columns, only
        the shares of the classes, or the mean, in the training.

    Raises
    ------
    ValueError, TypeError
        Naming the argument: no such column, a label that is none of the model's classes, no row
        with a label and a weight.
    """
    if not hasattr(model, "as_table"):
        raise ArgumentTypeError(
            "model", f"must be a Model, such as Model.load reads, got {type(model).__name__}"
        )
    held = model.as_table(table)
    if client is None and model.client is not None and model.client in held:
        client = model.client
    rows = read_rows(
        held, model.label if label is None else label, client, sample_weight, whole=True
    )
    rows = with_label_in(rows, bool(model.prepared.choices.get("ignore_case")))
    labels = coded(rows.label, model.classes)
    known = ~np.isnan(labels)
    if not known.any():
        raise ArgumentValueError("label", f"{rows.label.name!r} must not be missing in every row")
    if rows.weights is not None:
        known &= rows.weights > 0
        if not known.any():
            raise ArgumentValueError("sample_weight", "must not be 0 for every row with a label")
    if not known.all():
        rows, labels = rows.take(known), labels[known]
    return evaluation(model, rows, labels, left_out=int((~known).sum()))


def evaluation(model: Model, rows: Rows, labels: Array, *, left_out: int = 0) -> Evaluation:
    """`evaluate` of rows whose labels are coded, by their weights, which are above 0."""
    margins = model.decision_function(rows.table)
    parts = by_client(rows)
    weights = rows.weights

    def picked(chosen: Any) -> tuple[Array, Array, Array | None]:
        return margins[chosen], labels[chosen], None if weights is None else weights[chosen]

    def of(chosen: Any) -> Measures:
        t, b, v = picked(chosen)
        return measures(model.objective, t, b, model.null, v)

    clients = {name: of(chosen) for name, chosen in parts.items()}
    curves = {name: curve(model, *picked(chosen)) for name, chosen in parts.items()}
    return Evaluation(model, of(slice(None)), clients, left_out, curves, weights is not None)


def by_client(rows: Rows) -> Mapping[str, NDArray[np.intp]]:
    """The rows of every client that has some."""
    found = {name: np.flatnonzero(rows.clients == k) for k, name in enumerate(rows.names)}
    return {name: chosen for name, chosen in found.items() if len(chosen)}


#: Rows of a client in a bin of its calibration curve, and bins at most.
_BIN, _BINS = 30, 8


def curve(model: Model, margins: Array, labels: Array, weights: Array | None = None) -> Curve:
    """Means of predictions and of labels in bins of a client's rows, by increasing prediction.

    Of several classes: how probable the most probable one is, and how often it is the label.
    """
    predicted, seen = margins, labels
    if model.classes is None:
        predicted = model.objective.predict(margins)
    elif model.has_probabilities:
        p = probabilities(margins)
        if margins.ndim == 1:
            predicted = p[:, 1]
        else:
            predicted, seen = p.max(axis=1), (p.argmax(axis=1) == labels).astype(np.float64)
    bins = max(1, min(_BINS, len(labels) // _BIN))
    parts = np.array_split(np.argsort(predicted, kind="stable"), bins)

    def means(values: Array) -> list[float]:
        of = [None if weights is None else weights[part] for part in parts]
        return [
            float(np.average(values[part], weights=v)) for part, v in zip(parts, of, strict=True)
        ]

    return {
        "predicted": means(predicted),
        "seen": means(seen),
        "rows": [len(part) for part in parts],
    }
