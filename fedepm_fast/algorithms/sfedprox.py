"""SFedProx: FedProx with noisy uploads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Around, integer, param, real
from ._averaging import Averaging, Constants, gradient_stages
from ._base import PrivacyPlan
from ._views import Array, AtClients


@dataclass(frozen=True)
class SFedProx(Averaging):
    """Secure FedProx: each local step solves a proximal problem by a few gradient steps.

    Parameters
    ----------
    prox : float
        Weight of the proximal term ``prox/2 * |w - x|^2``.
    inner_steps : int
        Gradient steps per local step.
    """

    prox: float = param(
        1e-5, check=real(low=0.0), search=Around(1000.0, 1000.0), symbol=r"$\mu$",
        help="Weight of the proximal term",
    )  # fmt: skip
    inner_steps: int = param(3, check=integer(low=1), help="Gradient steps in a local step")

    name: ClassVar[str] = "sfedprox"
    label: ClassVar[str] = "SFedProx"
    tuned: ClassVar[tuple[str, ...]] = ("learning_rate", "prox", "local_steps")

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """Each step takes `inner_steps` gradient steps on ``f_i(v) + prox/2*|v - x|^2``, from x."""
        v, gamma = clients.x, self.rate(clients, row)
        for q in range(self.local_steps):
            for inner in range(self.inner_steps):
                g = clients.gradient(row, v) if q or inner else clients.G[row]
                v = v - gamma * (g + self.prox * (v - clients.x))
            yield v

    def gradients_per_round(self, sizes: NDArray[np.int64]) -> Array:
        return self.inner_steps * super().gradients_per_round(sizes)

    def stages(self, client: Any) -> tuple[Any, Any]:
        return gradient_stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return Constants(self.c, self.alpha, self.prox, self.inner_steps)
