"""A metric of all clients that is the mean of what each of them sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ..objectives._curvature import unpacked
from ._coordinates import Coordinates
from ._operators import ens
from ._quadratics import Common

Array = NDArray[np.float64]


class Whitened(Common):
    """One M for all clients, the mean of what they sent: they may come and go.

    Parameters
    ----------
    blocks : ndarray of shape (m, p*(p+1)/2)
        Of each client a bound of the curvature of f_i, packed: one of the equal diagonal blocks,
        if there are several.
    p, copies : int
        Columns, and how many such blocks there are.
    """

    def __init__(
        self, blocks: Array, p: int, copies: int = 1, lam: float = 0.0,
        solve: Callable[..., Array] = ens,
    ) -> None:  # fmt: skip
        self.blocks, self.p, self.copies = np.ascontiguousarray(blocks, np.float64), p, copies
        super().__init__(len(blocks), mean_coordinates(self.blocks, p, copies), lam, solve)

    def admit(self, row: int, curvature: Array) -> None:
        self.restore({"blocks": np.insert(self.blocks, row, curvature, axis=0)})

    def dismiss(self, row: int) -> None:
        self.restore({"blocks": np.delete(self.blocks, row, axis=0)})

    def state(self) -> dict[str, Array]:
        return {"blocks": self.blocks}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.blocks = np.array(state["blocks"], np.float64)
        self.m = len(self.blocks)
        if self.m:
            self.coordinates = mean_coordinates(self.blocks, self.p, self.copies)


def mean_coordinates(blocks: Iterable[Array], p: int, copies: int = 1) -> Coordinates:
    """Coordinates in which the mean of symmetric matrices, packed, is the identity.

    They are added in their order: the same bits whoever adds them.
    """
    total, m = np.zeros(p * (p + 1) // 2), 0
    for block in blocks:
        total += block
        m += 1
    return Coordinates.dense(unpacked(total / m, p), copies)
