"""Estimators under differential privacy: what is declared of the columns, and the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_real,
    numbers_of,
)
from ..losses import Objective
from ..models import Model
from ..models._private import private_model
from ..models._rows import Rows
from ..preparation import Preparation, Prepared, as_table
from ..preparation._table import column_of

if TYPE_CHECKING:
    from ..privacy.private_plan import PrivatePlan
    from ._estimator import FedEPMEstimator

Array = NDArray[np.float64]


def fit_private(
    estimator: FedEPMEstimator,
    X: Any,
    y: NDArray[Any],
    labels: Array,
    clients: Any,
    objective: Objective,
    refused: Mapping[str, bool],
    *,
    classes: tuple[Any, ...] | None = None,
    label_bounds: Any = None,
) -> tuple[Model, PrivatePlan]:
    """The model of an estimator that has a `total_epsilon`, and its plan.

    `refused` says which arguments were given that a private fit has no account for.
    """
    for name, given in refused.items():
        if given:
            raise ArgumentValueError(
                name, "must not be given with total_epsilon, which does not account for it"
            )
    if sparse.issparse(X):
        raise ArgumentTypeError("X", "must be dense with total_epsilon, got a sparse matrix")
    names = getattr(estimator, "feature_names_in_", None)
    names = [f"x{j + 1}" for j in range(X.shape[1])] if names is None else list(map(str, names))
    prepared = declared(estimator, names)
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    order, sizes, held = estimator._dealt(labels, clients, seed)
    table = as_table(X[order], names)
    who = np.repeat(np.arange(len(sizes)), sizes)
    label, client = estimator._called
    rows = Rows(table, column_of(label, y[order]), who, held, None, (label, client))
    asked = {
        "total_epsilon": estimator.total_epsilon, "delta": estimator.privacy_delta,
        "client_weight": estimator.client_weight, "participation": estimator.participation,
        "trust": estimator.trust, "honest": estimator.honest, "neighbours": estimator.neighbours,
    }  # fmt: skip
    return private_model(
        rows, labels[order], objective, classes, prepared, asked, estimator.beta,
        label_bounds=label_bounds, raw_penalty=True,
    )  # fmt: skip


def margins(model: Model, X: Any) -> Array:
    """Margins (d, K) of a private model, whose columns are clipped to bounds as in its fit."""
    held = X.toarray() if sparse.issparse(X) else X
    table = as_table(held, [rule.name for rule in model.prepared.columns])
    return np.asarray(model.prepared.transform(table) @ model.w.T)


def declared(estimator: FedEPMEstimator, names: list[str]) -> Prepared:
    """What `bounds` or `mean_sd` declare of the columns.

    Raises
    ------
    ValueError, TypeError
        Unless exactly one of them is given, and is that.
    """
    bounds, mean_sd = estimator.bounds, estimator.mean_sd
    if (bounds is None) == (mean_sd is None):
        raise ValueError(
            "exactly one of bounds and mean_sd must be given with total_epsilon, what is public "
            "of the columns: what is learned from rows is not private"
        )
    if bounds is not None:
        low, high = pair("bounds", bounds, len(names))
        told: list[dict[str, Any]] = [{"bounds": ends} for ends in zip(low, high, strict=True)]
    else:
        mean, sd = pair("mean_sd", mean_sd, len(names))
        told = [{"mean": m, "sd": s} for m, s in zip(mean, sd, strict=True)]
    columns = dict(zip(names, told, strict=True))
    return Preparation.public(columns, intercept=bool(estimator.fit_intercept))


def pair(name: str, given: Any, p: int) -> tuple[list[float], list[float]]:
    """Two numbers, or arrays of p numbers, as two lists of p."""
    try:
        first, second = given
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            name, f"must be two numbers, or two arrays of a number for each column, got {given!r}"
        ) from None
    found = []
    for part in (first, second):
        if np.ndim(part) == 0:
            found.append([check_real(name, part)] * p)
        else:
            found.append(check_array(name, numbers_of(name, part), shape=(p,)).tolist())
    return found[0], found[1]
