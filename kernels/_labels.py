"""What labels of a loss may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Labels(NamedTuple):
    """One kind of labels."""

    allowed: str
    """In words."""
    fit: Callable[[NDArray[Any]], NDArray[np.bool_]]
    """Which of finite labels are of this kind."""


#: Kinds of labels by name. Up to 2^24 float32 holds every whole number.
LABELS = {
    "binary": Labels("0 or 1", lambda b: (b == 0) | (b == 1)),
    "classes": Labels(
        "whole numbers from 0", lambda b: (b == np.floor(b)) & (b >= 0) & (b < 2**24)
    ),
    "counts": Labels("counts or rates, at least 0", lambda b: b >= 0),
    "reals": Labels("any numbers", lambda b: np.ones(b.shape, bool)),
}


def check_labels(kind: str, labels: NDArray[Any], of: str, hint: str = "") -> None:
    """Raise ValueError where labels are not of a kind; `of` says whose they are."""
    allowed, fit = LABELS[kind]
    right = fit(labels)
    if not right.all():
        at = int(np.argmin(right))
        raise ValueError(f"labels must be {allowed} for {of}, got {labels[at]} at index {at}{hint}")
