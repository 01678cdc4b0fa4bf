"""SFedAvg: federated averaging with noisy uploads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..objectives import Problem
from ._averaging import Averaging, gradient_stages
from ._base import Array, PrivacyPlan


@dataclass(frozen=True)
class SFedAvg(Averaging):
    """Secure federated averaging: full-gradient local steps, noisy uploads, an average."""

    name: ClassVar[str] = "sfedavg"
    label: ClassVar[str] = "SFedAvg"

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        """``w <- w - gamma * grad f_i(w)``, from x."""
        w, gamma = x, self.rate(problem, i, tau)
        for q in range(self.local_steps):
            w = w - gamma * (g if q == 0 else problem.gradient(i, w))
            yield w

    def stages(self, client: Any) -> tuple[Any, Any]:
        return gradient_stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        return self.c, self.alpha, 0.0, 1
