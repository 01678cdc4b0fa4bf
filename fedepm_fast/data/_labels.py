"""Labels as the losses read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.text import first_few
from .._common.validation import (
    ArgumentValueError,
    check_array,
    check_choice,
    check_values,
    numbers_of,
)

TASKS = ("classification", "multiclass", "regression")


def mapped_labels(
    values: ArrayLike, task: str, order: list[Any] | None
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Labels as float64, and what the description says of them; `order` as `class_labels`."""
    check_choice("task", task, TASKS)
    if task == "regression":
        return check_array("labels", numbers_of("labels", values)), {"task": task}
    y, mapping = class_labels(values, two=task == "classification", order=order)
    return y, {"task": task} | ({} if mapping is None else {"label_mapping": mapping})


def _instead(found: NDArray[Any]) -> str:
    """What takes labels of more than two values: a task, and in commands an objective."""
    numbers = found.dtype.kind in "buif"
    whole = not numbers or bool((found == np.round(found)).all())
    tasks = [("classes", "multiclass", "multinomial")] if whole else []
    if numbers:
        tasks.append(("numbers", "regression", "least_squares or poisson"))
    told = (
        f"task={task!r} takes {what} (commands: --objective {losses})"
        for what, task, losses in tasks
    )
    return "; " + ", ".join(told)


def class_labels(
    values: ArrayLike, *, two: bool, order: list[Any] | None = None
) -> tuple[NDArray[np.float64], dict[str, int] | None]:
    """Labels as 0.0, 1.0, ..., and the mapping, or None where they are such already.

    They are in increasing order, or in that of `order`.

    Raises
    ------
    ValueError
        If some are missing, there are not exactly two values, or (with `two` False) only one,
        or more than two that are fractions.
    """
    labels = check_values("labels", values)
    found, codes = np.unique(labels, return_inverse=True)
    if order is not None:
        places = {category: k for k, category in enumerate(order)}
        by_place = np.argsort([places[value] for value in found.tolist()])
        found, codes = found[by_place], np.argsort(by_place)[codes]
    if len(found) != 2 and (two or len(found) < 2):
        shown = first_few(found, 5)
        wanted, task = ("exactly", "classification") if two else ("at least", "multiclass")
        instead = _instead(found) if len(found) > 2 else ""
        raise ArgumentValueError(
            "labels",
            f"must have {wanted} two values for {task}, got {len(found)}: {shown}{instead}",
        )
    if labels.dtype.kind == "f" and len(found) > 2 and (found != np.round(found)).any():
        first = labels[labels != np.round(labels)][0]
        raise ArgumentValueError(
            "labels", f"must be strings or whole numbers for multiclass, got {first}"
        )
    y = codes.astype(np.float64)
    if labels.dtype.kind in "buif" and (found == np.arange(len(found))).all():
        return y, None
    return y, {str(name): k for k, name in enumerate(found)}
