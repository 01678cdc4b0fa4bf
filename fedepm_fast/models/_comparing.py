"""The models that a comparison is of, and their measures of the rows that were held out."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..data import FederatedData
from ..objectives import Problem
from ._comparison import Comparison
from ._evaluation import by_client, evaluation
from ._measures import Measures
from ._model import Model
from ._rows import Rows
from ._training import Settings, Trained, train

Array = NDArray[np.float64]


def compare(
    trained: Trained,
    model: Model,
    training: tuple[Rows, Array],
    rest: tuple[Rows, Array],
    settings: Settings,
) -> Comparison:
    """Measures of the rows that were held out, by the models of the others."""
    with warnings.catch_warnings():
        # Of levels that a client alone has not seen: it says so by its measures.
        warnings.simplefilter("ignore")
        own = _local(training, rest, settings)
    return Comparison(evaluation(model, *rest), evaluation(_pooled(trained, model), *rest), *own)


def _pooled(trained: Trained, model: Model) -> Model:
    """The model of one table with all rows."""
    problem = trained.problem
    data = problem.data
    together = FederatedData(
        data.features, data.labels, np.array([data.n_samples]), sample_weight=data.sample_weight
    )
    pooled = Problem(together, problem.objective, "size")
    found = pooled.optimum(model.w.ravel(), method="newton")
    return replace(model, w=found.x.reshape(model.w.shape))


def _local(
    training: tuple[Rows, Array], rest: tuple[Rows, Array], settings: Settings
) -> tuple[dict[str, Measures], dict[str, str], dict[str, str]]:
    """Measures of every client's own model, or why it has none, and notes on it."""
    found: dict[str, Measures] = {}
    without: dict[str, str] = {}
    notes: dict[str, str] = {}
    (rows, labels), (held, held_labels) = training, rest
    mine = by_client(rows)
    for name, chosen in by_client(held).items():
        own = mine.get(name, np.empty(0, dtype=np.intp))
        reason = _too_little(labels[own], settings)
        if reason:
            without[name] = reason
            continue
        try:
            model = train(rows.take(own), labels[own], settings).model
        except ValueError as error:
            without[name] = str(error)
            continue
        if blamed := model.training["unbounded"]:
            notes[name] = f"coefficients without bound, of {', '.join(blamed)}"
        elif model.notes:
            notes[name] = "a fit that did not converge"
        found[name] = evaluation(model, held.take(chosen), held_labels[chosen]).overall
    return found, without, notes


def _too_little(labels: Array, settings: Settings) -> str:
    """Why there is no model of a client's labels; empty if there is one."""
    if settings.classes is None:
        return "" if len(labels) > 1 else "too few rows"
    held = len(np.unique(labels))
    if held == len(settings.classes):
        return ""
    return f"rows of {held} of the {len(settings.classes)} classes" if held else "no other rows"
