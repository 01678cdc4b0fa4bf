"""From a table with a column of clients to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.text import first_few
from .._common.validation import (
    MAX_SEED,
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    check_choice,
    check_int,
    check_real,
)
from .._common.warned import warn
from ..losses import Objective
from ..preparation import Preparation, PreparationWarning, Prepared, Table
from ..preparation._columns import level_text
from ..preparation._levels import leave_out, same_but_for_case
from ._holdout import held_out
from ._model import Model, ModelWarning
from ._rows import (
    Rows,
    check_counts,
    classes_of,
    coded,
    counting,
    objective_for,
    read_rows,
    with_label_in,
)
from ._training import Settings, train

#: Rows from which on whole numbers that all differ are not what is measured of persons.
_MANY = 100


def fit(
    table: Any,
    label: Any,
    client: Any = None,
    *,
    clients: int | None = None,
    task: str | None = None,
    positive: Any = None,
    objective: str | Objective | None = None,
    client_weight: str = "size",
    beta: float = 0.0,
    sample_weight: Any = None,
    class_weight: str | Mapping[Any, float] | None = None,
    participation: float = 1.0,
    preparation: Preparation | Prepared | None = None,
    holdout: float = 0.0,
    seed: int = 0,
    max_rounds: int = 500,
    tol: float = 1e-14,
    start: Model | None = None,
    callback: Callable[[Any], Any] | None = None,
    total_epsilon: float | None = None,
    delta: float | None = None,
    classes: Sequence[Any] | None = None,
    label_bounds: tuple[float, float] | None = None,
    trust: str | None = None,
    honest: float | None = None,
    neighbours: str | None = None,
) -> Model:
    """Fit a linear model to the rows of a table, which clients hold.

    By default the maximum of the pooled rows' likelihood, as a statistician would have it: an
    intercept, no penalty, every row counts alike. It is found by FedEPM with eta the curvature, see
    `CurvatureFedEPM`. Columns are brought to mean 0 and standard
    deviation 1 within, and the coefficients are in the units of the table. One process simulates
    all clients; what leaves a client are sums over its rows, without noise.

    Parameters
    ----------
    table : table
        Of any kind that `fedepm_fast.preparation` reads: a frame of pandas, polars or Arrow, a
        dict of columns, a NumPy array, or the path of a file.
    label : str, int or array_like of shape (d,)
        The column of the labels, or these themselves. Rows without one are left out.
    client : str, int or array_like of shape (d,), optional
        The column that says who holds a row, or the clients themselves. By default one client
        holds all rows.
    clients : int, optional
        Instead of `client`: deal the rows to so many clients of equal size.
    task : {"classification", "multiclass", "regression"}, optional
        By default it follows from the labels: classification for two values, multiclass for more
        values that are text, regression for numbers; for few different whole numbers it must be
        given.
    positive : optional
        The value of the label whose probability is modelled, of two; by default the second.
    objective : str or Objective, optional
        The loss, by default logistic, multinomial or least_squares, as `task` has it. Of an
        `Objective`, `beta`, `regularizer` and `weights` are not used. With `total_epsilon`
        least squares are the Huber loss, with a delta that follows from the noise, unless
        whole clients are hidden.
    client_weight : {"size", "equal"}
        Whether all rows count alike, or all clients, as in the paper.
    beta : float
        Weight of the penalty ``beta/2 * |w|^2`` beside the mean loss; w are the coefficients of
        the prepared columns without the intercept.
    sample_weight : str, int or array_like of shape (d,), optional
        Weights of the rows, at least 0, or their column, in the fit and in measures of rows that
        are held out. Rows of weight 0 are left out.
    class_weight : mapping of class to float, or "balanced", optional
        Further weights of the rows by their class; balanced gives each class the same sum.
    participation : float
        Share of the clients that take part in a round, in (0, 1].
    preparation : Preparation, optional
        How columns become numbers; with `total_epsilon` what `Preparation.public` declares.
    holdout : float
        Share of each client's rows, stratified by label, that is kept from the fit, at least 0
        and at most 0.9; ``model.comparison`` then has measures of them.
    seed : int
        Of rows that are held out or dealt, and of the selections.
    max_rounds : int
        Communication rounds at most.
    tol : float
        The fit has converged once a further round is expected to lower the objective by less
        than this share of what it was at the start.
    start : Model, optional
        Where to start: its coefficients of columns of the same name, 0 for others.
    callback : callable, optional
        Called with a `RoundInfo` after each round, as that of `fedepm_fast.run`.
    total_epsilon : float, optional
        Fit under differential privacy, as `fedepm_fast.privacy.plan` plans it: what each client may
        spend, for each of its records. The model's ``training["privacy"]`` has the guarantee;
        there are no standard errors.
    delta : float, optional
        With `total_epsilon`, in [0, 1), 1e-6 by default: Gaussian noise; 0 takes Laplace noise,
        whose guarantee is pure.
    classes : sequence, optional
        With `total_epsilon`: the values of the label, known to everyone. By default they are those
        that rows have, which are taken as public then, and the guarantee says so.
    label_bounds : tuple of float, optional
        With `total_epsilon`, for a regression: the least and the largest label that there can be,
        known to everyone, to which labels are clipped.
    trust, honest, neighbours : str, float, str, optional
        With `total_epsilon`, as of `fedepm_fast.privacy.plan`: "clients", by default, where nobody
        else is trusted, or "secure-sum", and the share of the clients that is honest; "record", by
        default, or "client", where all rows of a client together are hidden.

    Returns
    -------
    Model

    Raises
    ------
    ValueError, TypeError
        Naming the argument.

    Warns
    -----
    ModelWarning
        If the fit did not converge, or there are no finite best coefficients; with
        `total_epsilon` before the fit if its noise is expected to be larger than the signal, and
        after it if the coefficients are hardly larger than noise.
    PreparationWarning
        If a column looks like the numbers of the rows, values of the label differ in case only, or
        `start` has no coefficient of a column.
    """
    check_choice("client_weight", client_weight, ("size", "equal"))
    seed = check_int("seed", seed, high=MAX_SEED)
    holdout = check_real("holdout", holdout, low=0.0, high=0.9)
    private = total_epsilon is not None
    asked = {"delta": delta, "trust": trust, "honest": honest, "neighbours": neighbours}
    for name, given in (*asked.items(), ("classes", classes), ("label_bounds", label_bounds)):
        if given is not None and not private:
            raise ArgumentValueError(name, "needs total_epsilon")
    if not private and preparation is not None and not isinstance(preparation, Preparation):
        raise ArgumentTypeError(
            "preparation", f"must be a Preparation, got {type(preparation).__name__}"
        )
    if start is not None and not isinstance(start, Model):
        raise ArgumentTypeError("start", f"must be a Model, got {type(start).__name__}")
    rows = read_rows(table, label, client, sample_weight)
    if isinstance(preparation, Preparation):
        _check_names(preparation, rows, sample_weight)
        if preparation.ignore_case:
            rows = with_label_in(rows, True)
            positive = positive.lower() if isinstance(positive, str) else positive
    if clients is not None:
        rows = _dealt(rows, clients, client, seed)
    loss = objective_for(rows.label, task, objective, classes)
    if private:
        from ._private import fit_private

        refused = {
            "holdout": holdout > 0, "sample_weight": sample_weight is not None,
            "class_weight": class_weight is not None, "start": start is not None,
        }  # fmt: skip
        asked |= {
            "total_epsilon": total_epsilon, "client_weight": client_weight,
            "participation": participation,
        }  # fmt: skip
        return fit_private(
            rows, loss, positive, preparation, asked, beta, refused, classes=classes,
            label_bounds=label_bounds, callback=callback,
        )  # fmt: skip
    assert not isinstance(preparation, Prepared)
    classes = classes_of(rows.label, loss, positive)
    settings = Settings(
        loss, classes, preparation or Preparation(), client_weight,
        check_real("beta", beta, low=0.0), _class_weights(class_weight, classes),
        check_real("participation", participation, low=0.0, high=1.0, open_low=True),
        seed, check_int("max_rounds", max_rounds, low=1),
        check_real("tol", tol, low=0.0, open_low=True),
    )  # fmt: skip
    labels = coded(rows.label, classes)
    if loss.labels == "counts":
        check_counts(rows.label)
    known = counting(rows, labels)
    held = np.zeros(len(labels), dtype=bool)
    held[known] = held_out(holdout, rows.clients[known], labels[known], seed)
    if classes is not None:  # a class of few rows stays in the training
        for code in range(len(classes)):
            own = labels == code
            held[own] &= bool((own & ~held).any())
            if own.any() and not (own & known).any():
                raise ArgumentValueError(
                    "sample_weight",
                    f"must not be 0 for all rows of a class, got so for {classes[code]!r}",
                )
    if holdout and not held.any():
        raise ArgumentValueError(
            "holdout",
            f"must be large enough to hold out a row, got {holdout:g} of {known.sum()} rows of "
            f"{len(rows.names)} clients",
        )
    chosen = known & ~held
    trained = train(rows.take(chosen), labels[chosen], settings, start, callback)
    model = replace(
        trained.model,
        clients=_counted(trained.model, rows, known, held),
        training=trained.model.training
        | {"holdout": holdout, "read": rows.table.note.get("read", {})},
    )
    if held.any():
        from ._comparing import compare

        rest = rows.take(held), labels[held]
        comparison = compare(trained, model, (rows.take(chosen), labels[chosen]), rest, settings)
        model = replace(model, comparison=comparison)
    for message in _to_look_at(rows, settings):
        warn(message, PreparationWarning)
    for note in model.notes:
        warn(note, ModelWarning)
    return model


def _check_names(chosen: Preparation, rows: Rows, sample_weight: Any) -> None:
    """Refuse choices of columns that the table has not: one that is misspelt is not made."""
    columns = {*rows.table.names, *rows.called}
    if isinstance(sample_weight, str):
        columns.add(sample_weight)
    for argument in ("drop", "kinds", "levels"):
        for name in getattr(chosen, argument):
            if name not in columns:
                several = set(name.split(",")) <= columns
                hint = "; give each column on its own" if several else ""
                raise ArgumentValueError(
                    argument,
                    f"must be a column of the table, got {name!r}{hint}; it has "
                    f"{first_few(rows.table.names)}",
                )


def _to_look_at(rows: Rows, settings: Settings) -> list[str]:
    """What is allowed, but hardly meant."""
    told = [
        f"column {name!r} has another whole number in every row, as numbers of persons have: "
        f"{leave_out(name)}, unless it measures something"
        for name in _numbers_of_rows(rows.table, settings.preparation)
    ]
    classes = [c for c in settings.classes or () if isinstance(c, str)]
    if alike := same_but_for_case(classes):
        groups = ", ".join(" and ".join(map(repr, group)) for group in alike)
        told.append(
            f"the label {rows.label.name!r} has values that differ in case only, and are told "
            f"apart: {groups}; Preparation(ignore_case=True) (--ignore-case) makes "
            "them one"
        )
    return told


def _numbers_of_rows(table: Table, chosen: Preparation) -> list[str]:
    """Columns in which every row has a whole number of its own, and nobody said what they are."""
    if len(table) < _MANY:
        return []
    told = {*chosen.drop, *chosen.kinds, *chosen.levels, *chosen.reference}
    found = []
    for name in table.names:
        with suppress(ArgumentError):  # which preparing tells, with those of other columns
            if name in told or (column := table.column(name)).kind != "numeric":
                continue
            cells = column.numbers
            head = cells[:_MANY]
            if all(_is_numbering(rows) for rows in (head, cells)):  # most columns end with the head
                found.append(name)
    return found


def _is_numbering(cells: NDArray[np.float64]) -> bool:
    return bool((cells % 1 == 0).all()) and len(np.unique(cells)) == len(cells)


def _dealt(rows: Rows, clients: int, client: Any, seed: int) -> Rows:
    """The rows dealt to clients of equal size."""
    if client is not None:
        raise ArgumentValueError("clients", "and client exclude each other")
    d = len(rows.clients)
    check_int("clients", clients, low=1, high=d)
    codes = np.empty(d, dtype=np.intp)
    codes[np.random.default_rng(seed).permutation(d)] = np.arange(d) * clients // d
    return replace(rows, clients=codes, names=tuple(f"client {i + 1}" for i in range(clients)))


def _class_weights(given: Any, classes: tuple[Any, ...] | None) -> NDArray[np.float64] | str | None:
    """What rows weigh by class: a number for each class, "balanced", or None."""
    if given is None:
        return None
    if classes is None:
        raise ArgumentValueError("class_weight", "is for classes, not for a regression")
    if isinstance(given, str):
        return check_choice("class_weight", given, ("balanced",))
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            "class_weight", f"must be a mapping of classes or 'balanced', got {given!r}"
        )
    names = [level_text(value) for value in classes]
    weights = np.ones(len(classes))
    for value, weight in given.items():
        if level_text(value) not in names:
            raise ArgumentValueError(
                "class_weight",
                f"must be of the classes {', '.join(map(str, classes))}, got {value!r}",
            )
        weight = check_real("class_weight", weight, low=0.0, open_low=True)
        weights[names.index(level_text(value))] = weight
    return weights


def _counted(
    model: Model, rows: Rows, known: NDArray[np.bool_], held: NDArray[np.bool_]
) -> tuple[dict[str, Any], ...]:
    """What a model says of its clients, with the rows that did not reach the training."""
    m = len(rows.names)
    left_out = np.bincount(rows.clients[~known], minlength=m).tolist()
    kept = np.bincount(rows.clients[held], minlength=m).tolist()
    found = {told["name"]: told for told in model.clients}
    nothing = {"rows": 0, "weight": 0.0}
    return tuple(
        {"name": name, **nothing, **found.get(name, {}), "left_out": a, "held_out": b}
        for name, a, b in zip(rows.names, left_out, kept, strict=True)
    )
