"""Fits under differential privacy: nothing that depends on the rows without noise.

The columns are prepared by declared numbers, every upload has noise, and what a model of other
fits says of its rows beyond that - standard errors, deviance, a share of rows that are missing -
is left out.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import ArgumentTypeError, ArgumentValueError, check_real
from ..data import FederatedData
from ..losses import Objective
from ..mechanisms import GaussianMechanism, LaplaceMechanism, Mechanism
from ..preparation import INTERCEPT, Prepared
from ..privacy.curvature import CurvatureSettings, curvature_settings
from ..result import DivergenceWarning
from ..runner import run
from ._inference import Inference
from ._model import Model, ModelWarning
from ._rows import Rows, classes_of, coded

Array = NDArray[np.float64]

#: Losses whose slope is bounded whatever the labels are.
LOSSES = ("logistic", "multinomial")
#: Rise of the mean loss by noise from which it is said to be larger than the signal: columns of
#: real tables lower the mean loss of two classes by 0.05 to 0.3, and 0.693 is all there is.
TOO_MUCH = 0.05
#: Share of rows that are taken to be missing in a column that says where they are.
_MISSING = 0.1
#: What is public in a fit, beside what every guarantee takes as public.
_PUBLIC = (
    "the names, bounds, means, deviations and levels of the columns, as declared",
    "the values of the label and the clients' names",
    "which rows have a label",
)
_NO_ERRORS = (
    "a private fit releases no curvature and no residual, which they would be made of, and its "
    "coefficients vary by the noise too"
)


def fit_private(
    rows: Rows,
    objective: Objective,
    positive: Any,
    preparation: Any,
    total_epsilon: Any,
    delta: Any,
    client_weight: str,
    beta: Any,
    refused: dict[str, bool],
    callback: Any = None,
) -> Model:
    """`fit` with a total epsilon; its arguments, and which of those it refuses were given.

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
    if objective.name not in LOSSES:
        raise ArgumentValueError(
            "objective",
            f"must be {' or '.join(LOSSES)} for a private fit, whose gradients are bounded "
            f"whatever the labels, got {objective.name}",
        )
    mechanism = _mechanism(total_epsilon, delta)
    beta = check_real("beta", beta, low=0.0)
    if not isinstance(preparation, Prepared) or not preparation.declared:
        raise ArgumentTypeError(
            "preparation",
            "must be Preparation.public(columns) for a private fit, for what is learned from "
            f"rows is not private, got {type(preparation).__name__}",
        )
    classes = classes_of(rows.label, objective, positive)
    labels = coded(rows.label, classes)
    known = ~np.isnan(labels)
    rows, labels = rows.take(known), labels[known]
    return train_private(
        rows, labels, objective, classes, preparation, mechanism, client_weight, beta,
        callback=callback, level=3,
    )  # fmt: skip


def _mechanism(total_epsilon: Any, delta: Any) -> Mechanism:
    """Gaussian noise, or Laplace noise where delta is 0."""
    epsilon = check_real("total_epsilon", total_epsilon, low=0.0, open_low=True)
    delta = check_real("delta", 1e-6 if delta is None else delta, low=0.0, high=1.0, open_high=True)
    if delta:
        return GaussianMechanism(total_epsilon=epsilon, delta=delta)
    return LaplaceMechanism(total_epsilon=epsilon)


def train_private(
    rows: Rows,
    labels: Array,
    objective: Objective,
    classes: tuple[Any, ...] | None,
    prepared: Prepared,
    mechanism: Mechanism,
    client_weight: str = "size",
    beta: float = 0.0,
    *,
    seed: int | None = None,
    callback: Any = None,
    level: int = 1,
) -> Model:
    """A model of rows whose labels are coded; `seed` is of the noise, and `level` of warnings."""
    order = np.argsort(rows.clients, kind="stable")
    rows, labels = rows.take(order), labels[order]
    sizes = np.bincount(rows.clients, minlength=len(rows.names))
    names = [name for name, size in zip(rows.names, sizes, strict=True) if size]
    sizes = sizes[sizes > 0]
    back = coordinates(prepared)
    loss = _penalised(objective, prepared, beta, classes)
    settings = curvature_settings(
        mechanism, sizes, len(back), objective=loss, client_weight=client_weight
    )
    note = before(settings, mechanism, sizes, len(back))
    if note:
        warnings.warn(note, ModelWarning, stacklevel=level + 1)
    features = np.asarray(prepared.transform(rows.table)) @ back
    data = FederatedData(
        features, labels, sizes, feature_names=prepared.feature_names, client_names=tuple(names)
    )
    with warnings.catch_warnings():
        # That noise leads a run above its start is said below, from what is public.
        warnings.simplefilter("ignore", DivergenceWarning)
        result = run(
            settings.algorithm, data, objective=loss, rounds=settings.rounds, seed=seed,
            engine="reference", every_accuracy=False, callback=callback,
        )  # fmt: skip
    points = result.history["x"].reshape(-1, loss.n_outputs, len(back))
    w = points[-1] @ back.T
    training = {
        "client_weight": client_weight, "beta": beta, "class_weight": None, "weighted": False,
        "participation": 1.0, "seed": None, "rounds": result.rounds, "max_rounds": settings.rounds,
        "gradient_norm": None, "tol": None, "converged": None, "unbounded": [], "holdout": 0.0,
        "read": rows.table.note.get("read", {}),
        "sent": {"preparation": 0, "rounds": w.size * result.rounds, "inference": 0},
        "privacy": _privacy(
            result.settings["privacy"], settings, prepared, back, loss.n_outputs
        ),
    }  # fmt: skip
    clients = tuple(
        {"name": name, "rows": int(size), "weight": float(size)}
        for name, size in zip(names, sizes, strict=True)
    )
    found = after(settings, points[-1], prepared)
    if found and not note:
        warnings.warn(found, ModelWarning, stacklevel=level + 1)
    notes = tuple(filter(None, (note, found)))
    label, client = rows.called
    return Model(
        loss, label, client, classes, prepared, w, _nothing(len(names), int(sizes.sum()) - w.size),
        _null(points, settings, prepared, loss), clients, training, notes,
    )  # fmt: skip


def coordinates(prepared: Prepared) -> Array:
    """What turns prepared columns into ones whose mean is about 0 and mean square about 1, and
    coefficients of these into those of the prepared ones, shape (p, p).

    It knows what was declared and no more: numbers within bounds are taken to have a standard
    deviation of a quarter of their range, and levels to be equally frequent.
    """
    rules = {rule.name: rule for rule in prepared.columns}
    centers, scales = [], []
    for feature in prepared.features:
        rule = rules[feature.column]
        center, scale = 0.0, 0.5 if rule.bounds is not None else 1.0
        if feature.part != "value":
            center = _MISSING if feature.part == "missing" else 1 / len(rule.levels or "01")
            scale = math.sqrt(center * (1 - center))
        centers.append(center)
        scales.append(scale)
    found = np.diag(1 / np.array([*scales, *[1.0] * prepared.intercept]))
    if prepared.intercept:
        found[-1, :-1] = -np.array(centers) / np.array(scales)
    return found


def _penalised(
    objective: Objective, prepared: Prepared, beta: float, classes: tuple[Any, ...] | None
) -> Objective:
    """The objective of a fit, whose penalty leaves the intercept alone."""
    weights = tuple(0.0 if name == INTERCEPT else 1.0 for name in prepared.feature_names)
    found = objective.changed(beta=beta, regularizer="beta", weights=weights)
    if found.task == "multiclass" and classes is not None:
        found = found.changed(classes=len(classes))
    return found


def before(
    settings: CurvatureSettings, mechanism: Mechanism, sizes: NDArray[np.int64], p: int
) -> str:
    """What is to be known before a private run; empty if its noise is small enough."""
    if settings.rise <= TOO_MUCH:
        return ""
    assert mechanism.total_epsilon is not None
    m, d = len(sizes), int(sizes.sum())
    return (
        f"the noise is larger than the signal: with {m} client{'s' * (m != 1)}, {d:,} rows, {p} "
        f"columns and epsilon {mechanism.total_epsilon:g} it is expected to raise the mean loss "
        f"by about {settings.rise:.2g}, of 0.69 at the start; more rows, fewer columns or a "
        "larger epsilon make it smaller, and so do fewer clients that hold the same rows"
    )


def after(settings: CurvatureSettings, x: Array, prepared: Prepared) -> str:
    """What is to be known of the last point x (K, p) of a private run, from public numbers."""
    told = x[:, :-1] if prepared.intercept else x
    expected = told.size * settings.deviation**2
    if (told**2).sum() > 2 * expected:
        return ""
    return (
        "the coefficients are hardly larger than noise alone would make them: predictions may be "
        "no better than those of the shares of the classes"
    )


def _privacy(
    found: dict[str, Any],
    settings: CurvatureSettings,
    prepared: Prepared,
    back: Array,
    outputs: int,
) -> dict[str, Any]:
    """The guarantee, what it takes as public, and the noise in the coefficients."""
    kept = {name: value for name, value in found.items() if name != "not_private"}
    unit = np.asarray(prepared.units) @ back
    noise = settings.deviation * np.sqrt((unit**2).sum(axis=1))
    if outputs > 1:
        noise *= math.sqrt(2.0)  # each class is told against the first
    mechanism = settings.algorithm.mechanism
    assert mechanism is not None
    return kept | {
        "mechanism": mechanism.name,
        "public": [*kept["public"], *_PUBLIC],
        "expected_rise": settings.rise,
        "noise": dict(zip(prepared.feature_names, noise.tolist(), strict=True)),
    }


def _nothing(clusters: int, left: float) -> Inference:
    """The inference of a model that says nothing of its rows."""
    missing = dict.fromkeys(("wald", "robust", "clustered"), _NO_ERRORS)
    return Inference({}, missing, None, left, clusters, None, None, None, None, likelihood=True)


def _null(
    points: Array, settings: CurvatureSettings, prepared: Prepared, objective: Objective
) -> Array:
    """Margins of the shares of the classes as the first uploads tell them, noise and all.

    The gradient of the intercepts at 0 is the share of the classes that are expected there less
    that of the labels, and the first step is that over eta.
    """
    outputs = objective.n_outputs
    shape = () if outputs == 1 else (outputs,)
    if not prepared.intercept or len(points) < 2:
        return np.zeros(shape)
    start = 0.5 if outputs == 1 else 1 / outputs
    assert settings.algorithm.eta is not None
    shares = start + settings.algorithm.eta * points[1, :, -1]
    shares = np.clip(shares, 0.01, 0.99)
    if outputs == 1:
        return np.asarray(np.log(shares[0] / (1 - shares[0])))
    return np.asarray(np.log(shares) - np.log(shares).mean())
