"""SFedProx: FedProx with noisy uploads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from .._parameters import Around, integer, param, real
from ..objectives import Problem
from ._averaging import Averaging, gradient_stages
from ._base import Array, PrivacyPlan


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
        help="weight of the proximal term",
    )  # fmt: skip
    inner_steps: int = param(3, check=integer(low=1), help="gradient steps in a local step")

    name: ClassVar[str] = "sfedprox"
    label: ClassVar[str] = "SFedProx"
    tuned: ClassVar[tuple[str, ...]] = ("learning_rate", "prox", "local_steps")

    def iterates(self, problem: Problem, i: int, x: Array, g: Array, tau: int) -> Iterator[Array]:
        """Each step takes `inner_steps` gradient steps on ``f_i(v) + prox/2*|v - x|^2``, from x."""
        v, gamma = x, self.rate(problem, i, tau)
        for q in range(self.local_steps):
            for inner in range(self.inner_steps):
                gradient = g if q == inner == 0 else problem.gradient(i, v)
                v = v - gamma * (gradient + self.prox * (v - x))
            yield v

    def stages(self, client: Any) -> tuple[Any, Any]:
        return gradient_stages(client)

    def constants(self, n: int, plan: PrivacyPlan | None) -> tuple[float, ...]:
        return self.c, self.alpha, self.prox, self.inner_steps
