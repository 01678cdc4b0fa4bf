"""SFedAvg: federated averaging with noisy uploads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ._averaging import Averaging, Constants, gradient_stages
from ._base import PrivacyPlan
from ._views import Array, AtClients


@dataclass(frozen=True)
class SFedAvg(Averaging):
    """Secure federated averaging: full-gradient local steps, noisy uploads, an average."""

    name: ClassVar[str] = "sfedavg"
    label: ClassVar[str] = "SFedAvg"

    def iterates(self, clients: AtClients, row: int) -> Iterator[Array]:
        """``w <- w - gamma_i * grad f_i(w)``, from x."""
        w, gamma = clients.x, self.rate(clients, row)
        for q in range(self.local_steps):
            w = w - gamma * (clients.gradient(row, w) if q else clients.G[row])
            yield w

    def stages(self, client: Any) -> tuple[Any, Any]:
        return gradient_stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> Constants:
        return Constants(self.c, self.alpha, prox=0.0, inner_steps=1)
