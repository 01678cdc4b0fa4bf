"""What an estimator was fitted to, as a `Model`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..data import FederatedData
from ..data._holding import frozen
from ..losses import Objective
from ..models import Inference, Model
from ..models._diagnosis import notes_of, unbounded
from ..models._inference import KINDS, infer
from ..models._rows import squares_exist
from ..models._solving import Solution
from ..models._sums import UP_TO, LabelSums, PointSums, point_sums, total
from ..models._training import fitted_of
from ..objectives import Problem
from ..preparation import ColumnRule, Feature, Prepared
from ._scaled import Scaled

Array = NDArray[np.float64]

_PARTIAL = (
    "partial_fit takes one step on the rows of each call: the coefficients are no optimum of "
    "theirs, and there are no standard errors"
)


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a run on columns of one scale ended.

    Attributes
    ----------
    table : Scaled
    v : ndarray of shape (K, .)
        Coefficients of its columns.
    order : ndarray of int, shape (d,)
        The rows, client by client.
    sizes : ndarray of int, shape (m,)
    names : tuple of str
        Of the clients.
    seed : int
    converged : bool
    """

    table: Scaled
    v: Array
    order: NDArray[np.intp]
    sizes: NDArray[np.int64]
    names: tuple[str, ...]
    seed: int
    converged: bool

    @property
    def slices(self) -> list[slice]:
        """The rows of each client."""
        return [slice(a, b) for a, b in pairwise([0, *np.cumsum(self.sizes).tolist()])]


@dataclass(frozen=True, eq=False)
class Learned:
    """What a `Model` is made of; its columns are named when someone asks for it.

    Attributes
    ----------
    labels : dict of LabelSums
        Of every client.
    kept : ndarray of bool, shape (p,)
        The columns that have coefficients.
    """

    objective: Objective
    w: Array
    inference: Inference
    labels: dict[str, LabelSums]
    kept: NDArray[np.bool_]
    columns: dict[str, Array] = field(repr=False)
    intercept: bool
    training: dict[str, Any]
    notes: tuple[str, ...]
    classes: tuple[Any, ...] | None
    features: tuple[str, ...] | None
    called: tuple[str, str | None]

    @cached_property
    def model(self) -> Model:
        rows = {name: each.rows for name, each in self.labels.items()}
        clients = tuple(
            {"name": name, "rows": each.rows, "weight": each.weight}
            for name, each in self.labels.items()
        )
        prepared = prepared_of(
            self.columns, self.kept, self.features, intercept=self.intercept,
            clients=tuple(rows), rows=sum(rows.values()),
        )  # fmt: skip
        return Model(
            self.objective, *self.called, self.classes, prepared, self.w, self.inference,
            total([*self.labels.values()]).null(self.objective), clients, self.training, self.notes,
        )  # fmt: skip


def prepared_of(
    columns: dict[str, Array],
    kept: NDArray[np.bool_],
    features: tuple[str, ...] | None,
    *,
    intercept: bool,
    clients: tuple[str, ...] = (),
    rows: int = 0,
) -> Prepared:
    """The columns of one scale as a `Prepared`."""
    names = features or tuple(f"x{j + 1}" for j in range(len(kept)))
    mean, deviation, center, scale = (
        columns[name].tolist() for name in ("mean", "deviation", "center", "scale")
    )
    rules = tuple(
        ColumnRule(name, "numeric", fill=mean[j], deviation=deviation[j])
        for j, name in enumerate(names)
    )
    chosen = [j for j in range(len(names)) if kept[j]]
    found = tuple(Feature(names[j], names[j], "value", None, center[j], scale[j]) for j in chosen)
    dropped = tuple(
        (names[j], f"constant, {mean[j]:.6g} in every row") for j in np.flatnonzero(~kept)
    )
    return Prepared(rules, found, intercept, dropped, clients=clients, rows=rows)


def learned(
    found: Minimum,
    w: Array,
    labels: Array,
    weights: tuple[Array | None, Array | None],
    objective: Objective,
    training: dict[str, Any],
    *,
    classes: tuple[Any, ...] | None,
    features: tuple[str, ...] | None,
    called: tuple[str, str | None],
    partial: bool,
    earlier: Learned | None,
) -> Learned:
    """What there is to know of a fit: see `FedEPMEstimator._learn`."""
    table = found.table
    # A constant column has no coefficient but where it began with one.
    p = len(table.scale)
    kept = np.ones(p, dtype=bool)
    if table.intercept:
        kept = ~table.constant | (w[:, :p] != 0).any(axis=0)
    own = np.append(kept, True) if table.intercept else kept
    objective = objective.changed(
        regularizer="beta", weights=tuple(np.array(table.weights)[own].tolist())
    )
    w = w[:, own]
    plain, counted = (
        np.ones(len(labels)) if each is None else each[found.order] for each in weights
    )
    labels = labels[found.order]
    known = {} if earlier is None else dict(earlier.labels)
    with np.errstate(over="ignore", invalid="ignore"):
        for name, rows in zip(found.names, found.slices, strict=True):
            sums = LabelSums.of(objective, labels[rows], plain[rows])
            known[name] = known[name] + sums if name in known else sums
        blamed: list[str] = []
        if partial:
            inference = _nothing(objective, _PARTIAL, len(known))
            notes: tuple[str, ...] = (_PARTIAL,)
        elif classes is None and not squares_exist(labels):
            inference = _nothing(objective, "squares of the labels are no numbers", len(known))
            notes = ()
        else:
            blamed = _blamed(found, w, labels, counted, objective, training, own, features)
            norm, rounds = training["gradient_norm"], training["rounds"]
            solution = Solution(w.ravel(), norm, found.converged, rounds, 0)
            notes = tuple(notes_of(solution, blamed, objective))
            inference = _inference(found, w, labels, counted, objective, training, own, known)
    training = training | {
        "unbounded": blamed, "converged": found.converged and not (blamed or partial)
    }  # fmt: skip
    columns = {name: getattr(table, name) for name in ("mean", "deviation", "center", "scale")}
    return Learned(
        objective, w, inference, known, kept, columns, table.intercept, training, notes, classes,
        features, called,
    )  # fmt: skip


def _nothing(objective: Objective, why: str, clients: int) -> Inference:
    """The inference of a fit that says nothing of its rows."""
    missing = dict.fromkeys(KINDS, why)
    return Inference({}, missing, None, 0, clients, None, None, None, None, likelihood=True)


def _blamed(
    found: Minimum,
    w: Array,
    labels: Array,
    weights: Array,
    objective: Objective,
    training: dict[str, Any],
    own: NDArray[np.bool_],
    features: tuple[str, ...] | None,
) -> list[str]:
    """Columns that keep the coefficients from being finite; it is not looked for in sparse rows."""
    if objective.beta or w.size > UP_TO or sparse.issparse(found.table.rows):
        return []
    names = features or tuple(f"x{j + 1}" for j in range(len(found.table.scale)))
    names = (*names, "(intercept)") if found.table.intercept else names
    rows = found.table.rows
    if not own.all():
        rows = frozen(np.compress(own, rows, axis=1))  # so that it is not copied once more
    data = FederatedData(
        rows, labels, found.sizes, sample_weight=weights,
        feature_names=tuple(name for name, held in zip(names, own, strict=True) if held),
    )  # fmt: skip
    return unbounded(Problem(data, objective, training["client_weight"]), w.ravel())


def _inference(
    found: Minimum,
    w: Array,
    labels: Array,
    weights: Array,
    objective: Objective,
    training: dict[str, Any],
    own: NDArray[np.bool_],
    known: dict[str, LabelSums],
) -> Inference:
    """Standard errors and the rest, from one client's sums after the other's."""
    table, each = found.table, found.slices
    s = np.array([weights[one].sum() for one in each])
    units = table.units(own) if w.size <= UP_TO else np.empty((0, 0))
    fitted = fitted_of(objective, units, w.ravel(), s, training)

    def points() -> Iterator[PointSums]:
        for one in each:
            columns = table.rows[one] if own.all() else table.rows[one][:, own]
            yield point_sums(objective, columns, labels[one], weights[one], w.ravel())

    return infer(fitted, points(), total([*known.values()]))
