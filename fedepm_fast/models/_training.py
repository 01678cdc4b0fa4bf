"""The rows of clients, fitted: columns, problem, solution, inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.notes import of_client
from .._common.text import first_few
from .._common.validation import ArgumentValueError
from .._common.warned import warn
from ..data import FederatedData
from ..losses import Objective
from ..objectives import Problem
from ..preparation import (
    INTERCEPT,
    Preparation,
    PreparationWarning,
    Prepared,
    SecondMoments,
    Table,
)
from ._diagnosis import notes_of, unbounded
from ._inference import Fitted, infer
from ._model import Model
from ._rows import Rows
from ._solving import Solution, solve
from ._sums import UP_TO, ClientSums, LabelSums, point_sums, total

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Settings:
    """How rows are fitted, whoever holds them; see `fit`."""

    objective: Objective
    classes: tuple[Any, ...] | None
    preparation: Preparation
    client_weight: str
    beta: float
    class_weight: Array | str | None
    participation: float
    seed: int
    max_rounds: int
    tol: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and the problem whose minimum it is."""

    model: Model
    problem: Problem


def train(
    rows: Rows,
    labels: Array,
    settings: Settings,
    start: Model | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> Trained:
    """Fit rows, whose labels are coded; each client's stand where they stand in the table.

    Raises
    ------
    ValueError
        If there is nothing that a coefficient could be of.
    """
    order = np.argsort(rows.clients, kind="stable")
    sizes = np.bincount(rows.clients, minlength=len(rows.names))
    held = np.flatnonzero(sizes)
    names = [rows.names[i] for i in held]
    ends = np.cumsum(sizes[held])
    slices = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])]
    named = [(name, order[s]) for name, s in zip(names, slices, strict=True)]
    prepared, features, said = prepare(rows.table, named, settings.preparation)
    features.setflags(write=False)
    labels, called = labels[order], rows.called
    plain = None if rows.weights is None else rows.weights[order]
    weights = _weights(plain, labels, settings)
    data = FederatedData(
        features, labels, sizes[held], feature_names=prepared.feature_names,
        client_names=tuple(names), sample_weight=weights,
    )  # fmt: skip
    objective = with_penalty(settings.objective, prepared, settings.beta)
    if objective.task == "multiclass" and settings.classes is not None:
        objective = objective.changed(classes=len(settings.classes))
    problem = Problem(data, objective, settings.client_weight)
    objective = problem.objective
    solution = solve(
        problem, start=_start(start, prepared, objective), participation=settings.participation,
        seed=settings.seed, max_rounds=settings.max_rounds, tol=settings.tol,
        callback=callback,
    )  # fmt: skip
    model = _model(plain, called, slices, names, prepared, problem, solution, settings, said)
    return Trained(model, problem)


def prepare(
    table: Table, named: list[tuple[str, NDArray[np.intp]]], preparation: Preparation
) -> tuple[Prepared, Array, int]:
    """The columns that the clients' sums ask for, and how many numbers a client sent for it.

    Parameters
    ----------
    table : Table
    named : list of tuples of str and ndarray of int
        The clients' names and rows.
    preparation : Preparation

    Returns
    -------
    prepared : Prepared
    features : ndarray of shape (d, p)
        The prepared columns, client after client.
    said : int
    """
    # One machine holds all tables: there is nobody to guard them from. A client's rows are taken
    # twice, so that those of all clients are never in memory beside the table and the features.
    # Levels of all clients are counted, where the preparation is learned.
    summarized = replace(preparation, max_levels=max(len(table), 2))
    summaries = [
        summarized.summarize(table.take(rows), client=name, guard=False) for name, rows in named
    ]
    prepared = preparation.learn(summaries)
    features = np.empty((len(table), len(prepared.feature_names)))
    moments: list[SecondMoments] = []
    first = 0
    for name, rows in named:
        own = features[first : first + len(rows)]
        own[:] = prepared.transform(table.take(rows), client=name)
        moments.append(SecondMoments.of(own, client=name))
        first += len(rows)
    said = max(map(numbers_of, (summary.to_dict() for summary in summaries)))
    kept = prepared.without_aliased(moments)
    if kept.aliased:
        places = [prepared.feature_names.index(name) for name in kept.feature_names]
        features = np.ascontiguousarray(features[:, places])
    p = len(kept.feature_names)
    return kept, features, said + p * (p + 1) // 2


def with_penalty(objective: Objective, prepared: Prepared, beta: float) -> Objective:
    """The loss of prepared columns, with a penalty of all but the intercept."""
    penalised = [0.0 if name == INTERCEPT else 1.0 for name in prepared.feature_names]
    return objective.changed(beta=beta, regularizer="beta", weights=tuple(penalised))


def numbers_of(record: Any) -> int:
    """How many numbers a record holds."""
    if isinstance(record, dict):
        return sum(map(numbers_of, record.values()))
    if isinstance(record, (list, tuple)):
        return sum(map(numbers_of, record))
    return int(isinstance(record, (int, float)))


def _weights(plain: Array | None, labels: Array, settings: Settings) -> Array | None:
    """Weights of the rows; None where all are 1."""
    by_class = settings.class_weight
    if by_class is None:
        return plain
    weights = np.ones(len(labels)) if plain is None else plain
    codes = labels.astype(int)
    if isinstance(by_class, str):
        held = np.bincount(codes, weights)
        by_class = held.sum() / (len(held) * np.maximum(held, np.finfo(float).tiny))
    return weights * np.asarray(by_class)[codes]


def _start(start: Model | None, prepared: Prepared, objective: Objective) -> Array | None:
    """Coefficients of a model for these columns, 0 for those that it does not have."""
    if start is None:
        return None
    if len(start.coef) != objective.n_outputs:
        raise ArgumentValueError(
            "start",
            f"must be a model with a row of coefficients for each output of {objective.name}, "
            f"{objective.n_outputs}, got {len(start.coef)} of {start.objective.name}",
        )
    place = {name: j for j, name in enumerate(start.feature_names)}
    known = [place.get(name) for name in prepared.feature_names]
    new = [name for name in prepared.feature_names if name not in place]
    if len(new) >= len(known) - prepared.intercept > 0:
        raise ArgumentValueError(
            "start",
            "must be a model of columns of the table, got one of "
            f"{_names(n for n in start.feature_names if n != INTERCEPT)}",
        )
    if new:
        message = f"start has no coefficient of {_names(new)}: 0 stands for it"
        warn(message, PreparationWarning)
    coef = np.array([[0.0 if j is None else row[j] for j in known] for row in start.coef])
    coef = coef - coef.mean(axis=0) if len(coef) > 1 else coef  # where the search stays
    return np.linalg.solve(np.asarray(prepared.units), coef.T).T.ravel()


def _names(given: Iterable[str]) -> str:
    """The first few of some names."""
    return first_few(map(repr, given), 5)


def _model(
    plain: Array | None,
    called: tuple[str, str | None],
    slices: list[slice],
    names: list[str],
    prepared: Prepared,
    problem: Problem,
    solution: Solution,
    settings: Settings,
    said: int,
) -> Model:
    """The model of a solution, with what the clients' sums there say of it."""
    data, objective, w = problem.data, problem.objective, solution.w
    weights = np.ones(len(data.labels)) if data.sample_weight is None else data.sample_weight
    weighted = plain is not None
    plain = np.ones(len(data.labels)) if plain is None else plain
    sums = []
    for name, s in zip(names, slices, strict=True):
        with of_client(name):
            points = point_sums(objective, data.features[s], data.labels[s], weights[s], w)
        of_labels = LabelSums.of(objective, data.labels[s], plain[s])
        sums.append(ClientSums(points, of_labels, float(weights[s].sum())))
    blamed = unbounded(problem, w)
    n = len(w)
    by_class = settings.class_weight
    training = {
        "client_weight": settings.client_weight, "beta": settings.beta,
        "class_weight": by_class.tolist() if isinstance(by_class, np.ndarray) else by_class,
        "weighted": weighted, "participation": settings.participation,
        "seed": settings.seed, "rounds": solution.rounds, "max_rounds": settings.max_rounds,
        "gradient_norm": solution.gradient_norm, "tol": settings.tol,
        "converged": solution.converged and not blamed, "unbounded": blamed,
        "sent": {"preparation": said, "rounds": solution.sent, "inference": n * (n + 1) + n + 8},
    }  # fmt: skip
    notes = tuple(notes_of(solution, blamed, objective))
    return assemble(
        objective, prepared, w, dict(zip(names, sums, strict=True)), training,
        called=called, classes=settings.classes, notes=notes,
    )  # fmt: skip


def fitted_of(
    objective: Objective, units: Array, w: Array, s: Array, training: Mapping[str, Any]
) -> Fitted:
    """What was minimised by w, for clients whose rows' weights in f have the sums s, shape (m,)."""
    m = len(s)
    factors = np.ones(m) if training["client_weight"] == "size" else s.sum() / (m * s)
    weights = 1.0 if objective.weights is None else np.tile(objective.weights, objective.n_outputs)
    penalty = s.sum() * training["beta"] * weights
    by_class = training["class_weight"] is not None
    return Fitted(objective, w, factors, np.broadcast_to(penalty, w.shape), units, by_class)


def assemble(
    objective: Objective,
    prepared: Prepared,
    w: Array,
    sums: Mapping[str, ClientSums],
    training: dict[str, Any],
    *,
    called: tuple[str, str | None],
    classes: tuple[Any, ...] | None,
    notes: tuple[str, ...],
) -> Model:
    """A model with what its clients' sums at w say of it, whoever computed them."""
    s = np.array([each.weight for each in sums.values()])
    units = prepared.units if len(w) <= UP_TO else np.empty((0, 0))
    fitted = fitted_of(objective, np.asarray(units), w, s, training)
    labels = total([each.labels for each in sums.values()])
    clients = tuple(
        {"name": name, "rows": each.labels.rows, "weight": each.labels.weight}
        for name, each in sums.items()
    )
    return Model(
        objective, *called, classes, prepared, w.reshape(objective.n_outputs, -1),
        infer(fitted, [each.points for each in sums.values()], labels), labels.null(objective),
        clients, training, notes,
    )  # fmt: skip
