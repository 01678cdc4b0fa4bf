"""What no honest client sends, as far as a server can know: uploads that would end a federation."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import FOR_ROUNDING, Mechanism, moments_change
from ..mechanisms._sensitivity import NOISE_SHARE
from ._handover import LEAST_SHARE

if TYPE_CHECKING:
    from ..privacy.private_plan import PrivatePlan

Array = NDArray[Any]

#: How much larger than the server's point, and than 1, an upload without noise may be: two fifths
#: of a float's digits are left of the others beside it.
GROWTH = 2.0**40
#: As much of a point that a client has of a server, some rounds before.
_DRIFT = 2.0**10
#: How many scales of its noise a number is off at most, by the order of the norm: further away is
#: one of 1e24.
FAR = {1: 60.0, 2: 12.0}
#: What scale a client may tell beside the one that it would have by the plan: less where its rows
#: are more, and more where an earlier federation left it the least that is a budget.
SMALLER, LARGER = 0.01, 1 / LEAST_SHARE


def largest_upload(x: Array | None) -> float:
    """The size of an upload without noise, beside the server's point, if that is known."""
    return GROWTH * max(1.0, 0.0 if x is None else float(np.abs(x).max()))


def largest_at_first(x: Array) -> float:
    """The size of a server's point of some rounds before `x`."""
    return _DRIFT * max(1.0, float(np.abs(x).max()))


def largest_private(mechanism: Mechanism, scale: float) -> float:
    """The size of a private client's upload: it uploads nothing whose rounding its noise would not
    hide."""
    return (1 / NOISE_SHARE + FAR[mechanism.order]) * scale


class Planned:
    """What clients of a plan may send.

    Parameters
    ----------
    plan : PrivatePlan
        With ``trust="clients"``.
    """

    def __init__(self, plan: PrivatePlan) -> None:
        mechanism, algorithm = plan.mechanism, plan.algorithm
        assert mechanism.clip is not None
        self.plan, self.mechanism, self.clip = plan, mechanism, mechanism.clip
        self.whole = mechanism.neighbours == "client"
        self.eta = algorithm.weights[1]
        self._sizes = mechanism.units(plan.client_sizes)

    def upload_fault(
        self, client: int, upload: Array, scale: float | None, x: Array, spread: float,
        coordinates: Array | None,
    ) -> str:  # fmt: skip
        """What is wrong with an upload, in words: it is made of a point within `spread` of `x`,
        whence the local step leads no further than the clip, and noise than `FAR` of its scales."""
        far, reach, noise = float(np.abs(x).max()), 0.0, 0.0
        if scale is not None:
            if fault := self._upload_scale_fault(client, scale):
                return fault
            noise = FAR[self.mechanism.order] * scale
            pull = 0.0 if coordinates is None else self._pull(coordinates)
            reach = self.clip if self.whole else (self.clip + pull * (far + spread)) / self.eta
        most = spread + (reach + noise) * (1 + FOR_ROUNDING) + FOR_ROUNDING * far
        with np.errstate(over="ignore"):
            away = float(np.abs(upload - x).max())
        if away <= most:
            return ""
        return f"upload must be within {most:.3g} of the server's point, got {away:.3g}"

    def _upload_scale_fault(self, client: int, scale: float) -> str:
        # A client's parameters are apart by as much as its gradients over eta.
        moves = 2 * self.clip / (1.0 if self.whole else self._sizes[client] * self.eta)
        return self._scale_fault(client, scale, moves, self.mechanism.moments + 1)

    def moments_fault(self, client: int, values: Array, scale: float) -> str:
        """What is wrong with second moments: rows are clipped to the radius."""
        radius, mechanism = self.plan.radius, self.mechanism
        assert radius is not None
        moves = moments_change(radius, self._sizes, mechanism.order, self.plan.n_features)[client]
        if fault := self._scale_fault(client, scale, moves, mechanism.moments, mechanism.moments):
            return fault
        most = radius**2 * (1 + FOR_ROUNDING) + FAR[mechanism.order] * scale
        size = float(np.abs(values).max())
        return "" if size <= most else f"moments must be at most {most:.3g} in size, got {size:.3g}"

    def _pull(self, coordinates: Array) -> float:
        """Largest second derivative of the penalty in the coordinates of the rounds."""
        objective = self.plan.objective
        weights = np.ones(len(coordinates))
        if objective.weights is not None:
            weights = np.array(objective.weights)[: len(coordinates)]
        return float(objective.beta * (weights @ np.square(coordinates)).max())

    def _scale_fault(
        self, client: int, scale: float, moves: float, fewest: int, at_once: int = 0
    ) -> str:
        """What is wrong with the scale of noise in what a record moves so far."""
        mechanism = self.mechanism.of_client(client)
        least, most = _multipliers(mechanism, fewest, mechanism.moments + self.plan.rounds)
        if at_once:
            least, most = (mechanism.one_release(each, at_once) for each in (least, most))
        low, high = SMALLER * moves * least, LARGER * moves * most
        if low <= scale <= high:
            return ""
        return f"scale must be from {low:g} to {high:g} by the plan, got {scale:g}"


@lru_cache(maxsize=1024)
def _multipliers(mechanism: Mechanism, fewest: int, most: int) -> tuple[float, float]:
    """Of so few and so many uploads: some take a while to find."""
    few, many = mechanism.noise_multipliers(np.array([fewest, most])).tolist()
    return few, many
