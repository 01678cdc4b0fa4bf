"""Models as JSON, without pickle, for this package and for any other reader.

A file is one object. ``format`` is ``fedepm_fast model`` and ``version`` a number. To predict, a
reader needs ``classes``, ``objective``, ``prepared`` and ``w``: see docs/guides/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.json_files import NotDefined
from ..losses import OBJECTIVES, as_objective
from ..losses.scalar import is_of_functions, without_functions
from ..preparation import Prepared
from ._inference import Inference

if TYPE_CHECKING:
    from ..losses import Objective
    from ._model import Model

FORMAT = "fedepm_fast model"
VERSION = 1
#: Fields of `Inference` that are plain values.
_PLAIN = (
    "missing", "dispersion", "df_residual", "clusters", "deviance", "null_deviance",
    "log_likelihood", "aic", "likelihood",
)  # fmt: skip


def to_dict(model: Model) -> dict[str, Any]:
    """A model as JSON has it; floats are exact."""
    known = model.inference
    return {
        "format": FORMAT,
        "version": VERSION,
        "label": model.label,
        "client": model.client,
        "classes": None if model.classes is None else list(model.classes),
        "objective": model.objective.describe(),
        "feature_names": list(model.feature_names),
        "coefficients": model.coef.tolist(),
        "prepared": model.prepared.to_dict(),
        "w": model.w.tolist(),
        "null": model.null.tolist(),
        "inference": {name: getattr(known, name) for name in _PLAIN}
        | {"covariances": {kind: _lower(c) for kind, c in known.covariances.items()}},
        "clients": list(model.clients),
        "training": model.training,
        "notes": list(model.notes),
        "comparison": None if model.comparison is None else model.comparison.to_dict(),
    }


def version_of(record: Mapping[str, Any]) -> Any:
    """The version of a model's dict, or ValueError if it is of no model."""
    if not isinstance(record, Mapping) or record.get("format") != FORMAT:
        raise ValueError("this is no model of fedepm_fast")
    return record["version"]


def fields_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a model of such a dict holds, but for the comparison.

    Raises
    ------
    ValueError
        If it is of no model, of a newer version, or of a loss that is not defined.
    """
    if (version := version_of(record)) > VERSION:
        raise ValueError(
            f"this model has version {version}, this fedepm_fast reads up to {VERSION}"
        )
    objective = _objective(record["objective"])
    w = np.array(record["w"], dtype=np.float64)
    prepared = Prepared.from_dict(record["prepared"])
    if w.ndim != 2 or w.shape[1] != len(prepared.feature_names) or not np.isfinite(w).all():
        raise ValueError("the coefficients of this model are not those of its columns")
    known = dict(record["inference"])
    size = w.shape[1] * max(len(w) - 1, 1)
    covariances = {kind: _whole(c, size) for kind, c in known.pop("covariances").items()}
    classes = record["classes"]
    return {
        "objective": objective,
        "label": record["label"],
        "client": record["client"],
        "classes": None if classes is None else tuple(classes),
        "prepared": prepared,
        "w": w,
        "inference": Inference(covariances, **known),
        "null": np.array(record["null"], dtype=np.float64),
        "clients": tuple(record["clients"]),
        "training": record["training"],
        "notes": tuple(record["notes"]),
    }


def _objective(record: Mapping[str, Any]) -> Objective:
    """The loss that `Objective.describe` told of."""
    told = dict(record)
    if (weights := told.pop("weights", None)) is not None:
        told["weights"] = tuple(weights)
    if is_of_functions(told):
        return without_functions(**told)
    if isinstance(name := told.pop("name"), str) and name not in OBJECTIVES:
        raise NotDefined(
            f"this model is of the loss {name!r}, which is not defined here: import the file "
            "that defines it first"
        )
    try:
        return as_objective(name, **told)
    except (ValueError, TypeError) as error:
        if name in OBJECTIVES.built_in():
            raise
        raise NotDefined(f"this model is not of the loss {name!r} defined here: {error}") from None


def _lower(matrix: Any) -> list[float]:
    """The lower half of a symmetric matrix, its diagonal included, row by row."""
    return matrix[np.tril_indices(len(matrix))].tolist()  # type: ignore[no-any-return]


def _whole(lower: list[float], size: int) -> Any:
    """A symmetric matrix of its lower half."""
    found = np.zeros((size, size))
    rows, columns = np.tril_indices(size)
    found[rows, columns] = found[columns, rows] = lower
    return found


def coefficient_records(model: Model, kind: str | None, level: float) -> list[dict[str, Any]]:
    """A dict for every coefficient: its column and class, and what is said of it."""
    if kind is None and model.inference.default is None:
        known = {"coefficient": model.told.ravel()}
    else:
        known = model.statistics(kind, level)
    several = len(model.told) > 1
    classes = model.classes[1:] if several and model.classes is not None else (None,)
    names = [
        {"class": of, "column": name} if several else {"column": name}
        for of in classes
        for name in model.feature_names
    ]
    return [
        {**name, **{key: _number(values[j]) for key, values in known.items()}}
        for j, name in enumerate(names)
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
