"""Rows of a table with their labels, clients and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.text import first_few
from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_array,
    check_choice,
    check_int,
)
from ..losses import OBJECTIVES, Objective, as_objective
from ..preparation import Table, as_table
from ..preparation._columns import Column, level_text, without_case
from ..preparation._levels import Levels, named
from ..preparation._table import column_of, in_order

Array = NDArray[np.float64]

#: Different whole numbers up to which it is not known whether they are classes or numbers.
_FEW = 20
#: Sizes of labels whose squares, and the sums of them, floats hold to the last bit.
_LEAST, _MOST = 1e-130, 1e145
_DEFAULTS = {
    "classification": "logistic",
    "multiclass": "multinomial",
    "regression": "least_squares",
}


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of columns, and what else is known of its rows.

    Attributes
    ----------
    table : Table
        Without the columns of labels, clients and weights.
    label : Column
    clients : ndarray of shape (d,)
        Numbers of the rows' clients.
    names : tuple of str
        Names of the clients.
    weights : ndarray of shape (d,) or None
    called : tuple of str or None
        The columns of labels and clients; None for clients that no column names.
    """

    table: Table
    label: Column
    clients: NDArray[np.intp]
    names: tuple[str, ...]
    weights: Array | None
    called: tuple[str, str | None]

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Some of the rows; the clients keep their numbers."""
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(
            self.table.take(chosen), self.label.take(chosen), self.clients[chosen], self.names,
            weights, self.called,
        )  # fmt: skip


def read_rows(
    table: Any, label: Any, client: Any = None, sample_weight: Any = None, *, whole: bool = False
) -> Rows:
    """The rows of a table; each of the others is the name of a column, or one entry per row.

    With `whole` their columns stay in the table.

    Raises
    ------
    ValueError, TypeError
        Naming the argument.
    """
    held = as_table(table)
    if len(held) == 0:
        raise ArgumentValueError("table", "must have at least one row")
    drop: list[str] = []
    labels = _column(held, label, "label", drop)
    who = None if client is None else _column(held, client, "client", drop)
    weights = None if sample_weight is None else _weights(held, sample_weight, drop)
    if len(set(drop)) < len(drop):
        raise ArgumentValueError(
            "label", f"must be another column than client and sample_weight, got {drop[0]!r}"
        )
    if not whole and len(set(held.names)) == len(drop):
        raise ArgumentValueError(
            "table", "must have at least one column beside those of labels, clients and weights"
        )
    called = labels.name, None if who is None else who.name
    return Rows(
        held if whole else held.without(drop), labels, *_clients(who, len(held)), weights, called
    )


def _column(table: Table, given: Any, argument: str, drop: list[str]) -> Column:
    """A column of the table, which is noted to be none of the features, or one beside it."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        names = table.names
        place = check_int(argument, given, low=-len(names), high=len(names) - 1)
        given = names[place]
    if isinstance(given, str):
        drop.append(given)
        return table.column(given, argument)
    if given is None:
        raise ArgumentValueError(argument, "must be given, a column or one entry per row")
    name = getattr(given, "name", None)
    column = column_of(name if isinstance(name, str) else argument, given)
    if len(column) != len(table):
        raise ArgumentValueError(
            argument, f"must have one entry per row, {len(table)}, got {len(column)}"
        )
    return column


def _clients(column: Column | None, d: int) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Which client has a row, and the clients' names; without a column one has all."""
    if column is None:
        return np.zeros(d, dtype=np.intp), ("all rows",)
    codes, names = column.levels
    missing = codes < 0
    if missing.any():
        row = int(np.argmax(missing))
        raise ArgumentValueError(
            "client",
            f"{column.name!r} must not be missing, but it is in {column.place(row)} "
            f"({int(missing.sum())} such rows)",
        )
    held = [names[k] for k in np.flatnonzero(np.bincount(codes, minlength=len(names)))]
    order = in_order(held)
    place = {name: k for k, name in enumerate(order)}
    return np.array([place.get(name, -1) for name in names], dtype=np.intp)[codes], tuple(order)


def _weights(table: Table, given: Any, drop: list[str]) -> Array:
    column = _column(table, given, "sample_weight", drop)
    weights = check_array("sample_weight", column.numbers, shape=(len(table),))
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise ArgumentValueError(
            "sample_weight", f"must be at least 0, got {weights[row]:g} in {column.place(row)}"
        )
    least, most = (getattr(np.finfo(float), end) ** 0.25 for end in ("tiny", "max"))
    odd = (weights > 0) & ((weights < least) | (weights > most))
    if odd.any():  # sums of their squares, times those of columns, are no numbers
        row = int(np.argmax(odd))
        raise ArgumentValueError(
            "sample_weight",
            f"must be 0 or from {least:.0e} to {most:.0e}, got {weights[row]:g} in "
            f"{column.place(row)}",
        )
    return weights


def counting(rows: Rows, labels: Array) -> NDArray[np.bool_]:
    """Which rows a fit is of: those that have a label, and a weight above 0; shape (d,).

    Raises
    ------
    ValueError
        If there are none; if labels are too large or small to be squared; or if a client's rows
        all have the weight 0.
    """
    known = ~np.isnan(labels)
    if not known.any():
        raise ArgumentValueError("label", f"{rows.label.name!r} must not be missing in every row")
    most = float(np.abs(labels[known]).max())
    if not squares_exist(labels[known]):
        raise ArgumentValueError(
            "label",
            f"{rows.label.name!r} must be brought to scale: the sum of the squares of numbers up "
            f"to {most:.3g} is none",
        )
    if rows.weights is None:
        return known
    found = known & (rows.weights > 0)
    m = len(rows.names)
    lost = np.bincount(rows.clients[known], minlength=m) > 0
    lost &= np.bincount(rows.clients[found], minlength=m) == 0
    if lost.any():
        raise ArgumentValueError(
            "sample_weight",
            f"must not be 0 for all rows of a client, got so for {rows.names[np.argmax(lost)]!r}",
        )
    return found


def squares_exist(labels: Array) -> bool:
    """Whether floats hold the squares of the labels, and sums of them."""
    most = float(np.abs(labels).max())
    return not most or _LEAST <= most <= _MOST


def with_label_in(rows: Rows, ignore_case: bool) -> Rows:
    """The rows with values of the label that differ in case only as one, if that is chosen."""
    if not ignore_case or rows.label.kind != "category":
        return rows
    return replace(rows, label=without_case(rows.label))


# Labels --------------------------------------------------------------------------------------


def objective_for(
    label: Column, task: str | None, objective: Any, declared: Any = None
) -> Objective:
    """The loss that suits the labels, or the classes that are `declared`, unless one is asked for.

    Raises
    ------
    ValueError
        If it does not follow from the labels, or `task` is another one's.
    """
    if task is not None:
        check_choice("task", task, _DEFAULTS)
    if objective is not None:
        if isinstance(objective, str):
            check_choice("objective", objective, OBJECTIVES)
        chosen = as_objective(objective)
        if task not in (None, chosen.task):
            raise ArgumentValueError(
                "task", f"must be {chosen.task!r} for the objective {chosen.name!r}, got {task!r}"
            )
        return chosen
    if declared is not None and task is None:
        task = "classification" if len(declared_classes(declared)) == 2 else "multiclass"
    return as_objective(_DEFAULTS[task or _task_of(label)])


def _task_of(label: Column) -> str:
    kind = label.kind
    different = _levels_held(label)
    if len(different) <= 2:
        return "classification"
    if kind == "category":
        return "multiclass"
    values = label.finite()
    values = values[~np.isnan(values)]
    if len(different) <= _FEW and (values == np.round(values)).all():
        raise ArgumentValueError(
            "task",
            f"must be given for the label {label.name!r} of {len(different)} different whole "
            "numbers: 'multiclass' if they are classes, 'regression' if numbers "
            "(objective='poisson' for counts)",
        )
    return "regression"


def _levels_held(label: Column) -> list[str]:
    """The values of a label that some row has, as text, in their order."""
    if label.kind == "numeric":
        levels, values = _levels_of_numbers(label)
        return sorted(levels.counts(), key=values.__getitem__)
    found = list(label.levels.counts())
    return found if label.ordered else sorted(found)


def _levels_of_numbers(label: Column) -> tuple[Levels, dict[str, float]]:
    """Levels of a label of numbers, one for each number however it is written; their values."""
    codes, names = label.levels
    seen = codes >= 0
    values = np.full(len(names), np.nan)
    values[codes[seen]] = label.numbers[seen]
    # Of larger whole numbers several are one float.
    known = np.abs(values) < 2.0**53
    texts = [level_text(v) if k else n for v, k, n in zip(values, known, names, strict=True)]
    levels = named(codes, texts)
    return levels, {str(text): float(value) for text, value in zip(texts, values, strict=True)}


def classes_of(
    label: Column, objective: Objective, positive: Any = None, declared: Any = None
) -> tuple[Any, ...] | None:
    """The values of a label as classes, in the order of their codes; None for numbers.

    They are those that rows have, or those that are `declared`.

    Raises
    ------
    ValueError
        If there are not two, or more with a loss of several; if `positive` is none of them.
    """
    if objective.task == "regression":
        if positive is not None:
            raise ArgumentValueError("positive", "is for classes, not for a regression")
        if declared is not None:
            raise ArgumentValueError("classes", "is for classes, not for a regression")
        return None
    found = _levels_held(label) if declared is None else declared_classes(declared)
    two = objective.task == "classification"
    if len(found) != 2 and (two or len(found) < 2):
        shown = first_few(found, 5)
        other = "; objective='multinomial' takes more" if two and len(found) > 2 else ""
        raise ArgumentValueError(
            "label",
            f"{label.name!r} must have {'two values' if two else 'at least two values'} for "
            f"{objective.name}, got {len(found)}: {shown or 'none'}{other}",
        )
    if positive is not None:
        if not two or level_text(positive) not in found:
            raise ArgumentValueError(
                "positive", f"must be one of two classes, {', '.join(found)}, got {positive!r}"
            )
        found.sort(key=lambda name: name == level_text(positive))
    return tuple(_plain(name, label.kind) for name in found)


def declared_classes(classes: Any) -> list[str]:
    """Values of a label that are declared, as text, in the order given.

    Raises
    ------
    ValueError, TypeError
        Naming `classes`.
    """
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ArgumentTypeError("classes", f"must be a sequence of values, got {classes!r}")
    found = [str(level_text(value)) for value in classes]
    if len(found) < 2 or len(set(found)) < len(found):
        raise ArgumentValueError("classes", f"must be two different values or more, got {found}")
    return found


def _plain(name: str, kind: str) -> Any:
    """A class as a plain value."""
    if kind == "boolean":
        return name == "true"
    if kind == "numeric":
        return int(name) if "." not in name and "e" not in name else float(name)
    return name


def check_counts(label: Column) -> None:
    """Refuse labels below 0.

    Raises
    ------
    ValueError
        Naming the row of the first.
    """
    wrong = label.finite() < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ArgumentValueError(
            "label",
            f"{label.name!r} must be counts or rates, at least 0, got {label.numbers[row]:g} in "
            f"{label.place(row)}",
        )


def coded(label: Column, classes: tuple[Any, ...] | None) -> Array:
    """Labels as losses read them, shape (d,); NaN where they are missing.

    Raises
    ------
    ValueError
        If a value is none of the classes.
    """
    if classes is None:
        return label.finite()
    codes, names = _levels_of_numbers(label)[0] if label.kind == "numeric" else label.levels
    place = {level_text(value): k for k, value in enumerate(classes)}
    table = np.array([*(place.get(name, -1) for name in names), np.nan])
    found = table[codes]  # the last is that of code -1
    wrong = found < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ArgumentValueError(
            "label",
            f"{label.name!r} must be one of the classes that the model knows, "
            f"{', '.join(map(str, classes))}, got {names[codes[row]]!r} in {label.place(row)}",
        )
    return found
