"""Fits under differential privacy: nothing that depends on the rows without noise.

The columns are prepared by declared numbers, every upload has noise, and what a model of other
fits says of its rows beyond that - standard errors, deviance, a share of rows that are missing -
is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_real,
)
from .._common.warned import warn
from ..data import FederatedData
from ..losses import Objective
from ..losses.huber import Huber
from ..mechanisms import packed_size
from ..preparation import PreparationWarning, Prepared
from ..privacy.planning import plan
from ..privacy.private_plan import PrivatePlan
from ..result import DivergenceWarning
from ._declared import Labels, bounds_of, coordinates, in_units_of, labels_by, penalised
from ._inference import Inference
from ._model import Model, ModelWarning
from ._private_noise import left_in
from ._rows import Rows, classes_of, coded

Array = NDArray[np.float64]

#: What is public in a fit, beside what every guarantee takes as public.
_PUBLIC = (
    "the names, bounds, means, deviations and levels of the columns, as declared",
    "the values of the label, {}, and the clients' names",
)
#: Whose those are, by whether they are declared.
_VALUES = ("as the rows have them", "as declared")
#: Values of a label that nobody need declare.
_KNOWN = ((False, True), (True, False), (0, 1), (1, 0))
#: What is public by what neighbours differ in.
_LABELLED = {"record": "which rows have a label", "client": "which clients have a row with a label"}
_NO_ERRORS = (
    "a private fit releases no curvature and no residual, which they would be made of, and its "
    "coefficients vary by the noise too"
)


def fit_private(
    rows: Rows,
    objective: Objective,
    positive: Any,
    preparation: Any,
    asked: Mapping[str, Any],
    beta: Any,
    refused: Mapping[str, bool],
    *,
    classes: Any = None,
    label_bounds: Any = None,
    callback: Any = None,
) -> Model:
    """`fit` with a total epsilon; its arguments, those of `plan` that are `asked`, and which of
    those that it refuses were given.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    for name, given in refused.items():
        if given:
            raise ArgumentValueError(
                name, "must not be given for a private fit, which does not account for it"
            )
    if not isinstance(preparation, Prepared) or not preparation.declared:
        raise ArgumentTypeError(
            "preparation",
            "must be Preparation.public(columns) for a private fit, for what is learned from "
            f"rows is not private, got {type(preparation).__name__}",
        )
    found = classes_of(rows.label, objective, positive, classes)
    labels = coded(rows.label, found)
    known = ~np.isnan(labels)
    if not known.any():
        raise ArgumentValueError("label", f"{rows.label.name!r} must not be missing in every row")
    rows, labels = rows.take(known), labels[known]
    return private_model(
        rows, labels, objective, found, preparation, asked, beta, label_bounds=label_bounds,
        declared=classes is not None or found in _KNOWN, callback=callback,
    )[0]  # fmt: skip


def private_model(
    rows: Rows,
    labels: Array,
    objective: Objective,
    classes: tuple[Any, ...] | None,
    prepared: Prepared,
    asked: Mapping[str, Any],
    beta: Any = 0.0,
    *,
    label_bounds: Any = None,
    declared: bool = True,
    raw_penalty: bool = False,
    seed: int | None = None,
    callback: Any = None,
) -> tuple[Model, PrivatePlan]:
    """A model of rows whose labels are coded, and its plan.

    `asked` are arguments of `plan`; with `raw_penalty` the penalty is that of coefficients in the
    units of the table. Whether the values of the label are `declared` or are those of the rows, is
    said. `seed` is of the noise.
    """
    order = np.argsort(rows.clients, kind="stable")
    rows, labels = rows.take(order), labels[order]
    sizes = np.bincount(rows.clients, minlength=len(rows.names))
    names = [name for name, size in zip(rows.names, sizes, strict=True) if size]
    sizes = sizes[sizes > 0]
    beta = check_real("beta", beta, low=0.0)
    told = labels_by(objective, label_bounds, prepared.intercept)
    back = coordinates(prepared)
    units = np.diag(back) / [*(f.scale for f in prepared.features), *[1.0] * prepared.intercept]
    loss = penalised(objective, prepared, beta, classes, units if raw_penalty else None)
    given = {name: value for name, value in asked.items() if value is not None}
    planned = plan(
        client_sizes=sizes, n_features=len(back), objective=in_units_of(loss, told.unit),
        bounds=bounds_of(prepared, back), **given,
    )  # fmt: skip
    note = planned.warning
    if note:
        warn(note, ModelWarning)
    with warnings.catch_warnings(record=True) as told_of_cells:
        warnings.simplefilter("always", PreparationWarning)
        features = np.asarray(prepared.transform(rows.table)) @ back
    for each in told_of_cells:
        text = f"{each.message} (to whom the rows are known: this is not released)"
        warn(text, PreparationWarning)
    data = FederatedData(
        features, told.scaled(labels), sizes, feature_names=prepared.feature_names,
        client_names=tuple(names),
    )  # fmt: skip
    with warnings.catch_warnings():
        # That noise leads a run above its start is said below, from what is public.
        warnings.simplefilter("ignore", DivergenceWarning)
        result = planned.run(
            data, seed=seed, engine="reference", callback=callback, public_scaling=True,
            every_accuracy=False,
        )  # fmt: skip
    privacy = result.settings["privacy"]
    shape = loss.n_outputs, len(back)
    points = result.history["x"].reshape(-1, *shape)
    own = np.array(privacy["coordinates"])
    null = _null(points, own, planned, prepared, told)
    left = left_in(planned, points, intercept=prepared.intercept)
    w = told.unit * result.x.reshape(shape) @ back.T
    if prepared.intercept:
        w[:, -1] += told.center
    released = packed_size(len(back)) if planned.radius is not None else 0
    released += planned.columns.size if planned.columns is not None else 0
    whole = planned.mechanism.neighbours == "client"
    # Those whose sizes are hidden all count alike.
    alike = "equal" if whole else asked.get("client_weight", "size")
    training = {
        "client_weight": alike, "beta": beta, "class_weight": None,
        "weighted": False, "participation": planned.algorithm.participation, "seed": None,
        "rounds": result.rounds, "max_rounds": planned.rounds, "gradient_norm": None, "tol": None,
        "converged": None, "unbounded": [], "holdout": 0.0,
        **({"penalised": "raw"} if raw_penalty else {}),
        **({"asked": objective.name} if planned.objective.name != objective.name else {}),
        "read": rows.table.note.get("read", {}),
        "sent": {"preparation": released, "rounds": w.size * result.rounds, "inference": 0},
        "privacy": _privacy(
            privacy, planned, prepared, told.unit * left.deviations(prepared.units @ back @ own),
            told.unit, declared,
        ),
    }  # fmt: skip
    if whole:  # whose sizes are hidden with their rows
        sizes = np.zeros_like(sizes)
    clients = tuple(
        {"name": name, "rows": int(size), "weight": float(size)}
        for name, size in zip(names, sizes, strict=True)
    )
    variance = left.variance(len(back) - prepared.intercept)
    found = after(variance, result.x.reshape(shape), own, prepared) or left.note(null)
    if found and not note:
        warn(found, ModelWarning)
    notes = tuple(filter(None, (note, found)))
    label, client = rows.called
    if isinstance(planned.objective, Huber):  # which private least squares is
        delta = planned.objective.delta * told.unit
        loss = Huber(loss.beta, "beta", weights=loss.weights, delta=delta)
    freedom = 0 if whole else int(sizes.sum()) - w.size
    return Model(
        loss, label, client, classes, prepared, w, _nothing(len(names), freedom),
        null, clients, training, notes,
    ), planned  # fmt: skip


def after(variance: float, w: Array, back: Array, prepared: Prepared) -> str:
    """What is to be known of private coefficients w (K, p) of columns of mean square 1, from
    public numbers: the variance of noise in the K coefficients of one column together, and `back`
    (p, p), that of the rounds."""
    n = w.shape[1] - prepared.intercept
    expected = variance * np.linalg.norm(back[:n]) ** 2
    if (w[:, :n] ** 2).sum() > 2 * expected:
        return ""
    return (
        "the coefficients are hardly larger than noise alone would make them: predictions may be "
        "no better than those of the shares of the classes"
    )


def _privacy(
    found: dict[str, Any],
    planned: PrivatePlan,
    prepared: Prepared,
    noise: Array,
    unit: float,
    declared: bool,
) -> dict[str, Any]:
    """The guarantee, what it takes as public, and the noise in the coefficients."""
    left_out = ("not_private", "coordinates")
    kept = {name: value for name, value in found.items() if name not in left_out}
    return kept | {
        "mechanism": planned.mechanism.name,
        "public": [
            *kept["public"],
            *(text.format(_VALUES[declared]) for text in _PUBLIC),
            _LABELLED[planned.mechanism.neighbours],
        ],
        "expected_rise": planned.rise * unit**2,
        "noise": dict(zip(prepared.feature_names, noise.tolist(), strict=True)),
    }


def _nothing(clusters: int, left: float) -> Inference:
    """The inference of a model that says nothing of its rows."""
    missing = dict.fromkeys(("wald", "robust", "clustered"), _NO_ERRORS)
    return Inference({}, missing, None, left, clusters, None, None, None, None, likelihood=True)


def _null(
    points: Array, back: Array, planned: PrivatePlan, prepared: Prepared, labels: Labels
) -> Array:
    """Margins of the shares of the classes, or of the mean label, as the first uploads tell them,
    noise and all.

    The first point is ``-back back' g / eta`` of the gradient g at 0, in which that of the
    intercepts is what the loss expects at 0 less the mean of the labels.
    """
    outputs = points.shape[1]
    shape = () if outputs == 1 else (outputs,)
    if not prepared.intercept or len(points) < 2:
        return np.full(shape, labels.center)
    assert planned.algorithm.eta is not None
    rise = planned.algorithm.eta * np.linalg.solve(back @ back.T, points[1].T)[-1]
    if planned.objective.task == "regression":
        return np.asarray(labels.center + labels.unit * rise[0])
    shares = np.clip((0.5 if outputs == 1 else 1 / outputs) + rise, 0.01, 0.99)
    if outputs == 1:
        return np.asarray(np.log(shares[0] / (1 - shares[0])))
    return np.asarray(np.log(shares) - np.log(shares).mean())
