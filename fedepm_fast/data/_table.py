"""Rows that are ready to be dealt to clients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.validation import ArgumentValueError
from ..kernels._labels import LABELS
from ._federated import FederatedData


class Table(NamedTuple):
    """Rows that are ready to be dealt: labels mapped, columns scaled."""

    name: str
    held: FederatedData
    """All rows, as one client's."""
    content: str
    """SHA-256 of the rows and labels before any scaling, whose last bits may depend on the
    machine."""
    scale: str | None
    clients: NDArray[Any] | None = None
    """The client of every row, where the file names it."""
    lines: NDArray[np.int64] | None = None
    """The line of every row, in a file that has lines."""

    @classmethod
    def prepare(cls, name: str, loaded: Any, *, task: str, scale: str | None, source: str) -> Table:
        """Check, map and scale what a loader gives."""
        content = one_client(loaded, task, None, source).content_hash()
        held = one_client(loaded, task, scale, source)
        named = (getattr(loaded, name, None) for name in ("clients", "lines"))
        return cls(name, held, content, scale, *named)

    def check_labels(self, where: Any, loss: Any) -> None:
        """Raise ValueError, which names a row as the file does, unless a loss takes the labels."""
        allowed, fit = LABELS[loss.labels]
        right = fit(self.held.labels)
        if not right.all():
            row = int(np.argmin(right))
            place = f"row {row}" if self.lines is None else f"line {self.lines[row]}"
            got = f"got {self.held.labels[row]:g}"
            raise ArgumentValueError(
                "label", f"must be {allowed}, for the {loss.name} objective, {got}",
                f"{where}, {place}:",
            )  # fmt: skip


def one_client(loaded: Any, task: str, scale: str | None, source: str) -> FederatedData:
    """All rows that a loader gives, as one client's."""
    return FederatedData.split(
        loaded.features,
        loaded.labels,
        np.zeros(np.shape(loaded.labels)),
        task=task,
        scale=scale,
        feature_names=loaded.feature_names,
        description={"source": source, **getattr(loaded, "note", {})},
    )
